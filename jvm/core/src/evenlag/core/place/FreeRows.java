package evenlag.core.place;

import java.util.Arrays;
import java.util.BitSet;
import java.util.function.IntPredicate;

/** Places free rows, the heaviest first, and then evens them out among themselves. */
final class FreeRows {
    private static final int GAIN_SHARE = 256;
    private static final int MAX_STEPS = 32;

    private final Allocation all;
    private final LoadProblem problem;
    /** How many rows of each topic are still to be placed. */
    private final int[] left;
    private final long nearLevel;

    private FreeRows(Allocation all) {
        this.all = all;
        problem = all.problem;
        left = new int[problem.numTopics];
        nearLevel = problem.racks == null ? 0 : LoadLowering.nearLevel(problem);
    }

    /** Places rows that nobody has. */
    static void place(Allocation all, BitSet free) {
        new FreeRows(all).run(free);
    }

    private void run(BitSet free) {
        int[] order = problem.byLoad(free.stream().toArray(), true);
        for (int row : order) {
            left[problem.topicOf[row]]++;
        }
        for (int row : order) {
            int[] takers = problem.takers[problem.topicOf[row]];
            int receiver = isScarce() ? needy(row, takers) : -1;
            all.put(row, receiver < 0 ? lowest(row, takers) : receiver);
            left[problem.topicOf[row]]--;
        }
        LoadLowering.lower(all, Math.min(2L * order.length, MAX_STEPS), GAIN_SHARE, free);
    }

    /** Whether the rows that are left are no more than what members lack. */
    private boolean isScarce() {
        long needs = 0;
        BitSet classes = new BitSet();
        for (int member = 0; member < problem.numMembers(); member++) {
            long need = all.bounds().need(member);
            if (need > 0) {
                needs += need;
                classes.set(problem.classOf[member]);
            }
        }
        if (classes.isEmpty()) {
            return false;
        }
        BitSet topics = new BitSet();
        classes.stream().forEach(c -> topics.or(problem.topicsOfClass[c]));
        return topics.stream().mapToLong(topic -> left[topic]).sum() <= needs;
    }

    /** Returns one of the takers that lack rows, of those without any if there are such; -1 if none does. */
    private int needy(int row, int[] takers) {
        boolean hasEmpty = Arrays.stream(takers).anyMatch(member -> all.count[member] == 0);
        return nearest(
                row, takers, member -> hasEmpty ? all.count[member] == 0 : all.bounds().need(member) > 0);
    }

    /** Returns one of the takers with few rows: fewer than the most, or the fewest within the slack. */
    private int lowest(int row, int[] takers) {
        int least = Integer.MAX_VALUE;
        for (int member : takers) {
            least = Math.min(least, all.count[member]);
        }
        long limit = Math.max(all.bounds().largestOfRivals(row) - 1, least + problem.slack);
        return nearest(row, takers, member -> all.count[member] <= limit);
    }

    /** Returns the lowest of some takers that is near the row, if its level allows; else the lowest. */
    private int nearest(int row, int[] takers, IntPredicate isWanted) {
        int lowest = -1;
        int near = -1;
        for (int member : takers) {
            if (isWanted.test(member)) {
                lowest = lowest < 0 || all.isLower(member, lowest) ? member : lowest;
                boolean isNear = problem.racks != null && !problem.isFar(row, member);
                near = isNear && (near < 0 || all.isLower(member, near)) ? member : near;
            }
        }
        long load = problem.loads[row];
        boolean isNearPreferred = near >= 0
                && all.levelWith(near, load) <= Math.max(nearLevel, all.levelWith(lowest, load));
        return isNearPreferred ? near : lowest;
    }
}
