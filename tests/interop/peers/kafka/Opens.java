import java.io.*;
import java.net.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.regex.Pattern;
import java.util.stream.*;

import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import org.apache.kafka.common.utils.Time;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.Property;

/**
 * kafka-opens: a COPY of a log directory is put into the log directory of a real broker in this JVM, the broker is started, and
 * everything is consumed from the start. JSON lines go to standard output (see KafkaPeer.java for their form), what the
 * broker warned of while loading goes to standard error.
 */
class Opens {
    static final String USAGE = """
        usage: kafka-opens DIR [options]        (options may stand before or after DIR; --name=value works too)
          DIR                 a log directory: the folder that HOLDS partition folders such as orders-0
          --direct            no broker: the real log classes load the copy themselves (faster, and no network)
          --clean yes|no|auto does the copy count as cleanly shut down? yes: a .kafka_cleanshutdown file is put there, so the indexes are
                              used as they are; no: it is removed with the checkpoint files, so everything is recovered from offset 0;
                              auto (default): the files in DIR itself are copied as they are
          --isolation read_uncommitted|read_committed
          --times T,T,...     look these times (ms) up in every partition
          --topic NAME        only this topic (may be repeated)
          --records yes|no    print the records (default yes)
          --groups yes|no     print the committed offsets of every consumer group in DIR's __consumer_offsets (not with --direct; default no)
          --append T:P:N      let the real broker append N records to partition P of topic T before all is read (not with --direct; may be repeated)
          --whole yes|no      copy every file and folder of DIR, not only partition folders and checkpoints: would a broker boot on it as it is? (default no)
          --out DIR2          a file per partition there instead of standard output
          --keep WORK         leave the copy, as Kafka left it after a clean stop, in WORK/log (WORK must not exist)
          --port P            use ports P and P+1 (default: some free pair)
        exit status: 0 all read, 1 something could not be read, 2 wrong use, 3 the broker did not start
        """;
    static final Map<String, Pattern> TAKES = Map.ofEntries(takes("--clean", "yes|no|auto"), takes("--whole", "yes|no"), takes("--records", "yes|no"), takes("--groups", "yes|no"),
        takes("--isolation", "read_uncommitted|read_committed"), takes("--times", "[0-9,-]+"), takes("--port", "[0-9]+"), takes("--append", ".+:[0-9]+:[0-9]+"),
        takes("--topic", ".+"), takes("--out", ".+"), takes("--keep", ".+"));
    static Map.Entry<String, Pattern> takes(String option, String values) { return Map.entry(option, Pattern.compile(values)); }
    static final String MARKER = ".kafka_cleanshutdown", STARTS = "log-start-offset-checkpoint";
    static final List<String> SMALL = List.of(MARKER, "recovery-point-offset-checkpoint", STARTS, "replication-offset-checkpoint");
    static final Pattern NOTED = Pattern.compile("Found .* (invalid|corrupt)|Truncat|Recovering|Rebuild");
    static final Pattern USUAL = Pattern.compile("AppInfo|MBean|QuorumController|log.cleaner.enable|ControlledShutdown|metadata quorum|RaftManager|NetworkClient|DelegatingClassicKafka|SecurityManager|unstable");
    static final long START_MS = 180_000, STOP_MS = 60_000;

    static class Wrong extends Exception { Wrong(String message) { super(message); } }
    static volatile String failure;   // why a thread of the broker wanted to end the process

    final Map<String, String> given = new HashMap<>(Map.of("--clean", "auto", "--whole", "no"));
    final List<String> appends = new ArrayList<>(), passed = new ArrayList<>();
    boolean direct = false;
    Path source = null, work;

    static int run(String[] a) throws Exception {
        if (Stream.of(a).anyMatch(w -> w.equals("-h") || w.equals("--help"))) { System.out.print(USAGE); return 0; }
        Opens o;
        try { o = new Opens(a); } catch (Wrong e) { System.err.print("kafka-opens: " + e.getMessage() + "\n\n" + USAGE); return 2; }
        String keep = o.given.get("--keep");
        o.work = keep == null ? Files.createTempDirectory("kafka-opens") : Files.createDirectories(Path.of(keep).toAbsolutePath());
        Files.createDirectories(o.log());
        try {
            if (!o.direct) return o.withBroker(keep != null);
            o.fill();
            KafkaPeer.Opts opts = new KafkaPeer.Opts(o.passed.toArray(new String[0]));
            KafkaPeer.open(o.log(), opts);
            return opts.bad ? 1 : 0;
        } finally { if (keep == null) delete(o.work); }
    }

    Opens(String[] a) throws Wrong, IOException {
        passed.add("open");   // the place of the command in the arguments of KafkaPeer
        for (int i = 0; i < a.length; i++) {
            String word = a[i], value = null;
            if (!word.startsWith("-")) {
                if (source != null) throw new Wrong("two directories given: " + source + " and " + word);
                source = Path.of(word);
                continue;
            }
            if (word.equals("--direct")) { direct = true; continue; }
            int at = word.indexOf('=');
            if (word.startsWith("--") && at > 2) { value = word.substring(at + 1); word = word.substring(0, at); }
            if (!TAKES.containsKey(word)) throw new Wrong("unknown option " + word);
            if (value == null && i + 1 < a.length) value = a[++i];
            if (value == null || value.isEmpty() || value.startsWith("--")) throw new Wrong(word + " needs a value");
            if (!TAKES.get(word).matcher(value).matches()) throw new Wrong(word + " takes " + TAKES.get(word) + ", not '" + value + "'");
            take(word, value);
        }
        if (source == null) throw new Wrong("DIR is missing");
        if (!Files.isDirectory(source)) throw new Wrong("no such directory: " + source);
        source = source.toRealPath();
        if (partitions().isEmpty()) {
            try (Stream<Path> s = Files.list(source)) {
                if (s.anyMatch(p -> p.toString().endsWith(".log"))) throw new Wrong(source + " is a partition folder: give the folder that holds it");
            }
            throw new Wrong("no partition folders (such as topic-0) in " + source);
        }
        String keep = given.get("--keep");
        if (keep != null && Files.exists(Path.of(keep))) throw new Wrong(keep + " exists already");
    }
    private void take(String option, String value) {
        switch (option) {
            case "--append" -> appends.add(value);
            case "--isolation", "--times", "--topic", "--records", "--groups", "--out" -> passed.addAll(List.of(option, value));
            default -> given.put(option, value);
        }
    }

    Path log() { return work.resolve("log"); }
    List<String> partitions() throws IOException {
        try (Stream<Path> s = Files.list(source)) {
            return s.filter(Files::isDirectory).filter(p -> p.getFileName().toString().matches(".*-[0-9].*") && !p.getFileName().toString().startsWith("__cluster_metadata-"))
                .map(Path::toString).sorted().toList();
        }
    }

    // ---- the copy ----
    /** Copies files and folders as `cp` does, which keeps holes; the only one of `from` may get another name. */
    static void copy(List<String> from, Path to) throws Exception {
        List<String> command = new ArrayList<>(List.of("cp", "-r"));
        command.addAll(from);
        command.add(to.toString());
        Process p = new ProcessBuilder(command).redirectErrorStream(true).start();
        String said = new String(p.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        if (p.waitFor() != 0) throw new IOException(said);
    }
    static void delete(Path folder) throws IOException {
        if (!Files.exists(folder)) return;
        try (Stream<Path> s = Files.walk(folder)) { s.sorted(Comparator.reverseOrder()).forEach(p -> p.toFile().delete()); }
    }
    void fill() throws Exception {
        Path log = log(), own = log.resolve("meta.properties");
        if (given.get("--whole").equals("yes")) {
            byte[] kept = Files.exists(own) ? Files.readAllBytes(own) : null;   // the broker's own: it must fit its metadata folder
            copy(List.of(source + "/."), log);
            for (String name : List.of("meta.properties", ".lock", "bootstrap.checkpoint", "__cluster_metadata-0")) delete(log.resolve(name));
            if (kept != null) Files.write(own, kept);
            return;
        }
        copy(partitions(), log);
        String clean = given.get("--clean");
        for (String name : SMALL) {
            if (clean.equals("no") && !name.equals(STARTS)) Files.deleteIfExists(log.resolve(name));
            else if (Files.isRegularFile(source.resolve(name))) copy(List.of(source.resolve(name).toString()), log.resolve(name));
        }
        if (clean.equals("yes") && !Files.exists(log.resolve(MARKER))) Files.writeString(log.resolve(MARKER), "{\"version\":0,\"brokerEpoch\":-1}");
    }

    // ---- the broker ----
    /** What a broker logs, a line each. */
    static class Lines extends AbstractAppender {
        final Queue<String> lines = new ConcurrentLinkedQueue<>();
        Lines() { super("lines", null, null, true, Property.EMPTY_ARRAY); start(); }
        @Override public void append(LogEvent e) {
            String logger = e.getLoggerName();
            StringBuilder b = new StringBuilder(e.getLevel() + " " + logger.substring(logger.lastIndexOf('.') + 1) + " " + e.getMessage().getFormattedMessage());
            for (Throwable t = e.getThrown(); t != null; t = t.getCause()) b.append(" / ").append(t);
            lines.add(b.toString());
        }
    }

    int withBroker(boolean keep) throws Exception {
        LoggerContext context = (LoggerContext) LogManager.getContext(false);
        var root = context.getConfiguration().getRootLogger();
        Level before = root.getLevel();
        Lines lines = new Lines();
        root.addAppender(lines, Level.INFO, null);
        root.setLevel(Level.INFO);
        context.updateLoggers();
        try {
            return withBroker(keep, lines.lines);
        } finally {
            root.removeAppender(lines.getName());
            root.setLevel(before);
            context.updateLoggers();
            if (keep) Files.write(work.resolve("server.log"), lines.lines);
        }
    }
    int withBroker(boolean keep, Queue<String> lines) throws Exception {
        KafkaRaftServer server = null;
        int port = 0;
        for (int again = given.containsKey("--port") ? 0 : 4; ; again--) {   // a free port may be another's before the broker listens
            port = given.containsKey("--port") ? Integer.parseInt(given.get("--port")) : freePorts();
            server = started(port);
            if (server != null) break;
            if (again == 0 || lines.stream().noneMatch(l -> l.contains("Address already in use"))) {
                tell(lines, false);
                System.err.println(failure);
                return 3;
            }
            lines.clear();
            delete(log());
            delete(work.resolve("meta"));
            Files.createDirectories(log());
        }
        String address = "127.0.0.1:" + port;
        KafkaPeer.Opts opts = new KafkaPeer.Opts(passed.toArray(new String[0]));
        try {
            for (String one : appends) KafkaPeer.append(address, one);
            KafkaPeer.read(address, opts);
        } finally { stop(server); }
        tell(lines, true);
        if (keep && Judge.spent) throw new IllegalStateException("the broker did not end within " + STOP_MS + " ms");
        return opts.bad ? 1 : 0;
    }
    void tell(Queue<String> lines, boolean loaded) {
        java.util.function.Predicate<String> wanted = l -> l.matches("(WARN|ERROR|FATAL) [\\s\\S]*") || loaded && NOTED.matcher(l).find();
        lines.stream().filter(wanted).filter(l -> !loaded || !USUAL.matcher(l).find()).distinct().forEach(l -> System.err.println(l.replace(log() + "/", "")));
    }

    /** Formats the storage, fills it with the copy, and starts a broker on it; null, and the reason in `failure`, if it does not start. */
    KafkaRaftServer started(int port) throws Exception {
        failure = null;
        Properties p = properties(port);
        Path file = work.resolve("server.properties");
        try (OutputStream out = Files.newOutputStream(file)) { p.store(out, null); }
        var said = new ByteArrayOutputStream();
        String[] format = {"format", "--ignore-formatted", "-t", "AAAAAAAAQACAAAAAAAAAAQ", "-c", file.toString()};
        if (kafka.tools.StorageTool.execute(format, new PrintStream(said, true, StandardCharsets.UTF_8)) != 0) throw new IllegalStateException(said.toString(StandardCharsets.UTF_8));
        fill();
        try { KafkaPeer.addTopics(work.resolve("meta"), log()); }
        catch (IllegalStateException | IllegalArgumentException | IOException e) { failure = "these folders cannot be given to a broker: " + e.getMessage(); return null; }
        p.putAll(Map.of("log.cleaner.enable", "false", "log.retention.check.interval.ms", "86400000", "log.message.timestamp.type", "CreateTime"));
        CompletableFuture<KafkaRaftServer> done = new CompletableFuture<>();
        KafkaRaftServer[] made = {null};
        Thread starter = new Thread(() -> {
            try {
                made[0] = new KafkaRaftServer(KafkaConfig.fromProps(p, false), Time.SYSTEM);
                made[0].startup();
                done.complete(made[0]);
            } catch (Throwable t) { done.completeExceptionally(t); }
        }, "starter");
        starter.setDaemon(true);
        Judge.starter = starter;
        starter.start();
        for (long end = System.nanoTime() + START_MS * 1_000_000; failure == null && !done.isDone() && System.nanoTime() < end; )
            Thread.sleep(10);
        if (done.isDone() && !done.isCompletedExceptionally()) return made[0];
        if (failure == null && !done.isDone()) failure = "not ready after " + START_MS + " ms";
        starter.interrupt();   // where another thread ended the broker: it then gives back what it has
        starter.join(STOP_MS);
        if (starter.isAlive()) Judge.spent = true;
        else if (made[0] != null) stop(made[0]);
        if (failure == null) failure = "the broker ended while starting: " + causes(done);
        return null;
    }
    static String causes(CompletableFuture<?> done) {
        StringBuilder b = new StringBuilder();
        try { done.getNow(null); }
        catch (CompletionException | CancellationException e) { for (Throwable t = e.getCause(); t != null; t = t.getCause()) b.append(" / ").append(t); }
        return b.toString();
    }
    Properties properties(int port) throws IOException {
        Properties p = new Properties();
        try (InputStream in = Files.newInputStream(Path.of(System.getProperty("peer.home")).resolve("broker.properties"))) { p.load(in); }
        String address = "127.0.0.1:" + port, controller = "127.0.0.1:" + (port + 1);
        p.put("listeners", "PLAINTEXT://" + address + ",CONTROLLER://" + controller);
        p.put("advertised.listeners", "PLAINTEXT://" + address);
        p.put("controller.quorum.voters", "1@" + controller);
        p.put("log.dirs", log().toString());
        p.put("metadata.log.dir", work.resolve("meta").toString());
        String more = System.getenv("BROKER_PROPS");
        if (more != null) p.load(new StringReader(more));
        return p;
    }
    /** Ends a broker cleanly; if that takes too long, this JVM is not used again. */
    static void stop(KafkaRaftServer server) throws InterruptedException {
        Thread t = new Thread(() -> {
            try { server.shutdown(); server.awaitShutdown(); } catch (Throwable e) { Judge.spent = true; }
        }, "stopper");
        t.setDaemon(true);
        t.start();
        t.join(STOP_MS);
        if (t.isAlive()) Judge.spent = true;
    }
    static int freePorts() throws IOException {
        Random random = new Random();
        for (int i = 0; i < 50; i++) {
            int port = 20000 + 2 * random.nextInt(5000);
            try (ServerSocket a = listening(port); ServerSocket b = listening(port + 1)) { return port; }
            catch (BindException e) { /* the next */ }
        }
        throw new IOException("no two free ports");
    }
    static ServerSocket listening(int port) throws IOException {
        ServerSocket s = new ServerSocket();
        s.setReuseAddress(true);
        s.bind(new InetSocketAddress("127.0.0.1", port));
        return s;
    }
}
