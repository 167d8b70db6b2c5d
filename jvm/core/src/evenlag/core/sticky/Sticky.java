package evenlag.core.sticky;

/**
 * {@code assignor_core.assignors.sticky} in Java: the most even counts, and among these the fewest moves.
 *
 * <p>Both give the same assignment for the same group, so leaders in either language can follow each other.
 */
public final class Sticky {
    private Sticky() {}

    /** Returns the member of each row. */
    public static int[] assign(Group group) {
        if (isEven(group)) {
            return group.liveOwner.clone();
        }
        Classes classes = new Classes(group);
        int[] wanted = classes.numClasses() == 1
                ? Levels.even(classes.owned, classes.free[0])
                : Chains.balance(classes);
        return classes.giveOut(wanted);
    }

    /**
     * Returns an assignment that keeps every row with its live owner, and gives free ones to the members with
     * the fewest.
     *
     * <p>Used while it is unknown whether a hint exists: an even assignment could undo a plan that the group
     * has just followed.
     */
    public static int[] placeFree(Group group) {
        int[] target = group.liveOwner.clone();
        int[] counts = countsOf(group);
        Classes classes = new Classes(group);
        FewestFirst[] takers = new FewestFirst[classes.numClasses()];
        for (int row : group.dealOrder(new boolean[group.numMembers()])) {
            int number = classes.classOf(row);
            if (takers[number] == null) {
                takers[number] = new FewestFirst(classes.takersOf(number), counts);
            }
            int member = takers[number].first();
            target[row] = member;
            counts[member]++;
        }
        return target;
    }

    /** Whether all rows are with live owners, and those that take anything differ by at most one. */
    private static boolean isEven(Group group) {
        for (int member : group.liveOwner) {
            if (member == Group.NOBODY) {
                return false;
            }
        }
        int[] counts = countsOf(group);
        int least = Integer.MAX_VALUE;
        int most = 0;
        for (int member = 0; member < counts.length; member++) {
            if (group.subscriptions[member].length > 0) {
                least = Math.min(least, counts[member]);
                most = Math.max(most, counts[member]);
            }
        }
        return most - least <= 1;
    }

    /** Returns how many rows each member holds and subscribes to. */
    private static int[] countsOf(Group group) {
        int[] counts = new int[group.numMembers()];
        for (int member : group.liveOwner) {
            if (member != Group.NOBODY) {
                counts[member]++;
            }
        }
        return counts;
    }
}
