package io.eyas.hadoop.mapreduce;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.LongWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.io.compress.CompressionCodecFactory;
import org.apache.hadoop.mapreduce.InputSplit;
import org.apache.hadoop.mapreduce.RecordReader;
import org.apache.hadoop.mapreduce.TaskAttemptContext;

import java.io.IOException;
import java.util.function.Predicate;

/**
 * Lines of text files of a cluster, as of {@link
 * org.apache.hadoop.mapreduce.lib.input.TextInputFormat}, over elastic blocks.
 *
 * <p>A compressed file is one piece, which is assigned to a task in advance.
 */
public class ElasticTextInputFormat extends ElasticInputFormat<Text> {
    /** The constructor that Hadoop calls. */
    public ElasticTextInputFormat() {}

    @Override
    public RecordReader<LongWritable, Text> createRecordReader(
            InputSplit split, TaskAttemptContext context) {
        return new ElasticLineReader();
    }

    @Override
    Predicate<Path> wholeFiles(Configuration configuration) throws IOException {
        if (configuration.get("textinputformat.record.delimiter") != null) {
            throw new IOException(
                    "textinputformat.record.delimiter is set, but pieces of files end with lines:"
                            + " use TextInputFormat");
        }
        CompressionCodecFactory codecs = new CompressionCodecFactory(configuration);
        return path -> codecs.getCodec(path) != null;
    }
}
