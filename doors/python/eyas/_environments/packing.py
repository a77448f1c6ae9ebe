"""Environments of workers: packed once by the client, unpacked once by each node.

An environment becomes a compressed archive, whose key tells its content: the archive is kept in a
folder of the client, and later executors use it again. For the cluster the archive is a file as any
other: each node gets one copy, from another node if it can. The first worker of a node unpacks it
(``start.sh``).

=======  ===========================================================================================
archive  content
=======  ===========================================================================================
venv     the virtual environment without its interpreter, which is the node's own of the same build
conda    the prefix; paths in its files become those of the node (``finish.py``)
image    the root of the file system in ``root``, or the SIF image as ``image.sif``
all      in ``.eyas``: the package :mod:`eyas._worker`, and ``finish.py`` with ``prefixes.json``
=======  ===========================================================================================
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from .._eyas import trusted_folder
from .._files.folders import Folder
from .archives import Archive, Entry, entries_of, image_entries

__all__ = ["Environment", "prepare"]

#: Environment variable with the folder of archives.
CACHE_VARIABLE = "EYAS_CACHE"
#: Archives and built environments that no executor has used for this time are removed.
KEPT_S = 30 * 24 * 3600.0
#: Changes when archives of the same content do.
_FORMAT = "1"

#: The folder of what goes along, and that of the whole package.
_HERE = pathlib.Path(__file__).parent
_PACKAGE = _HERE.parent
#: Names in a virtual environment that lead to its interpreter.
_INTERPRETERS = re.compile(r"bin/python[0-9.]*t?")
_PIP_SHOWN_BYTES = 4096
#: Bytes of an archive that are copied at a time.
_PIECE_BYTES = 4 << 20


@dataclasses.dataclass(frozen=True)
class Environment:
    """A packed environment."""

    kind: str
    key: str
    #: The build of Python that it needs on nodes; empty if it has its own.
    build: str
    #: An interpreter on this machine.
    interpreter: str
    #: For messages.
    origin: str
    #: Path of the archive.
    archive: str

    def words(self, folder: str) -> list[str]:
        """Return the words that start a worker. The path of the archive on the node
        follows them.
        """
        script = (_HERE / "start.sh").read_text()
        return [
            "sh",
            "-c",
            script,
            "eyas",
            self.kind,
            self.key,
            self.build,
            self.interpreter,
            self.origin,
            folder,
        ]


def _cache() -> pathlib.Path:
    named = os.environ.get(CACHE_VARIABLE)
    base = (
        pathlib.Path(named)
        if named
        else pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    )
    folder = (base if named else base / "eyas") / "environments"
    # Nodes run what is in the archives.
    trusted_folder(folder, is_own=True)
    return folder.absolute()


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
    """Wait for other programs that make the same file or folder."""
    with open(f"{path}.lock", "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _used(path: pathlib.Path) -> None:
    """Note the use of a file, whose time of change, which is its version for nodes, must stay."""
    with contextlib.suppress(OSError):
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))


def _remove_unused(cache: pathlib.Path) -> None:
    limit = time.time() - KEPT_S
    for path in cache.iterdir():
        with contextlib.suppress(OSError):
            if path.stat().st_atime < limit and not path.name.endswith(".lock"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _requirements(path: pathlib.Path) -> list[pathlib.Path]:
    """Return a file of requirements, and those that it names."""
    found = [path]
    for file in found:
        for line in file.read_text().splitlines():
            option, _, name = line.strip().replace("=", " ", 1).partition(" ")
            if option in ("-r", "--requirement", "-c", "--constraint"):
                other = file.parent / name.strip()
                if other.is_file() and other not in found:
                    found.append(other)
    return found


def _built(path: pathlib.Path) -> pathlib.Path:
    """Build a virtual environment with requirements, unless there is one of this interpreter and
    these requirements.
    """
    content = [sys.version, sys.base_prefix, *(file.read_text() for file in _requirements(path))]
    folder = (
        _cache() / f"requirements-{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]}"
    )
    with _locked(folder):
        done = folder / ".eyas-built"
        if done.exists():
            _used(folder)
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        make, pip = (
            [sys.executable, "-P", "-m", "venv"],
            [str(folder / "bin" / "python"), "-P", "-m", "pip"],
        )
        if importlib.util.find_spec("pip") is not None:
            # The environment needs no pip of its own, which would go along.
            make, pip = (
                [*make, "--without-pip"],
                [sys.executable, "-P", "-m", "pip", "--python", pip[0]],
            )
        install = [*pip, "--disable-pip-version-check", "install", "-r", str(path)]
        for words in ([*make, str(folder)], install):
            ended = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=path.parent,
            )
            if ended.returncode != 0:
                shutil.rmtree(folder, ignore_errors=True)
                said = ended.stdout[-_PIP_SHOWN_BYTES:].decode(errors="replace").strip()
                raise ValueError(f"the requirements {path} cannot be installed:\n{said}")
        done.touch()
    return folder


def _refuse_editable(folder: pathlib.Path) -> None:
    """Packages that are installed as links to their sources would stay behind."""
    for about in folder.glob("lib/python*/site-packages/*.dist-info/direct_url.json"):
        told = json.loads(about.read_text())
        if told.get("dir_info", {}).get("editable"):
            name = about.parent.name.partition("-")[0]
            raise ValueError(
                f"the package {name} of {folder} is editable: its files are elsewhere, at "
                f"{told.get('url')}; install it without -e"
            )


def _venv_build(folder: pathlib.Path) -> tuple[str, str]:
    """Return the build of Python of a virtual environment, and its interpreter."""
    interpreter = folder / "bin" / "python"
    code = (
        "import sys; print(sys.implementation.cache_tag + sys.abiflags, "
        "sys.implementation._multiarch); print(getattr(sys, '_base_executable', sys.executable))"
    )
    try:
        told = subprocess.run(
            [str(interpreter), "-I", "-c", code], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise ValueError(
            f"the interpreter {interpreter} of the environment cannot be started: {error}"
        ) from None
    build, base = told.stdout.splitlines()
    return build, base


def _is_of_venv(name: str) -> bool:
    return _INTERPRETERS.fullmatch(name) is None and name != ".eyas-built"


def _spare_bytes(prefix: pathlib.Path) -> dict[str, int]:
    """Return the bytes that conda has left in binary files for each place with the prefix."""
    spare: dict[str, int] = {}
    for about in prefix.glob("conda-meta/*.json"):
        for path in json.loads(about.read_text()).get("paths_data", {}).get("paths", []):
            if path.get("file_mode") == "binary" and (
                placeholder := path.get("prefix_placeholder")
            ):
                spare[path["_path"]] = max(0, len(placeholder) - len(os.fsencode(str(prefix))))
    return spare


def _with_prefix(
    prefix: pathlib.Path, entries: list[Entry], is_searched: Callable[[str], bool]
) -> dict[str, int | None]:
    """Return the files that have the path of the environment in them, with the spare bytes of
    binary ones.
    """
    wanted, spare = os.fsencode(str(prefix)), _spare_bytes(prefix)
    found: dict[str, int | None] = {}
    for entry in entries:
        if stat.S_ISREG(entry.mode) and entry.size >= len(wanted) and is_searched(entry.name):
            content = pathlib.Path(entry.path).read_bytes()
            if wanted in content:
                found[entry.name] = spare.get(entry.name, 0) if b"\0" in content else None
    return found


def _support() -> list[tuple[str, bytes]]:
    """Return the files of `.eyas` that are the same for all environments."""
    import cloudpickle

    own = [_PACKAGE / "__init__.py", *sorted((_PACKAGE / "_worker").glob("*.py"))]
    modules = [(f"lib/eyas/{path.relative_to(_PACKAGE)}", path) for path in own]
    cloud = pathlib.Path(cloudpickle.__file__).parent
    modules += [(f"lib/cloudpickle/{path.name}", path) for path in sorted(cloud.glob("*.py"))]
    modules += [("finish.py", _HERE / "finish.py")]
    return [(f".eyas/{name}", path.read_bytes()) for name, path in modules]


def _key(kind: str, origin: str, support: list[tuple[str, bytes]], marks: list[object]) -> str:
    content = [
        _FORMAT,
        kind,
        origin,
        [(name, hashlib.sha256(data).hexdigest()) for name, data in support],
        marks,
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


def _kept(key: str, write: Callable[[Archive], None], support: list[tuple[str, bytes]]) -> str:
    """Return the path of the archive with this key, which is written if there is none."""
    cache = _cache()
    path = cache / f"{key}.tar.gz"
    with _locked(path):
        if not path.exists():
            _remove_unused(cache)
            part = cache / f"{key}.part"
            try:
                with Archive(part) as archive:
                    for name, content in support:
                        archive.add_bytes(name, content)
                    write(archive)
                os.replace(part, path)
            finally:
                part.unlink(missing_ok=True)
        _used(path)
    return str(path)


def _packed_folder(kind: str, folder: pathlib.Path) -> Environment:
    """Pack a virtual environment or a conda prefix."""
    is_venv = kind == "venv"
    _refuse_editable(folder)
    build, interpreter = _venv_build(folder) if is_venv else ("", "")
    entries = list(entries_of(folder, _is_of_venv if is_venv else lambda name: True))
    # Programs leave compiled modules when they run.
    marks: list[object] = [entry.mark for entry in entries if "__pycache__" not in entry.name]
    support = _support()
    key = _key(kind, str(folder), support, [build, marks])

    def write(archive: Archive) -> None:
        # In a virtual environment, these are scripts.
        has_prefix = _with_prefix(
            folder, entries, lambda name: not is_venv or name.startswith("bin/")
        )
        prefixes = {"prefix": str(folder), "files": has_prefix}
        archive.add_bytes(".eyas/prefixes.json", json.dumps(prefixes).encode())
        for entry in entries:
            archive.add(entry)

    return Environment(kind, key, build, interpreter, str(folder), _kept(key, write, support))


def _packed_image(path: pathlib.Path) -> Environment:
    """Pack the image of a container."""
    if path.is_dir():
        entries = list(entries_of(path, lambda name: True, is_whole=True))
        marks: list[object] = [entry.mark for entry in entries]
    else:
        entries = []
        about = path.stat()
        marks = [about.st_size, about.st_mtime_ns]
    support = _support()
    key = _key("image", str(path), support, marks)

    def write(archive: Archive) -> None:
        if path.suffix == ".sif":
            archive.add(Entry.of(str(path), "image.sif"))
            return
        if entries:
            for entry in entries:
                archive.add(dataclasses.replace(entry, name=f"root/{entry.name}"))
            return
        for member, content in image_entries(path):
            member.name = f"root/{member.name}"
            if member.islnk():
                member.linkname = f"root/{member.linkname}"
            archive.add_member(member, content)

    return Environment("image", key, "", "", str(path), _kept(key, write, support))


def prepare(environment: str, nodes_folder: Folder | None) -> Environment:
    """Pack an environment, unless it was packed before. Copy the archive to a folder that nodes
    see, if one is named.

    An environment is the path of a virtual environment, of a conda prefix, of a file with
    requirements, or of the image of a container.
    """
    path = pathlib.Path(environment)
    if not path.exists():
        raise ValueError(f"there is no environment {path}")
    if (path / "conda-meta").is_dir():
        packed = _packed_folder("conda", path)
    elif (path / "pyvenv.cfg").is_file():
        packed = _packed_folder("venv", path)
    elif path.is_file() and path.suffix == ".txt":
        packed = dataclasses.replace(_packed_folder("venv", _built(path)), origin=str(path))
    elif (
        path.suffix in (".sif", ".tar", ".gz", ".tgz", ".xz", ".bz2", ".zst")
        or (path / "usr").is_dir()
    ):
        packed = _packed_image(path)
    else:
        raise ValueError(
            f"{path} is no environment: name a virtual environment (with pyvenv.cfg), a conda "
            "prefix (with conda-meta), a file of requirements (.txt), or the image of a container "
            "(.sif, .tar, or a folder with usr)"
        )
    if nodes_folder is None:
        return packed
    name = f"environment-{packed.key}.tar.gz"
    archive = nodes_folder.find(name) or nodes_folder.write(name, _pieces_of(packed.archive))
    return dataclasses.replace(packed, archive=archive)


def _pieces_of(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece
