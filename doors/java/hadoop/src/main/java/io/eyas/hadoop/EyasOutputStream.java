package io.eyas.hadoop;

import io.eyas.EyasWriter;

import org.apache.hadoop.fs.FSExceptionMessages;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.Syncable;

import java.io.IOException;
import java.io.OutputStream;
import java.util.Locale;
import java.util.Objects;

/**
 * A file that is being written. It appears when the stream is closed, or at the first {@link
 * #hflush}. A flush publishes what was written; what comes after it is appended.
 */
final class EyasOutputStream extends OutputStream implements Syncable, StreamCapabilities {
    /** How a file goes on after a flush. */
    interface Opening {
        EyasWriter append() throws IOException;
    }

    /** What is done when a new file appears, and when its stream is closed, also if that fails. */
    interface Appearance {
        void appear() throws IOException;

        void close();
    }

    private final Opening opening;

    /** Null for a file that was there before. */
    private final Appearance appearance;

    private final FileSystem.Statistics statistics;

    /** Null after a flush, until something is written. */
    private EyasWriter writer;

    private boolean hasAppeared;
    private boolean isClosed;

    /** The first bytes go to the writer. */
    EyasOutputStream(
            EyasWriter writer,
            Opening opening,
            Appearance appearance,
            FileSystem.Statistics statistics) {
        this.writer = writer;
        this.opening = opening;
        this.appearance = appearance;
        this.statistics = statistics;
    }

    private void checkOpen() throws IOException {
        if (isClosed) {
            throw new IOException(FSExceptionMessages.STREAM_IS_CLOSED);
        }
    }

    @Override
    public synchronized void write(int one) throws IOException {
        write(new byte[] {(byte) one}, 0, 1);
    }

    @Override
    public synchronized void write(byte[] bytes, int at, int count) throws IOException {
        checkOpen();
        Objects.checkFromIndexSize(at, count, bytes.length);
        if (count == 0) {
            return;
        }
        if (writer == null) {
            writer = Failures.of(opening::append);
        }
        Failures.in(() -> writer.write(bytes, at, count));
        if (statistics != null) {
            statistics.incrementBytesWritten(count);
        }
    }

    /** Does nothing: bytes are collected by the writer, and appear with {@link #hflush}. */
    @Override
    public synchronized void flush() throws IOException {
        checkOpen();
    }

    @Override
    public synchronized void hflush() throws IOException {
        checkOpen();
        publish();
    }

    /** What was published is on the disks of a quorum of the nodes. */
    @Override
    public synchronized void hsync() throws IOException {
        checkOpen();
        publish();
    }

    private void publish() throws IOException {
        if (writer == null) {
            return;
        }
        try (EyasWriter published = writer) {
            Failures.in(published::publish);
            writer = null;
        }
        if (!hasAppeared && appearance != null) {
            hasAppeared = true;
            Failures.in(appearance::appear);
        }
    }

    @Override
    public synchronized void close() throws IOException {
        if (isClosed) {
            return;
        }
        isClosed = true;
        try {
            publish();
        } finally {
            if (appearance != null) {
                appearance.close();
            }
        }
    }

    @Override
    @SuppressWarnings("deprecation") // Programs still ask for HFLUSH.
    public boolean hasCapability(String capability) {
        return switch (capability.toLowerCase(Locale.ROOT)) {
            case StreamCapabilities.HFLUSH, StreamCapabilities.HSYNC -> true;
            default -> false;
        };
    }
}
