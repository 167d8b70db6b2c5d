package evenlag.client;

import evenlag.core.Audience;
import evenlag.core.GroupRecords;
import evenlag.core.Hint;
import evenlag.core.HintTable;
import evenlag.core.HintWatcher;
import evenlag.core.Journal;
import evenlag.core.Metrics;
import evenlag.core.Reason;
import evenlag.core.Settings;
import java.lang.management.ManagementFactory;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import javax.management.ObjectName;
import org.apache.kafka.common.Uuid;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One watcher for all assignors of the process that read the same hints.
 *
 * <p>Kafka never closes an assignor. So assignors are referenced weakly, and the watcher ends when none is left.
 */
final class SharedWatcher {
    static final String METRICS = "evenlag:type=ConsumerAssignor,group=";

    private static final Logger LOG = LoggerFactory.getLogger("evenlag.client");
    private static final Map<Settings, SharedWatcher> ALL = new HashMap<>();
    /** Which watcher's metrics an MBean has: the last one's of several for one group. */
    private static final Map<String, SharedWatcher> MEASURED = new HashMap<>();

    final Journal journal = new Journal("evenlag.client", "everybody keeps what it has");
    final AtomicLong lastAssignNs = new AtomicLong();

    private final Settings settings;
    private final List<Reader> readers = new ArrayList<>();
    private final HintWatcher watcher;
    private Audience audience;
    private String metricsName;

    /** An assignor, and the group that it reads for. */
    private static final class Reader {
        final WeakReference<EvenlagAssignor> assignor;
        final String groupId;
        /** The plan that was there when the assignor's group was first read; empty without one, null before. */
        String firstPlanId;

        Reader(EvenlagAssignor assignor, String groupId) {
            this.assignor = new WeakReference<>(assignor);
            this.groupId = groupId;
        }
    }

    private SharedWatcher(Settings settings) {
        this.settings = settings;
        watcher = new HintWatcher(settings, this::audience, journal);
    }

    /** Returns the watcher for an assignor, which must keep the reference to it. */
    static SharedWatcher join(Settings settings, String groupId, EvenlagAssignor assignor) {
        synchronized (ALL) {
            SharedWatcher shared = ALL.get(settings);
            boolean isNew = shared == null;
            if (isNew) {
                shared = new SharedWatcher(settings);
                ALL.put(settings, shared);
            }
            shared.readers.add(new Reader(assignor, groupId));
            shared.audience = null;
            shared.noteFirstPlans();
            if (isNew) {
                shared.register(groupId);
                shared.watcher.start();
            }
            return shared;
        }
    }

    /** Returns the watchers that read for a group. */
    static List<SharedWatcher> of(String groupId) {
        List<SharedWatcher> found = new ArrayList<>(1);
        synchronized (ALL) {
            for (SharedWatcher each : ALL.values()) {
                if (each.readers.stream().anyMatch(reader -> reader.groupId.equals(groupId))) {
                    found.add(each);
                }
            }
        }
        return found;
    }

    /**
     * Whether a member may ask for a plan. One that was there before it is the concern of those who saw it
     * come, and of a leader that has led without knowing it: else each restart would ask for what was refused.
     */
    boolean mayAsk(String memberId, String planId) {
        synchronized (ALL) {
            for (Reader reader : readers) {
                EvenlagAssignor assignor = reader.assignor.get();
                if (assignor != null && memberId.equals(assignor.memberId())) {
                    Decision last = assignor.lastDecision();
                    boolean isKnown = last != null && planId.equals(last.planId());
                    boolean wasThere = reader.firstPlanId == null || reader.firstPlanId.equals(planId);
                    return isKnown ? last.hintReason() == Reason.FOLLOWED : last != null || !wasThere;
                }
            }
            return false;
        }
    }

    /** Returns how many watchers there are. */
    static int count() {
        synchronized (ALL) {
            return ALL.size();
        }
    }

    /** Returns what is known about hints; null if nothing is. */
    HintTable table() {
        return watcher.knowledge().table();
    }

    /** Returns the names of topics in hints, as far as they are known. */
    Map<Uuid, String> topicNames() {
        return watcher.topicNames();
    }

    /** Returns the groups of the assignors that are left; null, and the end, without any. */
    private Audience audience() {
        synchronized (ALL) {
            boolean isSmaller = readers.removeIf(reader -> reader.assignor.get() == null);
            if (readers.isEmpty()) {
                ALL.remove(settings, this);
                unregister();
                return null;
            }
            noteFirstPlans();
            if (audience == null || isSmaller) {
                Set<String> groupIds = new HashSet<>();
                readers.forEach(reader -> groupIds.add(reader.groupId));
                audience = Audience.consumersOf(groupIds);
            }
            return audience;
        }
    }

    private void noteFirstPlans() {
        HintTable table = table();
        for (Reader reader : readers) {
            if (reader.firstPlanId == null && table != null && table.covers(reader.groupId)) {
                GroupRecords records = table.of(reader.groupId);
                Hint hint = records == null ? null : records.hint;
                reader.firstPlanId = hint == null ? "" : hint.planId();
            }
        }
    }

    private void register(String groupId) {
        EnumSet<Reason> reasons = EnumSet.complementOf(EnumSet.of(Reason.CLASSIC));
        metricsName = METRICS + ObjectName.quote(groupId);
        try {
            new Metrics(metricsName, "evenlag's hints in this process", reasons, journal, watcher,
                            () -> lastAssignNs.get() / 1000)
                    .register();
            MEASURED.put(metricsName, this);
        } catch (Exception error) { // a consumer works without metrics
            LOG.warn("evenlag's metrics are not registered", error);
        }
    }

    private void unregister() {
        if (MEASURED.remove(metricsName, this)) {
            try {
                ManagementFactory.getPlatformMBeanServer().unregisterMBean(new ObjectName(metricsName));
            } catch (Exception error) {
                LOG.warn("evenlag's metrics are still registered", error);
            }
        }
    }
}
