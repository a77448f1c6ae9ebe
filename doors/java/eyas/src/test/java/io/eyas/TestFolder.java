package io.eyas;

import java.io.IOException;
import java.nio.charset.StandardCharsets;

/**
 * A folder of a test in the cluster that `dev/tools/java.sh` has started, with a client. It is
 * empty at first.
 */
final class TestFolder implements AutoCloseable {
    final EyasClient client;
    final String path;

    TestFolder(Class<?> test) throws IOException {
        if (System.getenv("EYAS_HOME") == null) {
            throw new IllegalStateException("these tests need a cluster: run dev/tools/java.sh");
        }
        client = EyasClient.connect();
        path = "/tests/" + test.getSimpleName();
        removeAll(client, path);
        client.makeFolder(path);
    }

    /** The path of a file in it. */
    String of(String name) {
        return path + "/" + name;
    }

    /** Writes a file, or replaces it. */
    String write(String name, byte[] content) throws IOException {
        return write(name, content, WriteOptions.REPLACE);
    }

    String write(String name, byte[] content, WriteOptions options) throws IOException {
        try (EyasWriter writer = client.create(of(name), options)) {
            writer.write(content);
            writer.publish();
        }
        return of(name);
    }

    String write(String name, String text) throws IOException {
        return write(name, text.getBytes(StandardCharsets.UTF_8));
    }

    /** The content of a file as text. */
    String read(String name) throws IOException {
        try (EyasReader reader = client.open(of(name))) {
            return new String(reader.readAll(), StandardCharsets.UTF_8);
        }
    }

    private static void removeAll(EyasClient client, String folder) throws IOException {
        if (!client.exists(folder)) {
            return;
        }
        for (FileInfo entry : client.list(folder)) {
            if (entry.isFolder()) {
                removeAll(client, entry.path());
            } else {
                client.remove(entry.path());
            }
        }
        client.removeFolder(folder);
    }

    @Override
    public void close() throws IOException {
        removeAll(client, path);
        client.close();
    }
}
