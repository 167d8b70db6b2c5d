package evenlag.broker;

import java.util.AbstractSet;
import java.util.Arrays;
import java.util.Iterator;
import java.util.NoSuchElementException;

/** An unmodifiable set of partition numbers: four bytes each, boxed only during iteration. */
final class IntSet extends AbstractSet<Integer> {
    private final int[] sorted;

    /**
     * Takes ownership of the array.
     *
     * @param sorted strictly ascending
     */
    IntSet(int[] sorted) {
        this.sorted = sorted;
    }

    @Override
    public int size() {
        return sorted.length;
    }

    @Override
    public boolean contains(Object number) {
        return number instanceof Integer value && Arrays.binarySearch(sorted, value) >= 0;
    }

    @Override
    public Iterator<Integer> iterator() {
        return new Iterator<>() {
            private int next;

            @Override
            public boolean hasNext() {
                return next < sorted.length;
            }

            @Override
            public Integer next() {
                if (next >= sorted.length) {
                    throw new NoSuchElementException();
                }
                return sorted[next++];
            }
        };
    }
}
