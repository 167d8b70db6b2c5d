package evenlag.sandbox;

import java.lang.management.ManagementFactory;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import javax.management.InstanceNotFoundException;
import javax.management.JMException;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServer;
import javax.management.ObjectName;

/** Notes an event for each decision on a hint, from the counters of evenlag's MBean. */
final class HintCounts {
    private static final String TOTAL = "Total";
    /** A sum of others. */
    private static final Set<String> LEFT_OUT = Set.of("IgnoredTotal");

    private final EventFile events;
    private final ObjectName bean;
    private final Map<String, Long> seen = new HashMap<>();

    HintCounts(EventFile events, String groupId) {
        this.events = events;
        try {
            bean = new ObjectName("evenlag:type=ConsumerAssignor,group=" + ObjectName.quote(groupId));
        } catch (JMException error) {
            throw new IllegalArgumentException(error);
        }
    }

    void write() {
        MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        try {
            for (MBeanAttributeInfo info : server.getMBeanInfo(bean).getAttributes()) {
                String name = info.getName();
                if (name.endsWith(TOTAL) && !LEFT_OUT.contains(name)) {
                    long now = ((Number) server.getAttribute(bean, name)).longValue();
                    String reason = upperSnake(name.substring(0, name.length() - TOTAL.length()));
                    for (long more = now - seen.getOrDefault(name, 0L); more > 0; more--) {
                        events.write("hint", Map.of("reason", reason));
                    }
                    seen.put(name, now);
                }
            }
        } catch (InstanceNotFoundException error) {
            return; // another assignor, or it has not begun
        } catch (JMException error) {
            throw new IllegalStateException(error);
        }
    }

    private static String upperSnake(String name) {
        return name.replaceAll("(?<=.)([A-Z])", "_$1").toUpperCase(Locale.ROOT);
    }
}
