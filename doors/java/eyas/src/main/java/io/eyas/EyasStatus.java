package io.eyas;

/** Why a call failed, as the C library has it; the order is that of {@code eyas_status}. */
public enum EyasStatus {
    /** Success; no exception has it. */
    OK,
    /** The end of entries, replicas or pieces; no exception has it. */
    END,
    /** An argument is not possible, or the content does not fit the format of the file. */
    INVALID,
    /** The object is closed. */
    BAD_HANDLE,
    /** The file, run or cluster does not exist. */
    NOT_FOUND,
    /** A file of this name exists already. */
    EXISTS,
    /** Another client has changed the file at the same time. Look at it again. */
    CHANGED,
    /** The key of the cluster does not permit this. */
    NOT_ALLOWED,
    /** No node has enough space. */
    FULL,
    /** No replica of a part of the file can be read. */
    LOST,
    /** The cluster cannot be reached, or too few of its nodes answer. A retry can help. */
    UNREACHABLE,
    /** The call has not ended within its timeout. What it should change may have been changed. */
    TIMED_OUT,
    /** The dispatcher refuses the request; the message has its reason. */
    REFUSED,
    /** Other workers have processed the block: its results must be discarded. */
    DISCARDED,
    /** A failure of this machine: a file, a folder or a thread. */
    LOCAL,
    /** A bug in eyas. Please report the message. */
    INTERNAL,
    /** The name is that of a folder, and the method needs a file. */
    IS_FOLDER,
    /** The name, or a part of it, is that of a file, and the method needs a folder. */
    NOT_FOLDER,
    /** The folder is not empty. */
    NOT_EMPTY,
    /** A quota of a folder does not permit it. */
    QUOTA,
    /** The file has no named attribute of this name. */
    NO_ATTRIBUTE,
    /** The named attributes of the file together would be too large. */
    ATTRIBUTES_FULL,
    /** A status of a later version of the C library. */
    UNKNOWN;

    static EyasStatus of(int number) {
        return number >= 0 && number < UNKNOWN.ordinal() ? values()[number] : UNKNOWN;
    }
}
