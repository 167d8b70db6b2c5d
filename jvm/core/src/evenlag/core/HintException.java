package evenlag.core;

/** Thrown if a record is not an acceptable hint, with the reason and a message. */
public final class HintException extends Exception {
    private static final long serialVersionUID = 1L;

    public final Reason reason;

    HintException(Reason reason, String message) {
        // The hint topic is untrusted input and may be invalid often: a stack trace would be too
        // expensive.
        super(message, null, false, false);
        this.reason = reason;
    }

    static HintException malformed(String message) {
        return new HintException(Reason.MALFORMED, message);
    }
}
