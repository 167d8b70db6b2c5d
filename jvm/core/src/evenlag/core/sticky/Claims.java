package evenlag.core.sticky;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.kafka.common.TopicPartition;

/** What the members claim, read in one pass. */
final class Claims {
    /** An owner below this is disputed: another member claims the row in the same generation. */
    private static final int DISPUTED = -2;

    /** The claimed rows of each member: those from its first to the next one's. */
    final int[] rows;
    final int[] first;
    /** The member that alone claims each row in the newest generation. */
    final int[] owner;
    final List<Group.UnknownClaim> unknown = new ArrayList<>();
    /** Whether any row is claimed more than once, and whether all claimants subscribe to what they claim. */
    boolean areContested;
    boolean areSubscribed = true;

    private final TopicLists topics;
    private final int[] topicStart;
    private final int[] generation;
    /** Which list each topic was last marked to be in. */
    private final int[] marks;
    private int markedList = Group.NOBODY;
    private int numRows;

    Claims(Member[] members, Group group, TopicLists topics) {
        this.topics = topics;
        topicStart = group.topicStart;
        generation = group.generation;
        owner = new int[group.numRows()];
        Arrays.fill(owner, Group.NOBODY);
        marks = new int[group.topics.length];
        Arrays.fill(marks, Group.NOBODY);
        int most = 0;
        for (Member member : members) {
            most += member.owned().size();
        }
        rows = new int[most];
        first = new int[members.length + 1];
        for (int i = 0; i < members.length; i++) {
            if (!members[i].owned().isEmpty()) {
                mark(group.listOfMember[i], group.lists);
                read(i, members[i]);
            }
            first[i + 1] = numRows;
        }
        if (areContested) {
            Arrays.setAll(owner, row -> Math.max(owner[row], Group.NOBODY));
        }
    }

    private void mark(int list, int[][] lists) {
        if (list != markedList) {
            for (int topic : lists[list]) {
                marks[topic] = list;
            }
            markedList = list;
        }
    }

    private void read(int index, Member member) {
        String lastName = null;
        int topic = TopicLists.UNKNOWN;
        int size = 0;
        Set<TopicPartition> seen = null;
        for (TopicPartition claimed : member.owned()) {
            String name = claimed.topic();
            if (name != lastName) { // the claims on a topic share its name, so few names are looked up
                lastName = name;
                topic = topics.numberOf(name);
                size = topic == TopicLists.UNKNOWN ? 0 : topicStart[topic + 1] - topicStart[topic];
                areSubscribed &= topic == TopicLists.UNKNOWN || marks[topic] == markedList;
            }
            int number = claimed.partition();
            if (number >= 0 && number < size) {
                claim(index, topicStart[topic] + number);
            } else if (topic == TopicLists.UNKNOWN || number >= size) {
                seen = seen == null ? new HashSet<>() : seen;
                if (seen.add(claimed)) {
                    unknown.add(new Group.UnknownClaim(
                            index, name, number, member.generation(), member.topics().contains(name)));
                }
            }
        }
    }

    private void claim(int member, int row) {
        rows[numRows++] = row;
        int before = owner[row];
        if (before == Group.NOBODY) {
            owner[row] = member;
            return;
        }
        areContested = true;
        int rival = before > Group.NOBODY ? before : DISPUTED - before;
        if (generation[member] > generation[rival]) {
            owner[row] = member;
        } else if (generation[member] == generation[rival] && rival != member) {
            owner[row] = DISPUTED - rival;
        }
    }
}
