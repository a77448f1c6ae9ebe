package io.eyas.hadoop.mapreduce;

import io.eyas.EyasRun;
import io.eyas.hadoop.EyasFileSystem;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.statistics.IOStatistics;
import org.apache.hadoop.fs.statistics.IOStatisticsSource;
import org.apache.hadoop.fs.statistics.IOStatisticsSupport;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.JobStatus;
import org.apache.hadoop.mapreduce.MRJobConfig;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.lib.input.FileInputFormat;
import org.apache.hadoop.mapreduce.lib.output.PathOutputCommitter;
import org.apache.hadoop.util.ShutdownHookManager;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.nio.file.NoSuchFileException;

/** Another committer, which also ends the run of the job's input when the job ends. */
final class RunCommitter extends PathOutputCommitter
        implements IOStatisticsSource, StreamCapabilities {
    private static final Logger LOG = LoggerFactory.getLogger(RunCommitter.class);

    private final PathOutputCommitter committer;
    private boolean hasSetUpJob;

    RunCommitter(PathOutputCommitter committer, Path output, TaskAttemptContext context)
            throws IOException {
        super(output, context);
        this.committer = committer;
    }

    // ---- the end of a job

    @Override
    public void commitJob(JobContext job) throws IOException {
        committer.commitJob(job);
        end(job);
    }

    @Override
    public void abortJob(JobContext job, JobStatus.State state) throws IOException {
        try {
            committer.abortJob(job, state);
        } finally {
            if (isOver(job.getConfiguration())) {
                end(job);
            }
        }
    }

    /**
     * Whether an abortion is the end of the job. An application master also aborts what another one
     * has left, before it sets up the job; and it aborts its own work when it gets a signal, after
     * which YARN begins another one. Then the job goes on with the same run.
     */
    private boolean isOver(Configuration configuration) {
        int master = configuration.getInt(MRJobConfig.APPLICATION_ATTEMPT_ID, 1);
        int masters =
                configuration.getInt(
                        MRJobConfig.MR_AM_MAX_ATTEMPTS, MRJobConfig.DEFAULT_MR_AM_MAX_ATTEMPTS);
        boolean isOfAnother = master > 1 && !hasSetUpJob;
        boolean isSignal = ShutdownHookManager.get().isShutdownInProgress() && master < masters;
        return !isOfAnother && !isSignal;
    }

    /**
     * Ends the run. If that fails, the job is over all the same, and the run is forgotten later.
     */
    private static void end(JobContext job) {
        String address = job.getConfiguration().get(ElasticInputFormat.RUN_KEY, "");
        if (address.isEmpty()) {
            return;
        }
        try {
            Path[] inputs = FileInputFormat.getInputPaths(job);
            if (inputs.length > 0
                    && inputs[0].getFileSystem(job.getConfiguration())
                            instanceof EyasFileSystem files) {
                try (EyasRun run = files.joinRun(address)) {
                    run.end();
                }
            }
        } catch (NoSuchFileException missing) {
            LOG.debug("the run {} has ended before", address);
        } catch (IOException failure) {
            LOG.warn(
                    "the run {} of the job's input has not ended: its node forgets it after {}",
                    address,
                    ElasticInputFormat.IDLE_KEY,
                    failure);
        }
    }

    // ---- what the other committer does

    @Override
    public Path getOutputPath() {
        return committer.getOutputPath();
    }

    @Override
    public boolean hasOutputPath() {
        return committer.hasOutputPath();
    }

    @Override
    public Path getWorkPath() throws IOException {
        return committer.getWorkPath();
    }

    @Override
    public void setupJob(JobContext job) throws IOException {
        hasSetUpJob = true;
        committer.setupJob(job);
    }

    @Override
    @Deprecated
    public void cleanupJob(JobContext job) throws IOException {
        committer.cleanupJob(job);
    }

    @Override
    public boolean isCommitJobRepeatable(JobContext job) throws IOException {
        return committer.isCommitJobRepeatable(job);
    }

    @Override
    @Deprecated
    public boolean isRecoverySupported() {
        return committer.isRecoverySupported();
    }

    @Override
    public boolean isRecoverySupported(JobContext job) throws IOException {
        return committer.isRecoverySupported(job);
    }

    @Override
    public void setupTask(TaskAttemptContext task) throws IOException {
        committer.setupTask(task);
    }

    @Override
    public boolean needsTaskCommit(TaskAttemptContext task) throws IOException {
        return committer.needsTaskCommit(task);
    }

    @Override
    public void commitTask(TaskAttemptContext task) throws IOException {
        committer.commitTask(task);
    }

    @Override
    public void abortTask(TaskAttemptContext task) throws IOException {
        committer.abortTask(task);
    }

    @Override
    public void recoverTask(TaskAttemptContext task) throws IOException {
        committer.recoverTask(task);
    }

    @Override
    public boolean hasCapability(String capability) {
        return committer instanceof StreamCapabilities able && able.hasCapability(capability);
    }

    @Override
    public IOStatistics getIOStatistics() {
        return IOStatisticsSupport.retrieveIOStatistics(committer);
    }

    @Override
    public String toString() {
        return "RunCommitter{" + committer + '}';
    }
}
