package evenlag.core;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.zip.CRC32C;

/**
 * Reads record batches of format 2 as a fetch returns them, and decompresses none.
 *
 * <p>Kafka's own consumer decompresses whatever it reads: 300 kB can become a gigabyte on the broker's heap.
 */
public final class Batches {
    private static final int HEADER_BYTES = 61;
    private static final int MAGIC_AT = 16;
    private static final int LENGTH_AT = 8;
    private static final int OVERHEAD = 12;
    private static final int CRC_AT = 17;
    private static final int ATTRIBUTES_AT = 21;
    private static final int LAST_DELTA_AT = 23;
    private static final int PRODUCER_AT = 43;
    private static final int COUNT_AT = 57;
    private static final int COMPRESSION_BITS = 7;
    private static final int TRANSACTIONAL_BIT = 16;
    private static final int CONTROL_BIT = 32;
    private static final short ABORT = 0;
    /** Of a varint: more would not be one. */
    private static final int MAX_SHIFT = 63;

    private Batches() {}

    /** Takes what was read. */
    interface Sink {
        void record(int partition, byte[] key, byte[] value);

        /**
         * A batch that is not read.
         *
         * @param isCompressed else it is damaged, or of an older format
         */
        void skipped(int partition, long offset, boolean isCompressed);
    }

    /** An aborted transaction: of which producer, and from which offset on. */
    record Aborted(long producerId, long firstOffset) {}

    /**
     * Reads the committed records of all complete batches.
     *
     * @param records as fetched with isolation level read_committed; the last batch may be incomplete
     * @param aborted the aborted transactions that a broker returns with them
     * @param position records before it are not wanted: a batch may begin earlier
     * @return the offset from which to go on; the position if there is no complete batch
     */
    static long read(int partition, ByteBuffer records, List<Aborted> aborted, long position, Sink sink) {
        List<Aborted> sorted = new ArrayList<>(aborted);
        sorted.sort((a, b) -> Long.compare(a.firstOffset, b.firstOffset));
        Deque<Aborted> begin = new ArrayDeque<>(sorted);
        Set<Long> undone = new HashSet<>();
        long next = position;
        while (records.remaining() > MAGIC_AT) {
            int length = records.getInt(records.position() + LENGTH_AT);
            if (length <= MAGIC_AT - OVERHEAD || length > records.remaining() - OVERHEAD) {
                break; // the rest of it comes with the next fetch
            }
            ByteBuffer batch = records.slice(records.position(), OVERHEAD + length);
            records.position(records.position() + batch.limit());
            long last = lastOffset(batch);
            while (!begin.isEmpty() && begin.peek().firstOffset <= last) {
                undone.add(begin.poll().producerId);
            }
            if (last >= position) {
                readBatch(partition, batch, undone, position, sink);
            }
            next = Math.max(next, last + 1);
        }
        return next;
    }

    private static long lastOffset(ByteBuffer batch) {
        boolean isCurrent = batch.get(MAGIC_AT) == 2 && batch.limit() >= HEADER_BYTES;
        return batch.getLong(0) + (isCurrent ? Math.max(0, batch.getInt(LAST_DELTA_AT)) : 0);
    }

    private static void readBatch(
            int partition, ByteBuffer batch, Set<Long> undone, long position, Sink sink) {
        long offset = batch.getLong(0);
        if (batch.get(MAGIC_AT) != 2 || batch.limit() < HEADER_BYTES || !isIntact(batch)) {
            sink.skipped(partition, offset, false);
            return;
        }
        int attributes = batch.getShort(ATTRIBUTES_AT);
        long producerId = batch.getLong(PRODUCER_AT);
        if ((attributes & COMPRESSION_BITS) != 0) {
            sink.skipped(partition, offset, true);
            return;
        }
        boolean isControl = (attributes & CONTROL_BIT) != 0;
        if (!isControl && (attributes & TRANSACTIONAL_BIT) != 0 && undone.contains(producerId)) {
            return;
        }
        List<byte[][]> read = new ArrayList<>();
        try {
            readRecords(batch, offset, position, read);
        } catch (BufferUnderflowException | IllegalArgumentException error) {
            sink.skipped(partition, offset, false);
            return;
        }
        for (byte[][] record : read) {
            if (!isControl) {
                sink.record(partition, record[0], record[1]);
            } else if (record[0] != null && record[0].length >= 4
                    && ByteBuffer.wrap(record[0]).getShort(2) == ABORT) {
                undone.remove(producerId);
            }
        }
    }

    private static boolean isIntact(ByteBuffer batch) {
        CRC32C crc = new CRC32C();
        crc.update(batch.slice(ATTRIBUTES_AT, batch.limit() - ATTRIBUTES_AT));
        return (int) crc.getValue() == batch.getInt(CRC_AT);
    }

    private static void readRecords(ByteBuffer batch, long baseOffset, long position, List<byte[][]> read) {
        int count = batch.getInt(COUNT_AT);
        batch.position(HEADER_BYTES);
        for (int i = 0; i < count; i++) {
            int length = (int) readVarint(batch);
            if (length < 0 || length > batch.remaining()) {
                throw new IllegalArgumentException("a record is longer than its batch");
            }
            ByteBuffer record = batch.slice(batch.position(), length);
            batch.position(batch.position() + length);
            record.get(); // attributes
            readVarint(record); // time
            long offset = baseOffset + readVarint(record);
            byte[] key = readBytes(record);
            byte[] value = readBytes(record);
            if (offset >= position) {
                read.add(new byte[][] {key, value});
            }
        }
    }

    private static byte[] readBytes(ByteBuffer record) {
        long length = readVarint(record);
        if (length < 0) {
            return null;
        }
        if (length > record.remaining()) {
            throw new IllegalArgumentException("a text is longer than its record");
        }
        byte[] bytes = new byte[(int) length];
        record.get(bytes);
        return bytes;
    }

    /** Reads a number in zigzag encoding. */
    private static long readVarint(ByteBuffer buffer) {
        long raw = 0;
        for (int shift = 0; shift <= MAX_SHIFT; shift += 7) {
            byte part = buffer.get();
            raw |= (long) (part & 127) << shift;
            if (part >= 0) {
                return raw >>> 1 ^ -(raw & 1);
            }
        }
        throw new IllegalArgumentException("a number does not end");
    }
}
