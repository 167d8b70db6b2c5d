package evenlag.broker;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.Uuid;

/**
 * Keeps every partition with its owner, and assigns the free ones to the members with the fewest.
 *
 * <p>Used if an even assignment would undo a plan that the group follows: within the plan's slack, and until
 * the hint topic has been read.
 */
final class Keeping {
    static final long ANY_SLACK = Long.MAX_VALUE;

    /** Free partitions times members: above this, Kafka's assignor is faster, and little is kept anyway. */
    private static final long MAX_STEPS = 4_000_000;

    private final GroupView group;
    private final Map<Uuid, int[]> owners = new HashMap<>();
    private final int[] counts;
    private long numFree;

    private Keeping(GroupView group) {
        this.group = group;
        counts = new int[group.memberIds.size()];
        group.topics.forEach((topic, count) -> {
            int[] of = new int[count];
            Arrays.fill(of, -1);
            owners.put(topic, of);
            numFree += count;
        });
    }

    /**
     * Computes the assignment.
     *
     * @param countSlack as in a hint
     * @return what each member gets, in the group's order; null if that exceeds the slack, or if members
     *     own nothing yet and no slack is given: they wait for partitions
     */
    static List<Map<Uuid, Set<Integer>>> keep(GroupView group, long countSlack) {
        Keeping keeping = new Keeping(group);
        keeping.readCurrent();
        boolean isWaitedFor =
                countSlack == ANY_SLACK && Arrays.stream(keeping.counts).anyMatch(count -> count == 0);
        if (isWaitedFor || keeping.numFree * keeping.counts.length > MAX_STEPS) {
            return null;
        }
        keeping.placeFree();
        return keeping.answer(countSlack);
    }

    private void readCurrent() {
        for (int i = 0; i < counts.length; i++) {
            Set<Uuid> taken = group.subscriptions.get(i);
            for (Map.Entry<Uuid, Set<Integer>> held : group.current(i).partitions().entrySet()) {
                int[] of = owners.get(held.getKey());
                if (of != null && taken.contains(held.getKey())) {
                    for (int number : held.getValue()) {
                        claim(of, number, i);
                    }
                }
            }
        }
    }

    private void claim(int[] of, int number, int member) {
        if (number < of.length && of[number] < 0) {
            of[number] = member;
            counts[member]++;
            numFree--;
        }
    }

    private void placeFree() {
        if (numFree == 0) {
            return;
        }
        List<Uuid> topics = new ArrayList<>(owners.keySet());
        topics.sort(null);
        for (Uuid topic : topics) {
            int[] of = owners.get(topic);
            int[] takers = null;
            for (int number = 0; number < of.length; number++) {
                if (of[number] < 0) {
                    takers = takers == null ? takersOf(topic) : takers;
                    claim(of, number, leastOf(takers));
                }
            }
        }
    }

    private int[] takersOf(Uuid topic) {
        int[] takers = new int[counts.length];
        int size = 0;
        for (int i = 0; i < counts.length; i++) {
            if (group.subscriptions.get(i).contains(topic)) {
                takers[size++] = i;
            }
        }
        // By id, so that the answer does not depend on the order of the coordinator's map.
        return Arrays.stream(takers, 0, size)
                .boxed()
                .sorted((a, b) -> group.memberIds.get(a).compareTo(group.memberIds.get(b)))
                .mapToInt(Integer::intValue)
                .toArray();
    }

    private int leastOf(int[] takers) {
        int least = takers[0];
        for (int taker : takers) {
            least = counts[taker] < counts[least] ? taker : least;
        }
        return least;
    }

    private List<Map<Uuid, Set<Integer>>> answer(long countSlack) {
        List<Map<Uuid, Set<Integer>>> answer = new ArrayList<>(counts.length);
        for (int i = 0; i < counts.length; i++) {
            answer.add(new HashMap<>());
        }
        owners.forEach((topic, of) -> deal(topic, of, answer));
        long gap = Verifier.countGap(group, counts, member -> new HashSet<>(answer.get(member).keySet()));
        return countSlack == ANY_SLACK || gap - 2 < countSlack ? answer : null;
    }

    private void deal(Uuid topic, int[] of, List<Map<Uuid, Set<Integer>>> answer) {
        int[] sizes = new int[counts.length];
        for (int member : of) {
            sizes[member]++;
        }
        int[][] numbers = new int[counts.length][];
        Arrays.setAll(numbers, member -> new int[sizes[member]]);
        Arrays.fill(sizes, 0);
        for (int number = 0; number < of.length; number++) {
            numbers[of[number]][sizes[of[number]]++] = number;
        }
        for (int member = 0; member < numbers.length; member++) {
            if (numbers[member].length > 0) {
                answer.get(member).put(topic, new IntSet(numbers[member]));
            }
        }
    }
}
