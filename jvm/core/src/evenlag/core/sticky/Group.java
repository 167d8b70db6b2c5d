package evenlag.core.sticky;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.kafka.common.TopicPartition;

/**
 * A group as numbers: {@code assignor_core.group.Group} in Java, without lags and racks.
 *
 * <p>A partition is a row: all of the first topic, then the second. Members are in the order of their ids,
 * topics in that of their names. An assignment is one number for each row: the member, or {@link #NOBODY}.
 */
public final class Group {
    public static final int NOBODY = -1;

    /** The members, and their static ids or null. */
    public final String[] memberIds;
    public final String[] instanceIds;
    public final String[] topics;
    /** The first row of each topic, and the number of rows. */
    public final int[] topicStart;
    /** The topics of each member, ascending; members with the same ones may share the array. */
    public final int[][] subscriptions;
    /** Claims on partitions that there are no rows of. */
    public final List<UnknownClaim> unknownClaims = new ArrayList<>();

    final int[] topicOfRow;
    final BitSet[] subscribed;
    /** All claims on rows, of all generations. */
    final int[] claimRow;
    final int[] claimMember;
    final int[] claimGeneration;
    final int[] owner;
    final int[] liveOwner;
    private final boolean hasEqualSubscriptions;

    /** A claim on a partition whose topic is not known, or whose number is too large. */
    public record UnknownClaim(int member, String topic, int partition, int generation, boolean isSubscribed) {}

    private Group(TopicLists lists, List<Member> members) {
        List<Member> ordered = new ArrayList<>(members);
        ordered.sort((a, b) -> a.memberId().compareTo(b.memberId()));
        memberIds = ordered.stream().map(Member::memberId).toArray(String[]::new);
        instanceIds = ordered.stream().map(Member::instanceId).toArray(String[]::new);
        ordered.forEach(member -> lists.add(member.topics()));
        topics = lists.names().stream().sorted().toArray(String[]::new);
        topicStart = new int[topics.length + 1];
        int[] numbers = new int[topics.length];
        for (int topic = 0; topic < topics.length; topic++) {
            numbers[lists.placeOf(topics[topic])] = topic;
            topicStart[topic + 1] = Math.addExact(topicStart[topic], lists.counts().get(topics[topic]));
        }
        topicOfRow = new int[topicStart[topics.length]];
        for (int topic = 0; topic < topics.length; topic++) {
            Arrays.fill(topicOfRow, topicStart[topic], topicStart[topic + 1], topic);
        }
        subscriptions = new int[memberIds.length][];
        subscribed = new BitSet[memberIds.length];
        hasEqualSubscriptions = subscribe(ordered, lists, numbers);
        int numClaims = ordered.stream().mapToInt(member -> member.owned().size()).sum();
        int[] rows = new int[numClaims];
        int[] claimants = new int[numClaims];
        int known = 0;
        for (int i = 0; i < memberIds.length; i++) {
            int from = known;
            known = claim(i, ordered.get(i), lists, numbers, rows, known);
            Arrays.fill(claimants, from, known, i);
        }
        claimRow = Arrays.copyOf(rows, known);
        claimMember = Arrays.copyOf(claimants, known);
        claimGeneration = new int[known];
        Arrays.setAll(claimGeneration, i -> ordered.get(claimMember[i]).generation());
        owner = owners();
        liveOwner = liveOwners();
    }

    /**
     * Makes a group.
     *
     * @param lists the topics of the members; lists that it lacks are added
     * @param members in any order; their ids differ
     */
    public static Group of(TopicLists lists, List<Member> members) {
        return new Group(lists, members);
    }

    public int numMembers() {
        return memberIds.length;
    }

    public int numRows() {
        return topicOfRow.length;
    }

    /** Returns a row's partition number. */
    public int partitionOf(int row) {
        return row - topicStart[topicOfRow[row]];
    }

    /** Whether all members subscribe to the same topics, of those that are known. */
    public boolean hasEqualSubscriptions() {
        return hasEqualSubscriptions;
    }

    /** Returns the member that alone claims a row in the newest generation, subscribed or not. */
    public int owner(int row) {
        return owner[row];
    }

    /** Returns how many rows leave their owners. */
    public int countMoves(int[] assignment) {
        int moves = 0;
        for (int row = 0; row < owner.length; row++) {
            moves += owner[row] != NOBODY && owner[row] != assignment[row] ? 1 : 0;
        }
        return moves;
    }

    /** Whether there are claims, and all of them are on what an assignment gives to their claimants. */
    public boolean isWithin(int[] assignment) {
        for (int i = 0; i < claimRow.length; i++) {
            if (assignment[claimRow[i]] != claimMember[i]) {
                return false;
            }
        }
        return claimRow.length > 0 && unknownClaims.isEmpty();
    }

    /** Returns an assignment's partitions by member. */
    public List<List<TopicPartition>> toPartitions(int[] assignment) {
        int[] sizes = new int[memberIds.length];
        for (int member : assignment) {
            if (member != NOBODY) {
                sizes[member]++;
            }
        }
        List<List<TopicPartition>> result = new ArrayList<>(memberIds.length);
        for (int size : sizes) {
            result.add(new ArrayList<>(size));
        }
        for (int row = 0; row < assignment.length; row++) {
            if (assignment[row] != NOBODY) {
                result.get(assignment[row]).add(new TopicPartition(topics[topicOfRow[row]], partitionOf(row)));
            }
        }
        return result;
    }

    /** Returns rows in the order t0p0, t1p0, ..., t0p1, ...: neighbours are of different topics. */
    int[] dealOrder() {
        int largest = 0;
        for (int topic = 0; topic < topics.length; topic++) {
            largest = Math.max(largest, topicStart[topic + 1] - topicStart[topic]);
        }
        int[] next = new int[largest + 1];
        for (int row = 0; row < topicOfRow.length; row++) {
            next[partitionOf(row) + 1]++;
        }
        for (int number = 0; number < largest; number++) {
            next[number + 1] += next[number];
        }
        int[] order = new int[topicOfRow.length];
        for (int row = 0; row < order.length; row++) {
            order[next[partitionOf(row)]++] = row;
        }
        return order;
    }

    /**
     * Notes who subscribes to what; returns whether all do so equally.
     *
     * @param numbers of the topics, by their places in the lists
     */
    private boolean subscribe(List<Member> ordered, TopicLists lists, int[] numbers) {
        boolean areEqual = memberIds.length > 0;
        int[] first = new int[lists.size()]; // of each list, the first member that has it
        Arrays.fill(first, NOBODY);
        for (int i = 0; i < memberIds.length; i++) {
            int list = lists.add(ordered.get(i).topics());
            int same = first[list];
            if (same != NOBODY) {
                subscribed[i] = subscribed[same];
                subscriptions[i] = subscriptions[same];
                continue;
            }
            first[list] = i;
            subscribed[i] = new BitSet(topics.length);
            for (int place : lists.placesOf(list)) {
                subscribed[i].set(numbers[place]);
            }
            subscriptions[i] = numbersOf(subscribed[i]);
            areEqual = areEqual && subscribed[i].equals(subscribed[0]);
        }
        return areEqual;
    }

    /** Returns what is in a set, ascending. */
    static int[] numbersOf(BitSet set) {
        int[] found = new int[set.cardinality()];
        int size = 0;
        for (int number = set.nextSetBit(0); number >= 0; number = set.nextSetBit(number + 1)) {
            found[size++] = number;
        }
        return found;
    }

    private int claim(int index, Member member, TopicLists lists, int[] numbers, int[] rows, int from) {
        int known = from;
        String lastName = null;
        int topic = NOBODY;
        Set<TopicPartition> unknown = new HashSet<>();
        for (TopicPartition claimed : member.owned()) {
            String name = claimed.topic();
            if (!name.equals(lastName)) {
                int place = lists.placeOf(name);
                topic = place < 0 ? NOBODY : numbers[place];
                lastName = name;
            }
            int number = claimed.partition();
            if (topic == NOBODY || number >= topicStart[topic + 1] - topicStart[topic]) {
                if (unknown.add(claimed)) {
                    boolean isSubscribed = member.topics().contains(name);
                    unknownClaims.add(
                            new UnknownClaim(index, name, number, member.generation(), isSubscribed));
                }
            } else if (number >= 0) {
                rows[known++] = topicStart[topic] + number;
            }
        }
        return known;
    }

    private int[] owners() {
        int[] newest = new int[topicOfRow.length];
        Arrays.fill(newest, Integer.MIN_VALUE);
        for (int i = 0; i < claimRow.length; i++) {
            newest[claimRow[i]] = Math.max(newest[claimRow[i]], claimGeneration[i]);
        }
        int[] owners = new int[topicOfRow.length];
        Arrays.fill(owners, NOBODY);
        BitSet disputed = new BitSet();
        for (int i = 0; i < claimRow.length; i++) {
            int row = claimRow[i];
            if (claimGeneration[i] == newest[row]) {
                if (owners[row] != NOBODY && owners[row] != claimMember[i]) {
                    disputed.set(row);
                }
                owners[row] = claimMember[i];
            }
        }
        disputed.stream().forEach(row -> owners[row] = NOBODY);
        return owners;
    }

    private int[] liveOwners() {
        int[] live = owner.clone();
        for (int row = 0; row < live.length; row++) {
            if (live[row] != NOBODY && !subscribed[live[row]].get(topicOfRow[row])) {
                live[row] = NOBODY;
            }
        }
        return live;
    }
}
