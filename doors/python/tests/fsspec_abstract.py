"""The tests of fsspec for every file system (copy, get, put, open, pipe), as they are, on files of
a cluster.
"""

import uuid

import fsspec.tests.abstract as abstract
import pytest
from eyas.fs import EyasFileSystem
from files_cluster import files_cluster


@pytest.fixture(scope="session")
def access():
    with files_cluster(nodes=1) as access:
        yield str(access)


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, access):
        return EyasFileSystem(access=access)

    @pytest.fixture
    def fs_path(self):
        return f"/{uuid.uuid4()}"


class TestCopy(abstract.AbstractCopyTests, Fixtures):
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):
    pass
