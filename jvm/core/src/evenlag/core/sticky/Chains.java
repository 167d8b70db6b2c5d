package evenlag.core.sticky;

import java.util.Arrays;

/**
 * Counts for unequal subscriptions: {@code assignor_core.algorithms.chains}, with the same result.
 *
 * <p>They are as even as chains of members can make them, by the fewest moves.
 */
final class Chains {
    private static final int ENOUGH_TO_PASS_ON = 2;

    private final Flow flow;
    private final int numMembers;

    private Chains(Flow flow) {
        this.flow = flow;
        numMembers = flow.counts.length;
    }

    /** Returns how many rows each slot is to have. */
    static int[] balance(Classes classes) {
        FreeFill filled = new FreeFill(classes);
        if (filled.isEven()) {
            return filled.have; // nobody gave anything up, so no circle can save a move either
        }
        Chains chains = new Chains(new Flow(filled.have, filled.counts, classes));
        boolean isPassing = true;
        while (isPassing) {
            isPassing = chains.passStraight();
        }
        chains.passAlongChains();
        boolean isCancelling = true;
        while (isCancelling) {
            isCancelling = chains.flow.mayHaveCircles() && chains.cancelCircles();
        }
        return filled.have;
    }

    /** Fills each member, the least loaded first, from those with at least two more. */
    private boolean passStraight() {
        boolean hasPassed = false;
        int most = Levels.max(flow.counts);
        for (int taker : sorted(flow.counts)) {
            if (most - flow.counts[taker] < ENOUGH_TO_PASS_ON) {
                break;
            }
            if (fillOne(taker)) {
                hasPassed = true;
                most = Levels.max(flow.counts);
            }
        }
        return hasPassed;
    }

    private boolean fillOne(int taker) {
        int atLeast = flow.counts[taker] + ENOUGH_TO_PASS_ON;
        if (!flow.hasGiver(taker, atLeast)) {
            return false;
        }
        int[] shared = flow.shared(taker);
        int[] givers = new int[numMembers];
        int size = 0;
        for (int giver = 0; giver < numMembers; giver++) {
            if (shared[giver] > 0 && flow.counts[giver] >= atLeast) {
                givers[size++] = giver;
            }
        }
        int[] tops = new int[size];
        int[] most = new int[size];
        for (int i = 0; i < size; i++) {
            tops[i] = flow.counts[givers[i]];
            most[i] = shared[givers[i]];
        }
        int[] wanted = howMany(tops, most, flow.counts[taker]);
        boolean hasPassed = false;
        for (int i = 0; i < size; i++) {
            if (wanted[i] > 0) {
                flow.pass(givers[i], taker, wanted[i]);
                hasPassed = true;
            }
        }
        return hasPassed;
    }

    /** Returns how many each giver gives so that the taker has at most one fewer than those with more. */
    private static int[] howMany(int[] tops, int[] most, int low) {
        int[] mirrored = Levels.mirrored(tops);
        int first = 0;
        int last = 0;
        for (int i = 0; i < tops.length; i++) {
            last += Math.min(most[i], tops[i]);
        }
        while (first < last) {
            int amount = (first + last) >>> 1;
            if (-Levels.floor(mirrored, amount) - (low + amount) < ENOUGH_TO_PASS_ON) {
                last = amount;
            } else {
                first = amount + 1;
            }
        }
        int[] kept = Levels.cut(tops, first);
        int[] given = new int[tops.length];
        Arrays.setAll(given, i -> Math.min(tops[i] - kept[i], most[i]));
        return given;
    }

    /** Passes rows on along the cheapest chains until none leads over a gap of two. */
    private void passAlongChains() {
        boolean[] isActive = new boolean[numMembers];
        for (int member = 0; member < numMembers; member++) {
            isActive[member] = flow.takesAny(member);
        }
        while (true) {
            int most = -1;
            int least = Integer.MAX_VALUE;
            for (int member = 0; member < numMembers; member++) {
                if (isActive[member]) {
                    most = Math.max(most, flow.counts[member]);
                    least = Math.min(least, flow.counts[member]);
                }
            }
            // What was settled before is no end of a chain: its members have at most one fewer.
            if (most - least < ENOUGH_TO_PASS_ON) {
                return;
            }
            flow.search(isActive, most);
            int[] ends = ends(most - ENOUGH_TO_PASS_ON);
            if (ends.length > 0) {
                goChains(ends);
            } else {
                // Nothing leads out of what was reached, so it is settled as a whole.
                for (int member = 0; member < numMembers; member++) {
                    isActive[member] &= flow.distance[member] >= Flow.FAR;
                }
            }
        }
    }

    /** Returns the reached members with at most so many: those with the fewest first, then the nearest. */
    private int[] ends(int atMost) {
        int[] ends = new int[numMembers];
        int size = 0;
        for (int member = 0; member < numMembers; member++) {
            if (flow.distance[member] < Flow.FAR && flow.counts[member] <= atMost) {
                ends[size++] = member;
            }
        }
        ends = Arrays.copyOf(ends, size);
        return by(flow.counts, by(flow.distance, ends));
    }

    private void goChains(int[] ends) {
        // Members of chains that are gone, and those from whom one comes only through such a member.
        boolean[] isUsed = new boolean[numMembers];
        int[] chain = new int[numMembers];
        for (int end : ends) {
            int size = 0;
            int member = end;
            while (member >= 0 && !isUsed[member]) {
                chain[size++] = member;
                isUsed[member] = true;
                member = flow.viaMember[member];
            }
            // Chains that share no member do not touch each other's arcs.
            if (member < 0) {
                for (int i = 0; i < size - 1; i++) {
                    flow.go(chain[i]);
                }
                flow.counts[end]++;
                flow.counts[chain[size - 1]]--;
            }
        }
    }

    /** Finds ways round that cost less than nothing and goes them; returns whether there were any. */
    private boolean cancelCircles() {
        flow.beginCircles();
        while (flow.relax()) {
            if (flow.goCircles()) {
                return true;
            }
        }
        return false;
    }

    /** Returns the numbers of values, ascending, of equals the first first. */
    private static int[] sorted(int[] values) {
        int[] numbers = new int[values.length];
        Arrays.setAll(numbers, i -> i);
        return by(values, numbers);
    }

    /** Returns numbers in the order of their values, of equals the first first. */
    private static int[] by(int[] values, int[] numbers) {
        long[] keys = new long[numbers.length];
        for (int i = 0; i < keys.length; i++) {
            keys[i] = (long) values[numbers[i]] << Integer.SIZE | i;
        }
        Arrays.sort(keys);
        int[] ordered = new int[numbers.length];
        for (int i = 0; i < keys.length; i++) {
            ordered[i] = numbers[(int) keys[i]];
        }
        return ordered;
    }
}
