"""Very many short tasks over very much shared data.

>>> import eyas
>>> with eyas.local() as executor:
...     executor.submit(pow, 2, 10).result()
1024

:class:`Executor` is a :class:`concurrent.futures.Executor`: calls run in worker processes that stay warm, on this
machine (:func:`local`) or on the nodes of a cluster (:func:`connect`).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._commands import Completed
    from ._errors import CallFailed, ClusterError, ClusterLost
    from ._executor import Executor, Future, connect, local
    from ._files import File, Output
    from ._shared import Shared
    from ._sides import EnvironmentMismatch

__all__ = [
    "CallFailed",
    "ClusterError",
    "ClusterLost",
    "Completed",
    "EnvironmentMismatch",
    "Executor",
    "File",
    "Future",
    "Output",
    "Shared",
    "connect",
    "local",
]

_MODULES = {
    "_commands": ["Completed"],
    "_errors": ["CallFailed", "ClusterError", "ClusterLost"],
    "_executor": ["Executor", "Future", "connect", "local"],
    "_files": ["File", "Output"],
    "_shared": ["Shared"],
    "_sides": ["EnvironmentMismatch"],
}


def __getattr__(name: str) -> object:
    """Import what is used: workers import this package, and need little of it."""
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value
