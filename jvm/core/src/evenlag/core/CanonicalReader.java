package evenlag.core;

import java.io.IOException;
import org.apache.kafka.common.Uuid;

/**
 * Reads a payload, and refuses any bytes but those that its writer would have written: keys sorted, no
 * spaces, ASCII.
 *
 * <p>Each token is compared with the bytes as it is read, so nothing is written out again.
 */
public final class CanonicalReader {
    /** The longest key, id or group id, in UTF-16 units. */
    static final int MAX_UNITS = 1024;

    private final byte[] bytes;
    private final Json parser;
    private final StringBuilder written = new StringBuilder();
    private int at;

    CanonicalReader(byte[] bytes, int from) throws IOException {
        this.bytes = bytes;
        at = from;
        parser = HintCodec.asciiParser(bytes, from);
        parser.next();
    }

    /** Reads a value that follows a key, or is in an array. */
    @FunctionalInterface
    interface FieldReader {
        void read(String name) throws IOException, HintException;
    }

    /** Reads one element of an array. */
    @FunctionalInterface
    interface ElementReader {
        void read() throws IOException, HintException;
    }

    /**
     * Reads an object whose keys ascend, which excludes duplicates.
     *
     * @return number of its keys
     */
    int object(String what, FieldReader reader) throws IOException, HintException {
        if (parser.token() != Json.Token.START_OBJECT) {
            throw HintException.malformed("the " + what + " is no JSON object");
        }
        String before = null;
        int count = 0;
        expect("{");
        while (parser.next() != Json.Token.END_OBJECT) {
            String name = Text.checked(parser.string(), MAX_UNITS);
            if (before != null && Text.compare(before, name) >= 0) {
                throw HintException.malformed("the keys of the " + what + " do not ascend");
            }
            expect(before == null ? "" : ",");
            expectQuoted(name);
            expect(":");
            parser.next();
            reader.read(name);
            before = name;
            count++;
        }
        expect("}");
        return count;
    }

    /** Reads an array; the reader is called with each element's token at hand. */
    void array(String what, ElementReader reader) throws IOException, HintException {
        if (parser.token() != Json.Token.START_ARRAY) {
            throw HintException.malformed("the " + what + " is no JSON array");
        }
        boolean isFirst = true;
        expect("[");
        while (parser.next() != Json.Token.END_ARRAY) {
            expect(isFirst ? "" : ",");
            isFirst = false;
            reader.read();
        }
        expect("]");
    }

    String text(String what, int maxUnits) throws IOException, HintException {
        if (parser.token() != Json.Token.STRING) {
            throw HintException.malformed("the payload's " + what + " is, or holds, no text");
        }
        String text = Text.checked(parser.string(), maxUnits);
        expectQuoted(text);
        return text;
    }

    long number(String what, long low, long high) throws IOException, HintException {
        long number = HintCodec.number(parser, what, low, high);
        expect(Long.toString(number));
        return number;
    }

    /** Reads null, if it stands here. */
    boolean isNull() throws HintException {
        if (parser.token() != Json.Token.NULL) {
            return false;
        }
        expect("null");
        return true;
    }

    /** Makes sure that nothing follows. */
    void end() throws IOException, HintException {
        if (parser.next() != null || at != bytes.length) {
            throw HintException.malformed("something stands behind the payload");
        }
    }

    static Uuid topicId(String text) throws HintException {
        try {
            Uuid id = Uuid.fromString(text);
            if (id.toString().equals(text)) {
                return id;
            }
        } catch (IllegalArgumentException error) {
            // Reported below.
        }
        throw HintException.malformed("a topic id is none");
    }

    private void expectQuoted(String text) throws HintException {
        written.setLength(0);
        Text.appendQuoted(written, text);
        expect(written);
    }

    private void expect(CharSequence text) throws HintException {
        int length = text.length();
        boolean isSame = length <= bytes.length - at;
        for (int i = 0; isSame && i < length; i++) {
            isSame = text.charAt(i) == bytes[at + i];
        }
        if (!isSame) {
            throw HintException.malformed("the payload is not in its canonical form");
        }
        at += length;
    }
}
