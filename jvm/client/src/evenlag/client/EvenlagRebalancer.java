package evenlag.client;

import evenlag.core.GroupRecords;
import evenlag.core.GroupView;
import evenlag.core.Hint;
import evenlag.core.HintTable;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;

/**
 * Lets an application ask for the rebalance by which a hint takes effect: an assignor cannot.
 *
 * <p>Without it a group of Java members alone follows a hint at its next rebalance.
 */
public final class EvenlagRebalancer {
    /** Asked once, a leader may not have read the hint yet; more often, it refuses the hint. */
    private static final int MAX_ASKS_PER_PLAN = 2;

    private static final Map<Consumer<?, ?>, Asked> ASKED = new WeakHashMap<>();

    private EvenlagRebalancer() {}

    /** What a consumer has asked for. */
    private static final class Asked {
        String planId;
        int generation = -1;
        int count;
    }

    /**
     * Asks for a rebalance if a hint gives this consumer other partitions than it has. Call it before each
     * {@code poll}, on the same thread. It costs microseconds and never waits.
     *
     * @param consumer a member of a group, with evenlag's assignor
     * @return whether it asked
     */
    public static boolean maybeRebalance(Consumer<?, ?> consumer) {
        ConsumerGroupMetadata me = consumer.groupMetadata();
        if (me.generationId() < 0) {
            return false; // it joins anyway
        }
        for (SharedWatcher watcher : SharedWatcher.of(me.groupId())) {
            Hint hint = startable(watcher.table(), me.groupId());
            Set<TopicPartition> wanted = hint == null ? null : partOf(hint, me, watcher.topicNames());
            boolean differs = wanted != null && !wanted.equals(consumer.assignment());
            if (differs && watcher.mayAsk(me.memberId(), hint.planId())) {
                return ask(consumer, hint.planId(), me.generationId());
            }
        }
        return false;
    }

    private static Hint startable(HintTable table, String groupId) {
        GroupRecords records = table == null ? null : table.of(groupId);
        Hint hint = records == null ? null : records.hint;
        long now = System.currentTimeMillis();
        return hint != null && hint.isDue(now) && !hint.isExpired(now) ? hint : null;
    }

    /**
     * Returns what a hint gives to a member; null if the name of a topic is unknown, or it gives nothing: then
     * those ask who get what the member has.
     */
    private static Set<TopicPartition> partOf(Hint hint, ConsumerGroupMetadata me, Map<Uuid, String> names) {
        Hint.Share share =
                hint.shares().get(GroupView.keyOf(me.memberId(), me.groupInstanceId().orElse(null)));
        if (share == null || !names.keySet().containsAll(share.partitions().keySet())) {
            return null;
        }
        Set<TopicPartition> wanted = new HashSet<>();
        share.partitions().forEach((topic, numbers) ->
                numbers.forEach(number -> wanted.add(new TopicPartition(names.get(topic), number))));
        return wanted;
    }

    private static boolean ask(Consumer<?, ?> consumer, String planId, int generation) {
        synchronized (ASKED) {
            Asked asked = ASKED.computeIfAbsent(consumer, same -> new Asked());
            if (!planId.equals(asked.planId)) {
                asked.planId = planId;
                asked.count = 0;
                asked.generation = -1;
            }
            if (asked.generation == generation || asked.count == MAX_ASKS_PER_PLAN) {
                return false;
            }
            asked.generation = generation;
            asked.count++;
        }
        consumer.enforceRebalance();
        return true;
    }
}
