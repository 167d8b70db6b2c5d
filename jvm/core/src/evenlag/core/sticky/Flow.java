package evenlag.core.sticky;

import java.util.Arrays;

/**
 * How many of each class every member has, and what passing on costs: {@code assignor_core.algorithms.chains}.
 *
 * <p>Ties are broken as there, so that both give the same counts. A search goes on only from members to which
 * the way became shorter, so that long chains of few members each cost little.
 */
final class Flow {
    /** More than any way costs, and so little that sums of three stay within an int. */
    static final int FAR = 1 << 28;

    private static final int JUMP = -2;
    private static final int NONE = -1;

    /** All that each member has. */
    final int[] counts;
    /** The cost of the best way to each member that is known, and who leads to it. */
    final int[] distance;
    final int[] viaMember;

    /** What leads to each member: the class, or JUMP. */
    private final int[] viaClass;
    private final Classes classes;
    /** Rows of each slot: now, and owned at first. */
    private final int[] have;
    private final int[] owned;
    private final int numMembers;
    /** The slots of each member, in the order of its classes: those from its first to the next one's. */
    private final int[] firstEntry;
    private final int[] slotOfEntry;
    /** The cheapest way out of each class, from whom, and the classes for which it became cheaper. */
    private final int[] fromClass;
    private final int[] givers;
    private final boolean[] isCheaper;
    private final int[] cheaper;
    private int numCheaper;
    /** Members to which the way became shorter in this round; how long it is, and what leads there. */
    private final int[] nearer;
    private int numNearer;
    private final int[] found;
    private final int[] foundClass;
    private final int[] foundMember;
    /** The most that a member has of those with rows of each class, and in which round of passing on. */
    private final int[] top;
    private final int[] topRound;
    private int round = 1;

    Flow(int[] have, int[] counts, Classes classes) {
        this.have = have;
        this.counts = counts;
        this.classes = classes;
        owned = classes.owned;
        numMembers = counts.length;
        firstEntry = new int[numMembers + 1];
        slotOfEntry = new int[have.length];
        int[] next = classes.firstSlot.clone();
        for (int member = 0; member < numMembers; member++) {
            int entry = firstEntry[member];
            for (int number : classes.classesOf(member)) {
                slotOfEntry[entry++] = next[number]++;
            }
            firstEntry[member + 1] = entry;
        }
        distance = new int[numMembers];
        viaClass = new int[numMembers];
        viaMember = new int[numMembers];
        nearer = new int[numMembers];
        found = new int[numMembers];
        Arrays.fill(found, FAR);
        foundClass = new int[numMembers];
        foundMember = new int[numMembers];
        int numClasses = classes.numClasses();
        fromClass = new int[numClasses];
        givers = new int[numClasses];
        isCheaper = new boolean[numClasses];
        cheaper = new int[numClasses];
        top = new int[numClasses];
        topRound = new int[numClasses];
    }

    boolean takesAny(int member) {
        return firstEntry[member + 1] > firstEntry[member];
    }

    /** Whether a member with at least so many has anything that another one takes. */
    boolean hasGiver(int taker, int atLeast) {
        for (int number : classes.classesOf(taker)) {
            if (topRound[number] != round) {
                topRound[number] = round;
                top[number] = 0;
                for (int slot = classes.firstSlot[number]; slot < classes.firstSlot[number + 1]; slot++) {
                    if (have[slot] > 0) {
                        top[number] = Math.max(top[number], counts[classes.taker[slot]]);
                    }
                }
            }
            if (top[number] >= atLeast) {
                return true;
            }
        }
        return false;
    }

    /** Returns how much each member has of what another one takes. */
    int[] shared(int taker) {
        int[] shared = new int[numMembers];
        for (int number : classes.classesOf(taker)) {
            for (int slot = classes.firstSlot[number]; slot < classes.firstSlot[number + 1]; slot++) {
                shared[classes.taker[slot]] += have[slot];
            }
        }
        return shared;
    }

    /** Passes rows on from one member to another: first what costs nothing. */
    void pass(int giver, int taker, int amount) {
        int left = amount;
        while (left > 0) {
            int number = cheapestClass(giver, taker);
            int from = classes.slotOf(number, giver);
            int spare = have[from] - owned[from];
            int some = Math.min(left, spare > 0 ? spare : have[from]);
            have[from] -= some;
            have[classes.slotOf(number, taker)] += some;
            left -= some;
        }
        counts[giver] -= amount;
        counts[taker] += amount;
        round++;
    }

    /** Returns the class of which passing on costs the least, and of equals the one that the giver has most of. */
    private int cheapestClass(int giver, int taker) {
        int[] given = classes.classesOf(giver);
        int[] taken = classes.classesOf(taker);
        int best = NONE;
        int lowest = FAR;
        int most = 0;
        int place = 0;
        for (int i = 0; i < given.length; i++) {
            while (place < taken.length && taken[place] < given[i]) {
                place++;
            }
            if (place == taken.length) {
                break;
            }
            int slot = slotOfEntry[firstEntry[giver] + i];
            int cost = costOfTaking(slot);
            if (taken[place] == given[i] && (cost < lowest || cost == lowest && cost < FAR && have[slot] > most)) {
                best = given[i];
                lowest = cost;
                most = have[slot];
            }
        }
        return best;
    }

    private int costOfTaking(int slot) {
        return have[slot] == 0 ? FAR : have[slot] <= owned[slot] ? 1 : 0;
    }

    private int costOfGiving(int slot) {
        return have[slot] < owned[slot] ? -1 : 0;
    }

    /** Passes one on to a member, as the last search found. The counts are the caller's to change. */
    void go(int member) {
        have[classes.slotOf(viaClass[member], viaMember[member])]--;
        have[classes.slotOf(viaClass[member], member)]++;
    }

    /**
     * Finds the cheapest ways to every member; earnings are left out, so that it ends.
     *
     * @param isSource with which count the ways begin at whom
     */
    void search(boolean[] isSource, int count) {
        Arrays.fill(distance, FAR);
        begin();
        for (int member = 0; member < numMembers; member++) {
            if (isSource[member] && counts[member] == count) {
                distance[member] = 0;
                nearer[numNearer++] = member;
            }
        }
        while (numNearer > 0) {
            goOneArc(false);
            advance();
        }
    }

    /**
     * Whether there can be a way round that costs less than nothing.
     *
     * <p>An arc of it must earn something: one member takes a row of its own back, from one with a row that it
     * did not own.
     */
    boolean mayHaveCircles() {
        for (int number = 0; number < classes.numClasses(); number++) {
            boolean isLacking = false;
            boolean isSpare = false;
            for (int slot = classes.firstSlot[number]; slot < classes.firstSlot[number + 1]; slot++) {
                isLacking |= have[slot] < owned[slot];
                isSpare |= have[slot] > owned[slot];
            }
            if (isLacking && isSpare) {
                return true;
            }
        }
        return false;
    }

    /** Begins a search for circles. */
    void beginCircles() {
        Arrays.fill(distance, 0);
        begin();
        for (int member = 0; member < numMembers; member++) {
            nearer[numNearer++] = member;
        }
    }

    /** Shortens all ways by one more arc or jump; returns whether any became shorter. */
    boolean relax() {
        goOneArc(true);
        jump();
        advance();
        return numNearer > 0;
    }

    /** Goes all circles of predecessors, which share no members; returns whether there are any. */
    boolean goCircles() {
        int[] seenFrom = new int[numMembers];
        boolean hasGone = false;
        for (int start = 0; start < numMembers; start++) {
            int member = start;
            while (member >= 0 && seenFrom[member] == 0) {
                seenFrom[member] = start + 1;
                member = viaMember[member];
            }
            if (member >= 0 && seenFrom[member] == start + 1) {
                goCircle(member);
                hasGone = true;
            }
        }
        return hasGone;
    }

    private void goCircle(int first) {
        int member = first;
        do {
            if (viaClass[member] == JUMP) {
                // The giver ends a chain and has one more; this member begins the next.
                counts[viaMember[member]]++;
                counts[member]--;
            } else {
                go(member);
            }
            member = viaMember[member];
        } while (member != first);
    }

    private void begin() {
        Arrays.fill(viaClass, NONE);
        Arrays.fill(viaMember, NONE);
        Arrays.fill(fromClass, FAR);
        Arrays.fill(givers, NONE);
        numNearer = 0;
    }

    /** Applies what a round found, and begins the next one. */
    private void advance() {
        for (int i = 0; i < numNearer; i++) {
            int member = nearer[i];
            distance[member] = found[member];
            viaClass[member] = foundClass[member];
            viaMember[member] = foundMember[member];
            found[member] = FAR;
        }
    }

    /**
     * Goes one arc further from everybody; of equal ways the first class and the first giver count.
     *
     * <p>Only ways through a class that has become cheaper to leave can be shorter than what is known: the
     * others were tried in the round before.
     */
    private void goOneArc(boolean isPriced) {
        leave();
        numNearer = 0;
        for (int i = 0; i < numCheaper; i++) {
            int number = cheaper[i];
            isCheaper[number] = false;
            for (int slot = classes.firstSlot[number]; slot < classes.firstSlot[number + 1]; slot++) {
                int arriving = fromClass[number] + (isPriced ? costOfGiving(slot) : 0);
                int member = classes.taker[slot];
                if (arriving < distance[member]
                        && (arriving < found[member]
                                || arriving == found[member] && number < foundClass[member])) {
                    note(member, arriving, number, givers[number]);
                }
            }
        }
    }

    private void note(int member, int length, int viaClass, int viaMember) {
        if (found[member] == FAR) {
            nearer[numNearer++] = member;
        }
        found[member] = length;
        foundClass[member] = viaClass;
        foundMember[member] = viaMember;
    }

    /** Updates the cheapest way out of each class, of equals the first giver's. */
    private void leave() {
        numCheaper = 0;
        for (int i = 0; i < numNearer; i++) {
            int member = nearer[i];
            int entry = firstEntry[member];
            for (int number : classes.classesOf(member)) {
                int cost = costOfTaking(slotOfEntry[entry++]);
                int leaving = cost + distance[member];
                if (cost == FAR || leaving > fromClass[number]) {
                    continue;
                }
                if (leaving < fromClass[number]) {
                    if (!isCheaper[number]) {
                        isCheaper[number] = true;
                        cheaper[numCheaper++] = number;
                    }
                    fromClass[number] = leaving;
                    givers[number] = member;
                } else {
                    givers[number] = Math.min(givers[number], member);
                }
            }
        }
    }

    /** Jumps from each member to the nearest of those with one fewer, the first of equals, if that is shorter. */
    private void jump() {
        int[] nearest = new int[Levels.max(counts) + 1];
        Arrays.fill(nearest, NONE);
        for (int member = 0; member < numMembers; member++) {
            int known = nearest[counts[member]];
            if (known == NONE || distance[member] < distance[known]) {
                nearest[counts[member]] = member;
            }
        }
        for (int member = 0; member < numMembers; member++) {
            int jumper = counts[member] == 0 ? NONE : nearest[counts[member] - 1];
            if (jumper != NONE && distance[jumper] < Math.min(distance[member], found[member])) {
                note(member, distance[jumper], JUMP, jumper);
            }
        }
    }
}
