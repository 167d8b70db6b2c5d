package evenlag.core.place;

import java.util.Arrays;
import java.util.BitSet;

/**
 * The count rule: a member may not have {@code 2 + slack} rows more than one that takes one of them, nor two
 * if the other has none.
 *
 * <p>It keeps, by topic, the largest count of those that hold one of its rows and the smallest of those that
 * take it. Placing a free row updates the former at once; moves make both stale, to be counted again when
 * they are asked for.
 */
final class CountBounds {
    private final Allocation all;
    private final LoadProblem problem;
    private final int[] largest;
    private final int[] smallest;
    /** The largest count among the holders of rows of topics with the same takers. */
    private final int[] largestOfKind;
    /** The largest count among the holders of rows that a class takes. */
    private final int[] topOfClass;
    /** Whether all members take the same topics: then all topics have the same bounds. */
    private final boolean isUniform;
    private boolean areLargestStale = true;
    private boolean areSmallestStale = true;
    private int gap;

    CountBounds(Allocation all) {
        this.all = all;
        problem = all.problem;
        largest = new int[problem.numTopics];
        smallest = new int[problem.numTopics];
        largestOfKind = new int[problem.numTopics];
        topOfClass = new int[problem.topicsOfClass.length];
        isUniform = topOfClass.length == 1;
    }

    /** Takes note of a row that has changed its owner. */
    void moved(int row, int before, int member) {
        areSmallestStale = true;
        if (before != Allocation.NOBODY) {
            areLargestStale = true;
        } else if (!areLargestStale) {
            raise(member);
        }
    }

    /** Returns how many rows a member lacks. */
    long need(int member) {
        int top = top(member);
        int count = all.count[member];
        long lacking = top - 1 - problem.slack - count;
        return Math.max(lacking, count == 0 && top >= 2 ? 1 : 0);
    }

    /** Returns how many rows all members lack. */
    long needs() {
        long sum = 0;
        for (int member = 0; member < all.count.length; member++) {
            sum += Math.max(0, need(member));
        }
        return sum;
    }

    /** Returns the largest count of those that hold a row which the same members take as this one. */
    int largestOfRivals(int row) {
        countLargest();
        return isUniform ? topOfClass[0] : largestOfKind[problem.kindOf[problem.topicOf[row]]];
    }

    /** Returns the largest difference of counts between a holder of a row and one that takes it. */
    int gap() {
        countSmallest();
        return gap;
    }

    /** Whether a move neither breaks the count rule nor makes the gap larger, if it is broken already. */
    boolean allowsMove(int row, int from, int to) {
        countSmallest();
        long limit = Math.max(1 + problem.slack, gap);
        int fewer = all.count[from] - 1;
        BitSet topics = problem.topicsOfClass[problem.classOf[from]];
        for (int t = topics.nextSetBit(0); t >= 0; t = topics.nextSetBit(t + 1)) {
            // The giver becomes the one with the fewest.
            if (smallest[t] > fewer && largest(t) > fewer + 1 && largest(t) - fewer > limit) {
                return false;
            }
            if (isUniform) {
                break; // the same for all topics
            }
        }
        if (!allowsHolding(problem.topicOf[row], from, to, fewer, limit)) {
            return false;
        }
        int[] rows = all.held(to);
        for (int i = 0; i < all.count[to] && !isUniform; i++) {
            if (!allowsHolding(problem.topicOf[rows[i]], from, to, fewer, limit)) {
                return false;
            }
        }
        return true;
    }

    private boolean allowsHolding(int topic, int from, int to, int fewer, long limit) {
        int more = all.count[to] + 1;
        int least = smallest[topic];
        if (least > fewer && problem.takes(from, topic)) {
            return more - fewer <= limit; // the giver has the fewest now
        }
        // If the receiver had the fewest, the difference is at most one.
        return least == all.count[to] || more - least <= limit;
    }

    /** Whether an exchange of two rows keeps the rule: counts stay, but not who holds which topic. */
    boolean allowsSwap(int row, int other, int owner, int otherOwner) {
        countSmallest();
        long limit = Math.max(1 + problem.slack, gap);
        return all.count[owner] - smallest[problem.topicOf[other]] <= limit
                && all.count[otherOwner] - smallest[problem.topicOf[row]] <= limit;
    }

    private int top(int member) {
        countLargest();
        return topOfClass[problem.classOf[member]];
    }

    private int largest(int topic) {
        countLargest();
        return isUniform ? topOfClass[0] : largest[topic];
    }

    private void countLargest() {
        if (areLargestStale) {
            Arrays.fill(largest, 0);
            Arrays.fill(largestOfKind, 0);
            Arrays.fill(topOfClass, 0);
            areLargestStale = false;
            for (int member = 0; member < all.count.length; member++) {
                raise(member);
            }
        }
    }

    private void raise(int member) {
        int count = all.count[member];
        if (isUniform) {
            topOfClass[0] = Math.max(topOfClass[0], count);
            return;
        }
        int[] rows = all.held(member);
        for (int i = 0; i < count; i++) {
            int topic = problem.topicOf[rows[i]];
            if (largest[topic] < count) {
                largest[topic] = count;
                int kind = problem.kindOf[topic];
                largestOfKind[kind] = Math.max(largestOfKind[kind], count);
                for (int c : problem.classesOf[topic]) {
                    topOfClass[c] = Math.max(topOfClass[c], count);
                }
            }
        }
    }

    private void countSmallest() {
        if (!areSmallestStale) {
            return;
        }
        areSmallestStale = false;
        for (int topic = 0; topic < smallest.length; topic++) {
            boolean isSame = topic > 0 && problem.takers[topic] == problem.takers[topic - 1];
            smallest[topic] = isSame ? smallest[topic - 1] : least(problem.takers[topic]);
        }
        countLargest();
        gap = 0;
        for (int topic = 0; topic < smallest.length; topic++) {
            if (largest(topic) > 0) {
                gap = Math.max(gap, largest(topic) - smallest[topic]);
            }
        }
    }

    private int least(int[] members) {
        int least = Integer.MAX_VALUE;
        for (int member : members) {
            least = Math.min(least, all.count[member]);
        }
        return least;
    }
}
