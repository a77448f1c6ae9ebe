#!/usr/bin/env python3
"""Experiment: what small objects gain that are kept in memory (tmpfs) by an account of their own,
over small objects in a store on the disk, which the kernel caches as it sees fit.

On a node with little memory, a program reads `--reads` of `--hot` small files at random, then one
of `--cold` large files, and so on. The small files lie either in a folder of the disk or in tmpfs;
the large ones always on the disk, whose rate is limited. All together are larger than the node's
memory, which the page cache and tmpfs share. `ideal` has no large files to read, so all small ones
stay cached.

Ways take turns in each round. Prints the median time of the reads of small files, and of the whole.
Needs control groups of version 1, and root.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
import capped
from table import show

SMALL_BYTES = 64 << 10
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


def main() -> int:
    """Measures, and prints what memory of its own gains."""
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
    parser.add_argument("--tiny", action="store_true", help="quick test; the figures mean nothing")
    words = parser.parse_args()
    if words.tiny:
        words.hot, words.reads, words.cold, words.cold_size = 4, 2, 2, 1
        words.steps, words.rounds, words.rate = 2, 1, 10_000
    ways = ["page cache", "tmpfs", "ideal"]
    small_s: dict[str, list[float]] = {way: [] for way in ways}
    whole_s: dict[str, list[float]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory(dir=words.folder) as scratch:
        folder = Path(scratch)
        words.small = folder / "small"
        write(words.small, words.hot, SMALL_BYTES)
        write(folder / "large", words.cold, words.cold_size << 20)
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
    return 0


if __name__ == "__main__":
    sys.exit(main())
