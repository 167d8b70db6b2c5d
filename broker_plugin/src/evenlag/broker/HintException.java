package evenlag.broker;

/** Thrown when a record is no hint to hold; it says why, and by which of the stable reasons. */
final class HintException extends Exception {
    private static final long serialVersionUID = 1L;

    final Reason reason;

    HintException(Reason reason, String message) {
        // What the hint topic holds is foreign input and may be wrong often: no stack trace is worth its
        // cost.
        super(message, null, false, false);
        this.reason = reason;
    }

    static HintException malformed(String message) {
        return new HintException(Reason.MALFORMED, message);
    }
}
