package evenlag.broker;

import com.fasterxml.jackson.databind.JsonNode;
import evenlag.core.HintTable;
import evenlag.core.HintWatcher;
import evenlag.core.Journal;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BiFunction;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Random groups whose members join, leave, restart and change their topics, assigned at each step by the
 * plug-in and by Kafka's uniform assignor, each with its own earlier assignment.
 */
final class LikeUniform {
    private final Random random;
    private final boolean isHomogeneous;
    private final List<Uuid> topicIds = new ArrayList<>();
    private final Map<Uuid, Integer> topics = new HashMap<>();
    private final Map<String, Set<Uuid>> subscriptions = new LinkedHashMap<>();
    private final Map<String, String> instances = new HashMap<>();
    private int numMade;

    private LikeUniform(long seed) {
        // Random's first numbers are alike for seeds in a row.
        random = new Random(seed * 0x9E3779B97F4A7C15L);
        isHomogeneous = random.nextBoolean();
        for (int topic = 0; topic < 1 + random.nextInt(4); topic++) {
            topicIds.add(new Uuid(7, topic + 1L));
            topics.put(topicIds.get(topic), 1 + random.nextInt(random.nextInt(8) == 0 ? 60 : 12));
        }
        for (int member = 0; member < 1 + random.nextInt(8); member++) {
            join();
        }
    }

    /** Partitions by topic, by member. */
    private record Held(Map<String, Map<Uuid, Set<Integer>>> byMember) {
        Map<String, Integer> counts() {
            Map<String, Integer> counts = new TreeMap<>();
            byMember.forEach((id, mine) -> counts.put(id, mine.values().stream().mapToInt(Set::size).sum()));
            return counts;
        }

        /** Counts the partitions that leave the member that has them. */
        int movesTo(Held after) {
            int moves = 0;
            for (Map.Entry<String, Map<Uuid, Set<Integer>>> member : byMember.entrySet()) {
                Map<Uuid, Set<Integer>> mine = after.byMember.getOrDefault(member.getKey(), Map.of());
                for (Map.Entry<Uuid, Set<Integer>> topic : member.getValue().entrySet()) {
                    Set<Integer> kept = mine.getOrDefault(topic.getKey(), Set.of());
                    moves += (int) topic.getValue().stream().filter(n -> !kept.contains(n)).count();
                }
            }
            return moves;
        }
    }

    static Map<String, Object> run(JsonNode question, HintTable table, Uuid hintTopic, Journal journal) {
        boolean isUniform = question.get("fallback").asText().equals("uniform");
        Decider decider = new Decider(
                () -> new HintWatcher.Knowledge(table, hintTopic),
                isUniform ? new UniformAssignor() : new RangeAssignor(),
                journal, () -> question.get("now_ms").asLong(), new AtomicLong());
        Map<String, Integer> seen = new TreeMap<>();
        List<String> differences = new ArrayList<>();
        for (long seed = question.get("first").asLong(); seed < question.get("last").asLong(); seed++) {
            new LikeUniform(seed).compare(decider::assign, question.get("rounds").asInt(), seen)
                    .stream().map(("group " + seed)::concat).forEach(differences::add);
        }
        return Map.of("seen", seen, "num_different", differences.size(),
                "differences", differences.subList(0, Math.min(10, differences.size())));
    }

    private List<String> compare(
            BiFunction<GroupSpec, SubscribedTopicDescriber, GroupAssignment> plugIn, int rounds, Map<String, Integer> seen) {
        UniformAssignor uniform = new UniformAssignor();
        boolean isNew = random.nextBoolean();
        Held ours = isNew ? new Held(new HashMap<>()) : atRandom();
        Held kafkas = new Held(new HashMap<>(ours.byMember));
        List<String> differences = new ArrayList<>();
        for (int round = 0; round < rounds; round++) {
            String change = round == 0 ? "began" : change(List.of(ours, kafkas));
            Held oursAfter = assign(plugIn, ours);
            Held kafkasAfter = assign(uniform::assign, kafkas);
            int moves = kafkas.movesTo(kafkasAfter);
            if (!oursAfter.counts().equals(kafkasAfter.counts()) || ours.movesTo(oursAfter) != moves) {
                differences.add(" round " + round + ", " + change + ": " + oursAfter + ", not " + kafkasAfter);
            }
            boolean isEqual = new HashSet<>(subscriptions.values()).size() <= 1;
            seen.merge(change, 1, Integer::sum);
            seen.merge(isEqual ? "homogeneous" : "heterogeneous", 1, Integer::sum);
            seen.merge(moves > 0 ? "moved" : "stayed", 1, Integer::sum);
            ours = oursAfter;
            kafkas = kafkasAfter;
        }
        return differences;
    }

    private void join() {
        String id = "random-" + numMade++;
        subscriptions.put(id, isHomogeneous ? new LinkedHashSet<>(topicIds) : someTopics());
        if (random.nextBoolean()) {
            instances.put(id, "pod-" + numMade);
        }
    }

    private Set<Uuid> someTopics() {
        Set<Uuid> some = new LinkedHashSet<>();
        some.add(topicIds.get(random.nextInt(topicIds.size())));
        topicIds.stream().filter(topic -> random.nextInt(3) > 0).forEach(some::add);
        return some;
    }

    /** Owners of an earlier assignor: any subscriber, however uneven, and of some partitions none. */
    private Held atRandom() {
        Map<String, Map<Uuid, Set<Integer>>> held = new HashMap<>();
        topics.forEach((topic, count) -> {
            List<String> takers = new ArrayList<>(subscriptions.keySet());
            takers.removeIf(id -> !subscriptions.get(id).contains(topic));
            for (int number = 0; number < count && !takers.isEmpty(); number++) {
                if (random.nextInt(5) > 0) {
                    int taker = Math.min(random.nextInt(takers.size()), random.nextInt(takers.size()));
                    held.computeIfAbsent(takers.get(taker), id -> new HashMap<>())
                            .computeIfAbsent(topic, t -> new HashSet<>()).add(number);
                }
            }
        });
        return new Held(held);
    }

    /** Changes the group; what leaves or is renamed, leaves or is renamed in both assignments. */
    private String change(List<Held> assignments) {
        List<String> ids = new ArrayList<>(subscriptions.keySet());
        int chosen = random.nextInt(6);
        if (chosen < 2 || ids.isEmpty()) {
            for (int member = 0; member <= random.nextInt(3); member++) {
                join();
            }
            return "joined";
        }
        String id = ids.get(random.nextInt(ids.size()));
        if (chosen == 2) {
            forget(id, assignments);
            return "left";
        }
        if (chosen == 3 && instances.containsKey(id)) {
            restart(id, assignments);
            return "restarted";
        }
        if (chosen == 4) {
            topics.merge(topicIds.get(random.nextInt(topicIds.size())), 1 + random.nextInt(5), Integer::sum);
            return "grew";
        }
        if (!isHomogeneous) {
            subscriptions.put(id, someTopics());
            return "subscribed";
        }
        return "asked";
    }

    private void forget(String id, List<Held> assignments) {
        subscriptions.remove(id);
        instances.remove(id);
        assignments.forEach(held -> held.byMember.remove(id));
    }

    /** A static member comes back with another member id, and the coordinator gives it what it had. */
    private void restart(String id, List<Held> assignments) {
        String next = "random-" + numMade++;
        subscriptions.put(next, subscriptions.get(id));
        instances.put(next, instances.get(id));
        assignments.forEach(held -> held.byMember.put(next, held.byMember.getOrDefault(id, Map.of())));
        forget(id, assignments);
    }

    private Held assign(
            BiFunction<GroupSpec, SubscribedTopicDescriber, GroupAssignment> assignor, Held held) {
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> inverted = new HashMap<>();
        subscriptions.forEach((id, subscribed) -> {
            Map<Uuid, Set<Integer>> mine = held.byMember.getOrDefault(id, Map.of());
            Optional<String> instance = Optional.ofNullable(instances.get(id));
            members.put(id, new MemberSubscriptionAndAssignmentImpl(
                    Optional.empty(), instance, subscribed, new Assignment(mine)));
            mine.forEach((topic, numbers) -> numbers.forEach(
                    n -> inverted.computeIfAbsent(topic, t -> new HashMap<>()).put(n, id)));
        });
        SubscriptionType type = new HashSet<>(subscriptions.values()).size() > 1
                ? SubscriptionType.HETEROGENEOUS : SubscriptionType.HOMOGENEOUS;
        Map<String, MemberAssignment> answer =
                assignor.apply(new GroupSpecImpl(members, type, inverted), new Harness.Topics(topics)).members();
        Map<String, Map<Uuid, Set<Integer>>> copy = new HashMap<>();
        answer.forEach((id, assignment) -> {
            Map<Uuid, Set<Integer>> mine = new HashMap<>();
            assignment.partitions().forEach((topic, numbers) -> mine.put(topic, new HashSet<>(numbers)));
            copy.put(id, mine);
        });
        return new Held(copy);
    }
}
