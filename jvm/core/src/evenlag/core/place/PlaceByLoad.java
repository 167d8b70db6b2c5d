package evenlag.core.place;

import java.util.BitSet;

/**
 * Places a group's rows by load: {@code assignor_core.algorithms.place_by_load} in Java, exact in integers,
 * tested with the same vectors.
 */
public final class PlaceByLoad {
    private static final int NOBODY = LoadProblem.NOBODY;
    private static final int MAX_PASSES = 4;
    private static final int GAIN_SHARE = 32;
    private static final int WORTH_A_REBALANCE = 8;

    private final LoadProblem problem;
    private int[] base;

    private PlaceByLoad(LoadProblem problem) {
        this.problem = problem;
    }

    /**
     * What each row gets.
     *
     * @param target member of each row; -1 if nobody takes it
     * @param isUneven whether the count rule is broken, and placing again could repair it
     */
    public record Placement(int[] target, boolean isUneven) {}

    /** Places. */
    public static Placement place(LoadProblem problem) {
        return new PlaceByLoad(problem).run();
    }

    private Placement run() {
        Allocation all = new Allocation(problem, problem.owners.clone());
        long budget = budget(all);
        BitSet owned = new BitSet();
        BitSet free = new BitSet();
        for (int row = 0; row < problem.numRows(); row++) {
            boolean isOwned = problem.owners[row] != NOBODY;
            owned.set(row, isOwned);
            free.set(row, !isOwned && problem.isEligible(row));
        }
        FreeRows.place(all, free);
        base = all.target.clone();
        long left = CountRepair.repair(all, budget, owned, !free.isEmpty());
        Allocation best = improve(all, budget, free.isEmpty() ? left : 0);
        boolean isSettled = free.isEmpty() && left == budget;
        if (releasesMore(best) || (isSettled && !isWorthIt(best))) {
            best = new Allocation(problem, base);
        }
        return new Placement(best.target, isUneven(best, !free.isEmpty()));
    }

    private Allocation improve(Allocation start, long budget, long leftAtFirst) {
        Allocation all = start;
        Allocation best = new Allocation(problem, base.clone());
        Score bestScore = Score.of(best);
        long left = leftAtFirst;
        for (int pass = 0; pass < MAX_PASSES; pass++) {
            LoadLowering.lower(all, left, GAIN_SHARE, null);
            Allocation placed = replace(moved(all));
            Score score = Score.of(placed);
            if (!score.isBetterThan(bestScore)) {
                break;
            }
            best = placed;
            bestScore = score;
            if (left > 0) {
                left = budget - moved(placed).cardinality();
            }
            if (left <= 0) {
                break;
            }
            all = placed.copy();
        }
        return best;
    }

    /** Whether the highest level sinks by enough for one more rebalance. */
    private boolean isWorthIt(Allocation best) {
        long leastGain = LoadLowering.partOfMean(problem, WORTH_A_REBALANCE);
        return highest(best) <= highest(new Allocation(problem, base.clone())) - leastGain;
    }

    private static long highest(Allocation all) {
        long[] levels = all.sortedLevels();
        return levels.length == 0 ? 0 : levels[levels.length - 1];
    }

    /** Whether the follow-up, in which the released rows are free, would release others for empty members. */
    private boolean releasesMore(Allocation best) {
        BitSet released = moved(best);
        BitSet owned = new BitSet();
        for (int row = 0; row < problem.numRows(); row++) {
            owned.set(row, !released.get(row));
        }
        return CountRepair.repair(best.copy(), 1, owned, true) == 0;
    }

    private boolean isUneven(Allocation best, boolean hadFree) {
        boolean isNeedy = false;
        boolean isEmptyNeedy = false;
        for (int member = 0; member < problem.numMembers(); member++) {
            boolean isIt = best.bounds().need(member) > 0;
            isNeedy |= isIt;
            isEmptyNeedy |= isIt && best.count[member] == 0;
        }
        boolean canGoOn = problem.maxMoves > 0 || isEmptyNeedy;
        return isNeedy && canGoOn && (hadFree || !moved(best).isEmpty());
    }

    /** Members without rows get their share, whatever the limit of moves. */
    private long budget(Allocation all) {
        long shares = 0;
        for (int member = 0; member < problem.numMembers(); member++) {
            int c = problem.classOf[member];
            if (all.count[member] == 0 && problem.rowsOfClass[c] > 0) {
                shares += Math.max(1, problem.rowsOfClass[c] / problem.rivalsOfClass[c]);
            }
        }
        return Math.max(problem.maxMoves, shares);
    }

    private BitSet moved(Allocation all) {
        BitSet moved = new BitSet();
        for (int row = 0; row < base.length; row++) {
            moved.set(row, all.target[row] != base[row]);
        }
        return moved;
    }

    /**
     * Places released rows as the second round of a rebalance will, where they are free.
     *
     * <p>Rows that return to their owners are not released, until none returns.
     */
    private Allocation replace(BitSet released) {
        BitSet rows = (BitSet) released.clone();
        while (true) {
            int[] target = base.clone();
            rows.stream().forEach(row -> target[row] = NOBODY);
            Allocation placed = new Allocation(problem, target);
            FreeRows.place(placed, rows);
            int before = rows.cardinality();
            rows.and(moved(placed));
            if (rows.cardinality() == before) {
                return placed;
            }
        }
    }
}
