"""Patterns of many calls."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from . import _wrappers
from ._options import options_of

if TYPE_CHECKING:
    from ._executor import Executor

_T = TypeVar("_T")

#: Tiles for each worker, so that none waits long for the last ones.
_TILES_PER_WORKER = 8
#: Most rows, and columns, of a tile: all of their files are on one node at the same time.
_MAX_SIDE = 64


def all_pairs(
    executor: Executor,
    rows: Iterable[Any],
    columns: Iterable[Any],
    function: Callable[[Any, Any], _T],
    side: int | None,
) -> Iterator[list[_T]]:
    """Call a function with each pair, and yield the results of each row, in order."""
    rows, columns = list(rows), list(columns)
    if side is None:
        tiles = max(1, executor._max_workers) * _TILES_PER_WORKER
        side = min(_MAX_SIDE, max(1, math.isqrt(len(rows) * len(columns) // tiles)))
    elif side < 1:
        raise ValueError("side must be at least 1")

    def parts(of: list[Any]) -> list[list[Any]]:
        return [of[start : start + side] for start in range(0, len(of), side)]

    own = options_of(function)
    tile = executor._once(functools.partial(_wrappers.tile, function))
    strips = [
        (part, [executor._submit(own, tile, (part, others), {}) for others in parts(columns)])
        for part in parts(rows)
    ]

    def results() -> Iterator[list[_T]]:
        try:
            while strips:
                part, tiles = strips.pop(0)
                done = [tile.result() for tile in tiles]
                for number in range(len(part)):
                    yield list(itertools.chain.from_iterable(tile[number] for tile in done))
        finally:
            for _, tiles in strips:
                for tile in tiles:
                    tile.cancel()

    return results()
