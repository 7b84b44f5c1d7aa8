import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import java.util.regex.Pattern;
import java.util.stream.Stream;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs the scripts' commands: one from the command line, or ("judge") a line each from standard input, its words
 * separated by tabs, until that ends. A judge answers with a line "\u0001STATUS OUT ERR more|last" and then OUT bytes of
 * standard output and ERR bytes of standard error. After "last" it ends: something went wrong that could change later answers.
 * Other bytes before an answer are no part of it (what the setup or the JVM itself prints).
 */
public class Judge {
    /** A tool of Kafka's, or the broker, wanted to end the process. */
    static class Ended extends Error {
        final int status;
        Ended(int status, String message) { super("exit status " + status + (message == null ? "" : ": " + message)); this.status = status; }
    }
    interface Tool { void main(String[] a) throws Exception; }
    static final Map<String, Tool> TOOLS = Map.of(
        "dump-log", org.apache.kafka.tools.DumpLogSegments::main,
        "topics", org.apache.kafka.tools.TopicCommand::main,
        "produce", org.apache.kafka.tools.ProducerPerformance::main,
        "consume", org.apache.kafka.tools.ConsumerPerformance::main,
        "offsets", org.apache.kafka.tools.GetOffsetShell::main,
        "groups", org.apache.kafka.tools.consumer.group.ConsumerGroupCommand::main);
    static final Pattern WRONG = Pattern.compile("mismatch|found timestamp|not found|out of order|exception|error|corrupt|index offset", Pattern.CASE_INSENSITIVE);

    static volatile boolean spent = false;   // this JVM must answer no other call
    static Ended first;                      // of a call
    static volatile Thread caller, starter;   // where a call runs, and where it starts a broker

    public static void main(String[] a) throws Exception {
        caller = Thread.currentThread();
        PrintStream out = System.out, err = System.err;
        Exit.setExitProcedure(Judge::ended);
        Exit.setHaltProcedure(Judge::ended);
        if (!a[0].equals("judge")) {
            int status = call(a, new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8), err);
            Runtime.getRuntime().halt(status);
        }
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; !spent && (line = in.readLine()) != null; ) {
            var output = new ByteArrayOutputStream();
            var odd = new ByteArrayOutputStream();
            int status = call(line.split("\t", -1), new PrintStream(output, false, StandardCharsets.UTF_8), new PrintStream(odd, true, StandardCharsets.UTF_8));
            out.write(("\u0001" + status + " " + output.size() + " " + odd.size() + (spent ? " last\n" : " more\n")).getBytes(StandardCharsets.US_ASCII));
            output.writeTo(out);
            odd.writeTo(out);
            out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    static void ended(int status, String message) {
        if (Thread.currentThread() != caller && Thread.currentThread() != starter) {
            if (starter == null || !starter.isAlive()) spent = true;   // a broker that had started
            Opens.failure = "the broker ended itself with status " + status + (message == null ? "" : ": " + message);
        }
        if (Thread.currentThread() != caller) throw new Ended(status, message);
        if (first == null) first = new Ended(status, message);   // a tool may catch it, take it for an error and end again
        throw first;
    }

    static int call(String[] a, PrintStream to, PrintStream err) throws Exception {
        PrintStream oldOut = System.out, oldErr = System.err;
        PrintStream out = new PrintStream(new BufferedOutputStream(to, 1 << 16), false, StandardCharsets.UTF_8);
        KafkaPeer.STDOUT = out;
        first = null;
        System.setOut(out);
        System.setErr(err);
        try {
            return run(a);
        } catch (Throwable e) {
            if (first != null) return first.status;
            e.printStackTrace(err);
            return 1;
        } finally {
            out.flush();
            to.flush();
            err.flush();
            System.setOut(oldOut);
            System.setErr(oldErr);
        }
    }

    static int run(String[] a) throws Exception {
        String[] rest = Arrays.copyOfRange(a, 1, a.length);
        switch (a[0]) {
            case "kafka-opens": return Opens.run(rest);
            case "add-topics":   // METADIR LOGDIR: the topics found in LOGDIR go into METADIR/bootstrap.checkpoint, before the first start
                try { KafkaPeer.addTopics(Path.of(rest[0]), Path.of(rest[1])); }
                catch (IllegalStateException | IllegalArgumentException | IOException e) { System.err.println("these folders cannot be given to a broker: " + e.getMessage()); return 1; }
                return 0;
            case "index-check": return indexCheck(rest);
            case "read-small-files": KafkaPeer.files(rest); return 0;
            case "read-messages": KafkaPeer.messages(Path.of(a[1])); return 0;
            default:
                Tool tool = TOOLS.get(a[0]);
                if (tool == null) throw new IllegalArgumentException("unknown command " + a[0]);
                tool.main(rest);
                return first == null ? 0 : first.status;
        }
    }

    /** Kafka's dump tool checks every index of copies of partition folders, in both of its modes. */
    static int indexCheck(String[] folders) throws Exception {
        Path copies = Files.createTempDirectory("index-check");
        boolean bad = false;
        try {
            for (int i = 0; i < folders.length; i++) Opens.copy(List.of(folders[i]), copies.resolve("" + i));
            for (String kind : List.of(".index", ".timeindex")) {
                String files = String.join(",", found(copies, kind));
                if (files.isEmpty()) continue;
                for (String mode : List.of("--index-sanity-check", "--verify-index-only"))
                    bad |= !rightIn(new String[] {mode, "--files", files}, copies, folders);
            }
        } finally { Opens.delete(copies); }
        System.out.println(bad ? "BAD" : "ok");
        return bad ? 1 : 0;
    }
    static List<String> found(Path copies, String kind) throws IOException {
        try (Stream<Path> s = Files.find(copies, 2, (p, at) -> at.isRegularFile() && p.toString().endsWith(kind))) { return s.map(Path::toString).sorted().toList(); }
    }
    static boolean rightIn(String[] asked, Path copies, String[] folders) throws Exception {
        PrintStream out = System.out, err = System.err;
        var output = new ByteArrayOutputStream();
        PrintStream both = new PrintStream(output, false, StandardCharsets.UTF_8);
        System.setOut(both);
        System.setErr(both);
        boolean ended = true;
        try {
            org.apache.kafka.tools.DumpLogSegments.main(asked);
            ended = first == null;
        } catch (Exception | Ended e) {
            e.printStackTrace(both);
            ended = false;
        } finally {
            both.flush();
            System.setOut(out);
            System.setErr(err);
        }
        String text = output.toString(StandardCharsets.UTF_8);
        if (ended && !WRONG.matcher(text).find()) return true;
        for (int i = 0; i < folders.length; i++) text = text.replace(copies.resolve("" + i) + "/", folders[i] + "/");
        text.lines().filter(l -> !l.startsWith("Dumping")).limit(40).forEach(System.out::println);
        return false;
    }
}
