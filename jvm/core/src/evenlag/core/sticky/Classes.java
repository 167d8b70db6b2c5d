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
    /** Of each class: who takes it, how many rows it has, and how many of them each member holds. */
    final boolean[][] eligible;
    /** Of each class, the members that take it, ascending. */
    final int[][] takers;
    final int[] size;
    final int[][] owned;

    private final Group group;

    Classes(Group group) {
        this.group = group;
        int numTopics = group.topics.length;
        classOfTopic = new int[numTopics];
        Map<BitSet, Integer> numbers = new HashMap<>();
        if (group.hasEqualSubscriptions()) {
            BitSet taken = group.subscribed[0];
            Arrays.setAll(classOfTopic, topic -> taken.get(topic) ? 0 : Group.NOBODY);
            eligible = new boolean[taken.isEmpty() ? 0 : 1][group.numMembers()];
            takers = new int[eligible.length][group.numMembers()];
            Arrays.stream(eligible).forEach(each -> Arrays.fill(each, true));
            Arrays.stream(takers).forEach(each -> Arrays.setAll(each, member -> member));
        } else {
            BitSet[] byTopic = takersByTopic();
            for (int topic = 0; topic < numTopics; topic++) {
                classOfTopic[topic] = byTopic[topic].isEmpty()
                        ? Group.NOBODY
                        : numbers.computeIfAbsent(byTopic[topic], same -> numbers.size());
            }
            eligible = new boolean[numbers.size()][group.numMembers()];
            takers = new int[numbers.size()][];
            numbers.forEach((members, number) -> {
                takers[number] = Group.numbersOf(members);
                for (int member : takers[number]) {
                    eligible[number][member] = true;
                }
            });
        }
        size = new int[eligible.length];
        owned = new int[eligible.length][group.numMembers()];
        for (int row = 0; row < group.numRows(); row++) {
            int number = classOf(row);
            if (number != Group.NOBODY) {
                size[number]++;
                if (group.liveOwner[row] != Group.NOBODY) {
                    owned[number][group.liveOwner[row]]++;
                }
            }
        }
    }

    int classOf(int row) {
        return classOfTopic[group.topicOfRow[row]];
    }

    /**
     * Returns rows for counts: everybody keeps what it has of a class, up to the count that is wanted.
     *
     * @param wanted rows of each class and member; those of a class add up to its size
     */
    int[] giveOut(int[][] wanted) {
        int[] assignment = group.liveOwner.clone();
        int[] order = group.dealOrder();
        release(assignment, order, wanted);
        int numMembers = group.numMembers();
        int[] taker = new int[wanted.length];
        int[] left = new int[wanted.length];
        for (int number = 0; number < wanted.length; number++) {
            taker[number] = -1;
        }
        for (int row : order) {
            int number = classOf(row);
            if (assignment[row] != Group.NOBODY || number == Group.NOBODY) {
                continue;
            }
            // Neighbours in the order go to one member: they are of different topics, so each topic spreads.
            while (left[number] == 0 && ++taker[number] < numMembers) {
                left[number] = Math.max(0, wanted[number][taker[number]] - owned[number][taker[number]]);
            }
            left[number]--;
            assignment[row] = taker[number];
        }
        return assignment;
    }

    /** Takes from each member what it gives up of a class: the last rows in the order of dealing. */
    private void release(int[] assignment, int[] order, int[][] wanted) {
        int[][] given = new int[wanted.length][group.numMembers()];
        int left = 0;
        for (int number = 0; number < wanted.length; number++) {
            for (int member : takers[number]) {
                given[number][member] = Math.max(0, owned[number][member] - wanted[number][member]);
                left += given[number][member];
            }
        }
        for (int i = order.length - 1; left > 0 && i >= 0; i--) {
            int member = assignment[order[i]];
            if (member != Group.NOBODY && given[classOf(order[i])][member] > 0) {
                given[classOf(order[i])][member]--;
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
