package evenlag.field;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends a schedule to all topics, whatever happens: {@code FieldProducer SPEC.json}.
 *
 * <p>The file of the schedule has 12 bytes a record: its send on the monotonic clock, in nanoseconds, and its key. A
 * record's lateness is the time from its schedule until Kafka's client has it for the last topic; acknowledgements
 * are timed from the schedule, too. The report has both, of records after the warm-up.
 */
public final class FieldProducer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int ENTRY = 12;
    private static final long MICRO = 1_000;
    private static final int WARM_UP_RECORDS = 20_000;

    private FieldProducer() {}

    public static void main(String[] arguments) throws IOException {
        JsonNode spec = JSON.readTree(new File(arguments[0]));
        ByteBuffer schedule = ByteBuffer.wrap(Files.readAllBytes(Path.of(spec.get("schedule_file").asText())));
        Map<String, Object> report = send(spec, schedule);
        JSON.writeValue(new File(spec.get("report_file").asText()), report);
    }

    private static Map<String, Object> send(JsonNode spec, ByteBuffer schedule) {
        List<String> topics = new ArrayList<>();
        spec.get("topics").forEach(topic -> topics.add(topic.asText()));
        List<byte[]> keys = new ArrayList<>();
        spec.get("keys").forEach(key -> keys.add(HexFormat.of().parseHex(key.asText())));
        int numRecords = schedule.remaining() / ENTRY;
        int[] lateUs = new int[numRecords];
        Acknowledgements acknowledged = new Acknowledgements(numRecords * topics.size());
        long measuredFrom = spec.get("measured_from_ns").asLong();
        Map<String, Object> configs = Map.of("bootstrap.servers", spec.get("servers").asText());
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(configs, bytes, bytes)) {
            warmUp(producer, topics, spec.get("warm_up_topic").asText());
            for (int number = 0; number < numRecords; number++) {
                long due = schedule.getLong();
                int key = schedule.getInt();
                sleepUntil(due);
                byte[] value = ByteBuffer.allocate(2 * Long.BYTES)
                        .putLong(due)
                        .putDouble(spec.get("cost").get(key).asDouble())
                        .array();
                for (String topic : topics) {
                    producer.send(new ProducerRecord<>(topic, keys.get(key), value), (where, error) -> {
                        if (error == null) {
                            acknowledged.add(sinceUs(due), due >= measuredFrom);
                        }
                    });
                }
                // Before the measured time, lateness is nobody's: the first records wait for a cold client.
                lateUs[number] = due >= measuredFrom ? sinceUs(due) : 0;
            }
        }
        return report(lateUs, acknowledged, spec.get("late_ms").asDouble());
    }

    /** Looks up where partitions are, and loads and compiles what the first records would wait for. */
    private static void warmUp(KafkaProducer<byte[], byte[]> producer, List<String> topics, String topic) {
        topics.forEach(producer::partitionsFor);
        for (int number = 0; number < WARM_UP_RECORDS; number++) {
            byte[] bytes = ByteBuffer.allocate(2 * Long.BYTES).putLong(number).array();
            producer.send(new ProducerRecord<>(topic, bytes, bytes), (where, error) -> {});
        }
        producer.flush();
    }

    private static void sleepUntil(long due) {
        for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
    }

    private static int sinceUs(long due) {
        return (int) Math.min(Integer.MAX_VALUE, (System.nanoTime() - due) / MICRO);
    }

    private static Map<String, Object> report(int[] lateUs, Acknowledgements acknowledged, double lateMs) {
        int[] known = acknowledged.measuredUs();
        Map<String, Object> report = new HashMap<>();
        Arrays.sort(lateUs);
        report.put("late_p99_ms", quantileMs(lateUs, 0.99));
        report.put("late_worst_ms", quantileMs(lateUs, 1.0));
        report.put("late_records", Arrays.stream(lateUs).filter(each -> each > lateMs * MICRO).count());
        report.put("acknowledged_p50_ms", quantileMs(known, 0.5));
        report.put("acknowledged_p99_ms", quantileMs(known, 0.99));
        report.put("acknowledged_worst_ms", quantileMs(known, 1.0));
        report.put("not_acknowledged", acknowledged.numMissing());
        return report;
    }

    /** The times until acknowledgements; the client calls back on one thread. */
    private static final class Acknowledgements {
        private final int[] us;
        private int numMeasured;
        private int numMissing;

        Acknowledgements(int numSends) {
            us = new int[numSends];
            numMissing = numSends;
        }

        synchronized void add(int afterUs, boolean isMeasured) {
            numMissing--;
            if (isMeasured) {
                us[numMeasured++] = afterUs;
            }
        }

        synchronized int[] measuredUs() {
            int[] sorted = Arrays.copyOf(us, numMeasured);
            Arrays.sort(sorted);
            return sorted;
        }

        synchronized int numMissing() {
            return numMissing;
        }
    }

    private static double quantileMs(int[] sorted, double share) {
        return sorted.length == 0 ? 0 : sorted[(int) Math.ceil(share * sorted.length) - 1] / 1e3;
    }
}
