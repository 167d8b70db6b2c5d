package evenlag.field;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.List;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A pod with a consumer of a share group, which acknowledges each record after its work.
 *
 * <p>The next poll sends the acknowledgements. What it has and does not begin when it stops is released for the others at once.
 */
final class SharePod extends Pod {
    SharePod(JsonNode spec, JsonNode pod) throws IOException {
        super(spec, pod);
        // A member of a share group has no identity that outlives it.
        configs.remove("group.instance.id");
    }

    @Override
    void consume() {
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(configs, bytes, bytes)) {
            consumer.subscribe(List.of(topic));
            while (!isStopping()) {
                ConsumerRecords<byte[], byte[]> batch = consumer.poll(POLL);
                polled(batch);
                for (ConsumerRecord<byte[], byte[]> record : batch) {
                    if (isStopping()) {
                        consumer.acknowledge(record, AcknowledgeType.RELEASE);
                    } else {
                        work(record);
                        consumer.acknowledge(record);
                    }
                }
            }
            consumer.commitSync();
        }
    }
}
