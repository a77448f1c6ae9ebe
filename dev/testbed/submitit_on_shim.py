"""A plugin of pytest: submitit's tests of local processes run as jobs of Slurm's commands, those of
a shim.
"""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

from submitit import AutoExecutor


def on_shim(folder: Path, max_num_timeout: int = 3) -> AutoExecutor:
    """An executor as the tests make it."""
    return AutoExecutor(folder, cluster="slurm", slurm_max_num_timeout=max_num_timeout)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Replaces the executor of local processes. A line of options has no folder with a line break
    in its name.
    """
    from submitit.local import test_local

    items[:] = [item for item in items if r"\n" not in item.name]
    test_local.local = types.SimpleNamespace(LocalExecutor=on_shim)
