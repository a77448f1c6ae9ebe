#!/usr/bin/env python3
"""Experiment: how fast tasks are placed whose input is a file of many chunks.

A local cluster of four nodes keeps a file of 512 chunks and a file of one chunk. Jobs of tasks
without a command, which all read one of the two files, take turns. Prints the medians of tasks a
second and of processor microseconds of the dispatcher for each task, and the median of the ratios
of each round. The first round, in which the nodes copy the file into their stores, is not counted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from measured import MeasuredCluster

CHUNK_BYTES = 1 << 16
SHAPE = ("--nodes", "4", "--slots", "1", "--dfs")


def job(file: str, tasks: int) -> str:
    """A job file."""
    return f'[[task]]\narray = "1-{tasks}"\nnoop = true\ninputs = ["eyas:///{file}"]\n'


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chunks", type=int, default=512)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--policy", default="gcc")
    parser.add_argument("--tiny", action="store_true", help="quick test; the figures mean nothing")
    words = parser.parse_args()
    chunks, tasks, rounds = (20, 50, 1) if words.tiny else (words.chunks, words.tasks, words.rounds)
    files = {"large": chunks, "small": 1}
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in files}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with MeasuredCluster(folder, *SHAPE, "--policy", words.policy) as cluster:
            for name, count in files.items():
                (folder / name).write_bytes(os.urandom(count * CHUNK_BYTES))
                cluster.eyas(
                    "dfs",
                    "put",
                    name,
                    f"/{name}",
                    "--chunk-size",
                    str(CHUNK_BYTES),
                    "--replicas",
                    "1",
                )
            for number in range(rounds + 1):
                for name in sorted(files, reverse=number % 2 == 1):
                    cost = cluster.submit(job(name, tasks))
                    if number:
                        figures[name].append(
                            (tasks / cost.seconds, 1e6 * cost.cpu_s["dispatcher"] / tasks)
                        )
    print(
        f"{tasks} tasks over one file, {rounds} rounds, policy {words.policy}:  tasks/s  "
        "dispatcher, us a task"
    )
    for name, count in files.items():
        rate, cpu_us = (
            statistics.median(figure[place] for figure in figures[name]) for place in (0, 1)
        )
        print(f"{f'a file of {count} chunks':24} {rate:8.0f} {cpu_us:8.1f}")
    pairs = list(zip(figures["large"], figures["small"], strict=True))
    ratios = [
        statistics.median(one[place] / max(other[place], 1e-9) for one, other in pairs)
        for place in (0, 1)
    ]
    print(f"{'ratio':24} {ratios[0]:8.2f} {ratios[1]:8.2f}")


if __name__ == "__main__":
    main()
