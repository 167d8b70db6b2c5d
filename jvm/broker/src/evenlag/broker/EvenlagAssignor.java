package evenlag.broker;

import evenlag.core.Audience;
import evenlag.core.HintWatcher;
import evenlag.core.Journal;
import evenlag.core.Metrics;
import evenlag.core.Reason;
import evenlag.core.Settings;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.Configurable;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Makes groups of the consumer protocol (KIP-848) follow hints: {@code group.remote.assignor=evenlag}.
 *
 * <p>It always answers from memory without delay: without a valid hint, as Kafka's uniform assignor. An
 * error in its settings is logged and disables hints; the broker starts anyway. Several coordinator threads
 * may call it concurrently.
 */
public final class EvenlagAssignor implements ConsumerGroupPartitionAssignor, Configurable {
    /** The name that clients request. */
    public static final String NAME = "evenlag";

    static final String METRICS = "evenlag:type=BrokerAssignor";

    /** Reasons that only consumers have. */
    private static final EnumSet<Reason> REASONS = EnumSet.complementOf(
            EnumSet.of(Reason.FUTURE, Reason.LOADS_STALE, Reason.NO_TOPIC_IDS));

    private static final Logger LOG = LoggerFactory.getLogger("evenlag.broker");

    /** A broker creates its assignors again whenever it reads its settings; they share one watcher. */
    private static final Map<Settings, Shared> SHARED = new HashMap<>();

    private final UniformAssignor uniform = new UniformAssignor();
    private volatile Decider decider;

    /** State that the assignors of one broker share. */
    private record Shared(HintWatcher watcher, Journal journal, AtomicLong lastAssignNs) {}

    @Override
    public String name() {
        return NAME;
    }

    @Override
    public void configure(Map<String, ?> configs) {
        try {
            Shared shared = shared(BrokerSettings.of(configs));
            decider = new Decider(
                    shared.watcher::knowledge,
                    uniform,
                    shared.journal,
                    System::currentTimeMillis,
                    shared.lastAssignNs);
        } catch (Throwable error) { // a broker must start without hints
            LOG.error("hints are off: the settings of evenlag's assignor are wrong", error);
        }
    }

    @Override
    public GroupAssignment assign(GroupSpec group, SubscribedTopicDescriber topics) {
        Decider current = decider;
        return current == null ? uniform.assign(group, topics) : current.assign(group, topics);
    }

    static Journal newJournal() {
        return new Journal("evenlag.broker", "the group is assigned as by Kafka's own assignor");
    }

    private static synchronized Shared shared(Settings settings) throws Exception {
        Shared shared = SHARED.get(settings);
        if (shared == null) {
            Journal journal = newJournal();
            HintWatcher watcher = new HintWatcher(settings, Audience::broker, journal);
            shared = new Shared(watcher, journal, new AtomicLong());
            AtomicLong lastAssignNs = shared.lastAssignNs;
            new Metrics(METRICS, "evenlag's hints in this broker", REASONS, journal, watcher,
                            () -> lastAssignNs.get() / 1000)
                    .register();
            watcher.start();
            SHARED.put(settings, shared);
        }
        return shared;
    }
}
