package evenlag.core;

import java.io.IOException;

/**
 * Reads JSON token by token, strictly, and keeps nothing.
 *
 * <p>Consumers' class paths have no JSON library that could be relied on: Kafka's client needs none.
 */
final class Json {
    /** Deeper than any record; a value that is nested deeper is refused. */
    private static final int MAX_DEPTH = 16;
    /** So many digits always fit into a long. */
    private static final int MAX_DIGITS = 18;

    private final String text;
    private final boolean[] areObjects = new boolean[MAX_DEPTH];
    private int depth;
    private int at;
    private Token token;
    private boolean hasBegun;
    private String string;
    private boolean isWhole;
    private long number;

    Json(String text) {
        this.text = text;
    }

    /** What a text consists of. */
    enum Token {
        START_OBJECT,
        END_OBJECT,
        START_ARRAY,
        END_ARRAY,
        FIELD_NAME,
        STRING,
        NUMBER,
        NULL,
        BOOLEAN
    }

    /**
     * Goes on to the next token.
     *
     * @return null at the end
     * @throws IOException if the text is no JSON
     */
    Token next() throws IOException {
        token = read();
        return token;
    }

    /** Returns the last token; null before the first and after the end. */
    Token token() {
        return token;
    }

    /** Returns the last string, or name of a field. */
    String string() {
        return string;
    }

    /** Whether the last number is a whole one that fits into a long. */
    boolean isWhole() {
        return token == Token.NUMBER && isWhole;
    }

    /** Returns the last whole number. */
    long number() {
        return number;
    }

    private Token read() throws IOException {
        skipSpaces();
        if (depth == 0) {
            if (!hasBegun) {
                hasBegun = true;
                return readValue();
            }
            if (at < text.length()) {
                throw new IOException("something stands behind the value");
            }
            return null;
        }
        if (token == Token.FIELD_NAME) {
            return readValue();
        }
        boolean isObject = areObjects[depth - 1];
        if (peek() == (isObject ? '}' : ']')) {
            at++;
            depth--;
            return isObject ? Token.END_OBJECT : Token.END_ARRAY;
        }
        if (token != Token.START_OBJECT && token != Token.START_ARRAY) {
            require(',');
            skipSpaces();
        }
        if (!isObject) {
            return readValue();
        }
        readString();
        skipSpaces();
        require(':');
        return Token.FIELD_NAME;
    }

    private Token readValue() throws IOException {
        char c = peek();
        switch (c) {
            case '{':
            case '[':
                return open(c == '{');
            case '"':
                readString();
                return Token.STRING;
            case 't':
                requireWord("true");
                return Token.BOOLEAN;
            case 'f':
                requireWord("false");
                return Token.BOOLEAN;
            case 'n':
                requireWord("null");
                return Token.NULL;
            default:
                readNumber();
                return Token.NUMBER;
        }
    }

    private Token open(boolean isObject) throws IOException {
        if (depth == MAX_DEPTH) {
            throw new IOException("the value is nested too deeply");
        }
        at++;
        areObjects[depth++] = isObject;
        return isObject ? Token.START_OBJECT : Token.START_ARRAY;
    }

    private void readString() throws IOException {
        require('"');
        int from = at;
        while (peek() != '"' && peek() != '\\') {
            checkPlain(text.charAt(at++));
        }
        if (peek() == '"') { // nearly always: no copy by character
            string = text.substring(from, at++);
            return;
        }
        StringBuilder out = new StringBuilder(text.substring(from, at));
        for (char c = peek(); c != '"'; c = peek()) {
            at++;
            if (c == '\\') {
                out.append(readEscaped());
            } else {
                checkPlain(c);
                out.append(c);
            }
        }
        at++;
        string = out.toString();
    }

    private static void checkPlain(char c) throws IOException {
        if (c < ' ') {
            throw new IOException("a control character stands in a text");
        }
    }

    private char readEscaped() throws IOException {
        char c = peek();
        at++;
        switch (c) {
            case '"':
            case '\\':
            case '/':
                return c;
            case 'b':
                return '\b';
            case 'f':
                return '\f';
            case 'n':
                return '\n';
            case 'r':
                return '\r';
            case 't':
                return '\t';
            case 'u':
                return readUnit();
            default:
                throw new IOException("an escape is not known");
        }
    }

    private char readUnit() throws IOException {
        int unit = 0;
        for (int i = 0; i < 4; i++) {
            char c = peek();
            int digit = c < 128 ? Character.digit(c, 16) : -1;
            if (digit < 0) {
                throw new IOException("an escape is no number");
            }
            unit = unit << 4 | digit;
            at++;
        }
        return (char) unit;
    }

    private void readNumber() throws IOException {
        int from = at;
        boolean isNegative = peek() == '-';
        at += isNegative ? 1 : 0;
        int first = at;
        number = 0;
        int digits = skipDigits();
        if (digits == 0 || digits > 1 && text.charAt(first) == '0') {
            throw new IOException("no value stands at " + from);
        }
        isWhole = digits <= MAX_DIGITS;
        for (int i = first; isWhole && i < at; i++) {
            number = 10 * number + (text.charAt(i) - '0');
        }
        number = isNegative ? -number : number;
        if (at < text.length() && text.charAt(at) == '.') {
            at++;
            requireDigits();
        }
        if (at < text.length() && (text.charAt(at) | ' ') == 'e') {
            at++;
            at += peek() == '+' || peek() == '-' ? 1 : 0;
            requireDigits();
        }
    }

    private int skipDigits() {
        int from = at;
        while (at < text.length() && text.charAt(at) >= '0' && text.charAt(at) <= '9') {
            at++;
        }
        return at - from;
    }

    private void requireDigits() throws IOException {
        isWhole = false;
        if (skipDigits() == 0) {
            throw new IOException("a number has no digits");
        }
    }

    private void requireWord(String word) throws IOException {
        if (!text.startsWith(word, at)) {
            throw new IOException("no value stands at " + at);
        }
        at += word.length();
    }

    private void require(char wanted) throws IOException {
        if (peek() != wanted) {
            throw new IOException("'" + wanted + "' is missing at " + at);
        }
        at++;
    }

    private char peek() throws IOException {
        if (at >= text.length()) {
            throw new IOException("the text ends too early");
        }
        return text.charAt(at);
    }

    private void skipSpaces() {
        while (at < text.length() && " \t\n\r".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
    }
}
