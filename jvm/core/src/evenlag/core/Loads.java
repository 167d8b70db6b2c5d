package evenlag.core;

import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.Uuid;

/**
 * What a group's partitions weigh, as read from the hint topic; immutable.
 *
 * @param digest SHA-256 of the payload's bytes, in hexadecimal
 * @param groupId the group that they are for
 * @param measuredAtMs milliseconds since the epoch
 * @param validUntilMs from this time on they are not used
 * @param countSlack how much the counts may differ
 * @param maxMoves how many partitions may leave their owners, unless members are empty
 * @param defaultCapacity of members that {@code capacities} does not name
 * @param capacities by member key
 * @param loads by partition; {@link #UNKNOWN} if it was not measured
 * @param memberIds the group's; null for a group of the classic protocol
 * @param racks where partitions can be read; null if that is not known
 * @param together lists of topics whose equal partition numbers stay with one member
 * @param flow what changes them after the measurement; null if they hold while they are valid
 * @param bytes their size in the heap
 */
public record Loads(
        String digest,
        String groupId,
        long measuredAtMs,
        long validUntilMs,
        int countSlack,
        int maxMoves,
        int defaultCapacity,
        Map<String, Integer> capacities,
        Map<Uuid, int[]> loads,
        List<String> memberIds,
        Racks racks,
        List<List<Uuid>> together,
        LoadFlow flow,
        long bytes) {
    static final int UNKNOWN = -1;

    /**
     * Where partitions can be read without crossing racks.
     *
     * @param sets different sets of racks
     * @param topics the number of the set by partition; {@link #UNKNOWN} if it is not known
     * @param tolerance by how many thousandths of the mean a member may be above it for near partitions
     */
    public record Racks(List<Set<String>> sets, Map<Uuid, int[]> topics, int tolerance) {}

    /** Returns the loads as they are at a time; those without a flow as they are. */
    public Loads at(long nowMs) {
        return flow == null
                ? this
                : new Loads(
                        digest, groupId, measuredAtMs, validUntilMs, countSlack, maxMoves, defaultCapacity, capacities,
                        flow.present(loads, nowMs - measuredAtMs), memberIds, racks, together, null, bytes);
    }

    /** Whether they were measured by now, allowing for clocks that differ. */
    public boolean isDue(long nowMs) {
        return measuredAtMs <= nowMs + Hint.MAX_AHEAD_MS;
    }

    /** Whether they may be used now. */
    public boolean isFresh(long nowMs) {
        return isDue(nowMs) && nowMs < validUntilMs;
    }
}
