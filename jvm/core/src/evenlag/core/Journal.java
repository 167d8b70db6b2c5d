package evenlag.core;

import java.util.Collections;
import java.util.EnumMap;
import java.util.EnumSet;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.LongAdder;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Counts events, and logs each once per plan, or once a minute what records may cause in any number; thread-safe. */
public final class Journal {
    private static final int MAX_REMEMBERED = 1000;
    private static final int MAX_TEXT = 200;
    /** Whoever may write to the hint topic causes these, under ever new names. */
    private static final Set<Reason> OF_RECORDS = EnumSet.of(
            Reason.MALFORMED, Reason.BAD_SIGNATURE, Reason.FOREIGN, Reason.REPLAYED, Reason.NEWER_FORMAT,
            Reason.UNUSABLE, Reason.FUTURE, Reason.COMPRESSED);
    /** So many of each are logged one by one. */
    private static final int NUM_LOGGED = 10;
    private static final long SUMMARY_INTERVAL_NS = 60_000_000_000L;

    private final Map<Reason, LongAdder> counts = new EnumMap<>(Reason.class);
    private final Set<Long> logged = Collections.synchronizedSet(new HashSet<>());

    private final Map<Reason, Integer> numLogged = new EnumMap<>(Reason.class);
    private final Map<Reason, Long> lastSummaryNs = new EnumMap<>(Reason.class);

    private final Logger log;
    private final String fallback;

    /**
     * Makes an empty journal.
     *
     * @param logger the name of its logger
     * @param fallback what happens instead after an internal error, for the log
     */
    public Journal(String logger, String fallback) {
        log = LoggerFactory.getLogger(logger);
        this.fallback = fallback;
        for (Reason reason : Reason.values()) {
            counts.put(reason, new LongAdder());
        }
    }

    public long count(Reason reason) {
        return counts.get(reason).sum();
    }

    /**
     * Records one event.
     *
     * @param groupId null if it concerns no group
     * @param planId null if it concerns no plan
     * @param detail in words and numbers, never a secret
     */
    public void note(Reason reason, String groupId, String planId, String detail) {
        counts.get(reason).increment();
        if (reason == Reason.NO_HINT || reason == Reason.CLASSIC) {
            return; // the normal case of most groups is not logged
        }
        if (reason == Reason.NO_ROOM) {
            if (isSummaryDue(reason)) {
                log.warn("evenlag.max.bytes is too small: {} records had no room since the start, the last one of group {}: {}",
                        count(reason), printable(groupId), printable(detail));
            }
            return;
        }
        if (!isFirst(reason + "/" + groupId + "/" + planId)) {
            return;
        }
        if (!OF_RECORDS.contains(reason) || isOneOfFew(reason)) {
            log.info("group {}: hint {} {}: {}", printable(groupId), planId, reason, printable(detail));
        } else if (isSummaryDue(reason)) {
            log.info("{} records {} since the start, the last one of group {}: {}",
                    count(reason), reason, printable(groupId), printable(detail));
        }
    }

    /** Records an event of the watcher, and logs it if it differs from the last one. */
    public void noteWatcher(Reason reason, String detail) {
        counts.get(reason).increment();
        Reason other = reason == Reason.READY ? Reason.UNAVAILABLE : Reason.READY;
        logged.remove(hash(other.name()));
        if (isFirst(reason.name())) {
            log.info("hints {}: {}", reason, detail);
        }
    }

    /** Records an internal error; the first of its kind with its stack trace. */
    public void noteError(String what, Throwable error) {
        counts.get(Reason.INTERNAL_ERROR).increment();
        if (isFirst(what + "/" + error.getClass().getName())) {
            log.error("{} failed: {}", what, fallback, error);
        }
    }

    private boolean isOneOfFew(Reason reason) {
        synchronized (numLogged) {
            return numLogged.merge(reason, 1, Integer::sum) <= NUM_LOGGED;
        }
    }

    /** Once a minute: there may be thousands of such records. */
    private boolean isSummaryDue(Reason reason) {
        long now = System.nanoTime();
        synchronized (lastSummaryNs) {
            Long last = lastSummaryNs.get(reason);
            boolean isDue = last == null || now - last > SUMMARY_INTERVAL_NS;
            if (isDue) {
                lastSummaryNs.put(reason, now);
            }
            return isDue;
        }
    }

    private boolean isFirst(String key) {
        if (logged.size() > MAX_REMEMBERED) {
            logged.clear(); // bounds the memory of a long-running broker
        }
        return logged.add(hash(key));
    }

    /** Names come from records: they may be long, or hold line feeds. */
    private static String printable(String text) {
        if (text == null) {
            return null;
        }
        StringBuilder out = new StringBuilder();
        Text.appendQuoted(out, text.substring(0, Math.min(MAX_TEXT, text.length())));
        return out.substring(1, out.length() - 1);
    }

    /** Stands for a key of any length. */
    private static long hash(String key) {
        return (long) key.hashCode() << 32 | key.length();
    }
}
