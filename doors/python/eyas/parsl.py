"""Runs apps of Parsl on an executor.

>>> parsl.load(parsl.Config(executors=[eyas.parsl.EyasExecutor(max_workers=4)]))
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

from ._executor.executor import Executor
from ._executor.options import Options
from ._optional import Needs

with Needs("parsl", "eyas.parsl", "eyas[parsl]"):
    from parsl.executors.base import ParslExecutor
    from parsl.executors.errors import InvalidResourceSpecification
    from parsl.utils import RepresentationMixin

__all__ = ["EyasExecutor"]


def _options(specification: dict[str, Any]) -> Options:
    """Translate a resource specification of Parsl."""
    known: dict[str, Callable[[Any], Any]] = {
        "cores": float,
        "memory": lambda megabytes: int(megabytes * 1_000_000),
        "gpus": int,
        "priority": int,
    }
    if unknown := specification.keys() - known:
        raise InvalidResourceSpecification(unknown, f"there are {', '.join(known)}")
    names = {"cores": "cpus"}
    return cast(
        Options,
        {names.get(name, name): known[name](value) for name, value in specification.items()},
    )


class EyasExecutor(ParslExecutor, RepresentationMixin):
    """An executor of Parsl. Keywords are those of :class:`eyas.Executor`.

    The resource specification of an app may have ``cores``, ``memory`` (MB), ``gpus`` and
    ``priority``.
    """

    def __init__(self, label: str = "eyas", working_dir: str | None = None, **options: Any) -> None:
        """Describe an executor, which starts with Parsl."""
        super().__init__()
        self.label = label
        self.options = options
        self.working_dir = working_dir
        self.storage_access = None
        self._executor: Executor | None = None

    def start(self) -> None:
        """Start or join the cluster."""
        self._executor = Executor(**self.options)

    def submit(
        self,
        func: Callable[..., Any],
        resource_specification: dict[str, Any],
        *args: Any,
        **kwargs: Any,
    ) -> Future[Any]:
        """Add a call of an app."""
        assert self._executor is not None, "Parsl starts executors before it uses them"
        executor = self._executor
        if resource_specification:
            executor = executor.with_options(**_options(resource_specification))
        return executor.submit(func, *args, **kwargs)

    def shutdown(self) -> None:
        """Wait for all calls, and stop the cluster of this executor."""
        if self._executor is not None:
            self._executor.shutdown()
        super().shutdown()

    def monitor_resources(self) -> bool:
        """Parsl need not look at processes: eyas does."""
        return False
