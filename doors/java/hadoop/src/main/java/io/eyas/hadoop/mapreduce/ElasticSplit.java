package io.eyas.hadoop.mapreduce;

import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.io.Writable;
import org.apache.hadoop.mapreduce.InputSplit;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/** A map task of a run, and the files that it reads as a whole. */
public final class ElasticSplit extends InputSplit implements Writable {
    /** A file that one task reads. */
    record WholeFile(Path path, long sizeBytes) {}

    private String run;
    private int task;
    private long expectedBytes;
    private List<String> hosts;
    private final List<WholeFile> files = new ArrayList<>();

    /** The constructor that Hadoop calls before {@link #readFields}. */
    public ElasticSplit() {}

    ElasticSplit(String run, int task, long expectedBytes, List<String> hosts) {
        this.run = run;
        this.task = task;
        this.expectedBytes = expectedBytes;
        this.hosts = hosts;
    }

    void add(Path path, long sizeBytes) {
        files.add(new WholeFile(path, sizeBytes));
    }

    long wholeBytes() {
        return files.stream().mapToLong(WholeFile::sizeBytes).sum();
    }

    /** The address of the run; empty if there is none. */
    String run() {
        return run;
    }

    int task() {
        return task;
    }

    List<WholeFile> files() {
        return files;
    }

    /** The equal share of a task; it may read more or less. */
    @Override
    public long getLength() {
        return expectedBytes;
    }

    @Override
    public String[] getLocations() {
        return hosts == null ? new String[0] : hosts.toArray(String[]::new);
    }

    @Override
    public void write(DataOutput out) throws IOException {
        Text.writeString(out, run);
        out.writeInt(task);
        out.writeLong(expectedBytes);
        out.writeInt(files.size());
        for (WholeFile file : files) {
            Text.writeString(out, file.path().toString());
            out.writeLong(file.sizeBytes());
        }
    }

    @Override
    public void readFields(DataInput in) throws IOException {
        run = Text.readString(in);
        task = in.readInt();
        expectedBytes = in.readLong();
        files.clear();
        for (int left = in.readInt(); left > 0; left--) {
            Path path = new Path(Text.readString(in));
            files.add(new WholeFile(path, in.readLong()));
        }
    }

    @Override
    public String toString() {
        return "task " + task + " of run " + run;
    }
}
