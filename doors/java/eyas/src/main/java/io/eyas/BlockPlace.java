package io.eyas;

/**
 * A replica of a chunk of a file. A chunk with several replicas comes several times; zeros that no
 * node stores come once, without a node.
 *
 * @param offset where the chunk begins in the file, bytes
 * @param sizeBytes size of the chunk, bytes
 * @param block the number of the chunk's block; a program that processes records reads whole
 *     blocks, and each is one chunk, except in a file that is one record, whose chunks are all of
 *     one block
 * @param node the node that has the chunk; null for zeros that no node stores
 * @param host the address of the node's host; null while the node is not connected
 * @param isNear whether the node is that of this machine, as its executor has told this process
 */
public record BlockPlace(
        long offset, long sizeBytes, long block, String node, String host, boolean isNear) {}
