package evenlag.broker;

/** Partition numbers as hints write them: {@code "0-3,7"}, the only accepted form. */
final class Ranges {
    private Ranges() {}

    /**
     * Reads ranges.
     *
     * @param text strictly ascending runs that do not touch
     * @param room the maximum count of numbers: short ranges can expand to many
     * @return strictly ascending
     * @throws HintException otherwise
     */
    static int[] read(String text, int room) throws HintException {
        String[] runs = text.split(",", -1);
        long[] first = new long[runs.length];
        long[] last = new long[runs.length];
        long count = 0;
        long before = -2;
        for (int i = 0; i < runs.length; i++) {
            int dash = runs[i].indexOf('-');
            first[i] = number(dash < 0 ? runs[i] : runs[i].substring(0, dash));
            last[i] = dash < 0 ? first[i] : number(runs[i].substring(dash + 1));
            if (first[i] <= before + 1 || dash >= 0 && last[i] <= first[i]) {
                throw HintException.malformed("partition ranges are not in their canonical form");
            }
            before = last[i];
            count += last[i] - first[i] + 1;
        }
        if (count > room) {
            throw HintException.malformed("too many partitions in one hint");
        }
        int[] numbers = new int[(int) count];
        int at = 0;
        for (int i = 0; i < runs.length; i++) {
            for (long number = first[i]; number <= last[i]; number++) {
                numbers[at++] = (int) number;
            }
        }
        return numbers;
    }

    private static long number(String digits) throws HintException {
        boolean isPlain = digits.length() == 1
                || digits.length() > 1 && digits.length() <= 10 && digits.charAt(0) != '0';
        long number = 0;
        for (int i = 0; isPlain && i < digits.length(); i++) {
            char c = digits.charAt(i);
            isPlain = c >= '0' && c <= '9';
            number = 10 * number + (c - '0');
        }
        if (!isPlain || number > Integer.MAX_VALUE) {
            throw HintException.malformed("partition ranges hold what is no partition number");
        }
        return number;
    }
}
