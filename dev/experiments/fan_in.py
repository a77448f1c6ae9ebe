#!/usr/bin/env python3
"""Experiment: one task that reads very many files, beside `xargs cat` over the same files.

For each number of inputs a cluster with one executor runs one task, whose inputs are small files
that a pattern finds. Its program reads the list of its inputs (`{inputs0}`). The task runs twice:
the executor fetches the inputs for the first run (cold), and has them for the second (warm). A line
has the seconds of both runs, from submission to end, those of `xargs cat` over the same files, and
the largest memory and the processor seconds of both runs for the dispatcher, the executor and the
client. The last line is of many tasks that read the same inputs. `per input` is the warm time
divided by the number of inputs and of tasks: it should stay the same.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from measured import COMMAND, ROLES, MeasuredCluster

FILES_A_FOLDER = 10_000
JOB = """[[task]]
array = "1-{tasks}"
inputs = ["in/*/*"]
command = ["sh", "-c", 'xargs -0 cat <"$1" | wc -c', "sh", "{{inputs0}}"]
folder = "sandbox"
timeout = "1h"
"""


def make(folder: Path, count: int) -> None:
    """Makes files of a few bytes, some thousands in a folder."""
    for number in range(count):
        path = folder / f"{number // FILES_A_FOLDER:04}" / f"f{number:07}"
        if number % FILES_A_FOLDER == 0:
            path.parent.mkdir(parents=True)
        path.write_bytes(b"%07d\n" % number)


def peer_s(folder: Path, tasks: int) -> float:
    """Seconds of `xargs cat` over the same files."""
    line = (
        f"for i in $(seq {tasks}); do find in -type f -print0 | sort -z | xargs -0 cat | wc -c; "
        "done"
    )
    began = time.monotonic()
    subprocess.run(["sh", "-c", line], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def measure(command: Path, folder: Path, count: int, tasks: int) -> None:
    """Measures one number of inputs, and prints its line."""
    make(folder / "in", count)
    words = ("--nodes", "1", "--slots", "2", "--cache-objects", "2000000")
    with MeasuredCluster(folder, *words, command=command) as cluster:
        cold = cluster.submit(JOB.format(tasks=1))
        warm = cluster.submit(JOB.format(tasks=tasks))
        peer = peer_s(folder, tasks)
    memory = "".join(f"{max(cold.memory_mb[role], warm.memory_mb[role]):9.0f}" for role in ROLES)
    cpu = "".join(f"{cold.cpu_s[role] + warm.cpu_s[role]:9.2f}" for role in ROLES)
    per_input_us = warm.seconds / count / tasks * 1e6
    times = f"{cold.seconds:8.2f}{warm.seconds:8.2f}{peer:8.2f}{per_input_us:10.0f}"
    print(f"{count:>9}{tasks:>6} {times} {memory} {cpu}", flush=True)


def main() -> int:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--eyas", type=Path, default=COMMAND, help="command [default: $EYAS_BIN]")
    parser.add_argument("--inputs", type=int, nargs="*", default=[10**3, 10**4, 10**5, 10**6])
    parser.add_argument(
        "--tasks", type=int, default=100, help="tasks of the last line; 0 for no such line"
    )
    parser.add_argument("--of", type=int, default=10**4, help="inputs of each of those tasks")
    parser.add_argument("--tiny", action="store_true", help="quick test; the figures mean nothing")
    words = parser.parse_args()
    lines = [(count, 1) for count in words.inputs] + [(words.of, words.tasks)] * bool(words.tasks)
    if words.tiny:
        lines = [(100, 1), (100, 3)]
    roles = "".join(f"{role[:8]:>9}" for role in ROLES)
    print(f"{'':15} {'seconds':>24}{'us per':>10} {'memory, MB':>27} {'processor, s':>27}")
    print(
        f"{'inputs':>9}{'tasks':>6} {'cold':>8}{'warm':>8}{'xargs':>8}{'input':>10} {roles} {roles}"
    )
    for count, tasks in lines:
        with tempfile.TemporaryDirectory(prefix="fan-in-", dir=os.environ.get("TMPDIR")) as folder:
            measure(words.eyas, Path(folder), count, tasks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
