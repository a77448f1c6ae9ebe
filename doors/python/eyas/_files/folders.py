"""Folders that all nodes see: of a file system that they share, or of the files of the cluster."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from .._worker.shared import write

if TYPE_CHECKING:
    from .._eyas import FilesSession

_SCHEME = "eyas://"


class Folder(Protocol):
    """A folder that all nodes see. Files in it are named by paths that can be inputs."""

    #: Whether the files end with the cluster.
    ends_with_cluster: bool

    def write(self, name: str, pieces: Iterable[bytes | memoryview]) -> str:
        """Write a file, and return its path. If it cannot be written, nothing stays."""
        ...

    def find(self, name: str) -> str | None:
        """Return the path of a file that is there."""
        ...

    def names(self) -> list[str]:
        """Return the names of all files."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file, which may be gone. Raises an OSError if that is not possible now."""


class SharedFolder:
    """A folder of a file system that all nodes share."""

    ends_with_cluster = False

    def __init__(self, path: str) -> None:
        """Name the folder. It is made when it is needed."""
        self._path = path

    def write(self, name: str, pieces: Iterable[bytes | memoryview]) -> str:
        """Write a file, and return its path."""
        path = os.path.join(self._path, name)
        part = f"{path}.{os.urandom(8).hex()}.part"
        self._check()
        write(part, pieces)
        try:
            os.rename(part, path)
        except BaseException:
            os.unlink(part)
            raise
        return path

    def _check(self) -> None:
        """Make the folder if needed. Workers unpickle and run what is in it: no other user may
        replace files.
        """
        from .._eyas import trusted_folder

        trusted_folder(self._path)

    def find(self, name: str) -> str | None:
        """Return the path of a file that is there, unless it is another user's or others may write
        to it.
        """
        if not os.path.isdir(self._path):
            return None
        self._check()
        path = os.path.join(self._path, name)
        try:
            found = os.stat(path, follow_symlinks=False)
        except FileNotFoundError:
            return None
        is_own = (
            stat.S_ISREG(found.st_mode)
            and found.st_uid == os.geteuid()
            and not found.st_mode & 0o022
        )
        return path if is_own else None

    def names(self) -> list[str]:
        """Return the names of all files."""
        try:
            return os.listdir(self._path)
        except FileNotFoundError:
            return []

    def remove(self, name: str) -> None:
        """Remove a file, which may be gone."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self._path, name))


class ClusterFolder:
    """A folder in the files of the cluster."""

    ends_with_cluster = True

    def __init__(self, path: str, address: dict[str, Any]) -> None:
        """Name the folder, such as ``/values``, and the keywords that name the cluster."""
        self._path = path.rstrip("/")
        self._address = address
        self._session: FilesSession | None = None

    def _files(self) -> FilesSession:
        # A connection belongs to the process that has made it.
        if self._session is None or self._session.process != os.getpid():
            from .._eyas import FilesSession

            self._session = FilesSession(**self._address)
        return self._session

    def write(self, name: str, pieces: Iterable[bytes | memoryview]) -> str:
        """Write a file, and return its path."""
        path = f"{self._path}/{name}"
        # Parts of any length are records: the content has no format.
        written = self._files().create(path, format="fixed:1")
        try:
            for piece in pieces:
                written.write(piece)
            written.publish()
        except BaseException:
            written.discard()
            raise
        return _SCHEME + path

    def find(self, name: str) -> str | None:
        """Return the path of a file that is there."""
        path = f"{self._path}/{name}"
        try:
            self._files().stat(path)
        except FileNotFoundError:
            return None
        return _SCHEME + path

    def names(self) -> list[str]:
        """Return the names of all files."""
        try:
            entries = self._files().list(self._path or "/")
        except FileNotFoundError:
            return []
        return [os.path.basename(entry.name) for entry in entries if entry.kind == "file"]

    def remove(self, name: str) -> None:
        """Remove a file, which may be gone."""
        with contextlib.suppress(FileNotFoundError):
            self._files().remove(f"{self._path}/{name}")


def folder_of(path: str | os.PathLike[str], address: dict[str, Any]) -> Folder:
    """Return the folder with this path: ``eyas:///…`` is in the files of the cluster with these
    keywords.
    """
    text = os.fspath(path)
    if not text.startswith("eyas:/"):
        return SharedFolder(os.path.abspath(text))
    inside = text.removeprefix(_SCHEME)
    if not inside.startswith("/"):
        raise ValueError(
            f"a folder in the files of the cluster is the text 'eyas:///PATH', and not {text}"
        )
    return ClusterFolder(inside, address)
