import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;

/**
 * One JVM that answers call after call: a line each on standard input, a name of CALLS and its arguments, separated by tabs, until
 * that ends. It answers with a line "\u0001STATUS OUT ERR more|last" and then OUT bytes of standard output and ERR bytes of
 * standard error. After "last" it ends: something went wrong that could change later answers. Other bytes before an answer
 * are no part of it (what the setup or the JVM itself prints).
 */
public class Judge {
    interface Call { void run(String[] a) throws Exception; }
    static final Map<String, Call> CALLS = Map.of("rocketmq-opens", Peer::opens, "write-store", Profiles::main, "write-goldens", Judge::goldens,
        "config-reads", ConfigReads::run, "talk", Talk::run, "broker-start", Brokers::start, "broker-stop", Brokers::stop);
    static final int WRITERS = 4;   // each sleeps most of its time: a store takes three seconds to stop

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        boolean spent = false;
        for (String line; !spent && (line = in.readLine()) != null; ) {
            var output = new ByteArrayOutputStream();
            var odd = new ByteArrayOutputStream();
            Peer.out.set(new PrintStream(output, false, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(odd, true, StandardCharsets.UTF_8));
            String[] words = line.split("\t", -1);
            int status = 0;
            try {
                Call call = CALLS.get(words[0]);
                if (call == null) throw new IllegalArgumentException("unknown call " + words[0]);
                call.run(words);
            } catch (Throwable t) {
                System.err.println("error: " + t);
                if (System.getenv("PEER_TRACE") != null) t.printStackTrace();
                status = 1;
                spent = t instanceof Error;
            }
            Peer.out.get().flush();
            byte[] err = odd.toByteArray();   // threads of a store that is being stopped may go on
            answers.write(("\u0001" + status + " " + output.size() + " " + err.length + (spent ? " last\n" : " more\n")).getBytes(StandardCharsets.US_ASCII));
            output.writeTo(answers);
            answers.write(err);
            answers.flush();
        }
        Peer.endAll();
        Runtime.getRuntime().halt(0);
    }

    /** "write-goldens FOLDER PROFILE:SEED...": FOLDER/PROFILE as "write-store --golden" writes it; a line for each, with its error. */
    static void goldens(String[] a) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(WRITERS);
        Map<String, Future<?>> begun = new LinkedHashMap<>();
        for (String each : Arrays.copyOfRange(a, 2, a.length)) {
            String profile = each.substring(0, each.indexOf(':'));
            long seed = Long.parseLong(each.substring(each.indexOf(':') + 1));
            begun.put(profile, pool.submit(() -> { Golden.make(profile, seed, java.nio.file.Paths.get(a[1]).resolve(profile)); return null; }));
        }
        for (Map.Entry<String, Future<?>> e : begun.entrySet()) {
            String error = null;
            try { e.getValue().get(); } catch (ExecutionException x) { error = String.valueOf(x.getCause()); }
            Peer.emit(Peer.row("kind", "written", "profile", e.getKey(), "error", error));
        }
        pool.shutdown();
    }
}
