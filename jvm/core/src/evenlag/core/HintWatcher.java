package evenlag.core;

import java.io.IOException;
import java.net.ConnectException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/**
 * Keeps the hint topic in memory: one daemon thread with its own connections, while somebody
 * needs it.
 *
 * <p>It is in no group and creates no topic. If the topic is missing, or cannot be read for a while, groups
 * are assigned as if evenlag were not installed.
 */
public final class HintWatcher {
    private static final Duration TIMEOUT = Duration.ofSeconds(10);
    private static final AtomicInteger NUM_MADE = new AtomicInteger();
    private static final long TICK_MS = 100;
    /** How long a fetch waits at a broker; it returns at once when a hint arrives. */
    private static final int BROKER_WAIT_MS = 500;
    private static final int CONSUMER_WAIT_MS = 5_000;
    /** How long reading may make no progress. */
    private static final long STALL_NS = 30_000_000_000L;
    /** How often a missing topic is looked for: one that is created again is followed within 5 s. */
    private static final long MISSING_MS = 3_000;
    private static final long FIRST_BACKOFF_MS = 200;
    private static final long MAX_BACKOFF_MS = 10_000;
    /** Delay between connection attempts: short, because groups wait while the broker starts. */
    private static final long MAX_KNOCK_BACKOFF_MS = 500;

    private final Settings settings;
    private final Supplier<Audience> audience;
    private final String clientId;
    private final Journal journal;
    private final Thread thread;
    private volatile Knowledge knowledge = new Knowledge(null, null);
    private volatile long lastContactNs = System.nanoTime();
    private volatile long lastPollNs = lastContactNs;
    private volatile long lagRecords = -1;
    private volatile boolean hasRead;
    private volatile Map<Uuid, String> topicNames = Map.of();
    private HintTable lastTable;

    /**
     * What it knows.
     *
     * @param table null until the hint topic has been read
     * @param hintTopicId the last known id, null if it was never known
     */
    public record Knowledge(HintTable table, Uuid hintTopicId) {}

    /**
     * Makes a watcher; it does nothing before its start.
     *
     * @param audience for whom it reads, now; null ends it
     */
    public HintWatcher(Settings settings, Supplier<Audience> audience, Journal journal) {
        this.settings = settings;
        this.audience = audience;
        int number = NUM_MADE.incrementAndGet();
        clientId = "evenlag-hints-" + (number == 1 ? "" : number + "-");
        this.journal = journal;
        thread = new Thread(this::run, "evenlag-hints");
        thread.setDaemon(true);
    }

    /** Starts its thread. */
    public void start() {
        thread.start();
    }

    /** Returns what it knows now; never waits. */
    public Knowledge knowledge() {
        return knowledge;
    }

    /** Returns the names of the topics in the hints of its groups, as far as they are known; never waits. */
    public Map<Uuid, String> topicNames() {
        return topicNames;
    }

    /** Seconds since it last confirmed that all hints were read; -1 before the first time. */
    public double ageSeconds() {
        return hasRead ? (System.nanoTime() - lastContactNs) / 1e9 : -1;
    }

    /** Seconds since the topic was last polled; -1 before the first time. */
    public double pollAgeSeconds() {
        return hasRead ? (System.nanoTime() - lastPollNs) / 1e9 : -1;
    }

    /** How many offsets of the hint topic are not read yet, at the last check; -1: unknown. */
    public long lagRecords() {
        return lagRecords;
    }

    private void run() {
        long backoffMs = FIRST_BACKOFF_MS;
        for (Audience readers = audience.get(); readers != null; readers = audience.get()) {
            boolean isAgain = false;
            try {
                readTopic(readers);
                isAgain = true;
            } catch (ConnectException error) {
                markUnavailable(error.getMessage(), isSilent(), readers);
                backoffMs = Math.min(backoffMs, MAX_KNOCK_BACKOFF_MS);
            } catch (Throwable error) { // whatever a client throws: try again later
                markUnavailable(describe(error), isSilent(), readers);
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
    private void readTopic(Audience readers) throws Exception {
        SigningKeys keys = settings.readKeys();
        knock();
        try (Admin admin = Admin.create(clientConfig("admin"))) {
            TopicDescription topic = awaitTopic(admin, readers);
            if (topic == null) {
                return;
            }
            String clusterId =
                    admin.describeCluster().clusterId().get(TIMEOUT.toMillis(), TimeUnit.MILLISECONDS);
            // Two tables are in memory while the topic is read again: they share what has not changed.
            HintTable table = new HintTable(
                            topic.partitions().size(), readers, keys, clusterId, settings.maxBytes(), journal)
                    .sharing(lastTable);
            int waitMs = readers.isBroker() ? BROKER_WAIT_MS : CONSUMER_WAIT_MS;
            try (BatchFetcher fetcher = new BatchFetcher(
                    clientConfig("reader"), topic.topicId(), waitMs, new TableSink(table))) {
                Reading reading = new Reading(admin, fetcher, topic, readers);
                fetcher.lead(reading.leaders(topic));
                reading.ends(OffsetSpec.earliest()).forEach(fetcher::seek);
                catchUp(reading);
                follow(reading, table, keys);
            }
        }
    }

    /** Applies what is read. */
    private final class TableSink implements Batches.Sink {
        private final HintTable table;

        TableSink(HintTable table) {
            this.table = table;
        }

        @Override
        public void record(int partition, byte[] key, byte[] value) {
            table.apply(partition, key, value, System.currentTimeMillis());
        }

        @Override
        public void skipped(int partition, long offset, boolean isCompressed) {
            Reason reason = isCompressed ? Reason.COMPRESSED : Reason.UNUSABLE;
            String what = isCompressed ? "compressed batches are not read, first offset " : "a damaged batch, offset ";
            journal.note(reason, null, isCompressed ? null : "" + offset, what + offset + " of partition " + partition);
        }
    }

    /** One pass over the topic: its connections, and the partitions that the readers need. */
    private final class Reading {
        final Admin admin;
        final BatchFetcher fetcher;
        final TopicDescription topic;
        final Audience readers;
        private final Set<Integer> partitions = new HashSet<>();
        /** The topics that were asked for once: not each hint names topics that the application may see. */
        private final Set<Uuid> asked = new HashSet<>();

        Reading(Admin admin, BatchFetcher fetcher, TopicDescription topic, Audience readers) {
            this.admin = admin;
            this.fetcher = fetcher;
            this.topic = topic;
            this.readers = readers;
            int count = topic.partitions().size();
            if (readers.isBroker()) {
                topic.partitions().forEach(info -> partitions.add(info.partition()));
            } else {
                readers.groupIds().forEach(id -> partitions.add(HintTable.partitionOf(id, count)));
            }
        }

        Map<Integer, Node> leaders(TopicDescription now) {
            Map<Integer, Node> leaders = new HashMap<>();
            for (TopicPartitionInfo info : now.partitions()) {
                Node leader = info.leader();
                if (leader != null && !leader.isEmpty() && partitions.contains(info.partition())) {
                    leaders.put(info.partition(), leader);
                }
            }
            return leaders;
        }

        /** Returns the first offset of each partition, or the end of what is committed. */
        Map<Integer, Long> ends(OffsetSpec which) throws Exception {
            Map<TopicPartition, OffsetSpec> wanted = new HashMap<>();
            partitions.forEach(number -> wanted.put(new TopicPartition(settings.topic(), number), which));
            Map<Integer, Long> offsets = new HashMap<>();
            try {
                admin.listOffsets(wanted, new ListOffsetsOptions(IsolationLevel.READ_COMMITTED))
                        .all()
                        .get(TIMEOUT.toMillis(), TimeUnit.MILLISECONDS)
                        .forEach((partition, found) -> offsets.put(partition.partition(), found.offset()));
            } catch (ExecutionException error) {
                throw error.getCause() instanceof Exception cause ? cause : error;
            }
            return offsets;
        }

        /** Asks for the names of topics that consumers' hints are about: members know names only. */
        void learnNames(HintTable table) throws Exception {
            if (readers.isBroker()) {
                return;
            }
            Set<Uuid> wanted = new HashSet<>();
            for (String groupId : readers.groupIds()) {
                GroupRecords group = table.of(groupId);
                Hint hint = group == null ? null : group.hint;
                if (hint != null) {
                    wanted.addAll(hint.topics().keySet());
                }
            }
            wanted.removeAll(asked);
            if (wanted.isEmpty()) {
                return;
            }
            asked.addAll(wanted);
            Map<Uuid, String> names = new HashMap<>(topicNames);
            for (Map.Entry<Uuid, KafkaFuture<TopicDescription>> each :
                    admin.describeTopics(TopicCollection.ofTopicIds(wanted)).topicIdValues().entrySet()) {
                try {
                    TopicDescription found = each.getValue().get(TIMEOUT.toMillis(), TimeUnit.MILLISECONDS);
                    names.put(each.getKey(), found.name());
                } catch (ExecutionException error) {
                    names.remove(each.getKey()); // deleted, or not ours to see: then nobody asks for it
                }
            }
            topicNames = Map.copyOf(names);
        }

        /** Returns the number of unread offsets; negative if a partition ends before the read position. */
        long lag(Map<Integer, Long> ends) {
            long lag = 0;
            for (Map.Entry<Integer, Long> end : ends.entrySet()) {
                long behind = end.getValue() - fetcher.position(end.getKey());
                if (behind < 0) {
                    return behind;
                }
                lag += behind;
            }
            return lag;
        }
    }

    /** Reads all existing records before they are used. */
    private void catchUp(Reading reading) throws Exception {
        Map<Integer, Long> ends = reading.ends(OffsetSpec.latest());
        long deadlineNs = System.nanoTime() + STALL_NS;
        long left = reading.lag(ends);
        while (left > 0) {
            poll(reading.fetcher);
            if (reading.fetcher.areLeadersStale()) {
                reading.fetcher.lead(reading.leaders(describeTopic(reading.admin)));
            }
            long now = reading.lag(ends);
            if (now < left) {
                deadlineNs = System.nanoTime() + STALL_NS;
                left = now;
            } else if (System.nanoTime() - deadlineNs > 0) {
                throw new TimeoutException(now + " offsets of the topic cannot be read");
            }
        }
    }

    private void follow(Reading reading, HintTable table, SigningKeys keys) throws Exception {
        table.finishReading(lastTable);
        reading.learnNames(table);
        readLag(reading);
        publish(table, reading.topic.topicId());
        hasRead = true;
        journal.noteWatcher(Reason.READY, settings + " was read to its end: " + table.numHeld() + " hints, "
                + table.numLoads() + " loads");
        BatchFetcher fetcher = reading.fetcher;
        long nextCheckNs = System.nanoTime() + settings.checkIntervalMs() * 1_000_000;
        while (reading.readers.isSame(audience.get())) {
            poll(fetcher);
            table.promote(System.currentTimeMillis());
            reading.learnNames(table);
            boolean isDue = System.nanoTime() - nextCheckNs >= 0;
            if (isDue || fetcher.areLeadersStale()) {
                TopicDescription now = describeTopic(reading.admin);
                if (!now.topicId().equals(reading.topic.topicId())
                        || now.partitions().size() != reading.topic.partitions().size()
                        || !keys.isSame(settings.readKeys())
                        || readLag(reading) < 0) {
                    return; // recreated, other partitions or other keys: read it again
                }
                fetcher.lead(reading.leaders(now));
                nextCheckNs = System.nanoTime() + settings.checkIntervalMs() * 1_000_000;
            }
        }
    }

    private void poll(BatchFetcher fetcher) throws IOException {
        fetcher.poll(TICK_MS);
        lastPollNs = System.nanoTime();
    }

    /** Returns the number of unread offsets; negative if a partition ends before the read position. */
    private long readLag(Reading reading) throws Exception {
        long lag = reading.lag(reading.ends(OffsetSpec.latest()));
        if (lag >= 0) {
            lastContactNs = System.nanoTime();
            lagRecords = lag;
        }
        return lag;
    }

    /** Waits for the topic; null if the readers change first. */
    private TopicDescription awaitTopic(Admin admin, Audience readers) throws Exception {
        while (readers.isSame(audience.get())) {
            try {
                return describeTopic(admin);
            } catch (UnknownTopicOrPartitionException error) {
                markUnavailable("there is no topic " + settings.topic(), true, readers);
                pause(MISSING_MS);
            }
        }
        return null;
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
        knowledge = new Knowledge(table, topicId != null ? topicId : knowledge.hintTopicId());
    }

    private void markUnavailable(String why, boolean isForgotten, Audience readers) {
        if (isForgotten) {
            boolean isFirst = lastTable == null;
            HintTable empty = new HintTable(1, readers, SigningKeys.NONE, null, 1, journal);
            publish(isFirst ? empty : lastTable.forget(readers), null);
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
        config.put("client.id", clientId + use);
        config.put("default.api.timeout.ms", (int) TIMEOUT.toMillis());
        config.put("request.timeout.ms", (int) TIMEOUT.toMillis());
        config.put("reconnect.backoff.max.ms", (int) MAX_BACKOFF_MS);
        config.remove("group.id");
        config.remove("group.instance.id");
        return config;
    }

    /** Describes an error without the values of settings, which clients' messages contain. */
    private static String describe(Throwable error) {
        boolean isPlain = error instanceof IOException || error instanceof ApiException;
        return error.getClass().getSimpleName() + (isPlain ? ": " + error.getMessage() : "");
    }
}
