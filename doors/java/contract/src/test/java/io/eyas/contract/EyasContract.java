package io.eyas.contract;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.contract.AbstractFSContract;

import java.io.IOException;
import java.net.URI;

/** What Hadoop's suites are told of eyas. */
final class EyasContract extends AbstractFSContract {
    EyasContract(Configuration configuration) {
        super(configuration);
        addConfResource("contract/eyas.xml");
    }

    @Override
    public FileSystem getTestFileSystem() throws IOException {
        return FileSystem.get(URI.create("eyas:///"), getConf());
    }

    @Override
    public String getScheme() {
        return "eyas";
    }

    @Override
    public Path getTestPath() {
        return new Path("/contract");
    }
}
