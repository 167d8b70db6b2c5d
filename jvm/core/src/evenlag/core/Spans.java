package evenlag.core;

import java.util.AbstractSet;
import java.util.Arrays;
import java.util.Iterator;
import java.util.NoSuchElementException;

/** An unmodifiable set of partition numbers as hints write it, {@code "0-3,7"}: memory by its runs. */
public final class Spans extends AbstractSet<Integer> {
    private final int[] firsts;
    private final int[] lasts;
    private final int size;

    private Spans(int[] firsts, int[] lasts) {
        this.firsts = firsts;
        this.lasts = lasts;
        int count = 0;
        for (int i = 0; i < firsts.length; i++) {
            count += lasts[i] - firsts[i] + 1;
        }
        size = count;
    }

    /**
     * Makes a set of single numbers.
     *
     * @param sorted strictly ascending
     */
    public static Spans of(int[] sorted) {
        int runs = 0;
        for (int i = 0; i < sorted.length; i++) {
            runs += i == 0 || sorted[i] != sorted[i - 1] + 1 ? 1 : 0;
        }
        int[] firsts = new int[runs];
        int[] lasts = new int[runs];
        int run = -1;
        for (int i = 0; i < sorted.length; i++) {
            if (i == 0 || sorted[i] != sorted[i - 1] + 1) {
                firsts[++run] = sorted[i];
            }
            lasts[run] = sorted[i];
        }
        return new Spans(firsts, lasts);
    }

    /**
     * Reads ranges in the only accepted form.
     *
     * @param text strictly ascending runs that do not touch
     * @param room the maximum count of numbers: short ranges can name many
     * @throws HintException otherwise
     */
    static Spans read(String text, int room) throws HintException {
        int runs = 1;
        for (int i = 0; i < text.length(); i++) {
            runs += text.charAt(i) == ',' ? 1 : 0;
        }
        int[] firsts = new int[runs];
        int[] lasts = new int[runs];
        long count = 0;
        long before = -2;
        int from = 0;
        for (int run = 0; run < runs; run++) {
            int comma = text.indexOf(',', from);
            int end = comma < 0 ? text.length() : comma;
            int dash = from;
            while (dash < end && text.charAt(dash) != '-') {
                dash++;
            }
            boolean isRange = dash < end;
            firsts[run] = number(text, from, isRange ? dash : end);
            lasts[run] = isRange ? number(text, dash + 1, end) : firsts[run];
            if (firsts[run] <= before + 1 || isRange && lasts[run] <= firsts[run]) {
                throw HintException.malformed("partition ranges are not in their canonical form");
            }
            before = lasts[run];
            count += lasts[run] - firsts[run] + 1L;
            from = end + 1;
        }
        if (count > room) {
            throw HintException.malformed("too many partitions in one record");
        }
        return new Spans(firsts, lasts);
    }

    int numRuns() {
        return firsts.length;
    }

    int first(int run) {
        return firsts[run];
    }

    int last(int run) {
        return lasts[run];
    }

    @Override
    public int size() {
        return size;
    }

    @Override
    public boolean contains(Object number) {
        if (!(number instanceof Integer value)) {
            return false;
        }
        int at = Arrays.binarySearch(firsts, value);
        int run = at >= 0 ? at : -at - 2;
        return run >= 0 && value <= lasts[run];
    }

    @Override
    public Iterator<Integer> iterator() {
        return new Iterator<>() {
            private int run;
            private int next = firsts.length == 0 ? 0 : firsts[0];

            @Override
            public boolean hasNext() {
                return run < firsts.length;
            }

            @Override
            public Integer next() {
                if (run >= firsts.length) {
                    throw new NoSuchElementException();
                }
                int number = next;
                if (number < lasts[run]) {
                    next++;
                } else if (++run < firsts.length) {
                    next = firsts[run];
                }
                return number;
            }
        };
    }

    private static int number(String text, int from, int end) throws HintException {
        int length = end - from;
        boolean isPlain = length == 1 || length > 1 && length <= 10 && text.charAt(from) != '0';
        long number = 0;
        for (int i = from; isPlain && i < end; i++) {
            char c = text.charAt(i);
            isPlain = c >= '0' && c <= '9';
            number = 10 * number + (c - '0');
        }
        if (!isPlain || number > Integer.MAX_VALUE) {
            throw HintException.malformed("partition ranges hold what is no partition number");
        }
        return (int) number;
    }
}
