package evenlag.field;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Configurable;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * The assignor that KIP-169 proposes, for groups whose members all take the same topics.
 *
 * <p>Topic by topic, partitions go in descending order of their lag to the member with the fewest partitions of the
 * topic, of these to the one with the least lag. As in the proposal, nobody keeps partitions during a rebalance.
 */
public final class LagAssignor implements ConsumerPartitionAssignor, Configurable {
    private static final String SERVERS = "field.balancer.servers";

    private Map<String, Object> client = Map.of();
    private String groupId;

    /** Kafka makes assignors by this constructor. */
    public LagAssignor() {}

    @Override
    public void configure(Map<String, ?> configs) {
        client = Map.of("bootstrap.servers", configs.get(SERVERS));
        groupId = (String) configs.get("group.id");
    }

    @Override
    public String name() {
        return "kip-169";
    }

    @Override
    public GroupAssignment assign(Cluster metadata, GroupSubscription subscriptions) {
        Map<String, Assigned> members = new TreeMap<>();
        Map<String, List<TopicPartition>> topics = new TreeMap<>();
        subscriptions.groupSubscription().forEach((member, subscription) -> {
            members.put(member, new Assigned());
            for (String topic : subscription.topics()) {
                topics.computeIfAbsent(topic, name -> partitions(metadata, name));
            }
        });
        topics.values().forEach(partitions -> assign(members, partitions, lags(partitions)));
        Map<String, Assignment> assignments = new HashMap<>();
        members.forEach((member, assigned) -> assignments.put(member, new Assignment(assigned.partitions())));
        return new GroupAssignment(assignments);
    }

    private static List<TopicPartition> partitions(Cluster metadata, String topic) {
        List<TopicPartition> partitions = new ArrayList<>();
        for (PartitionInfo each : metadata.partitionsForTopic(topic)) {
            partitions.add(new TopicPartition(topic, each.partition()));
        }
        return partitions;
    }

    static void assign(Map<String, Assigned> members, List<TopicPartition> partitions, Map<TopicPartition, Long> lags) {
        members.values().forEach(Assigned::begin);
        List<TopicPartition> ordered = new ArrayList<>(partitions);
        ordered.sort(Comparator.comparing((TopicPartition each) -> -lags.get(each))
                .thenComparing(TopicPartition::partition));
        for (TopicPartition partition : ordered) {
            // Of equal members the first by id.
            members.values().stream()
                    .min(Comparator.comparing((Assigned each) -> each.count).thenComparing(each -> each.lag))
                    .orElseThrow()
                    .add(partition, lags.get(partition));
        }
    }

    private Map<TopicPartition, Long> lags(List<TopicPartition> partitions) {
        try (Admin admin = Admin.create(client)) {
            Map<TopicPartition, OffsetAndMetadata> committed =
                    admin.listConsumerGroupOffsets(groupId).partitionsToOffsetAndMetadata().get();
            Map<TopicPartition, ListOffsetsResultInfo> starts = offsets(admin, partitions, OffsetSpec.earliest());
            Map<TopicPartition, ListOffsetsResultInfo> ends = offsets(admin, partitions, OffsetSpec.latest());
            Map<TopicPartition, Long> lags = new HashMap<>();
            for (TopicPartition each : partitions) {
                OffsetAndMetadata offset = committed.get(each);
                long from = offset == null ? starts.get(each).offset() : offset.offset();
                lags.put(each, Math.max(0, ends.get(each).offset() - from));
            }
            return lags;
        } catch (ExecutionException error) {
            throw new IllegalStateException(error);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(error);
        }
    }

    private static Map<TopicPartition, ListOffsetsResultInfo> offsets(
            Admin admin, List<TopicPartition> partitions, OffsetSpec which)
            throws ExecutionException, InterruptedException {
        Map<TopicPartition, OffsetSpec> wanted = new HashMap<>();
        partitions.forEach(each -> wanted.put(each, which));
        return admin.listOffsets(wanted).all().get();
    }

    /** What a member has so far: of the topic in hand a count and lag, of all topics the partitions. */
    static final class Assigned {
        private final List<TopicPartition> partitions = new ArrayList<>();
        private int count;
        private long lag;

        List<TopicPartition> partitions() {
            return partitions;
        }

        private void begin() {
            count = 0;
            lag = 0;
        }

        private void add(TopicPartition partition, long more) {
            partitions.add(partition);
            count++;
            lag += more;
        }
    }
}
