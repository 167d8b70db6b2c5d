package evenlag.core;

import evenlag.core.place.LoadProblem;
import evenlag.core.place.PlaceByLoad;
import evenlag.core.place.Staying;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;

/**
 * Places a coordinator's group by load: names to numbers, and back.
 *
 * <p>Equal partition numbers of topics that stay together are placed as one row, a unit.
 */
public final class LoadPlacement {
    private static final int MAX_FURTHER = 2;

    private final GroupView group;
    private final Loads loads;
    /** The members by id in UTF-16 order, and the topics by the text of their ids. */
    private final Integer[] members;
    private final List<Uuid> topics;
    private final Map<Uuid, Integer> numbers = new HashMap<>();
    private final int[] firstRow;
    /** The first topic that each topic stays with, itself without any. */
    private final int[] firstTopic;
    /** The unit of each row, and the topic of each unit. */
    private final int[] unitOf;
    private final int[] topicOf;
    private int rowsPerUnit = 1;

    private LoadPlacement(GroupView group, Loads loads) {
        this.group = group;
        this.loads = loads;
        members = new Integer[group.memberIds().size()];
        Arrays.setAll(members, i -> i);
        Arrays.sort(members, (a, b) -> group.memberIds().get(a).compareTo(group.memberIds().get(b)));
        Map<Uuid, String> texts = new HashMap<>();
        group.topics().keySet().forEach(topic -> texts.put(topic, topic.toString()));
        topics = new ArrayList<>(group.topics().keySet());
        topics.sort((a, b) -> texts.get(a).compareTo(texts.get(b)));
        firstRow = new int[topics.size() + 1];
        for (int topic = 0; topic < topics.size(); topic++) {
            numbers.put(topics.get(topic), topic);
            firstRow[topic + 1] = firstRow[topic] + group.topics().get(topics.get(topic));
        }
        firstTopic = new int[topics.size()];
        Arrays.setAll(firstTopic, topic -> topic);
        if (loads != null) {
            loads.together().forEach(this::unite);
        }
        unitOf = new int[firstRow[topics.size()]];
        int[] firstUnit = new int[topics.size()];
        int numUnits = 0;
        for (int topic = 0; topic < topics.size(); topic++) {
            boolean isFirst = firstTopic[topic] == topic;
            firstUnit[topic] = isFirst ? numUnits : firstUnit[firstTopic[topic]];
            for (int row = firstRow[topic]; row < firstRow[topic + 1]; row++) {
                unitOf[row] = firstUnit[topic] + row - firstRow[topic];
            }
            numUnits += isFirst ? firstRow[topic + 1] - firstRow[topic] : 0;
        }
        topicOf = new int[numUnits];
        for (int topic = 0; topic < topics.size(); topic++) {
            int number = firstTopic[topic];
            Arrays.fill(topicOf, firstUnit[topic], firstUnit[topic] + firstRow[topic + 1] - firstRow[topic], number);
        }
    }

    /** Makes topics stay together that can; the list ascends, as the topics do. */
    private void unite(List<Uuid> listed) {
        List<Uuid> known = listed.stream().filter(topic -> group.topics().getOrDefault(topic, 0) > 0).toList();
        if (known.size() > 1 && known.stream().allMatch(topic -> group.areAlike(known.get(0), topic))) {
            known.forEach(topic -> firstTopic[numbers.get(topic)] = numbers.get(known.get(0)));
            rowsPerUnit = Math.max(rowsPerUnit, known.size());
        }
    }

    /**
     * What a group gets.
     *
     * @param members partitions of each member, in the group's order
     * @param isUneven whether the count rule is broken, and placing again could repair it
     */
    public record Placed(List<Map<Uuid, Set<Integer>>> members, boolean isUneven) {}

    /**
     * Computes the assignment.
     *
     * @param loads null if all partitions weigh the same, and owned ones should stay
     * @return null if the group is too large
     */
    public static Placed place(GroupView group, Loads loads) {
        // The leader of a classic group asks for further rebalances; here they are the same call.
        return place(group, loads, MAX_FURTHER);
    }

    /** Computes the assignment, and places again at most so often if it is uneven. */
    public static Placed place(GroupView group, Loads loads, int maxFurther) {
        long numRows = group.topics().values().stream().mapToLong(Integer::longValue).sum();
        if (numRows > LoadProblem.MAX_ROWS || group.memberIds().isEmpty()) {
            return null;
        }
        LoadPlacement placement = new LoadPlacement(group, loads);
        LoadProblem problem = placement.problem(placement.ownersOfUnits());
        if (loads == null) {
            return new Placed(placement.answer(Staying.place(problem)), false);
        }
        PlaceByLoad.Placement placed = PlaceByLoad.place(problem);
        for (int further = 0; further < maxFurther && placed.isUneven(); further++) {
            placed = PlaceByLoad.place(placement.problem(placed.target()));
        }
        return new Placed(placement.answer(placed.target()), placed.isUneven());
    }

    private LoadProblem problem(int[] owners) {
        int[] capacities = new int[members.length];
        int[] classOf = new int[members.length];
        Map<Set<Uuid>, Integer> classes = new HashMap<>();
        for (int rank = 0; rank < members.length; rank++) {
            capacities[rank] = capacity(group.keys().get(members[rank]));
            if (!group.isHomogeneous()) {
                Set<Uuid> taken = group.subscriptions().get(members[rank]);
                classOf[rank] = classes.computeIfAbsent(taken, set -> classes.size());
            }
        }
        if (group.isHomogeneous()) {
            classes.put(group.subscriptions().get(0), 0);
        }
        BitSet[] topicsOfClass = new BitSet[classes.size()];
        classes.forEach((taken, number) -> {
            topicsOfClass[number] = new BitSet();
            for (int topic = 0; topic < topics.size(); topic++) {
                topicsOfClass[number].set(topic, taken.contains(topics.get(topic)));
            }
        });
        return new LoadProblem(
                capacities, classOf, topicsOfClass, topics.size(), topicOf, loadsOfUnits(), owners,
                loads == null ? 0 : loads.countSlack(), loads == null ? 0 : loads.maxMoves() / rowsPerUnit,
                racks());
    }

    /** Returns who reads what across racks; null if that is not known. */
    private LoadProblem.Racks racks() {
        if (loads == null || loads.racks() == null) {
            return null;
        }
        List<Set<String>> sets = loads.racks().sets();
        boolean[][] isFar = new boolean[sets.size() + 1][members.length];
        for (int rank = 0; rank < members.length; rank++) {
            String rack = group.racks().get(members[rank]);
            for (int set = 0; set < sets.size(); set++) {
                isFar[set][rank] = rack != null && !rack.isEmpty() && !sets.get(set).contains(rack);
            }
        }
        int[] setOf = new int[topicOf.length];
        Arrays.fill(setOf, sets.size());
        int[] numTopics = new int[topics.size()];
        Arrays.stream(firstTopic).forEach(first -> numTopics[first]++);
        for (int topic = 0; topic < topics.size(); topic++) {
            if (numTopics[firstTopic[topic]] > 1) {
                continue; // it is not known where all partitions of a unit can be read
            }
            int[] known = loads.racks().topics().getOrDefault(topics.get(topic), new int[0]);
            for (int number = 0; number < known.length && firstRow[topic] + number < firstRow[topic + 1]; number++) {
                setOf[unitOf[firstRow[topic] + number]] = known[number] < 0 ? sets.size() : known[number];
            }
        }
        return new LoadProblem.Racks(isFar, setOf, loads.racks().tolerance());
    }

    private int capacity(String key) {
        return loads == null ? 1 : loads.capacities().getOrDefault(key, loads.defaultCapacity());
    }

    /** Returns the member that holds each row, by the coordinator's target. */
    private int[] owners() {
        int[] owners = new int[firstRow[topics.size()]];
        Arrays.fill(owners, -1);
        for (int rank = 0; rank < members.length; rank++) {
            for (Map.Entry<Uuid, Set<Integer>> held : group.owned(members[rank]).entrySet()) {
                Integer topic = numbers.get(held.getKey());
                boolean isTaken = topic != null
                        && group.subscriptions().get(members[rank]).contains(held.getKey());
                if (isTaken) {
                    for (int number : held.getValue()) {
                        int row = firstRow[topic] + number;
                        if (row < firstRow[topic + 1]) {
                            owners[row] = rank;
                        }
                    }
                }
            }
        }
        return owners;
    }

    /** Returns who holds each unit: of several members the one with most of its load, then of its rows. */
    private int[] ownersOfUnits() {
        int[] owners = owners();
        if (rowsPerUnit == 1) {
            return owners;
        }
        long[] weights = loadsOfRows();
        Map<Long, long[]> held = new TreeMap<>(); // load and rows, by unit and member
        for (int row = 0; row < owners.length; row++) {
            if (owners[row] >= 0) {
                long[] share = held.computeIfAbsent((long) unitOf[row] << Integer.SIZE | owners[row], at -> new long[2]);
                share[0] += weights[row];
                share[1]++;
            }
        }
        int[] best = new int[topicOf.length];
        Arrays.fill(best, -1);
        long[][] most = new long[topicOf.length][];
        held.forEach((at, share) -> {
            int unit = (int) (at >> Integer.SIZE);
            if (most[unit] == null || Arrays.compare(share, most[unit]) > 0) {
                most[unit] = share;
                best[unit] = at.intValue();
            }
        });
        return best;
    }

    private long[] loadsOfUnits() {
        long[] rows = loadsOfRows();
        if (rowsPerUnit == 1) {
            return rows;
        }
        long[] units = new long[topicOf.length];
        for (int row = 0; row < rows.length; row++) {
            units[unitOf[row]] = Math.min(Integer.MAX_VALUE, units[unitOf[row]] + rows[row]);
        }
        return units;
    }

    private long[] loadsOfRows() {
        long[] rows = new long[firstRow[topics.size()]];
        if (loads == null) {
            Arrays.fill(rows, 1);
            return rows;
        }
        long otherwise = mean(loads.loads().values());
        for (int topic = 0; topic < topics.size(); topic++) {
            int[] known = loads.loads().getOrDefault(topics.get(topic), new int[0]);
            boolean isMeasured = Arrays.stream(known).anyMatch(load -> load != Loads.UNKNOWN);
            long mean = isMeasured ? mean(List.of(known)) : otherwise;
            for (int row = firstRow[topic]; row < firstRow[topic + 1]; row++) {
                int number = row - firstRow[topic];
                boolean isKnown = number < known.length && known[number] != Loads.UNKNOWN;
                rows[row] = isKnown ? known[number] : mean;
            }
        }
        return rows;
    }

    /** Returns the mean of the known loads, rounded down; 0 if there are none. */
    private static long mean(Iterable<int[]> loads) {
        long sum = 0;
        long count = 0;
        for (int[] each : loads) {
            for (int load : each) {
                sum += load == Loads.UNKNOWN ? 0 : load;
                count += load == Loads.UNKNOWN ? 0 : 1;
            }
        }
        return count == 0 ? 0 : sum / count;
    }

    private List<Map<Uuid, Set<Integer>>> answer(int[] target) {
        List<Map<Uuid, Set<Integer>>> answer = new ArrayList<>(members.length);
        for (int i = 0; i < members.length; i++) {
            answer.add(new HashMap<>());
        }
        int[] sizes = new int[members.length];
        int[][] parts = new int[members.length][];
        for (int topic = 0; topic < topics.size(); topic++) {
            Arrays.fill(sizes, 0);
            for (int row = firstRow[topic]; row < firstRow[topic + 1]; row++) {
                sizes[target[unitOf[row]]]++;
            }
            for (int rank = 0; rank < sizes.length; rank++) {
                parts[rank] = new int[sizes[rank]];
            }
            Arrays.fill(sizes, 0);
            for (int row = firstRow[topic]; row < firstRow[topic + 1]; row++) {
                int rank = target[unitOf[row]];
                parts[rank][sizes[rank]++] = row - firstRow[topic];
            }
            for (int rank = 0; rank < sizes.length; rank++) {
                if (sizes[rank] > 0) {
                    answer.get(members[rank]).put(topics.get(topic), Spans.of(parts[rank]));
                }
            }
        }
        return answer;
    }
}
