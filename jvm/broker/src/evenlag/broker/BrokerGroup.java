package evenlag.broker;

import evenlag.core.GroupView;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.SortedMap;
import java.util.TreeMap;
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
 * neither the group's fingerprint nor whether Kafka's assignor sees equal subscriptions. Its rack tells it
 * from others while the hint topic's id is not known.
 */
final class BrokerGroup implements GroupView {
    /** The rack of the publisher's temporary member. */
    private static final String TRIGGER_RACK = "evenlag-trigger";

    /** The members that count, in the coordinator's order. */
    final List<String> memberIds;
    /** Their keys in hints. */
    final List<String> keys;
    /** Their racks, null for none. */
    final List<String> racks;
    /** The ids of the topics that they subscribe to. */
    final List<Set<Uuid>> subscriptions;
    /**
     * The members that are left out, with their only topic, sorted; none if a member that counts takes it.
     */
    final SortedMap<String, Uuid> aside;
    /** Number of partitions of each existing topic that a counted member subscribes to. */
    final Map<Uuid, Integer> topics;
    /** Whether all counted members have equal subscriptions. */
    final boolean isHomogeneous;
    /** The group without the excluded members. */
    final GroupSpec spec;

    private BrokerGroup(GroupSpec given, SubscribedTopicDescriber describer, SortedMap<String, Uuid> aside) {
        this.aside = aside;
        Set<String> without = aside.keySet();
        int size = given.memberIds().size() - without.size();
        memberIds = new ArrayList<>(size);
        keys = new ArrayList<>(size);
        racks = new ArrayList<>(size);
        subscriptions = new ArrayList<>(size);
        for (String memberId : given.memberIds()) {
            if (!without.contains(memberId)) {
                MemberSubscription subscription = given.memberSubscription(memberId);
                memberIds.add(memberId);
                keys.add(GroupView.keyOf(memberId, subscription.instanceId().orElse(null)));
                racks.add(subscription.rackId().orElse(null));
                subscriptions.add(subscription.subscribedTopicIds());
            }
        }
        isHomogeneous = given.subscriptionType() == SubscriptionType.HOMOGENEOUS
                || !without.isEmpty() && new HashSet<>(subscriptions).size() == 1;
        topics = existingTopics(describer);
        spec = without.isEmpty() ? given : new SpecWithout(given);
    }

    /**
     * Creates the view of a group.
     *
     * @param hintTopicId the hint topic's last known id, null if it was never known
     */
    static BrokerGroup of(GroupSpec spec, SubscribedTopicDescriber describer, Uuid hintTopicId) {
        boolean isHomogeneous = spec.subscriptionType() == SubscriptionType.HOMOGENEOUS; // no member, or all
        return new BrokerGroup(spec, describer, isHomogeneous ? new TreeMap<>() : findAside(spec, hintTopicId));
    }

    @Override
    public List<String> memberIds() {
        return memberIds;
    }

    @Override
    public List<String> keys() {
        return keys;
    }

    @Override
    public List<String> racks() {
        return racks;
    }

    @Override
    public List<Set<Uuid>> subscriptions() {
        return subscriptions;
    }

    @Override
    public Map<Uuid, Integer> topics() {
        return topics;
    }

    @Override
    public boolean isHomogeneous() {
        return isHomogeneous;
    }

    @Override
    public Map<Uuid, Set<Integer>> owned(int member) {
        return spec.memberAssignment(memberIds.get(member)).partitions();
    }

    private static SortedMap<String, Uuid> findAside(GroupSpec spec, Uuid hintTopicId) {
        SortedMap<String, Uuid> found = new TreeMap<>();
        for (String memberId : spec.memberIds()) {
            MemberSubscription member = spec.memberSubscription(memberId);
            boolean isTrigger = member.rackId().filter(TRIGGER_RACK::equals).isPresent();
            if (member.subscribedTopicIds().size() == 1) {
                for (Uuid topic : member.subscribedTopicIds()) { // none if it does not exist
                    if (isTrigger || topic.equals(hintTopicId)) {
                        found.put(memberId, topic);
                    }
                }
            }
        }
        if (found.isEmpty()) {
            return found;
        }
        for (String memberId : spec.memberIds()) {
            if (!found.containsKey(memberId)) {
                found.values().removeIf(spec.memberSubscription(memberId).subscribedTopicIds()::contains);
            }
        }
        return found.size() == spec.memberIds().size() ? new TreeMap<>() : found;
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
