package evenlag.broker;

import java.util.Collections;
import java.util.EnumMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.LongAdder;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Counts events, and logs each once per plan; thread-safe. */
final class Journal {
    private static final Logger LOG = LoggerFactory.getLogger("evenlag.broker");
    private static final int MAX_REMEMBERED = 1000;

    private final Map<Reason, LongAdder> counts = new EnumMap<>(Reason.class);
    private final Set<String> logged = Collections.synchronizedSet(new HashSet<>());

    Journal() {
        for (Reason reason : Reason.values()) {
            counts.put(reason, new LongAdder());
        }
    }

    long count(Reason reason) {
        return counts.get(reason).sum();
    }

    /**
     * Records one event.
     *
     * @param groupId null if it concerns no group
     * @param planId null if it concerns no plan
     * @param detail in words and numbers, never a secret
     */
    void note(Reason reason, String groupId, String planId, String detail) {
        counts.get(reason).increment();
        if (reason == Reason.NO_HINT || reason == Reason.CLASSIC) {
            return; // the normal case of most groups is not logged
        }
        if (isFirst(reason + "/" + groupId + "/" + planId)) {
            LOG.info("group {}: hint {} {}: {}", groupId, planId, reason, detail);
        }
    }

    /** Records an event of the watcher, and logs it if it differs from the last one. */
    void noteWatcher(Reason reason, String detail) {
        counts.get(reason).increment();
        Reason other = reason == Reason.READY ? Reason.UNAVAILABLE : Reason.READY;
        logged.remove(other.name());
        if (isFirst(reason.name())) {
            LOG.info("hints {}: {}", reason, detail);
        }
    }

    /** Records an internal error; the first of its kind with its stack trace. */
    void noteError(String what, Throwable error) {
        counts.get(Reason.INTERNAL_ERROR).increment();
        if (isFirst(what + "/" + error.getClass().getName())) {
            LOG.error("{} failed: the group is assigned as by Kafka's own assignor", what, error);
        }
    }

    private boolean isFirst(String key) {
        if (logged.size() > MAX_REMEMBERED) {
            logged.clear(); // bounds the memory of a long-running broker
        }
        return logged.add(key);
    }
}
