package evenlag.core.sticky;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.ToIntFunction;

/**
 * The topics that members subscribe to, as numbers.
 *
 * <p>Each name of each list is looked up once: in large groups with unequal subscriptions, this takes more time
 * than to balance them. Lists are compared by identity, so equal ones should be one object.
 */
public final class TopicLists {
    private static final int UNKNOWN = -1;

    private final ToIntFunction<String> count;
    /** By name the place in {@link #names}, which is in the order of the first look. */
    private final Map<String, Integer> places = new HashMap<>();
    private final List<String> names = new ArrayList<>();
    private final Map<String, Integer> counts = new HashMap<>();
    private final Map<List<String>, Integer> numbers = new IdentityHashMap<>();
    private final List<int[]> placesOfList = new ArrayList<>();

    /**
     * Makes one without lists.
     *
     * @param count returns a topic's number of partitions, 0 if it is not known; asked once for each name
     */
    public TopicLists(ToIntFunction<String> count) {
        this.count = count;
    }

    /** Returns the number of a list, in the order in which they were added; adds it if it is new. */
    public int add(List<String> list) {
        Integer known = numbers.get(list);
        if (known == null) {
            known = numbers.size();
            numbers.put(list, known);
            placesOfList.add(placesOf(list));
        }
        return known;
    }

    /** Returns the number of partitions of each known topic, by name. */
    public Map<String, Integer> counts() {
        return counts;
    }

    int size() {
        return placesOfList.size();
    }

    /** Returns the places of a list's known topics. */
    int[] placesOf(int list) {
        return placesOfList.get(list);
    }

    /** Returns the place of a name that a list has; -1 for others, and if the topic is not known. */
    int placeOf(String name) {
        return places.getOrDefault(name, UNKNOWN);
    }

    List<String> names() {
        return names;
    }

    private int[] placesOf(List<String> list) {
        int[] known = new int[list.size()];
        int size = 0;
        for (String name : list) {
            int place = look(name);
            if (place != UNKNOWN) {
                known[size++] = place;
            }
        }
        return size < known.length ? Arrays.copyOf(known, size) : known;
    }

    private int look(String name) {
        Integer known = places.get(name);
        if (known != null) {
            return known;
        }
        int number = count.applyAsInt(name);
        int place = number > 0 ? names.size() : UNKNOWN;
        if (number > 0) {
            names.add(name);
            counts.put(name, number);
        }
        places.put(name, place);
        return place;
    }
}
