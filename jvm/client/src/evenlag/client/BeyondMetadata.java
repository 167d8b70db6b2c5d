package evenlag.client;

import evenlag.core.sticky.Group;
import java.lang.ref.WeakReference;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.Uuid;

/**
 * Decides whether claimed partitions beyond a topic's known count are new, or no longer exist.
 *
 * <p>A leader with older metadata sees claims on partitions that it does not know: their owners keep them. If
 * metadata that were read later still do not show them, or the topic has another id, they do not exist.
 */
final class BeyondMetadata {
    /** After this time all brokers know a change of a topic. */
    private static final long AGREE_AFTER_NS = 10_000_000_000L;

    /** A topic with the count that claims are beyond. */
    private record Beyond(String topic, int count) {}

    private final Map<Beyond, Long> firstSeenNs = new HashMap<>();
    private final Map<String, Uuid> lastIds = new HashMap<>();
    private WeakReference<Object> lastMetadata = new WeakReference<>(null);
    private long lastSeenNs;
    private long readAfterNs;

    /**
     * Removes a group's claims on partitions that do not exist.
     *
     * @param metadata the object that the client hands in; it makes another one with each response
     * @param nowNs of a clock that never goes back
     */
    void removeGone(Group group, Object metadata, long nowNs) {
        if (lastMetadata.get() != metadata) {
            // When they were read is not known, only that the last ones were still in use until then.
            readAfterNs = lastMetadata.get() == null ? Long.MIN_VALUE : lastSeenNs;
            lastMetadata = new WeakReference<>(metadata);
        }
        lastSeenNs = nowNs;
        Map<Beyond, Uuid> seen = new HashMap<>();
        for (Group.UnknownClaim claim : group.unknownClaims) {
            int topic = group.numberOf(claim.topic());
            if (topic >= 0) {
                int count = group.topicStart[topic + 1] - group.topicStart[topic];
                seen.put(new Beyond(claim.topic(), count), group.topicIds[topic]);
            }
        }
        firstSeenNs.keySet().retainAll(seen.keySet());
        Set<String> gone = new HashSet<>();
        seen.forEach((each, known) -> {
            firstSeenNs.putIfAbsent(each, nowNs);
            Uuid last = lastIds.get(each.topic());
            boolean isRecreated = known != null && last != null && !last.equals(known);
            boolean isOld = readAfterNs != Long.MIN_VALUE
                    && readAfterNs - firstSeenNs.get(each) >= AGREE_AFTER_NS;
            if (isRecreated || isOld) {
                gone.add(each.topic());
            }
        });
        for (int topic = 0; topic < group.topics.length; topic++) {
            String name = group.topics[topic];
            // A recreated topic stays one until no old claim is left.
            if (group.topicIds[topic] != null && (!gone.contains(name) || !lastIds.containsKey(name))) {
                lastIds.put(name, group.topicIds[topic]);
            }
        }
        group.unknownClaims.removeIf(claim -> gone.contains(claim.topic()));
    }
}
