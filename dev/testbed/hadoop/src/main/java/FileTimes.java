import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

import java.io.IOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Times of Hadoop file systems, each used in turn by the same program: {@code MEGABYTES NAMES
 * ROUNDS URI...}. Prints a line for each measurement: the URI's scheme, what was measured, and
 * seconds. The first round is for the virtual machine to compile the code, and is not printed.
 * {@code hadoop_files.py} starts it.
 */
public final class FileTimes {
    private static final int THREADS = 16;
    private static final int MEGABYTE = 1_000_000;

    private final FileSystem files;
    private final Path folder;
    private final long bytes;

    private FileTimes(URI uri, Configuration configuration, long bytes) throws IOException {
        files = FileSystem.get(uri, configuration);
        folder = new Path(uri.resolve("/times"));
        this.bytes = bytes;
        files.delete(folder, true);
        files.mkdirs(folder);
    }

    public static void main(String[] words) throws Exception {
        long bytes = Long.parseLong(words[0]) * MEGABYTE;
        int names = Integer.parseInt(words[1]);
        int rounds = Integer.parseInt(words[2]);
        Configuration configuration = new Configuration();
        Map<String, FileTimes> all = new LinkedHashMap<>();
        for (int at = 3; at < words.length; at++) {
            URI uri = URI.create(words[at]);
            all.put(uri.getScheme(), new FileTimes(uri, configuration, bytes));
        }
        for (FileTimes one : all.values()) {
            one.makeNames(names);
        }
        List<String> schemes = new ArrayList<>(all.keySet());
        for (int round = 0; round <= rounds; round++) {
            for (int turn = 0; turn < schemes.size(); turn++) {
                String scheme = schemes.get((turn + round) % schemes.size());
                for (Map.Entry<String, Double> found : all.get(scheme).measure(names).entrySet()) {
                    if (round > 0) {
                        System.out.printf(
                                "%s\t%s\t%.6f%n", scheme, found.getKey(), found.getValue());
                    }
                }
            }
        }
    }

    private Map<String, Double> measure(int names) throws Exception {
        Map<String, Double> found = new LinkedHashMap<>();
        Path file = new Path(folder, "large");
        found.put("write", seconds(() -> write(file)));
        for (int kib : new int[] {4, 64, 1024}) {
            found.put("read " + kib + " KiB", seconds(() -> read(file, new byte[kib << 10])));
        }
        found.put("read at random 64 KiB", seconds(() -> readAtRandom(file, new byte[64 << 10])));
        files.delete(file, false);
        found.put("list", seconds(() -> list(names)));
        return found;
    }

    private static double seconds(Callable<Void> work) throws Exception {
        long began = System.nanoTime();
        work.call();
        return (System.nanoTime() - began) / 1e9;
    }

    private Void write(Path file) throws IOException {
        byte[] content = new byte[MEGABYTE];
        new Random(1).nextBytes(content);
        try (FSDataOutputStream stream = files.create(file, true)) {
            for (long done = 0; done < bytes; done += content.length) {
                stream.write(content);
            }
        }
        return null;
    }

    private Void read(Path file, byte[] buffer) throws IOException {
        long total = 0;
        try (FSDataInputStream stream = files.open(file)) {
            for (int count; (count = stream.read(buffer)) >= 0; ) {
                total += count;
            }
        }
        check(total == bytes, total + " bytes of " + bytes + " were read");
        return null;
    }

    /** As many bytes as the file has, at positions in no order. */
    private Void readAtRandom(Path file, byte[] buffer) throws IOException {
        Random random = new Random(2);
        try (FSDataInputStream stream = files.open(file)) {
            for (long done = 0; done < bytes; done += buffer.length) {
                long position = random.nextLong(Math.max(1, bytes - buffer.length));
                stream.readFully(position, buffer);
            }
        }
        return null;
    }

    private Path names() {
        return new Path(folder, "names");
    }

    private void makeNames(int count) throws Exception {
        files.mkdirs(names());
        if (files.getUri().getScheme().equals("file")) {
            // Hadoop starts a process for the mode of each local file.
            java.nio.file.Path local = java.nio.file.Path.of(names().toUri().getPath());
            for (int name = 0; name < count; name++) {
                java.nio.file.Files.createFile(local.resolve("part-" + name));
            }
            return;
        }
        ExecutorService threads = Executors.newFixedThreadPool(THREADS);
        List<Future<?>> made = new ArrayList<>();
        for (int name = 0; name < count; name++) {
            Path file = new Path(names(), "part-" + name);
            made.add(
                    threads.submit(
                            () -> {
                                files.create(file, true).close();
                                return null;
                            }));
        }
        for (Future<?> one : made) {
            one.get();
        }
        threads.shutdown();
    }

    private Void list(int count) throws IOException {
        int found = files.listStatus(names()).length;
        check(found == count, found + " names of " + count + " were listed");
        return null;
    }

    private static void check(boolean holds, String problem) throws IOException {
        if (!holds) {
            throw new IOException(problem);
        }
    }
}
