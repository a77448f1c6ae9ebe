"""Runs :class:`joblib.Parallel` on an executor. Without one, on a cluster of this process on this
machine.

>>> import eyas.joblib
>>> with eyas.local() as executor, eyas.joblib.backend(executor):
...     joblib.Parallel()(joblib.delayed(abs)(number) for number in range(10))
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any

from ._executor.executor import Executor, local
from ._executor.futures import Future
from ._optional import Needs

with Needs("joblib", "eyas.joblib", "eyas[joblib]"):
    import joblib
    from joblib.parallel import AutoBatchingMixin, ParallelBackendBase

__all__ = ["EyasBackend", "backend"]


class EyasBackend(AutoBatchingMixin, ParallelBackendBase):
    """A backend of joblib. Short calls go in batches, whose size joblib finds."""

    supports_retrieve_callback = True
    supports_sharedmem = False
    supports_timeout = True
    default_n_jobs = -1
    #: The executor of all that have named none.
    _own: Executor | None = None
    _lock = threading.Lock()

    def __init__(
        self, executor: Executor | None = None, nesting_level: int | None = None, **options: Any
    ) -> None:
        """Run calls on this executor."""
        super().__init__(nesting_level=nesting_level, **options)
        self._executor = executor
        self._outstanding: set[futures.Future[Any]] = set()

    def _pool(self) -> Executor:
        if self._executor is None:
            with EyasBackend._lock:
                if EyasBackend._own is None or EyasBackend._own._broken is not None:
                    EyasBackend._own = local()
                self._executor = EyasBackend._own
        return self._executor

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return how many calls run at the same time."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        workers = self._pool()._max_workers
        if n_jobs is None:
            return workers
        return n_jobs if n_jobs > 0 else max(1, workers + 1 + n_jobs)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **_: Any) -> int:
        """Begin a ``Parallel``."""
        self.parallel = parallel
        self._outstanding = set()
        return self.effective_n_jobs(n_jobs)

    def submit(
        self,
        func: Callable[[], Any],
        callback: Callable[[futures.Future[Any]], object] | None = None,
    ) -> Future[Any]:
        """Add a batch of calls."""
        future = self._pool().submit(func)
        self._outstanding.add(future)
        future.add_done_callback(self._outstanding.discard)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """Return the results of a batch."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel all batches."""
        for future in list(self._outstanding):
            future.cancel()
        futures.wait(list(self._outstanding))


def backend(executor: Executor, **options: Any) -> Any:
    """Return a context in which ``Parallel`` runs on an executor."""
    return joblib.parallel_config("eyas", executor=executor, **options)


joblib.register_parallel_backend("eyas", EyasBackend)
