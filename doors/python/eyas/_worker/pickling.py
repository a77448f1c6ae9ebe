"""Bytes of calls and of their results.

The pickler of the standard library is many times faster than cloudpickle, but it pickles functions
and classes by the name of their module, and a worker does not have the ``__main__`` of its client.
So it goes first, and cloudpickle takes what it cannot do.
"""

from __future__ import annotations

import math
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any

from .arguments import Arguments

#: Buffers and pickles of at least this size become files of their own, where they can.
LARGE_BYTES = 1 << 20

_PROTOCOL = 5
#: What a pickle has in it if names of modules of this process do not suffice to unpickle it, or if
#: it has a proxy of a manager of multiprocessing, whose pickle lacks the key.
_OWN_NAMES = b"__main__", b"__mp_main__", b"RebuildProxy"
#: Bytes before the function of a call: its length, and this bit if it is pickled by its name.
_LENGTH_BYTES = 4
_NAMED = 1 << 31


def dumps(value: object) -> bytes:
    """Pickle a value so that a process with another ``__main__`` can unpickle it."""
    return dump(value, math.inf)[0]


def dump_parts(value: object) -> list[memoryview]:
    """Pickle a value. Large buffers, such as those of NumPy arrays, are parts of their own, and are
    not copied.
    """
    content, buffers = dump(value, LARGE_BYTES)
    return [memoryview(content), *buffers]


def names_suffice(content: bytes) -> bool:
    """Whether other processes can have all that a pickle names."""
    if any(name in content for name in _OWN_NAMES):
        return False
    if (cloudpickle := sys.modules.get("cloudpickle")) is None:
        return True
    return not any(name.encode() in content for name in cloudpickle.list_registry_pickle_by_value())


def dump(value: object, least_bytes: float) -> tuple[bytes, list[memoryview]]:
    """Pickle a value. Buffers of at least so many bytes are left out, and returned beside it; they
    are not copied.
    """
    arguments = Arguments.now()
    before = None if arguments is None else arguments.counts()
    buffers: list[memoryview] = []

    def is_small(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes >= least_bytes:
            buffers.append(raw)
        return raw.nbytes < least_bytes

    try:
        content = pickle.dumps(value, _PROTOCOL, buffer_callback=is_small)
        if names_suffice(content):
            return content, buffers
    except Exception:  # Whatever the pickling of the value may raise.
        pass
    # cloudpickle finds the same buffers and files again.
    buffers.clear()
    if arguments is not None and before is not None:
        arguments.cut(before)
    from . import by_value

    return by_value.dumps(value, _PROTOCOL, is_small), buffers


class Parts:
    """What is pickled for a call, with large buffers and futures elsewhere. A worker unpickles it
    as what it was.
    """

    def __init__(
        self,
        content: bytes | int,
        buffers: list[int],
        values: list[bytes | int],
        *,
        is_private: bool = False,
    ) -> None:
        """Name the inputs of the call that have the content, the buffers, and the values, or the
        bytes themselves.

        Calls may write to buffers that are private.
        """
        self.parts = content, buffers, values, is_private

    def __reduce__(self) -> tuple[Any, ...]:
        return _together, self.parts


def _together(
    content: bytes | int, buffers: list[int], values: list[bytes | int], is_private: bool
) -> Any:
    from .shared import load, map_file

    arguments = Arguments.now()
    assert arguments is not None, "arguments are unpickled by workers"
    paths = arguments.paths
    arguments.values = [
        load(paths[value]) if isinstance(value, int) else pickle.loads(value) for value in values
    ]
    pickled = map_file(paths[content]) if isinstance(content, int) else content
    return pickle.loads(
        pickled, buffers=[map_file(paths[number], is_private=is_private) for number in buffers]
    )


def _has_name(function: object) -> bool:
    """Whether pickle names a function, so that all of its pickles are the same."""
    if isinstance(function, types.BuiltinFunctionType):
        return isinstance(function.__self__, types.ModuleType)
    return isinstance(function, types.FunctionType | type)


def function_bytes(function: Callable[..., Any]) -> bytes:
    """Pickle a function, with the header of a call."""
    content = dumps(function)
    return with_header(content, is_named=is_named(function, content))


def is_named(function: object, content: bytes) -> bool:
    """Whether the pickle of a function is its name, so that each call may use what an earlier one
    has unpickled.
    """
    # `cloudpickle` pickles functions of `__main__`, and of no module, by value.
    return _has_name(function) and b"cloudpickle" not in content and names_suffice(content)


def with_header(content: bytes, *, is_named: bool = False) -> bytes:
    """Return the pickle of a function as it stands in a call, before the arguments."""
    return (len(content) | (_NAMED if is_named else 0)).to_bytes(_LENGTH_BYTES, "little") + content


class CallReader:
    """Reads calls. The last functions that are pickled by their names are remembered."""

    MAX_FUNCTIONS = 256

    def __init__(self) -> None:
        """Begin without functions."""
        self._functions: dict[bytes, Callable[..., Any]] = {}

    def read(self, content: bytes) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """Return the function and the arguments of a call."""
        head = int.from_bytes(content[:_LENGTH_BYTES], "little")
        start = _LENGTH_BYTES + (head & ~_NAMED)
        pickled = content[_LENGTH_BYTES:start]
        function = self._functions.get(pickled)
        if function is None:
            function = pickle.loads(pickled)
            if head & _NAMED:
                if len(self._functions) >= self.MAX_FUNCTIONS:
                    self._functions.clear()
                self._functions[pickled] = function
        args, kwargs = pickle.loads(memoryview(content)[start:])
        return function, args, kwargs
