package io.eyas;

/** The kind of an entry; the order is that of {@code eyas_file_kind}. */
public enum FileKind {
    /** A file with content. */
    FILE,
    /** A folder. */
    FOLDER,
    /** A symbolic link. This package does not follow it. */
    SYMBOLIC_LINK,
    /** A kind of a later version of the C library. */
    UNKNOWN;

    static FileKind of(long number) {
        return number >= 0 && number < UNKNOWN.ordinal() ? values()[(int) number] : UNKNOWN;
    }
}
