package evenlag.core;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;

/** Text as {@code assignor_core.record.canonical_json} writes and orders it. */
public final class Text {
    private static final char[] HEX = "0123456789abcdef".toCharArray();

    private Text() {}

    /** Appends a JSON string in ASCII. */
    static void appendQuoted(StringBuilder out, String text) {
        out.append('"');
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            switch (c) {
                case '"' -> out.append("\\\"");
                case '\\' -> out.append("\\\\");
                case '\n' -> out.append("\\n");
                case '\r' -> out.append("\\r");
                case '\t' -> out.append("\\t");
                case '\b' -> out.append("\\b");
                case '\f' -> out.append("\\f");
                default -> appendPlain(out, c);
            }
        }
        out.append('"');
    }

    private static void appendPlain(StringBuilder out, char c) {
        if (c >= ' ' && c <= '~') {
            out.append(c);
        } else {
            out.append("\\u").append(HEX[c >> 12]).append(HEX[c >> 8 & 15]);
            out.append(HEX[c >> 4 & 15]).append(HEX[c & 15]);
        }
    }

    /**
     * Returns a text without a lone surrogate.
     *
     * @throws HintException if it has one: there is no UTF-8 for it
     */
    static String checked(String text) throws HintException {
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (Character.isSurrogate(c)) {
                boolean isPair = Character.isHighSurrogate(c) && i + 1 < text.length()
                        && Character.isLowSurrogate(text.charAt(i + 1));
                if (!isPair) {
                    throw HintException.malformed("a text has half a surrogate pair");
                }
                i++;
            }
        }
        return text;
    }

    /**
     * Returns a text of at most so many UTF-16 units, without a lone surrogate.
     *
     * @throws HintException otherwise
     */
    static String checked(String text, int maxUnits) throws HintException {
        if (text.length() > maxUnits) {
            throw HintException.malformed("a text is longer than " + maxUnits + " characters");
        }
        return checked(text);
    }

    /** Compares by code points, as Python does; {@link String#compareTo} compares UTF-16 units. */
    static int compare(String a, String b) {
        int length = Math.min(a.length(), b.length());
        for (int i = 0; i < length; i++) {
            char x = a.charAt(i);
            char y = b.charAt(i);
            if (x != y) {
                // Surrogates encode what sorts after everything else.
                boolean high = Character.isSurrogate(x);
                return high == Character.isSurrogate(y) ? Character.compare(x, y) : high ? 1 : -1;
            }
        }
        return Integer.compare(a.length(), b.length());
    }

    /** Decodes UTF-8, and rejects invalid input. */
    static String decode(byte[] bytes, int from, int length) throws CharacterCodingException {
        return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes, from, length)).toString();
    }
}
