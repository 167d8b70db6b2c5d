package evenlag.field;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/**
 * The pods of one contender, a thread each: {@code FieldConsumers SPEC.json}.
 *
 * <p>Each runs its consumer in the spans of time that the specification gives it. SIGTERM ends all in good order.
 */
public final class FieldConsumers {
    private FieldConsumers() {}

    public static void main(String[] arguments) throws IOException, InterruptedException {
        JsonNode spec = new ObjectMapper().readTree(new File(arguments[0]));
        boolean shares = spec.get("kind").asText().equals("share");
        List<Pod> pods = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (JsonNode each : spec.get("pods")) {
            Pod pod = shares ? new SharePod(spec, each) : new ClassicPod(spec, each);
            pods.add(pod);
            threads.add(new Thread(pod, each.get("name").asText()));
        }
        // The JVM ends with its shutdown hooks.
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            pods.forEach(Pod::stop);
            for (Thread thread : threads) {
                try {
                    thread.join();
                } catch (InterruptedException error) {
                    Thread.currentThread().interrupt();
                }
            }
        }));
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        });
        threads.forEach(Thread::start);
        // Pods without further spans stay out of the group until the run ends.
        Thread.currentThread().join();
    }
}
