package io.eyas.spark;

import io.eyas.hadoop.mapreduce.ElasticSplit;

import org.apache.spark.sql.connector.read.InputPartition;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;

/** A task of a run, and the compressed files that it reads as a whole. */
final class ElasticPartition implements InputPartition {
    private static final long serialVersionUID = 1;

    /** An {@link ElasticSplit}, as it writes itself. */
    private final byte[] split;

    /** In the driver alone: it must not be collected before this partition. */
    @SuppressWarnings("unused")
    private final transient ScanRun run;

    private final transient String[] hosts;

    private ElasticPartition(byte[] split, ScanRun run, String[] hosts) {
        this.split = split;
        this.run = run;
        this.hosts = hosts;
    }

    static ElasticPartition of(ElasticSplit split, ScanRun run) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        split.write(new DataOutputStream(bytes));
        return new ElasticPartition(bytes.toByteArray(), run, split.getLocations());
    }

    ElasticSplit split() throws IOException {
        ElasticSplit read = new ElasticSplit();
        read.readFields(new DataInputStream(new ByteArrayInputStream(split)));
        return read;
    }

    @Override
    public String[] preferredLocations() {
        return hosts == null ? new String[0] : hosts.clone();
    }
}
