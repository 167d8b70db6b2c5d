package evenlag.core.sticky;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * How many of each class every member has, and what passing on costs: {@code assignor_core.algorithms.flow}.
 *
 * <p>Ties are broken as there, so that both give the same counts.
 */
final class Flow {
    /** More than any way costs, and so little that sums of three stay within an int. */
    static final int FAR = 1 << 28;

    static final int JUMP = -2;
    private static final int NONE = -1;

    /** Rows of each class and member: now, and owned at first. */
    final int[][] have;
    final int[][] owned;
    final boolean[][] eligible;
    /** Of each class, who can take it: only these have anything of it. */
    final int[][] takers;
    /** All that each member has. */
    final int[] counts;
    /** The cost of taking one from a member, and of giving it one; FAR where that cannot be. */
    final int[][] out;
    final int[][] into;
    /** What leads to each member: the class, or JUMP, and from whom. */
    final int[] viaClass;
    final int[] viaMember;
    int[] distance;

    private final int numMembers;
    /** Of the current search: the cheapest way out of each class, and from whom. */
    private final int[] fromClass;
    private final int[] givers;
    /** Whose way became shorter in the last round, ascending: only these can shorten others. */
    private final int[] changed;
    private final boolean[] isChanged;
    private int numChanged;

    Flow(int[][] have, Classes classes, int[] counts) {
        this.have = have;
        this.owned = classes.owned;
        this.eligible = classes.eligible;
        this.takers = classes.takers;
        this.counts = counts;
        numMembers = counts.length;
        out = new int[have.length][numMembers];
        into = new int[have.length][numMembers];
        for (int number = 0; number < have.length; number++) {
            Arrays.fill(out[number], FAR);
            Arrays.fill(into[number], FAR);
            for (int member : takers[number]) {
                price(number, member);
            }
        }
        viaClass = new int[numMembers];
        viaMember = new int[numMembers];
        fromClass = new int[have.length];
        givers = new int[have.length];
        changed = new int[numMembers];
        isChanged = new boolean[numMembers];
    }

    private void price(int number, int member) {
        int now = have[number][member];
        int before = owned[number][member];
        out[number][member] = now == 0 ? FAR : now <= before ? 1 : 0;
        into[number][member] = !eligible[number][member] ? FAR : now < before ? -1 : 0;
    }

    /** Passes some of a class from one member to another; the counts are the caller's to change. */
    void move(int number, int giver, int taker, int amount) {
        have[number][giver] -= amount;
        have[number][taker] += amount;
        price(number, giver);
        price(number, taker);
    }

    /** Passes one on to a member, as the last search found. */
    void go(int member) {
        move(viaClass[member], viaMember[member], member, 1);
    }

    /** Finds the cheapest ways from the sources to every member; earnings are left out, so that it ends. */
    void search(boolean[] sources) {
        distance = new int[numMembers];
        for (int member = 0; member < numMembers; member++) {
            distance[member] = sources[member] ? 0 : FAR;
        }
        begin();
        while (true) {
            int[] next = distance.clone();
            if (!improve(false, next)) {
                return;
            }
            advance(next);
        }
    }

    /** Begins a search for circles. */
    void beginCircles() {
        distance = new int[numMembers];
        begin();
    }

    /** Shortens all ways by one more arc or jump; returns whether any became shorter. */
    boolean relax() {
        int[] next = distance.clone();
        int[] jumps = bestJumps();
        boolean isBetter = improve(true, next);
        for (int member = 0; member < numMembers; member++) {
            int jumper = jumps[member];
            if (jumper != NONE && distance[jumper] < next[member]) {
                next[member] = distance[jumper];
                viaClass[member] = JUMP;
                viaMember[member] = jumper;
                isBetter = true;
            }
        }
        advance(next);
        return isBetter;
    }

    /** Returns all circles of predecessors: of each its members, every one followed by who leads to it. */
    List<int[]> circles() {
        int[] seenFrom = new int[numMembers];
        List<int[]> circles = new ArrayList<>();
        int[] path = new int[numMembers];
        for (int start = 0; start < numMembers; start++) {
            int member = start;
            int length = 0;
            while (member >= 0 && seenFrom[member] == 0) {
                seenFrom[member] = start + 1;
                path[length++] = member;
                member = viaMember[member];
            }
            if (member >= 0 && length > 0 && seenFrom[member] == start + 1) {
                int from = 0;
                while (path[from] != member) {
                    from++;
                }
                circles.add(Arrays.copyOfRange(path, from, length));
            }
        }
        return circles;
    }

    private void begin() {
        Arrays.fill(viaClass, NONE);
        Arrays.fill(viaMember, NONE);
        Arrays.fill(fromClass, FAR);
        Arrays.fill(givers, NONE);
        numChanged = 0;
        for (int member = 0; member < numMembers; member++) {
            noteChange(member, distance[member] < FAR);
        }
    }

    private void advance(int[] next) {
        numChanged = 0;
        for (int member = 0; member < numMembers; member++) {
            noteChange(member, next[member] < distance[member]);
        }
        distance = next;
    }

    private void noteChange(int member, boolean hasChanged) {
        isChanged[member] = hasChanged;
        if (hasChanged) {
            changed[numChanged++] = member;
        }
    }

    /**
     * Goes one arc further from everybody; of equal ways the first class and the first giver count.
     *
     * <p>Only ways through a class that has become cheaper to leave can be shorter than what is known: the
     * others were tried in the round before.
     */
    private boolean improve(boolean isPriced, int[] next) {
        int[] cheapest = new int[numMembers];
        int[] classes = new int[numMembers];
        Arrays.fill(cheapest, Integer.MAX_VALUE);
        for (int number = 0; number < have.length; number++) {
            if (leave(number)) {
                int leaving = fromClass[number];
                int[] row = into[number];
                for (int member : takers[number]) {
                    int arriving = isPriced ? leaving + row[member] : leaving;
                    if (arriving < cheapest[member]) {
                        cheapest[member] = arriving;
                        classes[member] = number;
                    }
                }
            }
        }
        boolean isBetter = false;
        for (int member = 0; member < numMembers; member++) {
            if (cheapest[member] < distance[member]) {
                next[member] = cheapest[member];
                viaClass[member] = classes[member];
                viaMember[member] = givers[classes[member]];
                isBetter = true;
            }
        }
        return isBetter;
    }

    /** Updates the cheapest way out of a class; returns whether it has become cheaper. */
    private boolean leave(int number) {
        int best = fromClass[number];
        int giver = givers[number];
        int[] row = out[number];
        boolean areMany = numChanged > takers[number].length;
        int[] members = areMany ? takers[number] : changed;
        int size = areMany ? members.length : numChanged;
        for (int i = 0; i < size; i++) {
            int member = members[i];
            if (isChanged[member] && row[member] < FAR) {
                int leaving = row[member] + distance[member];
                if (leaving < best || leaving == best && member < giver) {
                    best = leaving;
                    giver = member;
                }
            }
        }
        boolean isCheaper = best < fromClass[number];
        fromClass[number] = best;
        givers[number] = giver;
        return isCheaper;
    }

    /** Returns, per member, the cheapest to reach of those with one fewer; NONE without any. */
    private int[] bestJumps() {
        int[] best = new int[Levels.max(counts) + 1];
        Arrays.fill(best, NONE);
        for (int member = 0; member < numMembers; member++) {
            int known = best[counts[member]];
            if (known == NONE || distance[member] < distance[known]) {
                best[counts[member]] = member;
            }
        }
        int[] jumps = new int[numMembers];
        for (int member = 0; member < numMembers; member++) {
            jumps[member] = counts[member] == 0 ? NONE : best[counts[member] - 1];
        }
        return jumps;
    }
}
