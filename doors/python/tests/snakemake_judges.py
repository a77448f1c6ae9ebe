"""Snakemake's own tests of executors and storage, with jobs on eyas and files of the cluster."""

import uuid

import pytest
from files_cluster import files_cluster
from snakemake.common.tests import TestWorkflowsLocalStorageBase
from snakemake_executor_plugin_eyas import ExecutorSettings
from snakemake_interface_common.plugin_registry.plugin import TaggedSettings
from snakemake_interface_storage_plugins.tests import TestStorageBase
from snakemake_storage_plugin_eyas import StorageProvider, StorageProviderSettings


class TestExecutor(TestWorkflowsLocalStorageBase):
    __test__ = True

    def get_executor(self):
        return "eyas"

    def get_executor_settings(self):
        return ExecutorSettings()


class TestExecutorWithCopies(TestExecutor):
    """Jobs read copies of their inputs."""

    def get_executor_settings(self):
        return ExecutorSettings(inputs="node")


@pytest.fixture(scope="class")
def cluster(request):
    with files_cluster() as access:
        request.cls.access = str(access)
        yield


@pytest.mark.usefixtures("cluster")
class TestExecutorWithStorage(TestExecutor):
    """Files of rules are files of the cluster."""

    def get_executor_settings(self):
        return ExecutorSettings(access=self.access)

    def get_assume_shared_fs(self):
        return False

    def get_default_storage_provider(self):
        return "eyas"

    def get_default_storage_prefix(self):
        return f"eyas:///{uuid.uuid4().hex}"

    def get_default_storage_provider_settings(self):
        tagged = TaggedSettings()
        tagged.register_settings(StorageProviderSettings(access=self.access))
        return {"eyas": tagged}


@pytest.mark.usefixtures("cluster")
class TestStorage(TestStorageBase):
    __test__ = True
    touch = True
    files_only = False

    def get_storage_provider_cls(self):
        return StorageProvider

    def get_storage_provider_settings(self):
        return StorageProviderSettings(access=self.access)

    def get_query(self, tmp_path):
        return f"eyas:///{tmp_path.name}/test.txt"

    def get_query_not_existing(self, tmp_path):
        return f"eyas:///{tmp_path.name}/missing.txt"
