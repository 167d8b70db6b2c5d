package evenlag.broker;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.StreamReadFeature;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * Decodes hints: {@code assignor_core.hint} in Java, tested with the same vectors.
 *
 * <p>A value is an envelope, a line feed, and the payload's bytes. The signature is checked before the
 * payload is parsed.
 */
final class HintCodec {
    static final int MAX_VALUE_BYTES = 32 * 1024 * 1024;

    private static final byte[] KEY_CONTEXT =
            "evenlag broker hint key v1\0".getBytes(StandardCharsets.US_ASCII);
    private static final JsonFactory JSON =
            JsonFactory.builder().enable(StreamReadFeature.STRICT_DUPLICATE_DETECTION).build();
    private static final List<String> NUMBERS =
            List.of("expires_at_ms", "issued_at_ms", "sequence", "version");

    private HintCodec() {}

    /** An envelope: its numbers by name, and the signature or null. */
    private record Envelope(Map<String, Long> numbers, String signature) {
        String canonical() {
            StringBuilder out = new StringBuilder("{");
            for (String name : NUMBERS) {
                out.append(out.length() > 1 ? "," : "").append('"').append(name).append("\":");
                out.append(numbers.get(name).longValue());
            }
            return out.append("}\n").toString();
        }
    }

    /**
     * Reads a hint.
     *
     * @param key the record's key
     * @param value the record's value
     * @param masterKeys any of which may have signed it; with none, nothing is verified
     * @param clusterId this broker's cluster, null if unknown
     * @throws HintException if it is malformed, not correctly signed, or of another group or cluster
     */
    static Hint decode(byte[] key, byte[] value, List<byte[]> masterKeys, String clusterId)
            throws HintException {
        if (value.length > MAX_VALUE_BYTES) {
            throw HintException.malformed(value.length + " bytes are more than a hint may have");
        }
        int end = 0;
        while (end < value.length && value[end] != '\n') {
            end++;
        }
        if (end == value.length) {
            throw HintException.malformed("no line feed between envelope and payload");
        }
        Envelope envelope = readEnvelope(value, end);
        if (!masterKeys.isEmpty()) {
            checkSignature(masterKeys, key, envelope, value, end + 1);
        }
        return new PayloadReader(envelope.numbers, key, clusterId).read(value, end + 1);
    }

    /** Returns the signing key of a group for brokers: {@code assignor_core.hint.derive_broker_key}. */
    static byte[] deriveKey(byte[] masterKey, byte[] recordKey) {
        Mac mac = mac(masterKey);
        mac.update(KEY_CONTEXT);
        return mac.doFinal(recordKey);
    }

    /** Opens a parser on UTF-8 bytes; Jackson itself would guess other encodings too. */
    static JsonParser parser(byte[] bytes, int from, int length) throws IOException {
        String text = Text.decode(bytes, from, length);
        if (text.startsWith("\uFEFF")) {
            throw new IOException("a byte order mark stands first");
        }
        return JSON.createParser(text);
    }

    /** Reads a whole number from 0 on. */
    static long number(JsonParser parser, String what) throws IOException, HintException {
        if (parser.currentToken() != JsonToken.VALUE_NUMBER_INT
                || parser.getNumberType() == JsonParser.NumberType.BIG_INTEGER
                || parser.getLongValue() < 0) {
            throw HintException.malformed(what + " is no whole number from 0 on");
        }
        return parser.getLongValue();
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

    private static Envelope readEnvelope(byte[] value, int length) throws HintException {
        Map<String, Long> numbers = new TreeMap<>();
        String signature = null;
        int numFields = 0;
        try (JsonParser parser = parser(value, 0, length)) {
            if (parser.nextToken() != JsonToken.START_OBJECT) {
                throw HintException.malformed("the envelope is no JSON object");
            }
            while (parser.nextToken() != JsonToken.END_OBJECT) {
                String name = parser.currentName();
                JsonToken token = parser.nextToken();
                numFields++;
                if (NUMBERS.contains(name)) {
                    numbers.put(name, number(parser, "the envelope's " + name));
                } else if (name.equals("hmac") && token == JsonToken.VALUE_STRING) {
                    signature = parser.getText();
                } else if (!name.equals("hmac") || token != JsonToken.VALUE_NULL) {
                    throw HintException.malformed("the envelope has a field that is wrong");
                }
            }
            if (parser.nextToken() != null) {
                throw HintException.malformed("something stands behind the envelope");
            }
        } catch (IOException error) {
            throw HintException.malformed("the envelope is no JSON");
        }
        if (numbers.size() != NUMBERS.size() || numFields != NUMBERS.size() + 1) {
            throw HintException.malformed("the envelope's fields are not those of a hint");
        }
        if (numbers.get("version") != 1) {
            throw HintException.malformed("version " + numbers.get("version") + " is not 1");
        }
        return new Envelope(numbers, signature);
    }

    private static void checkSignature(
            List<byte[]> masterKeys, byte[] recordKey, Envelope envelope, byte[] value, int from)
            throws HintException {
        if (envelope.signature == null) {
            throw new HintException(Reason.BAD_SIGNATURE, "the hint is not signed, and has to be here");
        }
        byte[] given = envelope.signature.getBytes(StandardCharsets.UTF_8);
        boolean holds = false;
        for (byte[] masterKey : masterKeys) {
            Mac mac = mac(deriveKey(masterKey, recordKey));
            mac.update(envelope.canonical().getBytes(StandardCharsets.US_ASCII));
            mac.update(value, from, value.length - from);
            holds |= MessageDigest.isEqual(given, hex(mac.doFinal()).getBytes(StandardCharsets.US_ASCII));
        }
        if (!holds) {
            throw new HintException(Reason.BAD_SIGNATURE, "the hint's signature does not hold for a broker");
        }
    }

    private static Mac mac(byte[] key) {
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(key, "HmacSHA256"));
            return mac;
        } catch (GeneralSecurityException error) {
            throw new IllegalStateException("this Java has no HmacSHA256", error);
        }
    }
}
