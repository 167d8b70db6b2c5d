package evenlag.core.sticky;

import java.util.Arrays;

/**
 * {@code assignor_core.assignors.sticky} in Java: the most even counts, and among these the fewest moves.
 *
 * <p>Both give the same assignment for the same group, so leaders in either language can follow each other.
 */
public final class Sticky {
    private Sticky() {}

    /** Returns the member of each row; {@link Group#NOBODY} if nobody subscribes to its topic. */
    public static int[] assign(Group group) {
        if (group.numMembers() > 0 && group.numRows() > 0) {
            Classes classes = new Classes(group);
            if (classes.size.length == 1) {
                return classes.giveOut(new int[][] {evenOneClass(classes)});
            }
            if (classes.size.length > 1) {
                return classes.giveOut(Chains.balance(classes));
            }
        }
        return nobody(group);
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
        int[] counts = new int[group.numMembers()];
        for (int member : target) {
            if (member != Group.NOBODY) {
                counts[member]++;
            }
        }
        for (int row : group.dealOrder()) {
            if (target[row] == Group.NOBODY) {
                int least = Group.NOBODY;
                for (int member = 0; member < counts.length; member++) {
                    boolean isTaker = group.subscribed[member].get(group.topicOfRow[row]);
                    least = isTaker && (least < 0 || counts[member] < counts[least]) ? member : least;
                }
                target[row] = least;
                if (least != Group.NOBODY) {
                    counts[least]++;
                }
            }
        }
        return target;
    }

    private static int[] evenOneClass(Classes classes) {
        int[] owned = classes.owned[0];
        return Levels.even(owned, classes.size[0] - Arrays.stream(owned).sum());
    }

    private static int[] nobody(Group group) {
        int[] assignment = new int[group.numRows()];
        Arrays.fill(assignment, Group.NOBODY);
        return assignment;
    }
}
