package evenlag.core;

import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.Uuid;

/**
 * How much heap records take, by the layout of objects in HotSpot with compressed references (heaps below
 * 32 GB): a header of 12 bytes, references of 4, sizes in multiples of 8. A test measures it.
 */
final class HeapSize {
    /** An object of a few references and numbers. */
    private static final int SMALL = 24;
    private static final int UUID = 32;
    private static final int OWNERS = 32;
    private static final int HINT = 88;
    private static final int LOADS = 80;
    /** An entry of a linked map with its place in the map's table, which is half full. */
    private static final int LINKED_ENTRY = 48;
    /** A member id in the index: an entry in the group's set, one in the table's map, an array of groups. */
    private static final int INDEX_ENTRY = 104;
    /** A digest in hexadecimal. */
    static final long DIGEST = text("0".repeat(64));

    private HeapSize() {}

    /** Returns the size of a hint, and of its members in the index. */
    static long ofHint(
            String groupId,
            Map<String, String> memberIds,
            List<List<Uuid>> together,
            Map<String, Hint.Share> shares,
            Map<Uuid, Hint.Owners> topics) {
        long size = HINT + 2 * DIGEST + text(groupId) + 2 * SMALL + map(topics.size());
        for (Map.Entry<String, Hint.Share> share : shares.entrySet()) {
            Collection<Set<Integer>> partitions = share.getValue().partitions().values();
            size += LINKED_ENTRY + text(share.getKey()) + SMALL + map(partitions.size());
            for (Set<Integer> spans : partitions) {
                size += SMALL + 2 * ints(((Spans) spans).numRuns());
            }
            if (HintTable.idOf(share.getKey()) != null) {
                size += INDEX_ENTRY + text(share.getKey());
            }
        }
        size += ofTogether(together);
        for (Hint.Owners owners : topics.values()) {
            size += UUID + OWNERS + 2 * ints(owners.lasts().length);
        }
        if (memberIds != null) {
            size += map(memberIds.size());
            for (Map.Entry<String, String> member : memberIds.entrySet()) {
                size += text(member.getKey()) + text(member.getValue()) + INDEX_ENTRY;
            }
        }
        return size;
    }

    /** Returns the size of loads, and of their members in the index. */
    static long ofLoads(
            String groupId, Map<String, Integer> capacities, Map<Uuid, int[]> loads, Collection<String> memberIds) {
        long size = LOADS + DIGEST + text(groupId) + map(capacities.size()) + map(loads.size());
        for (String key : capacities.keySet()) {
            size += text(key) + SMALL;
        }
        for (int[] values : loads.values()) {
            size += UUID + ints(values.length);
        }
        if (memberIds != null) {
            size += SMALL + ints(memberIds.size());
            for (String id : memberIds) {
                size += text(id) + INDEX_ENTRY;
            }
        }
        return size;
    }

    static long ofTogether(List<List<Uuid>> together) {
        return together.stream().mapToLong(of -> SMALL + of.size() * (UUID + INDEX_ENTRY)).sum();
    }

    static long ofRacks(Loads.Racks racks) {
        if (racks == null) {
            return 0;
        }
        long size = 2 * SMALL + map(racks.topics().size());
        for (Set<String> set : racks.sets()) {
            size += map(set.size());
            for (String rack : set) {
                size += text(rack);
            }
        }
        for (int[] values : racks.topics().values()) {
            size += UUID + ints(values.length);
        }
        return size;
    }

    static long ofFlow(LoadFlow flow) {
        if (flow == null) {
            return 0;
        }
        long size = 2 * SMALL + ints(flow.speeds().length);
        for (Map<Uuid, int[]> topics : List.of(flow.arrivals(), flow.owners())) {
            size += map(topics.size());
            for (int[] values : topics.values()) {
                size += UUID + ints(values.length);
            }
        }
        return size;
    }

    /** Returns the size of a text: a byte for each character, or two if one of them is beyond Latin-1. */
    static long text(String text) {
        boolean isWide = text.chars().anyMatch(c -> c > 0xff);
        return SMALL + array((isWide ? 2L : 1L) * text.length());
    }

    private static long ints(int number) {
        return array(4L * number);
    }

    /** Returns the size of an immutable map without what is in it: its table has two places for each entry. */
    private static long map(int number) {
        return number < 2 ? SMALL : SMALL + array(16L * number);
    }

    private static long array(long bytes) {
        return (16 + bytes + 7) / 8 * 8;
    }
}
