package io.eyas.spark;

import io.eyas.hadoop.mapreduce.ElasticSplit;
import io.eyas.hadoop.mapreduce.ElasticTextInputFormat;

import org.apache.hadoop.io.LongWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapreduce.RecordReader;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.util.SerializableConfiguration;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;

/** Begins attempts of partitions in executors. */
final class LinesReaderFactory implements PartitionReaderFactory {
    private static final long serialVersionUID = 1;

    private final SerializableConfiguration configuration;
    private final boolean hasColumn;

    LinesReaderFactory(SerializableConfiguration configuration, boolean hasColumn) {
        this.configuration = configuration;
        this.hasColumn = hasColumn;
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
        try {
            ElasticSplit split = ((ElasticPartition) partition).split();
            TaskAttemptContext context =
                    new TaskAttemptContextImpl(configuration.value(), new TaskAttemptID());
            RecordReader<LongWritable, Text> lines =
                    new ElasticTextInputFormat().createRecordReader(split, context);
            lines.initialize(split, context);
            return new LinesReader(lines, hasColumn);
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new UncheckedIOException(new InterruptedIOException());
        }
    }

    /** The lines of an attempt. Its row is overwritten by the next one, as Spark permits. */
    private static final class LinesReader implements PartitionReader<InternalRow> {
        private final RecordReader<LongWritable, Text> lines;
        private final InternalRow row;
        private final boolean hasColumn;

        LinesReader(RecordReader<LongWritable, Text> lines, boolean hasColumn) {
            this.lines = lines;
            this.hasColumn = hasColumn;
            this.row = new GenericInternalRow(hasColumn ? 1 : 0);
        }

        @Override
        public boolean next() throws IOException {
            try {
                return lines.nextKeyValue();
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                throw new InterruptedIOException();
            }
        }

        @Override
        public InternalRow get() {
            if (hasColumn) {
                Text line = currentLine();
                row.update(0, UTF8String.fromBytes(line.getBytes(), 0, line.getLength()));
            }
            return row;
        }

        private Text currentLine() {
            try {
                return lines.getCurrentValue();
            } catch (IOException | InterruptedException impossible) {
                throw new IllegalStateException(impossible);
            }
        }

        @Override
        public void close() throws IOException {
            lines.close();
        }
    }
}
