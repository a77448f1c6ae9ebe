package io.eyas.hadoop.mapreduce;

import io.eyas.EyasException;
import io.eyas.EyasRun;
import io.eyas.EyasStatus;
import io.eyas.hadoop.EyasFileSystem;

import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.JobStatus;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.lib.input.FileInputFormat;
import org.apache.hadoop.mapreduce.lib.output.FileOutputCommitter;
import org.apache.hadoop.mapreduce.lib.output.PathOutputCommitter;
import org.apache.hadoop.mapreduce.lib.output.PathOutputCommitterFactory;

import java.io.IOException;

/**
 * Hadoop's usual output committers, which also end the run of the job's input when the job ends.
 * Without it, the run is forgotten after {@link ElasticTextInputFormat#IDLE_KEY}. For {@code
 * mapreduce.outputcommitter.factory.class}.
 */
public final class RunCommitterFactory extends PathOutputCommitterFactory {
    /** The constructor that Hadoop calls. */
    public RunCommitterFactory() {}

    @Override
    public PathOutputCommitter createOutputCommitter(Path output, TaskAttemptContext context)
            throws IOException {
        return new RunCommitter(output, context);
    }

    private static final class RunCommitter extends FileOutputCommitter {
        RunCommitter(Path output, TaskAttemptContext context) throws IOException {
            super(output, context);
        }

        @Override
        public void commitJob(JobContext job) throws IOException {
            super.commitJob(job);
            end(job);
        }

        @Override
        public void abortJob(JobContext job, JobStatus.State state) throws IOException {
            super.abortJob(job, state);
            end(job);
        }

        private static void end(JobContext job) throws IOException {
            String address = job.getConfiguration().get(ElasticTextInputFormat.RUN_KEY, "");
            Path[] inputs = FileInputFormat.getInputPaths(job);
            if (address.isEmpty() || inputs.length == 0) {
                return;
            }
            if (inputs[0].getFileSystem(job.getConfiguration()) instanceof EyasFileSystem files) {
                try (EyasRun run = files.joinRun(address)) {
                    run.end();
                } catch (EyasException failure) {
                    // The job is over, whatever becomes of the run: it has ended, or is forgotten.
                    if (failure.status() != EyasStatus.NOT_FOUND
                            && failure.status() != EyasStatus.UNREACHABLE) {
                        throw failure;
                    }
                } catch (java.nio.file.NoSuchFileException missing) {
                    // It has ended before.
                    return;
                }
            }
        }
    }
}
