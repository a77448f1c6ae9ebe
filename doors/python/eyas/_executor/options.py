"""What calls need, and what becomes of them."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

if TYPE_CHECKING:
    from typing_extensions import Unpack

_Function = TypeVar("_Function", bound="Callable[..., object]")

#: Attribute of functions that :func:`options` has decorated.
_ATTRIBUTE = "_eyas_options"


class Options(TypedDict, total=False):
    """What each call needs, and what becomes of it."""

    #: Processors; by default one.
    cpus: float
    #: Bytes of memory, or a text such as ``"2GB"``. A call that uses more fails.
    memory: int | str
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
    #: Path of the environment of its worker; by default the one of this process, which nodes must
    #: have, too.
    environment: str | os.PathLike[str] | None


def bytes_of(memory: int | str) -> int:
    """Return the bytes of an amount such as ``"1.5GB"`` or ``"4GiB"``.

    >>> bytes_of("2kB")
    2000
    """
    if not isinstance(memory, str):
        return memory
    # Imported late, because few programs need it.
    import re

    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*(?:([kKMGT])(i?))?B?\s*", memory)
    if found is None or (found[2] == "k" and found[3]):
        raise ValueError(
            f"{memory!r} is no amount of memory: write bytes, or a number with kB, MB, GB, TB, "
            'KiB, MiB, GiB or TiB, such as "2GB"'
        )
    number, unit, is_binary = found.groups()
    power = " KMGT".index(unit.upper()) if unit else 0
    return int(float(number) * (1024 if is_binary else 1000) ** power)


def checked(options: Options) -> Options:
    """Refuse options that do not exist, and return the options with the memory in bytes."""
    if unknown := options.keys() - Options.__annotations__:
        raise TypeError(
            f"{min(unknown)!r} is no option: there are {', '.join(Options.__annotations__)}"
        )
    if "memory" in options:
        return {**options, "memory": bytes_of(options["memory"])}
    return options


def refuse_excess(options: Options, nodes: Iterable[dict[str, Any]]) -> None:
    """Refuse options that no node meets, of a cluster that gets no other nodes."""
    cpus, gpus = options.get("cpus", 1), options.get("gpus", 0)
    memory = bytes_of(options.get("memory", 0))
    described = []
    for node in nodes:
        capacity = node["capacity"]
        has = (
            capacity["cpus_milli"] / 1000,
            capacity["memory_bytes"],
            dict(capacity["named"]).get("gpu", 0),
        )
        if cpus <= has[0] and memory <= has[1] and gpus <= has[2]:
            return
        described.append("cpus={:g}, memory={}, gpus={}".format(*has))
    raise ValueError(
        f"no node of this cluster has cpus={cpus:g}, memory={memory}, gpus={gpus}: the nodes have "
        f"{'; '.join(dict.fromkeys(described))}. Ask for less, or start the cluster with more, "
        "max_workers="
    )


def options(**values: Unpack[Options]) -> Callable[[_Function], _Function]:
    """Decorate a function: its calls have these options, whatever those of the executor are.

    >>> @eyas.options(memory="2GB", retries=1)
    ... def stack(images): ...
    """
    known = checked(values)

    def decorate(function: _Function) -> _Function:
        setattr(function, _ATTRIBUTE, known)
        return function

    return decorate


def options_of(function: object) -> Options | None:
    """Return the options with which a function was decorated."""
    while not hasattr(function, _ATTRIBUTE) and isinstance(function, functools.partial):
        function = function.func
    return cast("Options | None", getattr(function, _ATTRIBUTE, None))
