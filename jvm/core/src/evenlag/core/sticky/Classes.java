package evenlag.core.sticky;

import java.util.Arrays;
import java.util.BitSet;
import java.util.HashMap;
import java.util.Map;

/**
 * Rows that the same members take are alike: {@code assignor_core.algorithms.partition_classes}.
 *
 * <p>Within a class it matters only how many rows each member has.
 */
final class Classes {
    /** The class of each topic, in the order of the first; {@link Group#NOBODY} if nobody takes it. */
    final int[] classOfTopic;
    /** Of each class, the members that take it, ascending. */
    final int[][] takers;
    /** Of each class, how many rows it has, and how many of them each taker holds. */
    final int[] size;
    final int[][] owned;

    private final Group group;

    Classes(Group group) {
        this.group = group;
        int numTopics = group.topics.length;
        classOfTopic = new int[numTopics];
        if (group.hasEqualSubscriptions()) {
            BitSet taken = group.subscribed[0];
            Arrays.setAll(classOfTopic, topic -> taken.get(topic) ? 0 : Group.NOBODY);
            takers = new int[taken.isEmpty() ? 0 : 1][group.numMembers()];
            Arrays.stream(takers).forEach(each -> Arrays.setAll(each, member -> member));
        } else {
            Map<BitSet, Integer> numbers = new HashMap<>();
            BitSet[] byTopic = takersByTopic();
            for (int topic = 0; topic < numTopics; topic++) {
                classOfTopic[topic] = byTopic[topic].isEmpty()
                        ? Group.NOBODY
                        : numbers.computeIfAbsent(byTopic[topic], same -> numbers.size());
            }
            takers = new int[numbers.size()][];
            numbers.forEach((members, number) -> takers[number] = Group.numbersOf(members));
        }
        size = new int[takers.length];
        owned = Arrays.stream(takers).map(each -> new int[each.length]).toArray(int[][]::new);
        countOwned();
    }

    private void countOwned() {
        int[] places = new int[group.numMembers()];
        int placed = Group.NOBODY;
        for (int topic = 0; topic < classOfTopic.length; topic++) {
            int number = classOfTopic[topic];
            if (number == Group.NOBODY) {
                continue;
            }
            size[number] += group.topicStart[topic + 1] - group.topicStart[topic];
            if (number != placed) {
                for (int place = 0; place < takers[number].length; place++) {
                    places[takers[number][place]] = place;
                }
                placed = number;
            }
            for (int row = group.topicStart[topic]; row < group.topicStart[topic + 1]; row++) {
                if (group.liveOwner[row] != Group.NOBODY) {
                    owned[number][places[group.liveOwner[row]]]++;
                }
            }
        }
    }

    /** Returns a member's place among the takers of a class; negative if it does not take it. */
    int placeOf(int number, int member) {
        boolean takeAll = takers[number].length == group.numMembers();
        return takeAll ? member : Arrays.binarySearch(takers[number], member);
    }

    int numMembers() {
        return group.numMembers();
    }

    int classOf(int row) {
        return classOfTopic[group.topicOfRow[row]];
    }

    /**
     * Returns rows for counts: everybody keeps what it has of a class, up to the count that is wanted.
     *
     * @param wanted rows of each class and taker; those of a class add up to its size
     */
    int[] giveOut(int[][] wanted) {
        int[] assignment = group.liveOwner.clone();
        int[] order = group.dealOrder();
        release(assignment, order, wanted);
        int[] place = new int[wanted.length];
        int[] left = new int[wanted.length];
        Arrays.fill(place, -1);
        for (int row : order) {
            int number = classOf(row);
            if (assignment[row] != Group.NOBODY || number == Group.NOBODY) {
                continue;
            }
            // Neighbours in the order go to one member: they are of different topics, so each topic spreads.
            while (left[number] == 0 && ++place[number] < takers[number].length) {
                left[number] = Math.max(0, wanted[number][place[number]] - owned[number][place[number]]);
            }
            left[number]--;
            assignment[row] = takers[number][place[number]];
        }
        return assignment;
    }

    /** Takes from each member what it gives up of a class: the last rows in the order of dealing. */
    private void release(int[] assignment, int[] order, int[][] wanted) {
        int[][] given = new int[wanted.length][];
        int left = 0;
        for (int number = 0; number < wanted.length; number++) {
            given[number] = new int[wanted[number].length];
            for (int place = 0; place < given[number].length; place++) {
                given[number][place] = Math.max(0, owned[number][place] - wanted[number][place]);
                left += given[number][place];
            }
        }
        for (int i = order.length - 1; left > 0 && i >= 0; i--) {
            int member = assignment[order[i]];
            if (member == Group.NOBODY) {
                continue;
            }
            int number = classOf(order[i]);
            int place = placeOf(number, member);
            if (given[number][place] > 0) {
                given[number][place]--;
                left--;
                assignment[order[i]] = Group.NOBODY;
            }
        }
    }

    private BitSet[] takersByTopic() {
        BitSet[] takers = new BitSet[group.topics.length];
        Arrays.setAll(takers, topic -> new BitSet(group.numMembers()));
        for (int member = 0; member < group.numMembers(); member++) {
            for (int topic : group.subscriptions[member]) {
                takers[topic].set(member);
            }
        }
        return takers;
    }
}
