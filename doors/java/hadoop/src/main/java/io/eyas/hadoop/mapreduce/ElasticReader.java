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
import org.apache.hadoop.mapreduce.InputSplit;
import org.apache.hadoop.mapreduce.MRJobConfig;
import org.apache.hadoop.mapreduce.RecordReader;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.lib.input.FileInputFormat;

import java.io.IOException;

/** Claims pieces for an attempt of a map task. Subclasses make records of them. */
abstract class ElasticReader<V> extends RecordReader<LongWritable, V> {
    private final LongWritable key = new LongWritable();
    private TaskAttemptContext context;
    private ElasticSplit split;

    /** Null if all files of the split are read as a whole. */
    private EyasFileSystem cluster;

    /** Both are null before the task begins, and after it has read its last piece. */
    private EyasRun run;

    private EyasBlock block;

    private Path file;
    private long readBytes;

    @Override
    public void initialize(InputSplit given, TaskAttemptContext taskContext) throws IOException {
        split = (ElasticSplit) given;
        context = taskContext;
        if (split.run().isEmpty()) {
            return;
        }
        Path input = FileInputFormat.getInputPaths(context)[0];
        FileSystem found = input.getFileSystem(context.getConfiguration());
        if (!(found instanceof EyasFileSystem eyas)) {
            throw new IOException(input + " is no longer a file of a cluster");
        }
        cluster = eyas;
        run = cluster.joinRun(split.run());
        block = run.begin(split.task());
    }

    TaskAttemptContext context() {
        return context;
    }

    Configuration configuration() {
        return context.getConfiguration();
    }

    EyasFileSystem cluster() {
        return cluster;
    }

    /** Claims the next piece with content; null at the end of the task. */
    Piece claim() throws IOException {
        while (block != null) {
            Piece next = claimAny();
            if (next == null) {
                closeBlock();
            } else if (next.content().length > 0) {
                // Pieces are parts of chunks. If no record begins in a part, its piece is empty.
                enter(cluster.makeQualified(new Path(next.file())));
                return next;
            }
        }
        return null;
    }

    private Piece claimAny() throws IOException {
        try {
            return block.next(null);
        } catch (EyasException failure) {
            if (failure.status() == EyasStatus.DISCARDED) {
                throw new IOException(
                        "this attempt of task "
                                + split.task()
                                + " was silent for longer than "
                                + ElasticInputFormat.TERM_KEY
                                + " (in Spark, termMs), and its pieces went to other tasks:"
                                + " another attempt reads other pieces",
                        failure);
            }
            throw failure;
        }
    }

    /** Tells the program the file of the next records, where CombineFileInputFormat tells it. */
    void enter(Path next) {
        if (!next.equals(file)) {
            file = next;
            configuration().set(MRJobConfig.MAP_INPUT_FILE, next.toString());
        }
    }

    /** Sets the key of the current record, and counts bytes that were read. */
    void found(long offset, long bytes) {
        key.set(offset);
        readBytes += bytes;
    }

    @Override
    public LongWritable getCurrentKey() {
        return key;
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
            block = null;
        }
        if (run != null) {
            run.close();
            run = null;
        }
    }

    @Override
    public void close() throws IOException {
        closeBlock();
    }
}
