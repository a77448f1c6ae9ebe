package io.eyas.hadoop.mapreduce;

import io.eyas.Piece;

import org.apache.hadoop.io.BytesWritable;

import java.io.IOException;

/** The pieces that an attempt of a map task claims. */
final class ElasticPieceReader extends ElasticReader<BytesWritable> {
    private BytesWritable value;

    @Override
    public boolean nextKeyValue() throws IOException {
        // The last piece does not stay in memory while the next one is read.
        value = null;
        Piece next = claim();
        if (next == null) {
            return false;
        }
        value = new BytesWritable(next.content());
        found(next.offset(), next.content().length);
        return true;
    }

    @Override
    public BytesWritable getCurrentValue() {
        return value;
    }
}
