package evenlag.broker;

import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** What {@code member.py} is, with Kafka's own client: {@code JavaMember SERVERS GROUP TOPIC INSTANCE}. */
public final class JavaMember {
    private JavaMember() {}

    public static void main(String[] arguments) {
        Map<String, Object> config = Map.of(
                "bootstrap.servers", arguments[0],
                "group.id", arguments[1],
                "group.protocol", "consumer",
                "group.remote.assignor", "evenlag",
                "group.instance.id", arguments[3],
                "auto.offset.reset", "earliest");
        KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                main.join();
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }));
        consumer.subscribe(List.of(arguments[2]), new Teller());
        try {
            while (true) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    tell("record", record.partition() + ", " + record.offset());
                }
            }
        } catch (WakeupException error) {
            consumer.close();
        }
    }

    private static final class Teller implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> given) {
            tell("assigned", numbers(given));
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> taken) {
            tell("revoked", numbers(taken));
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> taken) {
            tell("lost", numbers(taken));
        }

        private static String numbers(Collection<TopicPartition> partitions) {
            return partitions.stream()
                    .map(partition -> Integer.toString(partition.partition()))
                    .collect(Collectors.joining(", "));
        }
    }

    /** On Linux this clock is the machine's, as Python's monotonic one is. */
    private static void tell(String kind, String numbers) {
        System.out.println(kind + " [[" + numbers + "], " + System.nanoTime() + "]");
    }
}
