package evenlag.core;

import java.io.IOException;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/**
 * The first line of a record's value.
 *
 * @param kind of the record
 * @param numbers by name, for hints: sequence and times
 * @param signature in hexadecimal, null if it is not signed
 * @param length in bytes, without the line feed
 */
public record Envelope(Kind kind, Map<String, Long> numbers, String signature, int length) {
    /** The kinds of records, with the fields of their envelopes, sorted. */
    enum Kind {
        HINT("expires_at_ms", "hmac", "issued_at_ms", "sequence", "version"),
        LOADS("hmac", "kind", "version");

        private final String[] fields;

        Kind(String... fields) {
            this.fields = fields;
        }

        private boolean has(String name) {
            return Arrays.asList(fields).contains(name);
        }
    }

    /** The largest sequence and the latest time: every JSON library reads it exactly. */
    static final long MAX_SEQUENCE = 1L << 53;

    private static final String LOADS = "loads";

    /**
     * Reads the envelope of a value.
     *
     * @throws HintException if the value is too large, or has none
     */
    static Envelope read(byte[] value, Kind kind) throws HintException {
        if (value.length > HintCodec.MAX_VALUE_BYTES) {
            throw HintException.malformed(value.length + " bytes are more than a record may have");
        }
        int end = 0;
        while (end < value.length && value[end] != '\n') {
            end++;
        }
        if (end == value.length) {
            throw HintException.malformed("no line feed between envelope and payload");
        }
        try {
            return read(HintCodec.parser(value, 0, end), kind, end);
        } catch (IOException error) {
            throw HintException.malformed("the envelope is no JSON");
        }
    }

    /** Whether the payload is in a format of a later version; the envelope has the same fields in all. */
    boolean isNewer() {
        return numbers.get("version") > 1;
    }

    /** Returns what is signed, in canonical form, with the line feed. */
    String canonical() {
        if (kind == Kind.LOADS) {
            return "{\"kind\":\"loads\",\"version\":1}\n";
        }
        StringBuilder out = new StringBuilder("{");
        numbers.forEach((name, number) ->
                out.append(out.length() > 1 ? "," : "").append('"').append(name).append("\":").append(number));
        return out.append("}\n").toString();
    }

    private static Envelope read(Json parser, Kind kind, int length) throws IOException, HintException {
        Map<String, Long> numbers = new TreeMap<>();
        String signature = null;
        Set<String> names = new HashSet<>();
        if (parser.next() != Json.Token.START_OBJECT) {
            throw HintException.malformed("the envelope is no JSON object");
        }
        while (parser.next() != Json.Token.END_OBJECT) {
            String name = parser.string();
            Json.Token token = parser.next();
            if (!kind.has(name) || !names.add(name)) {
                throw HintException.malformed("the envelope has a field twice, or one that is not known");
            }
            switch (name) {
                case "hmac" -> {
                    if (token == Json.Token.STRING) {
                        signature = Text.checked(parser.string());
                    } else if (token != Json.Token.NULL) {
                        throw HintException.malformed("the envelope's hmac is no text");
                    }
                }
                case "kind" -> {
                    if (token != Json.Token.STRING || !parser.string().equals(LOADS)) {
                        throw HintException.malformed("the envelope's kind is not loads");
                    }
                }
                default -> numbers.put(name, HintCodec.number(parser, name, 0, MAX_SEQUENCE));
            }
        }
        if (parser.next() != null) {
            throw HintException.malformed("something stands behind the envelope");
        }
        if (names.size() != kind.fields.length) { // none is unknown, and none stands twice
            throw HintException.malformed("the envelope's fields are not those of its kind");
        }
        long version = numbers.get("version");
        if (version < 1 || kind == Kind.LOADS && version > 1) {
            throw HintException.malformed("version " + version + " is not 1");
        }
        return new Envelope(kind, numbers, signature, length);
    }
}
