package evenlag.core.sticky;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/**
 * The topics that members subscribe to, as numbers.
 *
 * <p>In large groups with unequal subscriptions it takes more time to look up the names than to balance the
 * group. Each comes from a member's join as a string of its own, so not even its hash is known yet.
 *
 * <p>Lists are added first. Then {@link #sort} numbers the topics in the order of their names.
 */
final class TopicLists {
    static final int UNKNOWN = -1;

    private static final int RECENT_BITS = 12;
    /** Spreads numbers that are near to each other. */
    private static final int GOLDEN = 0x9E3779B9;

    private final Function<String, Topic> describe;
    /** By name the place in {@link #names}, which is in the order of the first look. */
    private final Map<String, Integer> places = new HashMap<>(1 << 10);
    private final List<String> names = new ArrayList<>();
    private final List<Topic> topics = new ArrayList<>();
    /** Names that were looked up before, by a few of their characters, which cost less than a hash. */
    private final String[] recentNames = new String[1 << RECENT_BITS];
    private final int[] recentPlaces = new int[1 << RECENT_BITS];

    /** The places of each list's known topics; after sorting, their numbers. */
    private final List<int[]> lists = new ArrayList<>();
    /** The indices of the lists, plus one, by a hash of their places: a table that stays at most half full. */
    private final int[] slots;

    private List<String> lastNames;
    private int lastIndex;
    private int[] numbers; // of the topics, by their places

    /**
     * Makes one without lists.
     *
     * @param atMost how many lists will be added
     * @param describe asked once for each name
     */
    TopicLists(int atMost, Function<String, Topic> describe) {
        slots = new int[4 * Integer.highestOneBit(Math.max(1, atMost))];
        this.describe = describe;
    }

    /** Returns the index of a list, in the order in which they were added; equal lists have one index. */
    int add(List<String> list) {
        if (!list.equals(lastNames)) { // to compare costs less than to look up
            lastIndex = look(list);
            lastNames = list;
        }
        return lastIndex;
    }

    /** Numbers the known topics; returns their places in the order of their names. */
    int[] sort() {
        int[] order = NameOrder.of(names.toArray(String[]::new));
        numbers = new int[order.length];
        for (int number = 0; number < order.length; number++) {
            numbers[order[number]] = number;
        }
        lists.replaceAll(this::ascending);
        return order;
    }

    /** Returns the numbers of the lists' topics, ascending, each once. */
    int[][] lists() {
        return lists.toArray(int[][]::new);
    }

    String nameAt(int place) {
        return names.get(place);
    }

    Topic topicAt(int place) {
        return topics.get(place);
    }

    /** Returns the number of a topic; {@link #UNKNOWN} if no list has it, or if it is not known. */
    int numberOf(String name) {
        int slot = slotOf(name);
        int place = name.equals(recentNames[slot]) ? recentPlaces[slot] : places.getOrDefault(name, UNKNOWN);
        return place == UNKNOWN ? UNKNOWN : numbers[place];
    }

    private int look(List<String> list) {
        int[] found = new int[list.size()];
        int size = 0;
        int hash = 0;
        for (String name : list) {
            int slot = slotOf(name);
            int place;
            if (name.equals(recentNames[slot])) {
                place = recentPlaces[slot];
            } else {
                place = look(name);
                recentPlaces[slot] = place;
                recentNames[slot] = name;
            }
            if (place != UNKNOWN) {
                found[size++] = place;
                hash = (hash ^ place) * GOLDEN;
            }
        }
        return indexOf(size < found.length ? Arrays.copyOf(found, size) : found, hash);
    }

    private static int slotOf(String name) {
        int length = name.length();
        int mixed = length;
        if (length > 2) {
            mixed = 31 * mixed + name.charAt(length - 1);
            mixed = 31 * mixed + name.charAt(length - 2);
            mixed = 31 * mixed + name.charAt(length - 3);
            mixed = 31 * mixed + name.charAt(length / 2);
        }
        return mixed * GOLDEN >>> Integer.SIZE - RECENT_BITS;
    }

    private int look(String name) {
        Integer known = places.get(name);
        if (known != null) {
            return known;
        }
        Topic topic = describe.apply(name);
        int place = topic.numPartitions() > 0 ? names.size() : UNKNOWN;
        if (place != UNKNOWN) {
            names.add(name);
            topics.add(topic);
        }
        places.put(name, place);
        return place;
    }

    private int indexOf(int[] found, int hash) {
        int slot = (hash ^ hash >>> 15) & slots.length - 1;
        while (slots[slot] != 0) {
            int index = slots[slot] - 1;
            if (Arrays.equals(lists.get(index), found)) {
                return index;
            }
            slot = slot + 1 & slots.length - 1;
        }
        lists.add(found);
        slots[slot] = lists.size();
        return lists.size() - 1;
    }

    private int[] ascending(int[] found) {
        boolean isAscending = true;
        int last = -1;
        for (int i = 0; i < found.length; i++) {
            found[i] = numbers[found[i]];
            isAscending &= last < found[i];
            last = found[i];
        }
        // Kafka's Java client sorts the names that it sends.
        return isAscending ? found : Arrays.stream(found).sorted().distinct().toArray();
    }
}
