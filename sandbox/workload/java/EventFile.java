package evenlag.sandbox;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;

/** The journal of this process, as {@code sandbox.workload.journal} writes it: one JSON object a line. */
public final class EventFile {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final OutputStream file;
    private final String name;
    private final long pid = ProcessHandle.current().pid();

    public EventFile(File path, String name) throws IOException {
        file = new FileOutputStream(path, true);
        this.name = name;
    }

    public static double now() {
        // On Linux this clock is the machine's, as Python's monotonic one is.
        return System.nanoTime() / 1e9;
    }

    public static List<List<Object>> pairs(Collection<TopicPartition> partitions) {
        List<List<Object>> pairs = new ArrayList<>();
        partitions.forEach(each -> pairs.add(List.of(each.topic(), each.partition())));
        return pairs;
    }

    public void write(String event, Map<String, Object> fields) {
        write(event, now(), fields);
    }

    /** Appends an event with one system call, so that a kill leaves whole lines. */
    public synchronized void write(String event, double atS, Map<String, Object> fields) {
        Map<String, Object> line = new HashMap<>(fields);
        line.putAll(Map.of(
                "at_s", atS, "wall_ms", System.currentTimeMillis(), "event", event, "name", name, "pid", pid));
        try {
            file.write((JSON.writeValueAsString(line) + "\n").getBytes(StandardCharsets.UTF_8));
        } catch (JsonProcessingException error) {
            throw new IllegalStateException(error);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
