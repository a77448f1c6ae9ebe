package io.eyas;

import java.io.EOFException;
import java.io.IOException;
import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.util.Objects;

/**
 * A file of the cluster that is open for reading, at the version that it had when it was opened.
 * Threads may use one reader at the same time.
 */
public final class EyasReader extends Handle {
    private final String path;

    EyasReader(String path, long number) {
        super(number, Native::closeReader);
        this.path = path;
    }

    /** Size and attributes of the open file. */
    public FileInfo info() throws IOException {
        try {
            long[] numbers = new long[FileInfo.NUMBERS];
            Native.readerInfo(number, numbers);
            return FileInfo.of(path, numbers);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Reads up to {@code count} bytes from {@code offset} of the file into an array, from index
     * {@code at} on.
     *
     * @return the number of bytes, which is less than {@code count} only at the end of the file,
     *     and 0 beyond it
     */
    public int read(long offset, byte[] bytes, int at, int count) throws IOException {
        Texts.bytes("an offset", offset);
        Objects.checkFromIndexSize(at, count, bytes.length);
        try {
            return Native.read(number, offset, bytes, at, count);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Reads from {@code offset} of the file into the rest of a buffer, and moves its position. A
     * direct buffer is filled without a copy. Its memory must not be freed during the call, as an
     * arena that is closed by another thread would do.
     *
     * @return the number of bytes, which is less than there was room for only at the end of the
     *     file, and 0 beyond it
     */
    public int read(long offset, ByteBuffer buffer) throws IOException {
        Texts.bytes("an offset", offset);
        if (buffer.isReadOnly()) {
            throw new IllegalArgumentException("a read-only buffer cannot be filled");
        }
        int position = buffer.position();
        int count = buffer.remaining();
        int done;
        if (buffer.hasArray()) {
            done = read(offset, buffer.array(), buffer.arrayOffset() + position, count);
        } else {
            try {
                done = Native.readDirect(number, offset, buffer, position, count);
            } finally {
                Reference.reachabilityFence(this);
            }
        }
        buffer.position(position + done);
        return done;
    }

    /**
     * Reads exactly {@code count} bytes from {@code offset} of the file.
     *
     * @throws EOFException if the file ends before that
     */
    public void readFully(long offset, byte[] bytes, int at, int count) throws IOException {
        int done = read(offset, bytes, at, count);
        if (done < count) {
            throw new EOFException(
                    path + " ends at " + (offset + done) + ", before " + (offset + count));
        }
    }

    /** The whole file, of up to 2 GiB. */
    public byte[] readAll() throws IOException {
        long size = info().sizeBytes();
        if (size > Integer.MAX_VALUE) {
            throw new OutOfMemoryError(path + " has " + size + " bytes: read it in parts");
        }
        byte[] content = new byte[(int) size];
        readFully(0, content, 0, content.length);
        return content;
    }
}
