package evenlag.client;

import evenlag.core.GroupRecords;
import evenlag.core.Hint;
import evenlag.core.HintTable;
import evenlag.core.LoadPlacement;
import evenlag.core.Loads;
import evenlag.core.Reason;
import evenlag.core.Verifier;
import evenlag.core.sticky.Group;
import evenlag.core.sticky.Sticky;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.Uuid;

/**
 * Chooses a group's target: a hint that fits, else by fresh loads, else evenly.
 *
 * <p>The rules are those of {@code evenlag.consumer.target_selection}, and the results the same: leaders of
 * a group may be in either language.
 */
final class TargetSelection {
    private final Group group;
    private final IdentifiedGroup identified;
    private final long nowMs;

    private TargetSelection(Group group, long nowMs) {
        this.group = group;
        this.nowMs = nowMs;
        identified = IdentifiedGroup.of(group);
    }

    /** What became of a hint. */
    private record Outcome(int[] target, Reason reason, String detail) {}

    /**
     * Chooses the target.
     *
     * @param table what is known about hints; null if nothing is
     */
    static Decision choose(Group group, HintTable table, String groupId, long nowMs) {
        if (table == null || !table.covers(groupId)) {
            return cold(group);
        }
        GroupRecords records = table.of(groupId);
        Hint hint = records == null ? null : records.hint;
        Loads loads = records == null ? null : records.loads;
        if (hint == null && loads == null) {
            return new Decision(Sticky.assign(group), Reason.NO_HINT, Reason.NO_HINT, null, "no hint");
        }
        return new TargetSelection(group, nowMs).choose(hint, loads);
    }

    private static Decision cold(Group group) {
        int[] even = Sticky.assign(group);
        // Without owned partitions no plan can be undone: an even assignment only places free partitions.
        int[] target = group.countMoves(even) > 0 ? Sticky.placeFree(group) : even;
        return new Decision(target, Reason.COLD, Reason.COLD, null, "hints are not read yet");
    }

    private Decision choose(Hint hint, Loads loads) {
        String planId = hint == null ? null : hint.planId();
        Outcome outcome = hint == null ? new Outcome(null, Reason.NO_HINT, "no hint") : follow(hint);
        Reason why = outcome.reason;
        if (outcome.target != null) {
            return new Decision(outcome.target, why, why, planId, outcome.detail);
        }
        if (loads != null && !loads.isFresh(nowMs)) {
            Reason reason = why == Reason.NO_HINT ? Reason.LOADS_STALE : why;
            String detail = outcome.detail + "; the loads measured at " + loads.measuredAtMs() + " are not fresh";
            return new Decision(Sticky.assign(group), reason, why, planId, detail);
        }
        if (loads != null && identified != null) {
            LoadPlacement.Placed placed = LoadPlacement.place(identified, loads.at(nowMs), 0);
            if (placed == null) {
                String detail = group.numRows() + " partitions are too many to be placed by load";
                return new Decision(
                        Sticky.assign(group), Reason.INTERNAL_ERROR, Reason.INTERNAL_ERROR, null, detail);
            }
            int[] target = identified.toTarget(placed.members());
            String detail = outcome.detail + "; " + group.countMoves(target) + " moves by the loads";
            return new Decision(target, Reason.PLACED_BY_LOAD, why, planId, detail);
        }
        return new Decision(Sticky.assign(group), why, why, planId, outcome.detail);
    }

    private Outcome follow(Hint hint) {
        if (!hint.isDue(nowMs)) {
            long seconds = (hint.issuedAtMs() - nowMs) / 1000;
            return new Outcome(null, Reason.FUTURE, "issued " + seconds + " s in the future");
        }
        if (identified == null) {
            return new Outcome(null, Reason.NO_TOPIC_IDS, "the brokers' metadata hold no topic ids");
        }
        Verifier.Verdict verdict = Verifier.verify(identified, hint, identified.fingerprint());
        if (verdict.reason() != Reason.FOLLOWED) {
            return new Outcome(null, verdict.reason(), verdict.detail());
        }
        List<Map<Uuid, Set<Integer>>> shares = new ArrayList<>();
        Arrays.stream(verdict.shares())
                .forEach(share -> shares.add(share == null ? Map.of() : share.partitions()));
        int[] target = identified.toTarget(shares);
        // The verdict knows the newest claims only; here older ones count too.
        if (hint.isExpired(nowMs) && !(verdict.hasBegun() && group.isWithin(target))) {
            long seconds = (nowMs - hint.expiresAtMs()) / 1000;
            return new Outcome(null, Reason.EXPIRED, "expired " + seconds + " s ago and not begun");
        }
        return new Outcome(target, Reason.FOLLOWED, verdict.detail());
    }
}
