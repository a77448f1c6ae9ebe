package io.eyas.contract;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSMainOperationsBaseTest;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileContextCreateMkdirBaseTest;
import org.apache.hadoop.fs.FileContextMainOperationsBaseTest;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FileSystemContractBaseTest;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.BeforeEach;

import java.net.URI;

// Older suites of Hadoop, of a FileSystem and of a FileContext.

final class Suites {
    static final URI CLUSTER = URI.create("eyas:///");

    private Suites() {}

    static Configuration configuration() {
        Configuration configuration = new Configuration();
        configuration.set("fs.AbstractFileSystem.eyas.impl", "io.eyas.hadoop.EyasFs");
        configuration.set("fs.defaultFS", CLUSTER.toString());
        return configuration;
    }

    static FileContext context() throws Exception {
        return FileContext.getFileContext(CLUSTER, configuration());
    }
}

class FileSystemContractTest extends FileSystemContractBaseTest {
    @BeforeEach
    public void setUp() throws Exception {
        fs = FileSystem.newInstance(Suites.CLUSTER, Suites.configuration());
    }
}

class MainOperationsTest extends FSMainOperationsBaseTest {
    @Override
    protected FileSystem createFileSystem() throws Exception {
        return FileSystem.newInstance(Suites.CLUSTER, Suites.configuration());
    }

    @Override
    protected Path getDefaultWorkingDirectory() {
        return fSys.getHomeDirectory();
    }
}

class ContextMainOperationsTest extends FileContextMainOperationsBaseTest {
    @Override
    @BeforeEach
    public void setUp() throws Exception {
        fc = Suites.context();
        super.setUp();
    }

    @Override
    protected boolean listCorruptedBlocksSupported() {
        return false;
    }
}

class ContextCreateMkdirTest extends FileContextCreateMkdirBaseTest {
    @Override
    @BeforeEach
    public void setUp() throws Exception {
        fc = Suites.context();
        super.setUp();
    }
}
