package evenlag.broker;

/**
 * The result for a hint, with the names that evenlag's consumers use too.
 *
 * <p>The first group is about a record of the hint topic, the second about an answer to the coordinator, the
 * third about the watcher.
 */
enum Reason {
    RECEIVED(false),
    WITHDRAWN(false),
    STOPPED(false),
    RESUMED(false),
    MALFORMED(true),
    BAD_SIGNATURE(true),
    FOREIGN(true),
    REPLAYED(true),
    UNUSABLE(true),
    /** A hint for a group of the classic protocol: its members follow it, the broker does not. */
    CLASSIC(false),

    FOLLOWED(false),
    NO_HINT(false),
    COLD(false),
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
    final boolean isIgnored;

    Reason(boolean isIgnored) {
        this.isIgnored = isIgnored;
    }
}
