package io.eyas;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Elastic blocks: workers that divide the chunks of files. */
class RunTest {
    private static final Duration DEADLINE = Duration.ofSeconds(60);

    private static TestFolder folder;
    private static EyasClient client;

    @BeforeAll
    static void begin() throws IOException {
        folder = new TestFolder(RunTest.class);
        client = folder.client;
    }

    @AfterAll
    static void end() throws IOException {
        folder.close();
    }

    private static String lines(int count) {
        StringBuilder text = new StringBuilder();
        for (int line = 0; line < count; line++) {
            text.append("line ").append(line).append('\n');
        }
        return text.toString();
    }

    private static String write(String name, int lines) throws IOException {
        byte[] content = lines(lines).getBytes(StandardCharsets.UTF_8);
        return folder.write(name, content, new WriteOptions("lines", 64 << 10, 1, true));
    }

    /** Counts lines until there is no work left. */
    private static int work(EyasRun run) throws IOException {
        int committed = 0;
        while (true) {
            int lines = 0;
            boolean isEmpty = true;
            try (EyasBlock block = run.begin()) {
                for (Piece piece = block.next(DEADLINE);
                        piece != null;
                        piece = block.next(DEADLINE)) {
                    isEmpty = false;
                    String text = new String(piece.content(), StandardCharsets.UTF_8);
                    assertTrue(text.endsWith("\n"), "a piece is whole records");
                    lines += (int) text.lines().count();
                }
                if (isEmpty) {
                    return committed;
                }
                if (block.commit((lines + "\n").getBytes(StandardCharsets.UTF_8))) {
                    committed += lines;
                }
            }
        }
    }

    @Test
    void eachLineCountsOnce() throws Exception {
        String path = write("lines", 200_000);
        ExecutorService threads = Executors.newFixedThreadPool(3);
        try (EyasRun run = client.openRun(List.of(path), 3, Duration.ofSeconds(5))) {
            List<Future<Integer>> workers = new ArrayList<>();
            for (int worker = 0; worker < 3; worker++) {
                Callable<Integer> body =
                        () -> {
                            try (EyasClient own = EyasClient.connect();
                                    EyasRun joined = own.joinRun(run.address())) {
                                return work(joined);
                            }
                        };
                workers.add(threads.submit(body));
            }
            RunInfo info = run.waitFor(DEADLINE);
            assertTrue(info.isComplete());
            assertEquals(info.chunks(), info.committedChunks());
            int counted = 0;
            for (Future<Integer> worker : workers) {
                counted += worker.get();
            }
            int inOutputs = 0;
            for (int number = 0; number < info.outputs(); number++) {
                try (EyasReader reader = client.open(run.output(number))) {
                    String text = new String(reader.readAll(), StandardCharsets.UTF_8);
                    inOutputs += text.lines().mapToInt(Integer::parseInt).sum();
                }
            }
            assertNull(run.output(info.outputs()));
            assertEquals(200_000, counted);
            assertEquals(200_000, inOutputs);
            run.end();
        } finally {
            threads.shutdown();
        }
    }

    @Test
    void aBlockThatIsClosedGivesItsPiecesToOthers() throws Exception {
        String path = write("left", 1000);
        try (EyasRun run = client.openRun(List.of(path), 1, Duration.ofSeconds(5))) {
            try (EyasBlock left = run.begin()) {
                assertEquals(path, left.next(DEADLINE).file());
            }
            assertFalse(run.status().isComplete());
            EyasException late =
                    assertThrows(EyasException.class, () -> run.waitFor(Duration.ZERO));
            assertEquals(EyasStatus.TIMED_OUT, late.status());
            assertEquals(1000, work(run));
            assertTrue(run.waitFor(DEADLINE).isComplete());
            run.end();
        }
    }

    @Test
    void aBlockIsCommittedOnce() throws Exception {
        String path = write("once", 10);
        try (EyasRun run = client.openRun(List.of(path), 1, null);
                EyasBlock block = run.begin()) {
            assertEquals(lines(10), new String(block.next(DEADLINE).content()));
            assertNull(block.next(DEADLINE));
            assertTrue(block.commit(new byte[0]));
            EyasException again =
                    assertThrows(EyasException.class, () -> block.commit(new byte[0]));
            assertEquals(EyasStatus.INVALID, again.status());
            run.end();
        }
    }

    @Test
    void closingABlockEndsAWaitForAPiece() throws Exception {
        String path = write("held", 10);
        ExecutorService threads = Executors.newSingleThreadExecutor();
        try (EyasRun run = client.openRun(List.of(path), 1, null);
                EyasBlock holder = run.begin();
                EyasBlock waiter = run.begin()) {
            holder.next(DEADLINE);
            Future<Piece> waiting = threads.submit(() -> waiter.next(null));
            waiter.close();
            Exception failure = assertThrows(Exception.class, waiting::get);
            EyasException closed = (EyasException) failure.getCause();
            assertEquals(EyasStatus.BAD_HANDLE, closed.status());
            run.end();
        } finally {
            threads.shutdown();
        }
    }
}
