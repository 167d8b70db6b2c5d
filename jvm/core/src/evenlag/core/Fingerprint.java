package evenlag.core;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.Uuid;

/** A group's members, subscriptions and partition counts: {@code assignor_core.hint.fingerprint}. */
public final class Fingerprint {
    private Fingerprint() {}

    /**
     * Returns a fingerprint.
     *
     * @param keys the members' keys
     * @param subscriptions the ids of the topics that each subscribes to, in the order of the keys
     * @param counts number of partitions of the topics that exist
     * @param isHomogeneous whether all subscriptions are equal
     * @return SHA-256 of the canonical JSON, in hexadecimal
     */
    public static String of(
            List<String> keys,
            List<Set<Uuid>> subscriptions,
            Map<Uuid, Integer> counts,
            boolean isHomogeneous) {
        Integer[] order = new Integer[keys.size()];
        for (int i = 0; i < order.length; i++) {
            order[i] = i;
        }
        Arrays.sort(order, (a, b) -> Text.compare(keys.get(a), keys.get(b)));
        MessageDigest digest = HintCodec.sha256();
        // Written once for equal subscriptions: with many topics this is nearly all of the text.
        byte[] same = isHomogeneous && order.length > 0 ? write(subscriptions.get(0), counts) : null;
        Map<Set<Uuid>, byte[]> written = new HashMap<>();
        StringBuilder out = new StringBuilder("{\"members\":[");
        for (int i = 0; i < order.length; i++) {
            Text.appendQuoted(out.append(i == 0 ? "[" : ",["), keys.get(order[i]));
            update(digest, out.append(','));
            Set<Uuid> taken = subscriptions.get(order[i]);
            digest.update(same != null ? same : written.computeIfAbsent(taken, set -> write(set, counts)));
            out.append(']');
        }
        List<String> topics = new ArrayList<>();
        for (Map.Entry<Uuid, Integer> entry : counts.entrySet()) {
            topics.add("[\"" + entry.getKey() + "\"," + entry.getValue() + "]");
        }
        // The ids are of one length, and ASCII: the order of these texts is that of the ids.
        topics.sort(null);
        update(digest, out.append("],\"topics\":[").append(String.join(",", topics)).append("]}"));
        return HintCodec.hex(digest.digest());
    }

    private static byte[] write(Set<Uuid> topics, Map<Uuid, Integer> counts) {
        List<String> texts = new ArrayList<>();
        for (Uuid topic : topics) {
            if (counts.containsKey(topic)) {
                texts.add("\"" + topic + "\"");
            }
        }
        texts.sort(null);
        return ("[" + String.join(",", texts) + "]").getBytes(StandardCharsets.US_ASCII);
    }

    private static void update(MessageDigest digest, StringBuilder out) {
        digest.update(out.toString().getBytes(StandardCharsets.US_ASCII));
        out.setLength(0);
    }
}
