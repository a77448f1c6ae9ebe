package io.eyas.hadoop.mapreduce;

import static io.eyas.hadoop.mapreduce.ElasticJobs.configuration;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.eyas.EyasRun;
import io.eyas.hadoop.EyasFileSystem;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.IntWritable;
import org.apache.hadoop.io.LongWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapreduce.InputFormat;
import org.apache.hadoop.mapreduce.InputSplit;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.MRJobConfig;
import org.apache.hadoop.mapreduce.Mapper;
import org.apache.hadoop.mapreduce.RecordReader;
import org.apache.hadoop.mapreduce.lib.input.TextInputFormat;
import org.apache.hadoop.mapreduce.lib.output.FileOutputFormat;
import org.apache.hadoop.mapreduce.lib.reduce.IntSumReducer;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.StringTokenizer;
import java.util.TreeSet;
import java.util.zip.GZIPOutputStream;

/** Jobs over elastic blocks give what they give over splits. */
class ElasticTextInputFormatTest {
    private static final Path FOLDER = new Path("/tests/elastic");
    private static final Path INPUT = new Path("eyas://default/tests/elastic/in");
    private static final int LINES = 30_000;

    private static EyasFileSystem files;

    @BeforeAll
    static void begin() throws IOException {
        Configuration configuration = new Configuration();
        configuration.set(EyasFileSystem.BLOCK_SIZE_KEY, "65536");
        URI cluster = URI.create("eyas://default/");
        files = (EyasFileSystem) FileSystem.newInstance(cluster, configuration);
        files.delete(FOLDER, true);
        StringBuilder text = new StringBuilder();
        for (int line = 0; line < LINES; line++) {
            text.append("line ").append(line).append(" of ").append(line % 97).append('\n');
        }
        write("lines.txt", text.toString().getBytes(StandardCharsets.UTF_8));
        write("dos.txt", "\ufeffone\r\ntwo\r\n\r\nand\rthree".getBytes(StandardCharsets.UTF_8));
        write("empty.txt", new byte[0]);
        ByteArrayOutputStream packed = new ByteArrayOutputStream();
        try (GZIPOutputStream stream = new GZIPOutputStream(packed)) {
            stream.write("packed one\npacked two\n".getBytes(StandardCharsets.UTF_8));
        }
        write("packed.txt.gz", packed.toByteArray());
    }

    @AfterAll
    static void end() throws IOException {
        files.delete(FOLDER, true);
        files.close();
    }

    private static void write(String name, byte[] content) throws IOException {
        try (FSDataOutputStream stream = files.create(new Path(INPUT, name), true)) {
            stream.write(content);
        }
    }

    /** Each word of a line, and the line with its offset. */
    public static class Words extends Mapper<LongWritable, Text, Text, IntWritable> {
        private static final IntWritable ONE = new IntWritable(1);

        @Override
        protected void map(LongWritable offset, Text line, Context context)
                throws IOException, InterruptedException {
            context.write(new Text("@" + offset + " " + line), ONE);
            StringTokenizer words = new StringTokenizer(line.toString());
            while (words.hasMoreTokens()) {
                context.write(new Text(words.nextToken()), ONE);
            }
        }
    }

    @SuppressWarnings("rawtypes") // As Job takes it.
    private static Job job(Configuration configuration, Class<? extends InputFormat> format)
            throws IOException {
        return ElasticJobs.job(configuration, format, INPUT);
    }

    /** What word count writes. */
    @SuppressWarnings("rawtypes") // As Job takes it.
    private static String counted(
            Configuration configuration, Class<? extends InputFormat> format, String name)
            throws Exception {
        Job job = job(configuration, format);
        job.setMapperClass(Words.class);
        job.setCombinerClass(IntSumReducer.class);
        job.setReducerClass(IntSumReducer.class);
        job.setOutputKeyClass(Text.class);
        job.setOutputValueClass(IntWritable.class);
        Path output = new Path("eyas://default/tests/elastic/out-" + name);
        FileOutputFormat.setOutputPath(job, output);
        ElasticJobs.complete(job, files);
        StringBuilder all = new StringBuilder();
        for (FileStatus part : files.globStatus(new Path(output, "part-*"))) {
            byte[] content = new byte[(int) part.getLen()];
            try (FSDataInputStream stream = files.open(part.getPath())) {
                stream.readFully(0, content);
            }
            all.append(new String(content, StandardCharsets.UTF_8));
        }
        return all.toString();
    }

    @Test
    void wordCountIsTheSameUnderEachScheduler() throws Exception {
        String expected = counted(configuration("lean"), TextInputFormat.class, "static-splits");
        assertTrue(expected.contains("packed\t2") && expected.contains("@0 one\t1"), "a fixture");
        for (String scheduler : List.of("lean", "multiwave", "io-aware", "static")) {
            String found =
                    counted(configuration(scheduler), ElasticTextInputFormat.class, scheduler);
            assertEquals(expected, found, scheduler);
        }
        Configuration lean = configuration("lean");
        lean.set(ElasticInputFormat.ALPHA_KEY, "0.7");
        assertEquals(expected, counted(lean, ElasticTextInputFormat.class, "alpha"));
    }

    private static List<InputSplit> splits(Job job) throws Exception {
        return new ElasticTextInputFormat().getSplits(job);
    }

    private static RecordReader<LongWritable, Text> attempt(Job job, InputSplit split)
            throws Exception {
        return ElasticJobs.attempt(new ElasticTextInputFormat(), job, split);
    }

    /** Reads up to this number of lines. Returns whether there may be more. */
    private static boolean read(
            RecordReader<LongWritable, Text> reader, int count, List<String> lines)
            throws Exception {
        for (int line = 0; line < count; line++) {
            if (!reader.nextKeyValue()) {
                return false;
            }
            lines.add(reader.getCurrentKey() + " " + reader.getCurrentValue());
        }
        return true;
    }

    private static List<String> all(Job job, InputSplit split) throws Exception {
        List<String> lines = new ArrayList<>();
        try (RecordReader<LongWritable, Text> reader = attempt(job, split)) {
            assertFalse(read(reader, Integer.MAX_VALUE, lines));
        }
        return lines;
    }

    /** What TextInputFormat reads, sorted. */
    private static List<String> expected() throws Exception {
        Job job = job(new Configuration(), TextInputFormat.class);
        List<String> lines = new ArrayList<>();
        TextInputFormat format = new TextInputFormat();
        for (InputSplit split : format.getSplits(job)) {
            try (RecordReader<LongWritable, Text> reader =
                    ElasticJobs.attempt(format, job, split)) {
                read(reader, Integer.MAX_VALUE, lines);
            }
        }
        Collections.sort(lines);
        return lines;
    }

    @Test
    void attemptsOfATaskReadTheSameLines() throws Exception {
        Job job = job(configuration("lean"), ElasticTextInputFormat.class);
        List<InputSplit> splits = splits(job);
        assertEquals(4, splits.size());
        assertTrue(splits.get(0).getLocations().length > 0);

        // One attempt is killed. Two run at once, while another task takes pieces.
        List<String> killed = new ArrayList<>();
        try (RecordReader<LongWritable, Text> reader = attempt(job, splits.get(0))) {
            assertTrue(read(reader, 10, killed));
        }
        List<String> first = new ArrayList<>();
        List<String> second = new ArrayList<>();
        List<String> other = new ArrayList<>();
        try (RecordReader<LongWritable, Text> one = attempt(job, splits.get(0));
                RecordReader<LongWritable, Text> two = attempt(job, splits.get(0));
                RecordReader<LongWritable, Text> next = attempt(job, splits.get(1))) {
            boolean isMore = true;
            while (isMore) {
                isMore = read(one, 500, first);
                isMore |= read(two, 300, second);
                isMore |= read(next, 200, other);
            }
        }
        assertEquals(killed, first.subList(0, killed.size()));
        assertEquals(first, second);
        assertFalse(other.isEmpty());
        assertEquals(first, all(job, splits.get(0)), "an attempt that runs again");
        List<String> found = new ArrayList<>(first);
        found.addAll(other);
        found.addAll(all(job, splits.get(2)));
        found.addAll(all(job, splits.get(3)));
        Collections.sort(found);
        assertEquals(expected(), found);
        try (EyasRun run = files.joinRun(job.getConfiguration().get("eyas.run"))) {
            assertTrue(run.status().isComplete());
            run.end();
        }
    }

    @Test
    void theConfigurationNamesTheFileOfALine() throws Exception {
        Job job = job(configuration("lean"), ElasticTextInputFormat.class);
        Set<String> found = new TreeSet<>();
        for (InputSplit split : splits(job)) {
            try (RecordReader<LongWritable, Text> reader = attempt(job, split)) {
                while (reader.nextKeyValue()) {
                    String file = job.getConfiguration().get(MRJobConfig.MAP_INPUT_FILE);
                    found.add(new Path(file).getName() + " " + reader.getCurrentValue());
                }
            }
        }
        assertEquals(expected().size(), found.size());
        assertTrue(found.contains("lines.txt line 0 of 0"));
        assertTrue(found.contains("dos.txt two"));
        assertTrue(found.contains("packed.txt.gz packed one"));
        try (EyasRun run = files.joinRun(job.getConfiguration().get(ElasticInputFormat.RUN_KEY))) {
            run.end();
        }
    }

    @Test
    void wrongConfigurationsAreRefused() throws Exception {
        for (List<String> wrong :
                Arrays.asList(
                        List.of(ElasticInputFormat.SCHEDULER_KEY, "best", "not a scheduler"),
                        List.of(ElasticInputFormat.ALPHA_KEY, "2", "from 0 to 1"),
                        List.of(ElasticInputFormat.WAVES_KEY, "2", "of multiwave only"),
                        List.of(ElasticInputFormat.TASKS_KEY, "0", "from 1 on"),
                        List.of(ElasticInputFormat.TERM_KEY, "1", "a term of 1 ms"),
                        List.of("textinputformat.record.delimiter", ";", "TextInputFormat"))) {
            Configuration configuration = configuration("lean");
            configuration.set(wrong.get(0), wrong.get(1));
            Job job = job(configuration, ElasticTextInputFormat.class);
            IOException failure = assertThrows(IOException.class, () -> splits(job));
            assertTrue(failure.getMessage().contains(wrong.get(2)), failure.getMessage());
        }
    }
}
