import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;

/**
 * An application of Kafka Streams that runs until it is ended.
 *
 *   WordCount NAME=VALUE...   configs of Streams; processing.guarantee is exactly_once_v2
 *   topology=count            counts the words of the topic `lines` in the topic `counts`; every step is written
 *   topology=copy             copies `lines` to `counts`: no state, no topic of its own
 *
 * Prints a line for each state, and "refused: ..." with the chain of causes before exit status 1.
 */
public final class WordCount {
    public static void main(String[] arguments) throws InterruptedException {
        Properties configs = new Properties();
        configs.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        configs.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        configs.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        configs.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        configs.put("auto.offset.reset", "earliest");
        for (String argument : arguments) {
            String[] pair = argument.split("=", 2);
            configs.put(pair[0], pair[1]);
        }
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream("lines");
        if ("copy".equals(configs.remove("topology"))) {
            lines.to("counts");
        } else {
            lines.flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.as("words"))
                .count(Materialized.as("totals"))
                .toStream()
                .mapValues(String::valueOf)
                .to("counts");
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), configs);
        CountDownLatch ended = new CountDownLatch(1);
        streams.setStateListener((now, before) -> System.out.println(now));
        streams.setUncaughtExceptionHandler(failure -> {
            StringBuilder text = new StringBuilder("refused:");
            for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
                text.append(' ').append(cause.getClass().getSimpleName()).append(": ").append(cause.getMessage());
            }
            System.out.println(text.toString().replace('\n', ' '));
            ended.countDown();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(20))));
        streams.start();
        ended.await();
        System.exit(1);
    }
}
