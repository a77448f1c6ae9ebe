package io.eyas.hadoop;

import java.util.concurrent.Executor;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** Threads for vectored reads and removals. They end when there is nothing to do. */
final class FileThreads implements Executor, AutoCloseable {
    /** Calls at the same time; others wait. */
    private static final int MAX_THREADS = 16;

    private static final long IDLE_SECONDS = 10;

    private final ThreadPoolExecutor threads;

    FileThreads() {
        threads =
                new ThreadPoolExecutor(
                        MAX_THREADS,
                        MAX_THREADS,
                        IDLE_SECONDS,
                        TimeUnit.SECONDS,
                        new LinkedBlockingQueue<>(),
                        work -> {
                            Thread thread = new Thread(work, "eyas-files");
                            thread.setDaemon(true);
                            return thread;
                        });
        threads.allowCoreThreadTimeOut(true);
    }

    @Override
    public void execute(Runnable work) {
        threads.execute(work);
    }

    /** Ends them after the work that they have. */
    @Override
    public void close() {
        threads.shutdown();
    }
}
