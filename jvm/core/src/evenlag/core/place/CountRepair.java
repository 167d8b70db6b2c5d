package evenlag.core.place;

import java.util.BitSet;

/** Gives rows to members that have too few, one at a time, from members that have too many. */
final class CountRepair {
    private final Allocation all;
    private final LoadProblem problem;
    private final BitSet owned;
    private final boolean isForEmptyOnly;

    private CountRepair(Allocation all, BitSet owned, boolean isForEmptyOnly) {
        this.all = all;
        problem = all.problem;
        this.owned = owned;
        this.isForEmptyOnly = isForEmptyOnly;
    }

    /**
     * Repairs.
     *
     * @param budget how many rows may move
     * @param owned the rows that may, also again
     * @param isForEmptyOnly whether only members without rows get one
     * @return what is left of the budget
     */
    static long repair(Allocation all, long budget, BitSet owned, boolean isForEmptyOnly) {
        CountRepair repair = new CountRepair(all, owned, isForEmptyOnly);
        long left = budget;
        while (left > 0 && repair.moveOne()) {
            left--;
        }
        return left;
    }

    private boolean moveOne() {
        boolean[] isTried = new boolean[problem.numMembers()];
        for (int poor = poorest(isTried); poor >= 0; poor = poorest(isTried)) {
            int rich = donor(poor);
            if (rich >= 0) {
                all.put(choose(rich, poor), poor);
                return true;
            }
            isTried[poor] = true;
        }
        return false;
    }

    /** Returns the needy member with the fewest rows, then the lowest level. */
    private int poorest(boolean[] isTried) {
        int poorest = -1;
        for (int member = 0; member < isTried.length; member++) {
            boolean isWanted = !isTried[member] && (all.count[member] == 0 || !isForEmptyOnly);
            if (isWanted && (poorest < 0 || isPoorer(member, poorest)) && all.bounds().need(member) > 0) {
                poorest = member;
            }
        }
        return poorest;
    }

    private boolean isPoorer(int a, int b) {
        if (all.count[a] != all.count[b]) {
            return all.count[a] < all.count[b];
        }
        return all.level[a] != all.level[b] ? all.level[a] < all.level[b] : a < b;
    }

    /** Returns the highest of those that have too many, compared with a member, and a row for it. */
    private int donor(int poor) {
        long enough = all.count[poor] == 0 ? 2 : all.count[poor] + 2 + problem.slack;
        int best = -1;
        for (int member = 0; member < problem.numMembers(); member++) {
            boolean isBetter = all.count[member] >= enough && (best < 0 || all.isHigher(member, best));
            if (isBetter && hasRowFor(member, poor)) {
                best = member;
            }
        }
        return best;
    }

    private boolean hasRowFor(int rich, int poor) {
        int[] rows = all.held(rich);
        for (int i = 0; i < all.count[rich]; i++) {
            if (isFor(rows[i], poor)) {
                return true;
            }
        }
        return false;
    }

    private boolean isFor(int row, int poor) {
        return owned.get(row) && problem.takes(poor, problem.topicOf[row]);
    }

    /**
     * Returns the row whose load is nearest to what the receiver lacks, spread over the rows that it lacks;
     * one that fits into its share of the load, if there is one.
     */
    private int choose(int rich, int poor) {
        int c = problem.classOf[poor];
        long missing = Math.max(1, problem.rowsOfClass[c] / problem.rivalsOfClass[c] - all.count[poor]);
        long share = problem.loadOfClass[c] * problem.capacities[poor] / problem.capacityOfClass[c];
        long room = Math.max(0, share - all.load(poor));
        long wanted = room / missing;
        int best = -1;
        int[] rows = all.held(rich);
        for (int i = 0; i < all.count[rich]; i++) {
            if (isFor(rows[i], poor) && (best < 0 || isNearer(rows[i], best, poor, room, wanted))) {
                best = rows[i];
            }
        }
        return best;
    }

    private boolean isNearer(int a, int b, int poor, long room, long wanted) {
        boolean isTooLarge = problem.loads[a] > room;
        if (isTooLarge != problem.loads[b] > room) {
            return !isTooLarge;
        }
        if (problem.isFar(a, poor) != problem.isFar(b, poor)) {
            return problem.isFar(b, poor);
        }
        long distance = Math.abs(problem.loads[a] - wanted);
        long other = Math.abs(problem.loads[b] - wanted);
        return distance != other ? distance < other : a < b;
    }
}
