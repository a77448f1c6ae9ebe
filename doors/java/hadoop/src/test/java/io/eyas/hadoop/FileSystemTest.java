package io.eyas.hadoop;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.ContentSummary;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FsShell;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.XAttrSetFlag;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.ToolRunner;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.PrintStream;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import java.util.Random;

/** What Hadoop's own suites do not look at, and the client jars that users have. */
class FileSystemTest {
    private static final URI CLUSTER = URI.create("eyas://default/");
    private static final Path FOLDER = new Path("/tests/hadoop");

    private static Configuration configuration;
    private static FileSystem files;

    @BeforeAll
    static void begin() throws IOException {
        configuration = new Configuration();
        configuration.set("fs.AbstractFileSystem.eyas.impl", EyasFs.class.getName());
        files = FileSystem.get(CLUSTER, configuration);
        files.delete(FOLDER, true);
        files.mkdirs(FOLDER);
    }

    @AfterAll
    static void end() throws IOException {
        files.delete(FOLDER, true);
        files.close();
    }

    private static Path of(String name) {
        return new Path(FOLDER, name);
    }

    private static byte[] content(int bytes) {
        byte[] content = new byte[bytes];
        new Random(bytes).nextBytes(content);
        return content;
    }

    private static Path write(String name, byte[] content) throws IOException {
        try (FSDataOutputStream stream = files.create(of(name), true)) {
            stream.write(content);
        }
        return of(name);
    }

    private static byte[] read(Path path) throws IOException {
        byte[] content = new byte[(int) files.getFileStatus(path).getLen()];
        try (FSDataInputStream stream = files.open(path)) {
            stream.readFully(0, content);
            stream.seek(content.length);
            assertEquals(-1, stream.read());
            assertEquals(content.length, stream.getPos());
        }
        return content;
    }

    @Test
    void theServiceLoaderFindsIt() throws IOException {
        assertInstanceOf(EyasFileSystem.class, files);
        assertEquals("eyas://default", files.getUri().toString());
        assertNull(files.getCanonicalServiceName());
        assertEquals(0, files.addDelegationTokens("any", null).length);
    }

    @Test
    void blocksAreWhereTheChunksAre() throws IOException {
        byte[] content = content(2_500_000);
        try (FSDataOutputStream stream =
                files.create(of("blocks"), true, 4096, (short) 2, 1 << 20)) {
            stream.write(content);
        }
        FileStatus status = files.getFileStatus(of("blocks"));
        assertEquals(1 << 20, status.getBlockSize());
        assertEquals(2, status.getReplication());
        BlockLocation[] all = files.getFileBlockLocations(status, 0, status.getLen());
        long next = 0;
        for (BlockLocation block : all) {
            assertEquals(next, block.getOffset());
            next += block.getLength();
            assertEquals(2, block.getNames().length, "two nodes have it");
            assertEquals(1, block.getHosts().length, "both are on this host");
        }
        assertEquals(content.length, next);
        assertTrue(all.length > 1);
        BlockLocation[] last = files.getFileBlockLocations(status, next - 1, 10);
        assertEquals(all[all.length - 1].getOffset(), last[0].getOffset());
        assertEquals(1, last.length);
        assertEquals(0, files.getFileBlockLocations(status, next, 10).length);
        assertArrayEquals(content, read(of("blocks")));
    }

    @Test
    void listsWithLocationsHaveTheSizeOfTheBlocks() throws IOException {
        try (FSDataOutputStream stream =
                files.create(of("listed/file"), true, 4096, (short) 2, 1 << 20)) {
            stream.write(content(2_500_000));
        }
        RemoteIterator<LocatedFileStatus> listed = files.listLocatedStatus(of("listed"));
        LocatedFileStatus file = listed.next();
        assertEquals(files.makeQualified(of("listed/file")), file.getPath());
        assertEquals(1 << 20, file.getBlockSize());
        assertEquals(3, file.getBlockLocations().length);
        assertFalse(listed.hasNext());
        assertEquals(1 << 20, files.listFiles(of("listed"), true).next().getBlockSize());
        assertThrows(FileNotFoundException.class, () -> files.listLocatedStatus(of("missing")));
    }

    @Test
    void aFlushShowsWhatWasWritten() throws IOException {
        byte[] first = "first".getBytes(StandardCharsets.UTF_8);
        byte[] second = "second".getBytes(StandardCharsets.UTF_8);
        try (FSDataOutputStream stream = files.create(of("flushed"), true)) {
            stream.write(first);
            assertFalse(files.exists(of("flushed")), "it appears with the flush");
            stream.hflush();
            assertArrayEquals(first, read(of("flushed")));
            stream.write(second);
            stream.hsync();
            assertEquals(first.length + second.length, stream.getPos());
            assertEquals("firstsecond", new String(read(of("flushed"))));
            stream.write(first);
        }
        assertEquals("firstsecondfirst", new String(read(of("flushed"))));
    }

    @Test
    void rangesAreReadIntoDirectBuffersAndOthers() throws Exception {
        byte[] content = content(1_000_000);
        Path path = write("ranges", content);
        List<FileRange> ranges =
                List.of(
                        FileRange.createFileRange(900_000, 100_000),
                        FileRange.createFileRange(0, 10),
                        FileRange.createFileRange(500, 70_000));
        try (FSDataInputStream stream = files.open(path)) {
            stream.readVectored(ranges, ByteBuffer::allocateDirect);
            for (FileRange range : ranges) {
                int start = (int) range.getOffset();
                byte[] expected = Arrays.copyOfRange(content, start, start + range.getLength());
                assertEquals(ByteBuffer.wrap(expected), range.getData().get());
            }
            assertEquals(0, stream.getPos());
            ByteBuffer direct = ByteBuffer.allocateDirect(1000);
            assertEquals(1000, stream.read(direct));
            assertEquals(1000, stream.getPos());
            assertEquals(content[1000] & 0xff, stream.read());
        }
    }

    @Test
    void manyEntriesAreListedAndRemoved() throws IOException {
        int count = 700;
        for (int number = 0; number < count; number++) {
            files.create(of("many/" + number % 7 + "/" + number)).close();
        }
        assertEquals(7, files.listStatus(of("many")).length);
        int found = 0;
        RemoteIterator<LocatedFileStatus> all = files.listFiles(of("many"), true);
        while (all.hasNext()) {
            assertTrue(all.next().isFile());
            found++;
        }
        assertEquals(count, found);
        ContentSummary summary = files.getContentSummary(of("many"));
        assertEquals(count, summary.getFileCount());
        assertEquals(8, summary.getDirectoryCount());
        assertThrows(IOException.class, () -> files.delete(of("many"), false));
        assertTrue(files.delete(of("many"), true));
        assertFalse(files.exists(of("many")));
    }

    @Test
    void attributesOwnersQuotasAndSizesChange() throws IOException {
        Path path = write("attributes", content(1000));
        files.setXAttr(path, "user.colour", new byte[] {1}, EnumSet.of(XAttrSetFlag.CREATE));
        assertThrows(
                IOException.class,
                () -> files.setXAttr(path, "user.colour", null, EnumSet.of(XAttrSetFlag.CREATE)));
        assertArrayEquals(new byte[] {1}, files.getXAttr(path, "user.colour"));
        assertEquals(List.of("user.colour"), files.listXAttrs(path));
        assertThrows(
                UnsupportedOperationException.class, () -> files.getXAttr(path, "trusted.colour"));
        files.removeXAttr(path, "user.colour");
        assertTrue(files.listXAttrs(path).isEmpty());

        files.setPermission(path, new FsPermission((short) 0640));
        files.setOwner(path, "root", "daemon");
        files.setTimes(path, 1_000_000_000_123L, -1);
        FileStatus status = files.getFileStatus(path);
        assertEquals("rw-r-----", status.getPermission().toString());
        assertEquals("root", status.getOwner());
        assertEquals("daemon", status.getGroup());
        assertEquals(1_000_000_000_123L, status.getModificationTime());

        assertTrue(files.truncate(path, 10));
        assertArrayEquals(Arrays.copyOf(content(1000), 10), read(path));
        files.mkdirs(of("limited"), new FsPermission((short) 0700));
        assertEquals("rwx------", files.getFileStatus(of("limited")).getPermission().toString());
        files.setQuota(of("limited"), 1, Long.MAX_VALUE);
        files.create(of("limited/one")).close();
        assertThrows(IOException.class, () -> files.create(of("limited/two")).close());
        assertEquals(1, files.getContentSummary(of("limited")).getQuota());
    }

    @Test
    void aFileAppearsWithThePermissionsThatItGotWhileItWasWritten() throws IOException {
        Path path = of("staged");
        // As JobSplitWriter does.
        try (FSDataOutputStream stream =
                FileSystem.create(files, path, new FsPermission((short) 0600))) {
            assertFalse(files.exists(path));
            assertFalse(files.setReplication(path, (short) 10));
            stream.write(content(10));
            stream.hflush();
            assertEquals("rw-------", files.getFileStatus(path).getPermission().toString());
            files.setPermission(path, new FsPermission((short) 0640));
        }
        assertEquals("rw-r-----", files.getFileStatus(path).getPermission().toString());
        assertThrows(
                FileNotFoundException.class,
                () -> files.setPermission(of("none"), new FsPermission((short) 0600)));
    }

    @Test
    void whatThereIsNotIsRefusedByName() throws IOException {
        Path path = write("refused", content(1));
        for (org.junit.jupiter.api.function.Executable refused :
                List.<org.junit.jupiter.api.function.Executable>of(
                        () -> files.concat(path, new Path[] {path}),
                        () -> files.getAclStatus(path),
                        () -> files.createSnapshot(FOLDER),
                        () -> files.getPathHandle(files.getFileStatus(path), moved()),
                        () -> files.createSymlink(path, of("link"), false))) {
            UnsupportedOperationException failure =
                    assertThrows(UnsupportedOperationException.class, refused);
            assertFalse(failure.getMessage().isEmpty());
        }
        FileNotFoundException missing =
                assertThrows(FileNotFoundException.class, () -> files.open(of("none")));
        assertTrue(missing.getMessage().contains("/tests/hadoop/none"), missing.getMessage());
    }

    private static Options.HandleOpt[] moved() {
        return new Options.HandleOpt[] {
            Options.HandleOpt.changed(true), Options.HandleOpt.moved(true)
        };
    }

    @Test
    void aFileContextReplacesInOneStep() throws Exception {
        FileContext context = FileContext.getFileContext(CLUSTER, configuration);
        Path one = write("one", content(10));
        Path two = write("two", content(20));
        assertThrows(IOException.class, () -> context.rename(one, two));
        context.rename(one, two, Options.Rename.OVERWRITE);
        assertArrayEquals(content(10), read(two));
        assertFalse(files.exists(one));
        EnumSet<CreateFlag> flags = EnumSet.of(CreateFlag.CREATE, CreateFlag.OVERWRITE);
        try (FSDataOutputStream stream = context.create(one, flags)) {
            stream.write(content(5));
        }
        assertArrayEquals(content(5), read(one));
    }

    /** What a command of the shell prints. */
    private static String shell(int code, String... words) throws Exception {
        PrintStream before = System.out;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        System.setOut(new PrintStream(printed, true));
        try {
            assertEquals(code, ToolRunner.run(new FsShell(configuration), words), words[0]);
        } finally {
            System.setOut(before);
        }
        return printed.toString();
    }

    @Test
    void commandsOfTheShellWork(@TempDir java.nio.file.Path temporary) throws Exception {
        java.nio.file.Path local = Files.writeString(temporary.resolve("local"), "some text\n");
        String folder = "eyas://default/tests/hadoop/shell";
        shell(0, "-mkdir", "-p", folder + "/a/b");
        shell(0, "-put", local.toString(), folder + "/a/text");
        shell(0, "-appendToFile", local.toString(), folder + "/a/text");
        assertEquals("some text\nsome text\n", shell(0, "-cat", folder + "/a/text"));
        shell(0, "-cp", folder + "/a/text", folder + "/a/b/copy");
        shell(0, "-mv", folder + "/a/b/copy", folder + "/moved");
        shell(0, "-chmod", "600", folder + "/moved");
        String listed = shell(0, "-ls", "-R", folder);
        assertTrue(listed.contains("-rw-------"), listed);
        assertTrue(listed.contains(folder + "/moved"), listed);
        assertEquals("20", shell(0, "-du", "-s", folder + "/moved").split("\\s+")[0]);
        assertTrue(
                shell(0, "-count", folder).contains("           40"), shell(0, "-count", folder));
        shell(0, "-truncate", "-w", "4", folder + "/moved");
        assertEquals("some", shell(0, "-cat", folder + "/moved"));
        shell(0, "-setfattr", "-n", "user.colour", "-v", "red", folder + "/moved");
        assertTrue(shell(0, "-getfattr", "-d", folder + "/moved").contains("user.colour=\"red\""));
        shell(0, "-get", folder + "/a/text", temporary.resolve("back").toString());
        assertEquals("some text\nsome text\n", Files.readString(temporary.resolve("back")));
        shell(0, "-test", "-d", folder);
        shell(0, "-touchz", folder + "/empty");
        shell(0, "-rm", "-r", "-skipTrash", folder);
        shell(1, "-ls", folder);
    }
}
