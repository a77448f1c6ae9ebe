import io.eyas.BlockPlace;
import io.eyas.EyasClient;
import io.eyas.EyasReader;
import io.eyas.EyasWriter;
import io.eyas.FileInfo;
import io.eyas.WriteOptions;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/** Creates, appends, changes, renames, reads, lists and removes files of the cluster. */
public class Files {
    public static void main(String[] arguments) throws Exception {
        try (EyasClient client = EyasClient.connect()) {
            try (EyasWriter writer = client.create("/books/draft.txt", WriteOptions.REPLACE)) {
                writer.write("Call me Jonah.\n".getBytes(StandardCharsets.UTF_8));
                // Without this, nothing appears.
                writer.publish();
            }
            try (EyasWriter writer = client.append("/books/draft.txt")) {
                writer.write("Some years ago".getBytes(StandardCharsets.UTF_8));
                writer.publish();
            }
            try (EyasWriter writer = client.edit("/books/draft.txt", false)) {
                writer.writeAt(8, ByteBuffer.wrap("Ahab! ".getBytes(StandardCharsets.UTF_8)));
                writer.publish();
            }
            client.rename("/books/draft.txt", "/books/whale.txt");

            try (EyasReader reader = client.open("/books/whale.txt")) {
                byte[] text = new byte[100];
                int count = reader.read(15, text, 0, text.length);
                System.out.println(new String(text, 0, count, StandardCharsets.UTF_8));
            }
            for (FileInfo file : client.list("/books")) {
                System.out.println(file.path() + ": " + file.sizeBytes() + " bytes");
            }
            for (BlockPlace place : client.places("/books/whale.txt")) {
                boolean isStored = place.node() != null;
                System.out.println(place.sizeBytes() + " bytes on a node: " + isStored);
            }
            client.remove("/books/whale.txt");
        }
    }
}
