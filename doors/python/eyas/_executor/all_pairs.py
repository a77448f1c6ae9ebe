"""Patterns of many calls."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

_T = TypeVar("_T")

#: Tiles for each worker, so that none waits long for the last ones.
_TILES_PER_WORKER = 8
#: Most rows, and columns, of a tile: all of their files are on one node at the same time.
_MAX_SIDE = 64


def all_pairs(
    rows: Iterable[Any],
    columns: Iterable[Any],
    side: int | None,
    *,
    max_workers: int,
    submit: Callable[[tuple[list[Any], list[Any]]], Future[list[list[_T]]]],
) -> Iterator[list[_T]]:
    """Call a function with each pair, and yield the results of each row, in order.

    ``submit`` adds a call for the pairs of some rows and columns, whose result has a list for each
    row.
    """
    rows, columns = list(rows), list(columns)
    if side is None:
        tiles = max(1, max_workers) * _TILES_PER_WORKER
        side = min(_MAX_SIDE, max(1, math.isqrt(len(rows) * len(columns) // tiles)))
    elif side < 1:
        raise ValueError("side must be at least 1")

    def parts(of: list[Any]) -> list[list[Any]]:
        return [of[start : start + side] for start in range(0, len(of), side)]

    strips = [(part, [submit((part, others)) for others in parts(columns)]) for part in parts(rows)]

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
