package io.eyas;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Stream;

/** The native part: once in each class loader, from the jar or from a path. */
class LoadingTest {
    private static final String PATH = "eyas.library.path";
    private static final String RESOURCE = "/io/eyas/native/linux-x86-64/libeyas_jni.so";

    /** Connects within a class loader of its own, and lists the root. */
    private static Class<?> connect() throws Exception {
        URL classes = EyasClient.class.getProtectionDomain().getCodeSource().getLocation();
        try (URLClassLoader loader = new URLClassLoader(new URL[] {classes}, null)) {
            Class<?> type = loader.loadClass("io.eyas.EyasClient");
            try (AutoCloseable client = (AutoCloseable) type.getMethod("connect").invoke(null)) {
                type.getMethod("list", String.class).invoke(client, "/");
            }
            return type;
        } catch (InvocationTargetException failure) {
            if (failure.getCause() instanceof Error error) {
                throw error;
            }
            throw failure;
        }
    }

    @Test
    void eachClassLoaderHasItsOwn() throws Exception {
        assertNotSame(connect(), connect());
        // The collector may unload what is no longer used; threads of it may still run.
        System.gc();
        connect();
    }

    @Test
    void nothingStaysInTheTemporaryFolder() throws Exception {
        connect();
        try (Stream<Path> left = Files.list(Path.of(System.getProperty("java.io.tmpdir")))) {
            assertEquals(0, left.filter(file -> file.toString().contains("libeyas_jni")).count());
        }
    }

    @Test
    void aPropertyNamesTheLibrary(@TempDir Path folder) throws Exception {
        Path library = folder.resolve("own.so");
        try (InputStream resource = LoadingTest.class.getResourceAsStream(RESOURCE)) {
            Files.copy(resource, library);
        }
        try {
            System.setProperty(PATH, library.toString());
            connect();
            System.setProperty(PATH, folder.resolve("none.so").toString());
            UnsatisfiedLinkError missing =
                    assertThrows(UnsatisfiedLinkError.class, LoadingTest::connect);
            assertTrue(missing.getMessage().contains("none.so"), missing.getMessage());
        } finally {
            System.clearProperty(PATH);
        }
    }

    @Test
    void otherMachinesAndFullFoldersAreExplained() {
        String machine = System.getProperty("os.arch");
        try {
            System.setProperty("os.arch", "riscv64");
            UnsatisfiedLinkError other =
                    assertThrows(UnsatisfiedLinkError.class, LoadingTest::connect);
            assertTrue(other.getMessage().contains("Linux riscv64"), other.getMessage());
            assertTrue(other.getMessage().contains(PATH), other.getMessage());
        } finally {
            System.setProperty("os.arch", machine);
        }
    }

    @Test
    void statusesAreThoseOfTheLibrary() {
        assertEquals(EyasStatus.ATTRIBUTES_FULL, EyasStatus.of(21));
        assertEquals(EyasStatus.UNKNOWN, EyasStatus.of(22));
        assertEquals(EyasStatus.UNKNOWN, EyasStatus.of(-1));
        IOException failure = Failures.of(1000, "why".getBytes(), "/a".getBytes());
        assertEquals(EyasStatus.UNKNOWN, assertInstanceOf(EyasException.class, failure).status());
    }
}
