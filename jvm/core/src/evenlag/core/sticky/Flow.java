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
    static final int NONE = -1;

    /** Of each class, who can take it, ascending; the next four are by their places in it. */
    final int[][] takers;
    /** Rows of each class and taker: now, and owned at first. */
    final int[][] have;
    final int[][] owned;
    /** The cost of taking one from a taker, FAR if it has none, and of giving it one. */
    final int[][] out;
    final int[][] into;
    /** All that each member has. */
    final int[] counts;
    /** What leads to each member: the class, or JUMP, and from whom. */
    final int[] viaClass;
    final int[] viaMember;
    int[] distance;

    private final Classes classes;
    private final int numMembers;
    /** The classes of each member, ascending, and its places in them: those from its first to the next's. */
    private final int[] firstOfMember;
    private final int[] classOfEntry;
    private final int[] placeOfEntry;
    /** Of the current search: the cheapest way out of each class, from whom, and whether it became cheaper. */
    private final int[] fromClass;
    private final int[] givers;
    private final boolean[] isCheaper;
    /** Whose way became shorter in the last round, ascending: only these can shorten others. */
    private final int[] changed;
    private int numChanged;

    Flow(int[][] have, Classes classes, int[] counts) {
        this.have = have;
        this.classes = classes;
        this.owned = classes.owned;
        this.takers = classes.takers;
        this.counts = counts;
        numMembers = counts.length;
        out = Arrays.stream(takers).map(each -> new int[each.length]).toArray(int[][]::new);
        into = Arrays.stream(takers).map(each -> new int[each.length]).toArray(int[][]::new);
        firstOfMember = new int[numMembers + 1];
        for (int number = 0; number < have.length; number++) {
            for (int place = 0; place < takers[number].length; place++) {
                price(number, place);
                firstOfMember[takers[number][place] + 1]++;
            }
        }
        for (int member = 0; member < numMembers; member++) {
            firstOfMember[member + 1] += firstOfMember[member];
        }
        classOfEntry = new int[firstOfMember[numMembers]];
        placeOfEntry = new int[firstOfMember[numMembers]];
        listEntries();
        viaClass = new int[numMembers];
        viaMember = new int[numMembers];
        fromClass = new int[have.length];
        givers = new int[have.length];
        isCheaper = new boolean[have.length];
        changed = new int[numMembers];
    }

    private void listEntries() {
        int[] next = firstOfMember.clone();
        for (int number = 0; number < have.length; number++) {
            for (int place = 0; place < takers[number].length; place++) {
                int entry = next[takers[number][place]]++;
                classOfEntry[entry] = number;
                placeOfEntry[entry] = place;
            }
        }
    }

    /** Returns the classes that a member takes, ascending. */
    int[] classesOf(int member) {
        return Arrays.copyOfRange(classOfEntry, firstOfMember[member], firstOfMember[member + 1]);
    }

    /** Returns a member's place among the takers of a class; negative if it does not take it. */
    int placeOf(int number, int member) {
        return classes.placeOf(number, member);
    }

    private void price(int number, int place) {
        int now = have[number][place];
        int before = owned[number][place];
        out[number][place] = now == 0 ? FAR : now <= before ? 1 : 0;
        into[number][place] = now < before ? -1 : 0;
    }

    /**
     * Passes some of a class on: first what the giver has beyond what it owned. The counts are the caller's to
     * change.
     *
     * @return how many were passed on, at most as many as asked
     */
    int pass(int number, int giver, int taker, int most) {
        int from = placeOf(number, giver);
        int spare = have[number][from] - owned[number][from];
        int amount = Math.min(most, spare > 0 ? spare : have[number][from]);
        move(number, from, placeOf(number, taker), amount);
        return amount;
    }

    private void move(int number, int from, int to, int amount) {
        have[number][from] -= amount;
        have[number][to] += amount;
        price(number, from);
        price(number, to);
    }

    /** Passes one on to a member, as the last search found. */
    void go(int member) {
        int number = viaClass[member];
        move(number, placeOf(number, viaMember[member]), placeOf(number, member), 1);
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
        leave();
        int[] cheapest = new int[numMembers];
        int[] via = new int[numMembers];
        Arrays.fill(cheapest, Integer.MAX_VALUE);
        for (int number = 0; number < have.length; number++) {
            if (isCheaper[number]) {
                int leaving = fromClass[number];
                int[] row = into[number];
                int[] members = takers[number];
                for (int place = 0; place < members.length; place++) {
                    int arriving = isPriced ? leaving + row[place] : leaving;
                    if (arriving < cheapest[members[place]]) {
                        cheapest[members[place]] = arriving;
                        via[members[place]] = number;
                    }
                }
            }
        }
        boolean isBetter = false;
        for (int member = 0; member < numMembers; member++) {
            if (cheapest[member] < distance[member]) {
                next[member] = cheapest[member];
                viaClass[member] = via[member];
                viaMember[member] = givers[via[member]];
                isBetter = true;
            }
        }
        return isBetter;
    }

    /** Updates the cheapest way out of each class, of equals the first giver's. */
    private void leave() {
        Arrays.fill(isCheaper, false);
        for (int i = 0; i < numChanged; i++) {
            int member = changed[i];
            for (int entry = firstOfMember[member]; entry < firstOfMember[member + 1]; entry++) {
                int number = classOfEntry[entry];
                int cost = out[number][placeOfEntry[entry]];
                if (cost == FAR) {
                    continue;
                }
                int leaving = cost + distance[member];
                if (leaving < fromClass[number]) {
                    isCheaper[number] = true;
                    fromClass[number] = leaving;
                    givers[number] = member;
                } else if (leaving == fromClass[number] && member < givers[number]) {
                    givers[number] = member;
                }
            }
        }
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
