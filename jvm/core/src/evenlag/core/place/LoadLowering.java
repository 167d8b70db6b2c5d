package evenlag.core.place;

import java.util.Arrays;
import java.util.BitSet;

/** Lowers the largest level by single moves and exchanges, each of which has to gain something. */
final class LoadLowering {
    private static final int MAX_RECEIVERS = 16;
    private static final int MAX_SWAPS = 64;

    private final Allocation all;
    private final LoadProblem problem;
    /** The rows that may move; null for all. */
    private final BitSet movable;
    private final long leastGain;
    private final int[] receivers = new int[MAX_RECEIVERS];
    private int numReceivers;
    /** The best change so far: the larger of the two levels after it, the rows, and the receiver. */
    private long bestLevel;
    private int bestRow;
    private int bestOther;
    private int bestReceiver;

    private LoadLowering(Allocation all, int gainShare, BitSet movable) {
        this.all = all;
        problem = all.problem;
        this.movable = movable;
        leastGain = partOfMean(problem, gainShare);
    }

    /** A part of the mean level, rounded up: 32 for a 32nd; at least 1. */
    static long partOfMean(LoadProblem problem, int parts) {
        long mean = meanLevel(problem);
        return Math.max(1, mean / parts + (mean % parts == 0 ? 0 : 1));
    }

    /** Up to this level rows go to members that are near. */
    static long nearLevel(LoadProblem problem) {
        return meanLevel(problem) * (1000 + problem.racks.tolerance()) / 1000;
    }

    /**
     * Lowers.
     *
     * @param budget how many rows may move
     * @param gainShare a change has to gain the mean level, divided by this
     * @param movable the rows that may move; null for all
     */
    static void lower(Allocation all, long budget, int gainShare, BitSet movable) {
        if (budget > 0) {
            new LoadLowering(all, gainShare, movable).run(budget);
        }
    }

    private void run(long budget) {
        boolean[] isDone = new boolean[problem.numMembers()];
        long left = budget;
        int numSwaps = 0;
        while (left > 0) {
            int giver = highest(isDone);
            if (giver >= 0 && problem.racks != null && all.level[giver] <= nearLevel(problem)) {
                return;
            }
            if (giver < 0 || !canGain(giver, lowestLevel())) {
                return; // nor can any member below it
            }
            findReceivers(giver);
            bestRow = -1;
            if (all.count[giver] >= 2) {
                findMove(giver);
            }
            if (bestRow >= 0) {
                all.put(bestRow, bestReceiver);
                left--;
                continue;
            }
            if (left >= 2 && numSwaps < MAX_SWAPS) {
                findSwap(giver);
            }
            if (bestRow >= 0) {
                all.put(bestRow, bestReceiver);
                all.put(bestOther, giver);
                left -= 2;
                numSwaps++;
            } else {
                isDone[giver] = true;
            }
        }
    }

    /** Returns the mean level of the members that can get rows. */
    private static long meanLevel(LoadProblem problem) {
        boolean[] isUsed = new boolean[problem.topicsOfClass.length];
        boolean[] isSeen = new boolean[problem.numTopics];
        long load = 0;
        for (int row = 0; row < problem.numRows(); row++) {
            int topic = problem.topicOf[row];
            load += problem.isEligible(row) ? problem.loads[row] : 0;
            if (!isSeen[topic]) {
                isSeen[topic] = true;
                for (int c : problem.classesOf[topic]) {
                    isUsed[c] = true;
                }
            }
        }
        long capacity = 0;
        for (int member = 0; member < problem.numMembers(); member++) {
            capacity += isUsed[problem.classOf[member]] ? problem.capacities[member] : 0;
        }
        return capacity == 0 ? 0 : load * 1000 / capacity;
    }

    private int highest(boolean[] isDone) {
        int highest = -1;
        for (int member = 0; member < isDone.length; member++) {
            boolean isWanted = all.count[member] > 0 && !isDone[member];
            if (isWanted && (highest < 0 || all.isHigher(member, highest))) {
                highest = member;
            }
        }
        return highest;
    }

    /** Finds the lowest members that take a topic of which the giver has a row that may move. */
    private void findReceivers(int giver) {
        BitSet topics = new BitSet();
        int[] rows = all.held(giver);
        for (int i = 0; i < all.count[giver]; i++) {
            if (isMovable(rows[i])) {
                topics.set(problem.topicOf[rows[i]]);
            }
        }
        boolean[] isRival = new boolean[problem.topicsOfClass.length];
        for (int c = 0; c < isRival.length; c++) {
            isRival[c] = problem.topicsOfClass[c].intersects(topics);
        }
        numReceivers = 0;
        for (int member = 0; member < problem.numMembers(); member++) {
            if (member == giver || !isRival[problem.classOf[member]]) {
                continue;
            }
            int at = numReceivers;
            while (at > 0 && all.isLower(member, receivers[at - 1])) {
                at--;
            }
            if (at < MAX_RECEIVERS) {
                numReceivers = Math.min(numReceivers + 1, MAX_RECEIVERS);
                System.arraycopy(receivers, at, receivers, at + 1, numReceivers - at - 1);
                receivers[at] = member;
            }
        }
    }

    /**
     * Whether a member can gain from one of this level: of the two, the larger level cannot fall below the
     * smaller one, because their load stays.
     */
    private boolean canGain(int giver, long level) {
        return all.level[giver] - level >= leastGain;
    }

    private long lowestLevel() {
        long lowest = Long.MAX_VALUE;
        for (long level : all.level) {
            lowest = Math.min(lowest, level);
        }
        return lowest;
    }

    private void findMove(int giver) {
        int[] rows = all.held(giver);
        for (int k = 0; k < numReceivers && canGain(giver, all.level[receivers[k]]); k++) {
            int receiver = receivers[k];
            for (int i = 0; i < all.count[giver]; i++) {
                int row = rows[i];
                if (!isMovable(row) || !problem.takes(receiver, problem.topicOf[row])) {
                    continue;
                }
                long load = problem.loads[row];
                long level = Math.max(all.levelWith(giver, -load), all.levelWith(receiver, load));
                if (isGain(giver, level) && isBetter(level, row, 0, receiver)
                        && all.bounds().allowsMove(row, giver, receiver)) {
                    remember(level, row, 0, receiver);
                }
            }
        }
    }

    private void findSwap(int giver) {
        for (int k = 0; k < numReceivers && canGain(giver, all.level[receivers[k]]); k++) {
            int receiver = receivers[k];
            int[] others = exchangeable(receiver, giver);
            int[] rows = all.held(giver);
            for (int i = 0; i < all.count[giver]; i++) {
                if (isMovable(rows[i]) && problem.takes(receiver, problem.topicOf[rows[i]])) {
                    findSwap(giver, rows[i], receiver, others);
                }
            }
        }
    }

    private void findSwap(int giver, int row, int receiver, int[] others) {
        // The first of the others, by load, with which the giver's level is no longer below the receiver's.
        int from = 0;
        int to = others.length;
        while (from < to) {
            int middle = (from + to) >>> 1;
            long change = problem.loads[others[middle]] - problem.loads[row];
            if (all.levelWith(giver, change) < all.levelWith(receiver, -change)) {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        for (int k = from - 1; k <= from; k++) {
            if (k < 0 || k >= others.length) {
                continue;
            }
            int other = others[k];
            long change = problem.loads[other] - problem.loads[row];
            long level = Math.max(all.levelWith(giver, change), all.levelWith(receiver, -change));
            if (isGain(giver, level) && isBetter(level, row, other, receiver)
                    && all.bounds().allowsSwap(row, other, giver, receiver)) {
                remember(level, row, other, receiver);
            }
        }
    }

    /** Returns the receiver's rows that the giver takes, by load and number. */
    private int[] exchangeable(int receiver, int giver) {
        int[] rows = all.held(receiver);
        int[] found = new int[all.count[receiver]];
        int size = 0;
        for (int i = 0; i < all.count[receiver]; i++) {
            if (isMovable(rows[i]) && problem.takes(giver, problem.topicOf[rows[i]])) {
                found[size++] = rows[i];
            }
        }
        return problem.byLoad(Arrays.copyOf(found, size), false);
    }

    private boolean isMovable(int row) {
        return movable == null || movable.get(row);
    }

    private boolean isGain(int giver, long level) {
        return all.level[giver] - level >= leastGain;
    }

    private boolean isBetter(long level, int row, int other, int receiver) {
        if (bestRow < 0 || level != bestLevel) {
            return bestRow < 0 || level < bestLevel;
        }
        if (row != bestRow) {
            return row < bestRow;
        }
        return other != bestOther ? other < bestOther : receiver < bestReceiver;
    }

    private void remember(long level, int row, int other, int receiver) {
        bestLevel = level;
        bestRow = row;
        bestOther = other;
        bestReceiver = receiver;
    }
}
