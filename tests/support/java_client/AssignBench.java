package evenlag.client;

import com.fasterxml.jackson.databind.JsonNode;
import evenlag.core.Audience;
import evenlag.core.HintTable;
import evenlag.core.Journal;
import evenlag.core.SigningKeys;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;

/** Times {@code assign} beside Kafka's cooperative-sticky, in turn, in one JVM. */
final class AssignBench {
    private final int numMembers;
    private final int numTopics;
    private final int partitionsPerTopic;
    private final List<List<String>> subscriptions = new ArrayList<>();
    private final Cluster cluster;

    private AssignBench(JsonNode question) {
        numMembers = question.get("members").asInt();
        numTopics = question.get("topics").asInt();
        partitionsPerTopic = question.get("partitions").asInt() / numTopics;
        String kind = question.get("subscriptions").asText();
        List<PartitionInfo> partitions = new ArrayList<>();
        Map<String, Uuid> ids = new HashMap<>();
        for (int topic = 0; topic < numTopics; topic++) {
            ids.put(name(topic), new Uuid(1, topic + 1L));
            for (int number = 0; number < partitionsPerTopic; number++) {
                partitions.add(new PartitionInfo(name(topic), number, null, new Node[0], new Node[0]));
            }
        }
        cluster = new Cluster("c", List.of(), partitions, Set.of(), Set.of(), Set.of(), null, ids);
        Random chance = new Random(24);
        for (int member = 0; member < numMembers; member++) {
            List<String> topics = new ArrayList<>();
            for (int topic = 0; topic < numTopics; topic++) {
                if (takes(kind, member, topic, chance)) {
                    topics.add(name(topic));
                }
            }
            subscriptions.add(topics);
        }
    }

    private boolean takes(String kind, int member, int topic, Random chance) {
        return switch (kind) {
            case "equal" -> true;
            // Three topics of ten by chance, and one at least.
            case "random" -> chance.nextInt(10) < 3 || topic == member % numTopics;
            // As the heterogeneous groups of Kafka's own benchmarks of assignors are meant.
            case "neighbours" -> topic == member % numTopics || topic == (member + 1) % numTopics;
            // While a deployment adds topics: a tenth of the members takes twice as many already.
            case "added" -> topic < numTopics / 2 || member % 10 == 0;
            default -> throw new IllegalArgumentException("subscriptions: " + kind);
        };
    }

    /** Returns the milliseconds of each run, by assignor; a run over the cap ends Kafka's series. */
    static Map<String, Object> run(JsonNode question) throws Exception {
        AssignBench bench = new AssignBench(question);
        boolean isFresh = question.get("fresh").asBoolean();
        HintTable table = new HintTable(
                1, Audience.consumersOf(Set.of("g")), SigningKeys.NONE, null, 1L << 40,
                new Journal("evenlag.client", "bench"));
        EvenlagAssignor ours = new EvenlagAssignor("g", () -> table, System::currentTimeMillis);
        // One member has gone, and one has come, since this was assigned.
        boolean isOwnedByOurs = question.get("owned_from").asText().equals("evenlag");
        ConsumerPartitionAssignor before = isOwnedByOurs ? ours : new CooperativeStickyAssignor();
        Map<String, List<TopicPartition>> owned = isFresh ? Map.of() : bench.owned(before);
        int runs = question.get("runs").asInt();
        long capMs = question.get("cap_ms").asLong();
        List<Double> oursMs = new ArrayList<>();
        List<Double> theirsMs = new ArrayList<>();
        ExecutorService executor = Executors.newSingleThreadExecutor(task -> {
            Thread thread = new Thread(task, "theirs");
            thread.setDaemon(true);
            return thread;
        });
        boolean isCapped = false;
        for (int run = 0; run < runs; run++) {
            oursMs.add(bench.time(ours, owned));
            if (!isCapped) {
                try {
                    theirsMs.add(executor
                            .submit(() -> bench.time(new CooperativeStickyAssignor(), owned))
                            .get(capMs, TimeUnit.MILLISECONDS));
                } catch (TimeoutException error) {
                    isCapped = true;
                } catch (ExecutionException error) {
                    throw new IllegalStateException(error.getCause());
                }
            }
        }
        executor.shutdownNow();
        return Map.of("ours_ms", oursMs, "theirs_ms", theirsMs, "is_capped", isCapped);
    }

    private Map<String, List<TopicPartition>> owned(ConsumerPartitionAssignor assignor) {
        Map<String, List<TopicPartition>> owned = new HashMap<>();
        assignor.assign(cluster, group(Map.of(), 0)).groupAssignment().forEach(
                (memberId, assignment) -> owned.put(memberId, assignment.partitions()));
        return owned;
    }

    private double time(ConsumerPartitionAssignor assignor, Map<String, List<TopicPartition>> owned) {
        GroupSubscription group = group(owned, owned.isEmpty() ? 0 : 1);
        long started = System.nanoTime();
        assignor.assign(cluster, group);
        return (System.nanoTime() - started) / 1e6;
    }

    /** Members from a number on: with 1, the first has gone, and another one has come. */
    private GroupSubscription group(Map<String, List<TopicPartition>> owned, int from) {
        Map<String, Subscription> members = new HashMap<>();
        for (int member = from; member < numMembers + from; member++) {
            String memberId = String.format("member-%05d", member);
            members.put(memberId, new Subscription(
                    subscriptions.get(member % numMembers), null,
                    new ArrayList<>(owned.getOrDefault(memberId, List.of())), 5, Optional.empty()));
        }
        return new GroupSubscription(members);
    }

    private static String name(int topic) {
        return String.format("topic-%04d", topic);
    }

}
