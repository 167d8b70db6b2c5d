package evenlag.broker;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.Uuid;

/**
 * Decodes one payload. It accepts only the exact bytes that {@code HintPayload.encode} writes.
 *
 * <p>The decoded payload is encoded again and compared, so that no second form of a plan is accepted.
 */
final class PayloadReader {
    static final String KEY_PREFIX = "group/";

    private static final int MAX_PARTITIONS = 2_000_000;
    /** The approximate overhead of a string, a map entry and an array. */
    private static final int BYTES_PER_ENTRY = 160;

    private final Map<String, Long> envelope;
    private final byte[] recordKey;
    private final String clusterId;
    private final StringBuilder canonical = new StringBuilder();
    private final Map<String, String> texts = new HashMap<>();
    private final Map<String, Long> numbers = new HashMap<>();
    private final Map<String, Hint.Share> shares = new LinkedHashMap<>();
    private final Map<Uuid, Uuid> topicIds = new HashMap<>();
    private Map<String, String> memberIds;
    private int room = MAX_PARTITIONS;
    private long bytes = BYTES_PER_ENTRY;

    PayloadReader(Map<String, Long> envelope, byte[] recordKey, String clusterId) {
        this.envelope = envelope;
        this.recordKey = recordKey;
        this.clusterId = clusterId;
    }

    Hint read(byte[] value, int from) throws HintException {
        int length = value.length - from;
        int numFields;
        try (JsonParser parser = HintCodec.parser(value, from, length)) {
            parser.nextToken();
            numFields = readObject(parser, "payload", name -> readField(parser, name));
            if (parser.nextToken() != null) {
                throw HintException.malformed("something stands behind the payload");
            }
        } catch (IOException error) {
            throw HintException.malformed("the payload is no JSON");
        }
        // No duplicate and no unknown key: with seven or eight of them, the assignment is among them.
        if (texts.size() != 4 || numbers.size() != 2 || numFields != (memberIds == null ? 7 : 8)) {
            throw HintException.malformed("the payload's fields are not those of a hint");
        }
        byte[] written = canonical.toString().getBytes(StandardCharsets.US_ASCII);
        if (!Arrays.equals(written, 0, written.length, value, from, value.length)) {
            throw HintException.malformed("the payload is not in its canonical form");
        }
        Map<Uuid, Hint.Owners> topics = owners();
        checkFor();
        MessageDigest digest = HintCodec.sha256();
        digest.update(value, from, length);
        return new Hint(
                HintCodec.hex(digest.digest()), texts.get("group_id"), envelope.get("sequence"),
                envelope.get("issued_at_ms"), envelope.get("expires_at_ms"), texts.get("fingerprint"),
                numbers.get("count_slack"), numbers.get("max_moves"), memberIds, shares, topics, bytes);
    }

    @FunctionalInterface
    private interface FieldReader {
        void read(String name) throws IOException, HintException;
    }

    /** Reads an object whose keys must ascend, which excludes duplicates. */
    private int readObject(JsonParser parser, String what, FieldReader reader)
            throws IOException, HintException {
        if (parser.currentToken() != JsonToken.START_OBJECT) {
            throw HintException.malformed("the " + what + " is no JSON object");
        }
        canonical.append('{');
        String before = null;
        int count = 0;
        while (parser.nextToken() != JsonToken.END_OBJECT) {
            String name = parser.currentName();
            if (before != null && Text.compare(before, name) >= 0) {
                throw HintException.malformed("the keys of the " + what + " do not ascend");
            }
            canonical.append(before == null ? "" : ",");
            Text.appendQuoted(canonical, name);
            canonical.append(':');
            parser.nextToken();
            reader.read(name);
            before = name;
            count++;
        }
        canonical.append('}');
        return count;
    }

    private void readField(JsonParser parser, String name) throws IOException, HintException {
        switch (name) {
            case "assignment" -> readObject(parser, name, key -> readShare(parser, key));
            case "cluster_id", "fingerprint", "group_id", "snapshot_id" ->
                texts.put(name, readText(parser, name));
            case "count_slack", "max_moves" -> {
                long number = HintCodec.number(parser, "the payload's " + name);
                canonical.append(number);
                numbers.put(name, number);
            }
            case "member_ids" -> {
                Map<String, String> read = new HashMap<>();
                readObject(parser, name, key -> readMemberId(parser, key, read));
                memberIds = Map.copyOf(read);
            }
            default -> throw HintException.malformed("the payload has a field that is not known");
        }
    }

    private void readMemberId(JsonParser parser, String key, Map<String, String> read)
            throws IOException, HintException {
        String memberId = readText(parser, "member_ids");
        if (!key.startsWith("i:") || memberId.isEmpty()) {
            throw HintException.malformed("the payload's member_ids do not name static members");
        }
        bytes += BYTES_PER_ENTRY + 2L * (key.length() + memberId.length());
        read.put(key, memberId);
    }

    private void readShare(JsonParser parser, String key) throws IOException, HintException {
        Map<Uuid, Set<Integer>> partitions = new HashMap<>();
        int before = room;
        int count = readObject(parser, "assignment", text -> {
            int[] numbers = readRanges(parser);
            room -= numbers.length;
            bytes += BYTES_PER_ENTRY + 8L * numbers.length;
            partitions.put(topicId(text), new IntSet(numbers));
        });
        if (count == 0) {
            throw HintException.malformed("a member of the assignment gets nothing, and stands in it");
        }
        bytes += BYTES_PER_ENTRY + 2L * key.length();
        shares.put(key, new Hint.Share(shares.size(), before - room, Map.copyOf(partitions)));
    }

    private int[] readRanges(JsonParser parser) throws IOException, HintException {
        return Ranges.read(readText(parser, "assignment"), room);
    }

    private String readText(JsonParser parser, String what) throws IOException, HintException {
        if (parser.currentToken() != JsonToken.VALUE_STRING) {
            throw HintException.malformed("the payload's " + what + " is, or holds, no text");
        }
        String text = parser.getText();
        Text.appendQuoted(canonical, text);
        return text;
    }

    /** Returns one object for all occurrences of a topic. */
    private Uuid topicId(String text) throws HintException {
        try {
            Uuid id = Uuid.fromString(text);
            if (id.toString().equals(text)) {
                return topicIds.computeIfAbsent(id, same -> same);
            }
        } catch (IllegalArgumentException error) {
            // Reported below.
        }
        throw HintException.malformed("a topic id is none");
    }

    private Map<Uuid, Hint.Owners> owners() throws HintException {
        Map<Uuid, int[]> countAndHighest = new HashMap<>();
        for (Hint.Share share : shares.values()) {
            for (Map.Entry<Uuid, Set<Integer>> entry : share.partitions().entrySet()) {
                int[] known = countAndHighest.computeIfAbsent(entry.getKey(), id -> new int[] {0, -1});
                for (int number : entry.getValue()) {
                    known[0]++;
                    known[1] = Math.max(known[1], number);
                }
            }
        }
        Map<Uuid, Hint.Owners> topics = new HashMap<>();
        for (Map.Entry<Uuid, int[]> entry : countAndHighest.entrySet()) {
            int count = entry.getValue()[0];
            int highest = entry.getValue()[1];
            int[] shareOf = shareOf(entry.getKey(), count, highest);
            topics.put(entry.getKey(), new Hint.Owners(count, highest, shareOf));
        }
        return Map.copyOf(topics);
    }

    /** Returns the owner of each partition, or null if the hint omits one below its highest number. */
    private int[] shareOf(Uuid topicId, int count, int highest) throws HintException {
        long[] numberAndShare = new long[count];
        int at = 0;
        for (Hint.Share share : shares.values()) {
            for (int number : share.partitions().getOrDefault(topicId, Set.of())) {
                numberAndShare[at++] = (long) number << 32 | share.index();
            }
        }
        Arrays.sort(numberAndShare);
        for (int i = 1; i < count; i++) {
            if (numberAndShare[i] >> 32 == numberAndShare[i - 1] >> 32) {
                throw HintException.malformed("a partition of topic " + topicId + " stands twice");
            }
        }
        // Not an array as long as the highest number: a short hint can name a huge one.
        boolean isWhole = highest == count - 1;
        return isWhole ? Arrays.stream(numberAndShare).mapToInt(pair -> (int) pair).toArray() : null;
    }

    private void checkFor() throws HintException {
        byte[] wanted = (KEY_PREFIX + texts.get("group_id")).getBytes(StandardCharsets.UTF_8);
        if (!Arrays.equals(wanted, recordKey)) {
            throw new HintException(Reason.FOREIGN, "the hint is for another group than its key");
        }
        if (clusterId != null && !clusterId.equals(texts.get("cluster_id"))) {
            throw new HintException(Reason.FOREIGN, "the hint is for another cluster than " + clusterId);
        }
    }
}
