package evenlag.core;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;

/** Decodes the payload of loads. It accepts only the exact bytes that {@code LoadsPayload.encode} writes. */
public final class LoadsReader {
    private static final int MAX_CAPACITY = 1000;
    private static final long MAX_SUM = 1L << 52;
    private static final int NUM_FIELDS = 10;

    private final String groupId;
    private final String clusterId;
    private final Map<String, String> texts = new HashMap<>();
    private final Map<String, Long> numbers = new HashMap<>();
    private final Map<String, Integer> capacities = new HashMap<>();
    private final Map<Uuid, int[]> loads = new HashMap<>();
    private List<String> memberIds;
    private int room = HintCodec.MAX_PARTITIONS;
    private long sum;

    LoadsReader(String groupId, String clusterId) {
        this.groupId = groupId;
        this.clusterId = clusterId;
    }

    Loads read(byte[] value, int from) throws HintException {
        int numFields;
        try {
            CanonicalReader reader = new CanonicalReader(value, from);
            numFields = reader.object("payload", name -> readField(reader, name));
            reader.end();
        } catch (IOException error) {
            throw HintException.malformed("the payload is no JSON");
        }
        // None is unknown, and none stands twice.
        if (numFields != NUM_FIELDS + (memberIds == null ? 0 : 1)) {
            throw HintException.malformed("the payload's fields are not those of loads");
        }
        int defaultCapacity = numbers.get("default_capacity").intValue();
        if (capacities.containsValue(defaultCapacity)) {
            throw HintException.malformed("the payload is not in its canonical form");
        }
        PayloadReader.checkFor(texts, groupId, clusterId);
        return new Loads(
                HintCodec.sha256Of(value, from), groupId, numbers.get("measured_at_ms"),
                numbers.get("valid_until_ms"), numbers.get("count_slack").intValue(),
                numbers.get("max_moves").intValue(), defaultCapacity, Map.copyOf(capacities),
                Map.copyOf(loads), memberIds, HeapSize.ofLoads(groupId, capacities, loads, memberIds));
    }

    private void readField(CanonicalReader reader, String name) throws IOException, HintException {
        switch (name) {
            case "capacities" -> reader.object(name, key -> readCapacity(reader, key));
            case "cluster_id" -> texts.put(name, reader.text(name, PayloadReader.MAX_CLUSTER_UNITS));
            case "group_id" -> texts.put(name, reader.text(name, CanonicalReader.MAX_UNITS));
            case "snapshot_id" -> texts.put(name, reader.text(name, PayloadReader.MAX_SNAPSHOT_UNITS));
            case "count_slack", "max_moves" ->
                numbers.put(name, reader.number(name, 0, Integer.MAX_VALUE));
            case "default_capacity" -> numbers.put(name, reader.number(name, 1, MAX_CAPACITY));
            case "measured_at_ms", "valid_until_ms" ->
                numbers.put(name, reader.number(name, 0, Envelope.MAX_SEQUENCE));
            case "loads" -> reader.object(name, topic -> readTopic(reader, topic));
            case "member_ids" -> readMemberIds(reader);
            default -> throw HintException.malformed("the payload has a field that is not known");
        }
    }

    private void readCapacity(CanonicalReader reader, String key) throws IOException, HintException {
        if (!key.startsWith("i:") && !key.startsWith("m:")) {
            throw HintException.malformed("the payload's capacities do not name members");
        }
        capacities.put(key, (int) reader.number("capacities", 1, MAX_CAPACITY));
    }

    private void readTopic(CanonicalReader reader, String text) throws IOException, HintException {
        Uuid topic = CanonicalReader.topicId(text);
        int[][] values = {new int[16]};
        int[] size = {0};
        reader.array("loads", () -> {
            if (--room < 0) {
                throw HintException.malformed("too many partitions in one record");
            }
            if (size[0] == values[0].length) {
                values[0] = Arrays.copyOf(values[0], 2 * size[0]);
            }
            values[0][size[0]++] = readLoad(reader);
        });
        if (size[0] == 0) {
            throw HintException.malformed("a topic of the loads has no partitions, and stands in them");
        }
        loads.put(topic, Arrays.copyOf(values[0], size[0]));
    }

    private int readLoad(CanonicalReader reader) throws IOException, HintException {
        if (reader.isNull()) {
            return Loads.UNKNOWN;
        }
        long load = reader.number("loads", 0, Integer.MAX_VALUE);
        sum += load;
        if (sum > MAX_SUM) {
            throw HintException.malformed("all loads together are more than 2^52");
        }
        return (int) load;
    }

    private void readMemberIds(CanonicalReader reader) throws IOException, HintException {
        List<String> read = new ArrayList<>();
        reader.array("member_ids", () -> {
            String id = reader.text("member_ids", CanonicalReader.MAX_UNITS);
            boolean isFirst = read.isEmpty();
            if (id.isEmpty() || !isFirst && Text.compare(read.get(read.size() - 1), id) >= 0) {
                throw HintException.malformed("the payload's member_ids do not ascend");
            }
            read.add(id);
        });
        memberIds = List.copyOf(read);
    }
}
