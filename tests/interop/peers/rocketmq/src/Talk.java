import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;

/**
 * A real client that does what it is told, one thing after the other, and prints JSON lines:
 * "pull TOPIC..." every message of every queue, after which the group "peer-talk" is at the ends,
 * "query TOPIC KEY BEGIN END" what the broker finds by key, "send TOPIC COUNT" new messages (tag "talk", key "talk-N"),
 * "committed TOPIC GROUP..." where each group stands in each queue, as the broker tells it,
 * "delete TOPIC..." topics, as mqadmin's deleteTopic does in the broker,
 * "timed TOPIC COUNT DELAY_MS" new messages that the broker delivers after so long,
 * "delayed TOPIC COUNT LEVEL" new messages that wait for the time of a delay level,
 * "transact TOPIC GROUP COUNT END" new messages in transactions of a producer of the group, which ends them: commit, rollback, or leave to leave them open,
 * "answer TOPIC GROUP COUNT END" what the broker asks a producer of the group, until it asked COUNT times for different messages; the answer is END,
 * "consume TOPIC GROUP COUNT FAIL" what a push consumer of the group gets, until it got COUNT; it hands back those whose body begins with FAIL.
 */
public class Talk {
    final DefaultMQPullConsumer c = new DefaultMQPullConsumer("peer-talk");
    final DefaultMQProducer p = new DefaultMQProducer("peer-talk-producer");

    Talk(String ns) throws Exception {
        c.setNamesrvAddr(ns);
        c.setConsumerPullTimeoutMillis(60_000);
        c.start();
        p.setNamesrvAddr(ns);
        p.setSendMsgTimeout(60_000);
        p.setRetryTimesWhenSendFailed(0); // what was slow, not lost, would be there twice
        p.start();
    }

    static Map<String, Object> row(String kind, MessageExt m) {
        return Peer.row("kind", kind, "topic", m.getTopic(), "queueId", m.getQueueId(), "queueOffset", m.getQueueOffset(),
            "physicalOffset", m.getCommitLogOffset(), "storeTimestamp", m.getStoreTimestamp(), "bornTimestamp", m.getBornTimestamp(),
            "flag", m.getFlag(), "tags", m.getTags(), "keys", m.getKeys(), "properties", new TreeMap<>(m.getProperties()),
            "body", Base64.getEncoder().encodeToString(m.getBody() == null ? new byte[0] : m.getBody()),
            "bornHost", Peer.host(m.getBornHost()), "storeHost", Peer.host(m.getStoreHost()));
    }

    /** A broker that has just started is not known to the name server yet. */
    List<MessageQueue> route(String topic) throws Exception {
        for (int i = 0; ; i++)
            try {
                List<MessageQueue> l = new ArrayList<>(c.fetchSubscribeMessageQueues(topic));
                l.sort(Comparator.comparingInt(MessageQueue::getQueueId));
                return l;
            } catch (MQClientException e) { if (i == 150) throw e; Thread.sleep(200); }
    }

    void pull(String topic) throws Exception {
        for (MessageQueue q : route(topic)) {
            long at = c.minOffset(q), end = c.maxOffset(q);
            Peer.emit(Peer.row("kind", "queue", "topic", topic, "queueId", q.getQueueId(), "min", at, "max", end));
            while (at < end) {
                PullResult r = c.pull(q, "*", at, 32);
                if (r.getPullStatus() != PullStatus.FOUND) throw new IllegalStateException(q + " at " + at + ": " + r);
                for (MessageExt m : r.getMsgFoundList()) Peer.emit(row("message", m));
                at = r.getNextBeginOffset();
            }
            c.getDefaultMQPullConsumerImpl().getOffsetStore().updateConsumeOffsetToBroker(q, at, false);
        }
    }

    void committed(String topic, List<String> groups) throws Exception {
        for (String group : groups) {
            DefaultMQPullConsumer member = new DefaultMQPullConsumer(group);
            member.setNamesrvAddr(c.getNamesrvAddr());
            member.setInstanceName("member-of-" + group);
            member.start();
            for (MessageQueue q : route(topic))
                Peer.emit(Peer.row("kind", "committed", "group", group, "topic", topic, "queueId", q.getQueueId(), "offset", member.fetchConsumeOffset(q, true)));
            member.shutdown();
        }
    }

    void query(String topic, String key, long begin, long end) throws Exception {
        route(topic);
        for (MessageExt m : c.queryMessage(topic, key, 64, begin, end).getMessageList()) Peer.emit(row("found", m));
    }

    void send(String topic, int count) throws Exception {
        for (int n = 0; n < count; n++) {
            SendResult r = p.send(new Message(topic, "talk", "talk-" + n, ("talk " + n).getBytes(StandardCharsets.UTF_8)));
            Peer.emit(Peer.row("kind", "sent", "topic", topic, "queueId", r.getMessageQueue().getQueueId(), "queueOffset", r.getQueueOffset(),
                "msgId", r.getOffsetMsgId(), "status", r.getSendStatus().name()));
        }
    }

    void timed(String topic, int count, long delayMs) throws Exception {
        for (int n = 0; n < count; n++) {
            Message m = new Message(topic, "timed", "timed-" + n, ("timed " + delayMs + " " + n).getBytes(StandardCharsets.UTF_8));
            long due = System.currentTimeMillis() + delayMs;
            m.setDeliverTimeMs(due);
            SendResult r = p.send(m);
            Peer.emit(Peer.row("kind", "sent", "topic", topic, "body", Base64.getEncoder().encodeToString(m.getBody()), "due", due,
                "msgId", r.getOffsetMsgId(), "status", r.getSendStatus().name()));
        }
    }

    void delayed(String topic, int count, int level) throws Exception {
        for (int n = 0; n < count; n++) {
            Message m = new Message(topic, "delayed", "delayed-" + n, ("delayed " + level + " " + n).getBytes(StandardCharsets.UTF_8));
            m.setDelayTimeLevel(level);
            SendResult r = p.send(m);
            Peer.emit(Peer.row("kind", "sent", "topic", topic, "body", Base64.getEncoder().encodeToString(m.getBody()),
                "msgId", r.getOffsetMsgId(), "status", r.getSendStatus().name()));
        }
    }

    void consume(String topic, String group, int count, String fail) throws Exception {
        route(topic);
        DefaultMQPushConsumer member = new DefaultMQPushConsumer(group);
        member.setNamesrvAddr(c.getNamesrvAddr());
        member.setInstanceName("push-of-" + group);
        member.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        member.setConsumeMessageBatchMaxSize(1);
        member.subscribe(topic, "*");
        CountDownLatch left = new CountDownLatch(count);
        member.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            boolean back = false;
            for (MessageExt m : messages) {
                Map<String, Object> row = row("consumed", m);
                row.put("msgId", m.getMsgId());
                row.put("reconsumeTimes", m.getReconsumeTimes());
                row.put("storedIn", context.getMessageQueue().getTopic());
                synchronized (left) { Peer.emit(row); }
                back |= new String(m.getBody(), StandardCharsets.UTF_8).startsWith(fail);
                left.countDown();
            }
            return back ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        member.start();
        member.setAwaitTerminationMillisWhenShutdown(60_000); // the last one is handed back after the listener returned
        boolean all = left.await(120, TimeUnit.SECONDS);
        member.shutdown();
        if (!all) throw new IllegalStateException(left.getCount() + " of " + count + " did not come");
    }

    static LocalTransactionState state(String end) {
        return end.equals("commit") ? LocalTransactionState.COMMIT_MESSAGE : end.equals("rollback") ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
    }

    /** A producer of transactions. The broker knows it, and can ask it, once it has sent heartbeats to the topic's brokers. */
    TransactionMQProducer transactional(String topic, String group, TransactionListener listener) throws Exception {
        route(topic);
        TransactionMQProducer tx = new TransactionMQProducer(group);
        tx.setNamesrvAddr(c.getNamesrvAddr());
        tx.setInstanceName("producer-of-" + group);
        tx.setSendMsgTimeout(60_000);
        tx.setRetryTimesWhenSendFailed(0);
        tx.setTransactionListener(listener);
        tx.start();
        MQClientInstance client = tx.getDefaultMQProducerImpl().getMqClientFactory();
        client.updateTopicRouteInfoFromNameServer(topic);
        client.sendHeartbeatToAllBrokerWithLock();
        return tx;
    }

    void transact(String topic, String group, int count, String end) throws Exception {
        TransactionMQProducer tx = transactional(topic, group, new TransactionListener() {
            public LocalTransactionState executeLocalTransaction(Message m, Object a) { return state(end); }
            public LocalTransactionState checkLocalTransaction(MessageExt m) { return LocalTransactionState.UNKNOW; }
        });
        for (int n = 0; n < count; n++) {
            Message m = new Message(topic, "half", "half-" + n, (group + " " + n).getBytes(StandardCharsets.UTF_8));
            SendResult r = tx.sendMessageInTransaction(m, null);
            Peer.emit(Peer.row("kind", "sent", "topic", topic, "body", Base64.getEncoder().encodeToString(m.getBody()), "transactionId", r.getTransactionId(),
                "msgId", r.getOffsetMsgId(), "status", r.getSendStatus().name()));
        }
        Thread.sleep(500); // the ends are sent one way
        tx.shutdown();
    }

    void answer(String topic, String group, int count, String end) throws Exception {
        Set<String> asked = ConcurrentHashMap.newKeySet();
        TransactionMQProducer tx = transactional(topic, group, new TransactionListener() {
            public LocalTransactionState executeLocalTransaction(Message m, Object a) { return LocalTransactionState.UNKNOW; }
            public LocalTransactionState checkLocalTransaction(MessageExt m) {
                if (asked.add(m.getTransactionId())) synchronized (asked) { Peer.emit(row("found", m)); }
                return state(end);
            }
        });
        for (int i = 0; asked.size() < count; i++) {
            if (i == 600) throw new IllegalStateException(asked.size() + " of " + count + " were asked for");
            Thread.sleep(100);
        }
        Thread.sleep(1000); // for the ends
        tx.shutdown();
    }

    void delete(String topic) throws Exception {
        MQClientInstance client = p.getDefaultMQProducerImpl().getMqClientFactory();
        String name = route(topic).get(0).getBrokerName();
        client.updateTopicRouteInfoFromNameServer(topic);
        String broker = client.findBrokerAddressInPublish(name);
        client.getMQClientAPIImpl().deleteTopicInBroker(broker, topic, 60_000);
    }

    void act(List<String> a) throws Exception {
        switch (a.get(0)) {
            case "pull": for (String topic : a.subList(1, a.size())) pull(topic); break;
            case "query": query(a.get(1), a.get(2), Long.parseLong(a.get(3)), Long.parseLong(a.get(4))); break;
            case "send": send(a.get(1), Integer.parseInt(a.get(2))); break;
            case "timed": timed(a.get(1), Integer.parseInt(a.get(2)), Long.parseLong(a.get(3))); break;
            case "delayed": delayed(a.get(1), Integer.parseInt(a.get(2)), Integer.parseInt(a.get(3))); break;
            case "committed": committed(a.get(1), a.subList(2, a.size())); break;
            case "consume": consume(a.get(1), a.get(2), Integer.parseInt(a.get(3)), a.get(4)); break;
            case "transact": transact(a.get(1), a.get(2), Integer.parseInt(a.get(3)), a.get(4)); break;
            case "answer": answer(a.get(1), a.get(2), Integer.parseInt(a.get(3)), a.get(4)); break;
            case "delete": for (String topic : a.subList(1, a.size())) delete(topic); break;
            default: throw new IllegalArgumentException("pull | query | send | timed | delayed | committed | delete");
        }
    }

    static void run(String[] a) throws Exception {
        Talk t = new Talk(a[1]);
        try {
            List<String> action = new ArrayList<>();
            for (int i = 2; i < a.length; i++) {
                if (!a[i].equals("--")) action.add(a[i]);
                if (i + 1 == a.length || a[i].equals("--")) { t.act(action); action.clear(); }
            }
        } finally { t.c.shutdown(); t.p.shutdown(); }
    }
}
