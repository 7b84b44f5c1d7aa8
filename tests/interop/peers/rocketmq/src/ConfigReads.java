import com.alibaba.fastjson2.*;
import java.nio.file.*;
import java.util.*;
import java.util.function.*;
import org.apache.rocketmq.broker.offset.*;
import org.apache.rocketmq.broker.subscription.SubscriptionGroupManager;
import org.apache.rocketmq.broker.topic.TopicConfigManager;
import org.apache.rocketmq.common.ConfigManager;

/**
 * "config-reads PARENT": what the broker's own managers load from config/ of every folder in PARENT, one JSON line a file.
 * They work on the folder itself: ConfigManager.load deletes an empty file.
 */
public class ConfigReads {
    static void run(String[] a) throws Exception {
        try (var folders = Files.list(Paths.get(a[1]))) {
            for (Path folder : folders.sorted().toList()) {
                Path config = folder.resolve("config");
                String offsets = config.resolve("consumerOffset.json").toString();
                var om = new ConsumerOffsetManager() { @Override public String configFilePath() { return offsets; } };
                tell(folder, offsets, om, om::getOffsetTable);
                String topics = config.resolve("topics.json").toString();
                var tm = new TopicConfigManager() { @Override public String configFilePath() { return topics; } };
                tell(folder, topics, tm, tm::getTopicConfigTable);
                String groups = config.resolve("subscriptionGroup.json").toString();
                var gm = new SubscriptionGroupManager() { @Override public String configFilePath() { return groups; } };
                tell(folder, groups, gm, gm::getSubscriptionGroupTable);
            }
        }
    }

    static void tell(Path folder, String file, ConfigManager manager, Supplier<Object> table) {
        if (!Files.exists(Paths.get(file)) && !Files.exists(Paths.get(file + ".bak"))) return;
        JSONObject row = new JSONObject();
        row.put("kind", "config");
        row.put("dir", folder.getFileName().toString());
        row.put("file", Paths.get(file).getFileName().toString());
        try {
            row.put("loaded", manager.load());
            row.put("value", table.get());
        } catch (Throwable t) {
            row.put("error", t.toString());
        }
        Peer.out.get().println(JSON.toJSONString(row, JSONWriter.Feature.WriteNonStringKeyAsString, JSONWriter.Feature.WriteNulls, JSONWriter.Feature.BrowserCompatible));
    }
}
