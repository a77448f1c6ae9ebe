import io.eyas.EyasBlock;
import io.eyas.EyasClient;
import io.eyas.EyasException;
import io.eyas.EyasReader;
import io.eyas.EyasRun;
import io.eyas.EyasStatus;
import io.eyas.Piece;
import io.eyas.RunInfo;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * Counts words with elastic blocks. One process opens the run, and prints its address, and in the
 * end the counts:
 *
 * <pre>java -cp eyas.jar WordCount.java open FILE...</pre>
 *
 * Any number of others work, on any node, and may come, go and die at any time:
 *
 * <pre>java -cp eyas.jar WordCount.java work ADDRESS</pre>
 *
 * Each word counts once: the result of a worker counts only for the pieces that it has committed.
 */
public class WordCount {
    public static void main(String[] arguments) throws Exception {
        if (arguments.length < 2) {
            System.err.println("WordCount open FILE... | work ADDRESS");
            System.exit(2);
        }
        try (EyasClient client = EyasClient.connect()) {
            if (arguments[0].equals("work")) {
                try (EyasRun run = client.joinRun(arguments[1])) {
                    while (hasWork(run)) {}
                }
                return;
            }
            List<String> files = List.of(arguments).subList(1, arguments.length);
            try (EyasRun run = client.openRun(files, 4, Duration.ofSeconds(3))) {
                System.out.println(run.address());
                RunInfo info = run.waitFor(null);
                Map<String, Long> counts = new TreeMap<>();
                for (int number = 0; number < info.outputs(); number++) {
                    addOutput(client, run.output(number), counts);
                }
                System.out.print(textOf(counts));
                run.end();
            }
        }
    }

    /** Works on one block. Whether there may be another one. */
    private static boolean hasWork(EyasRun run) throws Exception {
        Map<String, Long> counts = new TreeMap<>();
        boolean isEmpty = true;
        try (EyasBlock block = run.begin()) {
            for (Piece piece = block.next(null); piece != null; piece = block.next(null)) {
                isEmpty = false;
                String text = new String(piece.content(), StandardCharsets.UTF_8);
                for (String word : text.split("\\W+")) {
                    counts.merge(word, 1L, Long::sum);
                }
            }
            counts.remove("");
            if (!isEmpty) {
                // If it is false, another worker was faster: its counts are counted.
                block.commit(textOf(counts).getBytes(StandardCharsets.UTF_8));
            }
            return !isEmpty;
        } catch (EyasException failure) {
            if (failure.status() == EyasStatus.DISCARDED) {
                return true;
            }
            throw failure;
        }
    }

    private static void addOutput(EyasClient client, String path, Map<String, Long> counts)
            throws Exception {
        try (EyasReader reader = client.open(path)) {
            String text = new String(reader.readAll(), StandardCharsets.UTF_8);
            for (String line : text.lines().toList()) {
                int space = line.indexOf(' ');
                long count = Long.parseLong(line.substring(space + 1));
                counts.merge(line.substring(0, space), count, Long::sum);
            }
        }
    }

    private static String textOf(Map<String, Long> counts) {
        StringBuilder text = new StringBuilder();
        counts.forEach((word, count) -> text.append(word).append(' ').append(count).append('\n'));
        return text.toString();
    }
}
