package io.eyas.hadoop;

import io.eyas.EyasClient;
import io.eyas.EyasReader;
import io.eyas.FileInfo;

import org.apache.hadoop.fs.InvalidPathHandleException;
import org.apache.hadoop.fs.PathHandle;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.NoSuchFileException;

/**
 * A file by its path, and, unless it may have changed, by its size and the time of its last write
 * in milliseconds, which is what Hadoop's status of a file has.
 */
record EyasPathHandle(String path, boolean mayChange, long sizeBytes, long modifiedMs)
        implements PathHandle {
    private static final long serialVersionUID = 1;

    /** Bytes of a handle without its path. */
    private static final int FIXED_BYTES = 1 + 2 * Long.BYTES;

    static EyasPathHandle of(PathHandle handle) throws IOException {
        if (handle instanceof EyasPathHandle own) {
            return own;
        }
        ByteBuffer bytes = handle.bytes();
        if (bytes.remaining() < FIXED_BYTES) {
            throw new InvalidPathHandleException("these bytes are no handle of a file of eyas");
        }
        boolean mayChange = bytes.get() != 0;
        long size = bytes.getLong();
        long modified = bytes.getLong();
        String path = StandardCharsets.UTF_8.decode(bytes).toString();
        return new EyasPathHandle(path, mayChange, size, modified);
    }

    /**
     * Opens the file.
     *
     * @throws InvalidPathHandleException if it has gone, or has changed and must not
     */
    EyasReader open(EyasClient client) throws IOException {
        EyasReader reader;
        try {
            reader = client.open(path);
        } catch (NoSuchFileException gone) {
            throw new InvalidPathHandleException(path + " no longer exists", gone);
        }
        // The version that is open is the one that is looked at.
        FileInfo info = reader.info();
        boolean isSame =
                info.sizeBytes() == sizeBytes && info.modified().toEpochMilli() == modifiedMs;
        if (!mayChange && !isSame) {
            reader.close();
            throw new InvalidPathHandleException(path + " has changed since the handle was made");
        }
        return reader;
    }

    @Override
    public ByteBuffer bytes() {
        byte[] name = path.getBytes(StandardCharsets.UTF_8);
        ByteBuffer bytes = ByteBuffer.allocate(FIXED_BYTES + name.length);
        bytes.put((byte) (mayChange ? 1 : 0)).putLong(sizeBytes).putLong(modifiedMs).put(name);
        return bytes.flip().asReadOnlyBuffer();
    }
}
