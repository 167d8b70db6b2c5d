package evenlag.core;

import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.Uuid;

/** A group as hints and loads name it: members by their keys, topics by their ids. */
public interface GroupView {
    /** Returns the members, in an order of the caller's. */
    List<String> memberIds();

    /** Returns the members' keys in hints, in the order of the members. */
    List<String> keys();

    /** Returns the ids of the topics that each member subscribes to, in the order of the members. */
    List<Set<Uuid>> subscriptions();

    /** Returns the number of partitions of each existing topic that a member subscribes to. */
    Map<Uuid, Integer> topics();

    /** Returns the members' racks, null for none, in the order of the members. */
    List<String> racks();

    /** Whether all members have equal subscriptions. */
    boolean isHomogeneous();

    /** Returns the partitions that a member owns. */
    Map<Uuid, Set<Integer>> owned(int member);

    /** Returns the group's fingerprint. */
    default String fingerprint() {
        return Fingerprint.of(keys(), subscriptions(), topics(), isHomogeneous());
    }

    /** Returns a member's key in hints. */
    static String keyOf(String memberId, String instanceId) {
        return instanceId == null ? "m:" + memberId : "i:" + instanceId;
    }

    /** Whether two topics can stay together: they have as many partitions and the same subscribers. */
    default boolean areAlike(Uuid one, Uuid other) {
        return topics().get(one).equals(topics().get(other))
                && subscriptions().stream().allMatch(taken -> taken.contains(one) == taken.contains(other));
    }
}
