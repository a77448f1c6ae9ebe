package io.eyas.hadoop;

import io.eyas.AttributeCondition;
import io.eyas.EyasClient;
import io.eyas.EyasListing;
import io.eyas.EyasReader;
import io.eyas.EyasRun;
import io.eyas.EyasWriter;
import io.eyas.FileInfo;
import io.eyas.Quota;
import io.eyas.RunOptions;
import io.eyas.WriteOptions;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.ContentSummary;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.PathHandle;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.XAttrSetFlag;
import org.apache.hadoop.fs.impl.PathCapabilitiesSupport;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.util.Progressable;
import org.apache.hadoop.util.functional.RemoteIterators;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collection;
import java.util.EnumSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The files of a cluster as a file system of Hadoop. Owners, times, quotas and attributes are those
 * of the cluster; blocks are its chunks, with the hosts that have them.
 *
 * <p>A file appears as a whole when its stream is closed, or with the first hflush.
 */
public final class EyasFileSystem extends FileSystem {
    /** The scheme of its URIs. */
    public static final String SCHEME = "eyas";

    /** Path of an access file. Without it, the cluster is that of the name in the URI. */
    public static final String ACCESS_KEY = "fs.eyas.access";

    /** Time after which a call fails, milliseconds. */
    public static final String TIMEOUT_KEY = "fs.eyas.timeout.ms";

    /** Size of the chunks of new files, bytes. */
    public static final String BLOCK_SIZE_KEY = "fs.eyas.block.size";

    /** Number of replicas of new files. */
    public static final String REPLICATION_KEY = "fs.eyas.replication";

    private static final long DEFAULT_TIMEOUT_MS = 60_000;
    private static final long DEFAULT_BLOCK_BYTES = 32 << 20;
    private static final int DEFAULT_REPLICATION = 3;

    /** Smallest buffer of a stream, bytes. */
    private static final int MIN_BUFFER_BYTES = 64 << 10;

    private static final String ATTRIBUTE_NAMESPACE = "user.";

    private URI uri;
    private Path workingFolder;
    private EyasClient client;
    private Statuses statuses;
    private FileThreads threads;
    private NewFiles newFiles;

    /** Hadoop makes it and calls {@link #initialize}. */
    public EyasFileSystem() {}

    @Override
    public void initialize(URI name, Configuration configuration) throws IOException {
        super.initialize(name, configuration);
        setConf(configuration);
        String cluster = name.getAuthority();
        uri = URI.create(SCHEME + "://" + (cluster == null ? "/" : cluster));
        String access = configuration.getTrimmed(ACCESS_KEY, "");
        if (!access.isEmpty()) {
            client = EyasClient.connectWithAccess(java.nio.file.Path.of(access));
        } else {
            client = cluster == null ? EyasClient.connect() : EyasClient.connect(cluster);
        }
        long timeoutMs = configuration.getLong(TIMEOUT_KEY, DEFAULT_TIMEOUT_MS);
        client.setTimeout(Duration.ofMillis(timeoutMs));
        statuses = new Statuses(getDefaultBlockSize(), getDefaultReplication());
        threads = new FileThreads();
        newFiles = new NewFiles(client);
        String user = UserGroupInformation.getCurrentUser().getShortUserName();
        workingFolder = makeQualified(new Path("/user/" + user));
    }

    @Override
    public String getScheme() {
        return SCHEME;
    }

    @Override
    public URI getUri() {
        return uri;
    }

    @Override
    @SuppressWarnings("deprecation") // The other one calls it.
    public long getDefaultBlockSize() {
        return getConf().getLongBytes(BLOCK_SIZE_KEY, DEFAULT_BLOCK_BYTES);
    }

    @Override
    @SuppressWarnings("deprecation") // The other one calls it.
    public short getDefaultReplication() {
        return (short) getConf().getInt(REPLICATION_KEY, DEFAULT_REPLICATION);
    }

    /** Null: the key of the cluster is in a file, and there are no tokens. */
    @Override
    public String getCanonicalServiceName() {
        return null;
    }

    @Override
    public Path getWorkingDirectory() {
        return workingFolder;
    }

    @Override
    public void setWorkingDirectory(Path folder) {
        workingFolder = makeQualified(folder);
    }

    @Override
    public Path getHomeDirectory() {
        try {
            String user = UserGroupInformation.getCurrentUser().getShortUserName();
            return makeQualified(new Path("/user/" + user));
        } catch (IOException unknown) {
            return super.getHomeDirectory();
        }
    }

    /** The path in the cluster. */
    private String nameOf(Path path) {
        checkPath(path);
        return makeQualified(path).toUri().getPath();
    }

    /** What has this name; null if nothing has. */
    private FileInfo find(String name) throws IOException {
        if (name.equals("/")) {
            return Statuses.ROOT;
        }
        try {
            return Failures.of(() -> client.stat(name));
        } catch (FileNotFoundException | ParentNotDirectoryException missing) {
            return null;
        }
    }

    private FileInfo look(String name) throws IOException {
        return name.equals("/") ? Statuses.ROOT : Failures.of(() -> client.stat(name));
    }

    /** The folder above a name. */
    private static String parentOf(String name) {
        int slash = name.lastIndexOf('/');
        return slash <= 0 ? "/" : name.substring(0, slash);
    }

    /** Refuses a name that is, or is below, something other than a folder. */
    private void checkFolder(String name) throws IOException {
        FileInfo above = find(name);
        while (above == null) {
            name = parentOf(name);
            above = find(name);
        }
        if (!above.isFolder()) {
            throw new ParentNotDirectoryException(name + " is a file, and no folder");
        }
    }

    // ---- reading

    @Override
    public FSDataInputStream open(Path path, int bufferBytes) throws IOException {
        String name = nameOf(path);
        if (name.equals("/")) {
            throw new FileNotFoundException("/ is a folder, and no file");
        }
        return stream(Failures.of(() -> client.open(name)), bufferBytes);
    }

    private FSDataInputStream stream(EyasReader reader, int bufferBytes) throws IOException {
        statistics.incrementReadOps(1);
        int bytes = Math.max(bufferBytes, MIN_BUFFER_BYTES);
        return new FSDataInputStream(new EyasInputStream(reader, bytes, statistics, threads));
    }

    @Override
    protected PathHandle createPathHandle(FileStatus status, Options.HandleOpt... options) {
        if (!status.isFile()) {
            throw new IllegalArgumentException(status.getPath() + " is no file");
        }
        Options.HandleOpt.Data data =
                Options.HandleOpt.getOpt(Options.HandleOpt.Data.class, options)
                        .orElse(Options.HandleOpt.changed(false));
        Options.HandleOpt.Location location =
                Options.HandleOpt.getOpt(Options.HandleOpt.Location.class, options)
                        .orElse(Options.HandleOpt.moved(false));
        if (location.allowChange()) {
            throw new UnsupportedOperationException(
                    "eyas has no handles of files that may be renamed: use HandleOpt.path() or "
                            + "HandleOpt.exact()");
        }
        return new EyasPathHandle(
                nameOf(status.getPath()),
                data.allowChange(),
                status.getLen(),
                status.getModificationTime());
    }

    @Override
    public FSDataInputStream open(PathHandle handle, int bufferBytes) throws IOException {
        return stream(EyasPathHandle.of(handle).open(client), bufferBytes);
    }

    @Override
    public BlockLocation[] getFileBlockLocations(FileStatus file, long start, long count)
            throws IOException {
        if (file == null) {
            return null;
        }
        if (start < 0 || count < 0) {
            throw new IllegalArgumentException("a range of a file must not be negative");
        }
        if (!file.isFile() || file.getLen() <= start) {
            return new BlockLocation[0];
        }
        String name = nameOf(file.getPath());
        return statuses.locations(Failures.of(() -> client.places(name)), start, count);
    }

    // ---- writing

    @Override
    public FSDataOutputStream create(
            Path path,
            FsPermission permission,
            boolean overwrite,
            int bufferBytes,
            short replication,
            long blockBytes,
            Progressable progress)
            throws IOException {
        String name = nameOf(path);
        FileInfo present = find(name);
        if (present != null && present.isFolder()) {
            throw new FileAlreadyExistsException(name + " is a folder");
        }
        if (present == null) {
            checkFolder(parentOf(name));
        }
        WriteOptions options = new WriteOptions(null, blockBytes, replication, overwrite);
        EyasWriter writer = Failures.of(() -> client.create(name, options));
        int mode = permission.applyUMask(FsPermission.getUMask(getConf())).toShort();
        EyasOutputStream stream =
                new EyasOutputStream(
                        writer, () -> client.append(name), newFiles.add(name, mode), statistics);
        statistics.incrementWriteOps(1);
        return new FSDataOutputStream(stream, statistics);
    }

    @Override
    public FSDataOutputStream createNonRecursive(
            Path path,
            FsPermission permission,
            EnumSet<CreateFlag> flags,
            int bufferBytes,
            short replication,
            long blockBytes,
            Progressable progress)
            throws IOException {
        String parent = parentOf(nameOf(path));
        if (!look(parent).isFolder()) {
            throw new ParentNotDirectoryException(parent + " is a file, and no folder");
        }
        boolean overwrite = flags.contains(CreateFlag.OVERWRITE);
        return create(path, permission, overwrite, bufferBytes, replication, blockBytes, progress);
    }

    @Override
    public FSDataOutputStream append(Path path, int bufferBytes, Progressable progress)
            throws IOException {
        String name = nameOf(path);
        FileInfo info = look(name);
        EyasWriter writer = Failures.of(() -> client.append(name));
        EyasOutputStream stream =
                new EyasOutputStream(writer, () -> client.append(name), null, statistics);
        statistics.incrementWriteOps(1);
        return new FSDataOutputStream(stream, statistics, info.sizeBytes());
    }

    @Override
    public boolean truncate(Path path, long size) throws IOException {
        String name = nameOf(path);
        if (size < 0 || size > look(name).sizeBytes()) {
            throw new IllegalArgumentException(
                    "cannot truncate " + name + " to " + size + " bytes: it is shorter");
        }
        Failures.in(
                () -> {
                    try (EyasWriter writer = client.edit(name, false)) {
                        writer.setSize(size);
                        writer.publish();
                    }
                });
        return true;
    }

    // ---- names

    @Override
    public FileStatus getFileStatus(Path path) throws IOException {
        statistics.incrementReadOps(1);
        return statuses.of(look(nameOf(path)), makeQualified(path));
    }

    @Override
    public FileStatus[] listStatus(Path path) throws IOException {
        List<FileStatus> found = new ArrayList<>();
        for (RemoteIterator<FileStatus> entries = listStatusIterator(path); entries.hasNext(); ) {
            found.add(entries.next());
        }
        return found.toArray(new FileStatus[0]);
    }

    /** The entries of a folder of any size. */
    @Override
    public RemoteIterator<FileStatus> listStatusIterator(Path path) throws IOException {
        statistics.incrementReadOps(1);
        String name = nameOf(path);
        FileInfo info = look(name);
        if (!info.isFolder()) {
            return RemoteIterators.remoteIteratorFromSingleton(
                    statuses.of(info, makeQualified(path)));
        }
        return entries(name, false);
    }

    private RemoteIterator<FileStatus> entries(String folder, boolean isRecursive)
            throws IOException {
        EyasListing listing = Failures.of(() -> client.openListing(folder, isRecursive));
        return new Entries(listing, info -> statuses.of(info, makeQualified(Statuses.path(info))));
    }

    @Override
    public RemoteIterator<LocatedFileStatus> listFiles(Path path, boolean recursive)
            throws IOException {
        if (!recursive || !look(nameOf(path)).isFolder()) {
            return super.listFiles(path, recursive);
        }
        RemoteIterator<FileStatus> all = entries(nameOf(path), true);
        return RemoteIterators.mappingRemoteIterator(
                RemoteIterators.filteringRemoteIterator(all, FileStatus::isFile), this::located);
    }

    @Override
    protected RemoteIterator<LocatedFileStatus> listLocatedStatus(Path path, PathFilter filter)
            throws IOException {
        RemoteIterator<FileStatus> all = listStatusIterator(path);
        return RemoteIterators.mappingRemoteIterator(
                RemoteIterators.filteringRemoteIterator(
                        all, status -> filter.accept(status.getPath())),
                this::located);
    }

    private LocatedFileStatus located(FileStatus status) throws IOException {
        BlockLocation[] blocks = getFileBlockLocations(status, 0, status.getLen());
        return new LocatedFileStatus(Statuses.withBlockSize(status, blocks), blocks);
    }

    @Override
    public boolean mkdirs(Path path, FsPermission permission) throws IOException {
        String name = nameOf(path);
        FileInfo present = find(name);
        if (present != null) {
            if (present.isFolder()) {
                return true;
            }
            throw new FileAlreadyExistsException(name + " is a file");
        }
        checkFolder(parentOf(name));
        statistics.incrementWriteOps(1);
        FsPermission given = permission == null ? FsPermission.getDirDefault() : permission;
        int mode = given.applyUMask(FsPermission.getUMask(getConf())).toShort();
        Failures.in(
                () -> {
                    client.makeFolder(name);
                    client.setMode(name, mode);
                });
        return true;
    }

    /** As HDFS: false if there is no source, if the target exists, or if its folder does not. */
    @Override
    public boolean rename(Path source, Path target) throws IOException {
        String from = nameOf(source);
        String to = nameOf(target);
        FileInfo moved = find(from);
        FileInfo present = find(to);
        if (moved == null || from.equals("/")) {
            return false;
        }
        if (from.equals(to)) {
            return !moved.isFolder();
        }
        if (present != null && present.isFolder()) {
            to = (to.equals("/") ? "" : to) + from.substring(from.lastIndexOf('/'));
        } else if (present != null) {
            return false;
        } else {
            FileInfo above = find(parentOf(to));
            checkFolder(parentOf(to));
            if (above == null) {
                return false;
            }
        }
        if (from.equals(to) || to.startsWith(from + "/")) {
            return false;
        }
        statistics.incrementWriteOps(1);
        String name = to;
        try {
            Failures.in(() -> client.rename(from, name));
            return true;
        } catch (FileAlreadyExistsException | FileNotFoundException late) {
            return false;
        }
    }

    @Override
    @SuppressWarnings("deprecation") // FileContext uses it.
    protected void rename(Path source, Path target, Options.Rename... options) throws IOException {
        String from = nameOf(source);
        String to = nameOf(target);
        FileInfo moved = look(from);
        FileInfo above = look(parentOf(to));
        if (!above.isFolder()) {
            throw new ParentNotDirectoryException(above.path() + " is a file, and no folder");
        }
        FileInfo present = find(to);
        if (from.equals(to)) {
            throw new FileAlreadyExistsException("the source and the target are both " + from);
        }
        if (from.equals("/") || to.startsWith(from + "/")) {
            throw new IOException(from + " cannot be moved into itself: " + to);
        }
        if (present != null && present.isFolder() != moved.isFolder()) {
            throw new IOException(from + " and " + to + " are not both files, or both folders");
        }
        statistics.incrementWriteOps(1);
        if (List.of(options).contains(Options.Rename.OVERWRITE)) {
            Failures.in(() -> client.replace(from, to));
        } else {
            Failures.in(() -> client.rename(from, to));
        }
    }

    @Override
    public boolean delete(Path path, boolean recursive) throws IOException {
        String name = nameOf(path);
        FileInfo present = find(name);
        if (present == null) {
            return false;
        }
        statistics.incrementWriteOps(1);
        return new Removal(client, threads).remove(present, recursive);
    }

    @Override
    public ContentSummary getContentSummary(Path path) throws IOException {
        String name = nameOf(path);
        FileInfo info = look(name);
        ContentSummary.Builder summary = new ContentSummary.Builder();
        if (!info.isFolder()) {
            return summary.length(info.sizeBytes())
                    .fileCount(1)
                    .spaceConsumed(info.sizeBytes())
                    .build();
        }
        long bytes = 0;
        long files = 0;
        long folders = 1;
        for (RemoteIterator<FileStatus> all = entries(name, true); all.hasNext(); ) {
            FileStatus entry = all.next();
            bytes += entry.getLen();
            files += entry.isDirectory() ? 0 : 1;
            folders += entry.isDirectory() ? 1 : 0;
        }
        if (!name.equals("/")) {
            Quota quota = Failures.of(() -> client.quota(name));
            summary.quota(quota.files()).spaceQuota(quota.bytes());
        }
        return summary.length(bytes)
                .fileCount(files)
                .directoryCount(folders)
                .spaceConsumed(bytes)
                .build();
    }

    // ---- attributes

    @Override
    public void setPermission(Path path, FsPermission permission) throws IOException {
        Failures.in(() -> newFiles.setMode(nameOf(path), permission.toShort()));
    }

    @Override
    public void setOwner(Path path, String user, String group) throws IOException {
        int uid = user == null ? EyasClient.UNCHANGED : io.eyas.UserNames.uid(user);
        int gid = group == null ? EyasClient.UNCHANGED : io.eyas.UserNames.gid(group);
        Failures.in(() -> client.setOwner(nameOf(path), uid, gid));
    }

    /** Sets the time of the last write. eyas keeps no time of the last access. */
    @Override
    public void setTimes(Path path, long modifiedMs, long accessedMs) throws IOException {
        String name = nameOf(path);
        if (modifiedMs < 0) {
            look(name);
        } else {
            Failures.in(() -> client.setModified(name, Instant.ofEpochMilli(modifiedMs)));
        }
    }

    /** The replication of a file does not change. Whether it is already as wanted. */
    @Override
    public boolean setReplication(Path path, short replication) throws IOException {
        FileInfo info = find(nameOf(path));
        return info != null && info.isFile() && info.replication() == replication;
    }

    @Override
    public void setQuota(Path folder, long files, long bytes) throws IOException {
        String name = nameOf(folder);
        Failures.in(() -> client.setQuota(name, Math.max(bytes, -1), Math.max(files, -1)));
    }

    private static String attributeOf(String name) {
        if (!name.startsWith(ATTRIBUTE_NAMESPACE)) {
            throw new UnsupportedOperationException(
                    "eyas has extended attributes of the namespace user: " + name);
        }
        return name.substring(ATTRIBUTE_NAMESPACE.length());
    }

    @Override
    public void setXAttr(Path path, String name, byte[] value, EnumSet<XAttrSetFlag> flags)
            throws IOException {
        String attribute = attributeOf(name);
        boolean creates = flags.contains(XAttrSetFlag.CREATE);
        boolean replaces = flags.contains(XAttrSetFlag.REPLACE);
        AttributeCondition condition =
                creates && !replaces
                        ? AttributeCondition.NEW
                        : replaces && !creates
                                ? AttributeCondition.PRESENT
                                : AttributeCondition.ALWAYS;
        byte[] bytes = value == null ? new byte[0] : value;
        Failures.in(() -> client.setAttribute(nameOf(path), attribute, bytes, condition));
    }

    @Override
    public byte[] getXAttr(Path path, String name) throws IOException {
        String attribute = attributeOf(name);
        byte[] value = Failures.of(() -> client.attribute(nameOf(path), attribute));
        if (value == null) {
            throw new IOException(path + " has no attribute " + name);
        }
        return value;
    }

    @Override
    public Map<String, byte[]> getXAttrs(Path path) throws IOException {
        Map<String, byte[]> found = new LinkedHashMap<>();
        Failures.of(() -> client.attributes(nameOf(path)))
                .forEach((name, value) -> found.put(ATTRIBUTE_NAMESPACE + name, value));
        return found;
    }

    @Override
    public Map<String, byte[]> getXAttrs(Path path, List<String> names) throws IOException {
        Map<String, byte[]> all = getXAttrs(path);
        all.keySet().retainAll(names);
        return all;
    }

    @Override
    public List<String> listXAttrs(Path path) throws IOException {
        return new ArrayList<>(getXAttrs(path).keySet());
    }

    @Override
    public void removeXAttr(Path path, String name) throws IOException {
        String attribute = attributeOf(name);
        Failures.in(() -> client.removeAttribute(nameOf(path), attribute));
    }

    @Override
    public boolean hasPathCapability(Path path, String capability) throws IOException {
        String known =
                PathCapabilitiesSupport.validatePathCapabilityArgs(makeQualified(path), capability);
        return switch (known) {
            case CommonPathCapabilities.FS_APPEND,
                            CommonPathCapabilities.FS_PATHHANDLES,
                            CommonPathCapabilities.FS_PERMISSIONS,
                            CommonPathCapabilities.FS_TRUNCATE,
                            CommonPathCapabilities.FS_XATTRS ->
                    true;
            case CommonPathCapabilities.FS_SYMLINKS -> false;
            default -> super.hasPathCapability(path, capability);
        };
    }

    // ---- elastic blocks

    /** Opens a run over files of this file system. */
    public EyasRun openRun(Collection<Path> paths, RunOptions options) throws IOException {
        List<String> names = paths.stream().map(this::nameOf).toList();
        return Failures.of(() -> client.openRun(names, options));
    }

    /** Joins a run by its address. */
    public EyasRun joinRun(String address) throws IOException {
        return client.joinRun(address);
    }

    /**
     * Checks that a piece which does not end with a line is the last one of its file.
     *
     * @throws IOException if it is not: the file is cut into other records than lines
     */
    public void checkEnd(String name, long endBytes) throws IOException {
        if (look(name).sizeBytes() != endBytes) {
            throw new IOException(
                    name
                            + " is cut into records of another format than lines, or has changed:"
                            + " write it again as lines, or read it with TextInputFormat or"
                            + " spark.read.text");
        }
    }

    @Override
    public void close() throws IOException {
        super.close();
        if (threads != null) {
            threads.close();
        }
        if (client != null) {
            client.close();
        }
    }
}
