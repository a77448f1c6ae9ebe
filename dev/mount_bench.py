#!/usr/bin/env python3
"""Experiment: a mount of the cluster's files beside the local file system below it.

Starts a cluster of one node on the disk of `--folder`, so that all chunks are local, and mounts its files. The mount
and a local folder take turns in each round: sequential write and sync, sequential read with cold and with warm caches,
4 KiB reads at random, small files created by four threads, `ls -l` of many files, `git clone`, and transactions of
`sqlite3`. Prints the medians, and the ratio of the mount to the local folder in the same round. Cold caches need root.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "testbed"))
from coordinated import eyas

THREADS = 4
BLOCK = 1 << 20
# What is wanted: at least this ratio of rates, or at most this ratio of times.
GOALS = {
    "write": 0.85,
    "read, cold": 0.85,
    "read, warm": 0.95,
    "4 KiB reads": 0.7,
    "git clone": 1.5,
    "sqlite3": 1.5,
}


def seconds(work: Callable[[], object]) -> float:
    """Time that the work takes."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


def drop_caches() -> None:
    """Empties the page cache."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


def write(path: Path, size_bytes: int) -> None:
    """Writes a file in blocks, and syncs it."""
    block = random.Random(1).randbytes(BLOCK)
    with path.open("wb", buffering=0) as file:
        for _ in range(size_bytes // BLOCK):
            file.write(block)
        os.fsync(file.fileno())


def read(path: Path) -> None:
    """Reads a file in blocks."""
    with path.open("rb", buffering=0) as file:
        while file.read(BLOCK):
            pass


def read_at_random(path: Path, count: int) -> None:
    """Reads blocks of 4 KiB at random places."""
    dice, blocks = random.Random(2), path.stat().st_size // 4096
    with path.open("rb", buffering=0) as file:
        for _ in range(count):
            os.pread(file.fileno(), 4096, dice.randrange(blocks) * 4096)


def create(folder: Path, count: int) -> None:
    """Creates small files with several threads."""
    folder.mkdir()

    def some(thread: int) -> None:
        for number in range(thread, count, THREADS):
            (folder / f"f{number:06}").write_bytes(b"small\n")

    threads = [threading.Thread(target=some, args=(thread,)) for thread in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def run(*words: str, cwd: Path) -> None:
    """Runs a program, which must succeed."""
    subprocess.run(words, cwd=cwd, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def transactions(folder: Path, count: int) -> None:
    """Runs transactions of one row each."""
    script = "create table t(a);" + "".join(f"insert into t values({number});" for number in range(count))
    run("sqlite3", "data.db", script, cwd=folder)


def measure(folder: Path, asked: argparse.Namespace, repository: Path) -> dict[str, float]:
    """Rates and times of one folder."""
    folder.mkdir()
    large, size_mb = folder / "large", asked.megabytes
    found = {"write": size_mb / seconds(lambda: write(large, size_mb << 20))}
    drop_caches()
    found["read, cold"] = size_mb / seconds(lambda: read(large))
    found["read, warm"] = size_mb / seconds(lambda: read(large))
    drop_caches()
    found["4 KiB reads"] = asked.reads / seconds(lambda: read_at_random(large, asked.reads))
    small = folder / "small"
    found["creates/s"] = asked.files / seconds(lambda: create(small, asked.files))
    found["ls -l"] = seconds(lambda: run("ls", "-l", str(small), cwd=folder))
    found["git clone"] = seconds(lambda: run("git", "clone", "-q", str(repository), "clone", cwd=folder))
    found["sqlite3"] = seconds(lambda: transactions(folder, asked.transactions))
    shutil.rmtree(folder)
    return found


def main() -> None:
    """Measures in turns and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--reads", type=int, default=5000)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--transactions", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--eyas", type=Path)
    asked = parser.parse_args()
    if asked.tiny:
        asked.megabytes, asked.reads, asked.files, asked.transactions, asked.rounds = 16, 200, 100, 3, 1
    command = str(asked.eyas or eyas())
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        place = Path(name)
        environment = {**os.environ, "EYAS_HOME": str(place / "home")}

        def call(*words: str) -> None:
            subprocess.run([command, *words], env=environment, check=True, stderr=subprocess.DEVNULL)

        repository, mount = place / "repository", place / "mnt"
        mount.mkdir()
        source = Path(__file__).resolve().parent.parent
        if asked.tiny:
            source = place / "source"
            run("git", "init", "-q", str(source), cwd=place)
            author = ["-c", "user.name=a", "-c", "user.email=a@b"]
            run("git", *author, "commit", "-q", "--allow-empty", "-m", "one", cwd=source)
        run("git", "clone", "-q", "--bare", str(source), str(repository), cwd=place)
        call("start", "local", "--nodes", "1", "--dfs", "--detach", "--cluster", "default")
        try:
            call("mount", str(mount), "--detach", "--cluster", "default")
            rounds = []
            for number in range(asked.rounds):
                one = measure(place / f"local{number}", asked, repository)
                rounds.append((one, measure(mount / f"round{number}", asked, repository)))
                print(f"round {number + 1} of {asked.rounds}", file=sys.stderr)
        finally:
            subprocess.run(["umount", str(mount)], check=False)
            call("stop")
    print("| operation | local | mount | ratio | wanted |")
    print("| --- | --- | --- | --- | --- |")
    for what in rounds[0][0]:
        local = statistics.median(local[what] for local, _ in rounds)
        mounted = statistics.median(mounted[what] for _, mounted in rounds)
        ratio = statistics.median(mounted[what] / local[what] for local, mounted in rounds)
        print(f"| {what} | {local:.2f} | {mounted:.2f} | {ratio:.2f} | {GOALS.get(what, '')} |")


if __name__ == "__main__":
    main()
