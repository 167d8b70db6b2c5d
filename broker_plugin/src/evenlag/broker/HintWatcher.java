package evenlag.broker;

import java.io.IOException;
import java.net.ConnectException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Keeps the hint topic in memory: one daemon thread with its own clients, while the broker runs.
 *
 * <p>It is in no group and creates no topic. If the topic is missing, or cannot be read for a while, groups
 * are assigned as if evenlag were not installed.
 */
final class HintWatcher {
    private static final Duration TIMEOUT = Duration.ofSeconds(10);
    private static final long TICK_MS = 100;
    private static final long FIRST_BACKOFF_MS = 200;
    private static final long MAX_BACKOFF_MS = 10_000;
    /** Delay between connection attempts: short, because groups wait while the broker starts. */
    private static final long MAX_KNOCK_BACKOFF_MS = 500;

    private final Settings settings;
    private final Journal journal;
    private final Thread thread;
    private volatile Decider.Knowledge knowledge = new Decider.Knowledge(null, null);
    private volatile long lastContactNs = System.nanoTime();
    private volatile long lastPollNs = lastContactNs;
    private volatile long lagRecords = -1;
    private volatile boolean hasRead;
    private HintTable lastTable;

    HintWatcher(Settings settings, Journal journal) {
        this.settings = settings;
        this.journal = journal;
        thread = new Thread(this::run, "evenlag-hints");
        thread.setDaemon(true);
    }

    void start() {
        thread.start();
    }

    Decider.Knowledge knowledge() {
        return knowledge;
    }

    /** Seconds since it last confirmed that all hints were read; -1 before the first time. */
    double ageSeconds() {
        return hasRead ? (System.nanoTime() - lastContactNs) / 1e9 : -1;
    }

    /** Seconds since the topic was last polled; -1 before the first time. */
    double pollAgeSeconds() {
        return hasRead ? (System.nanoTime() - lastPollNs) / 1e9 : -1;
    }

    /** How many offsets of the hint topic are not read yet, at the last check; -1: unknown. */
    long lagRecords() {
        return lagRecords;
    }

    private void run() {
        long backoffMs = FIRST_BACKOFF_MS;
        while (true) {
            boolean isAgain = false;
            try {
                readTopic();
                isAgain = true;
            } catch (ConnectException error) {
                markUnavailable(error.getMessage(), isSilent());
                backoffMs = Math.min(backoffMs, MAX_KNOCK_BACKOFF_MS);
            } catch (UnknownTopicOrPartitionException error) {
                markUnavailable("there is no topic " + settings.topic(), true);
            } catch (Throwable error) { // whatever a client throws: try again later
                markUnavailable(describe(error), isSilent());
            }
            // It starts with the broker, before any listener: the first attempts are close together.
            backoffMs = isAgain || hasRead && lagRecords >= 0 ? FIRST_BACKOFF_MS : backoffMs;
            lagRecords = -1;
            pause(backoffMs);
            backoffMs = Math.min(2 * backoffMs, MAX_BACKOFF_MS);
        }
    }

    private boolean isSilent() {
        return System.nanoTime() - lastContactNs > settings.forgetAfterMs() * 1_000_000;
    }

    private static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException error) {
            // Only the JVM ends it: it continues.
        }
    }

    /** Reads until the topic or the keys change, then returns or throws. */
    private void readTopic() throws Exception {
        List<byte[]> keys = settings.readKeys();
        knock();
        try (Admin admin = Admin.create(clientConfig("admin"));
                KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                        consumerConfig(), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            TopicDescription topic = describeTopic(admin);
            String clusterId =
                    admin.describeCluster().clusterId().get(TIMEOUT.toMillis(), TimeUnit.MILLISECONDS);
            List<TopicPartition> partitions = new ArrayList<>();
            for (TopicPartitionInfo info : topic.partitions()) {
                partitions.add(new TopicPartition(settings.topic(), info.partition()));
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            HintTable table =
                    new HintTable(partitions.size(), keys, clusterId, settings.maxBytes(), journal);
            catchUp(consumer, table);
            follow(admin, consumer, table, topic, keys);
        }
    }

    /** Reads all existing records before it evaluates them: older records of a key do not count. */
    private void catchUp(KafkaConsumer<byte[], byte[]> consumer, HintTable table) {
        while (readLag(consumer) > 0) {
            poll(consumer, table);
        }
    }

    private void follow(
            Admin admin, KafkaConsumer<byte[], byte[]> consumer, HintTable table, TopicDescription topic,
            List<byte[]> keys) throws Exception {
        table.finishReading(lastTable);
        publish(table, topic.topicId());
        hasRead = true;
        journal.noteWatcher(Reason.READY, settings + " was read to its end: " + table.numHeld() + " hints");
        long nextCheckNs = System.nanoTime() + settings.checkIntervalMs() * 1_000_000;
        while (true) {
            poll(consumer, table);
            if (System.nanoTime() - nextCheckNs >= 0) {
                TopicDescription now = describeTopic(admin);
                if (!now.topicId().equals(topic.topicId())
                        || now.partitions().size() != topic.partitions().size()
                        || !areSame(keys, settings.readKeys())
                        || readLag(consumer) < 0) {
                    return; // recreated, other partitions or other keys: read it again
                }
                nextCheckNs = System.nanoTime() + settings.checkIntervalMs() * 1_000_000;
            }
        }
    }

    private void poll(KafkaConsumer<byte[], byte[]> consumer, HintTable table) {
        // Not poll(TICK): while it waits the client keeps requesting a deleted topic, and logs each
        // response, thousands per second.
        ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ZERO);
        for (ConsumerRecord<byte[], byte[]> record : records) {
            table.apply(record.partition(), record.key(), record.value());
        }
        lastPollNs = System.nanoTime();
        if (records.isEmpty()) {
            pause(TICK_MS);
        }
    }

    /** Returns the number of unread offsets; negative if the topic ends before the read position. */
    private long readLag(KafkaConsumer<byte[], byte[]> consumer) {
        long lag = 0;
        for (Map.Entry<TopicPartition, Long> end :
                consumer.endOffsets(consumer.assignment(), TIMEOUT).entrySet()) {
            long behind = end.getValue() - consumer.position(end.getKey(), TIMEOUT);
            if (behind < 0) {
                return behind;
            }
            lag += behind;
        }
        lastContactNs = System.nanoTime();
        lagRecords = lag;
        return lag;
    }

    private TopicDescription describeTopic(Admin admin) throws Exception {
        try {
            return admin.describeTopics(List.of(settings.topic()))
                    .topicNameValues()
                    .get(settings.topic())
                    .get(TIMEOUT.toMillis(), TimeUnit.MILLISECONDS);
        } catch (ExecutionException error) {
            throw error.getCause() instanceof Exception cause ? cause : error;
        }
    }

    private void publish(HintTable table, Uuid topicId) {
        lastTable = table;
        knowledge = new Decider.Knowledge(table, topicId);
    }

    private void markUnavailable(String why, boolean isForgotten) {
        if (isForgotten) {
            boolean isFirst = lastTable == null;
            publish(isFirst ? new HintTable(1, List.of(), null, 1, journal) : lastTable.forget(), null);
        }
        journal.noteWatcher(Reason.UNAVAILABLE, settings + ": " + why);
    }

    /** Checks that a broker listens: Kafka's clients log every failed connection, without a limit. */
    private void knock() throws ConnectException {
        String last = "no bootstrap server is named";
        for (String server : settings.client().get("bootstrap.servers").toString().split(",")) {
            int colon = server.lastIndexOf(':');
            String host = server.substring(0, Math.max(colon, 0)).strip().replaceAll("[\\[\\]]", "");
            try (Socket socket = new Socket()) {
                int port = Integer.parseInt(server.substring(colon + 1).strip());
                socket.connect(new InetSocketAddress(host, port), 2000);
                return;
            } catch (IOException | IllegalArgumentException error) {
                last = "nobody listens at " + server.strip();
            }
        }
        throw new ConnectException(last);
    }

    private Map<String, Object> clientConfig(String use) {
        Map<String, Object> config = new HashMap<>(settings.client());
        config.put("client.id", "evenlag-hints-" + use);
        config.put("default.api.timeout.ms", (int) TIMEOUT.toMillis());
        config.put("request.timeout.ms", (int) TIMEOUT.toMillis());
        config.put("reconnect.backoff.max.ms", (int) MAX_BACKOFF_MS);
        return config;
    }

    private Map<String, Object> consumerConfig() {
        Map<String, Object> config = clientConfig("consumer");
        config.put("enable.auto.commit", false);
        config.put("auto.offset.reset", "earliest");
        config.put("isolation.level", "read_committed");
        config.put("allow.auto.create.topics", false);
        // One hint can be as large as a record may be; there are few.
        config.put("max.poll.records", 50);
        config.put("fetch.max.bytes", 8 * 1024 * 1024);
        config.remove("group.id");
        config.remove("group.instance.id");
        return config;
    }

    private static boolean areSame(List<byte[]> a, List<byte[]> b) {
        boolean same = a.size() == b.size();
        for (int i = 0; same && i < a.size(); i++) {
            same = Arrays.equals(a.get(i), b.get(i));
        }
        return same;
    }

    /** Describes an error without the values of settings, which clients' messages contain. */
    private static String describe(Throwable error) {
        boolean isPlain = error instanceof IOException || error instanceof ApiException;
        return error.getClass().getSimpleName() + (isPlain ? ": " + error.getMessage() : "");
    }
}
