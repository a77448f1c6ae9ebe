"""Very many short tasks over very much shared data.

>>> import eyas
>>> with eyas.local() as executor:
...     executor.submit(pow, 2, 10).result()
1024

:class:`Executor` is a :class:`concurrent.futures.Executor`: calls run in worker processes that stay
warm, on this machine (:func:`local`) or on the nodes of a cluster (:func:`connect`).
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._engines.dask import on_dask
    from ._engines.ray import on_ray
    from ._engines.spark import on_spark
    from ._errors import CallFailed, ClusterError, ClusterLost
    from ._executor.blocks import ChunkMemory, MemoryUse, Piece
    from ._executor.catalog import Catalog, NamedFile
    from ._executor.commands import Completed
    from ._executor.executor import Executor, connect, local
    from ._executor.futures import Future, KeptFile
    from ._executor.options import options
    from ._views.progress import progress
    from ._worker.arguments import File, Output
    from ._worker.compatibility import EnvironmentMismatch
    from ._worker.shared import Shared
    from ._worker.worker import UnsentError, released

if "t" in sys.abiflags:
    raise ImportError(
        "eyas does not run on free-threaded builds of CPython: use the standard build of the same "
        "version, such as python3.13 instead of python3.13t"
    )

__all__ = [
    "CallFailed",
    "Catalog",
    "ChunkMemory",
    "ClusterError",
    "ClusterLost",
    "Completed",
    "EnvironmentMismatch",
    "Executor",
    "File",
    "Future",
    "KeptFile",
    "MemoryUse",
    "NamedFile",
    "Output",
    "Piece",
    "Shared",
    "UnsentError",
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
    "_engines.dask": ["on_dask"],
    "_engines.ray": ["on_ray"],
    "_engines.spark": ["on_spark"],
    "_errors": ["CallFailed", "ClusterError", "ClusterLost"],
    "_executor.blocks": ["ChunkMemory", "MemoryUse", "Piece"],
    "_executor.catalog": ["Catalog", "NamedFile"],
    "_executor.commands": ["Completed"],
    "_executor.executor": ["Executor", "connect", "local"],
    "_executor.futures": ["Future", "KeptFile"],
    "_executor.options": ["options"],
    "_views.progress": ["progress"],
    "_worker.arguments": ["File", "Output"],
    "_worker.compatibility": ["EnvironmentMismatch"],
    "_worker.shared": ["Shared"],
    "_worker.worker": ["UnsentError", "released"],
}


def __getattr__(name: str) -> object:
    """Import what is used: workers import this package, and need little of it."""
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value
