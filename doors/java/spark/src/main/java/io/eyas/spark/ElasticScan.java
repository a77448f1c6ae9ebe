package io.eyas.spark;

import io.eyas.EyasException;
import io.eyas.EyasStatus;
import io.eyas.hadoop.mapreduce.ElasticInput;
import io.eyas.hadoop.mapreduce.ElasticInputFormat;
import io.eyas.hadoop.mapreduce.ElasticSplit;
import io.eyas.hadoop.mapreduce.ElasticTextInputFormat;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.lib.input.FileInputFormat;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.OptionalLong;

/**
 * A scan of one plan. It opens its run when Spark plans the partitions, and not for a plan that is
 * only shown.
 */
final class ElasticScan implements Batch, SupportsReportStatistics {
    /** Fewer bytes are not worth a further partition. Spark's own sources have the same number. */
    private static final long MIN_PARTITION_BYTES = 4 << 20;

    private final ElasticOptions options;
    private final StructType schema;
    private OptionalLong bytes = OptionalLong.empty();
    private ElasticPartition[] partitions;
    private Configuration configuration;

    ElasticScan(ElasticOptions options, StructType schema) {
        this.options = options;
        this.schema = schema;
    }

    @Override
    public StructType readSchema() {
        return schema;
    }

    @Override
    public String description() {
        return "eyas " + options.paths();
    }

    @Override
    public Batch toBatch() {
        return this;
    }

    /** Otherwise Spark would plan the partitions in order to know it. */
    @Override
    public ColumnarSupportMode columnarSupportMode() {
        return ColumnarSupportMode.UNSUPPORTED;
    }

    /** The size, by which Spark decides how to join. */
    @Override
    public Statistics estimateStatistics() {
        return new Statistics() {
            @Override
            public OptionalLong sizeInBytes() {
                return OptionalLong.of(bytes());
            }

            @Override
            public OptionalLong numRows() {
                return OptionalLong.empty();
            }
        };
    }

    private synchronized long bytes() {
        if (bytes.isEmpty()) {
            bytes = OptionalLong.of(options.bytes());
        }
        return bytes.getAsLong();
    }

    /** A partition for each core, unless the files are small. */
    private int usualTasks() {
        long worth = (bytes() + MIN_PARTITION_BYTES - 1) / MIN_PARTITION_BYTES;
        int cores = SparkContext.getOrCreate().defaultParallelism();
        return (int) Math.max(1, Math.min(cores, worth));
    }

    /** Copies of a plan share its scan, and with it the run. */
    @Override
    public synchronized InputPartition[] planInputPartitions() {
        if (partitions == null) {
            try {
                partitions = open();
            } catch (EyasException failure) {
                if (failure.status() == EyasStatus.INVALID) {
                    throw new IllegalArgumentException(failure.getMessage(), failure);
                }
                throw new UncheckedIOException(failure);
            } catch (IOException failure) {
                throw new UncheckedIOException(failure);
            }
        }
        return partitions.clone();
    }

    private ElasticPartition[] open() throws IOException {
        Job job = Job.getInstance(ElasticOptions.configuration());
        FileInputFormat.setInputPaths(job, options.paths().toArray(Path[]::new));
        configuration = job.getConfiguration();
        configuration.setInt(ElasticInputFormat.TASKS_KEY, usualTasks());
        options.settings().forEach(configuration::set);
        ScanRun.collectMany();
        ElasticInput input = new ElasticTextInputFormat().openInput(job);
        ScanRun run = input.run() == null ? null : ScanRun.of(input.run());
        ElasticPartition[] opened = new ElasticPartition[input.splits().size()];
        for (int task = 0; task < opened.length; task++) {
            ElasticSplit split = input.splits().get(task);
            opened[task] = ElasticPartition.of(split, run);
        }
        return opened;
    }

    @Override
    public synchronized PartitionReaderFactory createReaderFactory() {
        planInputPartitions();
        return new LinesReaderFactory(
                new SerializableConfiguration(configuration), schema.length() > 0);
    }
}
