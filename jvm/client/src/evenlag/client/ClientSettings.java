package evenlag.client;

import evenlag.core.Settings;
import java.util.Collection;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;

/** Finds the settings among the consumer's: how the application connects, and {@code evenlag.*}. */
final class ClientSettings {
    static final String KEY_FILE = Settings.PREFIX + "hint.key.file";

    private static final String SERVERS = "bootstrap.servers";
    /** What the application's other parts use: two of them would be in each other's way. */
    private static final Set<String> NOT_COPIED = Set.of(
            "client.id", "metric.reporters", "auto.include.jmx.reporter", "enable.metrics.push",
            "bootstrap.controllers");

    private ClientSettings() {}

    /**
     * Reads the settings.
     *
     * @param configs all of the consumer's
     * @throws IllegalArgumentException if one is invalid; the message names it, and contains no value that
     *     may be secret
     */
    static Settings of(Map<String, ?> configs) {
        Map<String, Object> client = new TreeMap<>();
        configs.forEach((name, value) -> {
            if (value != null && isCopied(name)) {
                client.put(name, value);
            }
        });
        Object servers = client.get(SERVERS);
        if (servers == null) {
            throw new IllegalArgumentException(SERVERS + " is not set");
        }
        if (servers instanceof Collection<?> several) {
            client.put(SERVERS, several.stream().map(String::valueOf).collect(Collectors.joining(",")));
        }
        return Settings.of(configs, client, KEY_FILE, false);
    }

    /** Returns the group that the consumer is in. */
    static String groupId(Map<String, ?> configs) {
        String groupId = Settings.text(configs, "group.id", "");
        if (groupId.isEmpty()) {
            throw new IllegalArgumentException("hints are for groups: group.id is not set");
        }
        return groupId;
    }

    /** Settings of connections are copied, and those that Kafka does not know: of callback handlers, say. */
    private static boolean isCopied(String name) {
        if (name.startsWith(Settings.PREFIX) || NOT_COPIED.contains(name)) {
            return false;
        }
        return AdminClientConfig.configNames().contains(name) || !ConsumerConfig.configNames().contains(name);
    }
}
