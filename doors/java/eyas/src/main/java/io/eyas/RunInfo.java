package io.eyas;

/**
 * A run, as it stands.
 *
 * @param chunks number of chunks of all files
 * @param committedChunks number of chunks whose output is committed
 * @param outputs number of outputs that count
 * @param isComplete whether all chunks are committed
 */
public record RunInfo(int chunks, int committedChunks, int outputs, boolean isComplete) {
    static RunInfo of(long[] numbers) {
        return new RunInfo((int) numbers[0], (int) numbers[1], (int) numbers[2], numbers[3] != 0);
    }
}
