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
        long[] order = new long[counts.length];
        for (int i = 0; i < order.length; i++) {
            order[i] = (long) counts[i] << Integer.SIZE | i;
        }
        Arrays.sort(order);
        long total = 0;
        long lowTotal = 0;
        int raised = 0;
        for (int i = 0; i < order.length; i++) {
            long count = order[i] >> Integer.SIZE;
            total += count;
            if (count * (i + 1) - total > amount) {
                break;
            }
            raised = i + 1;
            lowTotal = total;
        }
        int level = (int) Math.floorDiv(lowTotal + amount, (long) raised);
        int rest = (int) Math.floorMod(lowTotal + amount, (long) raised);
        int[] low = new int[raised];
        for (int i = 0; i < raised; i++) {
            low[i] = (int) order[i];
        }
        Arrays.sort(low);
        for (int i = 0; i < raised; i++) {
            filled[low[i]] = level + (i < rest ? 1 : 0);
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
        int low = 0;
        int high = Arrays.stream(counts).sum();
        while (low < high) {
            int moves = (low + high) >>> 1;
            if (max(cut(counts, moves)) - min(fill(counts, free + moves)) <= 1) {
                high = moves;
            } else {
                low = moves + 1;
            }
        }
        int[] kept = cut(counts, low);
        int[] filled = fill(counts, free + low);
        int[] wanted = new int[counts.length];
        Arrays.setAll(wanted, i -> kept[i] + filled[i] - counts[i]);
        return wanted;
    }

    static int max(int[] counts) {
        return Arrays.stream(counts).max().orElse(0);
    }

    static int min(int[] counts) {
        return Arrays.stream(counts).min().orElse(0);
    }

    private static int[] mirrored(int[] counts) {
        int[] mirrored = new int[counts.length];
        Arrays.setAll(mirrored, i -> -counts[counts.length - 1 - i]);
        return mirrored;
    }
}
