package evenlag.core.sticky;

import org.apache.kafka.common.Uuid;

/**
 * A topic as the leader's metadata describe it.
 *
 * @param numPartitions 0 if it is not known
 * @param id null if it is not known
 */
public record Topic(int numPartitions, Uuid id) {}
