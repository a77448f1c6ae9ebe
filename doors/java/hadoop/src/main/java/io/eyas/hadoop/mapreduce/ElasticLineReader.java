package io.eyas.hadoop.mapreduce;

import io.eyas.Piece;

import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapreduce.InputSplit;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.lib.input.FileSplit;
import org.apache.hadoop.mapreduce.lib.input.LineRecordReader;
import org.apache.hadoop.util.LineReader;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.util.Iterator;

/** The lines of the pieces that an attempt of a map task claims, and of its whole files. */
final class ElasticLineReader extends ElasticReader<Text> {
    private static final byte[] BYTE_ORDER_MARK = {(byte) 0xef, (byte) 0xbb, (byte) 0xbf};

    private final Text value = new Text();
    private int maxLineBytes;

    /** The whole files that are left, and the one that is being read. */
    private Iterator<ElasticSplit.WholeFile> files;

    private LineRecordReader file;

    private LineReader piece;
    private long offset;

    @Override
    public void initialize(InputSplit given, TaskAttemptContext taskContext) throws IOException {
        super.initialize(given, taskContext);
        files = ((ElasticSplit) given).files().iterator();
        maxLineBytes = configuration().getInt(LineRecordReader.MAX_LINE_LENGTH, Integer.MAX_VALUE);
    }

    @Override
    public boolean nextKeyValue() throws IOException {
        return nextOfFiles() || nextOfPieces();
    }

    private boolean nextOfFiles() throws IOException {
        while (true) {
            if (file != null) {
                if (file.nextKeyValue()) {
                    found(file.getCurrentKey().get(), 0);
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
                    new FileSplit(next.path(), 0, next.sizeBytes(), new String[0]), context());
            file = opened;
            enter(next.path());
            found(0, next.sizeBytes());
        }
    }

    private boolean nextOfPieces() throws IOException {
        while (piece != null || open(claim())) {
            int bytes = piece.readLine(value, maxLineBytes, Integer.MAX_VALUE);
            if (bytes == 0) {
                piece = null;
                continue;
            }
            boolean isFirst = offset == 0;
            found(offset, bytes);
            offset += bytes;
            // As LineRecordReader: a longer line is left out.
            if (bytes < maxLineBytes) {
                if (isFirst) {
                    removeByteOrderMark();
                }
                return true;
            }
        }
        return false;
    }

    /** Begins a piece. Returns false if there is none. */
    private boolean open(Piece next) throws IOException {
        if (next == null) {
            return false;
        }
        byte[] content = next.content();
        if (content[content.length - 1] != '\n') {
            cluster().checkEnd(next.file(), next.offset() + content.length);
        }
        offset = next.offset();
        piece = new LineReader(new ByteArrayInputStream(content), configuration());
        return true;
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
    public Text getCurrentValue() {
        return value;
    }

    @Override
    public void close() throws IOException {
        if (file != null) {
            file.close();
            file = null;
        }
        super.close();
    }
}
