package evenlag.core.sticky;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;

/**
 * Counts for unequal subscriptions: {@code assignor_core.algorithms.chains}, step by step the same.
 *
 * <p>They are as even as chains of members can make them, by the fewest moves.
 */
final class Chains {
    private static final int ENOUGH_TO_PASS_ON = 2;
    private static final int SWEEPS = 8;

    private final Flow flow;
    private final int numMembers;

    private Chains(Flow flow) {
        this.flow = flow;
        numMembers = flow.counts.length;
    }

    /** Returns how many rows of each class every taker is to have. */
    static int[][] balance(Classes classes) {
        int[] counts = new int[classes.numMembers()];
        int[][] have = fillFree(classes, counts);
        Chains chains = new Chains(new Flow(have, classes, counts));
        boolean isPassing = true;
        while (isPassing) {
            isPassing = chains.passStraight();
        }
        chains.passAlongChains();
        boolean isCancelling = true;
        while (isCancelling) {
            isCancelling = chains.cancelCircles();
        }
        return have;
    }

    /** Keeps everything that is owned and fills in the rest, the choosiest class first. */
    private static int[][] fillFree(Classes classes, int[] counts) {
        int numClasses = classes.size.length;
        int[][] takers = classes.takers;
        int[][] have = new int[numClasses][];
        int[] free = new int[numClasses];
        for (int k = 0; k < numClasses; k++) {
            have[k] = classes.owned[k].clone();
            free[k] = classes.size[k];
            for (int i = 0; i < takers[k].length; i++) {
                counts[takers[k][i]] += have[k][i];
                free[k] -= have[k][i];
            }
        }
        int[] order = sorted(Arrays.stream(takers).mapToInt(each -> each.length).toArray());
        order = Arrays.stream(order).filter(number -> free[number] > 0).toArray();
        boolean hasChanged = true;
        for (int sweep = 0; sweep < SWEEPS && hasChanged; sweep++) {
            hasChanged = false;
            for (int k : order) {
                hasChanged |= refill(takers[k], free[k], counts, classes.owned[k], have[k], sweep > 0);
            }
            hasChanged &= order.length > 1;
        }
        return have;
    }

    /** Takes a class back and fills it in again: a first filling cannot know what later classes bring. */
    private static boolean refill(
            int[] takers, int free, int[] counts, int[] owned, int[] have, boolean isAgain) {
        int[] now = new int[takers.length];
        int[] before = new int[takers.length];
        for (int i = 0; i < takers.length; i++) {
            now[i] = counts[takers[i]];
            before[i] = now[i] - (have[i] - owned[i]);
        }
        if (isAgain && Levels.max(now) - Levels.min(now) <= 1) {
            return false;
        }
        int[] filled = Levels.fill(before, free);
        for (int i = 0; i < takers.length; i++) {
            have[i] = owned[i] + filled[i] - before[i];
            counts[takers[i]] = filled[i];
        }
        return !Arrays.equals(filled, now);
    }

    /** Fills each member, the least loaded first, from those with at least two more. */
    private boolean passStraight() {
        boolean hasPassed = false;
        for (int taker : sorted(flow.counts)) {
            if (Levels.max(flow.counts) - flow.counts[taker] < ENOUGH_TO_PASS_ON) {
                break;
            }
            hasPassed |= fillOne(taker);
        }
        return hasPassed;
    }

    private boolean fillOne(int taker) {
        int[] classes = flow.classesOf(taker);
        int[] shared = new int[numMembers]; // what each member has of the taker's classes
        for (int k : classes) {
            for (int i = 0; i < flow.takers[k].length; i++) {
                shared[flow.takers[k][i]] += flow.have[k][i];
            }
        }
        int[] givers = IntStream.range(0, numMembers)
                .filter(giver -> flow.counts[giver] >= flow.counts[taker] + ENOUGH_TO_PASS_ON)
                .filter(giver -> shared[giver] > 0)
                .toArray();
        if (givers.length == 0) {
            return false;
        }
        int[] tops = Arrays.stream(givers).map(giver -> flow.counts[giver]).toArray();
        int[] most = Arrays.stream(givers).map(giver -> shared[giver]).toArray();
        int[] wanted = howMany(tops, most, flow.counts[taker]);
        boolean hasPassed = false;
        for (int i = 0; i < givers.length; i++) {
            int left = wanted[i];
            while (left > 0) {
                left -= flow.pass(bestClass(classes, givers[i]), givers[i], taker, left);
            }
            flow.counts[givers[i]] -= wanted[i];
            flow.counts[taker] += wanted[i];
            hasPassed |= wanted[i] > 0;
        }
        return hasPassed;
    }

    /** What costs nothing goes first, and of equals the class that the giver has most of. */
    private int bestClass(int[] classes, int giver) {
        int best = Flow.NONE;
        int lowest = Flow.FAR;
        int most = 0;
        for (int number : classes) {
            int place = flow.placeOf(number, giver);
            if (place < 0 || flow.have[number][place] == 0) {
                continue;
            }
            int cost = flow.out[number][place];
            if (cost < lowest || cost == lowest && flow.have[number][place] > most) {
                best = number;
                lowest = cost;
                most = flow.have[number][place];
            }
        }
        return best;
    }

    /** Returns how many each giver gives so that the taker has at most one fewer than those with more. */
    private static int[] howMany(int[] tops, int[] most, int low) {
        int first = 0;
        int last = 0;
        for (int i = 0; i < tops.length; i++) {
            last += Math.min(most[i], tops[i]);
        }
        while (first < last) {
            int amount = (first + last) >>> 1;
            if (Levels.max(Levels.cut(tops, amount)) - (low + amount) < ENOUGH_TO_PASS_ON) {
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
        for (int[] takers : flow.takers) {
            for (int member : takers) {
                isActive[member] = true;
            }
        }
        for (int most = mostOf(isActive); most >= 0; most = mostOf(isActive)) {
            boolean[] sources = new boolean[numMembers];
            for (int member = 0; member < numMembers; member++) {
                sources[member] = isActive[member] && flow.counts[member] == most;
            }
            flow.search(sources);
            List<Integer> low = new ArrayList<>();
            for (int member = 0; member < numMembers; member++) {
                if (flow.distance[member] < Flow.FAR && flow.counts[member] <= most - ENOUGH_TO_PASS_ON) {
                    low.add(member);
                }
            }
            if (low.isEmpty()) {
                // Nothing leads out of what was reached, so it is settled as a whole.
                for (int member = 0; member < numMembers; member++) {
                    isActive[member] &= flow.distance[member] >= Flow.FAR;
                }
                continue;
            }
            low.sort((a, b) -> {
                int byCount = Integer.compare(flow.counts[a], flow.counts[b]);
                int byDistance = Integer.compare(flow.distance[a], flow.distance[b]);
                return byCount != 0 ? byCount : byDistance != 0 ? byDistance : Integer.compare(a, b);
            });
            goChains(low);
        }
    }

    private void goChains(List<Integer> low) {
        boolean[] isUsed = new boolean[numMembers];
        for (int last : low) {
            List<Integer> chain = new ArrayList<>(List.of(last));
            for (int member = flow.viaMember[last]; member >= 0; member = flow.viaMember[member]) {
                chain.add(member);
            }
            // Chains that share no member do not touch each other's arcs.
            if (chain.stream().noneMatch(member -> isUsed[member])) {
                chain.forEach(member -> isUsed[member] = true);
                chain.subList(0, chain.size() - 1).forEach(flow::go);
                flow.counts[last]++;
                flow.counts[chain.get(chain.size() - 1)]--;
            }
        }
    }

    private int mostOf(boolean[] isActive) {
        int most = -1;
        for (int member = 0; member < numMembers; member++) {
            most = isActive[member] ? Math.max(most, flow.counts[member]) : most;
        }
        return most;
    }

    /** Finds ways round that cost less than nothing and goes them; returns whether there were any. */
    private boolean cancelCircles() {
        flow.beginCircles();
        while (flow.relax()) {
            List<int[]> circles = flow.circles();
            for (int[] circle : circles) {
                for (int member : circle) {
                    if (flow.viaClass[member] != Flow.JUMP) {
                        flow.go(member);
                    }
                }
                for (int member : circle) {
                    if (flow.viaClass[member] == Flow.JUMP) {
                        // The giver ends a chain and has one more; this member begins the next.
                        flow.counts[flow.viaMember[member]]++;
                        flow.counts[member]--;
                    }
                }
            }
            if (!circles.isEmpty()) {
                return true;
            }
        }
        return false;
    }

    /** Returns the numbers of values, ascending, of equals the first first. */
    private static int[] sorted(int[] values) {
        long[] keys = new long[values.length];
        for (int i = 0; i < keys.length; i++) {
            keys[i] = (long) values[i] << Integer.SIZE | i;
        }
        Arrays.sort(keys);
        return Arrays.stream(keys).mapToInt(key -> (int) key).toArray();
    }
}
