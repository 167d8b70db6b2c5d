package evenlag.field;

import com.fasterxml.jackson.databind.JsonNode;
import evenlag.sandbox.EventFile;
import java.io.IOException;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A pod with a consumer of the classic protocol.
 *
 * <p>It commits processed records about every second without waiting, and before it gives up their partition: a
 * planned move neither loses nor repeats a record. The leader asks for a rebalance as often as the specification
 * says.
 */
final class ClassicPod extends Pod implements ConsumerRebalanceListener {
    private static final long COMMIT_EVERY_NS = 1_000_000_000L;

    private final long rebalanceEveryNs;
    private final Leadership leadership = new Leadership();
    /** The next offsets of what was processed and is not committed. */
    private final Map<TopicPartition, OffsetAndMetadata> processed = new HashMap<>();
    private KafkaConsumer<byte[], byte[]> consumer;

    ClassicPod(JsonNode spec, JsonNode pod) throws IOException {
        super(spec, pod);
        rebalanceEveryNs = Math.round(1e9 * spec.get("rebalance_every_s").asDouble());
        configs.put("partition.assignment.strategy", MeteredAssignor.class.getName());
        configs.put(MeteredAssignor.EVENTS, events);
        configs.put(MeteredAssignor.LEADERSHIP, leadership);
    }

    @Override
    void consume() {
        processed.clear();
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> opened = new KafkaConsumer<>(configs, bytes, bytes)) {
            consumer = opened;
            consumer.subscribe(List.of(topic), this);
            long committed = System.nanoTime();
            while (!isStopping()) {
                if (rebalanceEveryNs > 0 && leadership.isOlderThan(rebalanceEveryNs)) {
                    consumer.enforceRebalance("the interval has passed");
                }
                process(consumer.poll(POLL));
                if (System.nanoTime() - committed > COMMIT_EVERY_NS) {
                    committed = System.nanoTime();
                    commitSoon();
                }
            }
            // Leaving revokes all partitions, as a rebalance does; a static member keeps them for its session.
            commit(Map.copyOf(processed));
        }
    }

    private void process(ConsumerRecords<byte[], byte[]> batch) {
        polled(batch);
        for (ConsumerRecord<byte[], byte[]> record : batch) {
            if (isStopping()) {
                return;
            }
            work(record);
            TopicPartition partition = new TopicPartition(record.topic(), record.partition());
            processed.put(partition, new OffsetAndMetadata(record.offset() + 1));
        }
    }

    private void commitSoon() {
        if (!processed.isEmpty()) {
            consumer.commitAsync(Map.copyOf(processed), (offsets, error) -> {
                if (error == null) {
                    // What was processed meanwhile is still to be committed.
                    offsets.forEach(processed::remove);
                }
            });
        }
    }

    private void commit(Map<TopicPartition, OffsetAndMetadata> offsets) {
        if (offsets.isEmpty()) {
            return;
        }
        try {
            consumer.commitSync(offsets);
        } catch (KafkaException error) {
            events.write("commit_failed", Map.of("error", error.toString()));
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
        log("assigned", assigned);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
        Map<TopicPartition, OffsetAndMetadata> done = new HashMap<>(processed);
        done.keySet().retainAll(revoked);
        commit(done);
        processed.keySet().removeAll(revoked);
        log("revoked", revoked);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> lost) {
        processed.keySet().removeAll(lost);
        log("lost", lost);
    }

    private void log(String event, Collection<TopicPartition> partitions) {
        int generation = consumer.groupMetadata().generationId();
        events.write(event, Map.of("partitions", EventFile.pairs(partitions), "generation", generation));
    }
}
