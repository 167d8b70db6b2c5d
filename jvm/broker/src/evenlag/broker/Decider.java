package evenlag.broker;

import evenlag.core.GroupRecords;
import evenlag.core.Hint;
import evenlag.core.HintTable;
import evenlag.core.HintWatcher.Knowledge;
import evenlag.core.Journal;
import evenlag.core.LoadPlacement;
import evenlag.core.Loads;
import evenlag.core.Reason;
import evenlag.core.Spans;
import evenlag.core.Verifier;
import java.util.ArrayList;
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
 * Assigns a group's partitions: as in the hint if it is valid, else by fresh loads, else as Kafka's own
 * assignor.
 *
 * <p>It keeps no state of groups. The current assignment that the coordinator passes is its last answer,
 * also after a restart: a followed plan needs no more moves, and so is kept after it has expired. A hint
 * that is not followed has no effect.
 */
final class Decider {
    private final Supplier<Knowledge> knowledge;
    private final ConsumerGroupPartitionAssignor fallback;
    private final Journal journal;
    private final LongSupplier nowMs;
    private final AtomicLong lastAssignNs;

    /** One member's partitions. */
    private record Given(Map<Uuid, Set<Integer>> partitions) implements MemberAssignment {
        static final Given NOTHING = new Given(Map.of());
    }

    /**
     * A group's records at one moment: the watcher may replace them during a decision.
     *
     * @param hint null if there is none, or its time has not come
     * @param loads null if there are none, or they are not fresh
     */
    private record Due(String groupId, Hint hint, Loads loads) {
        static Due of(GroupRecords records, long now) {
            Hint hint = records.hint;
            Loads loads = records.loads;
            return new Due(
                    records.groupId,
                    hint != null && hint.isDue(now) ? hint : null,
                    loads != null && loads.isFresh(now) ? loads : null);
        }
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
            BrokerGroup group = BrokerGroup.of(spec, describer, known.hintTopicId());
            return withAside(group, describer, decide(group, known.table(), describer));
        } catch (Throwable error) { // a rebalance must not fail for a hint
            journal.noteError("deciding on a hint", error);
        } finally {
            lastAssignNs.set(System.nanoTime() - started);
        }
        return fallBack(spec, describer);
    }

    private GroupAssignment decide(BrokerGroup group, HintTable table, SubscribedTopicDescriber describer) {
        if (table == null) {
            journal.note(Reason.COLD, null, null, "hints are not read yet");
            return stay(group, describer);
        }
        List<GroupRecords> found = table.find(group.memberIds);
        if (found.isEmpty()) {
            journal.note(Reason.NO_HINT, null, null, "");
            return fallBack(group.spec, describer);
        }
        long now = nowMs.getAsLong();
        List<Due> due = found.stream().map(records -> Due.of(records, now)).toList();
        boolean isCompared = due.size() > 1 || due.get(0).hint != null;
        String fingerprint = isCompared ? group.fingerprint() : null;
        Due chosen = due.size() == 1 ? due.get(0) : resolve(due, fingerprint);
        if (chosen == null) {
            String detail = "members of the group are in records of several groups";
            journal.note(Reason.MISMATCH, due.get(0).groupId, null, detail);
            return stay(group, describer);
        }
        GroupAssignment followed =
                chosen.hint == null ? null : follow(group, chosen.hint, fingerprint, now);
        if (followed != null) {
            return followed;
        }
        if (chosen.loads != null) {
            GroupAssignment placed = place(group, chosen.loads.at(now));
            if (placed != null) {
                String digest = chosen.loads.digest();
                journal.note(Reason.PLACED_BY_LOAD, chosen.groupId, digest, "by fresh loads");
                return placed;
            }
        }
        if (chosen.hint == null) {
            journal.note(Reason.NO_HINT, null, null, "");
        }
        return fallBack(group.spec, describer);
    }

    /** Returns the one group whose hint was made for this membership, null if there is none or another. */
    private static Due resolve(List<Due> found, String fingerprint) {
        Due fitting = null;
        for (Due due : found) {
            if (due.hint != null && due.hint.fingerprint().equals(fingerprint)) {
                if (fitting != null) {
                    return null;
                }
                fitting = due;
            }
        }
        return fitting;
    }

    private GroupAssignment follow(BrokerGroup group, Hint hint, String fingerprint, long now) {
        Verifier.Verdict verdict = Verifier.verify(group, hint, fingerprint);
        // Expiry prevents a start, not the completion. Placing free partitions is a start, too.
        if (verdict.reason() == Reason.FOLLOWED && hint.isExpired(now) && !verdict.hasBegun()) {
            long secondsAgo = (now - hint.expiresAtMs()) / 1000;
            String detail = "expired " + secondsAgo + " s ago, and was not begun: " + verdict.detail();
            journal.note(Reason.EXPIRED, hint.groupId(), hint.planId(), detail);
            return null;
        }
        journal.note(verdict.reason(), hint.groupId(), hint.planId(), verdict.detail());
        if (verdict.reason() != Reason.FOLLOWED) {
            return null;
        }
        Map<String, MemberAssignment> answer = new HashMap<>(2 * group.memberIds.size());
        for (int i = 0; i < group.memberIds.size(); i++) {
            Hint.Share share = verdict.shares()[i];
            answer.put(group.memberIds.get(i), share == null ? Given.NOTHING : new Given(share.partitions()));
        }
        return new GroupAssignment(answer);
    }

    /** Lets owned partitions stay; free ones, and a share for empty members, are placed by count. */
    private GroupAssignment stay(BrokerGroup group, SubscribedTopicDescriber describer) {
        GroupAssignment placed = place(group, null);
        return placed == null ? fallBack(group.spec, describer) : placed;
    }

    /** Places by loads, or by count without any; null if the group is too large. */
    private static GroupAssignment place(BrokerGroup group, Loads loads) {
        LoadPlacement.Placed placed = LoadPlacement.place(group, loads);
        if (placed == null) {
            return null;
        }
        Map<String, MemberAssignment> answer = new HashMap<>(2 * group.memberIds.size());
        for (int i = 0; i < group.memberIds.size(); i++) {
            answer.put(group.memberIds.get(i), new Given(placed.members().get(i)));
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

    /** Assigns to the members that are left out their topics. */
    private static GroupAssignment withAside(
            BrokerGroup group, SubscribedTopicDescriber describer, GroupAssignment answer) {
        if (group.aside.isEmpty()) {
            return answer;
        }
        Map<Uuid, List<String>> takers = new HashMap<>();
        group.aside.forEach((id, topic) -> takers.computeIfAbsent(topic, t -> new ArrayList<>()).add(id));
        Map<String, MemberAssignment> all = new HashMap<>(answer.members());
        takers.forEach((topic, members) -> {
            int numPartitions = Math.max(0, describer.numPartitions(topic));
            int size = members.size();
            for (int i = 0; i < size; i++) {
                int[] numbers = new int[(numPartitions - i + size - 1) / size];
                for (int k = 0; k < numbers.length; k++) {
                    numbers[k] = i + k * size;
                }
                boolean isIdle = numbers.length == 0;
                all.put(members.get(i), isIdle ? Given.NOTHING : new Given(Map.of(topic, Spans.of(numbers))));
            }
        });
        return new GroupAssignment(all);
    }
}
