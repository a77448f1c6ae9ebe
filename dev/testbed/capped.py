"""Nodes on this machine with limited shares of a processor, of the disk and of the memory (control
groups of version 1), without networks. For experiments in which nodes differ in speed, not in
links.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

CGROUPS = Path("/sys/fs/cgroup")
# Short, so that a small share is scheduled often: with a twentieth of a processor, a node waits 19
# ms.
PERIOD_US = 20_000
# High against other processes of the machine, which have 1024 each.
WEIGHT = 100_000
EMPTY_S = 60
BUSY = Path(__file__).resolve().parent / "busy.py"


class Node:
    """Processes that share a fraction of one processor, and a limit in bytes a second on disk
    access past the page cache; `memory_bytes` limits their memory with their page cache. Their
    files are in `folder`.
    """

    def __init__(
        self, name: str, share: float, folder: Path, disk_bytes_s: int = 0, memory_bytes: int = 0
    ) -> None:
        self.name, self.share, self.folder = name, share, folder / name
        self.folder.mkdir(parents=True)
        kinds = ["cpu", "blkio"] + (["memory"] if memory_bytes else [])
        self.groups = [CGROUPS / kind / f"eyas-{os.getpid()}-{name}" for kind in kinds]
        for group in self.groups:
            group.mkdir()
        (self.groups[0] / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (self.groups[0] / "cpu.shares").write_text(str(WEIGHT))
        if memory_bytes:
            (self.groups[2] / "memory.limit_in_bytes").write_text(str(memory_bytes))
        if disk_bytes_s:
            device = self.folder.stat().st_dev
            limit = f"{os.major(device)}:{os.minor(device)} {disk_bytes_s}"
            for kind in ("read", "write"):
                (self.groups[1] / f"blkio.throttle.{kind}_bps_device").write_text(limit)

    def start(self, words: Sequence[object], **options: Any) -> subprocess.Popen[bytes]:
        """Starts a process in the node."""
        return subprocess.Popen([str(word) for word in words], preexec_fn=self._enter, **options)

    def _enter(self) -> None:
        for group in self.groups:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    def entrance(self, name: str) -> Path:
        """The file of a node's control group to which a process writes its id to join."""
        return self.groups[0].parent / f"eyas-{os.getpid()}-{name}" / "cgroup.procs"

    def cap(self, is_capped: bool) -> None:
        """Limits the node, or lifts the limit, so that starting processes is fast."""
        quota = int(PERIOD_US * self.share) if is_capped else -1
        (self.groups[0] / "cpu.cfs_quota_us").write_text(str(quota))

    def remove(self) -> None:
        """Removes the control group after all of its processes have ended."""
        deadline = time.monotonic() + EMPTY_S
        for group in self.groups:
            while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
                time.sleep(0.05)
            group.rmdir()


@contextlib.contextmanager
def nodes(
    shares: Sequence[float], folder: Path, disk_bytes_s: int = 0, memory_bytes: int = 0
) -> Iterator[list[Node]]:
    """Creates nodes with these shares, not limited yet."""
    made: list[Node] = []
    try:
        for place, share in enumerate(shares):
            made.append(Node(f"n{place}", share, folder, disk_bytes_s, memory_bytes))
        yield made
    finally:
        for node in made:
            node.remove()


@contextlib.contextmanager
def busy(some: Sequence[Node]) -> Iterator[None]:
    """Keeps these nodes busy with other work."""
    working = [node.start([sys.executable, BUSY, node.folder / "busy"]) for node in some]
    try:
        yield
    finally:
        for process in working:
            process.terminate()
        for process in working:
            process.wait(EMPTY_S)
