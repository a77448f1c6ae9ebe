package io.eyas.hadoop;

import io.eyas.BlockPlace;
import io.eyas.FileInfo;
import io.eyas.FileKind;
import io.eyas.UserNames;

import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** What eyas knows of files, as Hadoop has it. Names of users and hosts are looked up once. */
final class Statuses {
    /** The root, of which eyas keeps no attributes. */
    static final FileInfo ROOT =
            new FileInfo("/", FileKind.FOLDER, 0, Instant.EPOCH, Instant.EPOCH, 0755, 0, 0, 0, 0);

    private final long defaultBlockBytes;
    private final int defaultReplication;
    private final Map<Integer, String> users = new ConcurrentHashMap<>();
    private final Map<Integer, String> groups = new ConcurrentHashMap<>();
    private final Map<String, String> hosts = new ConcurrentHashMap<>();

    Statuses(long defaultBlockBytes, int defaultReplication) {
        this.defaultBlockBytes = defaultBlockBytes;
        this.defaultReplication = defaultReplication;
    }

    /** The path of an entry, as it is: without what a URI would make of its characters. */
    static Path path(FileInfo info) {
        return new Path(null, null, info.path());
    }

    FileStatus of(FileInfo info, Path path) {
        boolean isFile = info.isFile();
        // An entry of a list has no numbers of its own.
        long blockBytes = info.chunkBytes() == 0 ? defaultBlockBytes : info.chunkBytes();
        int replication = info.replication() == 0 ? defaultReplication : info.replication();
        long modifiedMs = info.modified().toEpochMilli();
        return new FileStatus(
                info.isFolder() ? 0 : info.sizeBytes(),
                info.isFolder(),
                isFile ? replication : 0,
                isFile ? blockBytes : 0,
                modifiedMs,
                modifiedMs,
                new FsPermission((short) (info.mode() & 01777)),
                users.computeIfAbsent(info.uid(), UserNames::user),
                groups.computeIfAbsent(info.gid(), UserNames::group),
                null,
                path);
    }

    /**
     * A file with the size of its blocks, which an entry of a list does not have. The blocks of a
     * file of records differ a little, so it is the size of the largest one. One block says nothing
     * of the size of further ones.
     */
    static FileStatus withBlockSize(FileStatus status, BlockLocation[] blocks) {
        if (blocks.length < 2) {
            return status;
        }
        long largest = Arrays.stream(blocks).mapToLong(BlockLocation::getLength).max().orElse(0);
        return new FileStatus(
                status.getLen(),
                false,
                status.getReplication(),
                largest,
                status.getModificationTime(),
                status.getAccessTime(),
                status.getPermission(),
                status.getOwner(),
                status.getGroup(),
                null,
                status.getPath());
    }

    /** The chunks that have bytes of a range, with the hosts that have them. */
    BlockLocation[] locations(List<BlockPlace> places, long start, long count) {
        List<BlockLocation> found = new ArrayList<>();
        for (int first = 0, next; first < places.size(); first = next) {
            BlockPlace chunk = places.get(first);
            List<String> addresses = new ArrayList<>();
            for (next = first; next < places.size(); next++) {
                if (places.get(next).offset() != chunk.offset()) {
                    break;
                }
                if (places.get(next).host() != null) {
                    addresses.add(places.get(next).host());
                }
            }
            boolean isIn =
                    chunk.offset() - start < count && chunk.offset() + chunk.sizeBytes() > start;
            if (isIn) {
                found.add(location(chunk, addresses));
            }
        }
        return found.toArray(new BlockLocation[0]);
    }

    private BlockLocation location(BlockPlace chunk, List<String> addresses) {
        String[] names = addresses.toArray(new String[0]);
        String[] its =
                addresses.stream()
                        .map(address -> hosts.computeIfAbsent(address, Statuses::hostOf))
                        .distinct()
                        .toArray(String[]::new);
        return new BlockLocation(names, its, chunk.offset(), chunk.sizeBytes());
    }

    /** The name by which schedulers know a host; its address if it has none. */
    private static String hostOf(String address) {
        try {
            return InetAddress.getByName(address).getHostName();
        } catch (UnknownHostException unknown) {
            return address;
        }
    }
}
