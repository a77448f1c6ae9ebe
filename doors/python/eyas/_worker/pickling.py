"""Bytes of calls and of their results.

The pickler of the standard library is many times faster than cloudpickle, but it pickles functions
and classes by the name of their module, and a worker does not have the ``__main__`` of its client.
So it goes first, and cloudpickle takes what it cannot do.
"""

from __future__ import annotations

import math
import pickle
import struct
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from . import wrappers
from .arguments import Arguments

#: Buffers and pickles of at least this size become files of their own, where they can.
LARGE_BYTES = 1 << 20
#: The same for code, of which each worker reads the file once.
LARGE_CODE_BYTES = 64 << 10

_PROTOCOL = 5
#: What a pickle has in it if names of modules of this process do not suffice to unpickle it, or if
#: it has a proxy of a manager of multiprocessing, whose pickle lacks the key.
_OWN_NAMES = b"__main__", b"__mp_main__", b"RebuildProxy"
#: Before a call: its wrapper, the number of parts of code, and the bytes of the function; then, for
#: each part of code, its bytes, and those that it takes in a worker.
_HEAD, _CODE_HEAD = struct.Struct("<BBI"), struct.Struct("<IQ")
#: Parts of code that a call can have.
MAX_CODE_PARTS = 255


def dumps(value: object) -> bytes:
    """Pickle a value so that a process with another ``__main__`` can unpickle it."""
    return dump(value, math.inf)[0]


def dump_parts(value: object) -> list[memoryview]:
    """Pickle a value. Large buffers, such as those of NumPy arrays, are parts of their own, and are
    not copied.
    """
    if (plain := scalar_bytes((value,), value)) is not None:
        return [memoryview(plain)]
    content, buffers = dump(value, LARGE_BYTES)
    return [memoryview(content), *buffers]


def modules_by_value() -> Iterable[str]:
    """Return the modules whose functions and classes the program has pickled by value."""
    cloudpickle = sys.modules.get("cloudpickle")
    found: Iterable[str] = (
        () if cloudpickle is None else cloudpickle.list_registry_pickle_by_value()
    )
    return found


def names_suffice(content: bytes) -> bool:
    """Whether other processes can have all that a pickle names."""
    for name in _OWN_NAMES:
        if name in content:
            return False
    return not any(name.encode() in content for name in modules_by_value())


#: Values of these types refer to nothing, and are pickled without a further look.
_SCALARS = frozenset([type(None), bool, int, float, complex, str, bytes])


def scalar_bytes(values: tuple[Any, ...], pickled: object) -> bytes | None:
    """Pickle what consists of these values, if they are small and refer to nothing."""
    for value in values:
        if type(value) not in _SCALARS:
            return None
    content = pickle.dumps(pickled, _PROTOCOL)
    return content if len(content) < LARGE_CODE_BYTES else None


def _kept_apart(
    least_bytes: float, buffers: list[memoryview]
) -> Callable[[pickle.PickleBuffer], bool]:
    """Return what leaves buffers of at least so many bytes out of a pickle."""

    def is_small(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes >= least_bytes:
            buffers.append(raw)
        return raw.nbytes < least_bytes

    return is_small


def dump_named(value: object, least_bytes: float) -> tuple[bytes, list[memoryview]] | None:
    """Pickle a value as :func:`dump`, if names suffice for what it refers to."""
    arguments = Arguments.now()
    before = None if arguments is None else arguments.counts()
    buffers: list[memoryview] = []
    try:
        is_small = _kept_apart(least_bytes, buffers)
        content = pickle.dumps(value, _PROTOCOL, buffer_callback=is_small)
        if names_suffice(content):
            return content, buffers
    except Exception:  # Whatever the pickling of the value may raise.
        pass
    # The same buffers and files are found again.
    if arguments is not None and before is not None:
        arguments.cut(before)
    return None


def dump(value: object, least_bytes: float) -> tuple[bytes, list[memoryview]]:
    """Pickle a value. Buffers of at least so many bytes are left out, and returned beside it; they
    are not copied.
    """
    if (named := dump_named(value, least_bytes)) is not None:
        return named
    from . import by_value

    buffers: list[memoryview] = []
    return by_value.dumps(value, _PROTOCOL, _kept_apart(least_bytes, buffers)), buffers


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
        files: tuple[str, ...] = (),
    ) -> None:
        """Name the inputs of the call that have the content, the buffers, and the values, or the
        bytes themselves.

        Calls may write to buffers that are private. If the names of the files are given, no other
        value has the same pickle.
        """
        self.parts = content, buffers, values, is_private, files

    def __reduce__(self) -> tuple[Any, ...]:
        return _together, self.parts


def _together(
    content: bytes | int,
    buffers: list[int],
    values: list[bytes | int],
    is_private: bool,
    _: tuple[str, ...],
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


def is_code(function: object) -> bool:
    """Whether a function is code, and not a value that calls may change, such as an object or a
    partial.
    """
    if isinstance(function, types.BuiltinFunctionType):
        return isinstance(function.__self__, types.ModuleType)
    return isinstance(function, types.FunctionType | type)


class Code(NamedTuple):
    """Pickled code. A worker unpickles it once, and later calls use what it has then."""

    content: bytes
    #: Bytes that it takes in a worker.
    held_bytes: int


#: Wrappers that a worker calls with the function and the arguments of a call; None for a plain
#: call.
WRAPPERS: tuple[Callable[..., Any] | None, ...] = (None, wrappers.chunk, wrappers.tile)
#: Their numbers.
PLAIN, CHUNK, TILE = range(3)


def beginning(wrapper: int, code: list[Code], function: bytes) -> bytes:
    """Return what stands in a call before the arguments. Without bytes of a function, the function
    is the first part of the code.
    """
    heads = [_CODE_HEAD.pack(len(part.content), part.held_bytes) for part in code]
    contents = [part.content for part in code]
    return b"".join([_HEAD.pack(wrapper, len(code), len(function)), *heads, *contents, function])


def call_bytes(function: Callable[..., Any], *args: Any) -> bytes:
    """Pickle a call that reads no files."""
    content = dumps(function)
    return beginning(PLAIN, [], content) + dumps((args, {}))


class CallReader:
    """Reads calls. The code of the last ones is remembered."""

    #: Parts of code that are remembered, and the bytes that they take. The last one may take more.
    MAX_PARTS, MAX_BYTES = 256, 256 << 20

    def __init__(self) -> None:
        """Begin without code."""
        self._code: dict[bytes, Any] = {}
        self._bytes = 0

    def read(self, content: bytes) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """Return the function and the arguments of a call."""
        wrapper, count, function_bytes = _HEAD.unpack_from(content)
        head = _HEAD.size
        place = head + count * _CODE_HEAD.size
        code = []
        for _ in range(count):
            size, held_bytes = _CODE_HEAD.unpack_from(content, head)
            code.append(self._part(content[place : place + size], held_bytes))
            head += _CODE_HEAD.size
            place += size
        arguments = Arguments.now()
        assert arguments is not None, "calls are read by workers"
        arguments.code = code
        call = memoryview(content)[place:]
        function = pickle.loads(call[:function_bytes]) if function_bytes else code[0]
        args, kwargs = pickle.loads(call[function_bytes:])
        if (wrapped := WRAPPERS[wrapper]) is not None:
            function, args = wrapped, (function, *args)
        return function, args, kwargs

    def _part(self, content: bytes, held_bytes: int) -> Any:
        """Return code, which is unpickled once."""
        try:
            return self._code[content]
        except KeyError:
            pass
        made = pickle.loads(content)
        if len(self._code) >= self.MAX_PARTS or self._bytes + held_bytes > self.MAX_BYTES:
            self._code.clear()
            self._bytes = 0
        self._code[content] = made
        self._bytes += held_bytes
        return made
