package evenlag.core.sticky;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Function;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;

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
    public final String[] racks;
    public final String[] topics;
    /** The ids of the topics; null for those that are not known. */
    public final Uuid[] topicIds;
    /** The first row of each topic, and the number of rows. */
    public final int[] topicStart;
    /** The topics of each member, ascending; members with the same ones may share the array. */
    public final int[][] subscriptions;
    /** Claims on partitions that there are no rows of. */
    public final List<UnknownClaim> unknownClaims;

    final int[] topicOfRow;
    /** Different lists of topics, ascending, and which of them each member has. */
    final int[][] lists;
    final int[] listOfMember;
    /** The rows that each member claims: those from its first to the next's; and the generation of its claims. */
    final int[] claimRow;
    final int[] firstClaim;
    final int[] generation;
    /** Who alone claims a row in the newest generation, and the same without members that do not subscribe. */
    final int[] owner;
    final int[] liveOwner;
    /** Whether any row is claimed more than once. */
    final boolean hasContestedRows;
    private final boolean hasEqualSubscriptions;

    /** A claim on a partition whose topic is not known, or whose number is too large. */
    public record UnknownClaim(int member, String topic, int partition, int generation, boolean isSubscribed) {}

    private Group(List<Member> members, Function<String, Topic> describe) {
        int numMembers = members.size();
        String[] ids = new String[numMembers];
        int[] listOf = new int[numMembers];
        TopicLists lists = new TopicLists(numMembers, describe);
        for (int i = 0; i < numMembers; i++) { // in the order in which the joins lie in memory
            ids[i] = members.get(i).memberId();
            listOf[i] = lists.add(members.get(i).topics());
        }
        int[] order = NameOrder.of(ids);
        Member[] ordered = new Member[numMembers];
        memberIds = new String[numMembers];
        instanceIds = new String[numMembers];
        racks = new String[numMembers];
        generation = new int[numMembers];
        listOfMember = new int[numMembers];
        for (int i = 0; i < numMembers; i++) {
            Member member = members.get(order[i]);
            ordered[i] = member;
            memberIds[i] = member.memberId();
            instanceIds[i] = member.instanceId();
            racks[i] = member.rack();
            generation[i] = member.generation();
            listOfMember[i] = listOf[order[i]];
        }
        int[] places = lists.sort();
        topics = new String[places.length];
        topicIds = new Uuid[places.length];
        topicStart = new int[places.length + 1];
        for (int topic = 0; topic < places.length; topic++) {
            Topic described = lists.topicAt(places[topic]);
            topics[topic] = lists.nameAt(places[topic]);
            topicIds[topic] = described.id();
            topicStart[topic + 1] = Math.addExact(topicStart[topic], described.numPartitions());
        }
        topicOfRow = new int[topicStart[topics.length]];
        for (int topic = 0; topic < topics.length; topic++) {
            Arrays.fill(topicOfRow, topicStart[topic], topicStart[topic + 1], topic);
        }
        this.lists = lists.lists();
        hasEqualSubscriptions =
                numMembers > 0 && Arrays.stream(this.lists).allMatch(each -> Arrays.equals(each, this.lists[0]));
        subscriptions = new int[numMembers][];
        Arrays.setAll(subscriptions, i -> this.lists[listOfMember[i]]);

        Claims claims = new Claims(ordered, this, lists);
        claimRow = claims.rows;
        firstClaim = claims.first;
        unknownClaims = claims.unknown;
        hasContestedRows = claims.areContested;
        owner = claims.owner;
        liveOwner = claims.areSubscribed ? owner : liveOwners();
    }

    /**
     * Makes a group.
     *
     * @param members in any order; their ids differ
     * @param describe returns what is known about a topic; asked once for each name
     */
    public static Group of(List<Member> members, Function<String, Topic> describe) {
        return new Group(members, describe);
    }

    public int numMembers() {
        return memberIds.length;
    }

    public int numRows() {
        return topicOfRow.length;
    }

    /** Returns the number of a topic; negative if nobody subscribes to it, or if it is not known. */
    public int numberOf(String topic) {
        return Arrays.binarySearch(topics, topic);
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
        for (int member = 0; member < memberIds.length; member++) {
            for (int i = firstClaim[member]; i < firstClaim[member + 1]; i++) {
                if (assignment[claimRow[i]] != member) {
                    return false;
                }
            }
        }
        return firstClaim[memberIds.length] > 0 && unknownClaims.isEmpty();
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
        for (int topic = 0; topic < topics.length; topic++) {
            for (int row = topicStart[topic]; row < topicStart[topic + 1]; row++) {
                if (assignment[row] != NOBODY) {
                    result.get(assignment[row]).add(new TopicPartition(topics[topic], row - topicStart[topic]));
                }
            }
        }
        return result;
    }

    /** Whether a member subscribes to a topic. */
    boolean takes(int member, int topic) {
        return Arrays.binarySearch(subscriptions[member], topic) >= 0;
    }

    /**
     * Returns rows in the order t0p0, t1p0, ..., t0p1, ...: neighbours are of different topics.
     *
     * @param isGiver whose rows are included, by member; those without a live owner always are
     */
    int[] dealOrder(boolean[] isGiver) {
        int largest = 0;
        for (int topic = 0; topic < topics.length; topic++) {
            largest = Math.max(largest, topicStart[topic + 1] - topicStart[topic]);
        }
        int[] rows = new int[topicOfRow.length];
        int[] next = new int[largest + 1];
        int size = 0;
        for (int row = 0; row < rows.length; row++) {
            if (liveOwner[row] == NOBODY || isGiver[liveOwner[row]]) {
                rows[size++] = row;
                next[partitionOf(row) + 1]++;
            }
        }
        for (int number = 0; number < largest; number++) {
            next[number + 1] += next[number];
        }
        int[] order = new int[size];
        for (int i = 0; i < size; i++) {
            order[next[partitionOf(rows[i])]++] = rows[i];
        }
        return order;
    }

    private int[] liveOwners() {
        int[] live = owner.clone();
        for (int row = 0; row < live.length; row++) {
            if (live[row] != NOBODY && !takes(live[row], topicOfRow[row])) {
                live[row] = NOBODY;
            }
        }
        return live;
    }
}
