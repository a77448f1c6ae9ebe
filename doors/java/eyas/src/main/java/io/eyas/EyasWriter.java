package io.eyas;

import java.io.IOException;
import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.util.Objects;

/**
 * A file that is being written. Nothing of it appears before {@link #publish}; a writer that is
 * closed without that leaves everything as it was.
 *
 * <p>Threads may use one writer at the same time; the order of their bytes is that of their calls.
 */
public final class EyasWriter extends Handle {
    /** Behind what was written before. */
    private static final long AT_END = -1;

    private final String path;

    EyasWriter(String path, long number) {
        super(number, Native::discard);
        this.path = path;
    }

    /**
     * Writes bytes behind those that were written before. The failure may be that of an earlier
     * write; then nothing will appear, and the writer has to be closed.
     */
    public void write(byte[] bytes) throws IOException {
        write(bytes, 0, bytes.length);
    }

    /** The same of {@code count} bytes of an array, from index {@code at} on. */
    public void write(byte[] bytes, int at, int count) throws IOException {
        put(AT_END, bytes, at, count);
    }

    /** The same of the rest of a buffer, whose position moves. */
    public void write(ByteBuffer buffer) throws IOException {
        put(AT_END, buffer);
    }

    /**
     * Writes bytes at an offset of the file, with a writer of {@link EyasClient#edit}. Bytes
     * between the end of the file and the offset become zeros. After a failure, nothing of all
     * changes will appear, and the writer has to be closed.
     */
    public void writeAt(long offset, byte[] bytes, int at, int count) throws IOException {
        put(Texts.bytes("an offset", offset), bytes, at, count);
    }

    /** The same of the rest of a buffer, whose position moves. */
    public void writeAt(long offset, ByteBuffer buffer) throws IOException {
        put(Texts.bytes("an offset", offset), buffer);
    }

    private synchronized void put(long offset, byte[] bytes, int at, int count) throws IOException {
        Objects.checkFromIndexSize(at, count, bytes.length);
        try {
            Native.write(number, offset, bytes, at, count);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    private synchronized void put(long offset, ByteBuffer buffer) throws IOException {
        int position = buffer.position();
        int count = buffer.remaining();
        if (buffer.isDirect()) {
            try {
                Native.writeDirect(number, offset, buffer, position, count);
            } finally {
                Reference.reachabilityFence(this);
            }
        } else if (buffer.hasArray()) {
            put(offset, buffer.array(), buffer.arrayOffset() + position, count);
        } else {
            byte[] copy = new byte[count];
            buffer.duplicate().get(copy);
            put(offset, copy, 0, count);
        }
        buffer.position(position + count);
    }

    /**
     * Cuts the file off at this size, bytes, or appends zeros to it, with a writer of {@link
     * EyasClient#edit}. After a failure, nothing of all changes will appear.
     */
    public synchronized void setSize(long sizeBytes) throws IOException {
        try {
            Native.setSize(number, Texts.bytes("a size", sizeBytes));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Makes all that was written appear, and ends the writer. When it returns, the file is on the
     * disks of a quorum of the nodes that should have it. After {@link EyasStatus#TIMED_OUT}, the
     * work goes on: call it again to wait, or {@link #close} to give up.
     *
     * @throws java.nio.file.FileAlreadyExistsException if another client has made the file since
     * @throws EyasException with {@link EyasStatus#CHANGED} if another client has changed the file
     *     since it was opened
     */
    public void publish() throws IOException {
        try {
            Native.publish(number, Texts.utf8(path));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** Ends the writer. What was not published never appears. */
    @Override
    public void close() {
        super.close();
    }
}
