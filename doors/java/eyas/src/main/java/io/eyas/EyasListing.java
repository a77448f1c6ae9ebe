package io.eyas;

import java.io.IOException;
import java.lang.ref.Reference;

/** The entries of a folder. Its memory does not grow with their number. */
public final class EyasListing extends Handle {
    EyasListing(long number) {
        super(number, Native::closeListing);
    }

    /**
     * The next entry; null if there is no other. Some calls ask the nodes for more entries; if such
     * a call fails, it can be repeated.
     */
    public synchronized FileInfo next() throws IOException {
        try {
            long[] numbers = new long[FileInfo.NUMBERS];
            byte[] name = Native.nextEntry(number, numbers);
            return name == null ? null : FileInfo.of(Texts.text(name), numbers);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** Closes the listing, after the present call has ended. */
    @Override
    public synchronized void close() {
        super.close();
    }
}
