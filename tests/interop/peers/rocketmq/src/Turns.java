import java.io.*;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.file.*;
import java.util.*;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.store.*;

/**
 * Timings of the real store, one turn at a time and on request, so that another store can be measured between the turns
 * of this one, and the JVM is warm. A line of standard input is a turn, its words between tabs; its answer is one JSON
 * line {"units": done, "seconds": taken}; * in processor time of the thread, else by the clock.
 *
 *   encode BODY COUNT [OUT]     *  MessageExtEncoder and the CRC of the body; OUT gets the records
 *   decode BODY COUNT           *  MessageDecoder with the CRC checked
 *   put DIR THREADS BODY sync|async COUNT     until all is dispatched; DIR is removed
 *   makebig DIR COUNT BODY         kept, with params.json
 *   open DIR                       for read and query; sizes from its params.json, as for load
 *   read                        *  every message of the four queues, decoded
 *   query COUNT SEED               by key; seconds are the median, with p99 beside it
 *   close
 *   load SRC DIR keep|drop         opens a copy of SRC in DIR after an abort; drop: without queues, index and checkpoint
 */
public class Turns {
    static Peer.Store open;

    /** What this thread has had of the processor: other processes do not count. */
    static long cpuNanos() { return ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime(); }

    static Map<String, Object> answer(long units, long nanos) { return Peer.row("units", units, "seconds", nanos / 1e9); }

    static Peer.Params big() {
        Peer.Params p = new Peer.Params();
        p.commitlog = 64 * 1024 * 1024; p.slots = 500000; p.indexNum = 3000000;
        return p;
    }

    static Peer.Params params(Path dir) throws Exception {
        return Peer.Params.from(com.alibaba.fastjson2.JSON.parseObject(Files.readString(dir.resolve("params.json"))));
    }

    static byte[] body(int size) {
        byte[] b = new byte[size];
        Arrays.fill(b, (byte) 'x');
        return b;
    }

    static MessageExtBrokerInner[] messages(int body, int count) {
        MessageExtBrokerInner[] ms = new MessageExtBrokerInner[count];
        byte[] b = body(body);
        for (int i = 0; i < count; i++) {
            ms[i] = Bench.msg(i, b, 4);
            ms[i].setStoreTimestamp(ms[i].getBornTimestamp());
        }
        return ms;
    }

    static ByteBuffer encode(MessageExtEncoder encoder, MessageExtBrokerInner m) throws Exception {
        m.setBodyCRC(UtilAll.crc32(m.getBody()));
        PutMessageResult refused = encoder.encode(m);
        if (refused != null) throw new IllegalStateException(refused.getPutMessageStatus().name());
        return encoder.getEncoderBuffer();
    }

    /** One record: its size is its first field. */
    static byte[] bytes(ByteBuffer b) {
        byte[] bytes = new byte[b.getInt(0)];
        b.get(0, bytes);
        return bytes;
    }

    static final int DIFFERENT = 1000;

    static Map<String, Object> encode(int body, int count, String out) throws Exception {
        MessageExtBrokerInner[] ms = messages(body, DIFFERENT);
        MessageExtEncoder encoder = new MessageExtEncoder(4 * 1024 * 1024, Peer.config("/tmp", new Peer.Params()));
        if (out != null) {
            try (OutputStream o = Files.newOutputStream(Paths.get(out))) {
                for (MessageExtBrokerInner m : ms) { o.write(bytes(encode(encoder, m))); }
            }
        }
        long bytes = 0, t0 = cpuNanos();
        for (int i = 0; i < count; i++) bytes += encode(encoder, ms[i % DIFFERENT]).getInt(0);
        long t = cpuNanos() - t0;
        if (bytes < count) throw new IllegalStateException("nothing encoded");
        return answer(count, t);
    }

    static Map<String, Object> decode(int body, int count) throws Exception {
        MessageExtEncoder encoder = new MessageExtEncoder(4 * 1024 * 1024, Peer.config("/tmp", new Peer.Params()));
        List<ByteBuffer> records = new ArrayList<>();
        for (MessageExtBrokerInner m : messages(body, DIFFERENT)) {
            records.add(ByteBuffer.wrap(bytes(encode(encoder, m))));
        }
        long done = 0, t0 = cpuNanos();
        for (int i = 0; i < count; i++) {
            ByteBuffer b = records.get(i % DIFFERENT);
            b.rewind();
            MessageExt m = MessageDecoder.decode(b, true, false, false, false, true);
            if (m != null && m.getProperties().size() == 3) done++;
        }
        return answer(done, cpuNanos() - t0);
    }

    static Map<String, Object> put(Path dir, int threads, int body, boolean sync, long count) throws Exception {
        PrintStream out = System.out;
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        System.setOut(new PrintStream(said, true));
        try { Bench.put(dir, threads, body, sync, count, 1e6, new Peer.Params(), "put", false); } finally { System.setOut(out); }
        com.alibaba.fastjson2.JSONObject row = com.alibaba.fastjson2.JSON.parseObject(said.toString());
        return Peer.row("units", row.getLong("messages"), "seconds", row.getDouble("putSeconds") + row.getDouble("catchUpSeconds"));
    }

    static Map<String, Object> makebig(Path dir, long count, int body) throws Exception {
        PrintStream out = System.out;
        System.setOut(new PrintStream(new ByteArrayOutputStream(), true));
        try { Bench.put(dir, 1, body, false, count, 1e6, big(), "makebig", true); } finally { System.setOut(out); }
        Files.writeString(dir.resolve("params.json"), Peer.js(big().json()) + "\n");
        return answer(count, 1);
    }

    static Map<String, Object> read() throws Exception {
        long n = 0, t0 = cpuNanos();
        for (int q = 0; q < 4; q++) {
            long off = open.getMinOffsetInQueue("bench", q), max = open.getMaxOffsetInQueue("bench", q);
            while (off < max) {
                GetMessageResult g = open.getMessage("g", "bench", q, off, 32, null);
                for (ByteBuffer bb : g.getMessageBufferList()) if (MessageDecoder.decode(bb, true, false) != null) n++;
                off = g.getNextBeginOffset();
                g.release();
            }
        }
        return answer(n, cpuNanos() - t0);
    }

    static Map<String, Object> query(int count, long seed) throws Exception {
        Random r = new Random(seed);
        long total = 0, found = 0;
        for (int q = 0; q < 4; q++) total += open.getMaxOffsetInQueue("bench", q);
        long[] nanos = new long[count];
        for (int i = 0; i < count; i++) {
            String key = "key-" + (long) (r.nextDouble() * total);
            long t0 = System.nanoTime();
            QueryMessageResult qr = open.queryMessage("bench", key, 32, 0, Long.MAX_VALUE);
            nanos[i] = System.nanoTime() - t0;
            if (qr.getMessageBufferList().size() > 0) found++;
            qr.release();
        }
        Arrays.sort(nanos);
        Map<String, Object> a = answer(found, nanos[count / 2]);
        a.put("p99", nanos[count * 99 / 100] / 1e9);
        return a;
    }

    static Map<String, Object> load(Path src, Path dir, boolean drop) throws Exception {
        Peer.delete(dir);
        Peer.copy(src, dir, true);
        Files.writeString(dir.resolve("abort"), "1");
        if (drop) {
            Peer.delete(dir.resolve("consumequeue"));
            Peer.delete(dir.resolve("index"));
            Files.deleteIfExists(dir.resolve("checkpoint"));
        }
        long t0 = System.nanoTime();
        Peer.Store s = Peer.open(dir.toString(), params(dir), false);
        long t = System.nanoTime() - t0, n = 0;
        for (int q = 0; q < 4; q++) n += s.getMaxOffsetInQueue("bench", q);
        s.destroy();
        Peer.delete(dir);
        return answer(n, t);
    }

    static Map<String, Object> turn(String[] a) throws Exception {
        switch (a[0]) {
            case "encode": return encode(Integer.parseInt(a[1]), Integer.parseInt(a[2]), a.length > 3 ? a[3] : null);
            case "decode": return decode(Integer.parseInt(a[1]), Integer.parseInt(a[2]));
            case "put": return put(Paths.get(a[1]), Integer.parseInt(a[2]), Integer.parseInt(a[3]), a[4].equals("sync"), Long.parseLong(a[5]));
            case "makebig": return makebig(Paths.get(a[1]), Long.parseLong(a[2]), Integer.parseInt(a[3]));
            case "open": open = Peer.open(a[1], params(Paths.get(a[1])), true); Peer.settle(open); return answer(0, 1);
            case "read": return read();
            case "query": return query(Integer.parseInt(a[1]), Long.parseLong(a[2]));
            case "close": open.shutdown(); return answer(0, 1);
            case "load": return load(Paths.get(a[1]), Paths.get(a[2]), a[3].equals("drop"));
            default: throw new IllegalArgumentException(a[0]);
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            System.out.println(Peer.js(turn(line.split("\t"))));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
