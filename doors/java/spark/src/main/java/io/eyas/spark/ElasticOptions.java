package io.eyas.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;

import io.eyas.hadoop.EyasFileSystem;
import io.eyas.hadoop.mapreduce.ElasticInputFormat;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkContext;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * The options of a reader.
 *
 * @param paths files, folders and patterns
 * @param settings settings of the MapReduce input format, by their keys
 */
record ElasticOptions(List<Path> paths, Map<String, String> settings) {
    /** The run's number of tasks is smaller. */
    private static final int MAX_TASKS = 1 << 20;

    /** All attempts of a partition are Spark's matter, so its pieces stay; the largest term. */
    private static final String DEFAULT_TERM_MS = "3600000";

    /** The driver asks for its runs while it lives. */
    private static final String DEFAULT_IDLE_MS = "1800000";

    private static final String TASKS = "tasks";

    private static final Map<String, String> KEYS = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);

    static {
        KEYS.put("scheduler", ElasticInputFormat.SCHEDULER_KEY);
        KEYS.put("alpha", ElasticInputFormat.ALPHA_KEY);
        KEYS.put("beta", ElasticInputFormat.BETA_KEY);
        KEYS.put("minBlock", ElasticInputFormat.MIN_BLOCK_KEY);
        KEYS.put("waves", ElasticInputFormat.WAVES_KEY);
        KEYS.put(TASKS, ElasticInputFormat.TASKS_KEY);
        KEYS.put("termMs", ElasticInputFormat.TERM_KEY);
        KEYS.put("idleMs", ElasticInputFormat.IDLE_KEY);
    }

    static ElasticOptions of(Map<String, String> given) {
        List<Path> paths = new ArrayList<>();
        Map<String, String> settings = new TreeMap<>();
        settings.put(ElasticInputFormat.TERM_KEY, DEFAULT_TERM_MS);
        settings.put(ElasticInputFormat.IDLE_KEY, DEFAULT_IDLE_MS);
        given.forEach(
                (name, value) -> {
                    if (name.equalsIgnoreCase("path")) {
                        paths.add(new Path(value));
                    } else if (name.equalsIgnoreCase("paths")) {
                        paths.addAll(listed(value));
                    } else {
                        settings.put(keyOf(name), checked(name, value.strip()));
                    }
                });
        if (paths.isEmpty()) {
            throw new IllegalArgumentException(
                    "the source eyas has no path: write load(\"eyas://NAME/PATH\")");
        }
        return new ElasticOptions(List.copyOf(paths), Map.copyOf(settings));
    }

    /** Several paths, which Spark passes as JSON. */
    private static List<Path> listed(String paths) {
        try {
            List<Path> listed = new ArrayList<>();
            for (String path : new ObjectMapper().readValue(paths, String[].class)) {
                listed.add(new Path(path));
            }
            return listed;
        } catch (JsonProcessingException failure) {
            throw new IllegalArgumentException(
                    "the option paths is no list of JSON: give the paths to load()", failure);
        }
    }

    private static String keyOf(String name) {
        String key = KEYS.get(name);
        if (key == null) {
            throw new IllegalArgumentException(
                    "the source eyas has no option "
                            + name
                            + "; its options are "
                            + String.join(", ", KEYS.keySet()));
        }
        return key;
    }

    /** The value; whole numbers are checked here, and the others when the run is opened. */
    private static String checked(String name, String value) {
        long most =
                switch (keyOf(name)) {
                    case ElasticInputFormat.TASKS_KEY -> MAX_TASKS - 1;
                    case ElasticInputFormat.TERM_KEY, ElasticInputFormat.IDLE_KEY ->
                            Integer.MAX_VALUE;
                    default -> 0;
                };
        if (most == 0) {
            return value;
        }
        try {
            long number = Long.parseLong(value);
            if (number >= 1 && number <= most) {
                return value;
            }
        } catch (NumberFormatException isNone) {
            // As a number that is not possible.
        }
        throw new IllegalArgumentException(
                "the option "
                        + name
                        + " is '"
                        + value
                        + "': write a whole number from 1 to "
                        + most);
    }

    /** Refuses paths of other file systems, and those where nothing is. */
    void checkPaths() {
        statuses();
    }

    /** Hadoop's configuration, as this program has it. */
    static Configuration configuration() {
        return SparkContext.getOrCreate().hadoopConfiguration();
    }

    /** Size of all files, bytes, without those that are hidden. */
    long bytes() {
        long bytes = 0;
        for (FileStatus found : statuses()) {
            if (found.isFile()) {
                bytes += found.getLen();
                continue;
            }
            try {
                FileSystem files = found.getPath().getFileSystem(configuration());
                for (FileStatus entry : files.listStatus(found.getPath(), ElasticOptions::isSeen)) {
                    bytes += entry.getLen();
                }
            } catch (IOException failure) {
                throw new UncheckedIOException(failure);
            }
        }
        return bytes;
    }

    /** As FileInputFormat has it. */
    private static boolean isSeen(Path path) {
        return !path.getName().startsWith("_") && !path.getName().startsWith(".");
    }

    /** What the paths and patterns name. */
    private List<FileStatus> statuses() {
        List<FileStatus> all = new ArrayList<>();
        for (Path path : paths) {
            try {
                FileStatus[] found = fileSystem(path).globStatus(path, ElasticOptions::isSeen);
                if (found == null || found.length == 0) {
                    throw new IllegalArgumentException("there is no file " + path);
                }
                all.addAll(List.of(found));
            } catch (IOException failure) {
                throw new UncheckedIOException(failure);
            }
        }
        return all;
    }

    private static FileSystem fileSystem(Path path) throws IOException {
        Configuration configuration = configuration();
        String scheme = path.toUri().getScheme();
        if (scheme == null) {
            scheme = FileSystem.getDefaultUri(configuration).getScheme();
        }
        if (!EyasFileSystem.SCHEME.equalsIgnoreCase(scheme)) {
            throw new IllegalArgumentException(
                    "the source eyas reads files of a cluster, eyas://NAME/PATH: "
                            + path
                            + " is none");
        }
        return path.getFileSystem(configuration);
    }
}
