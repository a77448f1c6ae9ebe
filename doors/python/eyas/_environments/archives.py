"""Archives of environments: the same content gives the same bytes."""

from __future__ import annotations

import collections
import concurrent.futures
import copy
import gzip
import io
import json
import lzma
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

__all__ = ["Archive", "Entry", "entries_of", "image_entries"]

#: Bytes that a thread compresses at a time. An archive is a sequence of compressed parts.
_PART_BYTES = 4 << 20
#: The fastest: nodes wait for the archive.
_LEVEL = 1
_THREADS = min(8, os.cpu_count() or 1)


@dataclass(frozen=True)
class Entry:
    """A file, folder or symbolic link of an environment."""

    name: str
    #: Where its content is.
    path: str
    mode: int
    size: int
    mtime_ns: int
    #: Of a symbolic link that stays.
    target: str

    @classmethod
    def of(cls, path: str, name: str) -> Entry:
        """Describe a file."""
        about = os.stat(path)
        return cls(name, path, about.st_mode, about.st_size, about.st_mtime_ns, "")

    @property
    def mark(self) -> tuple[object, ...]:
        """What is another if its content is."""
        is_file = stat.S_ISREG(self.mode)
        return (
            self.name,
            self.mode,
            self.size if is_file else 0,
            self.mtime_ns if is_file else 0,
            self.target,
        )


def entries_of(
    folder: pathlib.Path, is_wanted: Callable[[str], bool], is_whole: bool = False
) -> Iterator[Entry]:
    """Return what is in a folder, in order of name.

    What symbolic links name outside of the folder goes along, unless the folder is the root of a
    whole file system.
    """
    inside = os.path.realpath(folder)

    def walk(path: str, name: str, above: tuple[str, ...]) -> Iterator[Entry]:
        for found in sorted(os.scandir(path), key=lambda found: found.name):
            inner = f"{name}{found.name}"
            if not is_wanted(inner):
                continue
            about = found.stat(follow_symlinks=False)
            if stat.S_ISLNK(about.st_mode):
                target, real = os.readlink(found.path), os.path.realpath(found.path)
                is_inside = (
                    is_whole or real.startswith(inside + os.sep) and not os.path.isabs(target)
                )
                if is_inside or not os.path.exists(real):
                    yield Entry(inner, found.path, about.st_mode, 0, about.st_mtime_ns, target)
                    continue
                about = os.stat(real)
                if real in above:
                    raise ValueError(
                        f"the symbolic link {found.path} leads back to a folder that contains it"
                    )
            if stat.S_ISDIR(about.st_mode):
                yield Entry(inner, found.path, about.st_mode, 0, about.st_mtime_ns, "")
                yield from walk(found.path, f"{inner}/", (*above, os.path.realpath(found.path)))
            elif stat.S_ISREG(about.st_mode):
                yield Entry(inner, found.path, about.st_mode, about.st_size, about.st_mtime_ns, "")

    return walk(str(folder), "", (inside,))


class _Compressor(io.RawIOBase):
    """Compresses what is written, several parts at a time."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._part = bytearray()
        self._pool = concurrent.futures.ThreadPoolExecutor(_THREADS)
        self._parts: collections.deque[concurrent.futures.Future[bytes]] = collections.deque()

    def writable(self) -> bool:
        return True

    def write(self, content: Any, /) -> int:
        self._part += content
        if len(self._part) >= _PART_BYTES:
            self._compress()
        return len(content)

    def _compress(self) -> None:
        self._parts.append(self._pool.submit(gzip.compress, bytes(self._part), _LEVEL, mtime=0))
        self._part.clear()
        if len(self._parts) > 2 * _THREADS:
            self._file.write(self._parts.popleft().result())

    def close(self) -> None:
        if not self.closed:
            self._compress()
            for part in self._parts:
                self._file.write(part.result())
            self._pool.shutdown()
        super().close()


class Archive:
    """An archive that is written."""

    def __init__(self, path: pathlib.Path) -> None:
        """Begin a file."""
        self._file = open(path, "wb")
        self._compressor = _Compressor(self._file)
        self._tar = tarfile.open(fileobj=self._compressor, mode="w|", format=tarfile.PAX_FORMAT)

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._tar.close()
        self._compressor.close()
        self._file.close()

    def add_member(self, member: tarfile.TarInfo, content: IO[bytes] | None) -> None:
        """Add a member, which belongs to whoever unpacks the archive."""
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.pax_headers = {}
        self._tar.addfile(member, content)

    def add_bytes(self, name: str, content: bytes) -> None:
        """Add a file with this content."""
        member = tarfile.TarInfo(name)
        member.size = len(content)
        self.add_member(member, io.BytesIO(content))

    def add(self, entry: Entry) -> None:
        """Add a file, folder or symbolic link."""
        member = tarfile.TarInfo(entry.name)
        member.mode = stat.S_IMODE(entry.mode)
        # Whole seconds: compiled modules name them.
        member.mtime = entry.mtime_ns // 1_000_000_000
        if stat.S_ISLNK(entry.mode):
            member.type, member.linkname = tarfile.SYMTYPE, entry.target
            self.add_member(member, None)
        elif stat.S_ISDIR(entry.mode):
            member.type = tarfile.DIRTYPE
            # Whoever unpacks it writes to it.
            member.mode |= 0o700
            self.add_member(member, None)
        else:
            member.size = entry.size
            with open(entry.path, "rb") as content:
                self.add_member(member, content)


#: Indexes of an OCI image inside of each other.
_MAX_INDEXES = 8


def _field(about: Any, name: str | int) -> Any:
    """Return a field of what a manifest says."""
    try:
        return about[name]
    except (LookupError, TypeError):
        raise ValueError(
            f"its manifest has no `{name}` where a Docker or OCI image has it"
        ) from None


def _layers_of(image: tarfile.TarFile) -> list[IO[bytes]] | None:
    """Return an image's layers, the lowest first; none if it is the archive of a file system."""
    members = {member.name.removeprefix("./"): member for member in image}

    def content_of(name: str) -> IO[bytes]:
        content = image.extractfile(members[name]) if name in members else None
        if content is None:
            raise ValueError(f"its manifest names `{name}`, and there is no such file in it")
        return content

    def read(name: str) -> Any:
        with content_of(name) as content:
            return json.load(content)

    def blob(about: Any) -> str:
        return f"blobs/{str(_field(about, 'digest')).replace(':', '/')}"

    def layers(found: Any, name_of: Callable[[Any], str]) -> list[IO[bytes]]:
        if not isinstance(found, list):
            raise ValueError("the layers in its manifest are not a list")
        return [content_of(name_of(layer)) for layer in found]

    if "manifest.json" in members:
        return layers(_field(_field(read("manifest.json"), 0), "Layers"), str)
    if "index.json" in members and "oci-layout" in members:
        about = read("index.json")
        for _ in range(_MAX_INDEXES):
            # Of an image for several kinds of machines, the first.
            about = read(blob(_field(_field(about, "manifests"), 0)))
            if not isinstance(about, dict) or "manifests" not in about:
                return layers(_field(about, "layers"), blob)
        raise ValueError(f"it has more than {_MAX_INDEXES} indexes inside of each other")
    return None


#: How content begins that is compressed with zstd.
_ZSTD = b"\x28\xb5\x2f\xfd"


def _archive_in(content: IO[bytes]) -> tarfile.TarFile:
    """Open an archive, however it is compressed."""
    begins = content.read(len(_ZSTD))
    content.seek(0)
    # Later versions decompress it themselves.
    if begins == _ZSTD and sys.version_info < (3, 14):
        content = _without_zstd(content)
    return tarfile.open(fileobj=content)


def _without_zstd(content: IO[bytes]) -> IO[bytes]:
    with tempfile.TemporaryFile() as compressed:
        shutil.copyfileobj(content, compressed, 1 << 20)
        compressed.seek(0)
        plain = tempfile.TemporaryFile()
        try:
            done = subprocess.run(
                ["zstd", "-dc"], stdin=compressed, stdout=plain, stderr=subprocess.PIPE
            )
        except FileNotFoundError:
            raise ValueError(
                "it is compressed with zstd: install the command zstd, or use gzip"
            ) from None
        if done.returncode:
            why = done.stderr.decode(errors="replace").strip().removeprefix("/*stdin*\\ : ")
            raise ValueError(f"zstd says: {why}")
    plain.seek(0)
    return plain


_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"


def image_entries(path: pathlib.Path) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Return the files of an image: of a file system's archive, or of the layers of a Docker or OCI
    archive.
    """
    try:
        with open(path, "rb") as file, _archive_in(file) as image:
            layers = _layers_of(image)
            if layers is None:
                yield from _layer_entries(image, set(), set())
                return
            seen: set[str] = set()
            hidden: set[str] = set()
            for content in reversed(layers):
                with content, _archive_in(content) as files:
                    yield from _layer_entries(files, seen, hidden)
    except (
        EOFError,
        OSError,
        RecursionError,
        ValueError,
        lzma.LZMAError,
        tarfile.TarError,
        zlib.error,
    ) as error:
        raise ValueError(f"the image {path} cannot be read: {error}") from None


def _layer_entries(
    layer: tarfile.TarFile, seen: set[str], hidden: set[str]
) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Return the files of a layer that higher layers neither have nor hide, and note them."""
    now_seen: set[str] = set()
    now_hidden: set[str] = set()
    files: dict[str, tarfile.TarInfo] = {}
    for member in layer:
        name = os.path.normpath(member.name).lstrip("/")
        if member.isreg():
            files[name] = member
        folder, file = os.path.split(name)
        if file == _OPAQUE:
            now_hidden.add(folder + "/")
            continue
        if file.startswith(_WHITEOUT):
            now_hidden.add(os.path.join(folder, file.removeprefix(_WHITEOUT)))
            continue
        above = [str(parent) for parent in pathlib.PurePath(name).parents]
        is_hidden = name in hidden or any(
            parent in hidden or parent + "/" in hidden for parent in above
        )
        if name in (".", "") or name in seen or is_hidden or member.isdev():
            continue
        if member.islnk():
            member.linkname = os.path.normpath(member.linkname).lstrip("/")
            if member.linkname not in now_seen and member.linkname in files:
                # Higher layers have another file of that name, or none: the link becomes the file.
                member = copy.copy(files[member.linkname])
        now_seen.add(name)
        if not member.isdir():
            # A folder that it replaces.
            now_hidden.add(name + "/")
        member.name = name
        if member.isdir():
            member.mode |= 0o700
        yield member, layer.extractfile(member) if member.isreg() else None
    seen |= now_seen
    hidden |= now_hidden
