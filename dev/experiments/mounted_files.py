#!/usr/bin/env python3
"""Experiment: a mount of the cluster's files beside the local file system below it.

Starts a cluster of one node on the disk of `--folder`, so that all chunks are local, and mounts its
files. The mount and a local folder take turns in each round: sequential write and sync, sequential
read with cold and with warm caches, 4 KiB reads at random, small files created by four threads, `ls
-l` of them and of a folder with many files, `git clone`, `make` of a C project, and transactions of
`sqlite3`. Prints the medians, and the ratio of the mount to the local folder in the same round.
`git clone` reads a pack, as from a server: a clone of a local folder would make hard links, which
the mount does not have. Cold caches need root.

A mount of the local folder by `eyas io mount` takes its turn, too, and so does one of `bindfs`, if
it is installed: it passes the kernel's requests on and does nothing else, so what it loses is what
FUSE costs, without any cluster.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from coordinated import eyas

THREADS = 4
BLOCK = 1 << 20
# Goals: the lowest ratio of rates, the highest ratio of times, or a rate or time of the mount.
GOALS = {
    "write": "0.85",
    "read, cold": "0.85",
    "read, warm": "0.95",
    "4 KiB reads": "0.7",
    "creates/s": "3000 a second",
    "ls -l of many": "2 s",
    "git clone": "1.5",
    "make": "1.5",
    "sqlite3": "1.5",
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


def blocks_of(size_bytes: int) -> list[bytes]:
    """Blocks of which no two are the same, as equal chunks of a file would be stored once."""
    block = random.Random(1).randbytes(BLOCK)
    return [number.to_bytes(8, "little") + block[8:] for number in range(size_bytes // BLOCK)]


def write(path: Path, blocks: list[bytes]) -> None:
    """Writes a file in blocks, and syncs it."""
    with path.open("wb", buffering=0) as file:
        for block in blocks:
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
    script = "create table t(a);" + "".join(
        f"insert into t values({number});" for number in range(count)
    )
    run("sqlite3", "data.db", script, cwd=folder)


def make_project(folder: Path, files: int) -> None:
    """Writes a C project, and builds it with two jobs."""
    folder.mkdir()
    for number in range(files):
        functions = [
            f"int f{number}_{k}(int x) {{ return x * {k} + {number}; }}" for k in range(50)
        ]
        (folder / f"part{number}.c").write_text(
            "#include <stdio.h>\n#include <stdlib.h>\n" + "\n".join(functions)
        )
    (folder / "main.c").write_text("int f0_1(int); int main(void) { return f0_1(0); }\n")
    objects = " ".join(f"part{number}.o" for number in range(files))
    (folder / "Makefile").write_text(f"program: main.o {objects}\n\t$(CC) -o $@ $^\n")
    run("make", "-j2", cwd=folder)


def make_many(folder: Path, count: int) -> None:
    """Makes empty files."""
    folder.mkdir()
    for number in range(count):
        (folder / f"f{number:06}").touch()


def measure(folder: Path, asked: argparse.Namespace, repository: Path) -> dict[str, float]:
    """Rates and times of one folder."""
    folder.mkdir()
    large, size_mb = folder / "large", asked.megabytes
    blocks = blocks_of(size_mb << 20)
    found = {"write": size_mb / seconds(lambda: write(large, blocks))}
    del blocks
    drop_caches()
    found["read, cold"] = size_mb / seconds(lambda: read(large))
    found["read, warm"] = size_mb / seconds(lambda: read(large))
    drop_caches()
    found["4 KiB reads"] = asked.reads / seconds(lambda: read_at_random(large, asked.reads))
    small = folder / "small"
    found["creates/s"] = asked.files / seconds(lambda: create(small, asked.files))
    found["ls -l"] = seconds(lambda: run("ls", "-l", str(small), cwd=folder))
    many = folder.parent / "many"
    found["ls -l of many"] = seconds(lambda: run("ls", "-l", str(many), cwd=folder))
    found["git clone"] = seconds(
        lambda: run("git", "clone", "-q", f"file://{repository}", "clone", cwd=folder)
    )
    found["make"] = seconds(lambda: make_project(folder / "project", asked.parts))
    found["sqlite3"] = seconds(lambda: transactions(folder, asked.transactions))
    shutil.rmtree(folder)
    return found


def main() -> None:
    """Measures in turns and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--reads", type=int, default=5000)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--transactions", type=int, default=50)
    parser.add_argument("--parts", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--eyas", type=Path)
    asked = parser.parse_args()
    if asked.tiny:
        asked.megabytes, asked.reads, asked.files, asked.transactions, asked.rounds = (
            16,
            200,
            100,
            3,
            1,
        )
        asked.many, asked.parts = 200, 3
    command = str(asked.eyas or eyas())
    with (
        tempfile.TemporaryDirectory(dir=asked.folder) as name,
        tempfile.TemporaryDirectory() as outside,
    ):
        place, ordered = Path(name), Path(outside)
        # The agent of the ordered mount ends by itself.
        runtime = place / "run"
        runtime.mkdir(mode=0o700)
        homes = {"EYAS_HOME": str(place / "home"), "XDG_RUNTIME_DIR": str(runtime)}
        environment = {**os.environ, **homes}

        def call(*words: str) -> None:
            subprocess.run(
                [command, *words], env=environment, check=True, stderr=subprocess.DEVNULL
            )

        repository, mount, bound = place / "repository", place / "mnt", place / "bound"
        mount.mkdir()
        bound.mkdir()
        source = Path(__file__).resolve().parents[2]
        if asked.tiny:
            source = place / "source"
            run("git", "init", "-q", str(source), cwd=place)
            author = ["-c", "user.name=a", "-c", "user.email=a@b"]
            run("git", *author, "commit", "-q", "--allow-empty", "-m", "one", cwd=source)
        run("git", "clone", "-q", "--bare", str(source), str(repository), cwd=place)
        call("start", "local", "--nodes", "1", "--dfs", "--detach", "--cluster", "default")
        try:
            make_many(place / "many", asked.many)
            call("dfs", "put", "-r", str(place / "many"), "/many", "--cluster", "default")
            call("mount", str(mount), "--detach", "--cluster", "default")
            order = subprocess.Popen(
                [command, "io", "mount", "--here", str(place), str(ordered)],
                env=environment,
                stdout=subprocess.PIPE,
            )
            assert order.stdout
            order.stdout.readline()
            places = {"local": place, "mount": mount, "`eyas io mount`": ordered}
            if shutil.which("bindfs"):
                run("bindfs", "--multithreaded", str(place), str(bound), cwd=place)
                places["bindfs"] = bound
            rounds = []
            for number in range(asked.rounds):
                turns = {}
                for system, folder in places.items():
                    turns[system] = measure(folder / f"round{number}", asked, repository)
                rounds.append(turns)
                print(f"round {number + 1} of {asked.rounds}", file=sys.stderr)
        finally:
            for folder in mount, ordered, bound:
                subprocess.run(["umount", str(folder)], check=False)
            call("stop")
    others = [system for system in places if system != "local"]
    print(f"| operation | local | {' | ratio | '.join(others)} | ratio | wanted |")
    print(f"| --- | --- | {'--- | --- | ' * len(others)}--- |")
    for what in rounds[0]["local"]:
        cells = [f"{statistics.median(turns['local'][what] for turns in rounds):.2f}"]
        for system in others:
            cells.append(f"{statistics.median(turns[system][what] for turns in rounds):.2f}")
            ratios = (turns[system][what] / turns["local"][what] for turns in rounds)
            cells.append(f"{statistics.median(ratios):.2f}")
        print(f"| {what} | {' | '.join(cells)} | {GOALS.get(what, '')} |")


if __name__ == "__main__":
    main()
