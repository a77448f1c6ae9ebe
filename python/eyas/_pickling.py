"""Bytes of calls and of their results.

The pickler of the standard library is many times faster than cloudpickle, but it pickles functions and classes by the
name of their module, and a worker does not have the ``__main__`` of its client. So it goes first, and cloudpickle takes
what it cannot do.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

_PROTOCOL = 5
_LENGTH_BYTES = 4


def dumps(value: object) -> bytes:
    """Pickle a value so that a process with another ``__main__`` can unpickle it."""
    try:
        content = pickle.dumps(value, _PROTOCOL)
        if b"__main__" not in content:
            return content
    except Exception:  # Whatever the pickling of the value may raise.
        pass
    import cloudpickle

    content = cloudpickle.dumps(value, _PROTOCOL)
    assert isinstance(content, bytes)
    return content


def call_bytes(function: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """Put the bytes of a function and its arguments together."""
    return b"%b%b%b" % (len(function).to_bytes(_LENGTH_BYTES, "little"), function, dumps((args, kwargs)))


class CallReader:
    """Reads calls. The last functions are remembered, so that each is unpickled once."""

    MAX_FUNCTIONS = 256

    def __init__(self) -> None:
        """Begin without functions."""
        self._functions: dict[bytes, Callable[..., Any]] = {}

    def read(self, content: bytes) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """Return the function and the arguments of a call."""
        start = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
        name = content[_LENGTH_BYTES:start]
        function = self._functions.get(name)
        if function is None:
            function = pickle.loads(name)
            if len(self._functions) >= self.MAX_FUNCTIONS:
                self._functions.clear()
            self._functions[name] = function
        args, kwargs = pickle.loads(memoryview(content)[start:])
        return function, args, kwargs
