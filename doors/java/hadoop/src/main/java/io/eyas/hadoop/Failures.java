package io.eyas.hadoop;

import io.eyas.EyasException;

import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.security.AccessControlException;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.file.AccessDeniedException;
import java.nio.file.DirectoryNotEmptyException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;

/** Exceptions of eyas as those that programs of Hadoop expect. */
final class Failures {
    private Failures() {}

    /** Work of the client. */
    interface Work<T> {
        T run() throws IOException;
    }

    /** Work of the client without a result. */
    interface Action {
        void run() throws IOException;
    }

    /** The result of the work. */
    static <T> T of(Work<T> work) throws IOException {
        try {
            return work.run();
        } catch (IOException failure) {
            throw converted(failure);
        }
    }

    static void in(Action action) throws IOException {
        of(
                () -> {
                    action.run();
                    return null;
                });
    }

    /** The exception of Hadoop, with the message and the cause. */
    private static IOException converted(IOException failure) {
        IOException converted;
        if (failure instanceof NoSuchFileException) {
            converted = new FileNotFoundException(failure.getMessage());
        } else if (failure instanceof FileAlreadyExistsException) {
            converted = new org.apache.hadoop.fs.FileAlreadyExistsException(failure.getMessage());
        } else if (failure instanceof NotDirectoryException) {
            converted = new ParentNotDirectoryException(failure.getMessage());
        } else if (failure instanceof DirectoryNotEmptyException notEmpty) {
            converted = new PathIsNotEmptyDirectoryException(notEmpty.getFile());
        } else if (failure instanceof AccessDeniedException) {
            converted = new AccessControlException(failure.getMessage());
        } else if (failure instanceof EyasException eyas) {
            switch (eyas.status()) {
                // That a folder is no file, Hadoop says in the same way.
                case NOT_FOUND, IS_FOLDER ->
                        converted = new FileNotFoundException(failure.getMessage());
                default -> {
                    return failure;
                }
            }
        } else {
            return failure;
        }
        converted.initCause(failure);
        return converted;
    }
}
