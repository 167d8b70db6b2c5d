package evenlag.core;

import java.util.Set;

/** The records of one group, and their marks: what is older must not return. One thread writes. */
public final class GroupRecords {
    /** Size without texts and records: the object, its entry in the table, and the set of its member ids. */
    private static final int BYTES = 300;

    public final String groupId;
    final int partition;
    /** The records on the topic; volatile, because coordinators read it. */
    public volatile Hint hint;
    public volatile Loads loads;
    /** Records from the future: not used, and no mark, until their time has come. */
    Hint earlyHint;
    Loads earlyLoads;
    /** The member ids by which the group is found, the records that they are from, and the counted size. */
    Set<String> ids = Set.of();
    Hint indexedHint;
    Loads indexedLoads;
    long counted;

    private String planId;
    private long planSequence;
    private long planIssuedAtMs;
    private long maxSequence = -1;
    private long maxIssuedAtMs = -1;
    private boolean isWithdrawn;
    private String digest;
    private long measuredAtMs;
    private long maxMeasuredAtMs = -1;
    private boolean areLoadsWithdrawn;

    GroupRecords(String groupId, int partition) {
        this.groupId = groupId;
        this.partition = partition;
    }

    long bytes() {
        // The marks of a record that is held are its own.
        long marks = (planId != null && hint == null ? HeapSize.DIGEST : 0)
                + (digest != null && loads == null ? HeapSize.DIGEST : 0);
        return BYTES + HeapSize.text(groupId) + marks + hintBytes() + loadsBytes();
    }

    /** Returns the size of the hint, and of one from the future. */
    long hintBytes() {
        return (hint == null ? 0 : hint.bytes()) + (earlyHint == null ? 0 : earlyHint.bytes());
    }

    /** Returns the size of the loads, and of loads from the future. */
    long loadsBytes() {
        return (loads == null ? 0 : loads.bytes()) + (earlyLoads == null ? 0 : earlyLoads.bytes());
    }

    /** Whether nothing is held or remembered. */
    boolean isBlank() {
        return earlyHint == null && earlyLoads == null && planId == null && digest == null;
    }

    /**
     * Whether a hint is newer than all before, or the current one again.
     *
     * <p>A replay is older by both marks; a publisher that lost its count is newer by time, one whose clock
     * stepped back is newer by sequence. The marks are kept apart: two records of a slower clock, replayed in
     * turn, are each accepted once.
     */
    boolean takes(Hint other) {
        return takes(other.planId(), other.sequence(), other.issuedAtMs());
    }

    private boolean takes(String otherPlanId, long sequence, long issuedAtMs) {
        boolean isSame = !isWithdrawn && otherPlanId.equals(planId) && sequence == planSequence;
        return isSame || sequence > maxSequence || issuedAtMs > maxIssuedAtMs;
    }

    /** Whether loads are newer than all before, or the current ones again. */
    boolean takes(Loads other) {
        return takes(other.digest(), other.measuredAtMs());
    }

    private boolean takes(String otherDigest, long otherMeasuredAtMs) {
        boolean isSame = !areLoadsWithdrawn && otherDigest.equals(digest);
        return isSame || otherMeasuredAtMs > maxMeasuredAtMs;
    }

    /** Whether a hint is the current one already. */
    boolean has(Hint other) {
        Hint current = hint;
        return current != null && current.planId().equals(other.planId());
    }

    /**
     * Accepts a hint.
     *
     * @param isHeld whether it is for brokers and there is room for it; else only its marks are kept
     */
    void accept(Hint accepted, boolean isHeld) {
        hint = isHeld ? accepted : null;
        earlyHint = null;
        planId = accepted.planId();
        planSequence = accepted.sequence();
        planIssuedAtMs = accepted.issuedAtMs();
        maxSequence = Math.max(maxSequence, accepted.sequence());
        maxIssuedAtMs = Math.max(maxIssuedAtMs, accepted.issuedAtMs());
        isWithdrawn = !accepted.isReadable();
    }

    /** Accepts loads; the parameters are those of the other method. */
    void accept(Loads accepted, boolean isHeld) {
        loads = isHeld ? accepted : null;
        earlyLoads = null;
        digest = accepted.digest();
        measuredAtMs = accepted.measuredAtMs();
        maxMeasuredAtMs = Math.max(maxMeasuredAtMs, accepted.measuredAtMs());
        areLoadsWithdrawn = false;
    }

    /** Drops the hint for lack of room: its marks stay. */
    void dropHint() {
        hint = null;
    }

    /** Drops the loads likewise. */
    void dropLoads() {
        loads = null;
    }

    void withdrawHint() {
        hint = null;
        earlyHint = null;
        isWithdrawn = true;
    }

    void withdrawLoads() {
        loads = null;
        earlyLoads = null;
        areLoadsWithdrawn = true;
    }

    /** Forgets the hint with its marks: during the first pass the last record of a key alone counts. */
    void clearHint() {
        hint = null;
        earlyHint = null;
        planId = null;
        maxSequence = -1;
        maxIssuedAtMs = -1;
        isWithdrawn = false;
    }

    /** Forgets the loads with their mark. */
    void clearLoads() {
        loads = null;
        earlyLoads = null;
        digest = null;
        maxMeasuredAtMs = -1;
        areLoadsWithdrawn = false;
    }

    /**
     * Goes on from the marks of an earlier pass over the topic.
     *
     * @param isGone whether a record that is missing now was withdrawn
     * @return the hint that is dropped, because it is older than one of that pass; null if none is
     */
    Hint follow(GroupRecords old, boolean isGone) {
        Hint dropped = null;
        if (old.planId != null) {
            if (planId == null || !old.takes(planId, planSequence, planIssuedAtMs)) {
                dropped = hint;
                hint = null;
                planId = old.planId;
                planSequence = old.planSequence;
                planIssuedAtMs = old.planIssuedAtMs;
                isWithdrawn = isGone || old.isWithdrawn;
            }
            maxSequence = Math.max(maxSequence, old.maxSequence);
            maxIssuedAtMs = Math.max(maxIssuedAtMs, old.maxIssuedAtMs);
        }
        if (old.digest != null) {
            if (digest == null || !old.takes(digest, measuredAtMs)) {
                loads = null;
                digest = old.digest;
                measuredAtMs = old.measuredAtMs;
                areLoadsWithdrawn = isGone || old.areLoadsWithdrawn;
            }
            maxMeasuredAtMs = Math.max(maxMeasuredAtMs, old.maxMeasuredAtMs);
        }
        return dropped;
    }
}
