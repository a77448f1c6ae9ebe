"""Open files of the cluster, as file objects of Python."""

from __future__ import annotations

import errno
import io
import warnings
from types import TracebackType
from typing import Any, SupportsIndex

from fsspec import AbstractFileSystem

from .._eyas import OpenedFile, WrittenFile

__all__ = ["CompressedWriter", "FileEditor", "FileReader", "FileWriter", "TextReader", "TextWriter"]

#: Bytes that are read at least. Larger reads go to their destination directly, except for a last
#: part of this size.
_READ_BYTES = 8 << 10

#: Bytes that are collected before they are written.
_WRITE_BYTES = 256 << 10


class _RawReader(io.RawIOBase):
    """Reads of a file, with a position."""

    mode = "rb"

    def __init__(self, opened: OpenedFile | WrittenFile) -> None:
        self._opened = opened
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = 0) -> int:
        if whence not in (0, 1, 2):
            raise ValueError(f"whence is {whence}: it must be 0, 1 or 2")
        position = (self._size() if whence == 2 else self._position if whence == 1 else 0) + offset
        if position < 0:
            # Of both classes, `OSError` and `ValueError`, as files of Python raise one or the
            # other.
            raise io.UnsupportedOperation(f"a file has no position {position}")
        self._position = position
        return position

    def readinto(self, buffer: Any) -> int:
        count = self._opened.read_into(self._position, buffer)
        self._position += count
        return count

    def readall(self) -> bytes:
        assert isinstance(self._opened, OpenedFile)
        content = self._opened.read_at(self._position, max(0, self._size() - self._position))
        self._position += len(content)
        return content

    def _size(self) -> int:
        return self._opened.size


class FileReader(io.BufferedReader):
    """A file that is open for reading, at the version that it had when it was opened."""

    def __init__(self, fs: AbstractFileSystem, path: str, opened: OpenedFile) -> None:
        """Read the file at ``path``."""
        super().__init__(_RawReader(opened), _READ_BYTES)
        self.fs = fs
        self.path = path
        self.size = opened.size

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        # From version 3.12, Python refuses to pickle files in this method, which goes before
        # `__reduce__`.
        return _open_again, (self.fs, self.path, None if self.closed else self.tell())


def _open_again(fs: AbstractFileSystem, path: str, position: int | None) -> Any:
    """Open a file that was pickled, in the version that it has now."""
    file = fs.open(path, "rb")
    if position is None:
        file.close()
    else:
        file.seek(position)
    return file


class TextReader(io.TextIOWrapper):
    """Text that is read from a file."""

    def __init__(
        self,
        fs: AbstractFileSystem,
        path: str,
        buffer: Any,
        compression: str | None,
        **options: Any,
    ) -> None:
        """Read ``buffer``, which is the file at ``path``, or decompresses it."""
        super().__init__(buffer, **options)
        self.fs = fs
        self.path = path
        self._options = {"compression": compression, **options}

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return _open_text_again, (
            self.fs,
            self.path,
            self._options,
            None if self.closed else self.tell(),
        )


def _open_text_again(
    fs: AbstractFileSystem, path: str, options: dict[str, Any], position: int | None
) -> Any:
    """Open a file that was pickled, in the version that it has now."""
    file = fs.open(path, "r", **options)
    if position is None:
        file.close()
    else:
        file.seek(position)
    return file


class _RawWriter(io.RawIOBase):
    """Writes at the end of a file."""

    def __init__(self, written: WrittenFile, mode: str, position: int, publishes: bool) -> None:
        self.written = written
        self.mode = mode
        self.publishes = publishes
        self.is_discarded = False
        self._position = position

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, buffer: Any) -> int:
        count = len(buffer) if self.is_discarded else self.written.write(buffer)
        self._position += count
        return count

    def close(self) -> None:
        if not self.closed:
            super().close()
            if self.publishes and not self.is_discarded:
                self.written.publish()


class FileWriter(io.BufferedWriter):
    """A file that is being written. It appears as a whole when it is closed, or at the end of the
    transaction.
    """

    def __init__(
        self,
        fs: AbstractFileSystem,
        path: str,
        mode: str,
        written: WrittenFile,
        position: int,
        autocommit: bool,
    ) -> None:
        """Write to the file at ``path``, from ``position`` on."""
        self._raw_writer = _RawWriter(written, mode, position, autocommit)
        super().__init__(self._raw_writer, _WRITE_BYTES)
        self.fs = fs
        self.path = path

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.discard()
        self.close()

    def commit(self) -> None:
        """At the end of a transaction: publish the file, unless it was discarded."""
        self.close()
        if not self._raw_writer.is_discarded:
            self._raw_writer.written.publish()

    def drop(self) -> None:
        """Drop what was written, and all that is written until the file is closed."""
        self._raw_writer.is_discarded = True
        self._raw_writer.written.discard()

    def discard(self) -> None:
        """Drop what was written, and close the file."""
        self.drop()
        self.close()

    def __del__(self) -> None:
        if not self.closed:
            _warn(self.path)
            self.discard()


class _RawEditor(_RawReader):
    """Reads and changes of a file, with a position."""

    mode = "rb+"

    def __init__(self, edited: WrittenFile, publishes: bool) -> None:
        super().__init__(edited)
        self.written = edited
        self.publishes = publishes
        self.is_discarded = False

    def writable(self) -> bool:
        return True

    def write(self, buffer: Any) -> int:
        count = len(buffer) if self.is_discarded else self.written.write_at(self._position, buffer)
        self._position += count
        return count

    def truncate(self, size: int | None = None) -> int:
        size = self._position if size is None else size
        if size < 0:
            raise OSError(errno.EINVAL, f"a file cannot have {size} bytes")
        if not self.is_discarded:
            self.written.set_size(size)
        return size

    def readinto(self, buffer: Any) -> int:
        return 0 if self.is_discarded else super().readinto(buffer)

    def readall(self) -> bytes:
        content = bytearray(max(0, self._size() - self._position))
        count = self.readinto(content)
        return bytes(content[:count])

    def _size(self) -> int:
        return 0 if self.is_discarded else super()._size()

    def close(self) -> None:
        if not self.closed:
            super().close()
            if self.publishes and not self.is_discarded:
                self.written.publish()


class FileEditor(io.BufferedRandom):
    """A file that is changed at any offset. All changes appear when it is closed, or at the end of
    the transaction.
    """

    def __init__(
        self, fs: AbstractFileSystem, path: str, edited: WrittenFile, autocommit: bool
    ) -> None:
        """Change the file at ``path``."""
        self._raw_writer = _RawEditor(edited, autocommit)
        super().__init__(self._raw_writer, _READ_BYTES)
        self.fs = fs
        self.path = path

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.discard()
        self.close()

    def commit(self) -> None:
        """At the end of a transaction: publish the changes, unless they were discarded."""
        self.close()
        if not self._raw_writer.is_discarded:
            self._raw_writer.written.publish()

    def drop(self) -> None:
        """Drop what was changed, and all that is changed until the file is closed."""
        self._raw_writer.is_discarded = True
        self._raw_writer.written.discard()

    def discard(self) -> None:
        """Drop what was changed, and close the file."""
        self.drop()
        self.close()

    def __del__(self) -> None:
        if not self.closed:
            _warn(self.path)
            self.discard()


class _Discarding:
    """Files around a file that is being written: they drop it after an exception, and if they are
    not closed.
    """

    writer: FileWriter

    def close(self) -> None:
        """Write what is left, and close the file itself: what compresses leaves it open."""
        try:
            super().close()  # type: ignore[misc]
        except BaseException:
            self.writer.drop()
            raise
        finally:
            self.writer.close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.writer.drop()
        self.close()

    def __del__(self) -> None:
        if not self.closed:  # type: ignore[attr-defined]
            _warn(self.writer.path)
            self.writer.drop()
            self.close()


class TextWriter(_Discarding, io.TextIOWrapper):
    """Text that is written to a file."""

    def __init__(self, writer: FileWriter, buffer: Any, **options: Any) -> None:
        """Write to ``buffer``, which writes to the file, or is it."""
        self.writer = writer
        # Python writes the byte order mark of UTF-16 only if it can ask for the position, which is
        # 0.
        buffer.seekable = lambda: True
        try:
            super().__init__(buffer, **options)
        finally:
            del buffer.seekable


class CompressedWriter(_Discarding, io.BufferedWriter):
    """Bytes that are compressed and written to a file."""

    def __init__(self, writer: FileWriter, compressed: Any) -> None:
        """Write to ``compressed``, which writes to the file."""
        self.writer = writer
        super().__init__(compressed)


def _warn(path: str) -> None:
    why = f"the file {path} of the cluster was not closed: nothing that was written appears"
    warnings.warn(why, ResourceWarning, stacklevel=3)
