package evenlag.client;

import com.fasterxml.jackson.databind.JsonNode;
import evenlag.core.Audience;
import evenlag.core.HintTable;
import evenlag.core.Journal;
import evenlag.core.SigningKeys;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;

/**
 * Times {@code assign} beside Kafka's cooperative-sticky in one JVM.
 *
 * <p>The members' joins are decoded from bytes for each run, as a leader does, before the time is taken.
 */
final class AssignBench {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

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

    /** The runs of one assignor: milliseconds by the clock, and of them those on a processor. */
    private static final class Series {
        final List<Double> wallMs = new ArrayList<>();
        final List<Double> cpuMs = new ArrayList<>();
    }

    /**
     * Returns the milliseconds of each run, by assignor; a run over the cap ends Kafka's series.
     *
     * <p>Each assignor runs alone first, so that the JVM compiles it, then both run in turn.
     */
    static Map<String, Object> run(JsonNode question) throws Exception {
        AssignBench bench = new AssignBench(question);
        HintTable table = new HintTable(
                1, Audience.consumersOf(Set.of("g")), SigningKeys.NONE, null, 1L << 40,
                new Journal("evenlag.client", "bench"));
        table.finishReading(null); // the hint topic is read, and has nothing for the group
        EvenlagAssignor ours = new EvenlagAssignor("g", () -> table, System::currentTimeMillis);
        ConsumerPartitionAssignor before =
                question.get("owned_from").asText().equals("evenlag") ? ours : new CooperativeStickyAssignor();
        // One member has gone, and one has come, since this was assigned.
        Map<String, byte[]> joins = question.get("fresh").asBoolean()
                ? bench.joins(Map.of(), 0)
                : bench.joins(bench.owned(before), 1);
        int runs = question.get("runs").asInt();
        int warmUpRuns = question.get("warm_up_runs").asInt();
        long warmUpNs = TimeUnit.MILLISECONDS.toNanos(question.get("warm_up_ms").asLong());
        long capMs = question.get("cap_ms").asLong();
        Series oursRuns = new Series();
        Series theirsRuns = new Series();
        Callable<Void> oursOnce = () -> bench.time(ours, joins, oursRuns);
        Callable<Void> theirsOnce = () -> bench.time(new CooperativeStickyAssignor(), joins, theirsRuns);
        ExecutorService executor = Executors.newSingleThreadExecutor(task -> {
            Thread thread = new Thread(task, "assigns");
            thread.setDaemon(true);
            return thread;
        });
        boolean isCapped = false;
        for (Callable<Void> once : List.of(oursOnce, theirsOnce)) {
            long end = System.nanoTime() + warmUpNs;
            for (int run = 0; run < warmUpRuns && !isCapped && System.nanoTime() < end; run++) {
                isCapped = isTooSlow(executor, once, capMs);
            }
        }
        int warmUpOfOurs = oursRuns.wallMs.size();
        int warmUpOfTheirs = theirsRuns.wallMs.size();
        for (int run = 0; run < runs; run++) {
            oursOnce.call();
            isCapped = isCapped || isTooSlow(executor, theirsOnce, capMs);
        }
        executor.shutdownNow();
        return Map.of(
                "ours_ms", rest(oursRuns.wallMs, warmUpOfOurs),
                "ours_cpu_ms", rest(oursRuns.cpuMs, warmUpOfOurs),
                "theirs_ms", rest(theirsRuns.wallMs, warmUpOfTheirs),
                "theirs_cpu_ms", rest(theirsRuns.cpuMs, warmUpOfTheirs),
                "is_capped", isCapped);
    }

    private static List<Double> rest(List<Double> values, int from) {
        return List.copyOf(values.subList(from, values.size()));
    }

    private static boolean isTooSlow(ExecutorService executor, Callable<Void> once, long capMs) throws Exception {
        try {
            executor.submit(once).get(capMs, TimeUnit.MILLISECONDS);
            return false;
        } catch (TimeoutException error) {
            return true;
        }
    }

    private Map<String, List<TopicPartition>> owned(ConsumerPartitionAssignor assignor) {
        Map<String, List<TopicPartition>> owned = new HashMap<>();
        assignor.assign(cluster, decoded(joins(Map.of(), 0))).groupAssignment().forEach(
                (memberId, assignment) -> owned.put(memberId, assignment.partitions()));
        return owned;
    }

    private Void time(ConsumerPartitionAssignor assignor, Map<String, byte[]> joins, Series series) {
        GroupSubscription group = decoded(joins);
        long startedCpu = THREADS.getCurrentThreadCpuTime();
        long started = System.nanoTime();
        assignor.assign(cluster, group);
        series.wallMs.add((System.nanoTime() - started) / 1e6);
        series.cpuMs.add((THREADS.getCurrentThreadCpuTime() - startedCpu) / 1e6);
        return null;
    }

    /** Returns what the members send, from a number on: with 1, the first has gone, and another one has come. */
    private Map<String, byte[]> joins(Map<String, List<TopicPartition>> owned, int from) {
        Map<String, byte[]> joins = new HashMap<>();
        for (int member = from; member < numMembers + from; member++) {
            String memberId = String.format("member-%05d", member);
            ByteBuffer sent = ConsumerProtocol.serializeSubscription(new Subscription(
                    subscriptions.get(member % numMembers), null,
                    owned.getOrDefault(memberId, List.of()), 5, Optional.empty()));
            byte[] bytes = new byte[sent.remaining()];
            sent.get(bytes);
            joins.put(memberId, bytes);
        }
        return joins;
    }

    /** Returns the group as the leader's client hands it in: no string was ever seen before. */
    private static GroupSubscription decoded(Map<String, byte[]> joins) {
        Map<String, Subscription> members = new HashMap<>();
        joins.forEach((memberId, sent) -> members.put(
                new String(memberId.toCharArray()), ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(sent))));
        return new GroupSubscription(members);
    }

    private static String name(int topic) {
        return String.format("topic-%04d", topic);
    }
}
