package io.eyas;

import java.io.IOException;

/** A failure for which Java has no exception of its own. */
public final class EyasException extends IOException {
    private static final long serialVersionUID = 1;

    /** Why the call failed. */
    private final EyasStatus status;

    EyasException(EyasStatus status, String message) {
        super(message);
        this.status = status;
    }

    /** Says why the call failed. */
    public EyasStatus status() {
        return status;
    }
}
