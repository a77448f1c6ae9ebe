"""Differences between the Python of a client and that of a worker, told with both sides."""

from __future__ import annotations

import os
import sys
from typing import Any

from .public import public

__all__ = [
    "EnvironmentMismatch",
    "missing_interpreter",
    "note_client",
    "note_worker",
    "refuse_other_code",
]
__all__ += ["this_side", "unread"]

_WHAT_TO_DO = "Name an environment, which is sent to the nodes: environment=PATH"


@public
class EnvironmentMismatch(RuntimeError):
    """A worker has another Python than its client, and cannot run the call."""


def this_side() -> dict[str, str]:
    """Describe this interpreter."""
    return {
        "python": sys.version.partition(" ")[0],
        "build": f"{sys.implementation.cache_tag}{sys.abiflags}",
        "executable": sys.executable,
        "host": os.uname().nodename,
    }


def _described(side: dict[str, str]) -> str:
    return f"Python {side['python']} at {side['executable']} on {side['host']}"


def _mismatch(client: dict[str, str]) -> EnvironmentMismatch:
    environment = client.get("environment")
    do = (
        f"Run the client with the Python of {environment}, or name another one"
        if environment
        else _WHAT_TO_DO
    )
    return EnvironmentMismatch(
        f"the client has {_described(client)}, and the worker has {_described(this_side())}: code "
        f"of the main script is sent between equal versions only. {do}"
    )


def _is_other(client: dict[str, str] | None) -> bool:
    return client is not None and client["build"] != this_side()["build"]


def refuse_other_code(client: dict[str, str] | None, call: bytes) -> None:
    """Refuse code of another version of Python: it may end the process."""
    if client is not None and b"CodeType" in call and _is_other(client):
        raise _mismatch(client)


def unread(client: dict[str, str] | None, error: Exception) -> EnvironmentMismatch | None:
    """Return why a call cannot be unpickled, if that may be the version of Python."""
    if client is None or isinstance(error, ModuleNotFoundError) or not _is_other(client):
        return None
    return _mismatch(client)


def note_worker(error: BaseException, client: dict[str, str] | None) -> None:
    """In a worker: say which interpreter has not found a module."""
    if isinstance(error, ModuleNotFoundError):
        environment = (client or {}).get("environment")
        of = f", of the environment {environment}" if environment else ""
        error.add_note(f"The worker has no module {error.name!r}: {_described(this_side())}{of}.")


def _own_module(name: str) -> str | None:
    """Describe where this interpreter has a module."""
    from importlib import metadata, util

    top = name.partition(".")[0]
    try:
        found = util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if found is None:
        return None
    packages = metadata.packages_distributions().get(top)
    version = f" {metadata.version(packages[0])}" if packages else ""
    places: Any = found.origin or next(iter(found.submodule_search_locations or []), None)
    return f"{top}{version}" + (f" at {places}" if places else "")


def note_client(error: BaseException) -> None:
    """In a client: say whether it has the module that a worker has not."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    if name is None:
        return
    module = _own_module(name)
    own = f"has {module}" if module else f"has no module {name!r} either"
    error.add_note(f"The client {own}: {_described(this_side())}. {_WHAT_TO_DO}")


def missing_interpreter(why: str) -> str:
    """Add the client's side to the reason for which a worker has not started."""
    if f"cannot start `{sys.executable}`" not in why:
        return why
    return (
        f"{why}. Workers need the interpreter of the client, {_described(this_side())}. "
        f"{_WHAT_TO_DO}"
    )
