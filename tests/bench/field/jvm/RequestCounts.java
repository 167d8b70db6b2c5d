package evenlag.field;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;

/**
 * A metrics reporter of the broker: each second, a file with the requests that each listener has received.
 *
 * <p>A line has the name of a listener and a number. What a network thread receives, its selector counts as a
 * response: it is the client's.
 */
public final class RequestCounts implements MetricsReporter {
    private static final String FILE = "field.requests.file";

    private final Set<KafkaMetric> metrics = ConcurrentHashMap.newKeySet();
    private final ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor(task -> {
        Thread thread = new Thread(task, "request-counts");
        thread.setDaemon(true);
        return thread;
    });

    /** Kafka makes reporters by this constructor. */
    public RequestCounts() {}

    @Override
    public void configure(Map<String, ?> configs) {
        // The controller's metrics are apart, and their reporters, too.
        Path file = Path.of((String) configs.get(FILE));
        timer.scheduleAtFixedRate(() -> write(file), 1, 1, TimeUnit.SECONDS);
    }

    @Override
    public void init(List<KafkaMetric> found) {
        found.forEach(this::metricChange);
    }

    @Override
    public void metricChange(KafkaMetric metric) {
        if (metric.metricName().group().equals("socket-server-metrics")
                && metric.metricName().name().equals("response-total")) {
            metrics.add(metric);
        }
    }

    @Override
    public void metricRemoval(KafkaMetric metric) {
        metrics.remove(metric);
    }

    private void write(Path file) {
        Map<String, Long> totals = new TreeMap<>();
        for (KafkaMetric metric : metrics) {
            String listener = metric.metricName().tags().get("listener");
            totals.merge(listener, ((Number) metric.metricValue()).longValue(), Long::sum);
        }
        StringBuilder lines = new StringBuilder();
        totals.forEach((listener, total) -> lines.append(listener).append(' ').append(total).append('\n'));
        try {
            Path written = file.resolveSibling(file.getFileName() + "." + hashCode());
            Files.writeString(written, lines);
            Files.move(written, file, StandardCopyOption.ATOMIC_MOVE);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Override
    public void close() {
        timer.shutdownNow();
    }
}
