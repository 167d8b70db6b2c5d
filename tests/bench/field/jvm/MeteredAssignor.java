package evenlag.field;

import evenlag.sandbox.EventFile;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Configurable;

/** Another assignor, which the configuration names; notes each assignment with the time that it took. */
public final class MeteredAssignor implements ConsumerPartitionAssignor, Configurable {
    static final String EVENTS = "field.events";
    static final String LEADERSHIP = "field.leadership";
    private static final String ASSIGNOR = "field.assignor";

    private ConsumerPartitionAssignor assignor;
    private EventFile events;
    private Leadership leadership;

    /** Kafka makes assignors by this constructor. */
    public MeteredAssignor() {}

    @Override
    public void configure(Map<String, ?> configs) {
        events = (EventFile) configs.get(EVENTS);
        leadership = (Leadership) configs.get(LEADERSHIP);
        try {
            Class<?> kind = Class.forName((String) configs.get(ASSIGNOR));
            assignor = (ConsumerPartitionAssignor) kind.getDeclaredConstructor().newInstance();
        } catch (ReflectiveOperationException error) {
            throw new IllegalArgumentException(error);
        }
        if (assignor instanceof Configurable configurable) {
            configurable.configure(configs);
        }
    }

    @Override
    public String name() {
        return assignor.name();
    }

    @Override
    public short version() {
        return assignor.version();
    }

    @Override
    public List<RebalanceProtocol> supportedProtocols() {
        return assignor.supportedProtocols();
    }

    @Override
    public ByteBuffer subscriptionUserData(Set<String> topics) {
        return assignor.subscriptionUserData(topics);
    }

    @Override
    public GroupAssignment assign(Cluster metadata, GroupSubscription subscriptions) {
        long before = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
        GroupAssignment assigned = assignor.assign(metadata, subscriptions);
        long cpu = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() - before;
        events.write("led", Map.of("cpu_s", cpu / 1e9, "members", subscriptions.groupSubscription().size()));
        leadership.assigned();
        return assigned;
    }

    @Override
    public void onAssignment(Assignment assignment, ConsumerGroupMetadata metadata) {
        leadership.received();
        assignor.onAssignment(assignment, metadata);
    }
}
