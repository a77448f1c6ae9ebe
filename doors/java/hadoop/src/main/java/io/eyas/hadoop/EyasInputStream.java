package io.eyas.hadoop;

import io.eyas.EyasReader;

import org.apache.hadoop.fs.ByteBufferPositionedReadable;
import org.apache.hadoop.fs.ByteBufferReadable;
import org.apache.hadoop.fs.CanUnbuffer;
import org.apache.hadoop.fs.FSExceptionMessages;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.VectoredReadUtils;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.function.Consumer;
import java.util.function.IntFunction;

/**
 * A file that is open for reading. Reads at a position and vectored reads can be called from any
 * thread; the others have one position.
 */
final class EyasInputStream extends FSInputStream
        implements ByteBufferReadable,
                ByteBufferPositionedReadable,
                CanUnbuffer,
                StreamCapabilities {
    private final EyasReader reader;
    private final long size;
    private final FileSystem.Statistics statistics;
    private final Executor threads;

    /** Bytes of the file from {@link #bufferOffset} on, for small reads one after the other. */
    private byte[] buffer;

    private final int bufferBytes;
    private long bufferOffset;
    private int bufferCount;
    private long position;
    private volatile boolean isClosed;

    EyasInputStream(
            EyasReader reader, int bufferBytes, FileSystem.Statistics statistics, Executor threads)
            throws IOException {
        this.reader = reader;
        this.size = reader.info().sizeBytes();
        this.bufferBytes = bufferBytes;
        this.statistics = statistics;
        this.threads = threads;
    }

    private void checkOpen() throws IOException {
        if (isClosed) {
            throw new IOException(FSExceptionMessages.STREAM_IS_CLOSED);
        }
    }

    private void count(int bytes) {
        if (statistics != null && bytes > 0) {
            statistics.incrementBytesRead(bytes);
        }
    }

    // ---- from the position on

    @Override
    public synchronized int read() throws IOException {
        byte[] one = new byte[1];
        return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
    }

    @Override
    public synchronized int read(byte[] bytes, int at, int count) throws IOException {
        checkOpen();
        if (count == 0) {
            return 0;
        }
        long offset = position - bufferOffset;
        if (offset < 0 || offset >= bufferCount) {
            if (count >= bufferBytes) {
                int done = read(position, bytes, at, count);
                position += Math.max(0, done);
                return done;
            }
            fill();
            offset = 0;
        }
        int done = Math.min(count, bufferCount - (int) offset);
        if (done == 0) {
            return -1;
        }
        System.arraycopy(buffer, (int) offset, bytes, at, done);
        position += done;
        count(done);
        return done;
    }

    private void fill() throws IOException {
        if (buffer == null) {
            buffer = new byte[bufferBytes];
        }
        bufferCount = 0;
        bufferOffset = position;
        bufferCount = Failures.of(() -> reader.read(position, buffer, 0, buffer.length));
    }

    @Override
    public synchronized int read(ByteBuffer target) throws IOException {
        checkOpen();
        if (!target.hasRemaining()) {
            return 0;
        }
        int done = read(position, target);
        position += Math.max(0, done);
        return done;
    }

    @Override
    public synchronized void seek(long target) throws IOException {
        checkOpen();
        if (target < 0) {
            throw new EOFException(FSExceptionMessages.NEGATIVE_SEEK);
        }
        if (target > size) {
            throw new EOFException(FSExceptionMessages.CANNOT_SEEK_PAST_EOF);
        }
        position = target;
    }

    @Override
    public synchronized long skip(long count) throws IOException {
        checkOpen();
        long done = Math.max(0, Math.min(count, size - position));
        position += done;
        return done;
    }

    @Override
    public synchronized long getPos() throws IOException {
        return position;
    }

    @Override
    public boolean seekToNewSource(long target) {
        // A reader tries all replicas by itself.
        return false;
    }

    @Override
    public synchronized int available() throws IOException {
        checkOpen();
        return (int) Math.min(Integer.MAX_VALUE, size - position);
    }

    // ---- at any position

    @Override
    public int read(long offset, byte[] bytes, int at, int count) throws IOException {
        checkOpen();
        validatePositionedReadArgs(offset, bytes, at, count);
        if (count == 0) {
            return 0;
        }
        int done = Failures.of(() -> reader.read(offset, bytes, at, count));
        count(done);
        return done == 0 ? -1 : done;
    }

    @Override
    public void readFully(long offset, byte[] bytes, int at, int count) throws IOException {
        checkOpen();
        validatePositionedReadArgs(offset, bytes, at, count);
        Failures.in(() -> reader.readFully(offset, bytes, at, count));
        count(count);
    }

    @Override
    public int read(long offset, ByteBuffer target) throws IOException {
        checkOpen();
        if (offset < 0) {
            throw new EOFException(FSExceptionMessages.NEGATIVE_SEEK);
        }
        if (!target.hasRemaining()) {
            return 0;
        }
        int done = Failures.of(() -> reader.read(offset, target));
        count(done);
        return done == 0 ? -1 : done;
    }

    @Override
    public void readFully(long offset, ByteBuffer target) throws IOException {
        int wanted = target.remaining();
        int done = wanted == 0 ? 0 : read(offset, target);
        if (done < wanted) {
            throw new EOFException(FSExceptionMessages.EOF_IN_READ_FULLY);
        }
    }

    @Override
    public void readVectored(List<? extends FileRange> ranges, IntFunction<ByteBuffer> allocate)
            throws IOException {
        readVectored(ranges, allocate, VectoredReadUtils.LOG_BYTE_BUFFER_RELEASED);
    }

    @Override
    public void readVectored(
            List<? extends FileRange> ranges,
            IntFunction<ByteBuffer> allocate,
            Consumer<ByteBuffer> release)
            throws IOException {
        checkOpen();
        Objects.requireNonNull(allocate, "allocate");
        Objects.requireNonNull(release, "release");
        for (FileRange range : VectoredReadUtils.validateAndSortRanges(ranges, Optional.of(size))) {
            CompletableFuture<ByteBuffer> result = new CompletableFuture<>();
            range.setData(result);
            threads.execute(() -> readRange(range, allocate, release, result));
        }
    }

    private void readRange(
            FileRange range,
            IntFunction<ByteBuffer> allocate,
            Consumer<ByteBuffer> release,
            CompletableFuture<ByteBuffer> result) {
        ByteBuffer target = null;
        try {
            target = allocate.apply(range.getLength());
            target.limit(target.position() + range.getLength());
            int start = target.position();
            readFully(range.getOffset(), target);
            target.position(start);
            result.complete(target);
        } catch (IOException | RuntimeException | Error failure) {
            if (target != null) {
                release.accept(target);
            }
            result.completeExceptionally(failure);
        }
    }

    // ---- the rest

    @Override
    public synchronized void unbuffer() {
        buffer = null;
        bufferCount = 0;
    }

    @Override
    public boolean hasCapability(String capability) {
        return switch (capability.toLowerCase(Locale.ROOT)) {
            case StreamCapabilities.READBYTEBUFFER,
                            StreamCapabilities.PREADBYTEBUFFER,
                            StreamCapabilities.UNBUFFER,
                            StreamCapabilities.VECTOREDIO ->
                    true;
            default -> false;
        };
    }

    @Override
    public void close() {
        isClosed = true;
        reader.close();
    }
}
