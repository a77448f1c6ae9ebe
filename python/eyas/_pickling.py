"""Bytes of calls and of their results.

The pickler of the standard library is many times faster than cloudpickle, but it pickles functions and classes by the
name of their module, and a worker does not have the ``__main__`` of its client. So it goes first, and cloudpickle takes
what it cannot do.
"""

from __future__ import annotations

import pickle
import types
from collections.abc import Callable
from typing import Any

from ._files import Arguments

#: Buffers and pickles of at least this size become files of their own, where they can.
LARGE_BYTES = 1 << 20

_PROTOCOL = 5
#: Bytes before the function of a call: its length, and this bit if it is pickled by its name.
_LENGTH_BYTES = 4
_NAMED = 1 << 31


def dumps(value: object, keep: Callable[[pickle.PickleBuffer], object] | None = None) -> bytes:
    """Pickle a value so that a process with another ``__main__`` can unpickle it.

    Buffers for which ``keep`` returns something false are left out.
    """
    arguments = Arguments.now()
    before = None if arguments is None else arguments.counts()
    try:
        content = pickle.dumps(value, _PROTOCOL, buffer_callback=keep)
        if b"__main__" not in content:
            return content
    except Exception:  # Whatever the pickling of the value may raise.
        pass
    if arguments is not None and before is not None:
        # cloudpickle finds the same files again.
        arguments.cut(before)
    from . import _by_value

    return _by_value.dumps(value, _PROTOCOL, keep)


def dump_parts(value: object) -> list[memoryview]:
    """Pickle a value. Large buffers, such as those of NumPy arrays, are parts of their own, and are not copied."""
    buffers: list[memoryview] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes >= LARGE_BYTES:
            buffers.append(raw)
        return raw.nbytes < LARGE_BYTES

    try:
        content = pickle.dumps(value, _PROTOCOL, buffer_callback=keep)
    except Exception:  # Whatever the pickling of the value may raise.
        content = b"__main__"
    if b"__main__" in content:
        from . import _by_value

        buffers.clear()
        content = _by_value.dumps(value, _PROTOCOL, keep)
    return [memoryview(content), *buffers]


class Parts:
    """Arguments whose large buffers and futures are elsewhere. A worker unpickles them as the arguments."""

    def __init__(self, content: bytes | int, buffers: list[int], values: list[bytes | int]) -> None:
        """Name the inputs of the call that have the content, the buffers, and the values, or the bytes themselves."""
        self.parts = content, buffers, values

    def __reduce__(self) -> tuple[Any, ...]:
        return _together, self.parts


def _together(content: bytes | int, buffers: list[int], values: list[bytes | int]) -> Any:
    from ._shared import load, map_file

    arguments = Arguments.now()
    assert arguments is not None, "arguments are unpickled by workers"
    paths = arguments.paths
    arguments.values = [load(paths[value]) if isinstance(value, int) else pickle.loads(value) for value in values]
    pickled = map_file(paths[content]) if isinstance(content, int) else content
    return pickle.loads(pickled, buffers=[map_file(paths[number]) for number in buffers])


def _has_name(function: object) -> bool:
    """Whether pickle names a function, so that all of its pickles are the same."""
    if isinstance(function, types.BuiltinFunctionType):
        return isinstance(function.__self__, types.ModuleType)
    return isinstance(function, types.FunctionType | type)


def function_bytes(function: Callable[..., Any]) -> bytes:
    """Pickle a function, with the header of a call. ``is_named`` tells whether the bytes may be kept."""
    content = dumps(function)
    # `cloudpickle` pickles functions of `__main__`, and of no module, by value.
    is_named = _has_name(function) and b"__main__" not in content and b"cloudpickle" not in content
    head = len(content) | (_NAMED if is_named else 0)
    return head.to_bytes(_LENGTH_BYTES, "little") + content


def is_named(content: bytes) -> bool:
    """Whether the function of a call is pickled by its name."""
    return bool(content[_LENGTH_BYTES - 1] & 0x80)


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
