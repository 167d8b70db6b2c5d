package evenlag.core;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * Decodes records: {@code assignor_core.hint} and {@code assignor_core.loads} in Java, tested with the same
 * vectors and mutations.
 *
 * <p>A value is an envelope, a line feed, and the payload's bytes. The signature is checked before the
 * payload is parsed. Memory is proportional to the value: what would expand is checked first, and ranges stay
 * ranges.
 */
public final class HintCodec {
    static final int MAX_VALUE_BYTES = 8 * 1024 * 1024;

    /** The most partitions that one record may name. */
    static final int MAX_PARTITIONS = 2_000_000;

    static final String HINT_PREFIX = "group/";
    static final String LOADS_PREFIX = "loads/";


    private HintCodec() {}

    /**
     * Reads a hint. One in a newer format has no content ({@link Hint#isReadable}), and its cluster is not known.
     *
     * @param groupId the group that the record's key names
     * @param value the record's value
     * @param keys any of which may have signed it; with none, nothing is verified
     * @param clusterId the reader's cluster, null if unknown
     * @throws HintException if it is malformed, not correctly signed, or of another group or cluster
     */
    public static Hint decode(String groupId, byte[] value, SigningKeys keys, String clusterId)
            throws HintException {
        Envelope envelope = Envelope.read(value, Envelope.Kind.HINT);
        checkSignature(keys, groupId, envelope, value);
        return envelope.isNewer()
                ? Hint.unreadable(envelope, groupId, sha256Of(value, envelope.length() + 1))
                : new PayloadReader(envelope, groupId, clusterId).read(value);
    }

    /** Reads loads; the parameters and the exception are those of {@link #decode}. */
    public static Loads decodeLoads(String groupId, byte[] value, SigningKeys keys, String clusterId)
            throws HintException {
        Envelope envelope = Envelope.read(value, Envelope.Kind.LOADS);
        checkSignature(keys, groupId, envelope, value);
        return new LoadsReader(groupId, clusterId).read(value, envelope.length() + 1);
    }

    /** Opens a parser on UTF-8 bytes. */
    static Json parser(byte[] bytes, int from, int length) throws IOException {
        return new Json(Text.decode(bytes, from, length));
    }

    /** Opens a parser on bytes that are ASCII without control characters. */
    static Json asciiParser(byte[] bytes, int from) throws IOException {
        for (int i = from; i < bytes.length; i++) {
            if (bytes[i] < ' ' || bytes[i] > '~') {
                throw new IOException("a byte is none of canonical JSON");
            }
        }
        return new Json(new String(bytes, from, bytes.length - from, StandardCharsets.US_ASCII));
    }

    /** Reads a whole number within bounds. */
    static long number(Json parser, String what, long low, long high) throws HintException {
        if (parser.isWhole() && parser.number() >= low && parser.number() <= high) {
            return parser.number();
        }
        throw HintException.malformed(what + " is no whole number from " + low + " to " + high);
    }

    static String hex(byte[] bytes) {
        StringBuilder out = new StringBuilder(2 * bytes.length);
        for (byte b : bytes) {
            out.append(Character.forDigit(b >> 4 & 15, 16)).append(Character.forDigit(b & 15, 16));
        }
        return out.toString();
    }

    static MessageDigest sha256() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (GeneralSecurityException error) {
            throw new IllegalStateException("this Java has no SHA-256", error);
        }
    }

    /** Returns the digest of a payload, in hexadecimal. */
    static String sha256Of(byte[] value, int from) {
        MessageDigest digest = sha256();
        digest.update(value, from, value.length - from);
        return hex(digest.digest());
    }

    private static void checkSignature(SigningKeys keys, String groupId, Envelope envelope, byte[] value)
            throws HintException {
        if (keys.isEmpty()) {
            return;
        }
        if (envelope.signature() == null) {
            throw new HintException(Reason.BAD_SIGNATURE, "the record is not signed, and has to be here");
        }
        byte[] given = envelope.signature().getBytes(StandardCharsets.UTF_8);
        int from = envelope.length() + 1;
        boolean holds = false;
        for (byte[] key : keys.of(groupId)) {
            Mac mac = mac(key);
            mac.update(envelope.canonical().getBytes(StandardCharsets.US_ASCII));
            mac.update(value, from, value.length - from);
            holds |= MessageDigest.isEqual(given, hex(mac.doFinal()).getBytes(StandardCharsets.US_ASCII));
        }
        if (!holds) {
            throw new HintException(Reason.BAD_SIGNATURE, "the record's signature does not hold here");
        }
    }

    static Mac mac(byte[] key) {
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(key, "HmacSHA256"));
            return mac;
        } catch (GeneralSecurityException error) {
            throw new IllegalStateException("this Java has no HmacSHA256", error);
        }
    }
}
