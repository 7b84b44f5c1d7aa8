import java.io.*;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import org.apache.rocketmq.broker.*;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.*;

/**
 * Real brokers in this JVM, each with a name server, of what "broker prepare" wrote: "broker-start DIR" returns when the broker
 * serves, "broker-stop DIR" when it has ended cleanly. One that is not stopped ends as if killed, with the JVM.
 * As a program: BrokerStartup, and the name server knows the broker as soon as it serves.
 */
class Brokers {
    record Running(NamesrvController names, BrokerController broker) { }
    static final Map<String, Running> running = new ConcurrentHashMap<>();

    public static void main(String[] a) throws Exception { announce(BrokerStartup.start(BrokerStartup.createBrokerController(a))); }

    /**
     * A broker registers when it starts, before its client has found that the name server answers: that reaches none, and the next is
     * due after 10 s. Until its queues have all of the log, which a start does not wait for, clients would miss messages.
     */
    private static void announce(BrokerController broker) throws InterruptedException {
        for (int i = 0; i < 400 && !isReady(broker); i++) Thread.sleep(50);
        broker.registerBrokerAll(true, false, true);
    }

    private static boolean isReady(BrokerController broker) {
        return !broker.getBrokerOuterAPI().getRemotingClient().getAvailableNameSrvList().isEmpty() && broker.getMessageStore().dispatchBehindBytes() <= 0;
    }

    static void start(String[] a) throws Exception {
        Path dir = Paths.get(a[1]);
        if (running.containsKey(a[1])) throw new IllegalStateException("already running");
        NamesrvController names = names(dir);
        BrokerController broker = null;
        try {
            ConfigContext given = BrokerStartup.configFileToConfigContext(dir.resolve("broker.conf").toString());
            given.getBrokerConfig().setRocketmqHome(a[1]);
            broker = BrokerStartup.buildBrokerController(given);
            if (!broker.initialize()) throw new IllegalStateException("initialize() returned false");
            broker.start();
            announce(broker);
        } catch (Throwable t) {
            if (broker != null) broker.shutdown();
            names.shutdown();
            throw t;
        }
        running.put(a[1], new Running(names, broker));
    }

    private static NamesrvController names(Path dir) throws Exception {
        Properties p = new Properties();
        try (InputStream in = Files.newInputStream(dir.resolve("namesrv.conf"))) { p.load(in); }
        NamesrvConfig config = new NamesrvConfig();
        NettyServerConfig server = new NettyServerConfig();
        MixAll.properties2Object(p, config);
        MixAll.properties2Object(p, server);
        config.setRocketmqHome(dir.toString());
        config.setKvConfigPath(dir.resolve("kvConfig.json").toString());
        NamesrvController names = new NamesrvController(config, server, new NettyClientConfig());
        if (!names.initialize()) throw new IllegalStateException("the name server: initialize() returned false");
        names.start();
        return names;
    }

    /** Both wait for seconds for threads of theirs that look every three seconds whether to end. */
    static void stop(String[] a) throws InterruptedException {
        Running one = running.remove(a[1]);
        if (one == null) return;
        Thread names = new Thread(one.names::shutdown);
        names.start();
        one.broker.shutdown();
        names.join();
    }
}
