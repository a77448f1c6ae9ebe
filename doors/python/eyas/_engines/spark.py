"""Executors of eyas in the executors of Spark.

A job of Spark with a task for each slot runs as long as the executor of eyas. Of the tasks in one
executor of Spark, one starts an executor of eyas. The others hold their slots, and one of them
takes its place if it fails.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .._errors import ClusterError
from .cluster import ByValue, EngineCluster, executor_on
from .node import Description, Node

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._executor.executor import Executor, ExecutorOptions

#: Seconds between two looks of a task.
_LOOK_EVERY_S = 0.25
#: Seconds that Spark has to end the job.
_END_DEADLINE_S = 30.0

_LOGGER = logging.getLogger("eyas")


def _holder(key: str, description: Description) -> Any:
    """Return the task that holds one slot."""

    def hold(number: int, _: Iterable[Any]) -> Iterator[None]:
        from pyspark import TaskContext

        # The parent starts all Python workers of an executor, whose folders have names of their
        # own.
        executor = f"{os.getppid()} {os.environ.get('SPARK_EXECUTOR_DIRS', '')}"
        name = f"\0{key}-{hashlib.sha256(executor.encode()).hexdigest()[:16]}"
        # An address in the abstract namespace is free again when its process ends.
        with socket.socket(socket.AF_UNIX) as lead:
            while True:
                try:
                    lead.bind(name)
                    break
                except OSError:
                    time.sleep(_LOOK_EVERY_S)
            task = TaskContext.get()
            gpus = task.resources().get("gpu") if task is not None else None
            addresses = list(gpus.addresses) if gpus is not None else []
            if addresses:
                os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(addresses)
            attempt = task.attemptNumber() if task is not None else 0
            node = Node(
                dataclasses.replace(
                    description,
                    worker=socket.gethostname(),
                    name=f"{description.name}-{number}-{attempt}",
                    gpus=len(addresses),
                )
            )
            try:
                while not node.wait(_LOOK_EVERY_S):
                    pass
            finally:
                node.stop()
        return iter(())

    return hold


class _SparkEngine:
    def __init__(self, context: Any) -> None:
        self._context = context
        self._error: BaseException | None = None

    def start(self, cluster: EngineCluster) -> None:
        self._cluster = cluster
        java = self._context._jsc.sc()
        listed = java.statusStore().executorList(True)
        found = [listed.apply(number) for number in range(listed.size())]
        executors = [executor for executor in found if executor.maxTasks() > 0]
        if not executors:
            raise ClusterError("the Spark application has no executors yet: run a job before")
        self._hosts = [executor.hostPort() for executor in executors]
        memory = None
        if not java.isLocal():
            text = self._context.getConf().get("spark.executor.memory", "1g")
            memory = self._context._jvm.org.apache.spark.network.util.JavaUtils.byteStringAsBytes(
                text
            )
        slots = min(executor.totalCores() for executor in executors)
        count = sum(executor.maxTasks() for executor in executors)
        description = cluster.describe("Spark", 0, slots, memory)
        self._job = threading.Thread(
            target=self._run, args=(description, count), name="eyas-spark", daemon=True
        )
        self._job.start()

    def _run(self, description: Description, count: int) -> None:
        """Run the job, which lasts as long as the executor of eyas."""
        from pyspark import cloudpickle

        try:
            self._context.setJobGroup(
                self._cluster.key, "executors of eyas", interruptOnCancel=True
            )
            tasks = self._context.parallelize(range(count), count)
            tasks.mapPartitionsWithIndex(
                ByValue(_holder(self._cluster.key, description), cloudpickle)
            ).count()
        except Exception as error:
            self._error = error

    def missing(self, joined: set[str]) -> list[str]:
        if not self._job.is_alive():
            raise ClusterError(
                f"the job of Spark with the executors has ended: {self._error}"
            ) from self._error
        return self._hosts[len(joined) :]

    def look(self) -> bool:
        return self._job.is_alive()

    def stop(self) -> None:
        deadline = time.monotonic() + _END_DEADLINE_S
        # The job may not have begun.
        while (
            self._job.is_alive() and self._context._jsc is not None and time.monotonic() < deadline
        ):
            try:
                self._context.cancelJobGroup(self._cluster.key)
            except Exception as error:
                _LOGGER.warning("Spark does not answer: %s", error)
                return
            self._job.join(_LOOK_EVERY_S)


def on_spark(
    session: Any,
    *,
    host: str | None = None,
    start_timeout: float = 120.0,
    files: bool = False,
    **options: Unpack[ExecutorOptions],
) -> Executor:
    """Return an executor inside the executors of the Spark application of a
    :class:`pyspark.sql.SparkSession`.

    Each executor of Spark that has joined gives it its cores, as much memory as
    ``spark.executor.memory``, and the GPUs that Spark gives one of its tasks. A job of Spark has
    its slots until the executor is shut down; other jobs of the session wait. Executors that Spark
    adds later replace lost ones alone. They reach this process at ``host``, by default
    ``spark.driver.host``.

    With ``files``, the executors keep files of the cluster, ``eyas:///…``; large arguments and
    shared values are such files, too.

    Raises :class:`ClusterError` if an executor cannot start, or has not joined after
    ``start_timeout`` seconds.
    """
    context = getattr(session, "sparkContext", None) if not _is_connect(session) else None
    if context is None:
        raise ClusterError(
            "on_spark needs a session with a driver in this process, not one of Spark Connect"
        )
    host = host or context.getConf().get("spark.driver.host")
    return executor_on(_SparkEngine(context), host, start_timeout, options, has_files=files)


def _is_connect(session: Any) -> bool:
    return ".connect." in type(session).__module__
