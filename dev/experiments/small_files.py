#!/usr/bin/env python3
"""Experiment: many small files in the file system of the cluster, beside `cp -r` followed by
`sync`.

Starts a cluster on this machine, whose nodes keep files on the disk of `--folder`. For each number
of files, the commands take turns: `cp -r` and `sync`; the same of as many copies as there are
replicas; `dfs put -r`, `dfs ls`, `dfs du`, `dfs verify`, `dfs rebalance`, `dfs get -r`, `dfs rm
-r`. Prints the medians, and the ratio of each command to `cp -r` and `sync` of the same round; for
`put`, also the ratio to the copies that write as many bytes. `put` and `get` must take less than
three times as long as `cp -r` and `sync`; each file that is put has `--replicas` replicas on the
same disk. Last, one huge file is put and got.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from coordinated import eyas

GOAL = 3.0
FILES_A_FOLDER = 100
HUGE_BYTES = 512 << 20
COMMANDS = ("cp", "copies", "put", "ls", "du", "verify", "rebalance", "get", "rm")
JUDGED = ("put", "get")


class Cluster:
    """A cluster on this machine. A context manager that stops it at its end."""

    def __init__(self, command: Path, folder: Path, nodes: int) -> None:
        self.command = [str(command)]
        self.folder = folder
        self.nodes = nodes
        self.environment = {**os.environ, "EYAS_HOME": str(folder / "home")}

    def __enter__(self) -> Cluster:
        self.run("start", "local", "--nodes", str(self.nodes), "--dfs", "--detach")
        return self

    def __exit__(self, *_: object) -> None:
        self.run("stop")

    def run(self, *words: str) -> float:
        """Seconds that a command takes."""
        began = time.monotonic()
        done = subprocess.run(
            [*self.command, *words],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"eyas {' '.join(words)} failed: {done.stderr[-1000:]}")
        return time.monotonic() - began


def make(folder: Path, count: int, size_bytes: int) -> None:
    """Makes files of text in folders of their own, or one file of random bytes."""
    if count == 1:
        folder.mkdir()
        with (folder / "huge").open("wb") as file:
            for _ in range(0, size_bytes, 1 << 20):
                file.write(os.urandom(1 << 20))
        return
    for number in range(count):
        path = folder / f"{number // FILES_A_FOLDER:04}" / f"f{number:06}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        line = f"line of file {number}\n"
        path.write_text((line * (size_bytes // len(line) + 1))[:size_bytes])


def copied(source: Path, to: Path, copies: int) -> float:
    """Seconds of copies in a folder that are on the disk, made at the same time."""
    to.mkdir()
    began = time.monotonic()
    copying = [subprocess.Popen(["cp", "-r", source, to / str(number)]) for number in range(copies)]
    if any([copy.wait() for copy in copying]):
        raise SystemExit(f"cannot copy {source} to {to}")
    os.sync()
    return time.monotonic() - began


def turn(cluster: Cluster, source: Path, replicas: str) -> dict[str, float]:
    """Seconds of each command, over files that are new to the cluster."""
    copy, copies, back = (cluster.folder / name for name in ("copy", "copies", "back"))
    os.sync()
    taken = {"cp": copied(source, copy, 1), "copies": copied(source, copies, int(replicas))}
    taken["put"] = cluster.run("dfs", "put", "-r", "--replicas", replicas, str(source), "/tree")
    taken["ls"] = cluster.run("dfs", "ls", "-r", "/tree")
    taken["du"] = cluster.run("dfs", "du", "/tree")
    taken["verify"] = cluster.run("dfs", "verify", "/tree")
    taken["rebalance"] = cluster.run("dfs", "rebalance", "/tree")
    taken["get"] = cluster.run("dfs", "get", "-r", "/tree", str(back))
    subprocess.run(["diff", "-r", source, back], check=True)
    taken["rm"] = cluster.run("dfs", "rm", "-r", "/tree")
    for folder in (copy, copies, back):
        shutil.rmtree(folder)
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tiny", action="store_true", help="quick test of one round; the figures mean nothing"
    )
    parser.add_argument(
        "--eyas", type=Path, default=eyas(), help="command [default: $EYAS_BIN or release build]"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", default="10,10000", help="numbers of files [default: 10,10000]")
    parser.add_argument("--bytes", type=int, default=1500, help="size of each file [default: 1500]")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--replicas", default="3")
    parser.add_argument(
        "--huge", type=int, default=HUGE_BYTES, help="bytes of a huge file; 0 for none"
    )
    parser.add_argument(
        "--folder", type=Path, help="folder for the files [default: a temporary folder]"
    )
    words = parser.parse_args()
    counts, rounds = [int(count) for count in words.files.split(",")], words.rounds
    if words.tiny:
        counts, rounds, words.huge = [10, 200], 1, min(words.huge, 1 << 20)
    worst = 0.0
    with (
        tempfile.TemporaryDirectory(dir=words.folder) as scratch,
        Cluster(words.eyas.resolve(), Path(scratch), words.nodes) as cluster,
    ):
        setting = f"{words.nodes} nodes, {words.replicas} replicas, files of {words.bytes} bytes"
        print(f"{setting}; medians of {rounds} rounds")
        print(f"{'files':>10}" + "".join(f"{name:>16}" for name in COMMANDS), flush=True)
        sources = [(str(count), count, words.bytes) for count in counts]
        sources += [(f"1 ({words.huge >> 20} MiB)", 1, words.huge)] if words.huge else []
        for named, count, size_bytes in sources:
            source = Path(scratch) / f"source-{count}-{size_bytes}"
            make(source, count, size_bytes)
            turns = [turn(cluster, source, words.replicas) for _ in range(rounds)]
            shutil.rmtree(source)
            row = f"{named:>10}{statistics.median(turn['cp'] for turn in turns):14.3f} s"
            for name in COMMANDS[1:]:
                ratio = statistics.median(turn[name] / turn["cp"] for turn in turns)
                row += (
                    f"{statistics.median(turn[name] for turn in turns):8.3f} ({ratio:.2f})".rjust(
                        16
                    )
                )
                if name in JUDGED and count >= 1000:
                    worst = max(worst, ratio)
            of_copies = statistics.median(turn["put"] / turn["copies"] for turn in turns)
            print(f"{row}; put is {of_copies:.2f} times as long as the copies", flush=True)
    verdict = "reached" if worst < GOAL else "NOT reached"
    print(
        f"1000 files and more: at most {worst:.2f} times as long as cp -r and sync; the goal is "
        f"{GOAL}: {verdict}"
    )
    return 0 if worst < GOAL or words.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
