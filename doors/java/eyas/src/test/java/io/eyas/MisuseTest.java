package io.eyas;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicReference;

/**
 * No misuse of this package ends the process: each call throws an exception. The tests call every
 * method from many threads, after its object is closed, and with null, negative and huge values.
 */
class MisuseTest {
    private static final int THREADS = 8;
    private static final int CALLS = 1500;

    /** Values for each type of a parameter. None of them lets a call wait for long. */
    private static final Map<Class<?>, List<?>> VALUES =
            Map.ofEntries(
                    Map.entry(long.class, List.of(0L, 1L, 5L, -1L, Long.MAX_VALUE, Long.MIN_VALUE)),
                    Map.entry(int.class, List.of(0, 1, 5, -1, Integer.MAX_VALUE, 1 << 31)),
                    Map.entry(boolean.class, List.of(true, false)),
                    Map.entry(
                            String.class,
                            Arrays.asList(
                                    null,
                                    "",
                                    "relative",
                                    "/tests/MisuseTest/a",
                                    "/tests/MisuseTest/b",
                                    "eyas:///tests/MisuseTest/c/d",
                                    "/tests/MisuseTest",
                                    "/tests/MisuseTest/../x",
                                    "/nul\0",
                                    "/half\ud800",
                                    "/" + "x".repeat(5000))),
                    Map.entry(byte[].class, Arrays.asList(null, new byte[0], new byte[10000])),
                    Map.entry(
                            Duration.class,
                            List.of(Duration.ZERO, Duration.ofMillis(3), Duration.ofMillis(-3))),
                    Map.entry(
                            Instant.class,
                            Arrays.asList(null, Instant.MIN, Instant.MAX, Instant.EPOCH)),
                    Map.entry(Path.class, Arrays.asList(null, Path.of(""), Path.of("/dev/null"))),
                    Map.entry(
                            Collection.class,
                            Arrays.asList(
                                    null,
                                    List.of(),
                                    Arrays.asList("/tests/MisuseTest/a", null),
                                    List.of("/tests/MisuseTest/lines"))),
                    Map.entry(
                            AttributeCondition.class,
                            Arrays.asList(null, AttributeCondition.NEW, AttributeCondition.ALWAYS)),
                    Map.entry(
                            WriteOptions.class,
                            Arrays.asList(
                                    null,
                                    WriteOptions.NEW,
                                    WriteOptions.REPLACE,
                                    new WriteOptions("nothing", 1, 1, true),
                                    new WriteOptions("fixed:0", Long.MAX_VALUE, 1, true),
                                    new WriteOptions(null, 1, Integer.MAX_VALUE, true))));

    private static TestFolder folder;

    @BeforeAll
    static void begin() throws IOException {
        folder = new TestFolder(MisuseTest.class);
        folder.write("lines", "one\ntwo\n");
    }

    @AfterAll
    static void end() throws IOException {
        // Some call may have set a quota.
        folder.client.setQuota(folder.path, Quota.NO_LIMIT, Quota.NO_LIMIT);
        folder.close();
    }

    /** One object of each kind. */
    private static List<Handle> everything(EyasClient client) throws IOException {
        EyasRun run = client.openRun(List.of(folder.of("lines")), 1, null);
        return new ArrayList<>(
                List.of(
                        client.open(folder.of("lines")),
                        client.create(folder.of("new"), WriteOptions.REPLACE),
                        client.append(folder.of("lines")),
                        client.edit(folder.of("lines"), false),
                        client.openListing(folder.path, true),
                        run.begin(),
                        run,
                        client));
    }

    private static List<Method> methods(Class<?> type) {
        List<Method> methods = new ArrayList<>();
        for (Method method : type.getDeclaredMethods()) {
            int modifiers = method.getModifiers();
            if (Modifier.isPublic(modifiers) && !Modifier.isStatic(modifiers)) {
                methods.add(method);
            }
        }
        return methods;
    }

    private static Object value(Class<?> type, Random random) {
        if (type == ByteBuffer.class) {
            return switch (random.nextInt(5)) {
                case 0 -> null;
                case 1 -> ByteBuffer.allocate(20).position(3);
                case 2 -> ByteBuffer.allocateDirect(20000).position(3);
                case 3 -> ByteBuffer.allocateDirect(20).asReadOnlyBuffer();
                default -> ByteBuffer.allocate(20).asReadOnlyBuffer();
            };
        }
        List<?> values = VALUES.get(type);
        return values.get(random.nextInt(values.size()));
    }

    /** Calls a method. Returns what went wrong, if it is no failure that a program may see. */
    private static Throwable call(Handle handle, Method method, Random random) {
        Object[] values =
                Arrays.stream(method.getParameterTypes())
                        .map(type -> value(type, random))
                        .toArray();
        try {
            Object result = method.invoke(handle, values);
            if (result instanceof Handle made && random.nextBoolean()) {
                made.close(); // The others are left to the collector.
            }
            return null;
        } catch (InvocationTargetException failure) {
            Throwable cause = failure.getCause();
            boolean isExpected =
                    cause instanceof IOException
                            || cause instanceof NullPointerException
                            || cause instanceof IndexOutOfBoundsException
                            || cause instanceof IllegalArgumentException;
            return isExpected ? null : new AssertionError(method + Arrays.toString(values), cause);
        } catch (IllegalAccessException impossible) {
            return impossible;
        }
    }

    /** Threads that call anything, while objects are closed under their hands. */
    private static void storm(long seed, boolean isClosed) throws Exception {
        EyasClient client = EyasClient.connect();
        client.setTimeout(Duration.ofSeconds(20));
        List<Handle> handles = everything(client);
        if (isClosed) {
            handles.forEach(Handle::close);
        }
        ConcurrentLinkedQueue<Throwable> wrong = new ConcurrentLinkedQueue<>();
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < THREADS; number++) {
            Random random = new Random(seed + number);
            Runnable body =
                    () -> {
                        for (int call = 0; call < CALLS / THREADS; call++) {
                            Handle handle = handles.get(random.nextInt(handles.size()));
                            List<Method> methods = methods(handle.getClass());
                            Method method = methods.get(random.nextInt(methods.size()));
                            Throwable failure = call(handle, method, random);
                            if (failure != null) {
                                wrong.add(failure);
                            }
                        }
                    };
            threads.add(new Thread(body));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        handles.forEach(Handle::close);
        for (Throwable failure : wrong) {
            throw new AssertionError("seed " + seed, failure);
        }
    }

    @Test
    void anyCallsOfManyThreadsEndWithExceptions() throws Exception {
        for (long seed = 1; seed <= 3; seed++) {
            storm(seed, false);
        }
    }

    @Test
    void anyCallsAfterTheEndEndWithExceptions() throws Exception {
        storm(100, true);
    }

    @Test
    void everyMethodSaysThatItsObjectIsClosed() throws Exception {
        EyasClient client = EyasClient.connect();
        List<Handle> handles = everything(client);
        handles.forEach(Handle::close);
        handles.forEach(Handle::close);
        EyasReader reader = (EyasReader) handles.get(0);
        EyasException closed =
                assertThrows(EyasException.class, () -> reader.read(0, new byte[1], 0, 1));
        assertEquals(EyasStatus.BAD_HANDLE, closed.status());
        assertTrue(closed.getMessage().contains("closed"), closed.getMessage());
        assertEquals(
                EyasStatus.BAD_HANDLE,
                assertThrows(EyasException.class, () -> client.stat("/a")).status());
    }

    @Test
    void bothEndsOfOneObjectAreCalledAtTheSameTime() throws Exception {
        for (int round = 0; round < 30; round++) {
            EyasReader reader = folder.client.open(folder.of("lines"));
            EyasListing listing = folder.client.openListing(folder.path, true);
            EyasWriter writer = folder.client.create(folder.of("race"), WriteOptions.REPLACE);
            Thread closing =
                    new Thread(
                            () -> {
                                reader.close();
                                listing.close();
                                writer.close();
                            });
            closing.start();
            try {
                reader.read(0, ByteBuffer.allocateDirect(10));
                listing.next();
                writer.write(new byte[100_000]);
                writer.publish();
            } catch (EyasException closed) {
                assertEquals(EyasStatus.BAD_HANDLE, closed.status(), closed.getMessage());
            }
            closing.join();
        }
    }

    /** Calls that need much of the stack. Returns their failure. */
    private static Throwable useEverything() {
        try (EyasClient client = EyasClient.connect()) {
            folder.write("stack/deep/a", "x");
            client.rename(folder.of("stack"), folder.of("renamed"));
            client.rename(folder.of("renamed"), folder.of("stack"));
            client.places(folder.of("stack/deep/a"));
            client.quota(folder.path);
            client.setAttribute(folder.of("stack"), "a", new byte[3], AttributeCondition.ALWAYS);
            try (EyasWriter writer = client.edit(folder.of("stack/deep/a"), false)) {
                writer.writeAt(100, new byte[100_000], 0, 100_000);
                writer.publish();
            }
            client.remove(folder.of("stack/deep/a"));
            client.removeFolder(folder.of("stack/deep"));
            client.makeFolder(folder.of("stack/deep"));
            for (Handle handle : everything(client)) {
                if (handle instanceof EyasReader reader) {
                    reader.readAll();
                }
                if (handle instanceof EyasBlock block) {
                    block.next(Duration.ofSeconds(20));
                    block.commit(new byte[1]);
                }
                if (handle instanceof EyasRun run) {
                    run.output(0);
                    run.end();
                }
                handle.close();
            }
            return null;
        } catch (IOException | RuntimeException | Error failure) {
            return failure;
        }
    }

    /** Looks a file up, deeper and deeper, until there is no stack. */
    private static int descend(int depth) throws IOException {
        folder.client.exists(folder.of("lines"));
        return descend(depth + 1);
    }

    @Test
    void aThreadWithALittleStackGetsAnError() throws Exception {
        for (int kib : new int[] {64, 256, 448, 512, 576, 592, 600, 608, 640, 1024}) {
            AtomicReference<Throwable> outcome = new AtomicReference<>();
            Thread thread =
                    new Thread(null, () -> outcome.set(useEverything()), "small", kib << 10);
            thread.start();
            thread.join();
            Throwable failure = outcome.get();
            boolean isRefused = failure instanceof StackOverflowError;
            assertTrue(failure == null || kib <= 640 && isRefused, kib + " KiB: " + failure);
        }
        AtomicReference<Throwable> outcome = new AtomicReference<>();
        Runnable body =
                () -> {
                    try {
                        descend(0);
                    } catch (IOException | StackOverflowError failure) {
                        outcome.set(failure);
                    }
                };
        Thread deep = new Thread(null, body, "deep", 1 << 20);
        deep.start();
        deep.join();
        assertInstanceOf(StackOverflowError.class, outcome.get());
        assertTrue(folder.client.exists(folder.of("lines")));
    }

    @Test
    void objectsThatAreNotClosedAreCollected() throws Exception {
        EyasWriter kept = folder.client.create(folder.of("kept"), WriteOptions.REPLACE);
        long number = 0;
        for (int round = 0; round < 100; round++) {
            number = folder.client.open(folder.of("lines")).number;
        }
        long deadline = System.nanoTime() + 30_000_000_000L;
        while (isOpen(number)) {
            assertTrue(System.nanoTime() < deadline, "the last reader was not closed");
            System.gc();
            Thread.onSpinWait();
        }
        kept.write(new byte[1]);
        kept.publish();
    }

    private static boolean isOpen(long reader) throws IOException {
        try {
            Native.readerInfo(reader, new long[FileInfo.NUMBERS]);
            return true;
        } catch (EyasException closed) {
            return false;
        }
    }
}
