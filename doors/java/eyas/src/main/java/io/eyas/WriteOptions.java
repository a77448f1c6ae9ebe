package io.eyas;

/**
 * Options of a new file.
 *
 * @param format the format of the file's records, so that no block ends inside one: {@code lines},
 *     {@code csv}, {@code json-lines}, {@code fasta}, {@code fastq}, {@code fixed:BYTES}, {@code
 *     length-prefixed:BYTESbe}, {@code bgzf}, {@code bzip2}, {@code zstd}, {@code whole}; null: by
 *     the name and the content, as {@code eyas dfs put} guesses
 * @param chunkBytes size of its chunks, bytes; 0 for the default
 * @param replication number of replicas; 0 for the default
 * @param replaces whether the file replaces one of this name, which readers see until it is
 *     published; otherwise such a file is an error
 */
public record WriteOptions(String format, long chunkBytes, int replication, boolean replaces) {
    /** The default: nothing is replaced. */
    public static final WriteOptions NEW = new WriteOptions(null, 0, 0, false);

    /** The default for a file that may replace one of its name. */
    public static final WriteOptions REPLACE = new WriteOptions(null, 0, 0, true);

    /** Checks the numbers. */
    public WriteOptions {
        Texts.bytes("the size of chunks", chunkBytes);
        if (replication < 0) {
            throw new IllegalArgumentException(
                    "a number of replicas must not be negative: " + replication);
        }
    }
}
