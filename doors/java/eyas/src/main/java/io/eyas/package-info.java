/**
 * Files and elastic blocks of an eyas cluster.
 *
 * <p>{@link io.eyas.EyasClient} connects to a cluster; all other objects come from it. The work is
 * done by the C library of eyas, which is in the jar for Linux on x86-64. For another machine,
 * build it with {@code doors/java/native.sh}, and set the system property {@code eyas.library.path}
 * to its path.
 *
 * <p>Paths are those of the cluster, such as {@code /books/whale.txt} or {@code
 * eyas:///books/whale.txt}. Sizes and offsets are bytes.
 *
 * <p>All methods can be called from any thread. They block until they are done, at most for the
 * timeout of the client. Objects that are not closed are closed after they were collected.
 *
 * <p><b>Exceptions.</b> A method that fails throws an {@link java.io.IOException} with the message
 * of eyas: what failed, and what to do.
 *
 * <ul>
 *   <li>{@link java.nio.file.NoSuchFileException}: the file or folder does not exist.
 *   <li>{@link java.nio.file.FileAlreadyExistsException}: a file or folder of this name exists.
 *   <li>{@link java.nio.file.NotDirectoryException}: the name, or a part of it, is that of a file.
 *   <li>{@link java.nio.file.DirectoryNotEmptyException}: the folder is not empty.
 *   <li>{@link java.nio.file.AccessDeniedException}: the key of the cluster does not permit it.
 *   <li>{@link io.eyas.EyasException}: everything else; {@link io.eyas.EyasException#status()} says
 *       what.
 * </ul>
 *
 * An argument that can never be right is an unchecked exception: {@link
 * java.lang.NullPointerException}, {@link java.lang.IndexOutOfBoundsException}, {@link
 * java.lang.IllegalArgumentException}. A path that cannot be written in UTF-8, or has a NUL, is a
 * {@link java.nio.file.InvalidPathException}. A thread with less than 576 KiB of free stack gets a
 * {@link java.lang.StackOverflowError}.
 */
package io.eyas;
