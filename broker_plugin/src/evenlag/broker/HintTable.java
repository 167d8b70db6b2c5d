package evenlag.broker;

import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.utils.Utils;

/**
 * All hints of one pass over the hint topic. One thread writes, any number read; none of them blocks.
 *
 * <p>Hints are found by member ids. These are unique, fingerprints are not: two groups may have the same
 * instance ids and topics.
 */
final class HintTable {
    private static final byte[] STOP_KEY = "control/stop".getBytes(StandardCharsets.US_ASCII);
    private static final int SLOT_BYTES = 200;

    /** A group's hint and its sequence and time: an older hint must not return. */
    private static final class Slot {
        final String groupId;
        final int partition;
        volatile Hint hint;
        /** Of the last accepted hint, also if it was withdrawn; null before the first. */
        String planId;
        long sequence;
        long issuedAtMs;
        boolean isWithdrawn;

        Slot(String groupId, int partition) {
            this.groupId = groupId;
            this.partition = partition;
        }

        boolean takes(String otherPlanId, long otherSequence, long otherIssuedAtMs) {
            if (planId == null) {
                return true;
            }
            if (planId.equals(otherPlanId) && sequence == otherSequence && !isWithdrawn) {
                return true; // the publisher repeats itself after a crash
            }
            // A replay is older by both; a publisher that lost its count is newer by time, one whose clock
            // stepped back is newer by sequence.
            return otherSequence > sequence || otherIssuedAtMs > issuedAtMs;
        }

        void remember(String newPlanId, long newSequence, long newIssuedAtMs, boolean withdrawn) {
            planId = newPlanId;
            sequence = newSequence;
            issuedAtMs = newIssuedAtMs;
            isWithdrawn = withdrawn;
        }
    }

    /**
     * The result for a group.
     *
     * @param hint null if there is none to follow
     * @param isAmbiguous whether its members are in the hints of several groups
     */
    record Found(Hint hint, boolean isAmbiguous) {
        static final Found NOTHING = new Found(null, false);
    }

    private final int numPartitions;
    private final List<byte[]> masterKeys;
    private final String clusterId;
    private final long maxBytes;
    private final Journal journal;
    private final Map<String, Slot> slots = new ConcurrentHashMap<>();
    private final Map<String, Slot> slotByMember = new ConcurrentHashMap<>();
    private final Set<Integer> stopped = ConcurrentHashMap.newKeySet();
    private volatile long bytes;
    private volatile int numHeld;
    private boolean isReading = true;

    /**
     * Makes an empty table.
     *
     * @param numPartitions of the hint topic; a group's records count in its own partition only
     * @param masterKeys any of which may sign; with none, signatures are not checked
     * @param clusterId the cluster that hints must be for, null if unknown
     * @param maxBytes the approximate memory limit for hints
     */
    HintTable(int numPartitions, List<byte[]> masterKeys, String clusterId, long maxBytes, Journal journal) {
        this.numPartitions = numPartitions;
        this.masterKeys = List.copyOf(masterKeys);
        this.clusterId = clusterId;
        this.maxBytes = maxBytes;
        this.journal = journal;
    }

    long bytes() {
        return bytes;
    }

    int numHeld() {
        return numHeld;
    }

    /** Finds the hint of the group that these members are in. */
    Found find(Collection<String> memberIds) {
        if (slotByMember.isEmpty()) {
            return Found.NOTHING;
        }
        Slot found = null;
        for (String memberId : memberIds) {
            Slot slot = slotByMember.get(memberId);
            if (slot != null && slot != found) {
                if (found != null) {
                    return new Found(found.hint, true);
                }
                found = slot;
            }
        }
        if (found == null || stopped.contains(found.partition)) {
            return Found.NOTHING;
        }
        return new Found(found.hint, false);
    }

    /** Processes a record; an invalid one is recorded and changes nothing. */
    void apply(int partition, byte[] key, byte[] value) {
        if (key == null) {
            return;
        }
        if (Arrays.equals(key, STOP_KEY)) {
            applyStop(partition, value != null);
        } else if (Utils.toPositive(Utils.murmur2(key)) % numPartitions == partition) {
            // Other partitions have leftovers from before the topic had as many partitions.
            applyGroup(partition, key, value);
        }
    }

    /**
     * Ends the first pass over the topic: sequences of the previous pass remain valid.
     *
     * @param before the table that this one follows, or null
     */
    void finishReading(HintTable before) {
        isReading = false;
        if (before != null) {
            for (Slot old : before.slots.values()) {
                carryOver(old, true);
            }
        }
        for (Slot slot : slots.values()) {
            Hint hint = slot.hint;
            Slot old = before == null ? null : before.slots.get(slot.groupId);
            Hint oldHint = old == null ? null : old.hint;
            if (hint != null && (oldHint == null || !oldHint.planId().equals(hint.planId()))) {
                journal.note(Reason.RECEIVED, slot.groupId, hint.planId(), "sequence " + hint.sequence());
            }
        }
    }

    /** Returns a table without hints, for an unreadable topic; it keeps the sequences. */
    HintTable forget() {
        HintTable empty = new HintTable(numPartitions, masterKeys, clusterId, maxBytes, journal);
        for (Slot old : slots.values()) {
            empty.carryOver(old, old.isWithdrawn);
        }
        empty.isReading = false;
        return empty;
    }

    private void carryOver(Slot old, boolean isWithdrawn) {
        Slot slot = slots.get(old.groupId);
        if (slot == null) {
            slot = addSlot(old.groupId, old.partition);
        }
        if (old.planId == null) {
            return;
        }
        if (slot.planId != null && old.takes(slot.planId, slot.sequence, slot.issuedAtMs)) {
            return;
        }
        if (slot.hint != null) {
            journal.note(Reason.REPLAYED, slot.groupId, slot.planId, "it is older than one that stood there");
        }
        hold(slot, null);
        slot.remember(old.planId, old.sequence, old.issuedAtMs, isWithdrawn);
    }

    private void applyStop(int partition, boolean isStopped) {
        boolean wasStopped = !stopped.isEmpty();
        boolean changed = isStopped ? stopped.add(partition) : stopped.remove(partition);
        if (changed && wasStopped == stopped.isEmpty()) {
            String what = isStopped ? "all hints are stopped" : "hints are followed again";
            journal.note(isStopped ? Reason.STOPPED : Reason.RESUMED, null, null, what);
        }
    }

    private void applyGroup(int partition, byte[] key, byte[] value) {
        String name;
        try {
            name = Text.decode(key, 0, key.length);
        } catch (CharacterCodingException error) {
            journal.note(Reason.UNUSABLE, null, null, "a record's key is no text");
            return;
        }
        if (!name.startsWith(PayloadReader.KEY_PREFIX)) {
            return;
        }
        String groupId = name.substring(PayloadReader.KEY_PREFIX.length());
        try {
            if (value == null) {
                withdraw(groupId);
            } else {
                accept(groupId, partition, HintCodec.decode(key, value, masterKeys, clusterId));
            }
        } catch (HintException error) {
            journal.note(error.reason, groupId, null, error.getMessage());
        } catch (RuntimeException error) {
            // Untrusted bytes must not end the watcher.
            journal.note(Reason.UNUSABLE, groupId, null, error.getClass().getName());
        }
    }

    private void withdraw(String groupId) {
        Slot slot = slots.get(groupId);
        if (slot == null) {
            return;
        }
        slot.isWithdrawn = true;
        if (slot.hint != null) {
            String planId = slot.hint.planId();
            hold(slot, null);
            noteUnlessReading(Reason.WITHDRAWN, groupId, planId, "the hint was withdrawn");
        }
    }

    private void accept(String groupId, int partition, Hint hint) throws HintException {
        Slot slot = slots.get(groupId);
        if (slot == null) {
            if (bytes + SLOT_BYTES > maxBytes) {
                throw new HintException(Reason.UNUSABLE, "there is no room for more groups");
            }
            slot = addSlot(groupId, partition);
        }
        if (!slot.takes(hint.planId(), hint.sequence(), hint.issuedAtMs())) {
            String detail = "sequence " + hint.sequence() + " is not newer";
            noteUnlessReading(Reason.REPLAYED, groupId, hint.planId(), detail);
            return;
        }
        boolean isOther = slot.hint == null || !slot.hint.planId().equals(hint.planId());
        slot.remember(hint.planId(), hint.sequence(), hint.issuedAtMs(), false);
        if (hint.memberIds() == null) {
            hold(slot, null); // the group's members follow it themselves now
            noteUnlessReading(Reason.CLASSIC, groupId, hint.planId(), "for the classic protocol");
        } else if (bytes - (slot.hint == null ? 0 : slot.hint.bytes()) + hint.bytes() > maxBytes) {
            hold(slot, null);
            throw new HintException(Reason.UNUSABLE, hint.bytes() + " bytes: there is no room for the hint");
        } else {
            hold(slot, hint);
            if (isOther) {
                noteUnlessReading(Reason.RECEIVED, groupId, hint.planId(), "sequence " + hint.sequence());
            }
        }
    }

    private Slot addSlot(String groupId, int partition) {
        Slot slot = new Slot(groupId, partition);
        slots.put(groupId, slot);
        bytes += SLOT_BYTES;
        return slot;
    }

    /** Replaces the current hint: first the hint, then the index of its members. */
    private void hold(Slot slot, Hint hint) {
        Hint before = slot.hint;
        slot.hint = hint;
        Collection<String> members = hint == null ? List.of() : membersOf(hint);
        for (String memberId : members) {
            slotByMember.put(memberId, slot);
        }
        if (before != null) {
            Set<String> kept = Set.copyOf(members);
            for (String memberId : membersOf(before)) {
                if (!kept.contains(memberId)) {
                    slotByMember.remove(memberId, slot);
                }
            }
        }
        bytes += (hint == null ? 0 : hint.bytes()) - (before == null ? 0 : before.bytes());
        numHeld += (hint == null ? 0 : 1) - (before == null ? 0 : 1);
    }

    /** Returns the member ids that identify a hint's group: a dynamic member's key contains its id. */
    private static Collection<String> membersOf(Hint hint) {
        List<String> ids = new ArrayList<>(hint.memberIds().values());
        for (String key : hint.shares().keySet()) {
            if (key.startsWith("m:")) {
                ids.add(key.substring(2));
            }
        }
        return ids;
    }

    private void noteUnlessReading(Reason reason, String groupId, String planId, String detail) {
        if (!isReading) {
            journal.note(reason, groupId, planId, detail);
        }
    }
}
