package io.eyas.hadoop.mapreduce;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.eyas.hadoop.EyasFileSystem;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.InputFormat;
import org.apache.hadoop.mapreduce.InputSplit;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.RecordReader;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.lib.input.FileInputFormat;
import org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl;

import java.io.IOException;

/** Jobs of tests over elastic blocks, in this process. */
final class ElasticJobs {
    private ElasticJobs() {}

    static Configuration configuration(String scheduler) {
        Configuration configuration = new Configuration();
        configuration.set(ElasticInputFormat.SCHEDULER_KEY, scheduler);
        configuration.setInt(ElasticInputFormat.TASKS_KEY, 4);
        configuration.setInt("mapreduce.local.map.tasks.maximum", 3);
        configuration.set("mapreduce.framework.name", "local");
        configuration.set("hadoop.tmp.dir", System.getProperty("java.io.tmpdir") + "/hadoop");
        configuration.set(
                "mapreduce.outputcommitter.factory.class", RunCommitterFactory.class.getName());
        return configuration;
    }

    @SuppressWarnings("rawtypes") // As Job takes it.
    static Job job(Configuration configuration, Class<? extends InputFormat> format, Path input)
            throws IOException {
        Job job = Job.getInstance(configuration);
        job.setInputFormatClass(format);
        FileInputFormat.addInputPath(job, input);
        return job;
    }

    /** Runs the job, whose committer also ends its run. */
    static void complete(Job job, EyasFileSystem files) throws Exception {
        assertTrue(job.waitForCompletion(false));
        String run = job.getConfiguration().get(ElasticInputFormat.RUN_KEY);
        if (run != null) {
            assertThrows(IOException.class, () -> files.joinRun(run), "the committer ends the run");
        }
    }

    /** Begins an attempt of the task that has this split. */
    static <K, V> RecordReader<K, V> attempt(InputFormat<K, V> format, Job job, InputSplit split)
            throws Exception {
        TaskAttemptContext context =
                new TaskAttemptContextImpl(job.getConfiguration(), new TaskAttemptID());
        RecordReader<K, V> reader = format.createRecordReader(split, context);
        reader.initialize(split, context);
        return reader;
    }
}
