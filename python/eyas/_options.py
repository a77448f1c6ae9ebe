"""What calls need, and what becomes of them."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypedDict, TypeVar, cast

if TYPE_CHECKING:
    from typing_extensions import Unpack

_Function = TypeVar("_Function", bound="Callable[..., object]")

#: Attribute of functions that :func:`options` has decorated.
_ATTRIBUTE = "_eyas_options"


class Options(TypedDict, total=False):
    """What each call needs, and what becomes of it."""

    #: Processors; by default one.
    cpus: float
    #: Bytes of memory. A call that uses more fails.
    memory: int
    #: GPUs of its own.
    gpus: int
    #: Seconds after which a call is ended.
    timeout: float | None
    #: Tries after the first one.
    retries: int
    #: Calls of higher priority go first.
    priority: int
    #: A match expression about nodes, such as ``node.labels.site == "a"``.
    requirements: str | None
    #: Path of the environment of its worker; by default the one of this process, which nodes must have, too.
    environment: str | os.PathLike[str] | None


def check(options: Options) -> None:
    """Refuse options that do not exist."""
    if unknown := options.keys() - Options.__annotations__:
        raise TypeError(f"{min(unknown)!r} is no option: there are {', '.join(Options.__annotations__)}")


def options(**values: Unpack[Options]) -> Callable[[_Function], _Function]:
    """Decorate a function: its calls have these options, whatever those of the executor are.

    >>> @eyas.options(memory=2 << 30, retries=1)
    ... def stack(images): ...
    """
    check(values)

    def decorate(function: _Function) -> _Function:
        setattr(function, _ATTRIBUTE, values)
        return function

    return decorate


def options_of(function: object) -> Options | None:
    """Return the options with which a function was decorated."""
    while not hasattr(function, _ATTRIBUTE) and isinstance(function, functools.partial):
        function = function.func
    return cast("Options | None", getattr(function, _ATTRIBUTE, None))
