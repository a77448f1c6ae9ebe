"""Values that many calls read: pickled once, one copy a node, read in place."""

from __future__ import annotations

import contextlib
import mmap
import os
import pathlib
import pickle
import struct
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from .arguments import Arguments, File
from .public import public

__all__ = ["Shared", "laid_out", "load", "map_file", "parts_of", "write"]

_T = TypeVar("_T")

# The file of a value: the number of its parts, then the length of each; then the parts, each at a
# multiple of `_ALIGNMENT`. The first part is the pickle, and the others are its buffers.
_COUNT = struct.Struct("<Q")
_ALIGNMENT = 64


def _aligned(place: int) -> int:
    return -(-place // _ALIGNMENT) * _ALIGNMENT


def parts_of(value: object) -> list[memoryview]:
    """Return the pickle of a value, and its large buffers, such as those of NumPy arrays, which are
    not copied.
    """
    from . import by_value

    buffers: list[pickle.PickleBuffer] = []
    content = by_value.dumps(value, 5, buffers.append)
    return [memoryview(content), *(buffer.raw() for buffer in buffers)]


def laid_out(parts: list[memoryview]) -> Iterator[bytes | memoryview]:
    """Return the content of the file of a value, piece by piece."""
    head = b"".join(
        _COUNT.pack(number) for number in [len(parts), *(part.nbytes for part in parts)]
    )
    yield head
    place = len(head)
    for part in parts:
        yield bytes(_aligned(place) - place)
        yield part
        place = _aligned(place) + part.nbytes


def write(path: str, pieces: Iterable[bytes | memoryview]) -> None:
    """Write a new file, which no other user may write to. If it cannot be written,
    nothing stays.
    """
    file = os.fdopen(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), "wb"
    )
    try:
        with file:
            for piece in pieces:
                file.write(piece)
    except BaseException:
        # A disk that is full needs the room.
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


def map_file(path: str | bytes, *, is_private: bool = False) -> memoryview:
    """Return the content of a file that is not empty, without reading it.

    If it is private, it can be written to, and the file stays as it is.
    """
    with open(path, "rb") as file:
        return memoryview(
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY if is_private else mmap.ACCESS_READ)
        )


def _places(lengths: Iterable[int]) -> Iterator[slice]:
    """Return where the parts of a file with a value are."""
    lengths = [*lengths]
    place = _COUNT.size * (len(lengths) + 1)
    for length in lengths:
        place = _aligned(place)
        yield slice(place, place + length)
        place += length


def load(path: str | bytes, *, is_private: bool = False) -> Any:
    """Read a value. Its buffers are those of the file, or private ones with the same content."""
    with open(path, "rb") as file:
        (count,) = _COUNT.unpack(file.read(_COUNT.size))
        pickled, *places = _places(struct.unpack(f"<{count}Q", file.read(_COUNT.size * count)))
        buffers: list[memoryview] = []
        if places:
            content = map_file(path, is_private=is_private)
            buffers = [content[place] for place in places]
        file.seek(pickled.start)
        # Not from memory: other threads, such as that of an event loop, run while a file is read.
        return pickle.load(file, buffers=buffers)


def load_content(content: bytearray) -> Any:
    """Return the value of a file with this content, of which its buffers are parts."""
    view = memoryview(content)
    (count,) = _COUNT.unpack_from(view)
    pickled, *places = _places(struct.unpack_from(f"<{count}Q", view, _COUNT.size))
    return pickle.loads(view[pickled], buffers=[view[place] for place in places])


@public
class Shared(Generic[_T]):
    """A value that calls read. A call gets the value itself in its place.

    Each node gets one copy, and its workers read that copy: arrays of NumPy and Arrow are not
    copied into the workers, and cannot be written to.
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
