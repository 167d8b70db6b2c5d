package evenlag.core;

import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.Uuid;

/**
 * An approved plan as read from the hint topic; immutable.
 *
 * @param planId SHA-256 of the payload's bytes, in hexadecimal
 * @param groupId the group that it is for
 * @param sequence increases by one with every new hint of a group
 * @param issuedAtMs milliseconds since the epoch
 * @param expiresAtMs after this time no group may start to follow it
 * @param fingerprint of the membership that it was planned for; null in a newer format
 * @param countSlack how much the counts may differ
 * @param maxMoves how many partitions it may take from their owners
 * @param memberIds key to member id of the static members; null for a group of the classic protocol
 * @param together lists of topics whose equal partition numbers stay with one member
 * @param shares what each member gets, by key; members without partitions are left out
 * @param topics the members that get each topic's partitions
 * @param bytes its size in the heap
 */
public record Hint(
        String planId,
        String groupId,
        long sequence,
        long issuedAtMs,
        long expiresAtMs,
        String fingerprint,
        long countSlack,
        long maxMoves,
        Map<String, String> memberIds,
        List<List<Uuid>> together,
        Map<String, Share> shares,
        Map<Uuid, Owners> topics,
        long bytes) {

    /** A time further in the future is not believed. */
    static final long MAX_AHEAD_MS = 300_000;

    /**
     * The partitions of one member.
     *
     * @param index its number among the hint's members
     * @param count how many partitions it gets
     * @param partitions by topic, unmodifiable
     */
    public record Share(int index, int count, Map<Uuid, Set<Integer>> partitions) {}

    /**
     * The members that get the partitions of one topic, as runs of consecutive partitions.
     *
     * @param count how many partitions the hint assigns
     * @param highest the highest number among them
     * @param lasts the last partition of each run, ascending
     * @param members {@link Share#index} of each run
     */
    public record Owners(int count, int highest, int[] lasts, int[] members) {
        /** Whether every number up to the highest is assigned. */
        public boolean isWhole() {
            return highest == count - 1;
        }

        /** Returns {@link Share#index} by partition; only for a hint that fits a group, which bounds it. */
        public int[] byPartition() {
            int[] of = new int[count];
            int from = 0;
            for (int run = 0; run < lasts.length; run++) {
                Arrays.fill(of, from, lasts[run] + 1, members[run]);
                from = lasts[run] + 1;
            }
            return of;
        }
    }

    /** Returns a hint in a newer format, which has no more than its envelope. */
    static Hint unreadable(Envelope envelope, String groupId, String planId) {
        Map<String, Long> head = envelope.numbers();
        return new Hint(
                planId, groupId, head.get("sequence"), head.get("issued_at_ms"), head.get("expires_at_ms"), null, 0,
                0, null, List.of(), Map.of(), Map.of(),
                HeapSize.ofHint(groupId, null, List.of(), Map.of(), Map.of()));
    }

    /** Whether it can be followed; one in a newer format replaces older hints all the same. */
    public boolean isReadable() {
        return fingerprint != null;
    }

    public boolean isExpired(long nowMs) {
        return nowMs >= expiresAtMs;
    }

    /** Whether it was issued by now, allowing for clocks that differ. */
    public boolean isDue(long nowMs) {
        return issuedAtMs <= nowMs + MAX_AHEAD_MS;
    }
}
