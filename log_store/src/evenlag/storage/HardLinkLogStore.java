package evenlag.storage;

import io.delta.storage.LocalLogStore;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.DirectoryStream;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.Iterator;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;

/**
 * Commits to Delta tables in a folder of this machine, safe beside any other process that commits there.
 *
 * <p>Delta's own store for local folders looks whether a commit's file exists and then renames a temporary
 * file to it, under a lock of its JVM. Two JVMs that do so at the same time lose a commit. This one creates
 * the file by a hard link, which the kernel refuses if the name is taken, whoever took it.
 *
 * <p>A commit is complete when its name appears: the content is written and synchronized before. Checkpoints
 * are still written by Spark itself under a temporary name, so {@link #isPartialWriteVisible} stays true.
 */
public final class HardLinkLogStore extends LocalLogStore {
    private static final String SUFFIX = ".evenlag.tmp";
    private static final long SWEEP_INTERVAL_MS = 3_600_000;
    /** A commit takes milliseconds: an hour later, its temporary file is of a process that was killed. */
    private static final long LEFTOVER_AGE_MS = 3_600_000;

    private static final Map<Path, Long> LAST_SWEEPS = new ConcurrentHashMap<>();

    /**
     * Creates the store, as Delta does for each table.
     *
     * @param hadoopConf Hadoop's settings.
     */
    public HardLinkLogStore(Configuration hadoopConf) {
        super(hadoopConf);
    }

    @Override
    public void write(
            org.apache.hadoop.fs.Path path, Iterator<String> actions, Boolean overwrite, Configuration hadoopConf)
            throws IOException {
        Path target = Paths.get(resolvePathOnPhysicalStorage(path, hadoopConf).toUri().getPath());
        Path folder = target.getParent();
        if (!Files.isDirectory(folder)) {
            throw new FileNotFoundException("No such file or directory: " + folder);
        }
        removeLeftovers(folder);
        Path temporary = folder.resolve("." + target.getFileName() + "." + UUID.randomUUID() + SUFFIX);
        try {
            Content.writeAndSync(temporary, Content.of(actions));
            // Hadoop's checksum of an earlier file of this name would make the new one unreadable.
            Files.deleteIfExists(folder.resolve("." + target.getFileName() + ".crc"));
            if (overwrite) {
                Files.move(temporary, target, StandardCopyOption.ATOMIC_MOVE);
            } else {
                link(temporary, target);
            }
            sync(folder);
        } finally {
            Files.deleteIfExists(temporary);
        }
    }

    private static void link(Path temporary, Path target) throws IOException {
        try {
            Files.createLink(target, temporary);
        } catch (FileAlreadyExistsException error) {
            // A network file system may repeat a request whose answer was lost: then the file is this one.
            if (!isSame(temporary, target)) {
                throw error;
            }
        } catch (UnsupportedOperationException error) {
            throw new IOException("the file system of " + target + " has no hard links", error);
        }
    }

    private static boolean isSame(Path temporary, Path target) throws IOException {
        try {
            return Files.isSameFile(temporary, target);
        } catch (NoSuchFileException error) {
            return false;
        }
    }

    /** Makes names in a folder survive a loss of power. */
    private static void sync(Path folder) throws IOException {
        try (FileChannel channel = FileChannel.open(folder, StandardOpenOption.READ)) {
            channel.force(true);
        }
    }

    /** Removes temporary files of processes that were killed; once an hour for each folder. */
    private static void removeLeftovers(Path folder) throws IOException {
        long now = System.currentTimeMillis();
        Long last = LAST_SWEEPS.get(folder);
        if (last != null && now - last < SWEEP_INTERVAL_MS) {
            return;
        }
        LAST_SWEEPS.put(folder, now);
        try (DirectoryStream<Path> files = Files.newDirectoryStream(folder, ".*" + SUFFIX)) {
            for (Path file : files) {
                try {
                    if (now - Files.getLastModifiedTime(file).toMillis() > LEFTOVER_AGE_MS) {
                        Files.deleteIfExists(file);
                    }
                } catch (NoSuchFileException error) {
                    continue; // another process removed it, or it was a commit that is done
                }
            }
        }
    }
}
