#!/usr/bin/env python3
"""Experiment: what small objects gain that are kept in memory (tmpfs) by an account of their own,
over small objects in a store on the disk, which the kernel caches as it sees fit.

On a node with little memory, a program reads `--reads` of `--hot` small files at random, then one
of `--cold` large files, and so on. The small files lie either in a folder of the disk or in tmpfs;
the large ones always on the disk, whose rate is limited. All together are larger than the node's
memory, which the page cache and tmpfs share. `ideal` has no large files to read, so all small ones
stay cached.

With `--tasks`, real tasks make the same reads, on an executor with one slot in a node of its own.
All files are in its store. Each task reads `--reads` small files and a large one. The small files
are inputs that the task reads, or inputs that are linked only; or the task reads them by their
path, on the disk or in tmpfs, which has all of them before the job begins. So `tmpfs` beside `disk`
is the gain of memory that has the right files from the start. A job with `none` says what the rest
takes. The pages of all files count to the node.

Ways take turns in each round. Prints the median time of the reads of small files, and of the whole.
Needs control groups of version 1, and root; with `--tasks` a release build of eyas (or EYAS_BIN).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
import capped
from measured import COMMAND
from table import show

SMALL_BYTES = 64 << 10
STORED, LINKED = "inputs", "inputs, not read"
MEMORY = Path("/dev/shm")
READER = r"""
import json, random, sys, time
from pathlib import Path
small, large, reads, steps = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
small = sorted(small.iterdir())
large = sorted(Path(large).iterdir()) if large else []
chance = random.Random(1)
def read(path):
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 20):
            pass
for path in small:
    read(path)
began, of_small = time.monotonic(), []
for step in range(steps):
    before = time.monotonic()
    for path in chance.choices(small, k=reads):
        read(path)
    of_small.append(time.monotonic() - before)
    if large:
        read(large[step % len(large)])
print(json.dumps([sum(of_small), time.monotonic() - began]))
"""


def write(folder: Path, count: int, size_bytes: int) -> None:
    """Makes files of random bytes."""
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"{number:05}").write_bytes(os.urandom(size_bytes))
    os.sync()


def drop(folder: Path) -> None:
    """Has the kernel forget what it has cached of a folder's files."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(node: capped.Node, small: Path, large: Path | None, words: argparse.Namespace) -> list:
    """Seconds for the small files, and for all."""
    place = small
    if small.parts[:3] == MEMORY.parts[:3]:
        # A page of tmpfs counts against the node whose process writes it first.
        copy = node.start(["cp", "-r", words.small, small])
        if copy.wait():
            raise SystemExit(f"cannot copy {words.small} to {small}")
    reader = node.start(
        [sys.executable, "-c", READER, place, large or "", words.reads, words.steps],
        stdout=subprocess.PIPE,
    )
    out, _ = reader.communicate()
    if reader.returncode:
        raise SystemExit("the reader failed")
    if small != words.small:
        shutil.rmtree(small)
    return json.loads(out)


class Tasks:
    """A cluster whose only executor is in a node with little memory."""

    def __init__(self, node: capped.Node, folder: Path) -> None:
        self.node, self.folder = node, folder
        self.environment = {**os.environ, "EYAS_HOME": str(folder / "home")}
        self.environment.pop("EYAS_ACCESS", None)

    def eyas(self, *words: str) -> None:
        """Runs a command in the node to its end."""
        done = self.node.start(
            [COMMAND, *words],
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        _, said = done.communicate()
        if done.returncode:
            raise SystemExit(f"eyas {' '.join(words)} failed: {said.decode()[-2000:]}")

    def job(self, small: list[list[Path]], large: list[Path], way: str) -> float:
        """Runs a task for each large file, and returns the seconds."""
        text = []
        are_inputs = way in (STORED, LINKED)
        for some, cold in zip(small, large):
            inputs = [str(path.relative_to(self.folder)) for path in [cold, *some * are_inputs]]
            names = " ".join(inputs[1:] if are_inputs else map(str, some))
            read = f"cat {names} >/dev/null; " if names and way != LINKED else ""
            command = ["sh", "-c", f"{read}cat {inputs[0]} >/dev/null"]
            text.append(
                f'[[task]]\nfolder = "sandbox"\ncommand = {json.dumps(command)}\n'
                f"inputs = {json.dumps(inputs)}\n"
            )
        (self.folder / "job.toml").write_text("\n".join(text))
        began = time.monotonic()
        self.eyas("submit", "--wait", "job.toml")
        return time.monotonic() - began


@contextmanager
def started(words: argparse.Namespace, folder: Path) -> Iterator[Tasks]:
    """The cluster, whose processes share the node's memory and disk."""
    with capped.nodes([1.0], folder, words.rate * 1_000_000, words.memory << 20) as (node,):
        tasks = Tasks(node, folder)
        tasks.eyas("start", "local", "--nodes", "1", "--slots", "1", "--cache", "4GB", "--detach")
        try:
            yield tasks
        finally:
            tasks.eyas("stop")


def of_tasks(words: argparse.Namespace, folder: Path) -> None:
    """Measures real tasks, and prints the most that memory of its own can gain for them."""
    hot, cold = sorted((folder / "small").iterdir()), sorted((folder / "large").iterdir())
    chance = random.Random(1)
    chosen = [chance.sample(hot, words.reads) for _ in range(words.steps)]
    large = [cold[step % len(cold)] for step in range(words.steps)]
    in_memory = MEMORY / f"eyas-memory-tier-{os.getpid()}"
    ways = [STORED, LINKED, "disk", "tmpfs", "none"]
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    with started(words, folder) as tasks:
        tasks.job([hot] + [[]] * len(cold[1:]), cold, STORED)
        # Their pages were cached when they were written, and did not count to the node.
        drop(folder / "small")
        for _ in range(words.rounds):
            for way in ways:
                small = chosen if way != "none" else [[]] * words.steps
                try:
                    if way == "tmpfs":
                        copy = tasks.node.start(["cp", "-r", folder / "small", in_memory])
                        if copy.wait():
                            raise SystemExit(f"cannot copy the small files to {in_memory}")
                        small = [[in_memory / path.name for path in some] for some in chosen]
                    seconds[way].append(tasks.job(small, large, way))
                finally:
                    shutil.rmtree(in_memory, ignore_errors=True)
    medians = {way: statistics.median(seconds[way]) for way in ways}
    reads = words.reads * words.steps
    rows: list[list[object]] = [
        [
            way,
            (medians[way] - medians["none"]) / reads * 1e6,
            medians[way],
            f"{min(seconds[way]):.2f} to {max(seconds[way]):.2f}",
        ]
        for way in ways
    ]
    show("A small file, us, and the job, s; medians", ["small files", "us", "s", ""], rows)
    gain = medians["disk"] / medians["tmpfs"]
    print(f"the job with small files on the disk, of its time with tmpfs: {gain:.3f}")


def of_plain_reads(words: argparse.Namespace, folder: Path) -> None:
    """Measures a program without eyas, and prints what memory of its own gains."""
    ways = ["page cache", "tmpfs", "ideal"]
    small_s: dict[str, list[float]] = {way: [] for way in ways}
    whole_s: dict[str, list[float]] = {way: [] for way in ways}
    memory_bytes, rate = words.memory << 20, words.rate * 1_000_000
    for turn in range(words.rounds):
        for way in ways:
            drop(words.small)
            drop(folder / "large")
            in_memory = MEMORY / f"eyas-memory-tier-{os.getpid()}"
            small = in_memory if way == "tmpfs" else words.small
            large = None if way == "ideal" else folder / "large"
            with capped.nodes([1.0], folder / f"{turn}-{way}", rate, memory_bytes) as (node,):
                of_small, whole = measure(node, small, large, words)
            small_s[way].append(of_small)
            whole_s[way].append(whole)
    medians = {
        way: (statistics.median(small_s[way]), statistics.median(whole_s[way])) for way in ways
    }
    reads = words.reads * words.steps
    rows = [[way, medians[way][0] / reads * 1e6, medians[way][1]] for way in ways]
    show("A small file, us, and all reads, s; medians", ["small files in", "us", "s"], rows)
    gain = medians["page cache"][1] / medians["tmpfs"][1]
    print(f"all reads with the page cache, of the time with tmpfs: {gain:.3f}")


def main() -> int:
    """Writes the files, and measures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, help="on the disk to be measured")
    parser.add_argument("--memory", type=int, default=256, help="MiB of the node")
    parser.add_argument("--rate", type=int, default=100, help="MB/s of the disk")
    parser.add_argument("--hot", type=int, default=1000, help="small files")
    parser.add_argument("--reads", type=int, default=100, help="of small files in a step")
    parser.add_argument("--cold", type=int, default=16, help="large files")
    parser.add_argument("--cold-size", type=int, default=32, help="MiB of a large file")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", action="store_true", help="real tasks, not plain reads")
    parser.add_argument("--tiny", action="store_true", help="quick test; the figures mean nothing")
    words = parser.parse_args()
    if words.tiny:
        words.hot, words.reads, words.cold, words.cold_size = 4, 2, 2, 1
        words.steps, words.rounds, words.rate, words.memory = 2, 1, 10_000, 1024
    with tempfile.TemporaryDirectory(dir=words.folder) as scratch:
        folder = Path(scratch)
        words.small = folder / "small"
        write(words.small, words.hot, SMALL_BYTES)
        write(folder / "large", words.cold, words.cold_size << 20)
        if not words.tasks or words.tiny:
            of_plain_reads(words, folder)
        if words.tasks or words.tiny:
            of_tasks(words, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
