package evenlag.storage;

import io.delta.storage.S3SingleDriverLogStore;
import io.delta.storage.internal.S3LogStoreUtil;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Iterator;
import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Commits to Delta tables on S3, safe for any number of drivers.
 *
 * <p>Delta's own store for S3 looks whether a commit's file exists and then puts it, under a lock of its JVM.
 * Two JVMs that do so at the same time lose a commit. This one lets S3 decide: a put with
 * {@code If-None-Match: *} fails if the object exists, whoever created it. The file system has to be S3A of
 * Hadoop 3.4.2 or newer, and the store has to support such puts.
 *
 * <p>A put whose answer was lost is repeated by the client and then refused, although the object is its own.
 * So each attempt writes an id of its own into the object's metadata, and a refused writer looks there.
 */
public final class S3ConditionalLogStore extends S3SingleDriverLogStore {
    private static final String CONDITIONAL = "fs.option.create.conditional.overwrite";
    private static final String WRITER = "evenlag-writer";
    private static final String CREATE_HEADER = "fs.s3a.create.header." + WRITER;
    private static final String READ_HEADER = "header." + WRITER;
    /** S3 answers 409 while another conditional put of the object is under way: then it is asked again. */
    private static final int ATTEMPTS = 8;
    private static final long FIRST_WAIT_MS = 50;

    /**
     * Creates the store, as Delta does for each table.
     *
     * @param hadoopConf Hadoop's settings.
     */
    public S3ConditionalLogStore(Configuration hadoopConf) {
        super(hadoopConf);
    }

    @Override
    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration hadoopConf)
            throws IOException {
        FileSystem files = path.getFileSystem(hadoopConf);
        Path target = files.makeQualified(path);
        byte[] content = Content.of(actions);
        if (overwrite) {
            FSDataOutputStreamBuilder<?, ?> builder = files.createFile(target);
            builder.overwrite(true).recursive();
            finish(builder.build(), content);
            return;
        }
        create(files, target, content);
    }

    /** Lists by one request: Delta's store first looks whether the folder exists, here only if no file is found. */
    @Override
    public Iterator<FileStatus> listFrom(Path path, Configuration hadoopConf) throws IOException {
        FileSystem files = path.getFileSystem(hadoopConf);
        Path first = files.makeQualified(path);
        FileStatus[] found = S3LogStoreUtil.s3ListFromArray(files, first, first.getParent());
        if (found.length == 0) {
            return super.listFrom(path, hadoopConf);
        }
        return Arrays.stream(found)
                .filter(file -> file.getPath().getName().compareTo(first.getName()) >= 0)
                .sorted(Comparator.comparing(file -> file.getPath().getName()))
                .iterator();
    }

    private static void create(FileSystem files, Path target, byte[] content) throws IOException {
        String writer = UUID.randomUUID().toString();
        for (int attempt = 1; ; attempt++) {
            try {
                put(files, target, content, writer);
                return;
            } catch (org.apache.hadoop.fs.FileAlreadyExistsException error) {
                // The file system looked before the first put.
                throw refused(target, error);
            } catch (IOException error) {
                if (isWritten(files, target, writer, error)) {
                    return;
                }
                if (attempt == ATTEMPTS || !isConflict(error)) {
                    throw error;
                }
            }
            pause(attempt);
        }
    }

    private static void put(FileSystem files, Path target, byte[] content, String writer) throws IOException {
        finish(open(files, target, writer), content);
    }

    /**
     * Opens an object, which is put when it is closed, unless it exists then.
     *
     * @param files S3A.
     * @param target The object.
     * @param writer The id that its metadata has; null for none.
     * @return The stream.
     * @throws IOException If the file system has no such puts.
     */
    static FSDataOutputStream open(FileSystem files, Path target, String writer) throws IOException {
        try {
            FSDataOutputStreamBuilder<?, ?> builder = files.createFile(target);
            builder.overwrite(false).recursive();
            builder.must(CONDITIONAL, true);
            if (writer != null) {
                builder.must(CREATE_HEADER, writer);
            }
            return builder.build();
        } catch (IllegalArgumentException error) {
            throw new IOException("the file system of " + target + " has no conditional create: it must be S3A of "
                    + "Hadoop 3.4.2 or newer, with fs.s3a.create.conditional.enabled", error);
        }
    }

    /** Puts the object when all of its content is there: S3 shows an object when it is complete. */
    private static void finish(FSDataOutputStream stream, byte[] content) throws IOException {
        try {
            stream.write(content);
        } catch (IOException | RuntimeException error) {
            stream.abort(); // closing it would put a part of the content
            throw error;
        }
        stream.close();
    }

    /**
     * Returns whether a put that failed has written the object all the same.
     *
     * @throws FileAlreadyExistsException If another writer has written it.
     */
    private static boolean isWritten(FileSystem files, Path target, String writer, IOException failure)
            throws IOException {
        byte[] found;
        try {
            found = files.getXAttrs(target).get(READ_HEADER);
        } catch (FileNotFoundException error) {
            return false;
        } catch (IOException error) {
            failure.addSuppressed(error);
            throw failure;
        }
        if (found != null && Arrays.equals(found, writer.getBytes(StandardCharsets.UTF_8))) {
            return true;
        }
        throw refused(target, failure);
    }

    private static FileAlreadyExistsException refused(Path target, IOException cause) {
        FileAlreadyExistsException error = new FileAlreadyExistsException(target.toString());
        error.initCause(cause);
        return error;
    }

    /** Returns whether S3 refused a put because of another one, not because of a fault. */
    private static boolean isConflict(IOException error) {
        return error.getClass().getSimpleName().equals("RemoteFileChangedException")
                || String.valueOf(error.getMessage()).contains("ConditionalRequestConflict");
    }

    private static void pause(int attempt) throws IOException {
        long longest = FIRST_WAIT_MS << (attempt - 1);
        try {
            Thread.sleep(longest / 2 + ThreadLocalRandom.current().nextLong(longest));
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("interrupted between two puts");
        }
    }
}
