package evenlag.field;

/** Whether a consumer leads its group, and since when the assignment that it made holds. */
final class Leadership {
    private long assignedNs;
    private boolean hasAssigned;
    private boolean isLeader;

    /** The consumer has assigned the partitions of a generation. */
    synchronized void assigned() {
        hasAssigned = true;
        assignedNs = System.nanoTime();
    }

    /** The consumer has its partitions of a generation, which another may have assigned. */
    synchronized void received() {
        isLeader = hasAssigned;
        hasAssigned = false;
    }

    /** Whether it leads with an assignment of that age; true once for an assignment. */
    synchronized boolean isOlderThan(long ageNs) {
        boolean isOlder = isLeader && System.nanoTime() - assignedNs >= ageNs;
        isLeader &= !isOlder;
        return isOlder;
    }
}
