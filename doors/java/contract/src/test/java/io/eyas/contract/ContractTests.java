package io.eyas.contract;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.contract.AbstractContractAppendTest;
import org.apache.hadoop.fs.contract.AbstractContractBulkDeleteTest;
import org.apache.hadoop.fs.contract.AbstractContractConcatTest;
import org.apache.hadoop.fs.contract.AbstractContractContentSummaryTest;
import org.apache.hadoop.fs.contract.AbstractContractCopyFromLocalTest;
import org.apache.hadoop.fs.contract.AbstractContractCreateTest;
import org.apache.hadoop.fs.contract.AbstractContractDeleteTest;
import org.apache.hadoop.fs.contract.AbstractContractGetEnclosingRoot;
import org.apache.hadoop.fs.contract.AbstractContractGetFileStatusTest;
import org.apache.hadoop.fs.contract.AbstractContractMkdirTest;
import org.apache.hadoop.fs.contract.AbstractContractOpenTest;
import org.apache.hadoop.fs.contract.AbstractContractPathHandleTest;
import org.apache.hadoop.fs.contract.AbstractContractRenameTest;
import org.apache.hadoop.fs.contract.AbstractContractRootDirectoryTest;
import org.apache.hadoop.fs.contract.AbstractContractSeekTest;
import org.apache.hadoop.fs.contract.AbstractContractSetTimesTest;
import org.apache.hadoop.fs.contract.AbstractContractUnbufferTest;
import org.apache.hadoop.fs.contract.AbstractContractVectoredReadTest;
import org.apache.hadoop.fs.contract.AbstractFSContract;

// Hadoop's suites of a FileSystem, one class for each.

class AppendTest extends AbstractContractAppendTest {
    @Override
    protected AbstractFSContract createContract(Configuration configuration) {
        return new EyasContract(configuration);
    }
}

class BulkDeleteTest extends AbstractContractBulkDeleteTest {
    @Override
    protected AbstractFSContract createContract(Configuration configuration) {
        return new EyasContract(configuration);
    }
}

class ConcatTest extends AbstractContractConcatTest {
    @Override
    protected AbstractFSContract createContract(Configuration configuration) {
        return new EyasContract(configuration);
    }
}

class ContentSummaryTest extends AbstractContractContentSummaryTest {
    @Override
    protected AbstractFSContract createContract(Configuration configuration) {
        return new EyasContract(configuration);
    }
}

class CopyFromLocalTest extends AbstractContractCopyFromLocalTest {
    @Override
    protected AbstractFSContract createContract(Configuration configuration) {
        return new EyasContract(configuration);
    }
}

class CreateTest extends AbstractContractCreateTest {
    @Override
    protected AbstractFSContract createContract(Configuration configuration) {
        return new EyasContract(configuration);
    }
}

class DeleteTest extends AbstractContractDeleteTest {
    @Override
    protected AbstractFSContract createContract(Configuration configuration) {
        return new EyasContract(configuration);
    }
}

class GetEnclosingRootTest extends AbstractContractGetEnclosingRoot {
    @Override
    protected AbstractFSContract createContract(Configuration configuration) {
        return new EyasContract(configuration);
    }
}

class GetFileStatusTest extends AbstractContractGetFileStatusTest {
    @Override
    protected AbstractFSContract createContract(Configuration configuration) {
        return new EyasContract(configuration);
    }
}

class MkdirTest extends AbstractContractMkdirTest {
    @Override
    protected AbstractFSContract createContract(Configuration configuration) {
        return new EyasContract(configuration);
    }
}

class OpenTest extends AbstractContractOpenTest {
    @Override
    protected AbstractFSContract createContract(Configuration configuration) {
        return new EyasContract(configuration);
    }
}

class PathHandleTest extends AbstractContractPathHandleTest {
    @Override
    protected AbstractFSContract createContract(Configuration configuration) {
        return new EyasContract(configuration);
    }
}

class RenameTest extends AbstractContractRenameTest {
    @Override
    protected AbstractFSContract createContract(Configuration configuration) {
        return new EyasContract(configuration);
    }
}

class RootDirectoryTest extends AbstractContractRootDirectoryTest {
    @Override
    protected AbstractFSContract createContract(Configuration configuration) {
        return new EyasContract(configuration);
    }
}

class SeekTest extends AbstractContractSeekTest {
    @Override
    protected AbstractFSContract createContract(Configuration configuration) {
        return new EyasContract(configuration);
    }
}

class SetTimesTest extends AbstractContractSetTimesTest {
    @Override
    protected AbstractFSContract createContract(Configuration configuration) {
        return new EyasContract(configuration);
    }
}

class UnbufferTest extends AbstractContractUnbufferTest {
    @Override
    protected AbstractFSContract createContract(Configuration configuration) {
        return new EyasContract(configuration);
    }
}

class VectoredReadTest extends AbstractContractVectoredReadTest {
    VectoredReadTest(String bufferType) {
        super(bufferType);
    }

    @Override
    protected AbstractFSContract createContract(Configuration configuration) {
        return new EyasContract(configuration);
    }
}
