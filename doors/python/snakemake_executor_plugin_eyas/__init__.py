"""Runs jobs of Snakemake on an eyas cluster: ``snakemake --executor eyas --jobs 100``.

A job runs in a child of a worker that has imported Snakemake before. The end of a job comes from
the cluster without a question: no job is polled. Nodes read inputs from copies of their own.
"""

import contextlib
import os
import shlex
import stat
import sys
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import Any, Optional

import eyas
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.settings import (
    CommonSettings,
    ExecutorSettingsBase,
    SharedFSUsage,
)
from snakemake_interface_executor_plugins.utils import format_cli_arg, join_cli_args

from . import _job
from ._resources import options_of

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

#: Seconds between two looks at jobs whose end was not announced. It bounds what a lost wake-up
#: costs.
_LOOK_S = 10.0


def _setting(text: str, default: Any = None, **metadata: Any) -> Any:
    return field(default=default, metadata={"help": text, **metadata})


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    """Options of ``--executor eyas``."""

    cluster: Optional[str] = _setting(
        "Name of the cluster. Without a name and an access file, EYAS_ACCESS and EYAS_CLUSTER name "
        "the cluster, and without these, a cluster on this machine is started, which ends with the "
        "workflow."
    )
    access: Optional[str] = _setting("Access file of the cluster.")
    nodes: int = _setting("Number of nodes of a cluster that is started for the workflow.", 1)
    inputs: Optional[str] = _setting(
        "Where jobs read the input files of their rules: 'node': from a copy on the node, which "
        "other jobs read, too, and jobs run where their inputs are; 'shared': from the shared file "
        "system. By default 'node', and 'shared' on a cluster that is started for the workflow.",
        metavar="{node,shared}",
    )

    def __post_init__(self) -> None:
        """Check the options."""
        if self.inputs not in (None, "node", "shared"):
            raise WorkflowError(f"--eyas-inputs is 'node' or 'shared', and not {self.inputs!r}")
        if self.nodes < 1:
            raise WorkflowError("--eyas-nodes must be 1 or more")


common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=True,
    # They are arguments of the call.
    pass_envvar_declarations_to_cmd=False,
    # Nodes have the packages of the client.
    auto_deploy_default_storage_provider=False,
)


def _named(settings: Any) -> tuple[Optional[str], Optional[str]]:
    """Return the name or the access file of a cluster, from options or the environment."""
    access = settings.access or (None if settings.cluster else os.environ.get("EYAS_ACCESS"))
    name = None if access else settings.cluster or os.environ.get("EYAS_CLUSTER")
    return name, None if access is None else os.path.abspath(access)


class Executor(RemoteExecutor):
    """Makes a call on the cluster of each job."""

    def __init__(self, workflow: Any, logger: Any) -> None:
        """Start or join the cluster."""
        # The thread that looks at jobs starts before `__post_init__` is called.
        self._has_news = threading.Event()
        self._cluster: eyas.Executor | None = None
        super().__init__(workflow, logger)

    def __post_init__(self) -> None:
        """Start or join the cluster."""
        settings = self.executor_settings or ExecutorSettings()
        cluster, access = _named(settings)
        is_own = access is None and cluster is None
        cores = self.workflow.resource_settings.cores
        try:
            self._cluster = eyas.Executor(
                cores if is_own and isinstance(cores, int) and cores < 1 << 16 else None,
                cluster=cluster,
                access=access,
                nodes=settings.nodes,
                name="snakemake",
                # No job finds what an earlier one has left.
                reuse="fork",
                initializer=_job.prepare,
            )
        except eyas.ClusterError as error:
            raise WorkflowError(f"The eyas cluster cannot be used: {error}") from error
        self._job = self._cluster._state.session.job
        #: Processors of the largest node, if the cluster cannot grow.
        self._max_cpus = None
        if is_own:
            self._max_cpus = (
                max(node["capacity"]["cpus_milli"] for node in self._cluster.nodes()) / 1000
            )
        self._named = (cluster, access)
        usage = self.workflow.storage_settings.shared_fs_usage
        # Without, jobs retrieve files of storage providers themselves.
        self._has_shared_copies = SharedFSUsage.STORAGE_LOCAL_COPIES in usage
        self._has_common_folder = self.workflow.storage_settings.assume_common_workdir
        self._has_node_inputs = (settings.inputs or ("shared" if is_own else "node")) == "node"
        self._has_node_inputs = self._has_node_inputs and SharedFSUsage.INPUT_OUTPUT in usage
        prefixes = self.workflow.storage_settings
        self._has_default_prefix = (
            prefixes.remote_job_local_storage_prefix == prefixes.local_storage_prefix
        )
        self._variables = dict(self.envvars())
        if SharedFSUsage.SOFTWARE_DEPLOYMENT in usage:
            self._variables = {**_job.software_variables(), **self._variables}
        #: Nodes whose jobs read inputs from shared storage.
        self._told: set[str] = set()

    def _words(self, job: Any) -> list[str]:
        """Return the arguments of the Snakemake that runs a job, as ``format_job_exec`` puts them
        together.
        """
        arguments = join_cli_args(
            [
                format_cli_arg("--snakefile", self.get_snakefile()),
                self.get_job_args(job),
                self.workflow.spawned_job_args_factory.general_args(
                    executor_common_settings=self.common_settings
                ),
                self.additional_general_args(),
                format_cli_arg("--mode", self.get_exec_mode().item_to_choice()),
            ]
        )
        words = shlex.split(arguments)
        # One job needs no choice among jobs, for which the default scheduler starts a solver.
        return words if job.is_group() else [*words, "--scheduler", "greedy"]

    def run_job(self, job: Any) -> None:
        """Submit a job, or the jobs of a group as one."""
        assert self._cluster is not None
        log = os.path.abspath(os.path.join(".snakemake", "eyas_logs", job.name, f"{job.jobid}.log"))
        with contextlib.suppress(OSError):
            # It is of an earlier run.
            os.unlink(log)
        call = _job.Job(
            words=self._words(job),
            precommand=self.workflow.spawned_job_args_factory.precommand(
                # The interpreter of workers, too.
                executor_common_settings=self.common_settings,
                python_executable=shlex.quote(sys.executable),
            ),
            folder=os.getcwd() if self._has_common_folder else None,
            log=log if self._has_common_folder else None,
            variables=self._variables,
            inputs=self._inputs_of(job),
            stored=self._stored_inputs_of(job),
            has_own_copies=not self._has_shared_copies and self._has_default_prefix,
        )
        try:
            options = options_of(job, self._max_cpus)
            future = self._cluster.with_options(**options).submit(_job.run, call)
        except (eyas.ClusterError, eyas.ClusterLost, ValueError) as error:
            raise WorkflowError(
                f"Job {job.jobid} ({job.name}) cannot be submitted: {error}"
            ) from error
        task = f"{self._job}.{future.task}"
        info = SubmittedJobInfo(job, external_jobid=task, aux={"future": future, "log": call.log})
        self.report_job_submission(info)
        future.add_done_callback(lambda _: self._has_news.set())

    def _inputs_of(self, job: Any) -> list[tuple[str, eyas.File]]:
        """Return input files of a job, and what gives their copies on its node."""
        if not self._has_node_inputs:
            return []
        # A job may update one of its inputs.
        changed = {os.path.realpath(path) for path in job.output}
        inputs = {}
        for path in job.input:
            if path.is_storage:
                continue
            whole = os.path.abspath(path)
            try:
                is_file = stat.S_ISREG(os.stat(whole).st_mode)
            except OSError:
                # The job says what it misses.
                continue
            if is_file and os.path.realpath(whole) not in changed:
                inputs[whole] = eyas.File(whole)
        return list(inputs.items())

    def _stored_inputs_of(self, job: Any) -> list[tuple[str, eyas.File]]:
        """Return inputs that are files of the cluster, and what gives their copies on the node of
        the job.
        """
        if self._has_shared_copies:
            return []
        found = {}
        for path in job.input:
            if path.is_storage and path.storage_object.query.startswith("eyas:///"):
                stored = path.storage_object
                if (
                    _named(stored.provider.settings or ExecutorSettings()) == self._named
                    and stored.is_file()
                ):
                    found[stored.query] = eyas.File(stored.query)
        return list(found.items())

    async def check_active_jobs(
        self, active_jobs: list[SubmittedJobInfo]
    ) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Report the jobs that have ended."""
        for info in active_jobs:
            assert info.aux is not None
            future = info.aux["future"]
            if future.done():
                self._report(info, future)
            else:
                yield info

    def _report(self, info: SubmittedJobInfo, future: Future[_job.Ended]) -> None:
        assert info.aux is not None
        try:
            ended = future.result()
        except (Exception, CancelledError) as error:
            # The last line is the exit code, and the notes have the task, the node and what it has
            # printed.
            text = "\n".join([str(error), *getattr(error, "__notes__", [])])
            log = [info.aux["log"]] if info.aux["log"] and os.path.exists(info.aux["log"]) else []
            if info.job.is_group():
                self.logger.error(text)
            self.report_job_error(info, msg=f"{text}\n", aux_logs=log)
            return
        if ended.why_shared and ended.host not in self._told:
            self._told.add(ended.host)
            self.logger.warning(
                f"Jobs on {ended.host} read inputs from shared storage, and their copies are in "
                f"vain: {ended.why_shared}. Run with --eyas-inputs shared, or permit user "
                "namespaces on the node."
            )
        self.report_job_success(info)

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """End jobs, also those that run."""
        for info in active_jobs:
            assert info.aux is not None
            info.aux["future"].cancel()

    async def sleep(self) -> None:
        """Wait until a job has ended."""
        # The thread of this loop does nothing else.
        self._has_news.wait(_LOOK_S)
        self._has_news.clear()

    def shutdown(self) -> None:
        """Take no more jobs, and stop the cluster of this workflow."""
        with self.lock:
            self.wait = False
        self._has_news.set()
        super().shutdown()
        if self._cluster is not None:
            self._cluster.shutdown()
