package io.eyas.hadoop.mapreduce;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.eyas.EyasClient;
import io.eyas.EyasRun;
import io.eyas.EyasWriter;
import io.eyas.WriteOptions;
import io.eyas.hadoop.EyasFileSystem;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.BytesWritable;
import org.apache.hadoop.io.LongWritable;
import org.apache.hadoop.io.SequenceFile;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapreduce.InputSplit;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.MRJobConfig;
import org.apache.hadoop.mapreduce.Mapper;
import org.apache.hadoop.mapreduce.RecordReader;
import org.apache.hadoop.mapreduce.lib.output.SequenceFileOutputFormat;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.zip.CRC32;
import java.util.zip.Deflater;
import java.util.zip.GZIPInputStream;
import java.util.zip.GZIPOutputStream;

/** Jobs over pieces of files get the content of each file once, in whole records of its format. */
class ElasticPieceInputFormatTest {
    private static final String FOLDER = "/tests/pieces";
    private static final Path RECORDS = new Path("eyas://default/tests/pieces/records");
    private static final Path PACKED = new Path("eyas://default/tests/pieces/packed");
    private static final int CHUNK_BYTES = 64 << 10;
    private static final int RECORD_BYTES = 1000;

    /** Largest content of a block of bgzip, bytes. */
    private static final int BLOCK_BYTES = 30_000;

    private static final Map<String, byte[]> CONTENTS = new TreeMap<>();

    private static EyasClient client;
    private static EyasFileSystem files;

    @BeforeAll
    static void begin() throws IOException {
        URI cluster = URI.create("eyas://default/");
        files = (EyasFileSystem) FileSystem.newInstance(cluster, new Configuration());
        files.delete(new Path(FOLDER), true);
        files.mkdirs(RECORDS);
        files.mkdirs(PACKED);
        client = EyasClient.connect();
        Random random = new Random(7);
        byte[] numbers = new byte[300 * RECORD_BYTES];
        random.nextBytes(numbers);
        write("records/numbers", numbers, "fixed:" + RECORD_BYTES);
        write("records/reads.fastq", reads(random), null);
        write("records/genome.fasta", sequences(random), null);
        write("records/empty.fasta", new byte[0], null);
        byte[] text = new byte[400_000];
        random.nextBytes(text);
        write("packed/blocks.gz", blocks(text), null);
        write("packed/stream.gz", stream(text), null);
        CONTENTS.put("text", text);
    }

    @AfterAll
    static void end() throws IOException {
        client.close();
        files.delete(new Path(FOLDER), true);
        files.close();
    }

    /** Writes a file; without a format, the cluster chooses it. */
    private static void write(String name, byte[] content, String format) throws IOException {
        WriteOptions options = new WriteOptions(format, CHUNK_BYTES, 0, true);
        try (EyasWriter writer = client.create(FOLDER + "/" + name, options)) {
            writer.write(content);
            writer.publish();
        }
        CONTENTS.put(new Path(name).getName(), content);
    }

    private static String bases(Random random, int count) {
        StringBuilder bases = new StringBuilder();
        for (int base = 0; base < count; base++) {
            bases.append("ACGT".charAt(random.nextInt(4)));
        }
        return bases.toString();
    }

    /** Reads whose qualities begin as a read does. */
    private static byte[] reads(Random random) {
        StringBuilder reads = new StringBuilder();
        for (int read = 0; read < 1500; read++) {
            String bases = bases(random, 20 + random.nextInt(80));
            String qualities = "@" + "F".repeat(bases.length() - 1);
            reads.append("@read").append(read).append('\n').append(bases);
            reads.append("\n+\n").append(qualities).append('\n');
        }
        return reads.toString().getBytes(StandardCharsets.US_ASCII);
    }

    /** Short sequences, and one that is longer than four chunks. */
    private static byte[] sequences(Random random) {
        StringBuilder sequences = new StringBuilder();
        for (int sequence = 0; sequence < 200; sequence++) {
            int lines = sequence == 100 ? 5000 : 1 + random.nextInt(20);
            sequences.append(">sequence").append(sequence).append('\n');
            for (int line = 0; line < lines; line++) {
                sequences.append(bases(random, 60)).append('\n');
            }
        }
        return sequences.toString().getBytes(StandardCharsets.US_ASCII);
    }

    /** The text as {@code gzip} compresses it. */
    private static byte[] stream(byte[] text) throws IOException {
        ByteArrayOutputStream packed = new ByteArrayOutputStream();
        try (GZIPOutputStream stream = new GZIPOutputStream(packed)) {
            stream.write(text);
        }
        return packed.toByteArray();
    }

    /** The text as {@code bgzip} compresses it: SAM specification, section 4.1. */
    private static byte[] blocks(byte[] text) {
        ByteBuffer all = ByteBuffer.allocate(2 * text.length).order(ByteOrder.LITTLE_ENDIAN);
        byte[] packed = new byte[2 * BLOCK_BYTES];
        for (int from = 0; from < text.length; from += BLOCK_BYTES) {
            int bytes = Math.min(BLOCK_BYTES, text.length - from);
            Deflater deflater = new Deflater(Deflater.DEFAULT_COMPRESSION, true);
            deflater.setInput(text, from, bytes);
            deflater.finish();
            int packedBytes = deflater.deflate(packed);
            deflater.end();
            CRC32 checksum = new CRC32();
            checksum.update(text, from, bytes);
            all.put(new byte[] {0x1f, (byte) 0x8b, 8, 4, 0, 0, 0, 0, 0, (byte) 0xff, 6, 0});
            all.put(new byte[] {'B', 'C', 2, 0});
            all.putShort((short) (18 + packedBytes + 8 - 1));
            all.put(packed, 0, packedBytes);
            all.putInt((int) checksum.getValue()).putInt(bytes);
        }
        return Arrays.copyOf(all.array(), all.position());
    }

    private static byte[] unpacked(byte[] packed) throws IOException {
        try (GZIPInputStream stream = new GZIPInputStream(new ByteArrayInputStream(packed))) {
            return stream.readAllBytes();
        }
    }

    private static byte[] joined(Collection<byte[]> parts) {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        parts.forEach(all::writeBytes);
        return all.toByteArray();
    }

    /** Each piece, with its offset and the name of its file. */
    public static class Named extends Mapper<LongWritable, BytesWritable, Text, BytesWritable> {
        @Override
        protected void map(LongWritable offset, BytesWritable piece, Context context)
                throws IOException, InterruptedException {
            String file = context.getConfiguration().get(MRJobConfig.MAP_INPUT_FILE);
            context.write(new Text(offset + " " + file), piece);
        }
    }

    /** The pieces that a job gets: by the name of the file, and by the offset. */
    private static Map<String, SortedMap<Long, byte[]>> pieces(Path input, String scheduler)
            throws Exception {
        Configuration configuration = ElasticJobs.configuration(scheduler);
        Job job = ElasticJobs.job(configuration, ElasticPieceInputFormat.class, input);
        job.setMapperClass(Named.class);
        job.setNumReduceTasks(0);
        job.setOutputFormatClass(SequenceFileOutputFormat.class);
        job.setOutputKeyClass(Text.class);
        job.setOutputValueClass(BytesWritable.class);
        Path output = new Path(input.getParent(), "out-" + input.getName() + "-" + scheduler);
        SequenceFileOutputFormat.setOutputPath(job, output);
        ElasticJobs.complete(job, files);
        Map<String, SortedMap<Long, byte[]>> found = new TreeMap<>();
        for (FileStatus part : files.globStatus(new Path(output, "part-*"))) {
            Configuration own = files.getConf();
            try (SequenceFile.Reader reader =
                    new SequenceFile.Reader(own, SequenceFile.Reader.file(part.getPath()))) {
                Text place = new Text();
                BytesWritable piece = new BytesWritable();
                while (reader.next(place, piece)) {
                    String[] words = place.toString().split(" ");
                    Path file = new Path(words[1]);
                    assertEquals(input, file.getParent());
                    SortedMap<Long, byte[]> others =
                            found.computeIfAbsent(file.getName(), name -> new TreeMap<>());
                    long offset = Long.parseLong(words[0]);
                    assertFalse(others.containsKey(offset), "a piece that came twice: " + place);
                    others.put(offset, piece.copyBytes());
                }
            }
        }
        return found;
    }

    /** Checks that these pieces are the content of the file, and returns them. */
    private static Collection<byte[]> whole(String name, SortedMap<Long, byte[]> pieces) {
        long end = 0;
        for (Map.Entry<Long, byte[]> piece : pieces.entrySet()) {
            assertEquals(end, piece.getKey(), name);
            assertTrue(piece.getValue().length > 0, name);
            end += piece.getValue().length;
        }
        assertArrayEquals(CONTENTS.get(name), joined(pieces.values()), name);
        return pieces.values();
    }

    private static void checkReads(byte[] piece) {
        String[] lines = new String(piece, StandardCharsets.US_ASCII).split("\n");
        assertEquals(0, lines.length % 4);
        for (int line = 0; line < lines.length; line += 4) {
            assertTrue(lines[line].startsWith("@read"), lines[line]);
            assertEquals("+", lines[line + 2]);
            assertEquals(lines[line + 1].length(), lines[line + 3].length());
        }
    }

    @Test
    void eachRecordIsInOnePieceUnderEachScheduler() throws Exception {
        for (String scheduler : List.of("static", "lean", "multiwave", "io-aware")) {
            Map<String, SortedMap<Long, byte[]>> found = pieces(RECORDS, scheduler);
            Set<String> names = Set.of("numbers", "reads.fastq", "genome.fasta");
            assertEquals(names, found.keySet(), "empty files have no piece");
            Collection<byte[]> numbers = whole("numbers", found.get("numbers"));
            assertTrue(numbers.size() >= 4);
            for (byte[] piece : numbers) {
                assertEquals(0, piece.length % RECORD_BYTES);
            }
            Collection<byte[]> reads = whole("reads.fastq", found.get("reads.fastq"));
            assertTrue(reads.size() >= 3);
            reads.forEach(ElasticPieceInputFormatTest::checkReads);
            Collection<byte[]> sequences = whole("genome.fasta", found.get("genome.fasta"));
            assertTrue(sequences.size() >= 3);
            for (byte[] piece : sequences) {
                assertEquals('>', piece[0]);
            }
        }
    }

    @Test
    void blocksOfCompressedFilesArePiecesAndAStreamIsOne() throws Exception {
        Map<String, SortedMap<Long, byte[]>> found = pieces(PACKED, "lean");
        assertEquals(Set.of("stream.gz", "blocks.gz"), found.keySet());
        assertEquals(1, whole("stream.gz", found.get("stream.gz")).size());
        assertTrue(found.get("blocks.gz").size() >= 4);
        for (String name : List.of("stream.gz", "blocks.gz")) {
            List<byte[]> texts = new ArrayList<>();
            for (byte[] piece : whole(name, found.get(name))) {
                texts.add(unpacked(piece));
            }
            assertArrayEquals(CONTENTS.get("text"), joined(texts), name);
        }
    }

    /** Reads up to this number of pieces. Returns whether there may be more. */
    private static boolean read(
            RecordReader<LongWritable, BytesWritable> reader, int count, List<String> found)
            throws Exception {
        for (int piece = 0; piece < count; piece++) {
            if (!reader.nextKeyValue()) {
                return false;
            }
            int content = Arrays.hashCode(reader.getCurrentValue().copyBytes());
            found.add(reader.getCurrentKey() + " " + content);
        }
        return true;
    }

    private static RecordReader<LongWritable, BytesWritable> attempt(Job job, InputSplit split)
            throws Exception {
        return ElasticJobs.attempt(new ElasticPieceInputFormat(), job, split);
    }

    @Test
    void attemptsOfATaskGetTheSamePieces() throws Exception {
        Configuration configuration = ElasticJobs.configuration("lean");
        Job job = ElasticJobs.job(configuration, ElasticPieceInputFormat.class, RECORDS);
        List<InputSplit> splits = new ElasticPieceInputFormat().getSplits(job);

        // One attempt is killed. Another one runs while another task takes pieces.
        List<String> killed = new ArrayList<>();
        try (RecordReader<LongWritable, BytesWritable> reader = attempt(job, splits.get(0))) {
            assertTrue(read(reader, 2, killed));
            assertTrue(reader.getProgress() > 0);
        }
        List<String> first = new ArrayList<>();
        List<String> other = new ArrayList<>();
        try (RecordReader<LongWritable, BytesWritable> one = attempt(job, splits.get(0));
                RecordReader<LongWritable, BytesWritable> next = attempt(job, splits.get(1))) {
            boolean isMore = true;
            while (isMore) {
                isMore = read(one, 2, first);
                isMore |= read(next, 1, other);
            }
        }
        assertEquals(killed, first.subList(0, 2));
        assertFalse(other.isEmpty());
        List<String> again = new ArrayList<>();
        try (RecordReader<LongWritable, BytesWritable> reader = attempt(job, splits.get(0))) {
            assertFalse(read(reader, Integer.MAX_VALUE, again));
        }
        assertEquals(first, again);
        try (EyasRun run = files.joinRun(job.getConfiguration().get(ElasticInputFormat.RUN_KEY))) {
            assertTrue(run.status().isComplete());
            run.end();
        }
    }
}
