package evenlag.sandbox;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import evenlag.client.EvenlagRebalancer;
import java.io.File;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
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
 * A consumer of Kafka's Java client with a limited speed, which notes all that it does.
 *
 * <p>It has the configuration, the events and the behaviour of {@code sandbox.workload.consumer}: it commits only
 * processed records, after every batch and again for revoked partitions, so a planned move neither loses nor
 * repeats a record. SIGTERM ends it in good order.
 */
public final class JavaConsumer implements ConsumerRebalanceListener {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long COUNT_EVERY_NS = 1_000_000_000L;

    private final EventFile events;
    private final HintCounts counts;
    private final double recordsPerS;
    private final long listenerDelayMs;
    private final boolean asks;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final List<String> topics = new ArrayList<>();
    /** The next offsets of what was processed and is not committed. */
    private final Map<TopicPartition, OffsetAndMetadata> processed = new HashMap<>();
    private final Object stop = new Object();
    private boolean isStopping;

    private JavaConsumer(JsonNode spec) throws IOException {
        events = new EventFile(new File(spec.get("log_file").asText()), spec.get("name").asText());
        NotingAssignor.events = events;
        counts = new HintCounts(events, spec.get("group_id").asText());
        recordsPerS = spec.get("records_per_s").asDouble();
        listenerDelayMs = Math.round(1000 * spec.get("listener_delay_s").asDouble());
        asks = spec.get("asks").asBoolean();
        spec.get("topics").forEach(topic -> topics.add(topic.asText()));
        events.write("started", Map.of("spec", Map.of("records_per_s", recordsPerS)));
        Map<String, Object> configs = new HashMap<>();
        spec.get("configs").properties().forEach(each -> configs.put(each.getKey(), each.getValue().asText()));
        consumer = new KafkaConsumer<>(configs, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        NotingAssignor.consumer = consumer;
    }

    public static void main(String[] arguments) throws IOException {
        JavaConsumer worker = new JavaConsumer(new ObjectMapper().readTree(new File(arguments[0])));
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> worker.stop(main)));
        worker.run();
    }

    /** Lets the current batch end, and waits for that: the JVM ends with its shutdown hooks. */
    private void stop(Thread main) {
        synchronized (stop) {
            isStopping = true;
            stop.notifyAll();
        }
        try {
            main.join();
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private boolean isStopping() {
        synchronized (stop) {
            return isStopping;
        }
    }

    private void run() {
        consumer.subscribe(topics, this);
        long counted = System.nanoTime();
        while (!isStopping()) {
            if (asks && EvenlagRebalancer.maybeRebalance(consumer)) {
                events.write("hint", Map.of("reason", "ASKED"));
            }
            ConsumerRecords<byte[], byte[]> batch = consumer.poll(POLL);
            int generation = consumer.groupMetadata().generationId();
            for (TopicPartition partition : batch.partitions()) {
                process(partition, batch.records(partition), generation);
            }
            commit(Map.copyOf(processed));
            if (System.nanoTime() - counted > COUNT_EVERY_NS) {
                counted = System.nanoTime();
                counts.write();
            }
        }
        // Revokes all partitions first, as a rebalance would.
        consumer.close();
        counts.write();
        events.write("closed", Map.of());
    }

    /** Takes as long as this many records need, and notes them as ranges of offsets. */
    private void process(TopicPartition partition, List<ConsumerRecord<byte[], byte[]>> records, int generation) {
        pause(Math.round(1000 * records.size() / recordsPerS));
        long first = records.get(0).offset();
        long last = first;
        for (ConsumerRecord<byte[], byte[]> record : records) {
            if (record.offset() > last + 1) {
                note(partition, first, last, generation);
                first = record.offset();
            }
            last = record.offset();
        }
        note(partition, first, last, generation);
        processed.put(partition, new OffsetAndMetadata(last + 1));
    }

    private void note(TopicPartition partition, long first, long last, int generation) {
        events.write("processed", Map.of(
                "topic", partition.topic(), "partition", partition.partition(),
                "first", first, "last", last, "generation", generation));
    }

    private void pause(long millis) {
        long end = System.nanoTime() + millis * 1_000_000;
        synchronized (stop) {
            for (long left = millis; left > 0 && !isStopping; left = (end - System.nanoTime()) / 1_000_000) {
                try {
                    stop.wait(left);
                } catch (InterruptedException error) {
                    Thread.currentThread().interrupt();
                    return;
                }
            }
        }
    }

    private void commit(Map<TopicPartition, OffsetAndMetadata> offsets) {
        if (offsets.isEmpty()) {
            return;
        }
        try {
            consumer.commitSync(offsets);
        } catch (KafkaException error) {
            // The group rebalances: what is still owned is committed with the next batch or on revocation.
            events.write("commit_failed", Map.of("error", error.toString()));
            return;
        }
        List<List<Object>> pairs = new ArrayList<>();
        offsets.forEach((each, next) -> pairs.add(List.of(each.topic(), each.partition(), next.offset())));
        events.write("committed", Map.of("offsets", pairs));
        processed.keySet().removeAll(offsets.keySet());
    }

    private void log(String event, Collection<TopicPartition> partitions) {
        pause(listenerDelayMs); // in poll, as some real listeners do
        int generation = consumer.groupMetadata().generationId();
        events.write(event, Map.of("partitions", EventFile.pairs(partitions), "generation", generation));
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
}
