package evenlag.core.sticky;

import java.util.Arrays;
import java.util.Comparator;

/**
 * The order of names.
 *
 * <p>Names of members, and often of topics, begin alike, and to compare two of them means to fetch both. So the
 * characters after the common beginning are compared as numbers, and whole names only where these are equal.
 */
final class NameOrder {
    /** So many, and the index of the name, fit into a long. */
    private static final int CHARS = 3;

    private NameOrder() {}

    /** Returns the indices of the names in the order of {@link String#compareTo}. */
    static int[] of(String[] names) {
        int[] order = new int[names.length];
        if (names.length > Character.MAX_VALUE) {
            Arrays.setAll(order, i -> i);
            sort(order, 0, order.length, names);
            return order;
        }
        long[] keys = keys(names);
        Arrays.sort(keys);
        for (int i = 0; i < keys.length; i++) {
            order[i] = (char) keys[i];
        }
        int from = 0;
        for (int i = 1; i <= keys.length; i++) {
            if (i == keys.length || keys[i] >> Character.SIZE != keys[from] >> Character.SIZE) {
                sort(order, from, i, names);
                from = i;
            }
        }
        return order;
    }

    private static long[] keys(String[] names) {
        int from = commonLength(names);
        long[] keys = new long[names.length];
        for (int i = 0; i < keys.length; i++) {
            long key = 0;
            for (int at = from; at < from + CHARS; at++) {
                key = key << Character.SIZE | (at < names[i].length() ? names[i].charAt(at) : 0);
            }
            // Characters have no sign, so that of the key must not count.
            keys[i] = (key << Character.SIZE | i) ^ Long.MIN_VALUE;
        }
        return keys;
    }

    private static int commonLength(String[] names) {
        int common = names.length == 0 ? 0 : names[0].length();
        for (String name : names) {
            common = Math.min(common, name.length());
            int same = 0;
            while (same < common && name.charAt(same) == names[0].charAt(same)) {
                same++;
            }
            common = same;
        }
        return common;
    }

    private static void sort(int[] order, int from, int to, String[] names) {
        if (to - from < 2) {
            return;
        }
        Integer[] some = new Integer[to - from];
        Arrays.setAll(some, i -> order[from + i]);
        Arrays.sort(some, Comparator.comparing(i -> names[i]));
        for (int i = 0; i < some.length; i++) {
            order[from + i] = some[i];
        }
    }
}
