package evenlag.broker;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.Uuid;

/** Checks a hint against a group, with the rules of {@code assignor_core.verify} and the consumers. */
final class Verifier {
    private final GroupView group;
    private final Hint hint;
    private final Hint.Share[] shares;

    private Verifier(GroupView group, Hint hint) {
        this.group = group;
        this.hint = hint;
        shares = new Hint.Share[group.keys.size()];
    }

    /**
     * The verdict.
     *
     * @param reason FOLLOWED, or why not
     * @param detail in words and numbers
     * @param moves how many partitions leave their owner; only if everything else is valid
     * @param shares what each member gets, in the group's order; null for nothing
     */
    record Verdict(Reason reason, String detail, long moves, Hint.Share[] shares) {}

    static Verdict verify(GroupView group, Hint hint) {
        return new Verifier(group, hint).verify();
    }

    private Verdict verify() {
        String fingerprint =
                Fingerprint.of(group.keys, group.subscriptions, group.topics, group.isHomogeneous);
        if (!fingerprint.equals(hint.fingerprint())) {
            String detail = "made for " + brief(hint.fingerprint()) + ", the group is " + brief(fingerprint);
            return refuse(Reason.FINGERPRINT, detail);
        }
        String mismatch = findMismatch();
        if (mismatch != null) {
            return refuse(Reason.MISMATCH, mismatch);
        }
        List<String> found = new ArrayList<>();
        int numAlien = countAlien();
        if (numAlien > 0) {
            found.add(numAlien + " partitions are with members that do not take them");
        }
        int numLeft = countLeftOut();
        if (numLeft > 0) {
            found.add(numLeft + " partitions that somebody takes are with nobody");
        }
        if (!found.isEmpty()) {
            return refuse(Reason.INVALID, String.join("; ", found));
        }
        return checkLimits();
    }

    private Verdict checkLimits() {
        long moves = countMoves();
        boolean hasTooManyMoves = moves > hint.maxMoves();
        long gap = countGap(group, counts(), this::topicsOf);
        boolean isTooUneven = gap - 2 >= hint.countSlack();
        String tooMany = moves + " moves are more than the " + hint.maxMoves() + " allowed";
        String tooUneven = "a partition can go to a member that has " + gap + " fewer, the slack is "
                + hint.countSlack();
        if (hasTooManyMoves) {
            return isTooUneven
                    ? refuse(Reason.INVALID, tooMany + "; " + tooUneven)
                    : refuse(Reason.MAX_MOVES, tooMany);
        }
        return isTooUneven
                ? refuse(Reason.COUNT_SLACK, tooUneven)
                : new Verdict(Reason.FOLLOWED, moves + " moves", moves, shares);
    }

    /** Finds names that the group does not have, and fills in each member's partitions. */
    private String findMismatch() {
        int matched = 0;
        for (int i = 0; i < shares.length; i++) {
            shares[i] = hint.shares().get(group.keys.get(i));
            matched += shares[i] == null ? 0 : 1;
        }
        if (matched != hint.shares().size()) {
            return (hint.shares().size() - matched) + " members of the hint are not in the group";
        }
        for (Map.Entry<Uuid, Hint.Owners> entry : hint.topics().entrySet()) {
            Integer count = group.topics.get(entry.getKey());
            if (count == null) {
                return "topic " + entry.getKey() + " is not taken by the group";
            }
            if (entry.getValue().highest() >= count) {
                return "topic " + entry.getKey() + " has no partition " + entry.getValue().highest();
            }
        }
        return null;
    }

    private int countAlien() {
        int alien = 0;
        if (group.isHomogeneous) {
            return alien; // all of the hint's topics are the group's, and every member subscribes to them
        }
        for (int i = 0; i < shares.length; i++) {
            if (shares[i] != null) {
                for (Map.Entry<Uuid, Set<Integer>> entry : shares[i].partitions().entrySet()) {
                    boolean isTaken = group.subscriptions.get(i).contains(entry.getKey());
                    alien += isTaken ? 0 : entry.getValue().size();
                }
            }
        }
        return alien;
    }

    private int countLeftOut() {
        int left = 0;
        for (Map.Entry<Uuid, Integer> topic : group.topics.entrySet()) {
            Hint.Owners owners = hint.topics().get(topic.getKey());
            if (owners == null || owners.shareOf() == null || owners.count() != topic.getValue()) {
                left += Math.max(1, topic.getValue() - (owners == null ? 0 : owners.count()));
            }
        }
        return left;
    }

    private long countMoves() {
        long moves = 0;
        for (int i = 0; i < shares.length; i++) {
            int index = shares[i] == null ? -1 : shares[i].index();
            for (Map.Entry<Uuid, Set<Integer>> held : group.current(i).partitions().entrySet()) {
                Hint.Owners owners = hint.topics().get(held.getKey());
                if (owners != null) {
                    moves += countOthers(owners.shareOf(), held.getValue(), index);
                }
            }
        }
        return moves;
    }

    private static int countOthers(int[] shareOf, Set<Integer> partitions, int index) {
        int others = 0;
        for (int number : partitions) {
            others += number < shareOf.length && shareOf[number] != index ? 1 : 0;
        }
        return others;
    }

    private int[] counts() {
        return Arrays.stream(shares).mapToInt(share -> share == null ? 0 : share.count()).toArray();
    }

    private Set<Uuid> topicsOf(int member) {
        return shares[member] == null ? Set.of() : shares[member].partitions().keySet();
    }

    /** The topics that a member has partitions of. */
    @FunctionalInterface
    interface Holdings {
        Set<Uuid> of(int member);
    }

    /** Returns the largest difference of counts between a member and one that could take over from it. */
    static long countGap(GroupView group, int[] counts, Holdings holdings) {
        if (group.isHomogeneous) {
            int most = Arrays.stream(counts).max().orElse(0);
            return most - Arrays.stream(counts).min().orElse(0);
        }
        Map<Uuid, Integer> least = new HashMap<>();
        for (int i = 0; i < counts.length; i++) {
            for (Uuid topic : group.subscriptions.get(i)) {
                least.merge(topic, counts[i], Math::min);
            }
        }
        long gap = 0;
        for (int i = 0; i < counts.length; i++) {
            for (Uuid topic : holdings.of(i)) {
                gap = Math.max(gap, counts[i] - least.getOrDefault(topic, counts[i]));
            }
        }
        return gap;
    }

    private Verdict refuse(Reason reason, String detail) {
        return new Verdict(reason, detail, 0, null);
    }

    private static String brief(String fingerprint) {
        return fingerprint.substring(0, Math.min(12, fingerprint.length()));
    }
}
