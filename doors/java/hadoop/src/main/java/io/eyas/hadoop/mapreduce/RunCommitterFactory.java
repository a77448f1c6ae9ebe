package io.eyas.hadoop.mapreduce;

import io.eyas.hadoop.EyasFileSystem;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.lib.output.FileOutputCommitterFactory;
import org.apache.hadoop.mapreduce.lib.output.PathOutputCommitter;
import org.apache.hadoop.mapreduce.lib.output.PathOutputCommitterFactory;
import org.apache.hadoop.mapreduce.lib.output.committer.manifest.ManifestCommitterFactory;
import org.apache.hadoop.util.ReflectionUtils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;

/**
 * Makes committers of jobs over elastic blocks. Another factory makes the committer itself; at the
 * end of the job, it also ends the run of the job's input. Without this factory, the run is
 * forgotten after {@link ElasticInputFormat#IDLE_KEY}.
 *
 * <p>An output on {@code eyas://} has Hadoop's manifest committer, because a folder of eyas does
 * not move at once. Another output has the committer that Hadoop would choose by itself.
 *
 * <p>For {@code mapreduce.outputcommitter.factory.class}, or, if all outputs of jobs over elastic
 * blocks are on {@code eyas://}, for {@code mapreduce.outputcommitter.factory.scheme.eyas}.
 */
public final class RunCommitterFactory extends PathOutputCommitterFactory {
    /** The name of the factory that makes the committers; chosen by the output if not set. */
    public static final String FACTORY_KEY = "eyas.committer.factory";

    private static final Logger LOG = LoggerFactory.getLogger(RunCommitterFactory.class);

    /** The constructor that Hadoop calls. */
    public RunCommitterFactory() {}

    @Override
    public PathOutputCommitter createOutputCommitter(Path output, TaskAttemptContext context)
            throws IOException {
        PathOutputCommitterFactory factory = factory(output, context.getConfiguration());
        PathOutputCommitter committer = factory.createOutputCommitter(output, context);
        LOG.info("{} commits the output {}", committer.getClass().getName(), output);
        return new RunCommitter(committer, output, context);
    }

    /** The factory of committers for an output, which may be null. */
    static PathOutputCommitterFactory factory(Path output, Configuration configuration)
            throws IOException {
        String chosen = configuration.getTrimmed(FACTORY_KEY, "");
        if (!chosen.isEmpty()) {
            return make(FACTORY_KEY, configuration);
        }
        if (output == null) {
            return new FileOutputCommitterFactory();
        }
        String scheme = output.getFileSystem(configuration).getScheme();
        String schemeKey = String.format(COMMITTER_FACTORY_SCHEME_PATTERN, scheme);
        String ofScheme = configuration.getTrimmed(schemeKey, "");
        if (!ofScheme.isEmpty() && !ofScheme.equals(RunCommitterFactory.class.getName())) {
            return make(schemeKey, configuration);
        }
        return scheme.equals(EyasFileSystem.SCHEME)
                ? new ManifestCommitterFactory()
                : new FileOutputCommitterFactory();
    }

    private static PathOutputCommitterFactory make(String key, Configuration configuration)
            throws IOException {
        String name = configuration.getTrimmed(key);
        Class<?> found = configuration.getClassByNameOrNull(name);
        if (found == null
                || found == RunCommitterFactory.class
                || !PathOutputCommitterFactory.class.isAssignableFrom(found)) {
            throw new IOException(
                    key
                            + " is "
                            + name
                            + ", which is "
                            + (found == null ? "not in the class path" : "no other factory")
                            + ": name a subclass of PathOutputCommitterFactory, such as "
                            + ManifestCommitterFactory.NAME);
        }
        return (PathOutputCommitterFactory) ReflectionUtils.newInstance(found, configuration);
    }
}
