package evenlag.broker;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;

/**
 * Assigns a group's partitions: as in the hint if it is valid, else as Kafka's own assignor.
 *
 * <p>It keeps no state of groups. The current assignment that the coordinator passes is its last answer,
 * also after a restart: a followed plan needs no more moves, and so is kept after it has expired.
 */
final class Decider {
    private final Supplier<Knowledge> knowledge;
    private final ConsumerGroupPartitionAssignor fallback;
    private final Journal journal;
    private final LongSupplier nowMs;
    private final AtomicLong lastAssignNs;

    /**
     * The watcher's state.
     *
     * @param table null until the hint topic has been read
     * @param hintTopicId null if unknown
     */
    record Knowledge(HintTable table, Uuid hintTopicId) {}

    /** One member's partitions. */
    private record Given(Map<Uuid, Set<Integer>> partitions) implements MemberAssignment {
        static final Given NOTHING = new Given(Map.of());
    }

    Decider(
            Supplier<Knowledge> knowledge,
            ConsumerGroupPartitionAssignor fallback,
            Journal journal,
            LongSupplier nowMs,
            AtomicLong lastAssignNs) {
        this.knowledge = knowledge;
        this.fallback = fallback;
        this.journal = journal;
        this.nowMs = nowMs;
        this.lastAssignNs = lastAssignNs;
    }

    /** Computes the assignment for the coordinator; never throws. */
    GroupAssignment assign(GroupSpec spec, SubscribedTopicDescriber describer) {
        long started = System.nanoTime();
        try {
            Knowledge known = knowledge.get();
            GroupView group = GroupView.of(spec, describer, known.hintTopicId);
            return withAside(group, known.hintTopicId, describer, decide(group, known.table, describer));
        } catch (Throwable error) { // a rebalance must not fail for a hint
            journal.noteError("deciding on a hint", error);
        } finally {
            lastAssignNs.set(System.nanoTime() - started);
        }
        return fallBack(spec, describer);
    }

    private GroupAssignment decide(GroupView group, HintTable table, SubscribedTopicDescriber describer) {
        if (table == null) {
            journal.note(Reason.COLD, null, null, "hints are not read yet");
            return keep(group, Keeping.ANY_SLACK, describer);
        }
        HintTable.Found found = table.find(group.memberIds);
        Hint hint = found.hint();
        if (hint == null) {
            journal.note(Reason.NO_HINT, null, null, "");
            return fallBack(group.spec, describer);
        }
        if (found.isAmbiguous()) {
            String detail = "members of the group stand in hints of several groups";
            journal.note(Reason.MISMATCH, hint.groupId(), hint.planId(), detail);
            return fallBack(group.spec, describer);
        }
        return follow(group, hint, describer);
    }

    private GroupAssignment follow(GroupView group, Hint hint, SubscribedTopicDescriber describer) {
        Verifier.Verdict verdict = Verifier.verify(group, hint);
        long now = nowMs.getAsLong();
        // Expiry prevents a start, not the completion: a hint without moves was started before.
        if (verdict.reason() == Reason.FOLLOWED && verdict.moves() > 0 && hint.isExpired(now)) {
            long secondsAgo = (now - hint.expiresAtMs()) / 1000;
            String detail = "expired " + secondsAgo + " s ago with " + verdict.detail() + " to start";
            journal.note(Reason.EXPIRED, hint.groupId(), hint.planId(), detail);
            return keep(group, hint.countSlack(), describer);
        }
        journal.note(verdict.reason(), hint.groupId(), hint.planId(), verdict.detail());
        if (verdict.reason() != Reason.FOLLOWED) {
            return keep(group, hint.countSlack(), describer);
        }
        Map<String, MemberAssignment> answer = new HashMap<>(2 * group.memberIds.size());
        for (int i = 0; i < group.memberIds.size(); i++) {
            Hint.Share share = verdict.shares()[i];
            answer.put(group.memberIds.get(i), share == null ? Given.NOTHING : share);
        }
        return new GroupAssignment(answer);
    }

    /** Keeps owned partitions within the slack; an ordinary rebalance must not undo a followed plan. */
    private GroupAssignment keep(GroupView group, long countSlack, SubscribedTopicDescriber describer) {
        List<Map<Uuid, Set<Integer>>> kept = countSlack > 0 ? Keeping.keep(group, countSlack) : null;
        if (kept == null) {
            return fallBack(group.spec, describer);
        }
        Map<String, MemberAssignment> answer = new HashMap<>(2 * kept.size());
        for (int i = 0; i < kept.size(); i++) {
            answer.put(group.memberIds.get(i), new Given(kept.get(i)));
        }
        return new GroupAssignment(answer);
    }

    private GroupAssignment fallBack(GroupSpec spec, SubscribedTopicDescriber describer) {
        try {
            return fallback.assign(spec, describer);
        } catch (Throwable error) { // as above
            journal.noteError("Kafka's own assignor", error);
        }
        return asItIs(spec);
    }

    private static GroupAssignment asItIs(GroupSpec spec) {
        Map<String, MemberAssignment> answer = new HashMap<>();
        for (String memberId : spec.memberIds()) {
            answer.put(memberId, new Given(spec.memberAssignment(memberId).partitions()));
        }
        return new GroupAssignment(answer);
    }

    /** Assigns the hint topic to members that subscribe only to it, so that they receive its records. */
    private static GroupAssignment withAside(
            GroupView group, Uuid hintTopicId, SubscribedTopicDescriber describer, GroupAssignment answer) {
        int numAside = group.aside.size();
        if (numAside == 0) {
            return answer;
        }
        int numPartitions = Math.max(0, describer.numPartitions(hintTopicId));
        Map<String, MemberAssignment> all = new HashMap<>(answer.members());
        for (int i = 0; i < numAside; i++) {
            int[] numbers = new int[(numPartitions - i + numAside - 1) / numAside];
            for (int k = 0; k < numbers.length; k++) {
                numbers[k] = i + k * numAside;
            }
            boolean isIdle = numbers.length == 0;
            all.put(
                    group.aside.get(i),
                    isIdle ? Given.NOTHING : new Given(Map.of(hintTopicId, new IntSet(numbers))));
        }
        return new GroupAssignment(all);
    }
}
