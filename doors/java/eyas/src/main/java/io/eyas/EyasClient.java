package io.eyas;

import static io.eyas.Texts.utf8;

import java.io.IOException;
import java.io.InputStream;
import java.lang.ref.Reference;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/**
 * A connection to a cluster. Threads may use one client at the same time. Objects that were made
 * with it stay usable when it is closed.
 */
public final class EyasClient extends Handle {
    /** An id that {@link #setOwner} leaves as it is. */
    public static final int UNCHANGED = -1;

    /** Bytes that {@link #upload} copies at once. */
    private static final int COPY_BYTES = 1 << 20;

    private EyasClient(long number) {
        super(number, Native::closeClient);
    }

    /**
     * Connects to the cluster of the command {@code eyas} without options: {@code $EYAS_ACCESS},
     * else {@code $EYAS_CLUSTER}, else {@code default}.
     *
     * @throws IOException if it cannot be reached, or refuses the key
     */
    public static EyasClient connect() throws IOException {
        Native.load();
        return new EyasClient(Native.connect(null, false));
    }

    /**
     * Connects to a cluster by its name.
     *
     * @throws IOException as {@link #connect()}
     */
    public static EyasClient connect(String cluster) throws IOException {
        Native.load();
        return new EyasClient(Native.connect(utf8(cluster), false));
    }

    /**
     * Connects to a cluster with an access file.
     *
     * @throws IOException as {@link #connect()}
     */
    public static EyasClient connectWithAccess(Path file) throws IOException {
        Native.load();
        return new EyasClient(Native.connect(utf8(file.toString()), true));
    }

    /**
     * Sets the time after which a call with this client, or with an object made with it, fails with
     * {@link EyasStatus#TIMED_OUT}; null for never. The default is 60 s. If files cannot be used,
     * calls fail after about half of it, and at most 25 s, with {@link EyasStatus#UNREACHABLE}.
     */
    public void setTimeout(Duration timeout) throws IOException {
        Native.setTimeout(number, Texts.milliseconds(timeout));
    }

    // ---- names

    /**
     * Looks up a file, folder or link.
     *
     * @throws NoSuchFileException if there is none
     */
    public FileInfo stat(String path) throws IOException {
        long[] found = new long[FileInfo.NUMBERS];
        Native.stat(number, utf8(path), found);
        return FileInfo.of(path, found);
    }

    /** Whether there is a file, folder or link of this name. */
    public boolean exists(String path) throws IOException {
        try {
            stat(path);
            return true;
        } catch (NoSuchFileException missing) {
            return false;
        }
    }

    /** The entries of a folder, without those of its subfolders; {@code /} is the root. */
    public List<FileInfo> list(String folder) throws IOException {
        List<FileInfo> entries = new ArrayList<>();
        try (EyasListing listing = openListing(folder, false)) {
            for (FileInfo next = listing.next(); next != null; next = listing.next()) {
                entries.add(next);
            }
        }
        return entries;
    }

    /**
     * Lists a folder of any size, entry by entry, in the order of the bytes of the names. Entries
     * that appear or go meanwhile may be listed or not.
     *
     * @param isRecursive whether entries of all subfolders are listed, too
     */
    public EyasListing openListing(String folder, boolean isRecursive) throws IOException {
        return new EyasListing(Native.openListing(number, utf8(folder), isRecursive));
    }

    /**
     * Renames a file, link or folder. A folder with content is not renamed at once: its entries
     * move one after another, and if the call fails, it can be repeated.
     *
     * @throws java.nio.file.FileAlreadyExistsException if the new name is in use
     */
    public void rename(String from, String to) throws IOException {
        Native.rename(number, utf8(from), utf8(to), false);
    }

    /**
     * Renames, and replaces what has the new name: a file or link takes the place of a file or
     * link, and a folder that of an empty folder.
     */
    public void replace(String from, String to) throws IOException {
        Native.rename(number, utf8(from), utf8(to), true);
    }

    /** Removes a file or link. Programs that have it open may still read it for a while. */
    public void remove(String path) throws IOException {
        Native.remove(number, utf8(path));
    }

    /** Makes a folder, and those above it that are missing. */
    public void makeFolder(String path) throws IOException {
        Native.makeFolder(number, utf8(path));
    }

    /**
     * Removes an empty folder.
     *
     * @throws java.nio.file.DirectoryNotEmptyException if it is not empty
     */
    public void removeFolder(String path) throws IOException {
        Native.removeFolder(number, utf8(path));
    }

    /** Makes a symbolic link. The target may be any path, and is not checked. */
    public void makeSymbolicLink(String path, String target) throws IOException {
        Native.makeSymbolicLink(number, utf8(path), utf8(target));
    }

    /** The target of a symbolic link. */
    public String readSymbolicLink(String path) throws IOException {
        return Texts.text(Native.readSymbolicLink(number, utf8(path)));
    }

    // ---- content

    /**
     * Opens a file for reading, at the version that it has now.
     *
     * @throws NoSuchFileException if there is none
     */
    public EyasReader open(String path) throws IOException {
        return new EyasReader(path, Native.openReader(number, utf8(path)));
    }

    /** Begins a new file. It appears, as a whole, with {@link EyasWriter#publish}. */
    public EyasWriter create(String path) throws IOException {
        return create(path, WriteOptions.NEW);
    }

    /**
     * Begins a new file, with options. It appears, as a whole, with {@link EyasWriter#publish}.
     *
     * @throws java.nio.file.FileAlreadyExistsException if there is a file and it must not be
     *     replaced
     */
    public EyasWriter create(String path, WriteOptions options) throws IOException {
        byte[] format = options.format() == null ? null : utf8(options.format());
        byte[] name = utf8(path);
        return new EyasWriter(
                path,
                Native.create(
                        number,
                        name,
                        format,
                        options.chunkBytes(),
                        options.replication(),
                        options.replaces()));
    }

    /**
     * Begins to append to a file. All that is written appears at once, with {@link
     * EyasWriter#publish}, which fails with {@link EyasStatus#CHANGED} if another client has
     * changed the file since.
     */
    public EyasWriter append(String path) throws IOException {
        return new EyasWriter(path, Native.append(number, utf8(path)));
    }

    /**
     * Begins to change a file at any offset. All changes appear at once, with {@link
     * EyasWriter#publish}, which fails with {@link EyasStatus#CHANGED} if another client has
     * changed the file since. Only chunks with changed bytes are stored again.
     *
     * @param creates whether a new file is begun if there is none
     */
    public EyasWriter edit(String path, boolean creates) throws IOException {
        return new EyasWriter(path, Native.edit(number, utf8(path), creates));
    }

    /** Copies a file of this machine into the cluster. */
    public void upload(Path file, String path, WriteOptions options) throws IOException {
        try (InputStream from = Files.newInputStream(file);
                EyasWriter to = create(path, options)) {
            byte[] part = new byte[COPY_BYTES];
            for (int count = from.read(part); count >= 0; count = from.read(part)) {
                to.write(part, 0, count);
            }
            to.publish();
        }
    }

    /**
     * Where the chunks of a file are, in the order of the file, to run programs where their data
     * is. A chunk comes once for each of its replicas.
     */
    public List<BlockPlace> places(String path) throws IOException {
        long places = Native.openPlaces(number, utf8(path));
        try {
            List<BlockPlace> found = new ArrayList<>();
            long[] numbers = new long[4];
            byte[][] texts = new byte[2][];
            while (Native.nextPlace(places, numbers, texts)) {
                String node = Texts.text(texts[0]);
                String host = Texts.text(texts[1]);
                found.add(
                        new BlockPlace(
                                numbers[0], numbers[1], numbers[2], node, host, numbers[3] != 0));
            }
            return found;
        } finally {
            Native.closePlaces(places);
        }
    }

    // ---- attributes

    /** Sets the permission bits of a file, folder or link: up to {@code 07777}. */
    public void setMode(String path, int mode) throws IOException {
        Native.setMode(number, utf8(path), mode);
    }

    /** Sets owner and group of a file, folder or link; {@link #UNCHANGED} leaves an id. */
    public void setOwner(String path, int uid, int gid) throws IOException {
        Native.setOwner(number, utf8(path), uid, gid);
    }

    /** Sets the time of the last write of a file, folder or link. */
    public void setModified(String path, Instant modified) throws IOException {
        Native.setModified(number, utf8(path), Texts.nanoseconds(modified));
    }

    /** The limits on everything below a folder, and how much of them is used. */
    public Quota quota(String folder) throws IOException {
        long[] found = new long[4];
        Native.quota(number, utf8(folder), found);
        return new Quota(found[0], found[1], found[2], found[3]);
    }

    /**
     * Limits everything below a folder. What is there already may exceed the limits; then nothing
     * can be added.
     *
     * @param bytes maximum size of all files together, bytes; or {@link Quota#NO_LIMIT}
     * @param files maximum number of files, folders and links; or {@link Quota#NO_LIMIT}
     */
    public void setQuota(String folder, long bytes, long files) throws IOException {
        if (bytes < Quota.NO_LIMIT || files < Quota.NO_LIMIT) {
            throw new IllegalArgumentException("a limit must not be negative");
        }
        Native.setQuota(number, utf8(folder), bytes, files);
    }

    /** The value of a named attribute; null if there is none of this name. */
    public byte[] attribute(String path, String name) throws IOException {
        return Native.attribute(number, utf8(path), utf8(name));
    }

    /** Names and values of the named attributes, in the order of the names. */
    public Map<String, byte[]> attributes(String path) throws IOException {
        long attributes = Native.openAttributes(number, utf8(path));
        try {
            Map<String, byte[]> found = new LinkedHashMap<>();
            byte[][] pair = new byte[2][];
            while (Native.nextAttribute(attributes, pair)) {
                found.put(Texts.text(pair[0]), pair[1]);
            }
            return found;
        } finally {
            Native.closeAttributes(attributes);
        }
    }

    /**
     * Sets a named attribute of a file, folder or link. A name has up to 250 bytes, and all names
     * and values of a file together up to 64 KiB.
     *
     * @throws EyasException with {@link EyasStatus#NO_ATTRIBUTE} if it must be there and is not,
     *     with {@link EyasStatus#ATTRIBUTES_FULL} if there is no room for it
     * @throws java.nio.file.FileAlreadyExistsException if it must not be there and is
     */
    public void setAttribute(String path, String name, byte[] value, AttributeCondition condition)
            throws IOException {
        Objects.requireNonNull(value, "value");
        Native.setAttribute(number, utf8(path), utf8(name), value, condition.ordinal());
    }

    /**
     * Removes a named attribute of a file, folder or link.
     *
     * @throws EyasException with {@link EyasStatus#NO_ATTRIBUTE} if there is none of this name
     */
    public void removeAttribute(String path, String name) throws IOException {
        Native.removeAttribute(number, utf8(path), utf8(name));
    }

    // ---- elastic blocks

    /**
     * Opens a run over files. Keep it open while workers are busy: half an hour after its program
     * has ended, the run is forgotten.
     *
     * @param workers about how many workers will join it
     * @param term how long a worker may be silent until it loses its block: 3 s to 1 h; null for 10
     *     s
     */
    public EyasRun openRun(Collection<String> paths, int workers, Duration term)
            throws IOException {
        return openRun(paths, new RunOptions(workers, term, null, null));
    }

    /** Opens a run over files with further options. */
    public EyasRun openRun(Collection<String> paths, RunOptions options) throws IOException {
        byte[][] names = paths.stream().map(Texts::utf8).toArray(byte[][]::new);
        long termMs = options.term() == null ? 0 : Texts.milliseconds(options.term());
        long idleMs = options.idle() == null ? 0 : Texts.milliseconds(options.idle());
        byte[] policy = options.policy() == null ? null : utf8(options.policy());
        int workers = options.workers();
        return new EyasRun(Native.openRun(number, names, workers, termMs, idleMs, policy));
    }

    /** Joins a run that another program has opened, by its address. */
    public EyasRun joinRun(String address) throws IOException {
        return new EyasRun(Native.joinRun(number, utf8(address)));
    }

    /** Closes the client. Objects that were made with it stay usable. */
    @Override
    public void close() {
        super.close();
        Reference.reachabilityFence(this);
    }
}
