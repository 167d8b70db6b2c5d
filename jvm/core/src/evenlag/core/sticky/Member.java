package evenlag.core.sticky;

import java.util.List;
import org.apache.kafka.common.TopicPartition;

/**
 * A member as its join describes it.
 *
 * @param memberId Kafka's
 * @param instanceId of a static member, else null
 * @param topics the names of the topics that it subscribes to
 * @param owned the partitions that it claims
 * @param generation of these claims; -1 for none
 * @param rack its rack, null for none
 */
public record Member(
        String memberId,
        String instanceId,
        List<String> topics,
        List<TopicPartition> owned,
        int generation,
        String rack) {}
