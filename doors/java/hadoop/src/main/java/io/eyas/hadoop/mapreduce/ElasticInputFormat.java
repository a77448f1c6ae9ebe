package io.eyas.hadoop.mapreduce;

import io.eyas.EyasRun;
import io.eyas.RunOptions;
import io.eyas.hadoop.EyasFileSystem;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.LongWritable;
import org.apache.hadoop.mapreduce.InputSplit;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.MRJobConfig;
import org.apache.hadoop.mapreduce.lib.input.FileInputFormat;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Predicate;

/**
 * Pieces of files of a cluster as the input of a job. The splits are not parts of files: a map task
 * claims pieces of the files while it runs, from the node that leads the first file. A piece has
 * whole records of its file. All attempts of a task get the same pieces, so each record counts
 * once, with speculation, and with tasks that run again.
 *
 * <p>While a task reads, {@link MRJobConfig#MAP_INPUT_FILE} in the configuration of the task is the
 * path of the file that the current record is from.
 *
 * @param <V> what a program gets as values; the keys are offsets in the file
 */
public abstract class ElasticInputFormat<V> extends FileInputFormat<LongWritable, V> {
    /** The scheduler: lean, multiwave, io-aware or static. */
    public static final String SCHEDULER_KEY = "eyas.scheduler";

    /** With lean, the share that is assigned in advance; with io-aware, the weight of disks. */
    public static final String ALPHA_KEY = "eyas.alpha";

    /** With io-aware, the weight of processors. */
    public static final String BETA_KEY = "eyas.beta";

    /** With multiwave, each wave gives each task at least this size. */
    public static final String MIN_BLOCK_KEY = "eyas.min.block";

    /** With multiwave, the maximum number of waves. */
    public static final String WAVES_KEY = "eyas.waves";

    /** Number of map tasks. */
    public static final String TASKS_KEY = "eyas.map.tasks";

    /** Time after which a task loses its pieces if none of its attempts reports, milliseconds. */
    public static final String TERM_KEY = "eyas.term.ms";

    /** Time after which a run is forgotten if no task asks, milliseconds. */
    public static final String IDLE_KEY = "eyas.run.idle.ms";

    /** The address of the job's run, which {@link #getSplits} writes. */
    public static final String RUN_KEY = "eyas.run";

    private static final long DEFAULT_TERM_MS = 10_000;
    private static final long DEFAULT_IDLE_MS = Duration.ofDays(1).toMillis();

    /** Map tasks for each host, if their number is not configured. */
    private static final int TASKS_OF_A_HOST = 2;

    /** Hosts of which a split has replicas, named to Hadoop. */
    private static final int MAX_HOSTS = 3;

    /** Only for the formats of this package, whose readers it needs. */
    ElasticInputFormat() {}

    /**
     * Which files a task reads as a whole, instead of claiming pieces of them.
     *
     * @throws IOException if the job is configured for other records than pieces have
     */
    abstract Predicate<Path> wholeFiles(Configuration configuration) throws IOException;

    /** Opens the run of the job, and makes a split for each map task. */
    @Override
    public List<InputSplit> getSplits(JobContext job) throws IOException {
        ElasticInput input = openInput(job);
        if (input.run() != null) {
            // The run stays although this program may end: its tasks keep it alive.
            input.run().close();
        }
        return new ArrayList<>(input.splits());
    }

    /** Opens the run of the job, and makes a split for each task. The caller closes the run. */
    public ElasticInput openInput(JobContext job) throws IOException {
        Configuration configuration = job.getConfiguration();
        Predicate<Path> isWhole = wholeFiles(configuration);
        List<Path> elastic = new ArrayList<>();
        List<FileStatus> whole = new ArrayList<>();
        Map<String, Long> bytesOfHosts = new HashMap<>();
        EyasFileSystem files = null;
        long bytes = 0;
        int blocks = 0;
        for (FileStatus file : listStatus(job)) {
            if (file.getLen() == 0) {
                continue;
            }
            files = fileSystem(file.getPath(), configuration, files);
            bytes += file.getLen();
            for (BlockLocation block : files.getFileBlockLocations(file, 0, file.getLen())) {
                blocks++;
                for (String host : block.getHosts()) {
                    bytesOfHosts.merge(host, block.getLength(), Long::sum);
                }
            }
            if (isWhole.test(file.getPath())) {
                whole.add(file);
            } else {
                elastic.add(file.getPath());
            }
        }
        if (files == null) {
            return new ElasticInput(null, List.of());
        }
        int hostCount = Math.max(1, bytesOfHosts.size());
        int usual =
                Math.max(
                        configuration.getInt(MRJobConfig.NUM_MAPS, 1), hostCount * TASKS_OF_A_HOST);
        int tasks = configuration.getInt(TASKS_KEY, Math.min(usual, blocks));
        if (tasks < 1) {
            throw new IOException(TASKS_KEY + " is " + tasks + ": write a number from 1 on");
        }
        EyasRun run = elastic.isEmpty() ? null : open(files, elastic, configuration, tasks);
        String address = run == null ? "" : run.address();
        return new ElasticInput(run, splits(address, tasks, bytes, whole, hosts(bytesOfHosts)));
    }

    private static EyasRun open(
            EyasFileSystem files, List<Path> paths, Configuration configuration, int tasks)
            throws IOException {
        Duration term = Duration.ofMillis(configuration.getLong(TERM_KEY, DEFAULT_TERM_MS));
        Duration idle = Duration.ofMillis(configuration.getLong(IDLE_KEY, DEFAULT_IDLE_MS));
        RunOptions options = new RunOptions(tasks, term, idle, policy(configuration));
        EyasRun run = files.openRun(paths, options);
        configuration.set(RUN_KEY, run.address());
        return run;
    }

    /** The scheduler and its parameters, as the library reads them. */
    static String policy(Configuration configuration) {
        StringBuilder policy = new StringBuilder(configuration.getTrimmed(SCHEDULER_KEY, "lean"));
        String[][] parameters = {
            {ALPHA_KEY, "alpha"},
            {BETA_KEY, "beta"},
            {MIN_BLOCK_KEY, "min-block"},
            {WAVES_KEY, "waves"}
        };
        for (String[] parameter : parameters) {
            String value = configuration.getTrimmed(parameter[0], "");
            if (!value.isEmpty()) {
                policy.append(',').append(parameter[1]).append('=').append(value);
            }
        }
        return policy.toString();
    }

    private static EyasFileSystem fileSystem(
            Path path, Configuration configuration, EyasFileSystem before) throws IOException {
        FileSystem found = path.getFileSystem(configuration);
        if (!(found instanceof EyasFileSystem files)) {
            throw new IOException(
                    "elastic blocks are of files of a cluster, eyas://NAME/PATH: "
                            + path
                            + " is none");
        }
        if (before != null && !before.getUri().equals(files.getUri())) {
            throw new IOException(
                    "the files of a job over elastic blocks are of one cluster: "
                            + path
                            + " is not of "
                            + before.getUri());
        }
        return files;
    }

    /** The hosts, those with most bytes first. */
    private static List<String> hosts(Map<String, Long> bytesOfHosts) {
        Comparator<String> byBytes = Comparator.comparing(bytesOfHosts::get);
        return bytesOfHosts.keySet().stream()
                .sorted(byBytes.reversed().thenComparing(Comparator.naturalOrder()))
                .toList();
    }

    private static List<ElasticSplit> splits(
            String run, int tasks, long bytes, List<FileStatus> whole, List<String> hosts) {
        List<ElasticSplit> splits = new ArrayList<>();
        for (int task = 0; task < tasks; task++) {
            List<String> own = new ArrayList<>();
            for (int host = 0; host < Math.min(MAX_HOSTS, hosts.size()); host++) {
                own.add(hosts.get((task + host) % hosts.size()));
            }
            long share = bytes / tasks + (task < bytes % tasks ? 1 : 0);
            splits.add(new ElasticSplit(run, task, share, own));
        }
        // The largest first, each to the task that has least of them.
        whole.sort(Comparator.comparingLong(FileStatus::getLen).reversed());
        for (FileStatus file : whole) {
            splits.stream()
                    .min(Comparator.comparingLong(ElasticSplit::wholeBytes))
                    .orElseThrow()
                    .add(file.getPath(), file.getLen());
        }
        return splits;
    }
}
