package evenlag.client;

import evenlag.core.sticky.Member;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.TopicPartition;
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
     * Returns the members without the claims on partitions that do not exist.
     *
     * @param metadata the object that the client hands in; it makes another one with each response
     * @param nowNs of a clock that never goes back
     */
    List<Member> withoutGone(
            List<Member> members, Map<String, Integer> counts, Map<String, Uuid> topicIds, Object metadata,
            long nowNs) {
        if (lastMetadata.get() != metadata) {
            // When they were read is not known, only that the last ones were still in use until then.
            readAfterNs = lastMetadata.get() == null ? Long.MIN_VALUE : lastSeenNs;
            lastMetadata = new WeakReference<>(metadata);
        }
        lastSeenNs = nowNs;
        Set<Beyond> seen = new HashSet<>();
        for (Member member : members) {
            for (TopicPartition claimed : member.owned()) {
                Integer count = counts.get(claimed.topic());
                if (count != null && claimed.partition() >= count) {
                    seen.add(new Beyond(claimed.topic(), count));
                }
            }
        }
        firstSeenNs.keySet().retainAll(seen);
        seen.forEach(each -> firstSeenNs.putIfAbsent(each, nowNs));
        Set<String> gone = new HashSet<>();
        seen.forEach(each -> {
            Uuid known = topicIds.get(each.topic());
            Uuid last = lastIds.get(each.topic());
            boolean isRecreated = known != null && last != null && !last.equals(known);
            boolean isOld = readAfterNs != Long.MIN_VALUE
                    && readAfterNs - firstSeenNs.get(each) >= AGREE_AFTER_NS;
            if (isRecreated || isOld) {
                gone.add(each.topic());
            }
        });
        // A recreated topic stays one until no old claim is left.
        topicIds.forEach((topic, id) -> {
            if (!gone.contains(topic) || !lastIds.containsKey(topic)) {
                lastIds.put(topic, id);
            }
        });
        return gone.isEmpty() ? members : without(members, counts, gone);
    }

    private static List<Member> without(List<Member> members, Map<String, Integer> counts, Set<String> gone) {
        List<Member> kept = new ArrayList<>(members.size());
        for (Member member : members) {
            List<TopicPartition> owned = new ArrayList<>(member.owned());
            owned.removeIf(claimed -> gone.contains(claimed.topic())
                    && claimed.partition() >= counts.get(claimed.topic()));
            kept.add(new Member(
                    member.memberId(), member.instanceId(), member.topics(), owned, member.generation()));
        }
        return kept;
    }
}
