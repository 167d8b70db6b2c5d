package evenlag.core;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;

/**
 * Kafka's Fetch request in version 13, which every broker from 3.1 on answers: it names topics by their ids.
 *
 * <p>Written manually because Kafka's classes for it move with each minor version.
 */
public final class FetchProtocol {
    private static final short API_KEY = 1;
    private static final short VERSION = 13;
    private static final byte READ_COMMITTED = 1;
    private static final int NO_SESSION = -1;
    private static final int BYTES_PER_PARTITION = 40;
    private static final int BYTES = 200;

    private FetchProtocol() {}

    /**
     * One partition's part of a response.
     *
     * @param error 0 for none
     * @param stableOffset the end of what is committed; -1 if there is an error
     * @param records null if there are none
     */
    record Fetched(
            int partition,
            short error,
            long stableOffset,
            List<Batches.Aborted> aborted,
            ByteBuffer records) {}

    /**
     * A response.
     *
     * @param error 0 for none
     */
    record Response(short error, List<Fetched> partitions) {}

    /** Writes a request without the length that stands before it. */
    static ByteBuffer write(
            int correlationId, String clientId, Uuid topicId, Map<Integer, Long> positions, int maxWaitMs,
            int maxBytes) {
        byte[] client = clientId.getBytes(StandardCharsets.UTF_8);
        ByteBuffer out =
                ByteBuffer.allocate(BYTES + client.length + BYTES_PER_PARTITION * positions.size());
        out.putShort(API_KEY).putShort(VERSION).putInt(correlationId);
        out.putShort((short) client.length).put(client).put((byte) 0);
        out.putInt(-1); // no replica, a consumer
        out.putInt(maxWaitMs).putInt(1).putInt(maxBytes).put(READ_COMMITTED);
        out.putInt(0).putInt(NO_SESSION);
        putCount(out, 1);
        out.putLong(topicId.getMostSignificantBits()).putLong(topicId.getLeastSignificantBits());
        putCount(out, positions.size());
        positions.forEach((partition, offset) -> out.putInt(partition)
                .putInt(-1)
                .putLong(offset)
                .putInt(-1)
                .putLong(-1)
                .putInt(maxBytes)
                .put((byte) 0));
        out.put((byte) 0); // ends the topic
        putCount(out, 0); // no topics to forget
        putCount(out, 0); // no rack
        out.put((byte) 0);
        return out.flip();
    }

    /**
     * Reads a response.
     *
     * @throws RuntimeException if it is none
     */
    static Response read(ByteBuffer in) {
        in.getInt(); // the correlation id: one request is under way at a time
        skipTags(in);
        in.getInt(); // throttled for so long already
        short error = in.getShort();
        in.getInt(); // the session
        List<Fetched> fetched = new ArrayList<>();
        for (int topics = getCount(in); topics > 0; topics--) {
            in.getLong();
            in.getLong();
            for (int partitions = getCount(in); partitions > 0; partitions--) {
                fetched.add(readPartition(in));
            }
            skipTags(in);
        }
        return new Response(error, fetched);
    }

    private static Fetched readPartition(ByteBuffer in) {
        int partition = in.getInt();
        short error = in.getShort();
        in.getLong(); // the high watermark
        long stableOffset = in.getLong();
        in.getLong(); // where the log starts
        List<Batches.Aborted> aborted = new ArrayList<>();
        for (int count = getCount(in); count > 0; count--) {
            aborted.add(new Batches.Aborted(in.getLong(), in.getLong()));
            skipTags(in);
        }
        in.getInt(); // the preferred replica: only for those who tell their rack
        int size = getCount(in);
        ByteBuffer records = null;
        if (size > 0) {
            records = in.slice(in.position(), size);
            in.position(in.position() + size);
        }
        skipTags(in);
        return new Fetched(partition, error, stableOffset, aborted, records);
    }

    private static void putCount(ByteBuffer out, int count) {
        putUnsigned(out, count + 1);
    }

    private static void putUnsigned(ByteBuffer out, int number) {
        int rest = number;
        while (rest > 127) {
            out.put((byte) (rest & 127 | 128));
            rest >>>= 7;
        }
        out.put((byte) rest);
    }

    /** Reads the length of a compact array or of bytes; -1 is null. */
    private static int getCount(ByteBuffer in) {
        return getUnsigned(in) - 1;
    }

    private static int getUnsigned(ByteBuffer in) {
        int number = 0;
        for (int shift = 0; shift < Integer.SIZE; shift += 7) {
            byte part = in.get();
            number |= (part & 127) << shift;
            if (part >= 0) {
                return number;
            }
        }
        throw new IllegalArgumentException("a number does not end");
    }

    private static void skipTags(ByteBuffer in) {
        for (int count = getUnsigned(in); count > 0; count--) {
            getUnsigned(in);
            int size = getUnsigned(in);
            in.position(in.position() + size);
        }
    }
}
