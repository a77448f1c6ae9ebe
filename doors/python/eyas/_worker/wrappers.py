"""What a worker calls in place of the functions of the program: these are in every environment."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

__all__ = ["apply", "chunk", "tile"]

_T = TypeVar("_T")


def apply(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a function that refers to futures, as one of the arguments."""
    return function(*args, **kwargs)


def chunk(
    function: Callable[..., _T], items: Iterable[tuple[Any, ...]], /, **shared: Any
) -> list[_T]:
    """Call a function with each item of a part of the input of ``map``."""
    if shared:
        return [function(*args, **shared) for args in items]
    return [function(*args) for args in items]


def tile(function: Callable[[Any, Any], _T], rows: list[Any], columns: list[Any]) -> list[list[_T]]:
    """Call a function with each pair of some rows and columns."""
    return [[function(row, column) for column in columns] for row in rows]
