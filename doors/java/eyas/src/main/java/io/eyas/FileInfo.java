package io.eyas;

import java.time.Instant;

/**
 * A file, folder or link of the cluster, as it was looked up or listed.
 *
 * @param path its path, such as {@code /books/whale.txt}
 * @param kind the kind of the entry
 * @param sizeBytes size of the content, bytes
 * @param modified time of the last write
 * @param changed time of the last change of the content or an attribute
 * @param mode permission bits
 * @param uid user id of the owner, of 32 bits
 * @param gid group id of the owner, of 32 bits
 * @param chunkBytes size of the chunks of a file, bytes; 0 for an entry of a list, and for what is
 *     no file
 * @param replication wanted number of replicas of each chunk; 0 for an entry of a list, and for
 *     what is no file
 */
public record FileInfo(
        String path,
        FileKind kind,
        long sizeBytes,
        Instant modified,
        Instant changed,
        int mode,
        int uid,
        int gid,
        long chunkBytes,
        int replication) {
    /** Count of the numbers of {@link #of}. */
    static final int NUMBERS = 9;

    /** From the numbers that the native part writes. */
    static FileInfo of(String path, long[] numbers) {
        return new FileInfo(
                path,
                FileKind.of(numbers[0]),
                numbers[1],
                Texts.instant(numbers[2]),
                Texts.instant(numbers[3]),
                (int) numbers[4],
                (int) numbers[5],
                (int) numbers[6],
                numbers[7],
                (int) numbers[8]);
    }

    /** Whether it is a file with content. */
    public boolean isFile() {
        return kind == FileKind.FILE;
    }

    /** Whether it is a folder. */
    public boolean isFolder() {
        return kind == FileKind.FOLDER;
    }
}
