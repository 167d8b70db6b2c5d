package evenlag.broker;

import com.fasterxml.jackson.databind.JsonNode;
import evenlag.core.Audience;
import evenlag.core.GroupView;
import evenlag.core.HintException;
import evenlag.core.HintTable;
import evenlag.core.HintWatcher;
import evenlag.core.Journal;
import evenlag.core.Reason;
import evenlag.core.SigningKeys;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/** Times the plug-in beside Kafka's uniform assignor, in turn, on a group that has its partitions already. */
final class Bench {
    private static final String GROUP = "group/bench";

    private final int numMembers;
    private final List<Uuid> topics = new ArrayList<>();
    private final int numPartitions;
    private final Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
    private final Map<Uuid, Map<Integer, String>> inverted = new HashMap<>();
    private final List<Map<Uuid, Set<Integer>>> held = new ArrayList<>();

    private Bench(int numMembers, int numTopics, int numPartitions) {
        this.numMembers = numMembers;
        this.numPartitions = numPartitions;
        for (int topic = 0; topic < numTopics; topic++) {
            topics.add(new Uuid(1, topic + 1L));
        }
        Set<Uuid> subscription = Set.copyOf(topics);
        for (int i = 0; i < numMembers; i++) {
            held.add(new HashMap<>());
        }
        for (int row = 0; row < numTopics * numPartitions; row++) {
            Uuid topic = topics.get(row / numPartitions);
            int member = row % numMembers;
            held.get(member).computeIfAbsent(topic, t -> new HashSet<>()).add(row % numPartitions);
            inverted.computeIfAbsent(topic, t -> new HashMap<>()).put(row % numPartitions, memberId(member));
        }
        for (int i = 0; i < numMembers; i++) {
            members.put(memberId(i), new MemberSubscriptionAndAssignmentImpl(
                    Optional.empty(), Optional.of("pod-" + i), subscription, new Assignment(held.get(i))));
        }
    }

    private static String memberId(int member) {
        return new Uuid(2, member).toString();
    }

    static Map<String, Object> run(JsonNode question) throws HintException {
        Bench bench = new Bench(
                question.get("members").asInt(),
                question.get("topics").asInt(),
                question.get("partitions").asInt());
        return bench.time(question.get("runs").asInt(), question.get("moves").asInt());
    }

    private Map<String, Object> time(int runs, int moves) throws HintException {
        GroupSpec spec = new GroupSpecImpl(members, SubscriptionType.HOMOGENEOUS, inverted);
        SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topicId) {
                return numPartitions;
            }

            @Override
            public Set<String> racksForPartition(Uuid topicId, int partition) {
                return Set.of();
            }
        };
        Journal journal = EvenlagAssignor.newJournal();
        HintTable table = new HintTable(1, Audience.broker(), SigningKeys.NONE, null, Long.MAX_VALUE, journal);
        byte[] record = record(BrokerGroup.of(spec, describer, null), moves);
        long started = System.nanoTime();
        table.apply(0, GROUP.getBytes(StandardCharsets.UTF_8), record, System.currentTimeMillis());
        final long decodeNs = System.nanoTime() - started;
        table.finishReading(null);
        HintTable empty = table.forget();
        UniformAssignor uniform = new UniformAssignor();
        Map<String, ConsumerGroupPartitionAssignor> rivals = new LinkedHashMap<>();
        rivals.put("uniform", uniform);
        rivals.put("followed", asAssignor(table, uniform, journal));
        rivals.put("no_hint", asAssignor(empty, uniform, journal));
        Map<String, List<Long>> times = new LinkedHashMap<>();
        for (int run = 0; run < runs; run++) {
            long first = System.nanoTime();
            GroupView group = BrokerGroup.of(spec, describer, null);
            group.fingerprint();
            times.computeIfAbsent("fingerprint", n -> new ArrayList<>()).add(System.nanoTime() - first);
            rivals.forEach((name, rival) -> {
                long start = System.nanoTime();
                GroupAssignment answer = rival.assign(spec, describer);
                long end = System.nanoTime();
                check(answer);
                times.computeIfAbsent(name, n -> new ArrayList<>()).add(end - start);
            });
        }
        if (journal.count(Reason.FOLLOWED) != runs) {
            throw new IllegalStateException("the hint was not followed each time");
        }
        return Map.of("times_ns", times, "decode_ns", decodeNs, "record_bytes", record.length,
                "hint_bytes", table.bytes());
    }

    private static ConsumerGroupPartitionAssignor asAssignor(
            HintTable table, ConsumerGroupPartitionAssignor fallback, Journal journal) {
        Decider decider = new Decider(
                () -> new HintWatcher.Knowledge(table, null), fallback, journal, System::currentTimeMillis,
                new AtomicLong());
        return new ConsumerGroupPartitionAssignor() {
            @Override
            public String name() {
                return "evenlag";
            }

            @Override
            public GroupAssignment assign(GroupSpec spec, SubscribedTopicDescriber describer) {
                return decider.assign(spec, describer);
            }
        };
    }

    private void check(GroupAssignment answer) {
        long count = 0;
        for (MemberAssignment member : answer.members().values()) {
            for (Set<Integer> numbers : member.partitions().values()) {
                count += numbers.size();
            }
        }
        if (count != (long) topics.size() * numPartitions) {
            throw new IllegalStateException("partitions are missing");
        }
    }

    /** A hint by which pairs of members swap partitions of the first topics: counts stay as they are. */
    private byte[] record(GroupView group, int moves) {
        List<Map<Uuid, Set<Integer>>> wanted = new ArrayList<>();
        held.forEach(partitions -> wanted.add(new HashMap<>(partitions)));
        for (int pair = 0; 2 * pair < moves; pair++) {
            Map<Uuid, Set<Integer>> one = wanted.get(2 * pair % numMembers);
            Map<Uuid, Set<Integer>> other = wanted.get((2 * pair + 1) % numMembers);
            Uuid topic = one.keySet().stream().filter(other::containsKey).sorted().findFirst().orElseThrow();
            Integer a = one.get(topic).iterator().next();
            Integer b = other.get(topic).iterator().next();
            one.put(topic, with(one.get(topic), a, b));
            other.put(topic, with(other.get(topic), b, a));
        }
        Map<String, Integer> order = new TreeMap<>();
        for (int i = 0; i < numMembers; i++) {
            order.put("i:pod-" + i, i);
        }
        StringBuilder assignment = new StringBuilder();
        StringBuilder ids = new StringBuilder();
        order.forEach((key, member) -> {
            assignment.append(assignment.length() == 0 ? "" : ",").append('"').append(key).append("\":{");
            StringBuilder parts = new StringBuilder();
            new TreeMap<>(texts(wanted.get(member))).forEach((topic, ranges) -> parts
                    .append(parts.length() == 0 ? "\"" : ",\"").append(topic).append("\":\"").append(ranges)
                    .append('"'));
            assignment.append(parts).append('}');
            ids.append(ids.length() == 0 ? "" : ",").append('"').append(key).append("\":\"");
            ids.append(memberId(member)).append('"');
        });
        String fingerprint =
                group.fingerprint();
        String head = "{\"expires_at_ms\":9000000000000,\"hmac\":null,\"issued_at_ms\":1,\"sequence\":1,"
                + "\"version\":1}\n";
        String payload = "{\"assignment\":{" + assignment + "},\"cluster_id\":\"c\",\"count_slack\":0,"
                + "\"fingerprint\":\"" + fingerprint + "\",\"group_id\":\"bench\",\"max_moves\":" + moves
                + ",\"member_ids\":{" + ids
                + "},\"snapshot_id\":\"s\"}";
        return (head + payload).getBytes(StandardCharsets.US_ASCII);
    }

    private static Set<Integer> with(Set<Integer> numbers, Integer without, Integer added) {
        Set<Integer> changed = new HashSet<>(numbers);
        changed.remove(without);
        changed.add(added);
        return changed;
    }

    private static Map<String, String> texts(Map<Uuid, Set<Integer>> partitions) {
        Map<String, String> texts = new HashMap<>();
        partitions.forEach((topic, numbers) -> {
            StringBuilder ranges = new StringBuilder();
            int[] sorted = numbers.stream().mapToInt(Integer::intValue).sorted().toArray();
            for (int i = 0; i < sorted.length; i++) {
                int first = i;
                while (i + 1 < sorted.length && sorted[i + 1] == sorted[i] + 1) {
                    i++;
                }
                ranges.append(ranges.length() == 0 ? "" : ",").append(sorted[first]);
                ranges.append(i == first ? "" : "-" + sorted[i]);
            }
            texts.put(topic.toString(), ranges.toString());
        });
        return texts;
    }
}
