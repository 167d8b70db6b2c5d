package evenlag.core.sticky;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;

/**
 * What the leader of a cooperative group hands out in one round: {@code assignor_core.protocol}.
 *
 * @param assignment the target, without the rows that must first be given up by who claims them
 * @param numWithheld how many rows these are
 * @param keptUnknown by member, the partitions without rows that stay: metadata may be older than the claims
 */
public record Step(int[] assignment, int numWithheld, Map<Integer, List<TopicPartition>> keptUnknown) {

    /**
     * Returns the part of a target that can be handed out without two members on one partition.
     *
     * <p>A member may newly get a row only if no other member claims it, in any generation, subscribed or not.
     * A member that claims it keeps it only if nobody else claims it from the same or a newer generation.
     */
    public static Step of(Group group, int[] target) {
        int[] handed = target.clone();
        // Where each row is claimed once, nobody else's claim can stand beside that of its taker.
        int[] ownGeneration = group.hasContestedRows ? ownGenerations(group, target) : null;
        int numWithheld = 0;
        for (int member = 0; member < group.numMembers(); member++) {
            for (int i = group.firstClaim[member]; i < group.firstClaim[member + 1]; i++) {
                int row = group.claimRow[i];
                if (handed[row] != Group.NOBODY
                        && target[row] != member
                        && (ownGeneration == null || group.generation[member] >= ownGeneration[row])) {
                    handed[row] = Group.NOBODY;
                    numWithheld++;
                }
            }
        }
        return new Step(handed, numWithheld, keptUnknown(group));
    }

    /** Returns the newest generation in which the member that is to have a row claims it itself. */
    private static int[] ownGenerations(Group group, int[] target) {
        int[] newest = new int[target.length];
        Arrays.fill(newest, Integer.MIN_VALUE);
        for (int member = 0; member < group.numMembers(); member++) {
            for (int i = group.firstClaim[member]; i < group.firstClaim[member + 1]; i++) {
                if (target[group.claimRow[i]] == member) {
                    newest[group.claimRow[i]] = group.generation[member];
                }
            }
        }
        return newest;
    }

    private static Map<Integer, List<TopicPartition>> keptUnknown(Group group) {
        Map<TopicPartition, List<Group.UnknownClaim>> newest = new HashMap<>();
        for (Group.UnknownClaim claim : group.unknownClaims) {
            TopicPartition partition = new TopicPartition(claim.topic(), claim.partition());
            List<Group.UnknownClaim> best = newest.computeIfAbsent(partition, same -> new ArrayList<>());
            if (!best.isEmpty() && claim.generation() > best.get(0).generation()) {
                best.clear();
            }
            if (best.isEmpty() || claim.generation() == best.get(0).generation()) {
                best.add(claim);
            }
        }
        Map<Integer, List<TopicPartition>> kept = new HashMap<>();
        newest.forEach((partition, best) -> {
            if (best.size() == 1 && best.get(0).isSubscribed()) {
                kept.computeIfAbsent(best.get(0).member(), same -> new ArrayList<>()).add(partition);
            }
        });
        return kept;
    }
}
