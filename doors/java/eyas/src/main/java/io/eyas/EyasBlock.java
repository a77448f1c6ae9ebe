package io.eyas;

import java.io.IOException;
import java.lang.ref.Reference;
import java.time.Duration;
import java.util.Objects;

/**
 * A block of a run: the pieces that one worker processes and commits together. Calls of several
 * threads wait for each other; a program with several workers has a block for each.
 */
public final class EyasBlock extends Handle {
    /** Longest wait within C, milliseconds, so that {@link #close} does not wait longer. */
    private static final long STEP_MS = 250;

    EyasBlock(long number) {
        super(number, Native::closeBlock);
    }

    /**
     * Claims the next piece. The piece before it counts as processed from now on.
     *
     * @param timeout how long to wait for a piece; null for no end
     * @return null if the block has no further piece: commit it; if it had none at all, the run has
     *     no work left
     * @throws EyasException with {@link EyasStatus#DISCARDED} if other workers have processed the
     *     block: discard its results, close it, begin another one; with {@link
     *     EyasStatus#TIMED_OUT} if no piece came in time: call it again, or close the block
     */
    public Piece next(Duration timeout) throws IOException {
        long limitMs = Texts.milliseconds(timeout);
        long begin = System.nanoTime();
        while (true) {
            long leftMs = limitMs;
            if (limitMs >= 0) {
                leftMs = Math.max(0, limitMs - (System.nanoTime() - begin) / 1_000_000);
            }
            boolean isLast = limitMs >= 0 && leftMs <= STEP_MS;
            try {
                return step(isLast ? leftMs : STEP_MS);
            } catch (EyasException failure) {
                if (failure.status() != EyasStatus.TIMED_OUT || isLast) {
                    throw failure;
                }
            }
        }
    }

    private synchronized Piece step(long timeoutMs) throws IOException {
        try {
            long[] offset = new long[1];
            byte[][] pair = new byte[2][];
            if (!Native.nextPiece(number, timeoutMs, offset, pair)) {
                return null;
            }
            return new Piece(Texts.text(pair[0]), offset[0], pair[1]);
        } catch (Error | RuntimeException failure) {
            // The program has not got the piece, which must not count as processed.
            super.close();
            throw failure;
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Stores the output of all pieces that the block has given out, and commits it. A block can be
     * committed before its end; pieces that were not claimed go to other workers.
     *
     * @return false if this output does not count, because other workers have processed the block
     */
    public synchronized boolean commit(byte[] output) throws IOException {
        Objects.requireNonNull(output, "output");
        try {
            Native.commit(number, output);
            return true;
        } catch (EyasException failure) {
            if (failure.status() == EyasStatus.DISCARDED) {
                return false;
            }
            throw failure;
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** Closes the block. Pieces that were not committed go to other workers. */
    @Override
    public synchronized void close() {
        super.close();
    }
}
