"""Files of the cluster for fsspec, and so for pandas, pyarrow, zarr, xarray and Dask: paths
``eyas:///data/sky.csv``.

>>> import pandas
>>> pandas.read_parquet("eyas:///data/sky.parquet", storage_options={"cluster": "lab"})

Without ``cluster`` or ``access``, the cluster is that of ``eyas`` commands; in a call, that of the
client, whose access file the node must have. Chunks that a node on this machine has are read from
the files of its store.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from glob import has_magic
from typing import Any

from ._eyas import FileEntry, FilesSession
from ._optional import Needs
from ._worker.worker import ACCESS_VARIABLE, CLUSTER_VARIABLE

with Needs(
    "fsspec",
    "the file system of the cluster for Python (executor.files, eyas:///…)",
    "eyas[fsspec]",
):
    from fsspec import AbstractFileSystem
    from fsspec.callbacks import DEFAULT_CALLBACK
    from fsspec.compression import compr
    from fsspec.core import get_compression
    from fsspec.utils import isfilelike, stringify_path, tokenize

    from ._files.file_objects import (
        CompressedWriter,
        FileEditor,
        FileReader,
        FileWriter,
        TextReader,
        TextWriter,
    )

__all__ = ["EyasFileSystem"]

#: Bytes that are copied at a time.
_COPIED_BYTES = 8 << 20

#: Ranges that are read at the same time.
_READ_TOGETHER = 8

#: The format of files that are bytes without records.
_BYTES = "fixed:1"

_TYPE_BITS = {"file": stat.S_IFREG, "directory": stat.S_IFDIR, "link": stat.S_IFLNK}


class EyasFileSystem(AbstractFileSystem):
    """The files of a cluster.

    A file appears, or is replaced, as a whole when it is closed; an exception in its ``with`` block
    discards it. Missing folders are made. Nothing is cached, so changes of other clients are seen
    at once.
    """

    protocol = "eyas"
    root_marker = "/"

    def __init__(
        self,
        cluster: str | None = None,
        access: str | os.PathLike[str] | None = None,
        **options: Any,
    ):
        """Use the cluster with a name or an access file. It is connected to at the first use."""
        super().__init__(cluster=cluster, access=access, **options)
        self._cluster = cluster
        self._access = None if access is None else os.fspath(access)
        self._session: FilesSession | None = None

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = stringify_path(path)
        if path.startswith("eyas://"):
            path = path.removeprefix("eyas://")
            if path and not path.startswith("/"):
                raise ValueError(
                    f"eyas://{path} is not a path of the cluster: write eyas:///{path}"
                )
        return "/" + path.strip("/")

    def _ask(self, what: str, *args: Any, **options: Any) -> Any:
        """Call a method of the session of this process. After a failed connection, the next call
        connects again.
        """
        session = self._session
        if session is None or session.process != os.getpid():
            self._session = session = _connected(self._cluster, self._access)
        try:
            return getattr(session, what)(*args, **options)
        except ConnectionError:
            self._session = None
            raise

    def _find(self, path: str) -> dict[str, Any] | None:
        """Return what is at a path; ``None`` if nothing is."""
        try:
            found: dict[str, Any] = self.info(path)
            return found
        except (FileNotFoundError, NotADirectoryError):
            return None

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Return name, size, type, times, permissions and owner of a file, folder or link.

        ``attributes`` is a ``dict`` of its named attributes, which lists do not have.
        """
        path = self._strip_protocol(path)
        if path == "/":
            return {"name": "/", "size": 0, "type": "directory"}
        return _info(self._ask("stat", path))

    def exists(self, path: str, **_: Any) -> bool:
        """Whether there is a file, folder or link at a path. A cluster that cannot be reached is an
        error.
        """
        return self._find(path) is not None

    def isfile(self, path: str) -> bool:
        """Whether a path is a file."""
        found = self._find(path)
        return found is not None and found["type"] == "file"

    def isdir(self, path: str) -> bool:
        """Whether a path is a folder."""
        found = self._find(path)
        return found is not None and found["type"] == "directory"

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """List a folder."""
        path = self._strip_protocol(path)
        entries = [_info(entry) for entry in self._ask("list", path)]
        if not entries:
            found = self.info(path)
            entries = [] if found["type"] == "directory" else [found]
        return entries if detail else [entry["name"] for entry in entries]

    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        **options: Any,
    ) -> Any:
        """List all files below a folder, with one request to each node."""
        if maxdepth is not None:
            return super().find(
                path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **options
            )
        path = self._strip_protocol(path)
        entries = [_info(entry) for entry in self._ask("list", path, recursive=True)]
        own = self._find(path) if withdirs or not entries else None
        if own is not None and (withdirs or own["type"] != "directory"):
            entries.insert(0, own)
        found = {
            entry["name"]: entry for entry in entries if withdirs or entry["type"] != "directory"
        }
        return found if detail else list(found)

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Make a folder."""
        path = self._strip_protocol(path)
        if path == "/":
            raise FileExistsError(errno.EEXIST, "there is a folder / already")
        if not create_parents:
            self.info(self._parent(path))
        self._ask("make_folder", path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a folder, and those above it."""
        try:
            self.mkdir(path)
        except FileExistsError:
            if not exist_ok or not self.isdir(path):
                raise

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        self._ask("remove_folder", self._strip_protocol(path))

    def rm_file(self, path: str) -> None:
        """Remove a file or link."""
        self._ask("remove", self._strip_protocol(path))

    def rm(
        self, path: str | list[str], recursive: bool = False, maxdepth: int | None = None
    ) -> None:
        """Remove files, and with ``recursive`` folders."""
        paths = [self._strip_protocol(one) for one in ([path] if isinstance(path, str) else path)]
        # A name may have the characters of patterns.
        named = [one for one in paths if has_magic(one) and self._find(one) is not None]
        others = [one for one in paths if one not in named]
        if others:
            named += self.expand_path(
                others, recursive=recursive and maxdepth is not None, maxdepth=maxdepth
            )
        for one in reversed(named):
            if not recursive or not self.isdir(one):
                self.rm_file(one)
            elif maxdepth is not None:
                self.rmdir(one)
            elif one == "/":
                for entry in self.ls(one, detail=False):
                    self.rm(entry, recursive=True)
            else:
                self._ask("remove_tree", one)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        """Copy a file. The nodes copy the chunks that they have, unless there is a file to be
        replaced.
        """
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.info(path1)["type"] == "directory":
            self.makedirs(path2, exist_ok=True)
            return
        try:
            self._ask("copy", path1, path2)
        except FileExistsError:
            if path1 != path2:
                _write_with_or_without_records(
                    lambda **options: self._copy_over(path1, path2, options), {}
                )

    def _copy_over(self, path1: str, path2: str, options: dict[str, Any]) -> None:
        with self._open(path1) as source, self._open(path2, "wb", **options) as copy:
            while content := source.read(_COPIED_BYTES):
                copy.write(content)

    def mv(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = True,
        maxdepth: int | None = None,
        **options: Any,
    ) -> None:
        """Rename a file or folder; into the folder, if the new name is that of a folder."""
        if (
            not isinstance(path1, str)
            or not isinstance(path2, str)
            or "*" in path1
            or maxdepth is not None
        ):
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **options)
            return
        old, new = self._strip_protocol(path1), self._strip_protocol(path2)
        if path2.endswith("/") or (new != old and self.isdir(new)):
            new = f"{new.rstrip('/')}/{old.rsplit('/', 1)[1]}"
        self._ask("rename", old, new)

    def open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: Any = None,
        compression: str | None = None,
        **options: Any,
    ) -> Any:
        """Open a file, as bytes or as text, and compressed if ``compression`` says so."""
        if "+" in mode and ("b" not in mode or compression is not None):
            raise ValueError(
                "a file of the cluster is changed as bytes: open it with mode 'r+b' and no "
                "compression"
            )
        if "b" in mode and ("r" in mode or compression is None):
            return super().open(path, mode, block_size, cache_options, compression, **options)
        text = {
            name: options.pop(name) for name in ("encoding", "errors", "newline") if name in options
        }
        if "r" in mode:
            buffer = super().open(path, "rb", block_size, cache_options, compression, **options)
            return TextReader(self, path, buffer, compression, **text)
        binary = mode.replace("t", "").replace("b", "") + "b"
        writer = file = super().open(path, binary, block_size, cache_options, **options)
        if compression is not None and (known := get_compression(path, compression)) is not None:
            file = compr[known](file, mode=mode[0])
        if "b" in mode:
            return writer if file is writer else CompressedWriter(writer, file)
        return TextWriter(writer, file, **text)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: Any = None,
        *,
        cache_type: str | None = None,
        format: str | None = None,
        chunk_bytes: int | None = None,
        replicas: int | None = None,
    ) -> FileReader | FileWriter | FileEditor:
        """Open a file: ``rb``, ``wb``, ``xb`` or ``ab``, or ``r+b`` to change it at any offset.

        ``format`` is that of its records, as for ``eyas dfs put``: by default as the name and the
        content say. Reads are not cached, so ``block_size``, ``cache_type`` and ``cache_options``
        have no effect.
        """
        path = self._strip_protocol(path)
        if mode == "rb":
            return FileReader(self, path, self._ask("open", path))
        if mode in ("wb", "xb"):
            exclusive = mode == "xb"
            written = self._ask(
                "create",
                path,
                exclusive=exclusive,
                format=format,
                chunk_bytes=chunk_bytes,
                replicas=replicas,
            )
            return FileWriter(self, path, mode, written, 0, autocommit)
        if mode == "ab":
            found = self._find(path)
            if found is None:
                # If another client makes the file meanwhile, closing this one fails, and replaces
                # nothing.
                return self._open(
                    path,
                    "xb",
                    autocommit=autocommit,
                    format=format,
                    chunk_bytes=chunk_bytes,
                    replicas=replicas,
                )
            return FileWriter(
                self, path, mode, self._ask("append", path), found["size"], autocommit
            )
        if mode in ("r+b", "rb+"):
            if (format, chunk_bytes, replicas) != (None, None, None):
                raise ValueError(
                    "a file that is changed keeps its format, chunk_bytes and replicas: give none "
                    "of them"
                )
            editor = FileEditor(self, path, self._ask("edit", path), autocommit)
            if not autocommit:
                self.transaction.files.append(editor)
            return editor
        modes = "'rb', 'wb', 'xb', 'ab' or 'r+b'"
        raise ValueError(f"files of the cluster cannot be opened with mode {mode!r}: use {modes}")

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        """Return the content of a file, or a part of it."""
        return _read(self._ask("open", self._strip_protocol(path)), start, end)

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **_: Any,
    ) -> list[Any]:
        """Return parts of files. Each file is opened once."""
        starts = starts if isinstance(starts, list) else [starts] * len(paths)
        ends = ends if isinstance(ends, list) else [ends] * len(paths)
        if len(starts) != len(paths) or len(ends) != len(paths):
            raise ValueError("there must be as many starts and ends as paths")

        def caught(function: Any, *args: Any) -> Any:
            try:
                return function(*args)
            except Exception as error:
                return error

        def read(opened: Any, start: int | None, end: int | None) -> Any:
            return opened if isinstance(opened, Exception) else caught(_read, opened, start, end)

        names = [self._strip_protocol(path) for path in paths]
        with ThreadPoolExecutor(min(_READ_TOGETHER, len(names) or 1)) as threads:
            distinct = list(dict.fromkeys(names))
            opened = dict(
                zip(distinct, threads.map(lambda name: caught(self._ask, "open", name), distinct))
            )
            parts = list(threads.map(read, [opened[name] for name in names], starts, ends))
        if on_error != "return":
            for part in parts:
                if isinstance(part, Exception):
                    raise part
        return parts

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **options: Any) -> None:
        """Write a file."""

        def write(**options: Any) -> None:
            with self._open(path, "xb" if mode == "create" else "wb", **options) as file:
                file.write(value)

        _write_with_or_without_records(write, options)

    def put_file(
        self,
        lpath: Any,
        rpath: str,
        callback: Any = DEFAULT_CALLBACK,
        mode: str = "overwrite",
        **options: Any,
    ) -> None:
        """Store a local file."""
        if os.path.isdir(lpath):
            self.makedirs(rpath, exist_ok=True)
            return

        def write(**options: Any) -> None:
            with open(lpath, "rb") as source:
                callback.set_size(os.fstat(source.fileno()).st_size)
                callback.absolute_update(0)
                with self._open(rpath, "xb" if mode == "create" else "wb", **options) as file:
                    while content := source.read(_COPIED_BYTES):
                        file.write(content)
                        callback.relative_update(len(content))

        _write_with_or_without_records(write, options)

    def get_file(
        self,
        rpath: str,
        lpath: Any,
        callback: Any = DEFAULT_CALLBACK,
        outfile: Any = None,
        **options: Any,
    ) -> None:
        """Copy a file to a local file, with its holes."""
        # A device or pipe has no holes.
        is_special = isfilelike(lpath) or (os.path.exists(lpath) and not os.path.isfile(lpath))
        if outfile is not None or is_special or self.isdir(rpath):
            super().get_file(rpath, lpath, callback=callback, outfile=outfile, **options)
            return
        opened = self._ask("open", self._strip_protocol(rpath))
        os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
        with open(lpath, "wb") as file:
            callback.set_size(opened.size)
            for start, end in opened.data():
                file.seek(start)
                callback.absolute_update(start)
                while start < end:
                    content = opened.read_at(start, min(_COPIED_BYTES, end - start))
                    file.write(content)
                    start += len(content)
                    callback.relative_update(len(content))
            file.truncate(opened.size)
            callback.absolute_update(opened.size)

    def touch(self, path: str, truncate: bool = True, **_: Any) -> None:
        """Make an empty file; without ``truncate``, only set the time of a file that exists."""
        path = self._strip_protocol(path)
        if truncate or not self.exists(path):
            self.pipe_file(path, b"")
        else:
            self._ask("set_modified", path, time.time_ns())

    def getxattr(self, path: str, attr_name: str) -> bytes | None:
        """Return the value of a named attribute of a file, folder or link.

        The result is ``None`` if there is no attribute of this name.
        """
        attributes: dict[str, bytes] = self.info(path).get("attributes", {})
        return attributes.get(attr_name)

    def setxattr(self, path: str, **attributes: bytes | None) -> None:
        """Set named attributes of a file, folder or link.

        Renames, changes of the content and copies keep them. ``None`` removes an attribute, also if
        there is none. A mount shows them as extended attributes ``user.NAME``.
        """
        path = self._strip_protocol(path)
        for name, value in attributes.items():
            if value is not None:
                self._ask("set_attribute", path, name, value)
                continue
            try:
                self._ask("remove_attribute", path, name)
            except OSError as error:
                if error.errno != errno.ENODATA:
                    raise

    def modified(self, path: str) -> datetime:
        """Return the time of the last write."""
        return _time(self.info(path), "mtime")

    def created(self, path: str) -> datetime:
        """Return the time of the last change of the content or an attribute: no time of creation is
        kept.
        """
        return _time(self.info(path), "ctime")

    def checksum(self, path: str) -> int:
        """Return a number that depends on the content, and on where it is cut into chunks."""
        chunks = self._ask("chunks", self._strip_protocol(path))
        return int(tokenize([(chunk.size_bytes, chunk.checksum) for chunk in chunks]), 16)

    def block_places(self, path: str) -> list[dict[str, Any]]:
        """Return where the chunks of a file are, in order, to run programs where their data is.

        Each is a ``dict`` with its ``offset`` and ``size`` in bytes, the number of its ``block``,
        and its ``nodes``: for each replica the ``node``, and the address of its ``host``, or
        ``None`` while it is not connected. A program that processes records reads whole blocks:
        each is one chunk, except in a file that is one record. Zeros that no node stores have no
        nodes.
        """
        places = self._ask("places", self._strip_protocol(path))
        return [
            {
                "offset": offset,
                "size": size,
                "block": block,
                "nodes": [{"node": node, "host": host} for node, host in holders],
            }
            for offset, size, block, holders in places
        ]

    def ukey(self, path: str) -> str:
        """Return a text that differs for each version of a file."""
        info = self.info(path)
        return f"{info.get('id')}-{info['size']}-{info.get('modified_ns')}"


def _connected(cluster: str | None, access: str | None) -> FilesSession:
    """Connect to a cluster; without a name, in a call, to that of the client.

    The token of its job only opens the files that are inputs of the job. The access file of the
    client opens all, if this node has the file.
    """
    caller = os.environ.get(CLUSTER_VARIABLE), os.environ.get(ACCESS_VARIABLE)
    if cluster is None and access is None and any(caller):
        try:
            return FilesSession(cluster=caller[0], access=caller[1])
        except ConnectionError:
            pass
    return FilesSession(cluster=cluster, access=access)


def _info(entry: FileEntry) -> dict[str, Any]:
    """Describe an entry as fsspec does."""
    kind, modified_ns, target = entry.kind, entry.modified_ns, entry.target
    info = {
        "name": entry.name,
        "size": entry.size_bytes,
        "type": kind,
        "mtime": modified_ns / 1e9,
        "ctime": entry.changed_ns / 1e9,
        "modified_ns": modified_ns,
        "mode": _TYPE_BITS[kind] | entry.mode,
        "uid": entry.uid,
        "gid": entry.gid,
        "islink": kind == "link",
        "id": entry.id,
    }
    if entry.attributes is not None:
        info["attributes"] = entry.attributes
    return info if target is None else {**info, "destination": target}


def _time(info: dict[str, Any], field: str) -> datetime:
    return datetime.fromtimestamp(info.get(field, 0), tz=timezone.utc)


def _read(opened: Any, start: int | None, end: int | None) -> bytes:
    """Read a part of an open file, with ends as those of slices."""
    first, last, _ = slice(start, end).indices(opened.size)
    content: bytes = opened.read_at(first, max(0, last - first))
    return content


def _write_with_or_without_records(write: Any, options: dict[str, Any]) -> None:
    """Write a file; without records, if its content does not have the format that its name
    promises.
    """
    try:
        write(**options)
    except OSError as error:
        if error.errno != errno.EBADMSG or "format" in options:
            raise
        write(**options, format=_BYTES)
