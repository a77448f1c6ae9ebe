package io.eyas.hadoop;

import io.eyas.EyasClient;

import java.io.IOException;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Files that streams of this program write and that have not appeared. Programs of Hadoop set
 * permissions between {@code create} and {@code close}: a file gets them when it appears. There are
 * as many entries as open streams.
 */
final class NewFiles {
    /** The permissions that eyas gives a new file under the usual umask. */
    private static final int USUAL_MODE = 0644;

    private final EyasClient client;
    private final Map<String, NewFile> files = new ConcurrentHashMap<>();

    NewFiles(EyasClient client) {
        this.client = client;
    }

    /** A file that appears later. */
    final class NewFile implements EyasOutputStream.Appearance {
        private final String name;
        private int mode;
        private boolean hasAppeared;

        private NewFile(String name, int mode) {
            this.name = name;
            this.mode = mode;
        }

        private synchronized boolean keepMode(int later) {
            mode = later;
            return !hasAppeared;
        }

        @Override
        public synchronized void appear() throws IOException {
            hasAppeared = true;
            if (mode != USUAL_MODE) {
                client.setMode(name, mode);
            }
        }

        @Override
        public void close() {
            files.remove(name, this);
        }
    }

    NewFile add(String name, int mode) {
        NewFile file = new NewFile(name, mode);
        files.put(name, file);
        return file;
    }

    /** Sets the permissions of a file, at once or when it appears. */
    void setMode(String name, int mode) throws IOException {
        NewFile file = files.get(name);
        if (file == null || !file.keepMode(mode)) {
            client.setMode(name, mode);
        }
    }
}
