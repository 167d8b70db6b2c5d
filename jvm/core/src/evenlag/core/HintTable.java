package evenlag.core;

import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import java.util.function.Predicate;
import java.util.function.ToLongFunction;
import org.apache.kafka.common.utils.Utils;

/**
 * All hints and loads of one pass over the hint topic. One thread writes, any number read; none of them
 * blocks.
 *
 * <p>Records are found by member ids. A broker does not know a group's name, and fingerprints are not unique: two
 * groups may have the same instance ids and topics.
 */
public final class HintTable {
    private static final byte[] STOP_KEY = "control/stop".getBytes(StandardCharsets.US_ASCII);
    private static final GroupRecords[] NONE = {};
    /** The longest name of a group, in UTF-8, and the prefix: other keys are not looked at. */
    private static final int MAX_KEY_BYTES = 3 * 1024 + HintCodec.LOADS_PREFIX.length();

    private final int numPartitions;
    private final Audience audience;
    private final SigningKeys keys;
    private final String clusterId;
    private final long maxBytes;
    private final Journal journal;
    private final Map<String, GroupRecords> groups = new ConcurrentHashMap<>();
    private final Map<String, GroupRecords[]> groupsByMember = new ConcurrentHashMap<>();
    private final Set<GroupRecords> early = new HashSet<>();
    private final Set<Integer> stopped = ConcurrentHashMap.newKeySet();
    private volatile long bytes;
    private volatile int numHeld;
    private volatile int numLoads;
    private boolean isReading = true;
    /** The table of the previous pass, while this one is read. */
    private HintTable before;
    /** No hint that is held expires earlier. */
    private long firstExpiryMs;

    /**
     * Makes an empty table.
     *
     * @param numPartitions of the hint topic; a group's records count in its own partition only
     * @param audience who reads it
     * @param keys any of which may sign; with none, signatures are not checked
     * @param clusterId the cluster that records must be for, null if unknown
     * @param maxBytes the limit of heap for all that it holds
     */
    public HintTable(
            int numPartitions,
            Audience audience,
            SigningKeys keys,
            String clusterId,
            long maxBytes,
            Journal journal) {
        this.numPartitions = numPartitions;
        this.audience = audience;
        this.keys = keys;
        this.clusterId = clusterId;
        this.maxBytes = maxBytes;
        this.journal = journal;
    }

    public long bytes() {
        return bytes;
    }

    public long maxBytes() {
        return maxBytes;
    }

    /** Shares the records that are the same with the table of the previous pass, which is in memory too. */
    HintTable sharing(HintTable previous) {
        before = previous;
        return this;
    }

    /** Number of hints. */
    public int numHeld() {
        return numHeld;
    }

    public int numLoads() {
        return numLoads;
    }

    /** Whether the records of a group are in it, if there are any. */
    public boolean covers(String groupId) {
        return audience.isOf(groupId);
    }

    /** Returns a group's records; null if there are none, or the group is stopped. */
    public GroupRecords of(String groupId) {
        GroupRecords group = groups.get(groupId);
        return group == null || stopped.contains(group.partition) ? null : group;
    }

    /** Finds the groups, of those that are not stopped, that these members may be in. */
    public List<GroupRecords> find(Collection<String> memberIds) {
        List<GroupRecords> found = new ArrayList<>(2);
        if (groupsByMember.isEmpty()) {
            return found;
        }
        for (String memberId : memberIds) {
            for (GroupRecords group : groupsByMember.getOrDefault(memberId, NONE)) {
                if (!found.contains(group) && !stopped.contains(group.partition)) {
                    found.add(group);
                }
            }
        }
        return found;
    }

    /**
     * Processes a record; an invalid one is recorded and changes nothing.
     *
     * <p>During the first pass over the topic each record replaces the one before it of its key, whatever
     * both are: after a compaction only the last one is left.
     */
    public void apply(int partition, byte[] key, byte[] value, long nowMs) {
        if (key == null || key.length > MAX_KEY_BYTES) {
            return;
        }
        if (Arrays.equals(key, STOP_KEY)) {
            applyStop(partition, value != null);
            return;
        }
        String name;
        try {
            name = Text.decode(key, 0, key.length);
        } catch (CharacterCodingException error) {
            journal.note(Reason.UNUSABLE, null, null, "a record's key is no text");
            return;
        }
        boolean areLoads = name.startsWith(HintCodec.LOADS_PREFIX);
        if (areLoads || name.startsWith(HintCodec.HINT_PREFIX)) {
            String groupId = name.substring(name.indexOf('/') + 1);
            // Other partitions have leftovers from before the topic had as many partitions, or forgeries.
            if (audience.isOf(groupId) && partitionOf(groupId, numPartitions) == partition) {
                applyGroup(groupId, partition, areLoads, value, nowMs);
            }
        }
    }

    /** Accepts the records whose time has come. */
    public void promote(long nowMs) {
        for (GroupRecords group : List.copyOf(early)) {
            Hint hint = group.earlyHint;
            if (hint != null && hint.isDue(nowMs)) {
                group.earlyHint = null;
                acceptSafely(group, () -> accept(group, hint, nowMs));
            }
            Loads loads = group.earlyLoads;
            if (loads != null && loads.isDue(nowMs)) {
                group.earlyLoads = null;
                acceptSafely(group, () -> accept(group, loads, nowMs));
            }
            settle(group);
        }
    }

    /**
     * Ends the first pass over the topic: marks of the previous pass remain valid.
     *
     * @param previous the table that this one follows, or null
     */
    public void finishReading(HintTable previous) {
        isReading = false;
        before = null;
        if (previous != null) {
            previous.groups.values().forEach(old -> carryOver(old, true));
        }
        for (GroupRecords group : groups.values()) {
            GroupRecords old = previous == null ? null : previous.groups.get(group.groupId);
            Hint hint = group.hint;
            if (hint != null && (old == null || !old.has(hint))) {
                journal.note(Reason.RECEIVED, group.groupId, hint.planId(), "sequence " + hint.sequence());
            }
        }
    }

    /** Returns a table without records, for an unreadable topic; it keeps the marks. */
    public HintTable forget() {
        return forget(audience);
    }

    HintTable forget(Audience readers) {
        HintTable empty = new HintTable(numPartitions, readers, keys, clusterId, maxBytes, journal);
        groups.values().forEach(old -> empty.carryOver(old, false));
        empty.isReading = false;
        return empty;
    }

    private void carryOver(GroupRecords old, boolean isGone) {
        GroupRecords group = groups.get(old.groupId);
        if (group == null) {
            group = new GroupRecords(old.groupId, old.partition);
        }
        Hint dropped = group.follow(old, isGone);
        if (dropped != null) {
            String detail = "it is older than one that was there";
            journal.note(Reason.REPLAYED, group.groupId, dropped.planId(), detail);
        }
        settle(group);
    }

    private void applyStop(int partition, boolean isStopped) {
        boolean wasStopped = !stopped.isEmpty();
        boolean changed = isStopped ? stopped.add(partition) : stopped.remove(partition);
        if (changed && wasStopped == stopped.isEmpty()) {
            String what = isStopped ? "all hints are stopped" : "hints are followed again";
            journal.note(isStopped ? Reason.STOPPED : Reason.RESUMED, null, null, what);
        }
    }

    private void applyGroup(String groupId, int partition, boolean areLoads, byte[] value, long nowMs) {
        GroupRecords known = groups.get(groupId);
        GroupRecords group = known == null ? new GroupRecords(groupId, partition) : known;
        if (isReading) {
            clear(group, areLoads);
        }
        acceptSafely(group, () -> {
            if (value == null) {
                withdraw(group, areLoads);
            } else if (areLoads) {
                take(group, HintCodec.decodeLoads(groupId, value, keys, clusterId), nowMs);
            } else {
                take(group, HintCodec.decode(groupId, value, keys, clusterId), nowMs);
            }
        });
        settle(group);
    }

    /** Part of processing a record. */
    @FunctionalInterface
    private interface Step {
        void run() throws HintException;
    }

    private void acceptSafely(GroupRecords group, Step step) {
        try {
            step.run();
        } catch (HintException error) {
            journal.note(error.reason, group.groupId, null, error.getMessage());
        } catch (RuntimeException error) {
            // Untrusted bytes must not end the watcher.
            journal.note(Reason.UNUSABLE, group.groupId, null, error.getClass().getName());
        }
    }

    private static void clear(GroupRecords group, boolean areLoads) {
        if (areLoads) {
            group.clearLoads();
        } else {
            group.clearHint();
        }
    }

    private void withdraw(GroupRecords group, boolean areLoads) {
        if (isReading) {
            return; // cleared already; a mark of what was never accepted is none
        }
        if (areLoads) {
            group.withdrawLoads();
            return;
        }
        Hint hint = group.hint;
        group.withdrawHint();
        if (hint != null) {
            journal.note(Reason.WITHDRAWN, group.groupId, hint.planId(), "the hint was withdrawn");
        }
    }

    private void take(GroupRecords group, Hint hint, long nowMs) throws HintException {
        if (hint.isDue(nowMs)) {
            accept(group, shared(hint), nowMs);
            return;
        }
        group.earlyHint = null;
        checkRoom(group, hint.bytes());
        group.earlyHint = hint;
        String detail = "it is issued in the future: it waits for its time";
        journal.note(Reason.UNUSABLE, group.groupId, hint.planId(), detail);
    }

    private void take(GroupRecords group, Loads loads, long nowMs) throws HintException {
        if (loads.isDue(nowMs)) {
            accept(group, shared(loads), nowMs);
            return;
        }
        group.earlyLoads = null;
        checkRoom(group, loads.bytes());
        group.earlyLoads = loads;
        journal.note(Reason.UNUSABLE, group.groupId, null, "loads of the future: they wait for their time");
    }

    private Hint shared(Hint hint) {
        GroupRecords old = before == null ? null : before.groups.get(hint.groupId());
        Hint same = old == null ? null : old.hint;
        boolean isSame = same != null
                && same.planId().equals(hint.planId())
                && same.sequence() == hint.sequence()
                && same.issuedAtMs() == hint.issuedAtMs()
                && same.expiresAtMs() == hint.expiresAtMs();
        return isSame ? same : hint;
    }

    private Loads shared(Loads loads) {
        GroupRecords old = before == null ? null : before.groups.get(loads.groupId());
        Loads same = old == null ? null : old.loads;
        return same != null && same.digest().equals(loads.digest()) ? same : loads;
    }

    private void accept(GroupRecords group, Hint hint, long nowMs) throws HintException {
        if (!group.takes(hint)) {
            String detail = "sequence " + hint.sequence() + " is not newer";
            journal.note(Reason.REPLAYED, group.groupId, hint.planId(), detail);
            return;
        }
        if (!hint.isReadable()) {
            group.accept(hint, false);
            String detail = "sequence " + hint.sequence() + ": upgrade this reader";
            journal.note(Reason.NEWER_FORMAT, group.groupId, hint.planId(), detail);
            return;
        }
        boolean isOther = !group.has(hint);
        boolean isForUs = audience.isFor(hint.memberIds());
        boolean hasRoom = isForUs && makeRoom(group, hint.bytes() - group.hintBytes(), true, nowMs);
        // Its marks count even if there is no room for it: what it replaced is not followed either. One write:
        // a coordinator that reads meanwhile gets the former hint or this one.
        group.accept(hint, hasRoom);
        if (isForUs && !hasRoom) {
            throw noRoom(hint.bytes());
        }
        firstExpiryMs = Math.min(firstExpiryMs, hint.expiresAtMs());
        if (isOther && !isReading) {
            Reason reason = isForUs ? Reason.RECEIVED : Reason.CLASSIC;
            String detail = isForUs ? "sequence " + hint.sequence() : "for the classic protocol";
            journal.note(reason, group.groupId, hint.planId(), detail);
        }
    }

    private void accept(GroupRecords group, Loads loads, long nowMs) throws HintException {
        if (!group.takes(loads)) {
            journal.note(Reason.REPLAYED, group.groupId, null, "the loads are not newer");
            return;
        }
        boolean isForUs = audience.isFor(loads.memberIds());
        boolean hasRoom = isForUs && makeRoom(group, loads.bytes() - group.loadsBytes(), false, nowMs);
        group.accept(loads, hasRoom); // one write, as above
        if (isForUs && !hasRoom) {
            throw noRoom(loads.bytes());
        }
    }

    private void checkRoom(GroupRecords group, long size) throws HintException {
        if (!hasRoom(group, size)) {
            throw noRoom(size);
        }
    }

    /**
     * Whether a group may take so many bytes more, if need be in place of what matters less: hints that have
     * expired, then, for a hint, loads; the oldest first.
     */
    private boolean makeRoom(GroupRecords group, long more, boolean isHint, long nowMs) {
        if (hasRoom(group, more) || more > maxBytes) {
            return hasRoom(group, more);
        }
        if (nowMs >= firstExpiryMs) {
            evict(group, more, each -> each.hint != null && each.hint.isExpired(nowMs),
                    each -> each.hint.expiresAtMs(), GroupRecords::dropHint);
            firstExpiryMs = groups.values().stream()
                    .filter(each -> each.hint != null)
                    .mapToLong(each -> each.hint.expiresAtMs())
                    .min()
                    .orElse(Long.MAX_VALUE);
        }
        if (isHint && numLoads > 0) {
            evict(group, more, each -> each.loads != null, each -> each.loads.measuredAtMs(), each -> {
                journal.note(Reason.NO_ROOM, each.groupId, null, "its loads make room for hints");
                each.dropLoads();
            });
        }
        return hasRoom(group, more);
    }

    /** Evicts records until there is room, and a sixteenth of the limit more: the search is not free. */
    private void evict(
            GroupRecords group,
            long more,
            Predicate<GroupRecords> isEvictable,
            ToLongFunction<GroupRecords> ageOf,
            Consumer<GroupRecords> drop) {
        List<GroupRecords> oldest = groups.values().stream()
                .filter(each -> each != group && isEvictable.test(each))
                .sorted(Comparator.comparingLong(ageOf))
                .toList();
        for (GroupRecords each : oldest) {
            if (hasRoom(group, more + maxBytes / 16)) {
                return;
            }
            drop.accept(each);
            settle(each);
        }
    }

    /** Whether a group may take so many bytes more beside all others. */
    private boolean hasRoom(GroupRecords group, long more) {
        return bytes - group.counted + group.bytes() + more <= maxBytes;
    }

    private static HintException noRoom(long size) {
        return new HintException(Reason.NO_ROOM, size + " bytes: there is no room for the record");
    }

    /** Brings sizes and the index of members up to date with a group that has changed. */
    private void settle(GroupRecords group) {
        boolean isNew = group.counted == 0;
        boolean isKept = !group.isBlank() && (!isNew || bytes + group.bytes() <= maxBytes);
        if (isNew && !isKept) {
            return;
        }
        if (isNew) {
            groups.put(group.groupId, group);
        }
        index(group);
        long now = isKept ? group.bytes() : 0;
        bytes += now - group.counted;
        group.counted = now;
        if (!isKept) {
            groups.remove(group.groupId);
        }
        if (group.earlyHint != null || group.earlyLoads != null) {
            early.add(group);
        } else {
            early.remove(group);
        }
    }

    private void index(GroupRecords group) {
        Hint hint = group.hint;
        Loads loads = group.loads;
        if (hint == group.indexedHint && loads == group.indexedLoads) {
            return;
        }
        Set<String> ids = new HashSet<>();
        boolean isFoundByMember = audience.isBroker();
        if (hint != null && isFoundByMember) {
            ids.addAll(hint.memberIds().values());
            for (String key : hint.shares().keySet()) {
                String id = idOf(key);
                if (id != null) {
                    ids.add(id);
                }
            }
        }
        if (loads != null && isFoundByMember) {
            ids.addAll(loads.memberIds());
        }
        for (String id : ids) {
            if (!group.ids.contains(id)) {
                groupsByMember.merge(id, new GroupRecords[] {group}, HintTable::joined);
            }
        }
        for (String id : group.ids) {
            if (!ids.contains(id)) {
                groupsByMember.computeIfPresent(id, (same, some) -> without(some, group));
            }
        }
        numHeld += (hint == null ? 0 : 1) - (group.indexedHint == null ? 0 : 1);
        numLoads += (loads == null ? 0 : 1) - (group.indexedLoads == null ? 0 : 1);
        group.ids = ids;
        group.indexedHint = hint;
        group.indexedLoads = loads;
    }

    /** Returns the id in a dynamic member's key; null of a static member. */
    static String idOf(String key) {
        return key.startsWith("m:") ? key.substring(2) : null;
    }

    private static GroupRecords[] joined(GroupRecords[] some, GroupRecords[] more) {
        GroupRecords[] all = Arrays.copyOf(some, some.length + 1);
        all[some.length] = more[0];
        return all;
    }

    private static GroupRecords[] without(GroupRecords[] some, GroupRecords group) {
        GroupRecords[] rest = Arrays.stream(some).filter(each -> each != group).toArray(GroupRecords[]::new);
        return rest.length == 0 ? null : rest;
    }

    /** Returns the only partition of the hint topic in which a group's records count. */
    public static int partitionOf(String groupId, int numPartitions) {
        byte[] key = (HintCodec.HINT_PREFIX + groupId).getBytes(StandardCharsets.UTF_8);
        return Utils.toPositive(Utils.murmur2(key)) % numPartitions;
    }
}
