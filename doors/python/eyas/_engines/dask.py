"""Executors in the workers of a Dask cluster.

For each thread of a worker, one task of Dask runs as long as the executor, so that Dask's scheduler
sees the worker as busy. The first of them starts the executor.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from .._errors import ClusterError
from .cluster import ByValue, EngineCluster, executor_on, own_address
from .node import Description, Node, StartFailed

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._executor.executor import Executor, ExecutorOptions

#: Seconds between two looks of a task at its worker.
_LOOK_EVERY_S = 0.25
#: Seconds that Dask has to end the tasks.
_END_DEADLINE_S = 30.0

_LOGGER = logging.getLogger("eyas")


def _stop_event(worker: Any, key: str) -> threading.Event:
    """Return the event, the same one for all tasks in a worker, that ends them."""
    events: dict[str, threading.Event] = worker.__dict__.setdefault("_eyas_stops", {})
    return events.setdefault(key, threading.Event())


def _holder(key: str, description: Description | None) -> Any:
    """Return the task that holds one thread of a worker."""

    def hold() -> None:
        from distributed import get_worker

        worker = get_worker()
        stop = _stop_event(worker, key)
        if stop.is_set():
            return
        node = None if description is None else Node(description)
        try:
            while not stop.wait(_LOOK_EVERY_S) and worker.status.name in (
                "init",
                "running",
                "paused",
            ):
                if node is not None and node.wait(0):
                    return
        finally:
            if node is not None:
                # It may have ended because its client has.
                stop.set()
                node.stop()

    return hold


def _releaser(key: str) -> Any:
    def release(dask_worker: Any) -> None:
        _stop_event(dask_worker, key).set()

    return release


class _DaskEngine:
    def __init__(self, client: Any, grows: bool) -> None:
        self._client = client
        self._grows = grows
        #: The tasks of each worker, by its address and id. The first one starts the executor.
        self._held: dict[tuple[str, str], tuple[str, list[Any]]] = {}
        #: Workers whose failure was told.
        self._told: set[tuple[str, str]] = set()

    def _workers(self) -> dict[tuple[str, str], dict[str, Any]]:
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        return {(address, str(info["id"])): info for address, info in workers.items()}

    def start(self, cluster: EngineCluster) -> None:
        self._cluster = cluster
        self._take(self._workers())
        if not self._held:
            raise ClusterError(
                "the Dask cluster has no workers: wait for some with client.wait_for_workers(1)"
            )

    def _take(self, workers: dict[tuple[str, str], dict[str, Any]]) -> None:
        import cloudpickle

        for worker, info in workers.items():
            if worker in self._held:
                continue
            address, key = worker[0], f"{self._cluster.key}-{len(self._held)}"
            resources = info.get("resources") or {}
            description = self._cluster.describe(
                address,
                len(self._held),
                info["nthreads"],
                info["memory_limit"] or None,
                int(resources.get("GPU", 0)),
            )
            tasks = [
                self._client.submit(
                    ByValue(
                        _holder(self._cluster.key, None if number else description), cloudpickle
                    ),
                    key=f"{key}-{number}",
                    pure=False,
                    workers=[address],
                    allow_other_workers=False,
                    resources=None if number else resources,
                    # A worker that has died must not be waited for.
                    retries=0,
                )
                for number in range(info["nthreads"])
            ]
            self._held[worker] = (description.name, tasks)

    def missing(self, joined: set[str]) -> list[str]:
        for _, tasks in self._held.values():
            if (error := _error_of(tasks)) is not None:
                raise ClusterError(str(error)) from error
        return [address for (address, _), (name, _) in self._held.items() if name not in joined]

    def look(self) -> bool:
        if self._client.status != "running":
            return False
        if self._grows:
            self._take(self._workers())
        for worker, (_, tasks) in self._held.items():
            if worker not in self._told and (error := _error_of(tasks)) is not None:
                self._told.add(worker)
                _LOGGER.warning("%s", error)
        return True

    def stop(self) -> None:
        if self._client.status != "running":
            return
        import cloudpickle
        from distributed import wait

        try:
            alive = self._workers().keys() & self._held.keys()
            if not alive:
                return
            addresses = [address for address, _ in alive]
            self._client.run(
                ByValue(_releaser(self._cluster.key), cloudpickle),
                workers=addresses,
                on_error="ignore",
            )
            wait(
                [task for worker in alive for task in self._held[worker][1]],
                timeout=_END_DEADLINE_S,
            )
        except (OSError, TimeoutError) as error:
            _LOGGER.warning("Dask does not answer: %s", error)
        finally:
            # Tasks of workers that have died wait for them.
            self._client.cancel([task for _, tasks in self._held.values() for task in tasks])
            self._held.clear()


def _error_of(tasks: list[Any]) -> BaseException | None:
    """Return why the executor of these tasks has failed. That its worker has ended is Dask's to
    tell.
    """
    if not tasks or tasks[0].status != "error":
        return None
    error = tasks[0].exception()
    # The class was carried by value, so that it is another one here.
    return error if type(error).__name__ == StartFailed.__name__ else None


def on_dask(
    client: Any,
    *,
    new_workers: bool = True,
    host: str | None = None,
    start_timeout: float = 120.0,
    files: bool = False,
    **options: Unpack[ExecutorOptions],
) -> Executor:
    """Return an executor inside the workers of the Dask cluster of a :class:`distributed.Client`.

    Each worker gives it all its threads, its memory limit, and as many GPUs as its resource ``GPU``
    says. For Dask the workers are busy until the executor is shut down. With ``new_workers``, it
    also gets workers that join later. The workers reach this process at ``host``, which is found by
    the way to Dask's scheduler.

    With ``files``, the executors keep files of the cluster, ``eyas:///…``; large arguments and
    shared values are such files, too.

    Raises :class:`ClusterError` if an executor cannot start, or has not joined after
    ``start_timeout`` seconds.
    """
    if getattr(client, "asynchronous", False):
        raise ValueError("on_dask needs a Client that is not asynchronous")
    if client.status != "running":
        raise ClusterError(f"the Dask client is {client.status}, not running")
    if host is None:
        # In-process clusters have no host.
        place = urlsplit(client.scheduler.address)
        has_host = place.scheme in ("tcp", "tls", "ws", "wss") and place.hostname
        host = own_address(str(place.hostname)) if has_host else "127.0.0.1"
    return executor_on(
        _DaskEngine(client, new_workers), host, start_timeout, options, has_files=files
    )
