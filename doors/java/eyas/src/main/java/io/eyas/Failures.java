package io.eyas;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.IOException;
import java.nio.file.AccessDeniedException;
import java.nio.file.DirectoryNotEmptyException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;

/** Statuses of the C library as exceptions of Java. The native part calls {@link #of}. */
final class Failures {
    private Failures() {}

    /** The exception for a status, with the message of eyas; {@code path} may be null. */
    static IOException of(int number, byte[] message, byte[] path) {
        EyasStatus status = EyasStatus.of(number);
        String text = new String(message, UTF_8);
        if (path == null) {
            return new EyasException(status, text);
        }
        String file = new String(path, UTF_8);
        return switch (status) {
            case NOT_FOUND -> new NoSuchFileException(file, null, text);
            case EXISTS -> new FileAlreadyExistsException(file, null, text);
            case NOT_ALLOWED -> new AccessDeniedException(file, null, text);
            case NOT_FOLDER -> new NotFolderException(file, text);
            case NOT_EMPTY -> new FolderNotEmptyException(file, text);
            default -> new EyasException(status, text);
        };
    }

    /** Java's own exception has no place for a message. */
    private static final class NotFolderException extends NotDirectoryException {
        private static final long serialVersionUID = 1;
        private final String reason;

        NotFolderException(String file, String reason) {
            super(file);
            this.reason = reason;
        }

        @Override
        public String getReason() {
            return reason;
        }
    }

    /** Java's own exception has no place for a message. */
    private static final class FolderNotEmptyException extends DirectoryNotEmptyException {
        private static final long serialVersionUID = 1;
        private final String reason;

        FolderNotEmptyException(String file, String reason) {
            super(file);
            this.reason = reason;
        }

        @Override
        public String getReason() {
            return reason;
        }
    }
}
