package io.eyas.hadoop.mapreduce;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.eyas.hadoop.EyasFileSystem;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.LongWritable;
import org.apache.hadoop.io.NullWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.JobID;
import org.apache.hadoop.mapreduce.JobStatus;
import org.apache.hadoop.mapreduce.MRJobConfig;
import org.apache.hadoop.mapreduce.Mapper;
import org.apache.hadoop.mapreduce.OutputCommitter;
import org.apache.hadoop.mapreduce.RecordWriter;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.TaskID;
import org.apache.hadoop.mapreduce.TaskType;
import org.apache.hadoop.mapreduce.lib.input.FileInputFormat;
import org.apache.hadoop.mapreduce.lib.output.FileOutputCommitterFactory;
import org.apache.hadoop.mapreduce.lib.output.FileOutputFormat;
import org.apache.hadoop.mapreduce.lib.output.PathOutputCommitter;
import org.apache.hadoop.mapreduce.lib.output.PathOutputCommitterFactory;
import org.apache.hadoop.mapreduce.lib.output.TextOutputFormat;
import org.apache.hadoop.mapreduce.lib.output.committer.manifest.ManifestCommitterFactory;
import org.apache.hadoop.mapreduce.task.JobContextImpl;
import org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.IntStream;

/** Whatever becomes of attempts and jobs, an output has each record once, and nothing else. */
class RunCommitterFactoryTest {
    private static final Path FOLDER = new Path("eyas://default/tests/committer");
    private static final JobID JOB = new JobID("committer", 1);
    private static final int RECORDS = 10;

    private static FileSystem files;

    @BeforeAll
    static void begin() throws IOException {
        files = FileSystem.newInstance(URI.create("eyas://default/"), new Configuration());
        files.delete(FOLDER, true);
    }

    @AfterAll
    static void end() throws IOException {
        files.delete(FOLDER, true);
        files.close();
    }

    // ---- the choice

    private static PathOutputCommitterFactory factory(String output, String... options)
            throws IOException {
        Configuration configuration = new Configuration();
        for (int option = 0; option < options.length; option += 2) {
            configuration.set(options[option], options[option + 1]);
        }
        return RunCommitterFactory.factory(output == null ? null : new Path(output), configuration);
    }

    @Test
    void theOutputChoosesTheCommitter() throws IOException {
        String scheme = "mapreduce.outputcommitter.factory.scheme.eyas";
        String own = RunCommitterFactory.class.getName();
        String usual = FileOutputCommitterFactory.class.getName();
        String key = RunCommitterFactory.FACTORY_KEY;
        assertInstanceOf(ManifestCommitterFactory.class, factory("eyas://default/out"));
        assertInstanceOf(ManifestCommitterFactory.class, factory("eyas:///out", scheme, own));
        assertInstanceOf(
                ManifestCommitterFactory.class, factory("/out", "fs.defaultFS", "eyas://default/"));
        assertInstanceOf(FileOutputCommitterFactory.class, factory("file:///tmp/out"));
        assertInstanceOf(FileOutputCommitterFactory.class, factory(null));
        assertInstanceOf(FileOutputCommitterFactory.class, factory("eyas:///out", scheme, usual));
        assertInstanceOf(FileOutputCommitterFactory.class, factory("eyas:///out", key, usual));
        for (String wrong : List.of("no.such.Factory", "java.lang.String", own)) {
            IOException failure =
                    assertThrows(IOException.class, () -> factory("eyas:///out", key, wrong));
            assertTrue(failure.getMessage().contains(key + " is " + wrong), failure.getMessage());
        }
    }

    /** Makes committers that note which of their methods was called last. */
    public static final class Noting extends PathOutputCommitterFactory {
        private static String called;

        @Override
        public PathOutputCommitter createOutputCommitter(Path output, TaskAttemptContext context)
                throws IOException {
            return new Noted(output, context);
        }

        private static boolean note(String method) {
            called = method;
            return true;
        }

        private static final class Noted extends PathOutputCommitter {
            Noted(Path output, TaskAttemptContext context) throws IOException {
                super(output, context);
            }

            @Override
            public Path getOutputPath() {
                note("getOutputPath");
                return null;
            }

            @Override
            public boolean hasOutputPath() {
                return note("hasOutputPath");
            }

            @Override
            public Path getWorkPath() {
                note("getWorkPath");
                return null;
            }

            @Override
            public void setupJob(JobContext job) {
                note("setupJob");
            }

            @Override
            @Deprecated
            public void cleanupJob(JobContext job) {
                note("cleanupJob");
            }

            @Override
            public void commitJob(JobContext job) {
                note("commitJob");
            }

            @Override
            public void abortJob(JobContext job, JobStatus.State state) {
                note("abortJob");
            }

            @Override
            public boolean isCommitJobRepeatable(JobContext job) {
                return note("isCommitJobRepeatable");
            }

            @Override
            @Deprecated
            public boolean isRecoverySupported() {
                return note("isRecoverySupported");
            }

            @Override
            public boolean isRecoverySupported(JobContext job) {
                return note("isRecoverySupported");
            }

            @Override
            public void setupTask(TaskAttemptContext task) {
                note("setupTask");
            }

            @Override
            public boolean needsTaskCommit(TaskAttemptContext task) {
                return note("needsTaskCommit");
            }

            @Override
            public void commitTask(TaskAttemptContext task) {
                note("commitTask");
            }

            @Override
            public void abortTask(TaskAttemptContext task) {
                note("abortTask");
            }

            @Override
            public void recoverTask(TaskAttemptContext task) {
                note("recoverTask");
            }

            @Override
            public String toString() {
                note("toString");
                return "noted";
            }
        }
    }

    /** Fails also if a later Hadoop has a method that is not delegated. */
    @Test
    void everyMethodIsDelegated() throws Exception {
        Configuration configuration = new Configuration();
        configuration.set(RunCommitterFactory.FACTORY_KEY, Noting.class.getName());
        TaskAttemptContext task = attempt(configuration, 0, 0);
        PathOutputCommitter committer =
                new RunCommitterFactory().createOutputCommitter(FOLDER, task);
        List<Method> methods = new ArrayList<>(List.of(OutputCommitter.class.getMethods()));
        methods.addAll(List.of(PathOutputCommitter.class.getDeclaredMethods()));
        for (Method method : methods) {
            if (method.getDeclaringClass() == Object.class
                    || method.isBridge()
                    || Modifier.isStatic(method.getModifiers())) {
                continue;
            }
            Object[] arguments = new Object[method.getParameterCount()];
            for (int at = 0; at < arguments.length; at++) {
                arguments[at] = at == 0 ? task : JobStatus.State.FAILED;
            }
            Method called =
                    RunCommitter.class.getMethod(method.getName(), method.getParameterTypes());
            called.setAccessible(true);
            Noting.called = null;
            called.invoke(committer, arguments);
            assertEquals(method.getName(), Noting.called);
        }
    }

    // ---- outputs

    private static Configuration configuration(String name) {
        Configuration configuration = new Configuration();
        configuration.set(
                "mapreduce.outputcommitter.factory.class", RunCommitterFactory.class.getName());
        configuration.set(FileOutputFormat.OUTDIR, new Path(FOLDER, name).toString());
        return configuration;
    }

    private static TaskAttemptContext attempt(Configuration configuration, int task, int number) {
        TaskID id = new TaskID(JOB, TaskType.MAP, task);
        return new TaskAttemptContextImpl(configuration, new TaskAttemptID(id, number));
    }

    /** An attempt that has written this number of records of its task. */
    private record Attempt(OutputCommitter committer, TaskAttemptContext context) {
        static Attempt of(Configuration configuration, int task, int number, int records)
                throws Exception {
            TaskAttemptContext context = attempt(configuration, task, number);
            TextOutputFormat<NullWritable, Text> format = new TextOutputFormat<>();
            OutputCommitter committer = format.getOutputCommitter(context);
            committer.setupTask(context);
            RecordWriter<NullWritable, Text> writer = format.getRecordWriter(context);
            for (int record = 0; record < records; record++) {
                writer.write(NullWritable.get(), new Text(record + " of " + task));
            }
            writer.close(context);
            return new Attempt(committer, context);
        }

        Void commit() throws IOException {
            assertTrue(committer.needsTaskCommit(context));
            committer.commitTask(context);
            return null;
        }

        void abort() throws IOException {
            committer.abortTask(context);
        }
    }

    private static OutputCommitter begin(Configuration configuration) throws Exception {
        OutputCommitter committer =
                new TextOutputFormat<>().getOutputCommitter(attempt(configuration, 0, 0));
        committer.setupJob(job(configuration));
        return committer;
    }

    private static JobContext job(Configuration configuration) {
        return new JobContextImpl(configuration, JOB);
    }

    private static List<String> expected(int tasks) {
        return IntStream.range(0, tasks * RECORDS)
                .mapToObj(at -> at % RECORDS + " of " + at / RECORDS)
                .sorted()
                .toList();
    }

    /** The records of an output, of which there must be nothing but parts and _SUCCESS. */
    private static List<String> records(String name) throws IOException {
        List<String> records = new ArrayList<>();
        for (FileStatus entry : files.listStatus(new Path(FOLDER, name))) {
            String file = entry.getPath().getName();
            assertTrue(file.equals("_SUCCESS") || file.startsWith("part-"), file);
            if (file.startsWith("part-")) {
                byte[] content = new byte[(int) entry.getLen()];
                try (FSDataInputStream stream = files.open(entry.getPath())) {
                    stream.readFully(0, content);
                }
                records.addAll(new String(content, StandardCharsets.UTF_8).lines().toList());
            }
        }
        Collections.sort(records);
        return records;
    }

    @Test
    void anAttemptThatFailsHalfwayLeavesNothing() throws Exception {
        Configuration configuration = configuration("failed");
        OutputCommitter committer = begin(configuration);
        Attempt.of(configuration, 0, 0, RECORDS / 2).abort();
        // One that is killed ends without a word.
        Attempt.of(configuration, 1, 0, RECORDS / 2);
        Attempt.of(configuration, 0, 1, RECORDS).commit();
        Attempt.of(configuration, 1, 1, RECORDS).commit();
        assertFalse(files.exists(new Path(FOLDER, "failed/part-m-00000")), "the job goes on");
        committer.commitJob(job(configuration));
        assertEquals(expected(2), records("failed"));
    }

    @Test
    void ofTwoAttemptsThatCommitOneCounts() throws Exception {
        Configuration configuration = configuration("twice");
        OutputCommitter committer = begin(configuration);
        Attempt first = Attempt.of(configuration, 0, 0, RECORDS);
        Attempt second = Attempt.of(configuration, 0, 1, RECORDS);
        Attempt third = Attempt.of(configuration, 1, 0, RECORDS);
        Attempt fourth = Attempt.of(configuration, 1, 1, RECORDS);
        // One after the other, and at the same time, when one of them may fail.
        first.commit();
        second.commit();
        ExecutorService threads = Executors.newFixedThreadPool(2);
        int committed = 0;
        try {
            List<Callable<Void>> both = List.of(third::commit, fourth::commit);
            for (Future<Void> one : threads.invokeAll(both)) {
                try {
                    one.get();
                    committed++;
                } catch (java.util.concurrent.ExecutionException lost) {
                    assertInstanceOf(IOException.class, lost.getCause());
                }
            }
        } finally {
            threads.shutdown();
        }
        assertTrue(committed > 0);
        committer.commitJob(job(configuration));
        assertEquals(expected(2), records("twice"));
    }

    @Test
    void anAbortedJobLeavesNothing() throws Exception {
        Configuration configuration = configuration("aborted");
        OutputCommitter committer = begin(configuration);
        Attempt.of(configuration, 0, 0, RECORDS).commit();
        Attempt.of(configuration, 1, 0, RECORDS / 2);
        committer.abortJob(job(configuration), JobStatus.State.KILLED);
        assertEquals(List.of(), records("aborted"));
        assertEquals(0, files.listStatus(new Path(FOLDER, "aborted")).length);
    }

    /** As MRAppMaster does after an application master that was killed. */
    @Test
    void aSecondMasterGoesOnWithTheRun() throws Exception {
        Configuration configuration = configuration("second");
        String run = run(configuration, "second");
        begin(configuration);
        Attempt.of(configuration, 0, 0, RECORDS).commit();
        Attempt.of(configuration, 1, 0, RECORDS / 2);
        configuration.setInt(MRJobConfig.APPLICATION_ATTEMPT_ID, 2);
        OutputCommitter second =
                new TextOutputFormat<>().getOutputCommitter(attempt(configuration, 0, 0));
        second.abortJob(job(configuration), JobStatus.State.FAILED);
        eyas().joinRun(run).close();
        second.setupJob(job(configuration));
        Attempt.of(configuration, 0, 1000, RECORDS).commit();
        Attempt.of(configuration, 1, 1000, RECORDS).commit();
        second.commitJob(job(configuration));
        assertEquals(expected(2), records("second"));
        assertThrows(IOException.class, () -> eyas().joinRun(run));
    }

    private static EyasFileSystem eyas() {
        return (EyasFileSystem) files;
    }

    /** Opens a run as the input of a job. */
    private static String run(Configuration configuration, String name) throws Exception {
        Path input = new Path(FOLDER, "of-run/" + name);
        try (FSDataOutputStream stream = files.create(input)) {
            stream.write("a line\n".getBytes(StandardCharsets.UTF_8));
        }
        Job job = Job.getInstance(configuration);
        FileInputFormat.addInputPath(job, input);
        new ElasticTextInputFormat().getSplits(job);
        for (String key : List.of(FileInputFormat.INPUT_DIR, ElasticInputFormat.RUN_KEY)) {
            configuration.set(key, job.getConfiguration().get(key));
        }
        return configuration.get(ElasticInputFormat.RUN_KEY);
    }

    /** Fails at a line in the middle of the input. */
    public static class Failing extends Mapper<LongWritable, Text, NullWritable, Text> {
        @Override
        protected void map(LongWritable offset, Text line, Context context)
                throws IOException, InterruptedException {
            if (line.toString().equals("500")) {
                throw new IOException("the line 500");
            }
            context.write(NullWritable.get(), line);
        }
    }

    @Test
    void aJobThatFailsEndsItsRun() throws Exception {
        Path input = new Path(FOLDER, "in/lines.txt");
        try (FSDataOutputStream stream = files.create(input)) {
            for (int line = 0; line < 1000; line++) {
                stream.write((line + "\n").getBytes(StandardCharsets.UTF_8));
            }
        }
        Configuration configuration = configuration("unused");
        configuration.set("mapreduce.framework.name", "local");
        configuration.set("hadoop.tmp.dir", System.getProperty("java.io.tmpdir") + "/hadoop");
        Job job = Job.getInstance(configuration);
        job.setInputFormatClass(ElasticTextInputFormat.class);
        job.setMapperClass(Failing.class);
        job.setNumReduceTasks(0);
        job.setOutputKeyClass(NullWritable.class);
        job.setOutputValueClass(Text.class);
        FileInputFormat.addInputPath(job, input);
        FileOutputFormat.setOutputPath(job, new Path(FOLDER, "of-a-job"));
        assertFalse(job.waitForCompletion(false));
        assertEquals(0, files.listStatus(new Path(FOLDER, "of-a-job")).length);
        String run = job.getConfiguration().get(ElasticInputFormat.RUN_KEY);
        assertThrows(IOException.class, () -> ((io.eyas.hadoop.EyasFileSystem) files).joinRun(run));
    }
}
