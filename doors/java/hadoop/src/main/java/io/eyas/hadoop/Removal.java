package io.eyas.hadoop;

import io.eyas.EyasClient;
import io.eyas.EyasListing;
import io.eyas.FileInfo;

import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.NoSuchFileException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;

/** Removes a file, or a folder with what is in it. */
final class Removal {
    /** Files that are removed at the same time, at most. */
    private static final int BATCH = 256;

    private final EyasClient client;
    private final FileThreads threads;

    Removal(EyasClient client, FileThreads threads) {
        this.client = client;
        this.threads = threads;
    }

    /** Whether it is gone. The root stays, and only its content goes. */
    boolean remove(FileInfo present, boolean recursive) throws IOException {
        String name = present.path();
        if (!present.isFolder()) {
            Failures.in(() -> client.remove(name));
            return true;
        }
        if (recursive) {
            Failures.in(() -> removeContent(name));
        }
        if (name.equals("/")) {
            try (EyasListing rest = Failures.of(() -> client.openListing(name, false))) {
                if (Failures.of(rest::next) != null && !recursive) {
                    throw new PathIsNotEmptyDirectoryException(name);
                }
            }
            return recursive;
        }
        Failures.in(() -> client.removeFolder(name));
        return true;
    }

    private void removeContent(String folder) throws IOException {
        List<String> folders = new ArrayList<>();
        List<String> files = new ArrayList<>();
        try (EyasListing listing = client.openListing(folder, true)) {
            for (FileInfo next = listing.next(); next != null; next = listing.next()) {
                (next.isFolder() ? folders : files).add(next.path());
                if (files.size() == BATCH) {
                    removeAll(files);
                    files.clear();
                }
            }
        }
        removeAll(files);
        // A folder comes before what is in it.
        for (int index = folders.size() - 1; index >= 0; index--) {
            try {
                client.removeFolder(folders.get(index));
            } catch (NoSuchFileException gone) {
                // Another program was faster.
            }
        }
    }

    private void removeAll(List<String> files) throws IOException {
        CompletableFuture<?>[] removed =
                files.stream()
                        .map(file -> CompletableFuture.runAsync(() -> removeFile(file), threads))
                        .toArray(CompletableFuture<?>[]::new);
        try {
            CompletableFuture.allOf(removed).join();
        } catch (CompletionException failure) {
            if (failure.getCause() instanceof UncheckedIOException wrapped) {
                throw wrapped.getCause();
            }
            throw failure;
        }
    }

    private void removeFile(String file) {
        try {
            client.remove(file);
        } catch (NoSuchFileException gone) {
            // Another program was faster.
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }
}
