package evenlag.core.sticky;

import java.util.Arrays;

/**
 * Rows that the same members take are alike: {@code assignor_core.algorithms.partition_classes}.
 *
 * <p>Within a class it matters only how many rows each member has. A slot is a class and one of its takers.
 */
final class Classes {
    /** The class of each topic; classes are in the order of their first topics. */
    final int[] classOfTopic;
    /** Of each class, how many rows it has, and how many of them nobody holds. */
    final int[] size;
    final int[] free;
    /** The slots of a class are those from its first to the next one's, ascending by their takers. */
    final int[] firstSlot;
    final int[] taker;
    /** How many rows of the class each taker holds, by slot. */
    final int[] owned;

    private final Group group;
    /** The classes of each list of topics, ascending. */
    private final int[][] classesOfList;

    Classes(Group group) {
        this.group = group;
        classOfTopic = AlikeTopics.classes(group.topics.length, group.lists);
        int numClasses = Arrays.stream(classOfTopic).max().orElse(Group.NOBODY) + 1;
        classesOfList = classesOfLists(numClasses);
        size = new int[numClasses];
        free = new int[numClasses];
        firstSlot = new int[numClasses + 1];
        countSlots();
        taker = new int[firstSlot[numClasses]];
        owned = new int[firstSlot[numClasses]];
        int[] next = firstSlot.clone();
        for (int member = 0; member < group.numMembers(); member++) {
            for (int number : classesOf(member)) {
                taker[next[number]++] = member;
            }
        }
        countOwned();
    }

    int numMembers() {
        return group.numMembers();
    }

    int numClasses() {
        return size.length;
    }

    /** Returns the classes that a member takes, ascending. */
    int[] classesOf(int member) {
        return classesOfList[group.listOfMember[member]];
    }

    /** Returns the slot of a class and one of its takers. */
    int slotOf(int number, int member) {
        return Arrays.binarySearch(taker, firstSlot[number], firstSlot[number + 1], member);
    }

    /** Returns the members that take a class, ascending. */
    int[] takersOf(int number) {
        return Arrays.copyOfRange(taker, firstSlot[number], firstSlot[number + 1]);
    }

    /**
     * Returns rows for counts: everybody keeps what it has of a class, up to the count that is wanted.
     *
     * @param wanted rows of each slot; those of a class add up to its size
     */
    int[] giveOut(int[] wanted) {
        int[] assignment = group.liveOwner.clone();
        int[] order = release(assignment, wanted);
        int[] slot = new int[numClasses()];
        int[] left = new int[numClasses()];
        for (int number = 0; number < slot.length; number++) {
            slot[number] = firstSlot[number] - 1;
        }
        for (int row : order) {
            if (assignment[row] != Group.NOBODY) {
                continue;
            }
            int number = classOf(row);
            // Neighbours in the order go to one member: they are of different topics, so each topic spreads.
            while (left[number] == 0) {
                slot[number]++;
                left[number] = Math.max(0, wanted[slot[number]] - owned[slot[number]]);
            }
            left[number]--;
            assignment[row] = taker[slot[number]];
        }
        return assignment;
    }

    /**
     * Takes from each member what it gives up of a class: the last rows in the order of dealing.
     *
     * @return the rows that are free afterwards, and maybe others, in the order of dealing
     */
    private int[] release(int[] assignment, int[] wanted) {
        int[] given = new int[wanted.length];
        int left = 0;
        boolean[] isGiver = new boolean[numMembers()];
        for (int slot = 0; slot < wanted.length; slot++) {
            if (owned[slot] > wanted[slot]) {
                given[slot] = owned[slot] - wanted[slot];
                left += given[slot];
                isGiver[taker[slot]] = true;
            }
        }
        // Most rows of a group that is nearly even stay: only those of the others need an order.
        int[] order = group.dealOrder(isGiver);
        for (int i = order.length - 1; left > 0 && i >= 0; i--) {
            int member = assignment[order[i]];
            if (member != Group.NOBODY) {
                int slot = slotOf(classOf(order[i]), member);
                if (given[slot] > 0) {
                    given[slot]--;
                    left--;
                    assignment[order[i]] = Group.NOBODY;
                }
            }
        }
        return order;
    }

    int classOf(int row) {
        return classOfTopic[group.topicOfRow[row]];
    }

    private int[][] classesOfLists(int numClasses) {
        if (numClasses == classOfTopic.length) {
            return group.lists; // each topic is a class of its own
        }
        int[] first = new int[numClasses]; // topic of each class
        for (int topic = classOfTopic.length - 1; topic >= 0; topic--) {
            first[classOfTopic[topic]] = topic;
        }
        int[][] classes = new int[group.lists.length][];
        for (int list = 0; list < classes.length; list++) {
            int[] found = new int[numClasses];
            int known = 0;
            for (int topic : group.lists[list]) {
                // Who takes a topic takes all of its class.
                if (first[classOfTopic[topic]] == topic) {
                    found[known++] = classOfTopic[topic];
                }
            }
            classes[list] = Arrays.copyOf(found, known);
        }
        return classes;
    }

    private void countSlots() {
        int[] numMembers = new int[classesOfList.length];
        for (int list : group.listOfMember) {
            numMembers[list]++;
        }
        for (int list = 0; list < classesOfList.length; list++) {
            for (int number : classesOfList[list]) {
                firstSlot[number + 1] += numMembers[list];
            }
        }
        for (int number = 0; number < size.length; number++) {
            firstSlot[number + 1] += firstSlot[number];
        }
    }

    private void countOwned() {
        int[] slotOfMember = new int[group.numMembers()];
        int listed = Group.NOBODY;
        for (int topic = 0; topic < classOfTopic.length; topic++) {
            int number = classOfTopic[topic];
            size[number] += group.topicStart[topic + 1] - group.topicStart[topic];
            for (int row = group.topicStart[topic]; row < group.topicStart[topic + 1]; row++) {
                if (group.liveOwner[row] == Group.NOBODY) {
                    free[number]++;
                    continue;
                }
                if (number != listed) {
                    for (int slot = firstSlot[number]; slot < firstSlot[number + 1]; slot++) {
                        slotOfMember[taker[slot]] = slot;
                    }
                    listed = number;
                }
                owned[slotOfMember[group.liveOwner[row]]]++;
            }
        }
    }
}
