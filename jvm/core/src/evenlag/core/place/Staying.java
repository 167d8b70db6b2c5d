package evenlag.core.place;

import java.util.BitSet;

/**
 * Lets owned rows stay: free ones go to the members with the fewest, and a member that has none afterwards
 * gets the smallest share that an even split would give it, from those with the most.
 *
 * <p>Used with equal loads, while nothing is known about a group.
 */
public final class Staying {
    private final LoadProblem problem;
    private final Allocation all;
    private final BitSet empty = new BitSet();

    private Staying(LoadProblem problem) {
        this.problem = problem;
        all = new Allocation(problem, problem.owners.clone());
    }

    /** Returns the member of each row; -1 if nobody takes it. */
    public static int[] place(LoadProblem problem) {
        return new Staying(problem).run();
    }

    private int[] run() {
        BitSet free = new BitSet();
        for (int row = 0; row < problem.numRows(); row++) {
            free.set(row, problem.owners[row] == LoadProblem.NOBODY && problem.isEligible(row));
        }
        FreeRows.place(all, free);
        for (int member = 0; member < problem.numMembers(); member++) {
            empty.set(member, all.count[member] == 0 && problem.rowsOfClass[problem.classOf[member]] > 0);
        }
        for (int poor = poorest(); poor >= 0; poor = poorest()) {
            int row = rowFor(poor);
            if (row < 0) {
                empty.clear(poor);
            } else {
                all.put(row, poor);
            }
        }
        return all.target;
    }

    /** Returns the one with the fewest rows of those that were empty and lack their share; -1 if none does. */
    private int poorest() {
        int poorest = -1;
        for (int member = empty.nextSetBit(0); member >= 0; member = empty.nextSetBit(member + 1)) {
            int c = problem.classOf[member];
            int share = Math.max(1, problem.rowsOfClass[c] / problem.rivalsOfClass[c]);
            boolean isFewer = poorest < 0 || all.count[member] < all.count[poorest];
            poorest = all.count[member] < share && isFewer ? member : poorest;
        }
        return poorest;
    }

    /** Returns the first row that a member takes of the one with the most, who keeps as many; -1 if none. */
    private int rowFor(int poor) {
        int rich = -1;
        int best = -1;
        for (int member = 0; member < problem.numMembers(); member++) {
            boolean isRicher = all.count[member] >= all.count[poor] + 2
                    && (rich < 0 || all.count[member] > all.count[rich]);
            int row = isRicher ? firstRow(member, poor) : -1;
            if (row >= 0) {
                rich = member;
                best = row;
            }
        }
        return best;
    }

    private int firstRow(int rich, int poor) {
        int first = -1;
        int[] rows = all.held(rich);
        for (int i = 0; i < all.count[rich]; i++) {
            boolean isTaken = problem.takes(poor, problem.topicOf[rows[i]]);
            first = isTaken && (first < 0 || rows[i] < first) ? rows[i] : first;
        }
        return first;
    }
}
