#!/usr/bin/env python3
"""Experiment: what the audit log costs, and a list of a folder with a million names.

Two local clusters of one node run at the same time, one with an audit log and one without
(`--audit-bytes 0`). In each round, `eyas dfs put -r` writes the same folder of small files to one
after the other, in turns. Prints the medians of seconds and of processor seconds, of the client and
of the node, and the median of the ratios of each round.

Then one cluster gets a folder with very many empty files. Prints seconds and memory of `eyas dfs
ls` of this folder, with and without `--json`, and the memory of the node before and after.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from measured import MeasuredCluster, largest_mb

SHAPE = ("--nodes", "1", "--slots", "1", "--dfs")


@dataclass
class Called:
    """What a command took: its own processor seconds and memory."""

    seconds: float
    cpu_s: float
    memory_mb: float


def called(cluster: MeasuredCluster, *words: str, printed: Path | None = None) -> Called:
    """Runs a command of a cluster to its end."""
    with (printed or Path(os.devnull)).open("wb") as out:
        began = time.monotonic()
        line = [cluster.command, *words]
        quiet = subprocess.DEVNULL
        child = subprocess.Popen(
            line, env=cluster.environment, cwd=cluster.folder, stdout=out, stderr=quiet
        )
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.monotonic() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"eyas {' '.join(words)} failed")
    return Called(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3)


def audit(folder: Path, files: int, rounds: int) -> None:
    """Measures `put -r` with and without a log."""
    source = folder / "small"
    source.mkdir()
    for number in range(files):
        (source / f"{number:06}").write_bytes(b"%06d\n" % number * 100)
    with_log, without = [], []
    logged = MeasuredCluster(folder, *SHAPE, home="logged")
    silent = MeasuredCluster(folder, *SHAPE, "--audit-bytes", "0", home="silent")
    with logged, silent:
        for number in range(rounds + 1):
            pair = [(logged, with_log), (silent, without)]
            for cluster, figures in pair if number % 2 else reversed(pair):
                before = cluster.cpu_s()["executor"]
                put = called(cluster, "dfs", "put", "-r", "small", f"/{number}", "--replicas", "1")
                cpu_s = put.cpu_s + cluster.cpu_s()["executor"] - before
                if number:  # the first round is not counted
                    figures.append((put.seconds, cpu_s))
    print(f"put -r of {files} files, {rounds} rounds:  seconds  processor seconds")
    for name, figures in (("with the audit log", with_log), ("without", without)):
        seconds, cpu_s = (
            statistics.median(figure[place] for figure in figures) for place in (0, 1)
        )
        print(f"{name:20} {seconds:8.3f} {cpu_s:8.3f}")
    pairs = list(zip(with_log, without, strict=True))
    ratios = [
        statistics.median(one[place] / other[place] for one, other in pairs) for place in (0, 1)
    ]
    print(f"{'ratio':20} {ratios[0]:8.3f} {ratios[1]:8.3f}")


def names(folder: Path, count: int, rounds: int) -> None:
    """Measures `ls` of a folder with very many names."""
    source = folder / "empty"
    source.mkdir()
    for number in range(count):
        (source / f"{number:07}").touch()
    with MeasuredCluster(folder, *SHAPE, home="names") as cluster:
        before = sum(map(largest_mb, cluster.processes("executor")))
        put = called(cluster, "dfs", "put", "-r", "empty", "/many", "--replicas", "1")
        after_put = sum(map(largest_mb, cluster.processes("executor")))
        print(f"put -r of {count} empty files: {put.seconds:.1f} s, client {put.memory_mb:.0f} MB")
        printed = folder / "printed"
        for words in (("ls", "/many"), ("ls", "-l", "/many"), ("ls", "/many", "--json")):
            figures = [called(cluster, "dfs", *words, printed=printed) for _ in range(rounds)]
            lines = printed.read_bytes().count(b"/many/")
            if lines != count:
                raise SystemExit(f"{' '.join(words)} has {lines} names")
            seconds = statistics.median(figure.seconds for figure in figures)
            memory_mb = max(figure.memory_mb for figure in figures)
            print(f"eyas dfs {' '.join(words):20} {seconds:6.2f} s, client {memory_mb:.0f} MB")
        after = sum(map(largest_mb, cluster.processes("executor")))
        print(
            f"largest memory of the node: {before:.0f} MB, after put {after_put:.0f} MB, at the "
            f"end {after:.0f} MB"
        )


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--names", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=("audit", "names"))
    parser.add_argument("--tiny", action="store_true", help="quick test; the figures mean nothing")
    words = parser.parse_args()
    files, count, rounds = (20, 30, 1) if words.tiny else (words.files, words.names, words.rounds)
    with tempfile.TemporaryDirectory() as scratch:
        if words.only != "names":
            audit(Path(scratch), files, rounds)
        if words.only != "audit":
            names(Path(scratch), count, min(rounds, 3))
    return 0


if __name__ == "__main__":
    sys.exit(main())
