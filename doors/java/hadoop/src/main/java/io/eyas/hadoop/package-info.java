/**
 * Files of an eyas cluster for Hadoop: {@code eyas://NAME/PATH}, where NAME is the name of the
 * cluster, and {@code eyas:///PATH} is a file of the cluster of the command {@code eyas} without
 * options.
 *
 * <p>It converts, and decides nothing. What eyas does not have is refused with an {@link
 * java.lang.UnsupportedOperationException} that names it: concatenation, access control lists,
 * snapshots, storage policies.
 */
package io.eyas.hadoop;
