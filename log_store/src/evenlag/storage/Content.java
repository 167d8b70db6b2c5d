package evenlag.storage;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Iterator;

/** The bytes of a file in a Delta log: one action a line. */
final class Content {
    private Content() {}

    /**
     * Returns the bytes of actions, so that an attempt can be repeated: Delta hands them out once.
     *
     * @param actions The actions, each a line of JSON without its end.
     * @return The lines in UTF-8.
     */
    static byte[] of(Iterator<String> actions) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            bytes.writeBytes(actions.next().getBytes(StandardCharsets.UTF_8));
            bytes.write('\n');
        }
        return bytes.toByteArray();
    }

    /**
     * Writes a new file, and waits until the disk has it.
     *
     * @param file The file, which must not exist.
     * @param bytes Its content.
     * @throws IOException If it exists, or cannot be written completely.
     */
    static void writeAndSync(Path file, byte[] bytes) throws IOException {
        try (FileChannel channel =
                FileChannel.open(file, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
            ByteBuffer buffer = ByteBuffer.wrap(bytes);
            while (buffer.hasRemaining()) {
                channel.write(buffer);
            }
            channel.force(true);
        }
    }
}
