package io.eyas;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;

/**
 * The methods of the native part, one for each function of the C library. Texts are UTF-8 without
 * NUL.
 *
 * <p>A handle is a number that the C library looks up, so no number is dangerous. Results that
 * belong to a handle in C are copied within the call; the caller holds the lock of the object
 * meanwhile, so that no other call with the handle frees them.
 */
final class Native {
    /**
     * System property with the path of the native part, for machines for which the jar has none.
     */
    private static final String PATH_PROPERTY = "eyas.library.path";

    private static final String RESOURCE = "/io/eyas/native/linux-x86-64/libeyas_jni.so";

    private static boolean isLoaded;

    private Native() {}

    /**
     * Loads the native part, once in a class loader.
     *
     * @throws UnsatisfiedLinkError if it cannot be loaded; the message says what to do
     */
    static synchronized void load() {
        if (isLoaded) {
            return;
        }
        String path = System.getProperty(PATH_PROPERTY);
        if (path == null) {
            loadResource();
        } else {
            System.load(Path.of(path).toAbsolutePath().toString());
        }
        isLoaded = true;
    }

    /**
     * A class loader needs a file of its own, because Java loads a file into one class loader only.
     */
    private static void loadResource() {
        String machine = System.getProperty("os.name") + " " + System.getProperty("os.arch");
        String otherwise =
                "set the system property " + PATH_PROPERTY + " to the path of libeyas_jni.so";
        if (!machine.equals("Linux amd64")) {
            throw new UnsatisfiedLinkError(
                    "the jar of eyas has its native part for Linux amd64, and not for "
                            + machine
                            + ": "
                            + otherwise);
        }
        Path file = null;
        try (InputStream library = Native.class.getResourceAsStream(RESOURCE)) {
            if (library == null) {
                throw new UnsatisfiedLinkError(
                        "the jar of eyas was built without its native part: " + otherwise);
            }
            file = Files.createTempFile("libeyas_jni", ".so");
            Files.copy(library, file, StandardCopyOption.REPLACE_EXISTING);
            System.load(file.toString());
        } catch (IOException failure) {
            String folder = System.getProperty("java.io.tmpdir");
            UnsatisfiedLinkError error =
                    new UnsatisfiedLinkError(
                            "the native part of eyas cannot be written to "
                                    + folder
                                    + ": "
                                    + failure
                                    + ": make room in "
                                    + "java.io.tmpdir, or "
                                    + otherwise);
            error.initCause(failure);
            throw error;
        } finally {
            remove(file);
        }
    }

    private static void remove(Path file) {
        try {
            if (file != null) {
                Files.deleteIfExists(file);
            }
        } catch (IOException left) {
            // It is empty or unused, and in a folder that the system empties.
        }
    }

    static native long connect(byte[] name, boolean isAccess) throws IOException;

    static native void setTimeout(long client, long timeoutMs) throws IOException;

    static native void closeClient(long client);

    static native void stat(long client, byte[] path, long[] info) throws IOException;

    static native void rename(long client, byte[] from, byte[] to, boolean replaces)
            throws IOException;

    static native void makeFolder(long client, byte[] path) throws IOException;

    static native void removeFolder(long client, byte[] path) throws IOException;

    static native void remove(long client, byte[] path) throws IOException;

    static native long openListing(long client, byte[] folder, boolean isRecursive)
            throws IOException;

    /** The name of the next entry; null at the end. */
    static native byte[] nextEntry(long listing, long[] info) throws IOException;

    static native void closeListing(long listing);

    static native long openPlaces(long client, byte[] path) throws IOException;

    static native boolean nextPlace(long places, long[] numbers, byte[][] nodeAndHost)
            throws IOException;

    static native void closePlaces(long places);

    static native void setMode(long client, byte[] path, int mode) throws IOException;

    static native void setOwner(long client, byte[] path, int uid, int gid) throws IOException;

    static native void setModified(long client, byte[] path, long modifiedNs) throws IOException;

    static native void makeSymbolicLink(long client, byte[] path, byte[] target) throws IOException;

    static native byte[] readSymbolicLink(long client, byte[] path) throws IOException;

    static native void setQuota(long client, byte[] folder, long bytes, long files)
            throws IOException;

    static native void quota(long client, byte[] folder, long[] found) throws IOException;

    static native void setAttribute(
            long client, byte[] path, byte[] name, byte[] value, int condition) throws IOException;

    static native byte[] attribute(long client, byte[] path, byte[] name) throws IOException;

    static native void removeAttribute(long client, byte[] path, byte[] name) throws IOException;

    static native long openAttributes(long client, byte[] path) throws IOException;

    static native boolean nextAttribute(long attributes, byte[][] nameAndValue) throws IOException;

    static native void closeAttributes(long attributes);

    static native long openReader(long client, byte[] path) throws IOException;

    static native void readerInfo(long reader, long[] info) throws IOException;

    static native int read(long reader, long offset, byte[] bytes, int at, int count)
            throws IOException;

    static native int readDirect(long reader, long offset, ByteBuffer buffer, int at, int count)
            throws IOException;

    static native void closeReader(long reader);

    static native long create(
            long client,
            byte[] path,
            byte[] format,
            long chunkBytes,
            int replication,
            boolean replaces)
            throws IOException;

    static native long append(long client, byte[] path) throws IOException;

    static native long edit(long client, byte[] path, boolean creates) throws IOException;

    /** Writes at an offset; behind what was written before if it is negative. */
    static native void write(long writer, long offset, byte[] bytes, int at, int count)
            throws IOException;

    static native void writeDirect(long writer, long offset, ByteBuffer buffer, int at, int count)
            throws IOException;

    static native void setSize(long writer, long sizeBytes) throws IOException;

    static native void publish(long writer, byte[] path) throws IOException;

    static native void discard(long writer);

    /** The policy may be null. */
    static native long openRun(
            long client, byte[][] paths, int workers, long termMs, long idleMs, byte[] policy)
            throws IOException;

    static native long joinRun(long client, byte[] address) throws IOException;

    static native byte[] runAddress(long run) throws IOException;

    static native void runStatus(long run, long[] found) throws IOException;

    static native void waitForRun(long run, long timeoutMs, long[] found) throws IOException;

    /** The path of an output; null if there are fewer. */
    static native byte[] runOutput(long run, int number) throws IOException;

    static native void endRun(long run) throws IOException;

    static native void closeRun(long run);

    static native long openBlock(long run) throws IOException;

    static native long openTask(long run, int task) throws IOException;

    static native boolean nextPiece(
            long block, long timeoutMs, long[] offset, byte[][] fileAndContent) throws IOException;

    static native void commit(long block, byte[] output) throws IOException;

    static native void closeBlock(long block);

    /** The name of a user or group; null if there is none. */
    static native byte[] nameOf(int id, boolean isGroup);

    /** The id of a user or group; -1 if there is none. */
    static native long idOf(byte[] name, boolean isGroup);
}
