import io.delta.storage.LogStore;
import java.io.FileNotFoundException;
import java.nio.file.FileAlreadyExistsException;
import java.util.Iterator;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;

/**
 * Commits transactions to a Delta table through a log store, as a driver does: at the version after the
 * newest one, and at a later one if another writer was first.
 *
 * <p>Arguments: class of the log store, the log's address, name of the writer, number of commits, and
 * Hadoop's settings as KEY=VALUE. It waits for a line of input, and prints how often another was first.
 */
public final class Committer {
    private Committer() {}

    public static void main(String[] arguments) throws Exception {
        Configuration conf = new Configuration();
        for (String setting : List.of(arguments).subList(4, arguments.length)) {
            String[] parts = setting.split("=", 2);
            conf.set(parts[0], parts[1]);
        }
        LogStore store = (LogStore)
                Class.forName(arguments[0]).getConstructor(Configuration.class).newInstance(conf);
        Path log = new Path(arguments[1]);
        int refused = 0;
        newest(store, log, conf);
        System.out.println("ready");
        System.in.read();
        for (int number = 0; number < Integer.parseInt(arguments[3]); number++) {
            String action = "{\"txn\":{\"appId\":\"" + arguments[2] + "/" + number + "\",\"version\":1}}";
            for (long version = newest(store, log, conf) + 1; ; version++) {
                Path file = new Path(log, String.format("%020d.json", version));
                try {
                    store.write(file, List.of(action).iterator(), false, conf);
                    break;
                } catch (FileAlreadyExistsException error) {
                    refused++;
                }
            }
        }
        System.out.println(refused);
    }

    private static long newest(LogStore store, Path log, Configuration conf) throws Exception {
        long found = -1;
        try {
            Iterator<FileStatus> files = store.listFrom(new Path(log, String.format("%020d.", 0)), conf);
            while (files.hasNext()) {
                String name = files.next().getPath().getName();
                if (name.matches("\\d{20}\\.json")) {
                    found = Math.max(found, Long.parseLong(name.substring(0, 20)));
                }
            }
        } catch (FileNotFoundException error) {
            return -1;
        }
        return found;
    }
}
