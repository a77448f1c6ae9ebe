import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CommonConfigurationKeys;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.mapreduce.v2.MiniMRYarnCluster;
import org.apache.hadoop.yarn.conf.YarnConfiguration;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * An HDFS, and a YARN whose containers are processes of this machine.
 *
 * <p>Usage: {@code HadoopTestbed FOLDER NODES}, with {@code test.build.data} within FOLDER.
 * Hadoop's configuration is in the class path; {@code fs.defaultFS} in it names the file system
 * that YARN and its jobs use, which is the HDFS if it names none. Writes the folder {@code
 * FOLDER/conf} for programs of Hadoop when all is ready, and {@code FOLDER/hdfs}, the URI of the
 * HDFS. Ends when the process gets SIGTERM.
 */
public final class HadoopTestbed {
    /** The configuration files of Hadoop, and how the options of each begin. */
    private static final Map<String, String> FILES = new LinkedHashMap<>();

    static {
        FILES.put("yarn-site.xml", "yarn.");
        FILES.put("mapred-site.xml", "mapreduce.");
        FILES.put("hdfs-site.xml", "dfs.");
        FILES.put("core-site.xml", "");
    }

    private HadoopTestbed() {}

    public static void main(String[] words) {
        try {
            run(Path.of(words[0]).toAbsolutePath(), Integer.parseInt(words[1]));
        } catch (Throwable failure) {
            failure.printStackTrace();
            // Threads of a part that has started go on.
            Runtime.getRuntime().halt(1);
        }
    }

    private static void run(Path folder, int nodes) throws Exception {
        MiniDFSCluster hdfs = hdfs(folder);
        // Nodes read the files of Hadoop's configuration, and so does this.
        Configuration configuration = new JobConf(new YarnConfiguration());
        if (configuration.get("fs.defaultFS").equals("file:///")) {
            configuration.set("fs.defaultFS", hdfs.getURI().toString());
        }
        MiniMRYarnCluster yarn = new MiniMRYarnCluster("yarn", nodes);
        yarn.init(configuration);
        yarn.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> end(yarn, hdfs)));
        Files.writeString(folder.resolve("hdfs"), hdfs.getURI().toString());
        write(yarn.getConfig(), folder);
        Thread.currentThread().join();
    }

    private static MiniDFSCluster hdfs(Path folder) throws IOException {
        Configuration configuration = new HdfsConfiguration();
        configuration.set(
                MiniDFSCluster.HDFS_MINIDFS_BASEDIR, folder.resolve("data/hdfs").toString());
        MiniDFSCluster hdfs =
                new MiniDFSCluster.Builder(configuration).numDataNodes(1).format(true).build();
        hdfs.waitActive();
        return hdfs;
    }

    private static void end(MiniMRYarnCluster yarn, MiniDFSCluster hdfs) {
        yarn.stop();
        hdfs.shutdown(true);
    }

    /** Writes what differs from Hadoop's defaults. */
    private static void write(Configuration configuration, Path folder) throws IOException {
        Map<String, Configuration> files = new LinkedHashMap<>();
        FILES.keySet().forEach(name -> files.put(name, new Configuration(false)));
        for (Map.Entry<String, String> option : configuration) {
            if (option.getKey().equals(CommonConfigurationKeys.FS_PERMISSIONS_UMASK_KEY)) {
                // The cluster for tests has set it to 000.
                continue;
            }
            String[] sources = configuration.getPropertySources(option.getKey());
            if (sources == null || !sources[sources.length - 1].endsWith("-default.xml")) {
                files.get(fileOf(option.getKey())).set(option.getKey(), option.getValue());
            }
        }
        Path incomplete = Files.createDirectories(folder.resolve("conf.new"));
        for (Map.Entry<String, Configuration> file : files.entrySet()) {
            try (OutputStream stream = Files.newOutputStream(incomplete.resolve(file.getKey()))) {
                file.getValue().writeXml(stream);
            }
        }
        Files.move(incomplete, folder.resolve("conf"));
    }

    private static String fileOf(String option) {
        return FILES.entrySet().stream()
                .filter(file -> option.startsWith(file.getValue()))
                .findFirst()
                .orElseThrow()
                .getKey();
    }
}
