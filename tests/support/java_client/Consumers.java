package evenlag.client;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Consumers of one process, each in a thread: what they own, and a journal of all that they do. */
final class Consumers {
    private static final Map<String, Running> ALL = new LinkedHashMap<>();
    private static final List<List<Object>> JOURNAL = new ArrayList<>();

    private Consumers() {}

    static Map<String, Object> start(JsonNode question) {
        Map<String, Object> configs = new HashMap<>();
        question.get("configs").properties().forEach(e -> configs.put(e.getKey(), e.getValue().asText()));
        List<String> topics = new ArrayList<>();
        question.get("topics").forEach(topic -> topics.add(topic.asText()));
        String name = question.get("name").asText();
        Running running = new Running(name, configs, topics, question.path("asks").asBoolean());
        ALL.put(name, running);
        running.thread.start();
        return Map.of();
    }

    /** Closes a consumer in good order, when all that it processed is committed, and waits for that. */
    static Map<String, Object> stop(JsonNode question) throws InterruptedException {
        Running running = ALL.remove(question.get("name").asText());
        running.ends = true;
        running.thread.join();
        return Map.of("error", running.error == null ? "" : running.error.toString());
    }

    /** Makes a consumer ask for a rebalance before its next poll. */
    static Map<String, Object> rebalance(JsonNode question) {
        ALL.get(question.get("name").asText()).asks = true;
        return Map.of();
    }

    /** Returns each consumer's partitions, generation, keys and error. */
    static Map<String, Object> look() {
        Map<String, Object> all = new HashMap<>();
        ALL.forEach((name, running) -> all.put(name, running.look()));
        return all;
    }

    /** Returns what was added to the journal since an entry: [consumer, kind, topic, number, offset, time]. */
    static Map<String, Object> journal(JsonNode question) {
        synchronized (JOURNAL) {
            int from = question.get("from").asInt();
            return Map.of("entries", List.copyOf(JOURNAL.subList(from, JOURNAL.size())));
        }
    }

    private static void write(String name, String kind, String topic, int number, long offset) {
        synchronized (JOURNAL) {
            // On Linux this clock is the machine's, as Python's monotonic one is.
            JOURNAL.add(List.of(name, kind, topic, number, offset, System.nanoTime()));
        }
    }

    private static final class Running implements ConsumerRebalanceListener {
        final String name;
        final KafkaConsumer<byte[], byte[]> consumer;
        final Thread thread;
        volatile Throwable error;
        volatile boolean asks;
        volatile boolean ends;
        private final boolean asksForHints;
        private final Map<TopicPartition, OffsetAndMetadata> processed = new HashMap<>();
        private volatile Map<String, Object> seen = Map.of("generation", -1, "held", List.of(), "error", "");

        Running(String name, Map<String, Object> configs, List<String> topics, boolean asksForHints) {
            this.asksForHints = asksForHints;
            this.name = name;
            consumer = new KafkaConsumer<>(configs, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            consumer.subscribe(topics, this);
            thread = new Thread(this::run, "consumer-" + name);
            thread.setDaemon(true);
        }

        private void run() {
            try {
                while (!ends || !isCommitted()) {
                    if (asks) {
                        asks = false;
                        consumer.enforceRebalance();
                    }
                    if (asksForHints) {
                        EvenlagRebalancer.maybeRebalance(consumer);
                    }
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                        write(name, "record", record.topic(), record.partition(), record.offset());
                        processed.put(
                                new TopicPartition(record.topic(), record.partition()),
                                new OffsetAndMetadata(record.offset() + 1));
                    }
                    note();
                }
                consumer.close();
            } catch (Throwable thrown) {
                error = thrown;
            }
        }

        /** Commits what was processed; false during a rebalance, which only another poll completes. */
        private boolean isCommitted() {
            try {
                consumer.commitSync(processed);
            } catch (RebalanceInProgressException later) {
                return false;
            }
            processed.clear();
            return true;
        }

        private void note() {
            ConsumerGroupMetadata group = consumer.groupMetadata();
            List<List<Object>> held = new ArrayList<>();
            consumer.assignment().forEach(each -> held.add(List.of(each.topic(), each.partition())));
            seen = Map.of(
                    "generation", group.generationId(),
                    "member_id", group.memberId(),
                    "instance", group.groupInstanceId().orElse(""),
                    "held", held);
        }

        Map<String, Object> look() {
            Map<String, Object> found = new HashMap<>(seen);
            found.put("error", error == null ? "" : error.toString());
            return found;
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> given) {
            given.forEach(each -> write(name, "assigned", each.topic(), each.partition(), -1));
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> taken) {
            // As Kafka advises: what was processed since the rebalance began is in no automatic commit.
            Map<TopicPartition, OffsetAndMetadata> done = new HashMap<>();
            taken.forEach(each -> done.put(each, processed.remove(each)));
            done.values().removeIf(Objects::isNull);
            if (!done.isEmpty()) {
                consumer.commitSync(done);
            }
            taken.forEach(each -> write(name, "revoked", each.topic(), each.partition(), -1));
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> taken) {
            taken.forEach(processed::remove);
            taken.forEach(each -> write(name, "lost", each.topic(), each.partition(), -1));
        }
    }
}
