package io.eyas;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryNotEmptyException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.Path;
import java.nio.file.attribute.UserPrincipalNotFoundException;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;

/** Files of the cluster: names, content, attributes, places. */
class FilesTest {
    private static TestFolder folder;
    private static EyasClient client;

    @BeforeAll
    static void begin() throws IOException {
        folder = new TestFolder(FilesTest.class);
        client = folder.client;
    }

    @AfterAll
    static void end() throws IOException {
        folder.close();
    }

    private static byte[] content(int bytes) {
        byte[] content = new byte[bytes];
        new Random(bytes).nextBytes(content);
        return content;
    }

    @Test
    void contentComesBackThroughArraysAndBuffers() throws IOException {
        // Several chunks, and several parts of an array.
        byte[] content = content((5 << 20) + 17);
        WriteOptions options = new WriteOptions("whole", 1 << 20, 1, true);
        String path = folder.write("content", content, options);
        try (EyasReader reader = client.open(path)) {
            assertArrayEquals(content, reader.readAll());
            assertEquals(content.length, reader.info().sizeBytes());
            byte[] part = new byte[3_000_000];
            assertEquals(2_999_990, reader.read(1_000_001, part, 10, 2_999_990));
            byte[] expected = new byte[10 + 2_999_990];
            System.arraycopy(content, 1_000_001, expected, 10, 2_999_990);
            assertArrayEquals(expected, part);
            for (ByteBuffer buffer :
                    List.of(
                            ByteBuffer.allocate(2_000_000),
                            ByteBuffer.allocateDirect(2_000_000),
                            ByteBuffer.allocate(3_000_000).position(7).slice())) {
                buffer.position(5).limit(1_999_999);
                assertEquals(1_999_994, reader.read(123_457, buffer));
                assertEquals(1_999_999, buffer.position());
                buffer.position(5);
                byte[] from = Arrays.copyOfRange(content, 123_457, 123_457 + 1_999_994);
                assertEquals(ByteBuffer.wrap(from), buffer);
            }
            assertEquals(17, reader.read(5 << 20, part, 0, part.length));
            assertEquals(0, reader.read(content.length, part, 0, part.length));
            assertEquals(0, reader.read(Long.MAX_VALUE, part, 0, part.length));
            assertThrows(EOFException.class, () -> reader.readFully(5 << 20, part, 0, part.length));
        }
    }

    @Test
    void writersTakeArraysAndBuffers() throws IOException {
        byte[] content = content(3 << 20);
        try (EyasWriter writer = client.create(folder.of("buffers"))) {
            writer.write(content, 0, 1 << 20);
            writer.write(ByteBuffer.wrap(content, 1 << 20, 1 << 19));
            ByteBuffer direct = ByteBuffer.allocateDirect(1 << 20);
            direct.put(content, 3 << 19, 1 << 20).flip();
            writer.write(direct.asReadOnlyBuffer());
            assertEquals(0, direct.position());
            ByteBuffer rest = ByteBuffer.wrap(content, 5 << 19, 1 << 19).asReadOnlyBuffer();
            writer.write(rest);
            assertFalse(rest.hasRemaining());
            assertFalse(client.exists(folder.of("buffers")), "nothing appears before");
            writer.publish();
        }
        try (EyasReader reader = client.open(folder.of("buffers"))) {
            assertArrayEquals(content, reader.readAll());
        }
    }

    @Test
    void whatIsNotPublishedDoesNotAppear() throws IOException {
        try (EyasWriter writer = client.create(folder.of("discarded"))) {
            writer.write(content(100));
        }
        assertFalse(client.exists(folder.of("discarded")));
    }

    @Test
    void filesAreAppendedToAndChanged() throws IOException {
        String path = folder.write("changed", "hello");
        try (EyasWriter writer = client.append(path)) {
            writer.write(" world".getBytes(StandardCharsets.UTF_8));
            writer.publish();
        }
        assertEquals("hello world", folder.read("changed"));
        try (EyasWriter writer = client.edit(path, false)) {
            writer.writeAt(0, "J".getBytes(StandardCharsets.UTF_8), 0, 1);
            writer.writeAt(6, ByteBuffer.wrap("W".getBytes(StandardCharsets.UTF_8)));
            ByteBuffer direct = ByteBuffer.allocateDirect(1).put((byte) '!').flip();
            writer.writeAt(11, direct);
            writer.publish();
        }
        assertEquals("Jello World!", folder.read("changed"));
        try (EyasWriter first = client.edit(path, false);
                EyasWriter second = client.edit(path, false)) {
            first.setSize(5);
            first.publish();
            second.setSize(1);
            EyasException changed = assertThrows(EyasException.class, second::publish);
            assertEquals(EyasStatus.CHANGED, changed.status());
        }
        assertEquals("Jello", folder.read("changed"));
        assertThrows(NoSuchFileException.class, () -> client.edit(folder.of("none"), false));
        assertThrows(NoSuchFileException.class, () -> client.append(folder.of("none")));
        EyasException sequence =
                assertThrows(
                        EyasException.class,
                        () -> {
                            try (EyasWriter writer = client.create(folder.of("sequence"))) {
                                writer.writeAt(0, new byte[1], 0, 1);
                            }
                        });
        assertEquals(EyasStatus.INVALID, sequence.status());
    }

    @Test
    void aWriterThatIsNotPublishedInTimeIsPublishedAgain() throws IOException {
        String path = folder.write("slow", "a");
        try (EyasClient own = EyasClient.connect();
                EyasWriter writer = own.edit(path, false)) {
            writer.writeAt(0, new byte[] {'b'}, 0, 1);
            own.setTimeout(Duration.ZERO);
            EyasException late = assertThrows(EyasException.class, writer::publish);
            assertEquals(EyasStatus.TIMED_OUT, late.status());
            own.setTimeout(null);
            writer.publish();
        }
        assertEquals("b", folder.read("slow"));
    }

    @Test
    void namesAreListedRenamedAndRemoved() throws IOException {
        client.makeFolder(folder.of("names/deep"));
        folder.write("names/a", "1");
        folder.write("names/deep/\u00e4\ud83d\udc0b", "22");
        List<String> names = new ArrayList<>();
        try (EyasListing listing = client.openListing(folder.of("names"), true)) {
            for (FileInfo next = listing.next(); next != null; next = listing.next()) {
                names.add(next.path().substring(folder.path.length()) + " " + next.sizeBytes());
            }
            assertNull(listing.next());
        }
        assertEquals(
                List.of("/names/a 1", "/names/deep 0", "/names/deep/\u00e4\ud83d\udc0b 2"), names);
        assertEquals(2, client.list(folder.of("names")).size());
        assertTrue(client.stat(folder.of("names/deep")).isFolder());
        assertTrue(client.stat(folder.of("names/a")).isFile());

        client.rename(folder.of("names/a"), folder.of("names/b"));
        assertEquals("1", folder.read("names/b"));
        folder.write("names/c", "3");
        FileAlreadyExistsException taken =
                assertThrows(
                        FileAlreadyExistsException.class,
                        () -> client.rename(folder.of("names/b"), folder.of("names/c")));
        assertEquals(folder.of("names/c"), taken.getFile());
        client.replace(folder.of("names/b"), folder.of("names/c"));
        assertEquals("1", folder.read("names/c"));
        assertThrows(
                DirectoryNotEmptyException.class, () -> client.removeFolder(folder.of("names")));
        assertThrows(
                NotDirectoryException.class, () -> client.makeFolder(folder.of("names/c/below")));
        client.remove(folder.of("names/c"));
        NoSuchFileException missing =
                assertThrows(NoSuchFileException.class, () -> client.stat(folder.of("names/c")));
        assertTrue(missing.getMessage().contains("names/c"), missing.getMessage());
        assertNotNull(missing.getReason());
        EyasException isFolder =
                assertThrows(EyasException.class, () -> client.open(folder.of("names")));
        assertEquals(EyasStatus.IS_FOLDER, isFolder.status());
    }

    @Test
    void namesThatAreNotUtf8AreRefusedAndShown() {
        InvalidPathException half =
                assertThrows(InvalidPathException.class, () -> client.stat("/half\ud800pair"));
        assertTrue(half.getMessage().contains("/half\\ud800pair"), half.getMessage());
        InvalidPathException nul =
                assertThrows(InvalidPathException.class, () -> client.stat("/nul\0"));
        assertTrue(nul.getMessage().contains("/nul\\u0000"), nul.getMessage());
        EyasException relative = assertThrows(EyasException.class, () -> client.stat("relative"));
        assertEquals(EyasStatus.INVALID, relative.status());
        assertTrue(relative.getMessage().contains("`relative`"), relative.getMessage());
    }

    @Test
    void attributesOwnersLinksAndQuotasAreKept() throws IOException {
        String path = folder.write("attributes", "x");
        client.setMode(path, 0640);
        client.setOwner(path, 7, EyasClient.UNCHANGED);
        client.setModified(path, Instant.ofEpochSecond(1_000_000_000, 5));
        FileInfo info = client.stat(path);
        assertEquals(0640, info.mode());
        assertEquals(7, info.uid());
        assertEquals(Instant.ofEpochSecond(1_000_000_000, 5), info.modified());
        assertTrue(info.chunkBytes() > 0);
        assertTrue(info.replication() > 0);

        client.setAttribute(path, "colour", new byte[] {1, 0, 2}, AttributeCondition.NEW);
        assertThrows(
                FileAlreadyExistsException.class,
                () -> client.setAttribute(path, "colour", new byte[1], AttributeCondition.NEW));
        assertArrayEquals(new byte[] {1, 0, 2}, client.attribute(path, "colour"));
        assertNull(client.attribute(path, "none"));
        assertEquals(List.of("colour"), List.copyOf(client.attributes(path).keySet()));
        client.removeAttribute(path, "colour");
        assertTrue(client.attributes(path).isEmpty());

        client.makeSymbolicLink(folder.of("link"), "../anywhere");
        assertEquals("../anywhere", client.readSymbolicLink(folder.of("link")));
        assertEquals(FileKind.SYMBOLIC_LINK, client.stat(folder.of("link")).kind());

        client.makeFolder(folder.of("limited"));
        client.setQuota(folder.of("limited"), 10, Quota.NO_LIMIT);
        assertEquals(new Quota(10, Quota.NO_LIMIT, 0, 0), client.quota(folder.of("limited")));
        EyasException full =
                assertThrows(EyasException.class, () -> folder.write("limited/large", content(11)));
        assertEquals(EyasStatus.QUOTA, full.status());
    }

    @Test
    void chunksHavePlaces() throws IOException {
        folder.write("places", content(3000), new WriteOptions("fixed:1", 1024, 1, true));
        List<BlockPlace> places = client.places(folder.of("places"));
        assertEquals(List.of(0L, 1024L, 2048L), places.stream().map(BlockPlace::offset).toList());
        assertEquals(
                List.of(1024L, 1024L, 952L), places.stream().map(BlockPlace::sizeBytes).toList());
        for (BlockPlace place : places) {
            assertNotNull(place.node());
            assertNotNull(place.host());
        }
        assertThrows(NoSuchFileException.class, () -> client.places(folder.of("none")));
    }

    @Test
    void aFileOfThisMachineIsUploaded(@TempDir Path temporary) throws IOException {
        byte[] content = content(2_500_000);
        Path file = Files.write(temporary.resolve("file"), content);
        client.upload(file, folder.of("uploaded"), WriteOptions.NEW);
        try (EyasReader reader = client.open(folder.of("uploaded"))) {
            assertArrayEquals(content, reader.readAll());
        }
        assertThrows(
                FileAlreadyExistsException.class,
                () -> client.upload(file, folder.of("uploaded"), WriteOptions.NEW));
    }

    @Test
    void usersAndGroupsHaveNames() throws IOException {
        assertEquals("root", UserNames.user(0));
        assertEquals("root", UserNames.group(0));
        assertEquals(0, UserNames.uid("root"));
        assertEquals(0, UserNames.gid("root"));
        assertEquals("4000000000", UserNames.user((int) 4_000_000_000L));
        assertEquals((int) 4_000_000_000L, UserNames.gid("4000000000"));
        assertThrows(UserPrincipalNotFoundException.class, () -> UserNames.uid("no such user"));
    }

    @Test
    void anUnknownClusterSaysWhatIsWrong() {
        IOException unknown =
                assertThrows(IOException.class, () -> EyasClient.connect("no-such-cluster"));
        assertTrue(unknown.getMessage().contains("no-such-cluster"), unknown.getMessage());
        IOException access =
                assertThrows(
                        IOException.class,
                        () -> EyasClient.connectWithAccess(Path.of("/no/such/file")));
        assertTrue(access.getMessage().contains("/no/such/file"), access.getMessage());
    }
}
