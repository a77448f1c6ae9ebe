"""Emulated nodes that share one slow disk, and a block device on such a disk
(`dev/src/bin/slow-disk`).

Everything is in mount and process namespaces of their own, in which the calling program runs
(`isolated`): when their first process ends, its mounts, loop devices and files in memory are gone.
Needs root, Linux with FUSE, and the programs of NEEDED.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent
FOLDER = "EYAS_SLOW_DISK_FOLDER"
DEADLINE_S = 30
READ_AHEAD_KB = 128  # what the kernel gives a mount of FUSE or NFS

# Program, and the Debian package that has it.
NEEDED = [
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
    ("chrt", "util-linux"),
    ("mount", "mount"),
]
NEEDED_BY_DEVICE = [("losetup", "mount"), ("findmnt", "util-linux"), ("mkfs.ext4", "e2fsprogs")]


class SlowDiskError(Exception):
    """Something is missing or has failed; the message says what to do."""


def check_needs(also: Iterable[tuple[str, str]] = ()) -> None:
    """Reports everything that is missing at once."""
    missing = [] if os.geteuid() == 0 else ["the rights of root (sudo); mounting needs them"]
    packages = {package for program, package in [*NEEDED, *also] if shutil.which(program) is None}
    if packages:
        missing.append(
            f"programs: on Debian and Ubuntu, apt-get install {' '.join(sorted(packages))}"
        )
    if not Path("/dev/fuse").exists():
        missing.append("/dev/fuse: load the kernel's module `fuse`")
    if not program().exists():
        how = (
            "cargo build --release -p eyas-dev --bin slow-disk, or say in SLOW_DISK_BIN where it is"
        )
        missing.append(f"{program()}: {how}")
    if missing:
        raise SlowDiskError("the slow disk lacks " + "; and ".join(missing))


def program() -> Path:
    """The file system's program: $SLOW_DISK_BIN, else the release build."""
    target = Path(os.environ.get("CARGO_TARGET_DIR") or PROJECT / "target")
    return Path(os.environ.get("SLOW_DISK_BIN") or target / "release" / "slow-disk").resolve()


def isolated(work: Callable[[Path], int]) -> int:
    """Runs this program again in its own namespaces, where `work` gets a folder in memory. Returns
    the exit code.
    """
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    if folder := os.environ.get(FOLDER):
        run("mount", "-t", "tmpfs", "-o", "size=80%", "slow-disk", folder)
        return work(Path(folder))
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    words = ["setpriv", "--pdeathsig", "KILL", *namespaces, sys.executable, *sys.argv]
    folder = tempfile.mkdtemp(prefix="eyas-slow-disk-")
    holder = subprocess.Popen(words, env={**os.environ, FOLDER: folder})
    try:
        return holder.wait()
    finally:
        end(holder)
        Path(folder).rmdir()


def end(holder: subprocess.Popen[bytes]) -> None:
    """Makes the first process in the namespaces clean up, and kills it if it does not."""
    with contextlib.suppress(OSError):
        for process in Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split():
            os.kill(int(process), signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        holder.wait(DEADLINE_S)
    holder.kill()
    holder.wait()


class SlowDisk:
    """A disk and its mounts, each like one on a node of its own. A context manager."""

    def __init__(self, folder: Path, nodes: int, words: Iterable[object]) -> None:
        """`words` are options of `slow-disk mount`."""
        self.folder = folder
        self.source = (
            folder / "source"
        )  # where files are, for those who do not have to wait for the disk
        self.mounts = [folder / f"node-{number + 1}" for number in range(nodes)]
        self.state = folder / "state"
        self.words = [str(word) for word in words]
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> SlowDisk:
        self.source.mkdir()
        try:
            for mount in self.mounts:
                mount.mkdir()
                self._mount(mount)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _mount(self, mount: Path) -> None:
        # A disk does not wait for processors, so its process has priority.
        words = [
            "chrt",
            "-r",
            "1",
            *map(str, (program(), "mount", self.source, mount, "--state", self.state)),
        ]
        process = subprocess.Popen(
            [*words, *self.words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.processes.append(process)
        if process.stdout is None or process.stdout.readline() != b"ready\n":
            raise SlowDiskError("the slow disk is not mounted")

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process.stdin is not None:
                process.stdin.close()
            process.wait(DEADLINE_S)
        shutil.rmtree(self.folder)

    def forget(self) -> None:
        """Clears the memory of the disk's server."""
        run(program(), "forget", self.state)

    def counters(self) -> dict[str, int]:
        """Counters of the disk."""
        counters: dict[str, int] = json.loads(run(program(), "stat", self.state))
        return counters


class BlockDevice:
    """An ext4 file system on a loop device on the first mount of a slow disk, with a scheduler of
    the kernel. A context manager.
    """

    def __init__(self, disk: SlowDisk, files_bytes: int, is_written: bool = False) -> None:
        """The device has at least this size. Once entered, it is read-only, unless it is to be
        written.
        """
        self.disk = disk
        self.options = "loop" if is_written else "ro,loop"
        self.bytes = int(files_bytes * 1.05) + (64 << 20)
        self.mount = disk.folder / "ext4"
        self.device = ""
        self.before: dict[str, str] = {}

    def fill(self, write: Callable[[Path], None]) -> None:
        """Writes files to the device at full speed, before it is entered."""
        image = self.disk.source / "image"
        with image.open("wb") as file:
            file.truncate(self.bytes)
        run("mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-E", "lazy_itable_init=0", image)
        self.mount.mkdir()
        run("mount", "-o", "loop", image, self.mount)
        try:
            write(self.mount)
        finally:
            run("umount", self.mount)

    def __enter__(self) -> BlockDevice:
        run("mount", "-o", self.options, self.disk.mounts[0] / "image", self.mount)
        self.device = run("findmnt", "--noheadings", "--output", "SOURCE", self.mount).strip()
        # Otherwise the loop device would serialize requests, and its page cache would merge them.
        run("losetup", "--direct-io=on", self.device)
        self.before = self._swap({"rotational": "1", "read_ahead_kb": str(READ_AHEAD_KB)})
        return self

    def __exit__(self, *_: object) -> None:
        self._swap(self.before)
        run("umount", self.mount)

    def schedule(self, scheduler: str) -> None:
        """Puts this scheduler above the disk."""
        self.before = {**self._swap({"scheduler": scheduler}), **self.before}

    def _swap(self, settings: dict[str, str]) -> dict[str, str]:
        """Changes settings of the device's queue. Returns the old ones, because the device outlives
        this mount.
        """
        queue = Path("/sys/block") / Path(self.device).name / "queue"
        texts = {
            name: (queue / name).read_text() for name in settings
        }  # of all first: one may change another
        for name, value in settings.items():
            (queue / name).write_text(value)
        chosen = {name: re.search(r"\[(.*)\]", text) for name, text in texts.items()}
        return {
            name: found[1] if (found := chosen[name]) else text.strip()
            for name, text in texts.items()
        }


def forget(files: Iterable[Path]) -> None:
    """Makes the kernel drop the cached pages of these files."""
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def run(*words: object) -> str:
    """Runs a command to its end. Returns its output."""
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise SlowDiskError(f"`{' '.join(map(str, words))}`: {done.stderr.strip()}")
    return done.stdout
