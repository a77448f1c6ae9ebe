package io.eyas.hadoop.mapreduce;

import io.eyas.EyasBlock;
import io.eyas.EyasException;
import io.eyas.EyasRun;
import io.eyas.EyasStatus;
import io.eyas.Piece;
import io.eyas.hadoop.EyasFileSystem;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.LongWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapreduce.InputSplit;
import org.apache.hadoop.mapreduce.RecordReader;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.lib.input.FileInputFormat;
import org.apache.hadoop.mapreduce.lib.input.FileSplit;
import org.apache.hadoop.mapreduce.lib.input.LineRecordReader;
import org.apache.hadoop.util.LineReader;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.util.Iterator;

/** The lines of the pieces that an attempt of a map task claims, and of its whole files. */
final class ElasticLineReader extends RecordReader<LongWritable, Text> {
    private static final byte[] BYTE_ORDER_MARK = {(byte) 0xef, (byte) 0xbb, (byte) 0xbf};

    private final LongWritable key = new LongWritable();
    private final Text value = new Text();
    private TaskAttemptContext context;
    private ElasticSplit split;
    private int maxLineBytes;

    /** The whole files that are left, and the one that is being read. */
    private Iterator<ElasticSplit.WholeFile> files;

    private LineRecordReader file;

    private EyasFileSystem cluster;
    private EyasRun run;
    private EyasBlock block;
    private LineReader piece;
    private long offset;
    private long readBytes;

    @Override
    public void initialize(InputSplit given, TaskAttemptContext taskContext) throws IOException {
        split = (ElasticSplit) given;
        context = taskContext;
        files = split.files().iterator();
        Configuration configuration = context.getConfiguration();
        maxLineBytes = configuration.getInt(LineRecordReader.MAX_LINE_LENGTH, Integer.MAX_VALUE);
        if (!split.run().isEmpty()) {
            Path input = FileInputFormat.getInputPaths(context)[0];
            FileSystem found = input.getFileSystem(configuration);
            if (!(found instanceof EyasFileSystem eyas)) {
                throw new IOException(input + " is no longer a file of a cluster");
            }
            cluster = eyas;
            run = cluster.joinRun(split.run());
            block = run.begin(split.task());
        }
    }

    @Override
    public boolean nextKeyValue() throws IOException {
        return nextOfFiles() || nextOfPieces();
    }

    private boolean nextOfFiles() throws IOException {
        while (true) {
            if (file != null) {
                if (file.nextKeyValue()) {
                    key.set(file.getCurrentKey().get());
                    value.set(file.getCurrentValue());
                    return true;
                }
                file.close();
                file = null;
            }
            if (!files.hasNext()) {
                return false;
            }
            ElasticSplit.WholeFile next = files.next();
            LineRecordReader opened = new LineRecordReader();
            opened.initialize(
                    new FileSplit(next.path(), 0, next.sizeBytes(), new String[0]), context);
            file = opened;
            readBytes += next.sizeBytes();
        }
    }

    private boolean nextOfPieces() throws IOException {
        while (block != null) {
            while (piece != null) {
                key.set(offset);
                int bytes = piece.readLine(value, maxLineBytes, Integer.MAX_VALUE);
                if (bytes == 0) {
                    piece = null;
                    break;
                }
                boolean isFirst = offset == 0;
                offset += bytes;
                readBytes += bytes;
                // As LineRecordReader: a longer line is left out.
                if (bytes < maxLineBytes) {
                    if (isFirst) {
                        removeByteOrderMark();
                    }
                    return true;
                }
            }
            claim();
        }
        return false;
    }

    /** Claims the next piece. At the end of the task, there is no block any longer. */
    private void claim() throws IOException {
        Piece next;
        try {
            next = block.next(null);
        } catch (EyasException failure) {
            if (failure.status() == EyasStatus.DISCARDED) {
                throw new IOException(
                        "this attempt of task "
                                + split.task()
                                + " was silent for longer than "
                                + ElasticTextInputFormat.TERM_KEY
                                + " (in Spark, termMs), and its pieces went to other tasks:"
                                + " another attempt reads other pieces",
                        failure);
            }
            throw failure;
        }
        if (next == null) {
            closeBlock();
            return;
        }
        byte[] content = next.content();
        if (content.length > 0 && content[content.length - 1] != '\n') {
            cluster.checkEnd(next.file(), next.offset() + content.length);
        }
        offset = next.offset();
        piece = new LineReader(new ByteArrayInputStream(content), context.getConfiguration());
    }

    private void removeByteOrderMark() {
        byte[] line = value.getBytes();
        if (value.getLength() < BYTE_ORDER_MARK.length) {
            return;
        }
        for (int at = 0; at < BYTE_ORDER_MARK.length; at++) {
            if (line[at] != BYTE_ORDER_MARK[at]) {
                return;
            }
        }
        byte[] rest = value.copyBytes();
        value.set(rest, BYTE_ORDER_MARK.length, rest.length - BYTE_ORDER_MARK.length);
    }

    @Override
    public LongWritable getCurrentKey() {
        return key;
    }

    @Override
    public Text getCurrentValue() {
        return value;
    }

    /** The part of an equal share that was read: nothing tells how much the task will read. */
    @Override
    public float getProgress() {
        long expected = split == null ? 0 : split.getLength();
        return expected == 0 ? 0 : Math.min(1, (float) readBytes / expected);
    }

    private void closeBlock() {
        if (block != null) {
            block.close();
            run.close();
            block = null;
        }
    }

    @Override
    public void close() throws IOException {
        if (file != null) {
            file.close();
            file = null;
        }
        closeBlock();
    }
}
