package evenlag.core;

import java.io.IOException;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.ClientUtils;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.ByteBufferSend;
import org.apache.kafka.common.network.ChannelBuilder;
import org.apache.kafka.common.network.ChannelState;
import org.apache.kafka.common.network.NetworkReceive;
import org.apache.kafka.common.network.NetworkSend;
import org.apache.kafka.common.network.Selector;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.utils.Time;

/**
 * Reads one topic's partitions from their leaders, batch by batch, over Kafka's network classes.
 *
 * <p>Kafka's consumer has no hook before it decompresses: see {@link Batches}. The network classes bring TLS
 * and all SASL mechanisms. It is not thread-safe.
 */
public final class BatchFetcher implements AutoCloseable {
    private static final int MAX_BYTES = 4 * 1024 * 1024;
    /** A response has at most as many bytes, or one batch, which the topic's settings bound. */
    private static final int MAX_RECEIVE_BYTES = 64 * 1024 * 1024;
    private static final long TIMEOUT_NS = 10_000_000_000L;
    private static final long BACKOFF_NS = 200_000_000L;
    private static final int BUFFER_BYTES = 64 * 1024;

    private final String clientId;
    private final Uuid topicId;
    private final int maxWaitMs;
    private final Batches.Sink sink;
    private final Metrics metrics = new Metrics();
    private final ChannelBuilder channels;
    private final Selector selector;
    private final Map<Integer, Long> positions = new LinkedHashMap<>();
    private final Map<Integer, Leader> leaders = new HashMap<>();
    private int correlationId;
    private boolean areLeadersStale;

    /** A broker that leads partitions. */
    private static final class Leader {
        final Node node;
        final List<Integer> partitions = new ArrayList<>();
        boolean isConnecting;
        boolean isAsked;
        long sinceNs;
        long notBeforeNs = System.nanoTime();

        Leader(Node node) {
            this.node = node;
        }
    }

    /**
     * Prepares to read.
     *
     * @param config settings of a Kafka client
     * @param topicId of the topic: a topic of the same name with another id is not read
     * @param maxWaitMs how long a fetch waits at a broker for records
     */
    BatchFetcher(Map<String, Object> config, Uuid topicId, int maxWaitMs, Batches.Sink sink) {
        this.topicId = topicId;
        this.maxWaitMs = maxWaitMs;
        this.sink = sink;
        AbstractConfig parsed = new AdminClientConfig(config);
        clientId = parsed.getString(AdminClientConfig.CLIENT_ID_CONFIG);
        Object logContext = newLogContext();
        channels = (ChannelBuilder)
                call(find(ClientUtils.class, "createChannelBuilder"), parsed, Time.SYSTEM, logContext);
        selector = newSelector(
                parsed.getLong(AdminClientConfig.CONNECTIONS_MAX_IDLE_MS_CONFIG), logContext);
    }

    /** Sets where to begin, or to go on, in a partition. */
    void seek(int partition, long offset) {
        positions.put(partition, offset);
    }

    /** Returns the offset of the next record. */
    long position(int partition) {
        return positions.get(partition);
    }

    /** Whether a broker no longer leads what it was asked for. */
    boolean areLeadersStale() {
        return areLeadersStale;
    }

    /** Sets each partition's leader; one without a leader is not read for now. */
    void lead(Map<Integer, Node> nodes) {
        areLeadersStale = false;
        leaders.values().forEach(leader -> leader.partitions.clear());
        nodes.forEach((partition, node) -> {
            Leader known = leaders.get(node.id());
            if (known == null || !known.node.equals(node)) {
                if (known != null) {
                    disconnect(known);
                }
                leaders.put(node.id(), new Leader(node));
            }
            leaders.get(node.id()).partitions.add(partition);
        });
    }

    /**
     * Waits for records, and gives them to the sink.
     *
     * @param timeoutMs the longest wait, in milliseconds
     * @throws IOException if the topic cannot be read
     */
    void poll(long timeoutMs) throws IOException {
        long now = System.nanoTime();
        for (Leader leader : leaders.values()) {
            if (now - leader.notBeforeNs >= 0 && !leader.partitions.isEmpty()) {
                proceed(leader, now);
            }
        }
        selector.poll(timeoutMs);
        for (Map.Entry<String, ChannelState> lost : selector.disconnected().entrySet()) {
            Leader leader = leaders.get(Integer.parseInt(lost.getKey()));
            reset(leader);
            areLeadersStale = true;
            if (lost.getValue().exception() != null) {
                throw lost.getValue().exception();
            }
        }
        for (NetworkReceive received : selector.completedReceives()) {
            Leader leader = leaders.get(Integer.parseInt(received.source()));
            leader.isAsked = false;
            take(leader, received.payload());
        }
    }

    private void proceed(Leader leader, long now) throws IOException {
        String id = leader.node.idString();
        if ((leader.isAsked || leader.isConnecting) && now - leader.sinceNs > TIMEOUT_NS) {
            disconnect(leader);
            areLeadersStale = true;
        } else if (leader.isConnecting) {
            leader.isConnecting = !selector.isChannelReady(id);
        } else if (!leader.isAsked && selector.isChannelReady(id)) {
            leader.isAsked = true;
            leader.sinceNs = now;
            ByteBuffer request = FetchProtocol.write(
                    ++correlationId, clientId, topicId, wanted(leader), maxWaitMs, MAX_BYTES);
            selector.send(new NetworkSend(id, ByteBufferSend.sizePrefixed(request)));
        } else if (!leader.isAsked) {
            leader.isConnecting = true;
            leader.sinceNs = now;
            InetSocketAddress address = new InetSocketAddress(leader.node.host(), leader.node.port());
            try {
                selector.connect(id, address, BUFFER_BYTES, BUFFER_BYTES);
            } catch (IOException error) {
                reset(leader);
                areLeadersStale = true;
            }
        }
    }

    /** Returns the positions to ask for; each time another partition is first, which gets a whole batch. */
    private Map<Integer, Long> wanted(Leader leader) {
        leader.partitions.add(leader.partitions.remove(0));
        Map<Integer, Long> wanted = new LinkedHashMap<>();
        leader.partitions.forEach(partition -> wanted.put(partition, positions.get(partition)));
        return wanted;
    }

    private void take(Leader leader, ByteBuffer payload) {
        FetchProtocol.Response response = FetchProtocol.read(payload);
        check(leader, response.error());
        for (FetchProtocol.Fetched fetched : response.partitions()) {
            boolean isOurs = leader.partitions.contains(fetched.partition());
            if (isOurs && check(leader, fetched.error()) && fetched.records() != null) {
                long position = positions.get(fetched.partition());
                long next = Batches.read(
                        fetched.partition(), fetched.records(), fetched.aborted(), position, sink);
                positions.put(fetched.partition(), next);
            }
        }
    }

    /** Returns whether there is no error; throws what does not pass by itself. */
    private boolean check(Leader leader, short code) {
        Errors error = Errors.forCode(code);
        switch (error) {
            case NONE -> {
                return true;
            }
            case NOT_LEADER_OR_FOLLOWER, LEADER_NOT_AVAILABLE, REPLICA_NOT_AVAILABLE, KAFKA_STORAGE_ERROR,
                    FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID,
                    UNKNOWN_TOPIC_OR_PARTITION, OFFSET_NOT_AVAILABLE -> {
                areLeadersStale = true;
                leader.notBeforeNs = System.nanoTime() + BACKOFF_NS;
                return false;
            }
            default -> throw error.exception();
        }
    }

    private void disconnect(Leader leader) {
        selector.close(leader.node.idString());
        reset(leader);
    }

    private static void reset(Leader leader) {
        leader.isConnecting = false;
        leader.isAsked = false;
        leader.notBeforeNs = System.nanoTime() + BACKOFF_NS;
    }

    @Override
    public void close() {
        selector.close();
        channels.close();
        metrics.close();
    }

    /** Makes Kafka's context for logs, whose class has another package from Kafka 4.4 on. */
    private static Object newLogContext() {
        for (String name : List.of("utils.internals.LogContext", "utils.LogContext")) {
            try {
                return Class.forName("org.apache.kafka.common." + name).getConstructor().newInstance();
            } catch (ClassNotFoundException error) {
                continue;
            } catch (ReflectiveOperationException error) {
                throw new IllegalStateException("this Kafka's LogContext is not known", error);
            }
        }
        throw new IllegalStateException("this Kafka has no LogContext");
    }

    private Selector newSelector(long maxIdleMs, Object logContext) {
        // Limit of a response, idle time, delay after a failed login, …, metrics per connection.
        Class<?>[] wanted = {
            int.class, long.class, int.class, Metrics.class, Time.class, String.class, Map.class, boolean.class,
            ChannelBuilder.class, logContext.getClass()
        };
        try {
            Constructor<Selector> constructor = Selector.class.getConstructor(wanted);
            return constructor.newInstance(
                    MAX_RECEIVE_BYTES, maxIdleMs, 0, metrics, Time.SYSTEM, "evenlag-hints", Map.of(), false,
                    channels, logContext);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException("this Kafka's Selector is not known", error);
        }
    }

    private static Method find(Class<?> owner, String name) {
        for (Method method : owner.getMethods()) {
            if (method.getName().equals(name)) {
                return method;
            }
        }
        throw new IllegalStateException("this Kafka's " + owner.getName() + " has no " + name);
    }

    private static Object call(Method method, Object... arguments) {
        try {
            return method.invoke(null, arguments);
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof RuntimeException cause) {
                throw cause;
            }
            throw new IllegalStateException(method.getName() + " failed", error.getCause());
        } catch (IllegalAccessException error) {
            throw new IllegalStateException(method.getName() + " cannot be called", error);
        }
    }
}
