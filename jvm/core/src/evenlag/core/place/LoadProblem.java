package evenlag.core.place;

import java.util.Arrays;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.IntPredicate;
import java.util.stream.IntStream;

/**
 * A group whose partitions are to be placed by load: plain numbers, no names.
 *
 * <p>Members are in the order of their ids in UTF-16, topics in the order of their ids' texts, and rows, the
 * partitions, by topic and number. Members with equal subscriptions are of one class.
 */
public final class LoadProblem {
    /** A larger group is not placed by load. */
    public static final int MAX_ROWS = 2_000_000;

    static final int NOBODY = -1;

    final int[] capacities;
    final int[] topicOf;
    final long[] loads;
    /** The member that holds a row and takes its topic, or {@link #NOBODY}. */
    final int[] owners;
    final long slack;
    final long maxMoves;
    /** Who reads what across racks; null if nobody does. */
    final Racks racks;
    final int numTopics;
    /** The members that take each topic, ascending. */
    final int[][] takers;
    /** A number for each topic, equal for topics with the same takers. */
    final int[] kindOf;
    final int[] classOf;
    final BitSet[] topicsOfClass;
    /** The classes that take each topic. */
    final int[][] classesOf;
    /** Of each class: rows that it takes, members that take any of these, their capacity, the rows' load. */
    final int[] rowsOfClass;
    final int[] rivalsOfClass;
    final long[] capacityOfClass;
    final long[] loadOfClass;

    /**
     * Who reads what across racks.
     *
     * @param isFar by set of racks and member; the last set is unknown, and near to all
     * @param setOf the set of each row
     * @param tolerance by how many thousandths of the mean a member may be above it for near rows
     */
    public record Racks(boolean[][] isFar, int[] setOf, int tolerance) {}

    /**
     * Makes a problem; takes ownership of the arrays.
     *
     * @param capacities of each member, from 1 on
     * @param classOf of each member
     * @param topicsOfClass the topics that the members of a class take
     * @param numTopics number of topics
     * @param topicOf of each row, ascending
     * @param loads of each row, from 0 to 2^31 - 1; together at most 2^53
     * @param owners of each row; a member that does not take the topic counts as nobody
     * @param slack by how much counts may differ beyond one
     * @param maxMoves how many rows may leave their owners, unless members are empty
     * @param racks null if none are known
     */
    public LoadProblem(
            int[] capacities,
            int[] classOf,
            BitSet[] topicsOfClass,
            int numTopics,
            int[] topicOf,
            long[] loads,
            int[] owners,
            int slack,
            int maxMoves,
            Racks racks) {
        this.capacities = capacities;
        this.classOf = classOf;
        this.topicsOfClass = topicsOfClass;
        this.numTopics = numTopics;
        this.topicOf = topicOf;
        this.loads = loads;
        this.owners = owners;
        this.slack = slack;
        this.maxMoves = maxMoves;
        int numClasses = topicsOfClass.length;
        classesOf = new int[numTopics][];
        takers = new int[numTopics][];
        kindOf = new int[numTopics];
        Map<List<Integer>, Integer> kinds = new HashMap<>();
        for (int topic = 0; topic < numTopics; topic++) {
            final int each = topic;
            classesOf[topic] = numbers(numClasses, c -> topicsOfClass[c].get(each));
            List<Integer> classes = Arrays.stream(classesOf[topic]).boxed().toList();
            kindOf[topic] = kinds.computeIfAbsent(classes, same -> kinds.size());
            boolean isAll = topic > 0 && classesOf[topic].length == numClasses
                    && classesOf[topic - 1].length == numClasses;
            takers[topic] = isAll
                    ? takers[topic - 1]
                    : numbers(capacities.length, m -> topicsOfClass[classOf[m]].get(each));
        }
        for (int row = 0; row < owners.length; row++) {
            if (owners[row] >= 0 && !takes(owners[row], topicOf[row])) {
                owners[row] = NOBODY;
            }
        }
        rowsOfClass = new int[numClasses];
        rivalsOfClass = new int[numClasses];
        capacityOfClass = new long[numClasses];
        loadOfClass = new long[numClasses];
        countShares();
        this.racks = racks != null && isAnybodyFar(racks) ? racks : null;
    }

    private boolean isAnybodyFar(Racks racks) {
        boolean[] isUsed = new boolean[racks.isFar.length];
        for (int row = 0; row < owners.length; row++) {
            isUsed[racks.setOf[row]] |= isEligible(row);
        }
        return IntStream.range(0, isUsed.length)
                .anyMatch(set -> isUsed[set] && numbers(numMembers(), m -> racks.isFar[set][m]).length > 0);
    }

    boolean isFar(int row, int member) {
        return racks != null && racks.isFar[racks.setOf[row]][member];
    }

    int numMembers() {
        return capacities.length;
    }

    int numRows() {
        return owners.length;
    }

    boolean takes(int member, int topic) {
        return topicsOfClass[classOf[member]].get(topic);
    }

    /** Whether somebody takes a row. */
    boolean isEligible(int row) {
        return takers[topicOf[row]].length > 0;
    }

    /** Sorts rows by load and number, the lightest or the heaviest first. */
    int[] byLoad(int[] rows, boolean isDescending) {
        long[] keys = new long[rows.length];
        for (int i = 0; i < rows.length; i++) {
            long load = isDescending ? Integer.MAX_VALUE - loads[rows[i]] : loads[rows[i]];
            keys[i] = load << Integer.SIZE | rows[i];
        }
        Arrays.sort(keys);
        int[] sorted = new int[rows.length];
        Arrays.setAll(sorted, i -> (int) keys[i]);
        return sorted;
    }

    private void countShares() {
        int[] rows = new int[numTopics];
        long[] sums = new long[numTopics];
        for (int row = 0; row < topicOf.length; row++) {
            rows[topicOf[row]]++;
            sums[topicOf[row]] += loads[row];
        }
        for (int c = 0; c < topicsOfClass.length; c++) {
            BitSet rivals = new BitSet();
            BitSet topics = topicsOfClass[c];
            for (int topic = topics.nextSetBit(0); topic >= 0; topic = topics.nextSetBit(topic + 1)) {
                rowsOfClass[c] += rows[topic];
                loadOfClass[c] += sums[topic];
                for (int other : rows[topic] == 0 ? new int[0] : classesOf[topic]) {
                    rivals.set(other);
                }
            }
            for (int member = 0; member < classOf.length; member++) {
                if (rivals.get(classOf[member])) {
                    rivalsOfClass[c]++;
                    capacityOfClass[c] += capacities[member];
                }
            }
        }
    }

    private static int[] numbers(int end, IntPredicate isWanted) {
        return IntStream.range(0, end).filter(isWanted).toArray();
    }
}
