package evenlag.core;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.Uuid;

/** Decodes the payload of a hint. It accepts only the exact bytes that {@code HintPayload.encode} writes. */
public final class PayloadReader {
    static final int MAX_CLUSTER_UNITS = 128;
    static final int MAX_SNAPSHOT_UNITS = 256;

    private static final int FINGERPRINT_UNITS = 64;
    private static final int NUM_FIELDS = 7;

    private final Envelope envelope;
    private final String groupId;
    private final String clusterId;
    private final Map<String, String> texts = new HashMap<>();
    private final Map<String, Long> numbers = new HashMap<>();
    private final Map<String, Hint.Share> shares = new LinkedHashMap<>();
    private final Map<Uuid, List<Hint.Share>> takers = new HashMap<>();
    private final Map<Uuid, Uuid> topicIds = new HashMap<>();
    private Map<String, String> memberIds;
    private List<List<Uuid>> together = List.of();
    private int room = HintCodec.MAX_PARTITIONS;

    PayloadReader(Envelope envelope, String groupId, String clusterId) {
        this.envelope = envelope;
        this.groupId = groupId;
        this.clusterId = clusterId;
    }

    Hint read(byte[] value) throws HintException {
        int from = envelope.length() + 1;
        int numFields;
        try {
            CanonicalReader reader = new CanonicalReader(value, from);
            numFields = reader.object("payload", name -> readField(reader, name));
            reader.end();
        } catch (IOException error) {
            throw HintException.malformed("the payload is no JSON");
        }
        // None is unknown, and none stands twice.
        int numOptional = (memberIds == null ? 0 : 1) + (together.isEmpty() ? 0 : 1);
        if (numFields != NUM_FIELDS + numOptional) {
            throw HintException.malformed("the payload's fields are not those of a hint");
        }
        Map<Uuid, Hint.Owners> topics = owners();
        checkFor(texts, groupId, clusterId);
        Map<String, Long> head = envelope.numbers();
        return new Hint(
                HintCodec.sha256Of(value, from), groupId, head.get("sequence"), head.get("issued_at_ms"),
                head.get("expires_at_ms"), texts.get("fingerprint"), numbers.get("count_slack"),
                numbers.get("max_moves"), memberIds, together, shares, topics,
                HeapSize.ofHint(groupId, memberIds, together, shares, topics));
    }

    static void checkFor(Map<String, String> texts, String groupId, String clusterId) throws HintException {
        if (!groupId.equals(texts.get("group_id"))) {
            throw new HintException(Reason.FOREIGN, "the record is for another group than its key");
        }
        if (clusterId != null && !clusterId.equals(texts.get("cluster_id"))) {
            throw new HintException(Reason.FOREIGN, "the record is for another cluster than " + clusterId);
        }
    }

    private void readField(CanonicalReader reader, String name) throws IOException, HintException {
        switch (name) {
            case "assignment" -> reader.object(name, key -> readShare(reader, key));
            case "cluster_id" -> texts.put(name, reader.text(name, MAX_CLUSTER_UNITS));
            case "group_id" -> texts.put(name, reader.text(name, CanonicalReader.MAX_UNITS));
            case "snapshot_id" -> texts.put(name, reader.text(name, MAX_SNAPSHOT_UNITS));
            case "fingerprint" -> texts.put(name, readFingerprint(reader));
            case "count_slack", "max_moves" ->
                numbers.put(name, reader.number(name, 0, Integer.MAX_VALUE));
            case "member_ids" -> {
                Map<String, String> read = new HashMap<>();
                reader.object(name, key -> readMemberId(reader, key, read));
                memberIds = Map.copyOf(read);
            }
            case "together" -> together = readTogether(reader);
            default -> throw HintException.malformed("the payload has a field that is not known");
        }
    }

    /** Reads lists of at least two topics, all of them different, that ascend as their topics do. */
    static List<List<Uuid>> readTogether(CanonicalReader reader) throws IOException, HintException {
        List<List<Uuid>> together = new ArrayList<>();
        Set<String> seen = new HashSet<>();
        String[] before = {""};
        reader.array("together", () -> {
            List<Uuid> read = new ArrayList<>();
            String[] last = {before[0]};
            reader.array("together", () -> {
                String text = reader.text("together", CanonicalReader.MAX_UNITS);
                if (Text.compare(last[0], text) >= 0 || !seen.add(text)) {
                    throw HintException.malformed("the payload's together does not ascend");
                }
                before[0] = read.isEmpty() ? text : before[0];
                last[0] = text;
                read.add(CanonicalReader.topicId(text));
            });
            if (read.size() < 2) {
                throw HintException.malformed("the payload's together has a topic alone");
            }
            together.add(List.copyOf(read));
        });
        return List.copyOf(together);
    }

    private static String readFingerprint(CanonicalReader reader) throws IOException, HintException {
        String text = reader.text("fingerprint", FINGERPRINT_UNITS);
        boolean isHex = text.length() == FINGERPRINT_UNITS;
        for (int i = 0; isHex && i < text.length(); i++) {
            isHex = "0123456789abcdef".indexOf(text.charAt(i)) >= 0;
        }
        if (!isHex) {
            throw HintException.malformed("the fingerprint is no SHA-256 in hexadecimal");
        }
        return text;
    }

    private void readMemberId(CanonicalReader reader, String key, Map<String, String> read)
            throws IOException, HintException {
        String memberId = reader.text("member_ids", CanonicalReader.MAX_UNITS);
        if (!key.startsWith("i:") || memberId.isEmpty()) {
            throw HintException.malformed("the payload's member_ids do not name static members");
        }
        read.put(key, memberId);
    }

    private void readShare(CanonicalReader reader, String key) throws IOException, HintException {
        Map<Uuid, Set<Integer>> partitions = new HashMap<>();
        int before = room;
        int count = reader.object("assignment", text -> {
            Spans spans = Spans.read(reader.text("assignment", HintCodec.MAX_VALUE_BYTES), room);
            room -= spans.size();
            Uuid id = CanonicalReader.topicId(text);
            partitions.put(topicIds.computeIfAbsent(id, same -> same), spans); // one object for each topic
        });
        if (count == 0) {
            throw HintException.malformed("a member of the assignment gets nothing, and stands in it");
        }
        Hint.Share share = new Hint.Share(shares.size(), before - room, Map.copyOf(partitions));
        shares.put(key, share);
        for (Uuid topic : partitions.keySet()) {
            takers.computeIfAbsent(topic, id -> new ArrayList<>()).add(share);
        }
    }

    private Map<Uuid, Hint.Owners> owners() throws HintException {
        Map<Uuid, Hint.Owners> topics = new HashMap<>();
        for (Map.Entry<Uuid, List<Hint.Share>> entry : takers.entrySet()) {
            topics.put(entry.getKey(), ownersOf(entry.getKey(), entry.getValue()));
        }
        return Map.copyOf(topics);
    }

    private static Hint.Owners ownersOf(Uuid topic, List<Hint.Share> takers) throws HintException {
        int numRuns = takers.stream().mapToInt(share -> spans(share, topic).numRuns()).sum();
        int[] firsts = new int[numRuns];
        int[] lasts = new int[numRuns];
        int[] members = new int[numRuns];
        long[] order = new long[numRuns]; // the first partition, then the run's number
        int count = 0;
        int at = 0;
        for (Hint.Share share : takers) {
            Spans spans = spans(share, topic);
            count += spans.size();
            for (int run = 0; run < spans.numRuns(); run++) {
                firsts[at] = spans.first(run);
                lasts[at] = spans.last(run);
                members[at] = share.index();
                order[at] = (long) firsts[at] << 32 | at;
                at++;
            }
        }
        Arrays.sort(order);
        int[] sortedLasts = new int[numRuns];
        int[] sortedMembers = new int[numRuns];
        long before = -1;
        for (int run = 0; run < numRuns; run++) {
            int from = (int) order[run];
            if (firsts[from] <= before) {
                throw HintException.malformed("a partition of topic " + topic + " stands twice");
            }
            before = lasts[from];
            sortedLasts[run] = lasts[from];
            sortedMembers[run] = members[from];
        }
        return new Hint.Owners(count, (int) before, sortedLasts, sortedMembers);
    }

    private static Spans spans(Hint.Share share, Uuid topic) {
        return (Spans) share.partitions().get(topic);
    }
}
