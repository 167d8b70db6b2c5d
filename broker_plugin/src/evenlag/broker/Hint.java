package evenlag.broker;

import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;

/**
 * An approved plan as read from the hint topic; immutable.
 *
 * @param planId SHA-256 of the payload's bytes, in hexadecimal
 * @param groupId the group that it is for
 * @param sequence increases by one with every new hint of a group
 * @param issuedAtMs milliseconds since the epoch
 * @param expiresAtMs after this time no group may start to follow it
 * @param fingerprint of the membership that it was planned for
 * @param countSlack how much the counts may differ
 * @param maxMoves how many partitions it may take from their owners
 * @param memberIds key to member id of the static members; null for a group of the classic protocol
 * @param shares what each member gets, by key; members without partitions are left out
 * @param topics the members that get each topic's partitions
 * @param bytes its approximate size in memory
 */
record Hint(
        String planId,
        String groupId,
        long sequence,
        long issuedAtMs,
        long expiresAtMs,
        String fingerprint,
        long countSlack,
        long maxMoves,
        Map<String, String> memberIds,
        Map<String, Share> shares,
        Map<Uuid, Owners> topics,
        long bytes) {

    /**
     * The partitions of one member.
     *
     * @param index its number among the hint's members
     * @param count how many partitions it gets
     * @param partitions in the coordinator's type, unmodifiable
     */
    record Share(int index, int count, Map<Uuid, Set<Integer>> partitions) implements MemberAssignment {}

    /**
     * The members that get the partitions of one topic.
     *
     * @param count how many partitions the hint assigns
     * @param highest the highest number among them
     * @param shareOf partition to {@link Share#index}; null unless every number up to the highest is
     *     assigned once
     */
    record Owners(int count, int highest, int[] shareOf) {}

    boolean isExpired(long nowMs) {
        return nowMs >= expiresAtMs;
    }
}
