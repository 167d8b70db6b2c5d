package evenlag.core.sticky;

import java.util.PriorityQueue;

/** The takers of one class, those with the fewest rows first, while counts grow. */
final class FewestFirst {
    private final int[] counts;
    /** Counts and members in one number each; a count may have grown since. */
    private final PriorityQueue<Long> ranks = new PriorityQueue<>();

    FewestFirst(int[] takers, int[] counts) {
        this.counts = counts;
        for (int member : takers) {
            add(member);
        }
    }

    /** Returns the member with the fewest, of equals the first. */
    int first() {
        long rank = ranks.element();
        while (rank >> Integer.SIZE != counts[(int) rank]) {
            ranks.remove();
            add((int) rank);
            rank = ranks.element();
        }
        return (int) rank;
    }

    private void add(int member) {
        ranks.add((long) counts[member] << Integer.SIZE | member);
    }
}
