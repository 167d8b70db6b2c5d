package evenlag.core;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.IntStream;
import org.apache.kafka.common.Uuid;

/** Checks a hint against a group, with the rules of {@code assignor_core.verify} and the consumers. */
public final class Verifier {
    private static final int[] NOTHING = {};

    private final GroupView group;
    private final Hint hint;
    private final Hint.Share[] shares;
    private long moves;
    private long claims;
    private long strayClaims;

    private Verifier(GroupView group, Hint hint) {
        this.group = group;
        this.hint = hint;
        shares = new Hint.Share[group.keys().size()];
    }

    /**
     * The verdict.
     *
     * @param reason FOLLOWED, or why not
     * @param detail in words and numbers
     * @param hasBegun whether the group is on its way to the hint: then it may be completed after its expiry
     * @param shares what each member gets, in the group's order; null for nothing
     */
    public record Verdict(Reason reason, String detail, boolean hasBegun, Hint.Share[] shares) {}

    /**
     * Verifies a hint.
     *
     * @param fingerprint the group's
     */
    public static Verdict verify(GroupView group, Hint hint, String fingerprint) {
        return new Verifier(group, hint).verify(fingerprint);
    }

    private Verdict verify(String fingerprint) {
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
        int numApart = found.isEmpty() ? countApart() : 0;
        if (numApart > 0) {
            found.add(numApart + " partitions are with another member than those that they stay together with");
        }
        if (!found.isEmpty()) {
            return refuse(Reason.INVALID, String.join("; ", found));
        }
        return checkLimits();
    }

    private Verdict checkLimits() {
        countMoves();
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
                : new Verdict(Reason.FOLLOWED, moves + " moves", hasBegun(), shares);
    }

    /** Partitions are claimed, each by the member that the hint gives it to, and few are still free. */
    private boolean hasBegun() {
        long numPartitions = group.topics().values().stream().mapToLong(Integer::longValue).sum();
        return claims > 0 && strayClaims == 0 && moves == 0 && numPartitions - claims <= hint.maxMoves();
    }

    /** Finds names that the group does not have, and fills in each member's partitions. */
    private String findMismatch() {
        int matched = 0;
        for (int i = 0; i < shares.length; i++) {
            shares[i] = hint.shares().get(group.keys().get(i));
            matched += shares[i] == null ? 0 : 1;
        }
        if (matched != hint.shares().size()) {
            return (hint.shares().size() - matched) + " members of the hint are not in the group";
        }
        for (Map.Entry<Uuid, Hint.Owners> entry : hint.topics().entrySet()) {
            Integer count = group.topics().get(entry.getKey());
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
        if (group.isHomogeneous()) {
            return alien; // all of the hint's topics are the group's, and every member subscribes to them
        }
        for (int i = 0; i < shares.length; i++) {
            if (shares[i] != null) {
                for (Map.Entry<Uuid, Set<Integer>> entry : shares[i].partitions().entrySet()) {
                    boolean isTaken = group.subscriptions().get(i).contains(entry.getKey());
                    alien += isTaken ? 0 : entry.getValue().size();
                }
            }
        }
        return alien;
    }

    private int countLeftOut() {
        int left = 0;
        for (Map.Entry<Uuid, Integer> topic : group.topics().entrySet()) {
            Hint.Owners owners = hint.topics().get(topic.getKey());
            if (owners == null || !owners.isWhole() || owners.count() != topic.getValue()) {
                left += Math.max(1, topic.getValue() - (owners == null ? 0 : owners.count()));
            }
        }
        return left;
    }

    /** Counts what is not with the equal number of the first topic; one for a topic that cannot be. */
    private int countApart() {
        int apart = 0;
        for (List<Uuid> listed : hint.together()) {
            List<Uuid> topics = listed.stream().filter(group.topics()::containsKey).toList();
            for (Uuid topic : topics) {
                apart += group.areAlike(topics.get(0), topic) ? countApart(topics.get(0), topic) : 1;
            }
        }
        return apart;
    }

    private int countApart(Uuid one, Uuid other) {
        int[] first = group.topics().get(one) == 0 ? NOTHING : hint.topics().get(one).byPartition();
        int[] second = first.length == 0 ? NOTHING : hint.topics().get(other).byPartition();
        return (int) IntStream.range(0, first.length).filter(i -> first[i] != second[i]).count();
    }

    private void countMoves() {
        Map<Uuid, int[]> wanted = new HashMap<>();
        hint.topics().forEach((topic, owners) -> wanted.put(topic, owners.byPartition()));
        for (int i = 0; i < shares.length; i++) {
            int index = shares[i] == null ? -1 : shares[i].index();
            for (Map.Entry<Uuid, Set<Integer>> held : group.owned(i).entrySet()) {
                int[] of = wanted.getOrDefault(held.getKey(), NOTHING);
                for (int number : held.getValue()) {
                    boolean isKnown = number < of.length;
                    claims += isKnown ? 1 : 0;
                    moves += isKnown && of[number] != index ? 1 : 0;
                    strayClaims += isKnown ? 0 : 1;
                }
            }
        }
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
        if (group.isHomogeneous()) {
            int most = Arrays.stream(counts).max().orElse(0);
            return most - Arrays.stream(counts).min().orElse(0);
        }
        Map<Uuid, Integer> least = new HashMap<>();
        for (int i = 0; i < counts.length; i++) {
            for (Uuid topic : group.subscriptions().get(i)) {
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
        return new Verdict(reason, detail, false, null);
    }

    private static String brief(String fingerprint) {
        return fingerprint.substring(0, Math.min(12, fingerprint.length()));
    }
}
