package evenlag.broker;

import evenlag.core.Settings;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;

/**
 * Finds the plug-in's settings among the broker's: {@code evenlag.*}, and for its own connections
 * {@code evenlag.consumer.*}.
 */
final class BrokerSettings {
    private static final String CONSUMER_PREFIX = Settings.PREFIX + "consumer.";
    private static final String SERVERS = Settings.PREFIX + "bootstrap.servers";
    private static final String KEY_FILE = Settings.PREFIX + "signing.key.file";

    private BrokerSettings() {}

    /**
     * Reads the settings.
     *
     * @param configs all of the broker's
     * @throws IllegalArgumentException if one is invalid; the message names it, and contains no value that
     *     may be secret
     */
    static Settings of(Map<String, ?> configs) {
        Map<String, Object> client = new TreeMap<>();
        for (Map.Entry<String, ?> entry : configs.entrySet()) {
            if (entry.getKey().startsWith(CONSUMER_PREFIX)) {
                client.put(entry.getKey().substring(CONSUMER_PREFIX.length()), entry.getValue());
            }
        }
        String servers = Settings.text(configs, SERVERS, "");
        if (!servers.isEmpty()) {
            client.put("bootstrap.servers", servers);
        } else if (!client.containsKey("bootstrap.servers")) {
            Listener own = Listener.of(configs);
            client.put("bootstrap.servers", own.address());
            client.putIfAbsent("security.protocol", own.protocol());
        }
        return Settings.of(configs, client, KEY_FILE, true);
    }

    /** A listener of this broker for its own clients: the inter-broker listener. */
    private record Listener(String address, String protocol) {
        static Listener of(Map<String, ?> configs) {
            String protocol = Settings.text(configs, "security.inter.broker.protocol", "PLAINTEXT");
            String name = Settings.text(configs, "inter.broker.listener.name", protocol).toUpperCase(Locale.ROOT);
            Map<String, String> addresses = entries(Settings.text(configs, "listeners", "PLAINTEXT://:9092"), "://");
            addresses.putAll(entries(Settings.text(configs, "advertised.listeners", ""), "://"));
            String address = addresses.get(name);
            if (address == null) {
                String what = "no listener " + name + " is set: set " + SERVERS;
                throw new IllegalArgumentException(what);
            }
            if (address.startsWith(":") || address.startsWith("0.0.0.0:")) {
                address = "localhost" + address.substring(address.lastIndexOf(':'));
            }
            Map<String, String> protocols = entries(Settings.text(configs, "listener.security.protocol.map", ""), ":");
            return new Listener(address, protocols.getOrDefault(name, name));
        }

        private static Map<String, String> entries(String list, String separator) {
            Map<String, String> entries = new HashMap<>();
            for (String entry : list.split(",")) {
                int at = entry.indexOf(separator);
                if (at > 0) {
                    String name = entry.substring(0, at).strip().toUpperCase(Locale.ROOT);
                    entries.put(name, entry.substring(at + separator.length()).strip());
                }
            }
            return entries;
        }
    }
}
