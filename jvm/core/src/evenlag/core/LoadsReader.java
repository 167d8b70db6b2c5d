package evenlag.core;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.Uuid;

/** Decodes the payload of loads. It accepts only the exact bytes that {@code LoadsPayload.encode} writes. */
public final class LoadsReader {
    private static final int MAX_CAPACITY = 1000;
    private static final long MAX_SUM = 1L << 52;
    private static final int MAX_TOLERANCE = 1000;
    private static final int NUM_FIELDS = 10;
    private static final int NUM_RACK_FIELDS = 3;
    private static final int NUM_FLOW_FIELDS = 5;

    private final String groupId;
    private final String clusterId;
    private final Map<String, String> texts = new HashMap<>();
    private final Map<String, Long> numbers = new HashMap<>();
    private final Map<String, Integer> capacities = new HashMap<>();
    private final Map<Uuid, int[]> loads = new HashMap<>();
    private List<String> memberIds;
    private final List<Set<String>> rackSets = new ArrayList<>();
    private final Map<Uuid, int[]> rackTopics = new HashMap<>();
    private boolean hasRacks;
    private List<List<Uuid>> together = List.of();
    private final Map<Uuid, int[]> arrivals = new HashMap<>();
    private final Map<Uuid, int[]> owners = new HashMap<>();
    private int largestOwner = Loads.UNKNOWN;
    private int[] speeds;
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
        int numOptional = (memberIds == null ? 0 : 1) + (hasRacks ? 1 : 0) + (together.isEmpty() ? 0 : 1)
                + (speeds == null ? 0 : 1);
        if (numFields != NUM_FIELDS + numOptional) {
            throw HintException.malformed("the payload's fields are not those of loads");
        }
        int defaultCapacity = numbers.get("default_capacity").intValue();
        if (capacities.containsValue(defaultCapacity)) {
            throw HintException.malformed("the payload is not in its canonical form");
        }
        PayloadReader.checkFor(texts, groupId, clusterId);
        Loads.Racks racks = hasRacks
                ? new Loads.Racks(
                        List.copyOf(rackSets), Map.copyOf(rackTopics), numbers.get("tolerance").intValue())
                : null;
        LoadFlow flow = flow();
        return new Loads(
                HintCodec.sha256Of(value, from), groupId, numbers.get("measured_at_ms"),
                numbers.get("valid_until_ms"), numbers.get("count_slack").intValue(),
                numbers.get("max_moves").intValue(), defaultCapacity, Map.copyOf(capacities),
                Map.copyOf(loads), memberIds, racks, together, flow,
                HeapSize.ofLoads(groupId, capacities, loads, memberIds) + HeapSize.ofRacks(racks)
                        + HeapSize.ofTogether(together) + HeapSize.ofFlow(flow));
    }

    /** Returns the flow, which is of the partitions of the loads; null without one. */
    private LoadFlow flow() throws HintException {
        if (speeds == null) {
            return null;
        }
        boolean isOfTopics = arrivals.keySet().equals(loads.keySet()) && owners.keySet().equals(loads.keySet());
        boolean isWhole = isOfTopics && loads.keySet().stream().allMatch(topic ->
                arrivals.get(topic).length == loads.get(topic).length
                        && owners.get(topic).length == loads.get(topic).length);
        if (!isWhole || largestOwner >= speeds.length) {
            throw HintException.malformed("the payload's flow is not of the partitions of the loads");
        }
        return new LoadFlow(
                Map.copyOf(arrivals), Map.copyOf(owners), speeds, numbers.get("per_s").intValue(),
                numbers.get("horizon_s").intValue());
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
            case "flow" -> {
                if (reader.object(name, field -> readFlow(reader, field)) != NUM_FLOW_FIELDS) {
                    throw HintException.malformed("the payload's flow lacks a field");
                }
            }
            case "loads" -> {
                room = HintCodec.MAX_PARTITIONS;
                reader.object(name, topic -> loads.put(
                        CanonicalReader.topicId(topic), readNumbers(reader, () -> readLoad(reader))));
            }
            case "racks" -> {
                hasRacks = true;
                room = HintCodec.MAX_PARTITIONS;
                if (reader.object(name, field -> readRacks(reader, field)) != NUM_RACK_FIELDS) {
                    throw HintException.malformed("the payload's racks lack a field");
                }
            }
            case "member_ids" -> readMemberIds(reader);
            case "together" -> together = PayloadReader.readTogether(reader);
            default -> throw HintException.malformed("the payload has a field that is not known");
        }
    }

    private void readCapacity(CanonicalReader reader, String key) throws IOException, HintException {
        if (!key.startsWith("i:") && !key.startsWith("m:")) {
            throw HintException.malformed("the payload's capacities do not name members");
        }
        capacities.put(key, (int) reader.number("capacities", 1, MAX_CAPACITY));
    }

    /** Reads a number, or that it is unknown. */
    @FunctionalInterface
    private interface NumberReader {
        int read() throws IOException, HintException;
    }

    private int[] readNumbers(CanonicalReader reader, NumberReader number) throws IOException, HintException {
        int[] read = readArray(reader, number);
        if (read.length == 0) {
            throw HintException.malformed("a topic of the loads has no partitions, and stands in them");
        }
        return read;
    }

    private int[] readArray(CanonicalReader reader, NumberReader number) throws IOException, HintException {
        int[][] values = {new int[16]};
        int[] size = {0};
        reader.array("topics", () -> {
            if (--room < 0) {
                throw HintException.malformed("too many partitions in one record");
            }
            if (size[0] == values[0].length) {
                values[0] = Arrays.copyOf(values[0], 2 * size[0]);
            }
            values[0][size[0]++] = number.read();
        });
        return Arrays.copyOf(values[0], size[0]);
    }

    private void readFlow(CanonicalReader reader, String field) throws IOException, HintException {
        room = HintCodec.MAX_PARTITIONS;
        switch (field) {
            case "arrivals" -> reader.object(field, topic -> arrivals.put(
                    CanonicalReader.topicId(topic), readNumbers(reader, () -> readNumber(reader, field))));
            case "owners" -> reader.object(field, topic -> owners.put(
                    CanonicalReader.topicId(topic), readNumbers(reader, () -> readOwner(reader))));
            case "horizon_s" -> numbers.put(field, reader.number(field, 0, LoadFlow.MAX_AGE_S));
            case "per_s" -> numbers.put(field, reader.number(field, 1, LoadFlow.MAX_PER_S));
            case "speeds" -> speeds = readArray(reader, () -> readNumber(reader, field));
            default -> throw HintException.malformed("the payload's flow has a field that is not known");
        }
    }

    private static int readNumber(CanonicalReader reader, String what) throws IOException, HintException {
        return (int) reader.number(what, 0, Integer.MAX_VALUE);
    }

    private int readOwner(CanonicalReader reader) throws IOException, HintException {
        int owner = reader.isNull() ? Loads.UNKNOWN : readNumber(reader, "owners");
        largestOwner = Math.max(largestOwner, owner);
        return owner;
    }

    private void readRacks(CanonicalReader reader, String field) throws IOException, HintException {
        switch (field) {
            case "sets" -> reader.array(field, () -> rackSets.add(readRackSet(reader)));
            case "tolerance" -> numbers.put(field, reader.number(field, 0, MAX_TOLERANCE));
            case "topics" -> {
                if (rackSets.isEmpty()) { // the sets are before the topics
                    throw HintException.malformed("the payload's racks have no sets");
                }
                reader.object(field, topic -> rackTopics.put(
                        CanonicalReader.topicId(topic), readNumbers(reader, () -> readRackNumber(reader))));
            }
            default -> throw HintException.malformed("the payload's racks have a field that is not known");
        }
    }

    private int readRackNumber(CanonicalReader reader) throws IOException, HintException {
        return reader.isNull() ? Loads.UNKNOWN : (int) reader.number("topics", 0, rackSets.size() - 1);
    }

    private static Set<String> readRackSet(CanonicalReader reader) throws IOException, HintException {
        Set<String> racks = new HashSet<>();
        String[] before = {""};
        reader.array("sets", () -> {
            String rack = reader.text("rack", CanonicalReader.MAX_UNITS);
            if (Text.compare(before[0], rack) >= 0) {
                throw HintException.malformed("the payload's racks do not ascend in a set");
            }
            before[0] = rack;
            racks.add(rack);
        });
        if (racks.isEmpty()) {
            throw HintException.malformed("the payload's racks have a set without racks");
        }
        return Set.copyOf(racks);
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
