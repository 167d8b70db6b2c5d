package evenlag.core.sticky;

import java.util.Arrays;
import java.util.stream.IntStream;

/** Counts with everything owned kept and the rest filled in, the choosiest class first. */
final class FreeFill {
    private static final int SWEEPS = 8;

    /** Rows of each slot. */
    final int[] have;
    /** All that each member has. */
    final int[] counts;

    private final Classes classes;

    FreeFill(Classes classes) {
        this.classes = classes;
        have = classes.owned.clone();
        counts = new int[classes.numMembers()];
        for (int slot = 0; slot < have.length; slot++) {
            counts[classes.taker[slot]] += have[slot];
        }
        int[] order = choosiestFirst();
        boolean hasChanged = order.length > 0;
        for (int sweep = 0; sweep < SWEEPS && hasChanged; sweep++) {
            hasChanged = false;
            for (int number : order) {
                hasChanged |= refill(number, sweep > 0);
            }
            hasChanged &= order.length > 1;
        }
    }

    /** Whether no two members that take anything differ by more than one. */
    boolean isEven() {
        int least = Integer.MAX_VALUE;
        int most = 0;
        for (int member = 0; member < counts.length; member++) {
            if (classes.classesOf(member).length > 0) {
                least = Math.min(least, counts[member]);
                most = Math.max(most, counts[member]);
            }
        }
        return most - least <= 1;
    }

    /** Returns the classes with free rows: those with the fewest takers first. */
    private int[] choosiestFirst() {
        return IntStream.range(0, classes.numClasses())
                .filter(number -> classes.free[number] > 0)
                .mapToLong(number -> (long) numTakers(number) << Integer.SIZE | number)
                .sorted()
                .mapToInt(key -> (int) key)
                .toArray();
    }

    private int numTakers(int number) {
        return classes.firstSlot[number + 1] - classes.firstSlot[number];
    }

    /** Takes a class back and fills it in again: a first filling cannot know what later classes bring. */
    private boolean refill(int number, boolean isAgain) {
        int first = classes.firstSlot[number];
        int[] now = new int[numTakers(number)];
        int[] before = new int[now.length];
        for (int i = 0; i < now.length; i++) {
            now[i] = counts[classes.taker[first + i]];
            before[i] = now[i] - (have[first + i] - classes.owned[first + i]);
        }
        if (isAgain && Levels.max(now) - Levels.min(now) <= 1) {
            return false;
        }
        int[] filled = Levels.fill(before, classes.free[number]);
        for (int i = 0; i < now.length; i++) {
            have[first + i] = classes.owned[first + i] + filled[i] - before[i];
            counts[classes.taker[first + i]] = filled[i];
        }
        return !Arrays.equals(filled, now);
    }
}
