package evenlag.core;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * Where hints are read, and how.
 *
 * @param topic {@code evenlag.hint.topic}
 * @param client how the watcher's own clients connect
 * @param keyFiles files of signing keys; none: unsigned hints, unless {@code evenlag.required.signing} is
 *     true: then the settings are invalid
 * @param areMasterKeys whether they hold master keys, else those of one group
 * @param maxBytes {@code evenlag.max.bytes}: the limit of heap for hints and loads; default: an eighth of the
 *     largest heap, at least 64 MiB
 * @param checkIntervalMs {@code evenlag.check.interval.ms}: how often it checks that the topic is still
 *     the same
 * @param forgetAfterMs {@code evenlag.forget.after.ms}: how long hints stay valid without a connection
 */
public record Settings(
        String topic,
        Map<String, Object> client,
        List<Path> keyFiles,
        boolean areMasterKeys,
        long maxBytes,
        long checkIntervalMs,
        long forgetAfterMs) {
    /** All of evenlag's settings begin with it. */
    public static final String PREFIX = "evenlag.";

    private static final String REQUIRED = PREFIX + "required.signing";
    /** Of the policy, too: a shorter key can be found by trying, from one signed hint. */
    private static final int MIN_KEY_BYTES = 32;

    /**
     * Reads the settings.
     *
     * @param configs in which they are
     * @param client how to connect
     * @param keyFile the name of the setting with the files of keys
     * @param areMasterKeys whether these are master keys
     * @throws IllegalArgumentException if one is invalid; the message names it, and contains no value that
     *     may be secret
     */
    public static Settings of(
            Map<String, ?> configs, Map<String, Object> client, String keyFile, boolean areMasterKeys) {
        List<Path> keyFiles = new ArrayList<>();
        for (String file : text(configs, keyFile, "").split(",")) {
            if (!file.isBlank()) {
                keyFiles.add(Path.of(file.strip()));
            }
        }
        if (keyFiles.isEmpty() && isSet(configs, REQUIRED)) {
            throw new IllegalArgumentException(
                    REQUIRED + " is true: set " + keyFile + ", or no hint may be followed");
        }
        return new Settings(
                text(configs, PREFIX + "hint.topic", "evenlag-hints"),
                Map.copyOf(client),
                List.copyOf(keyFiles),
                areMasterKeys,
                number(configs, PREFIX + "max.bytes", defaultMaxBytes()),
                number(configs, PREFIX + "check.interval.ms", areMasterKeys ? 5_000 : 15_000),
                number(configs, PREFIX + "forget.after.ms", 30_000));
    }

    private static long defaultMaxBytes() {
        return Math.max(64L * 1024 * 1024, Runtime.getRuntime().maxMemory() / 8);
    }

    /**
     * Reads the keys again at each call, so that keys can change while the process runs.
     *
     * @throws IOException if one cannot be read or is too short: then no hint may be followed
     */
    SigningKeys readKeys() throws IOException {
        List<byte[]> keys = new ArrayList<>();
        for (Path file : keyFiles) {
            String text = Files.readString(file, StandardCharsets.UTF_8).replaceFirst("[\r\n]+$", "");
            byte[] key = areMasterKeys ? text.getBytes(StandardCharsets.UTF_8) : fromHex(file, text.strip());
            if (key.length < MIN_KEY_BYTES) {
                throw new IOException("the key in the signing key file " + file + " has " + key.length
                        + " bytes: give at least " + MIN_KEY_BYTES);
            }
            keys.add(key);
        }
        return areMasterKeys ? SigningKeys.ofMasters(keys) : SigningKeys.ofGroup(keys);
    }

    private static byte[] fromHex(Path file, String text) throws IOException {
        boolean isHex = text.length() % 2 == 0;
        byte[] key = new byte[text.length() / 2];
        for (int i = 0; isHex && i < key.length; i++) {
            int high = Character.digit(text.charAt(2 * i), 16);
            int low = Character.digit(text.charAt(2 * i + 1), 16);
            isHex = high >= 0 && low >= 0;
            key[i] = (byte) (high << 4 | low);
        }
        if (!isHex) {
            throw new IOException("the key in the signing key file " + file + " is not in hexadecimal");
        }
        return key;
    }

    /** Prints no secret. */
    @Override
    public String toString() {
        return "topic " + topic + " at " + client.get("bootstrap.servers")
                + (keyFiles.isEmpty() ? ", unsigned" : ", signed");
    }

    /** Returns a setting without spaces around it. */
    public static String text(Map<String, ?> configs, String name, String otherwise) {
        Object value = configs.get(name);
        return value == null || value.toString().isBlank() ? otherwise : value.toString().strip();
    }

    private static boolean isSet(Map<String, ?> configs, String name) {
        String value = text(configs, name, "false");
        if (!value.equalsIgnoreCase("true") && !value.equalsIgnoreCase("false")) {
            throw new IllegalArgumentException(name + " is neither true nor false: " + value);
        }
        return value.equalsIgnoreCase("true");
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
}
