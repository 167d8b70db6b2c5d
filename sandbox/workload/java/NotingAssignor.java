package evenlag.sandbox;

import evenlag.client.EvenlagAssignor;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Configurable;

/** evenlag's assignor, which notes what it hands out as the leader of its group. */
public final class NotingAssignor implements ConsumerPartitionAssignor, Configurable {
    /** The length of what follows the name in a member id: Kafka appends a UUID. */
    private static final int SUFFIX = "-00000000-0000-0000-0000-000000000000".length();

    /** Of this process, which has one consumer. */
    static EventFile events;
    static Consumer<?, ?> consumer;

    private final EvenlagAssignor assignor = new EvenlagAssignor();

    /** Kafka makes assignors by this constructor. */
    public NotingAssignor() {}

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
    public void configure(Map<String, ?> configs) {
        assignor.configure(configs);
    }

    @Override
    public GroupAssignment assign(Cluster metadata, GroupSubscription subscriptions) {
        GroupAssignment assigned = assignor.assign(metadata, subscriptions);
        double atS = EventFile.now();
        Map<String, Object> given = new HashMap<>();
        assigned.groupAssignment().forEach((memberId, each) -> given.put(
                memberId.substring(0, memberId.length() - SUFFIX), EventFile.pairs(each.partitions())));
        events.write("led", atS, Map.of("generation", generation(), "given", given));
        return assigned;
    }

    @Override
    public void onAssignment(Assignment assignment, ConsumerGroupMetadata metadata) {
        assignor.onAssignment(assignment, metadata);
    }

    /** Returns the generation that is led: the consumer itself tells of it only after the group has synced. */
    private static int generation() {
        Object coordinator = inside(inside(consumer, "delegate"), "coordinator");
        return (Integer) inside(inside(coordinator, "generation"), "generationId");
    }

    private static Object inside(Object object, String name) {
        for (Class<?> type = object.getClass(); type != null; type = type.getSuperclass()) {
            try {
                Field field = type.getDeclaredField(name);
                field.setAccessible(true);
                return field.get(object);
            } catch (NoSuchFieldException error) {
                continue; // in a class above
            } catch (IllegalAccessException error) {
                throw new IllegalStateException(error);
            }
        }
        throw new IllegalStateException("Kafka's client has no " + name + " any more");
    }
}
