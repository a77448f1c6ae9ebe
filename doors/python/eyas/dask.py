"""Runs graphs of Dask on an executor: one call for each task, with the results of others as its
arguments.

>>> import dask, eyas.dask
>>> with eyas.local() as executor:
...     settings = {"scheduler": eyas.dask.get, "eyas.executor": executor}
...     with dask.config.set(settings):
...         collection.compute()
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping
from concurrent import futures
from typing import Any

from ._executor.executor import Executor, local
from ._optional import Needs
from ._worker.worker import released

with Needs("dask", "eyas.dask", "eyas[dask]"):
    import dask
    from dask._task_spec import (
        Alias,
        DataNode,
        GraphNode,
        convert_legacy_graph,
        cull,
        fuse_linear_task_spec,
    )
    from dask.core import flatten
    from dask.local import nested_get
    from dask.order import order
    from dask.sizeof import sizeof
    from dask.utils import ensure_dict

__all__ = ["get"]

#: A constant of a graph goes along with the tasks that use it up to this size in bytes.
_MAX_CARRIED_BYTES = 4096


class _Own:
    """The executor of all that have named none."""

    executor: Executor | None = None
    lock = threading.Lock()


def _own() -> Executor:
    with _Own.lock:
        if _Own.executor is None or _Own.executor._broken is not None:
            _Own.executor = local()
        return _Own.executor


class _Run:
    """The run of a graph."""

    def __init__(self, graph: dict[Hashable, GraphNode], wanted: set[Hashable]) -> None:
        self._graph = graph
        self._wanted = wanted
        self._lock = threading.RLock()
        #: Futures and values of keys that are still used.
        self._values: dict[Hashable, Any] = {}
        #: How many tasks use a key, and have not ended.
        self._uses: dict[Hashable, int] = dict.fromkeys(graph, 0)
        for node in graph.values():
            for key in node.dependencies:
                self._uses[key] += 1
        #: Tasks that have not ended.
        self._outstanding: dict[Hashable, futures.Future[Any]] = {}
        self._has_all = False
        self._error: BaseException | None = None
        self._is_over = threading.Event()

    def _add(self, executor: Executor, key: Hashable, node: GraphNode) -> None:
        if isinstance(node, Alias):
            # One more name of the same future.
            self._values[key] = self._values[node.target]
            return self._free(node)
        if isinstance(node, DataNode) and (
            self._uses[key] < 2 or key in self._wanted or sizeof(node.value) <= _MAX_CARRIED_BYTES
        ):
            self._values[key] = node.value
            return None
        with self._lock:
            arguments = {needed: self._values[needed] for needed in node.dependencies}
        future = executor.submit(node, arguments)
        with self._lock:
            self._values[key] = self._outstanding[key] = future
        future.add_done_callback(lambda done: self._end(key, node, done))
        return None

    def _free(self, node: GraphNode) -> None:
        """A task needs its arguments no longer."""
        with self._lock:
            for key in node.dependencies:
                self._uses[key] -= 1
                if self._uses[key] == 0 and key not in self._wanted:
                    del self._values[key]

    def _end(self, key: Hashable, node: GraphNode, future: futures.Future[Any]) -> None:
        error = futures.CancelledError() if future.cancelled() else futures.Future.exception(future)
        with self._lock:
            self._outstanding.pop(key, None)
            if error is not None and self._error is None:
                self._error = error
            if self._error is not None or self._has_all and not self._outstanding:
                self._is_over.set()
        self._free(node)

    def run(self, executor: Executor) -> dict[Hashable, Any]:
        """Return the values of the keys that are wanted."""
        # In an order in which results are used soon. Dependencies come first.
        priorities = order(self._graph)
        try:
            for key in sorted(self._graph, key=priorities.__getitem__):
                if self._is_over.is_set():
                    break
                self._add(executor, key, self._graph[key])
            with self._lock:
                self._has_all = True
                if not self._outstanding:
                    self._is_over.set()
            # In a call, its tasks may need its processors.
            with released():
                self._is_over.wait()
            if self._error is not None:
                raise self._error
            values = {key: self._values[key] for key in self._wanted}
            return {
                key: value.result() if isinstance(value, futures.Future) else value
                for key, value in values.items()
            }
        finally:
            with self._lock:
                outstanding = list(self._outstanding.values())
            for future in outstanding:
                future.cancel()
            self._error = None


def get(dsk: Mapping[Any, Any], keys: Any, executor: Executor | None = None, **_: Any) -> Any:
    """Compute the values of keys of a graph, as the schedulers of Dask do.

    It runs on this executor, else on the one of Dask's configuration ``eyas.executor``, else on a
    cluster of this process on this machine. Raises the first exception of a task.
    """
    if executor is None:
        executor = dask.config.get("eyas.executor", None)
    if executor is None:
        executor = _own()
    if not isinstance(executor, Executor):
        raise TypeError(f"the executor is {executor!r}, not an eyas.Executor")
    if hasattr(dsk, "__dask_graph__"):
        dsk = dsk.__dask_graph__()
    wanted = set(flatten(keys)) if isinstance(keys, list) else {keys}
    graph = convert_legacy_graph(ensure_dict(dsk))
    if missing := wanted - graph.keys():
        raise KeyError(next(iter(missing)))
    graph = fuse_linear_task_spec(cull(graph, wanted), wanted)
    return nested_get(keys, _Run(graph, wanted).run(executor))
