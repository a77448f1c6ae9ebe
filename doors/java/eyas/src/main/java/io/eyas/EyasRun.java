package io.eyas;

import java.io.IOException;
import java.lang.ref.Reference;
import java.time.Duration;

/**
 * A run over the blocks of files: workers, which may be threads, programs and nodes, divide its
 * chunks among themselves while they work. Of each chunk, one result counts: that of the worker
 * which has committed it. Threads may use one run at the same time.
 */
public final class EyasRun extends Handle {
    private final String address;

    EyasRun(long number) throws IOException {
        super(number, Native::closeRun);
        this.address = Texts.text(Native.runAddress(number));
    }

    /** The address of the run, for {@link EyasClient#joinRun} in other programs. */
    public String address() {
        return address;
    }

    /** How the run stands. */
    public RunInfo status() throws IOException {
        try {
            long[] numbers = new long[4];
            Native.runStatus(number, numbers);
            return RunInfo.of(numbers);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Waits until all chunks are committed.
     *
     * @param timeout null for no end
     * @throws EyasException with {@link EyasStatus#TIMED_OUT} if that has not come to pass by then
     */
    public RunInfo waitFor(Duration timeout) throws IOException {
        try {
            long[] numbers = new long[4];
            Native.waitForRun(number, Texts.milliseconds(timeout), numbers);
            return RunInfo.of(numbers);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * The path of the output with this number, from 0, in the order of the first piece of each
     * output; null if there are fewer. The output is a hidden file: read it, or keep it with {@link
     * EyasClient#rename}, before the run is ended. Call {@link #waitFor} first: until the run is
     * complete, the numbers of outputs may change.
     */
    public synchronized String output(int index) throws IOException {
        if (index < 0) {
            throw new IndexOutOfBoundsException("an output must not be negative: " + index);
        }
        try {
            return Texts.text(Native.runOutput(number, index));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** Begins a block, which has no piece at first. */
    public EyasBlock begin() throws IOException {
        try {
            return new EyasBlock(Native.openBlock(number));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Begins an attempt of a task of another framework, such as Hadoop, which decides which attempt
     * of a task counts. All attempts of a task get the same pieces in the same order, also if they
     * run at once, or after one has ended. If each task has an attempt that counts, and that has
     * read its pieces until {@link EyasBlock#next} returned null, these attempts have read each
     * piece once. There is nothing to commit.
     *
     * <p>{@link EyasBlock#next} fails with {@link EyasStatus#DISCARDED} if no attempt of the task
     * has reported within the term of the run, so that its pieces went to other tasks: then the
     * attempt must fail, and the framework begin another one.
     *
     * @param task the number of the task, below 1,048,576
     */
    public EyasBlock begin(int task) throws IOException {
        if (task < 0) {
            throw new IllegalArgumentException("a task must not be negative: " + task);
        }
        try {
            return new EyasBlock(Native.openTask(number, task));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** Ends the run for all its workers, and removes its outputs that were not renamed. */
    public void end() throws IOException {
        try {
            Native.endRun(number);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** Closes this object. The run goes on for other programs. */
    @Override
    public synchronized void close() {
        super.close();
    }
}
