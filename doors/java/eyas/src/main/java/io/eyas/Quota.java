package io.eyas;

/**
 * Limits on everything below a folder, and how much of them is used.
 *
 * @param bytes maximum size of all files together, bytes; {@link #NO_LIMIT} if there is no limit;
 *     replicas do not count
 * @param files maximum number of files, folders and links; {@link #NO_LIMIT} if there is no limit
 * @param usedBytes size of all files together, bytes
 * @param usedFiles number of files, folders and links
 */
public record Quota(long bytes, long files, long usedBytes, long usedFiles) {
    /** A limit that does not exist. */
    public static final long NO_LIMIT = -1;
}
