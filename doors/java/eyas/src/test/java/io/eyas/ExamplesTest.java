package io.eyas;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** The examples of the repository and the program of the guide, as users run them. */
class ExamplesTest {
    private static final Path ROOT = Path.of("../../..");

    private static Process start(Path source, String... words) throws Exception {
        Path classes =
                Path.of(
                        EyasClient.class
                                .getProtectionDomain()
                                .getCodeSource()
                                .getLocation()
                                .toURI());
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        List<String> command = new ArrayList<>(List.of(java, "-cp", classes.toString()));
        command.add(source.toString());
        command.addAll(List.of(words));
        return new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
    }

    private static String output(Process process) throws Exception {
        String text = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(0, process.waitFor());
        return text;
    }

    private static Path example(String name) {
        return ROOT.resolve("examples/java").resolve(name);
    }

    @Test
    void files() throws Exception {
        assertEquals(
                """
                Some years ago
                /books/whale.txt: 29 bytes
                29 bytes on a node: true
                29 bytes on a node: true
                """,
                output(start(example("Files.java"))));
    }

    @Test
    void wordCount() throws Exception {
        try (TestFolder folder = new TestFolder(ExamplesTest.class)) {
            String text = "one two two\n".repeat(5000);
            WriteOptions options = new WriteOptions("lines", 8 << 10, 1, true);
            String path = folder.write("words", text.getBytes(StandardCharsets.UTF_8), options);
            Process opener = start(example("WordCount.java"), "open", path);
            BufferedReader lines =
                    new BufferedReader(new InputStreamReader(opener.getInputStream()));
            String address = lines.readLine();
            // The run may have ended before one of them joins it, which it says.
            Process first = start(example("WordCount.java"), "work", address);
            Process second = start(example("WordCount.java"), "work", address);
            assertEquals(List.of("one 5000", "two 10000"), lines.lines().toList());
            assertEquals(0, opener.waitFor());
            first.waitFor();
            second.waitFor();
        }
    }

    @Test
    void theProgramOfTheGuide(@TempDir Path temporary) throws Exception {
        String guide = Files.readString(ROOT.resolve("docs/guides/java.md"));
        int begin = guide.indexOf("```java\n") + "```java\n".length();
        String program = guide.substring(begin, guide.indexOf("```", begin));
        Path source = Files.writeString(temporary.resolve("Read.java"), program);
        try (TestFolder folder = new TestFolder(ExamplesTest.class)) {
            write(folder.client, "/texts/whale.txt", "call me ishmael\n");
            assertEquals("call me ishmael\n", output(start(source)));
        }
        assertTrue(program.contains("EyasClient"), program);
    }

    private static void write(EyasClient client, String path, String text) throws IOException {
        try (EyasWriter writer = client.create(path, WriteOptions.REPLACE)) {
            writer.write(text.getBytes(StandardCharsets.UTF_8));
            writer.publish();
        }
    }
}
