package evenlag.core.place;

import java.util.Arrays;

/** Which member has which row, with counts, loads and levels; mutable, for one thread. */
final class Allocation {
    static final int NOBODY = LoadProblem.NOBODY;
    private static final long SCALE = 1000;

    final LoadProblem problem;
    final int[] target;
    final int[] count;
    /** Load × 1000 ÷ capacity of each member, rounded down. */
    final long[] level;
    private final long[] load;
    private final int[][] held;
    private final int[] placeOf;
    private final CountBounds bounds;

    Allocation(LoadProblem problem, int[] target) {
        this.problem = problem;
        this.target = target;
        int numMembers = problem.numMembers();
        count = new int[numMembers];
        level = new long[numMembers];
        load = new long[numMembers];
        for (int member : target) {
            if (member != NOBODY) {
                count[member]++;
            }
        }
        held = new int[numMembers][];
        Arrays.setAll(held, member -> new int[count[member]]);
        placeOf = new int[target.length];
        Arrays.fill(count, 0);
        for (int row = 0; row < target.length; row++) {
            if (target[row] != NOBODY) {
                add(row, target[row]);
            }
        }
        for (int member = 0; member < numMembers; member++) {
            level[member] = levelWith(member, 0);
        }
        bounds = new CountBounds(this);
    }

    Allocation copy() {
        return new Allocation(problem, target.clone());
    }

    CountBounds bounds() {
        return bounds;
    }

    /** Returns the level of a member if its load changes. */
    long levelWith(int member, long change) {
        return (load[member] + change) * SCALE / problem.capacities[member];
    }

    long load(int member) {
        return load[member];
    }

    /** Returns a member's rows, in no order; only the first {@link #count} of them are valid. */
    int[] held(int member) {
        return held[member];
    }

    /** Gives a row to a member. */
    void put(int row, int member) {
        int before = target[row];
        if (before != NOBODY) {
            remove(row, before);
        }
        target[row] = member;
        add(row, member);
        level[member] = levelWith(member, 0);
        bounds.moved(row, before, member);
    }

    private void add(int row, int member) {
        int size = count[member]++;
        if (size == held[member].length) {
            held[member] = Arrays.copyOf(held[member], 2 * size + 4);
        }
        held[member][size] = row;
        placeOf[row] = size;
        load[member] += problem.loads[row];
    }

    private void remove(int row, int member) {
        int size = --count[member];
        int last = held[member][size];
        held[member][placeOf[row]] = last;
        placeOf[last] = placeOf[row];
        load[member] -= problem.loads[row];
        level[member] = levelWith(member, 0);
    }

    /** Returns all levels, the largest last. */
    long[] sortedLevels() {
        long[] sorted = level.clone();
        Arrays.sort(sorted);
        return sorted;
    }

    /** Orders members by level, count and number. */
    boolean isLower(int a, int b) {
        if (level[a] != level[b]) {
            return level[a] < level[b];
        }
        return count[a] != count[b] ? count[a] < count[b] : a < b;
    }

    /** Orders members by level and count, the largest first, and number. */
    boolean isHigher(int a, int b) {
        if (level[a] != level[b]) {
            return level[a] > level[b];
        }
        return count[a] != count[b] ? count[a] > count[b] : a < b;
    }
}
