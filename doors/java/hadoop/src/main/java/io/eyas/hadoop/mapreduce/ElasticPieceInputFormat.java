package io.eyas.hadoop.mapreduce;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.BytesWritable;
import org.apache.hadoop.io.LongWritable;
import org.apache.hadoop.mapreduce.InputSplit;
import org.apache.hadoop.mapreduce.RecordReader;
import org.apache.hadoop.mapreduce.TaskAttemptContext;

import java.util.function.Predicate;

/**
 * Pieces of files of any format, over elastic blocks. A key is the offset of a piece in its file,
 * and the value is the piece: whole records of the format that the file has in the cluster, which
 * {@code eyas dfs set --records FORMAT FILE} changes. With {@code fixed:100}, the size of each
 * value is a multiple of 100 bytes; with {@code fastq}, each value begins with a read.
 *
 * <p>No value is empty, and an empty file has no piece. The program decompresses the content of
 * compressed files. A file that {@code bgzip} has written has pieces that can be decompressed
 * alone; a file that is one compressed stream, such as one of {@code gzip}, has the format {@code
 * whole} and is one piece. A value is in memory as a whole, so a file of the format {@code whole}
 * may have up to 1 GiB.
 */
public class ElasticPieceInputFormat extends ElasticInputFormat<BytesWritable> {
    /** The constructor that Hadoop calls. */
    public ElasticPieceInputFormat() {}

    @Override
    public RecordReader<LongWritable, BytesWritable> createRecordReader(
            InputSplit split, TaskAttemptContext context) {
        return new ElasticPieceReader();
    }

    /** None: the cluster knows where a file may be cut. */
    @Override
    Predicate<Path> wholeFiles(Configuration configuration) {
        return path -> false;
    }
}
