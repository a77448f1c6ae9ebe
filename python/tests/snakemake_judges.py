"""Snakemake's own tests of executors, with jobs on eyas."""

from snakemake.common.tests import TestWorkflowsLocalStorageBase
from snakemake_executor_plugin_eyas import ExecutorSettings


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
