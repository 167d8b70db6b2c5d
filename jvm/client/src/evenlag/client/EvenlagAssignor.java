package evenlag.client;

import evenlag.core.HintTable;
import evenlag.core.Reason;
import evenlag.core.sticky.Group;
import evenlag.core.sticky.Member;
import evenlag.core.sticky.Step;
import evenlag.core.sticky.Sticky;
import evenlag.core.sticky.Topic;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Configurable;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Makes groups of the classic protocol follow hints:
 * {@code partition.assignment.strategy=evenlag.client.EvenlagAssignor}.
 *
 * <p>It follows the hint if it fits the group, else it places by fresh loads, else as the consumers in Python
 * do without a hint: evenly, with the fewest moves. It never waits, because a watcher of its own reads the
 * hints, and it never throws: an exception would end the application's {@code poll}. Members in Java and in
 * Python may be in one group.
 */
public final class EvenlagAssignor implements ConsumerPartitionAssignor, Configurable {
    /** The name on the wire, which is that of the consumers in Python too. */
    public static final String NAME = "evenlag";

    private static final Logger LOG = LoggerFactory.getLogger("evenlag.client");

    /** Instead of a watcher's table where hints are off. */
    private static final Supplier<HintTable> NO_HINTS = () -> null;

    private final BeyondMetadata beyond = new BeyondMetadata();
    private String groupId;
    private SharedWatcher shared;
    private Supplier<HintTable> table = () -> null;
    private LongSupplier nowMs = System::currentTimeMillis;
    private volatile Decision lastDecision;
    private volatile String memberId;

    /** Kafka makes assignors by this constructor. */
    public EvenlagAssignor() {}

    /** Makes an assignor without a watcher, for tests. */
    EvenlagAssignor(String groupId, Supplier<HintTable> table, LongSupplier nowMs) {
        this.groupId = groupId;
        this.table = table;
        this.nowMs = nowMs;
    }

    @Override
    public String name() {
        return NAME;
    }

    /** Returns both: beside eager assignors, while an application changes over, it is eager too. */
    @Override
    public List<RebalanceProtocol> supportedProtocols() {
        return List.of(RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER);
    }

    @Override
    public void configure(Map<String, ?> configs) {
        try {
            groupId = ClientSettings.groupId(configs);
            shared = SharedWatcher.join(ClientSettings.of(configs), groupId, this);
            table = shared::table;
        } catch (IllegalArgumentException error) { // a consumer must start without hints
            LOG.error("hints are off: {}", error.getMessage());
            table = NO_HINTS;
        } catch (Throwable error) {
            LOG.error("hints are off: an error of evenlag's", error);
            table = NO_HINTS;
        }
    }

    @Override
    public GroupAssignment assign(Cluster metadata, GroupSubscription subscriptions) {
        long started = System.nanoTime();
        List<Member> members = new ArrayList<>(subscriptions.groupSubscription().size());
        Map<String, Assignment> answer;
        try {
            read(subscriptions, members);
            answer = assign(metadata, members);
        } catch (Throwable error) { // it would end the application's poll
            noteError("assigning the group", error);
            answer = keepClaims(members);
        }
        if (answer.size() < subscriptions.groupSubscription().size()) {
            for (String memberId : subscriptions.groupSubscription().keySet()) {
                answer.putIfAbsent(memberId, new Assignment(List.of()));
            }
        }
        if (shared != null) {
            shared.lastAssignNs.set(System.nanoTime() - started);
        }
        return new GroupAssignment(answer);
    }

    @Override
    public void onAssignment(Assignment assignment, ConsumerGroupMetadata metadata) {
        memberId = metadata.memberId();
    }

    /** Returns the id of the member that it serves; null before the first assignment. */
    String memberId() {
        return memberId;
    }

    /** Returns the decision of the last rebalance that this member led; null before the first. */
    Decision lastDecision() {
        return lastDecision;
    }

    private static void read(GroupSubscription subscriptions, List<Member> members) {
        for (Map.Entry<String, Subscription> entry : subscriptions.groupSubscription().entrySet()) {
            Subscription subscription = entry.getValue();
            if (!TemporaryMember.is(subscription)) {
                members.add(new Member(
                        entry.getKey(),
                        subscription.groupInstanceId().orElse(null),
                        subscription.topics(),
                        subscription.ownedPartitions(),
                        subscription.generationId().orElse(-1),
                        subscription.rackId().orElse(null)));
            }
        }
    }

    private Map<String, Assignment> assign(Cluster metadata, List<Member> members) {
        Group group = Group.of(members, topic -> look(metadata, topic));
        beyond.removeGone(group, metadata, System.nanoTime());
        Decision decision = decide(group);
        lastDecision = decision;
        Step step = Step.of(group, decision.target());
        List<List<TopicPartition>> partitions = group.toPartitions(step.assignment());
        step.keptUnknown().forEach((member, kept) -> partitions.get(member).addAll(kept));
        Map<String, Assignment> answer = new HashMap<>(2 * partitions.size());
        for (int i = 0; i < group.numMembers(); i++) {
            answer.put(group.memberIds[i], new Assignment(partitions.get(i)));
        }
        return answer;
    }

    private static Topic look(Cluster metadata, String topic) {
        // The largest number, not the count: a partition without metadata must not renumber the others.
        int count = 0;
        List<PartitionInfo> known = metadata.partitionsForTopic(topic);
        for (int i = 0; i < known.size(); i++) {
            count = Math.max(count, known.get(i).partition() + 1);
        }
        Uuid id = metadata.topicId(topic);
        return new Topic(count, id == null || id.equals(Uuid.ZERO_UUID) ? null : id);
    }

    private Decision decide(Group group) {
        try {
            long now = nowMs.getAsLong();
            Decision decision = table == NO_HINTS
                    ? new Decision(Sticky.assign(group), Reason.NO_HINT, Reason.NO_HINT, null, "hints are off")
                    : TargetSelection.choose(group, table.get(), groupId, now);
            note(decision);
            return decision;
        } catch (Throwable error) { // as above: an assignment without the hint is better
            noteError("deciding on a hint", error);
            return withoutHint(group, error);
        }
    }

    private Decision withoutHint(Group group, Throwable cause) {
        int[] target;
        try {
            target = Sticky.assign(group);
        } catch (Throwable error) { // as above
            noteError("balancing", error);
            target = Sticky.placeFree(group);
        }
        return new Decision(target, Reason.INTERNAL_ERROR, Reason.INTERNAL_ERROR, null, cause.toString());
    }

    private void note(Decision decision) {
        if (shared == null) {
            return;
        }
        if (decision.reason() != decision.hintReason() && decision.planId() != null) {
            shared.journal.note(decision.hintReason(), groupId, decision.planId(), decision.detail());
        }
        shared.journal.note(decision.reason(), groupId, decision.planId(), decision.detail());
    }

    private void noteError(String what, Throwable error) {
        if (shared == null) {
            LOG.error("{} failed", what, error);
        } else {
            shared.journal.noteError(what, error);
        }
    }

    /** Gives each member the subscribed partitions that it alone claims in the newest generation. */
    private static Map<String, Assignment> keepClaims(List<Member> members) {
        Map<TopicPartition, Integer> newest = new HashMap<>();
        Map<TopicPartition, String> owners = new HashMap<>();
        for (Member member : members) {
            for (TopicPartition claimed : new LinkedHashSet<>(member.owned())) {
                int best = newest.getOrDefault(claimed, -2);
                if (member.generation() > best) {
                    newest.put(claimed, member.generation());
                    owners.put(claimed, member.topics().contains(claimed.topic()) ? member.memberId() : null);
                } else if (member.generation() == best) {
                    owners.put(claimed, null);
                }
            }
        }
        Map<String, Assignment> kept = new HashMap<>();
        members.forEach(member -> kept.put(member.memberId(), new Assignment(new ArrayList<>())));
        owners.forEach((partition, memberId) -> {
            if (memberId != null) {
                kept.get(memberId).partitions().add(partition);
            }
        });
        return kept;
    }
}
