"""Values that many calls read: pickled once, one copy a node, read in place."""

from __future__ import annotations

import contextlib
import mmap
import os
import pathlib
import pickle
import struct
import threading
from typing import Any, Generic, TypeVar

from ._files import Arguments, File

__all__ = ["Shared", "load", "map_file", "store", "store_content", "store_parts"]

_T = TypeVar("_T")

# The file of a value: the number of its parts, then the length of each; then the parts, each at a multiple of
# `_ALIGNMENT`. The first part is the pickle, and the others are its buffers.
_COUNT = struct.Struct("<Q")
_ALIGNMENT = 64


def _aligned(place: int) -> int:
    return -(-place // _ALIGNMENT) * _ALIGNMENT


def store(value: object, path: str) -> None:
    """Write a value to a file. Large buffers, such as those of NumPy arrays, are written without a copy."""
    from . import _by_value

    buffers: list[pickle.PickleBuffer] = []
    content = _by_value.dumps(value, 5, buffers.append)
    store_parts([memoryview(content), *(buffer.raw() for buffer in buffers)], path)


def store_content(content: memoryview, path: str) -> None:
    """Write content to a file."""
    try:
        with open(path, "xb") as file:
            file.write(content)
    except BaseException:
        # A disk that is full needs the room.
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


def store_parts(parts: list[memoryview], path: str) -> None:
    """Write a pickle and its buffers to a file."""
    try:
        with open(path, "xb") as file:
            file.write(_COUNT.pack(len(parts)))
            for part in parts:
                file.write(_COUNT.pack(part.nbytes))
            for part in parts:
                file.seek(_aligned(file.tell()))
                file.write(part)
    except BaseException:
        # A disk that is full needs the room.
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


def map_file(path: str | bytes) -> memoryview:
    """Return the content of a file that is not empty, without reading it."""
    with open(path, "rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def load(path: str | bytes) -> Any:
    """Read a value. Its buffers are those of the file."""
    content = map_file(path)
    (count,) = _COUNT.unpack_from(content)
    lengths = struct.unpack_from(f"<{count}Q", content, _COUNT.size)
    place, parts = _COUNT.size * (count + 1), []
    for length in lengths:
        place = _aligned(place)
        parts.append(content[place : place + length])
        place += length
    return pickle.loads(parts[0], buffers=parts[1:])


class Shared(Generic[_T]):
    """A value that calls read. A call gets the value itself in its place.

    Each node gets one copy, and its workers read that copy: arrays of NumPy and Arrow are not copied into the workers,
    and cannot be written to.
    """

    def __init__(self, file: File) -> None:
        """Name the file of the value."""
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        if Arguments.now() is None:
            return Shared, (self.file,)
        return _value, (self.file, os.path.basename(self.file.source))


class _Values:
    """The values that this worker has read last."""

    MAX = 16
    known: dict[str, Any] = {}
    lock = threading.Lock()


def _value(path: pathlib.Path, name: str) -> Any:
    with _Values.lock:
        if name not in _Values.known:
            while len(_Values.known) >= _Values.MAX:
                del _Values.known[next(iter(_Values.known))]
            _Values.known[name] = load(os.fspath(path))
        return _Values.known[name]
