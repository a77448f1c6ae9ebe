package io.eyas.hadoop;

import io.eyas.EyasListing;
import io.eyas.FileInfo;

import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.RemoteIterator;

import java.io.Closeable;
import java.io.IOException;
import java.util.NoSuchElementException;
import java.util.function.Function;

/** Entries of a folder, one by one. It is closed at the end, or with this. */
final class Entries implements RemoteIterator<FileStatus>, Closeable {
    private final EyasListing listing;
    private final Function<FileInfo, FileStatus> status;
    private FileInfo next;
    private boolean isOver;

    Entries(EyasListing listing, Function<FileInfo, FileStatus> status) {
        this.listing = listing;
        this.status = status;
    }

    @Override
    public boolean hasNext() throws IOException {
        if (next == null && !isOver) {
            next = Failures.of(listing::next);
            if (next == null) {
                close();
            }
        }
        return next != null;
    }

    @Override
    public FileStatus next() throws IOException {
        if (!hasNext()) {
            throw new NoSuchElementException("there is no further entry");
        }
        FileInfo found = next;
        next = null;
        return status.apply(found);
    }

    @Override
    public void close() {
        isOver = true;
        listing.close();
    }
}
