package evenlag.broker;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.MemberSubscription;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;

/**
 * A group without the members that subscribe only to the hint topic.
 *
 * <p>Such a member joins and leaves to trigger the coordinator. It must change nothing for the others:
 * neither the group's fingerprint nor whether Kafka's assignor sees equal subscriptions.
 */
final class GroupView {
    /** The members that count, in the coordinator's order. */
    final List<String> memberIds;
    /** Their keys in hints. */
    final List<String> keys;
    /** The ids of the topics that they subscribe to. */
    final List<Set<Uuid>> subscriptions;
    /** The members that subscribe only to the hint topic, sorted; empty if another member does too. */
    final List<String> aside;
    /** Number of partitions of each existing topic that a counted member subscribes to. */
    final Map<Uuid, Integer> topics;
    /** Whether all counted members have equal subscriptions. */
    final boolean isHomogeneous;
    /** The group without the excluded members. */
    final GroupSpec spec;

    private GroupView(GroupSpec given, SubscribedTopicDescriber describer, Set<String> without) {
        int size = given.memberIds().size() - without.size();
        memberIds = new ArrayList<>(size);
        keys = new ArrayList<>(size);
        subscriptions = new ArrayList<>(size);
        for (String memberId : given.memberIds()) {
            if (!without.contains(memberId)) {
                MemberSubscription subscription = given.memberSubscription(memberId);
                memberIds.add(memberId);
                keys.add(subscription.instanceId().map(id -> "i:" + id).orElseGet(() -> "m:" + memberId));
                subscriptions.add(subscription.subscribedTopicIds());
            }
        }
        aside = new ArrayList<>(without);
        Collections.sort(aside);
        isHomogeneous = given.subscriptionType() == SubscriptionType.HOMOGENEOUS
                || !without.isEmpty() && new HashSet<>(subscriptions).size() == 1;
        topics = existingTopics(describer);
        spec = without.isEmpty() ? given : new SpecWithout(given);
    }

    /**
     * Creates the view of a group.
     *
     * @param hintTopicId the hint topic's id, null if unknown: then no member is excluded
     */
    static GroupView of(GroupSpec spec, SubscribedTopicDescriber describer, Uuid hintTopicId) {
        Set<String> aside = hintTopicId == null ? Set.of() : findAside(spec, hintTopicId);
        return new GroupView(spec, describer, aside);
    }

    MemberAssignment current(int member) {
        return spec.memberAssignment(memberIds.get(member));
    }

    private static Set<String> findAside(GroupSpec spec, Uuid hintTopicId) {
        if (spec.subscriptionType() == SubscriptionType.HOMOGENEOUS) {
            return Set.of(); // no member, or all: then the group consumes that topic
        }
        Set<String> aside = new HashSet<>();
        for (String memberId : spec.memberIds()) {
            Set<Uuid> topics = spec.memberSubscription(memberId).subscribedTopicIds();
            if (topics.contains(hintTopicId)) {
                for (Uuid topic : topics) {
                    if (!topic.equals(hintTopicId)) {
                        return Set.of();
                    }
                }
                aside.add(memberId);
            }
        }
        return aside.size() == spec.memberIds().size() ? Set.of() : aside;
    }

    private Map<Uuid, Integer> existingTopics(SubscribedTopicDescriber describer) {
        Map<Uuid, Integer> counts = new HashMap<>();
        for (Set<Uuid> subscription : subscriptions) {
            for (Uuid topic : subscription) {
                counts.computeIfAbsent(topic, describer::numPartitions);
            }
            if (isHomogeneous) {
                break;
            }
        }
        counts.values().removeIf(count -> count <= 0);
        return counts;
    }

    /** The group as Kafka's assignor sees it. */
    private final class SpecWithout implements GroupSpec {
        private final GroupSpec given;

        SpecWithout(GroupSpec given) {
            this.given = given;
        }

        @Override
        public Collection<String> memberIds() {
            return memberIds;
        }

        @Override
        public SubscriptionType subscriptionType() {
            return isHomogeneous ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        }

        @Override
        public boolean isPartitionAssigned(Uuid topicId, int partition) {
            return given.isPartitionAssigned(topicId, partition);
        }

        @Override
        public boolean isPartitionAssignable(Uuid topicId, int partition) {
            return given.isPartitionAssignable(topicId, partition);
        }

        @Override
        public MemberSubscription memberSubscription(String memberId) {
            return given.memberSubscription(memberId);
        }

        @Override
        public MemberAssignment memberAssignment(String memberId) {
            return given.memberAssignment(memberId);
        }
    }
}
