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
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._blocks import Piece
    from ._commands import Completed
    from ._engines._dask import on_dask
    from ._engines._ray import on_ray
    from ._engines._spark import on_spark
    from ._errors import CallFailed, ClusterError, ClusterLost
    from ._executor import Executor, connect, local
    from ._files import File, Output
    from ._futures import Future, KeptFile
    from ._options import options
    from ._progress import progress
    from ._shared import Shared
    from ._sides import EnvironmentMismatch
    from ._worker import released

if "t" in sys.abiflags:
    raise ImportError(
        "eyas does not run on free-threaded builds of CPython: use the standard build of the same version, such as "
        "python3.13 instead of python3.13t"
    )

__all__ = [
    "CallFailed",
    "ClusterError",
    "ClusterLost",
    "Completed",
    "EnvironmentMismatch",
    "Executor",
    "File",
    "Future",
    "KeptFile",
    "Output",
    "Piece",
    "Shared",
    "connect",
    "local",
    "on_dask",
    "on_ray",
    "on_spark",
    "options",
    "progress",
    "released",
]

_MODULES = {
    "_blocks": ["Piece"],
    "_commands": ["Completed"],
    "_engines._dask": ["on_dask"],
    "_engines._ray": ["on_ray"],
    "_engines._spark": ["on_spark"],
    "_errors": ["CallFailed", "ClusterError", "ClusterLost"],
    "_executor": ["Executor", "connect", "local"],
    "_files": ["File", "Output"],
    "_futures": ["Future", "KeptFile"],
    "_options": ["options"],
    "_progress": ["progress"],
    "_shared": ["Shared"],
    "_sides": ["EnvironmentMismatch"],
    "_worker": ["released"],
}


def __getattr__(name: str) -> object:
    """Import what is used: workers import this package, and need little of it."""
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value
