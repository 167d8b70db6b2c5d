package evenlag.field;

import com.fasterxml.jackson.databind.JsonNode;
import evenlag.sandbox.EventFile;
import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;

/**
 * A pod: in each of its spans a consumer that works on a record for its cost, divided by the pod's speed.
 *
 * <p>A value has the scheduled send (nanoseconds of the machine's monotonic clock) and the cost. The journal of
 * records has 28 bytes for each: partition, offset, scheduled send, start of work. Work is time that passes, not
 * time of a processor, and begins where the work before was to end: sleeping too long does not make a pod slower.
 */
abstract class Pod implements Runnable {
    static final Duration POLL = Duration.ofMillis(200);
    private static final int ENTRY = 28;

    final EventFile events;
    final Map<String, Object> configs = new HashMap<>();
    final String topic;
    private final OutputStream records;
    private final double speed;
    private final List<long[]> spans = new ArrayList<>();
    private final Object stop = new Object();
    private boolean isStopped;
    private long stopsAt = Long.MAX_VALUE;
    /** When the work that was begun ends. */
    private long busyUntil;

    private long numRecords;
    private long latestNs;
    private long lateNs;

    Pod(JsonNode spec, JsonNode pod) throws IOException {
        String name = pod.get("name").asText();
        File folder = new File(spec.get("folder").asText());
        events = new EventFile(new File(folder, name + ".jsonl"), name);
        records = new FileOutputStream(new File(folder, name + ".records"), true);
        topic = spec.get("topic").asText();
        speed = pod.get("speed").asDouble();
        spec.get("configs").properties().forEach(each -> configs.put(each.getKey(), each.getValue().asText()));
        configs.put("client.id", name);
        if (pod.hasNonNull("instance_id")) {
            configs.put("group.instance.id", pod.get("instance_id").asText());
        }
        long begin = spec.get("begin_ns").asLong();
        for (JsonNode span : pod.get("spans")) {
            spans.add(new long[] {at(begin, span.get(0)), at(begin, span.get(1))});
        }
    }

    /** A bound of a span, in seconds since the begin; null is never. */
    private static long at(long begin, JsonNode seconds) {
        return seconds.isNull() ? Long.MAX_VALUE : begin + Math.round(1e9 * seconds.asDouble());
    }

    /** Consumes until {@link #isStopping}, and leaves the group. */
    abstract void consume();

    @Override
    public final void run() {
        for (long[] span : spans) {
            sleepUntil(span[0]);
            if (isStopped()) {
                return;
            }
            stopsAt = span[1];
            busyUntil = 0;
            events.write("started", Map.of());
            consume();
            events.write("closed", Map.of(
                    "records", numRecords, "latest_start_ms", latestNs / 1e6,
                    "mean_late_start_ms", lateNs / 1e6 / Math.max(1, numRecords)));
        }
    }

    final void stop() {
        synchronized (stop) {
            isStopped = true;
            stop.notifyAll();
        }
    }

    private boolean isStopped() {
        synchronized (stop) {
            return isStopped;
        }
    }

    final boolean isStopping() {
        return isStopped() || System.nanoTime() >= stopsAt;
    }

    /** Tells that records come from a poll, for which this pod has waited if it had none. */
    final void polled(ConsumerRecords<byte[], byte[]> polled) {
        if (!polled.isEmpty()) {
            busyUntil = Math.max(busyUntil, System.nanoTime());
        }
    }

    /** Notes the start of the work on a record, and works. */
    final void work(ConsumerRecord<byte[], byte[]> record) {
        ByteBuffer value = ByteBuffer.wrap(record.value());
        long started = System.nanoTime();
        long late = Math.max(0, started - busyUntil);
        latestNs = Math.max(latestNs, late);
        lateNs += late;
        numRecords++;
        ByteBuffer entry = ByteBuffer.allocate(ENTRY).putInt(record.partition()).putLong(record.offset());
        entry.putLong(value.getLong()).putLong(started);
        try {
            // One system call for each, so that a kill leaves whole entries.
            records.write(entry.array());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        busyUntil += Math.round(1e9 * value.getDouble() / speed);
        sleepUntil(busyUntil);
    }

    private void sleepUntil(long end) {
        synchronized (stop) {
            for (long left = end - System.nanoTime(); left > 0 && !isStopped; left = end - System.nanoTime()) {
                try {
                    stop.wait(left / 1_000_000, (int) (left % 1_000_000));
                } catch (InterruptedException error) {
                    throw new IllegalStateException(error);
                }
            }
        }
    }
}
