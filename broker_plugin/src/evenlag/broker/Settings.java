package evenlag.broker;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;

/**
 * The plug-in's settings, all of which are among the broker's.
 *
 * @param topic {@code evenlag.hint.topic}
 * @param client how its own clients connect: {@code evenlag.bootstrap.servers} and {@code evenlag.consumer.*}
 * @param keyFiles {@code evenlag.signing.key.file}: comma-separated files of master keys; none: unsigned
 *     hints
 * @param maxBytes {@code evenlag.max.bytes}: the approximate memory limit for hints
 * @param checkIntervalMs {@code evenlag.check.interval.ms}: how often it checks that the topic is still
 *     the same
 * @param forgetAfterMs {@code evenlag.forget.after.ms}: how long hints stay valid without a connection
 */
record Settings(
        String topic,
        Map<String, Object> client,
        List<Path> keyFiles,
        long maxBytes,
        long checkIntervalMs,
        long forgetAfterMs) {
    private static final String PREFIX = "evenlag.";
    private static final String CONSUMER_PREFIX = PREFIX + "consumer.";

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
        String servers = text(configs, PREFIX + "bootstrap.servers", "");
        if (!servers.isEmpty()) {
            client.put("bootstrap.servers", servers);
        } else if (!client.containsKey("bootstrap.servers")) {
            Listener own = Listener.of(configs);
            client.put("bootstrap.servers", own.address());
            client.putIfAbsent("security.protocol", own.protocol());
        }
        List<Path> keyFiles = new ArrayList<>();
        for (String file : text(configs, PREFIX + "signing.key.file", "").split(",")) {
            if (!file.isBlank()) {
                keyFiles.add(Path.of(file.strip()));
            }
        }
        return new Settings(
                text(configs, PREFIX + "hint.topic", "evenlag-hints"),
                Map.copyOf(client),
                List.copyOf(keyFiles),
                number(configs, PREFIX + "max.bytes", 64L * 1024 * 1024),
                number(configs, PREFIX + "check.interval.ms", 5_000),
                number(configs, PREFIX + "forget.after.ms", 30_000));
    }

    /**
     * Reads the master keys again at each call, so that keys can change while the broker runs.
     *
     * @throws IOException if one cannot be read or is empty: then no hint may be followed
     */
    List<byte[]> readKeys() throws IOException {
        List<byte[]> keys = new ArrayList<>();
        for (Path file : keyFiles) {
            String key = Files.readString(file, StandardCharsets.UTF_8).replaceFirst("[\r\n]+$", "");
            if (key.isEmpty()) {
                throw new IOException("the signing key file " + file + " is empty");
            }
            keys.add(key.getBytes(StandardCharsets.UTF_8));
        }
        return keys;
    }

    /** Prints no secret. */
    @Override
    public String toString() {
        return "topic " + topic + " at " + client.get("bootstrap.servers")
                + (keyFiles.isEmpty() ? ", unsigned" : ", signed");
    }

    private static String text(Map<String, ?> configs, String name, String otherwise) {
        Object value = configs.get(name);
        return value == null || value.toString().isBlank() ? otherwise : value.toString().strip();
    }

    private static long number(Map<String, ?> configs, String name, long otherwise) {
        String value = text(configs, name, Long.toString(otherwise));
        try {
            long number = Long.parseLong(value);
            if (number > 0) {
                return number;
            }
        } catch (NumberFormatException error) {
            // Reported below.
        }
        throw new IllegalArgumentException(name + " is no whole number from 1 on: " + value);
    }

    /** A listener of this broker for its own clients: the inter-broker listener. */
    private record Listener(String address, String protocol) {
        static Listener of(Map<String, ?> configs) {
            String protocol = text(configs, "security.inter.broker.protocol", "PLAINTEXT");
            String name = text(configs, "inter.broker.listener.name", protocol).toUpperCase(Locale.ROOT);
            Map<String, String> addresses = entries(text(configs, "listeners", "PLAINTEXT://:9092"), "://");
            addresses.putAll(entries(text(configs, "advertised.listeners", ""), "://"));
            String address = addresses.get(name);
            if (address == null) {
                String what = "no listener " + name + " is set: set " + PREFIX + "bootstrap.servers";
                throw new IllegalArgumentException(what);
            }
            if (address.startsWith(":") || address.startsWith("0.0.0.0:")) {
                address = "localhost" + address.substring(address.lastIndexOf(':'));
            }
            Map<String, String> protocols = entries(text(configs, "listener.security.protocol.map", ""), ":");
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
