package evenlag.client;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;

/**
 * The member that evenlag's publisher lets join for a moment, to make the group rebalance.
 *
 * <p>It is recognized as {@code assignor_core.members} does: no topics, and a mark as user data.
 */
final class TemporaryMember {
    private static final ByteBuffer MARK =
            ByteBuffer.wrap("evenlag:temporary-member".getBytes(StandardCharsets.US_ASCII)).asReadOnlyBuffer();

    private TemporaryMember() {}

    /** Returns whether a subscription is that of the temporary member, which is no part of the group. */
    static boolean is(Subscription subscription) {
        return subscription.topics().isEmpty() && MARK.equals(subscription.userData());
    }
}
