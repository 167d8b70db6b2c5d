package evenlag.core.sticky;

import java.util.Arrays;

/** Even counts by arithmetic: {@code assignor_core.algorithms.levels}. */
final class Levels {
    private Levels() {}

    /** Returns the counts after so many more, each given to the least, of equals to the first. */
    static int[] fill(int[] counts, int amount) {
        int[] filled = counts.clone();
        if (amount == 0 || counts.length == 0) {
            return filled;
        }
        int level = floor(counts, amount);
        long rest = amount;
        for (int count : counts) {
            rest -= Math.max(0, level - count);
        }
        for (int i = 0; i < filled.length; i++) {
            if (filled[i] <= level) {
                filled[i] = rest > 0 ? level + 1 : level;
                rest--;
            }
        }
        return filled;
    }

    /** Returns the counts after so many fewer, each taken from the most, of equals from the last. */
    static int[] cut(int[] counts, int amount) {
        return mirrored(fill(mirrored(counts), amount));
    }

    /**
     * Returns the counts that differ by one at most, after the fewest moves.
     *
     * @param free how many are with nobody before
     */
    static int[] even(int[] counts, int free) {
        int[] mirrored = mirrored(counts);
        int low = 0;
        int high = Arrays.stream(counts).sum();
        while (low < high) {
            int moves = (low + high) >>> 1;
            if (-floor(mirrored, moves) - floor(counts, free + moves) <= 1) {
                high = moves;
            } else {
                low = moves + 1;
            }
        }
        int[] kept = mirrored(fill(mirrored, low));
        int[] filled = fill(counts, free + low);
        int[] wanted = new int[counts.length];
        Arrays.setAll(wanted, i -> kept[i] + filled[i] - counts[i]);
        return wanted;
    }

    /**
     * Returns the lowest count after {@link #fill}: the highest level that so many are enough to raise all to.
     *
     * <p>Without sorting: the counts above the mean are not raised, so the level is that of the others, whose
     * mean is lower.
     */
    static int floor(int[] counts, int amount) {
        long total = amount;
        int size = counts.length;
        for (int count : counts) {
            total += count;
        }
        while (size > 0) {
            long level = Math.floorDiv(total, size);
            long lowTotal = amount;
            int numLow = 0;
            for (int count : counts) {
                if (count <= level) {
                    lowTotal += count;
                    numLow++;
                }
            }
            if (numLow == size) {
                return (int) level;
            }
            total = lowTotal;
            size = numLow;
        }
        return 0;
    }

    static int max(int[] counts) {
        int max = counts.length == 0 ? 0 : counts[0];
        for (int count : counts) {
            max = Math.max(max, count);
        }
        return max;
    }

    static int min(int[] counts) {
        int min = counts.length == 0 ? 0 : counts[0];
        for (int count : counts) {
            min = Math.min(min, count);
        }
        return min;
    }

    /** Returns the counts negated and in reverse: to cut them is to fill these. */
    static int[] mirrored(int[] counts) {
        int[] mirrored = new int[counts.length];
        for (int i = 0; i < counts.length; i++) {
            mirrored[i] = -counts[counts.length - 1 - i];
        }
        return mirrored;
    }
}
