package evenlag.storage;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;

/**
 * Writes the checksum files of Delta tables on S3, each by one put.
 *
 * <p>Delta writes the checksum file of a commit through Spark's manager of checkpoint files. Spark's own writes
 * a temporary file and renames it, which on S3 is a put, a copy, a deletion, 11 HEAD and 7 LIST, by a new client
 * each time. S3 shows an object when it is complete, so this one puts the object itself.
 *
 * <p>Files of other schemes are written by Spark's own manager.
 */
public final class S3CheckpointFileManager extends FileSystemBasedCheckpointFileManager {
    private static final String CLASS = "spark.sql.streaming.checkpointFileManagerClass";

    /** Spark's own manager; null on S3. */
    private final CheckpointFileManager standard;

    /**
     * Creates the manager, as Spark does.
     *
     * @param path The folder of the files.
     * @param hadoopConf Hadoop's settings.
     */
    public S3CheckpointFileManager(Path path, Configuration hadoopConf) {
        super(path, hadoopConf);
        standard = isS3(path) ? null : standardManager(path, hadoopConf);
    }

    @Override
    public CheckpointFileManager.CancellableFSDataOutputStream createAtomic(Path path, boolean overwriteIfPossible) {
        if (standard != null) {
            return standard.createAtomic(path, overwriteIfPossible);
        }
        try {
            return new Put(
                    overwriteIfPossible ? fs().create(path, true) : S3ConditionalLogStore.open(fs(), path, null));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static boolean isS3(Path path) {
        String scheme = path.toUri().getScheme();
        return "s3".equals(scheme) || "s3a".equals(scheme);
    }

    private static CheckpointFileManager standardManager(Path path, Configuration hadoopConf) {
        Configuration standard = new Configuration(hadoopConf);
        standard.unset(CLASS);
        return CheckpointFileManager.create(path, standard);
    }

    /** An object, which is put when it is closed. */
    private static final class Put extends CheckpointFileManager.CancellableFSDataOutputStream {
        Put(FSDataOutputStream stream) {
            super(stream);
        }

        @Override
        public void cancel() {
            abort();
        }
    }
}
