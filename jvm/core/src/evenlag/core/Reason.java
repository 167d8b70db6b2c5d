package evenlag.core;

/**
 * The result for a hint, with the names that evenlag's consumers use too.
 *
 * <p>The first group is about a record of the hint topic, the second about an answer to the coordinator, the
 * third about the watcher.
 */
public enum Reason {
    RECEIVED(false),
    WITHDRAWN(false),
    STOPPED(false),
    RESUMED(false),
    MALFORMED(true),
    BAD_SIGNATURE(true),
    FOREIGN(true),
    REPLAYED(true),
    /** A hint in a newer format: it replaces older hints, and cannot be followed. */
    NEWER_FORMAT(true),
    UNUSABLE(true),
    /** It does not fit into {@code evenlag.max.bytes}. */
    NO_ROOM(true),
    /** Of the future; the broker's plug-in counts it as UNUSABLE. */
    FUTURE(true),
    /** A compressed batch: it is not decompressed, because that could take any amount of memory. */
    COMPRESSED(true),
    /** A hint for a group of the classic protocol: its members follow it, the broker does not. */
    CLASSIC(false),

    FOLLOWED(false),
    /** No hint fits, and the partitions were placed by fresh loads. */
    PLACED_BY_LOAD(false),
    NO_HINT(false),
    COLD(false),
    /** No hint, and the loads are too old. */
    LOADS_STALE(false),
    /** The client's metadata have no topic ids. */
    NO_TOPIC_IDS(true),
    EXPIRED(true),
    FINGERPRINT(true),
    MISMATCH(true),
    MAX_MOVES(true),
    COUNT_SLACK(true),
    INVALID(true),
    INTERNAL_ERROR(false),

    READY(false),
    UNAVAILABLE(false);

    /** Whether an existing hint was not followed. */
    public final boolean isIgnored;

    Reason(boolean isIgnored) {
        this.isIgnored = isIgnored;
    }
}
