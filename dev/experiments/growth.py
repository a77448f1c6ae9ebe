#!/usr/bin/env python3
"""Experiment: what a task costs as jobs and clusters grow.

Four columns of jobs: more tasks, more executors, more inputs a task, more output a task. A line has
the wall time and the processor time of a task (microseconds; dispatcher, executors and client,
without the task's own program), and the largest memory of the dispatcher, the executors together,
and the client. Of each column, the time of a task should stay within 20 %: the last lines say which
columns do.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from measured import COMMAND, ROLES, Cost, MeasuredCluster

FLAT = 1.2
NOOPS = '[[task]]\nnoop = true\narray = "1-{tasks}"\n'
READERS = (
    '[[task]]\narray = "1-{tasks}"\ncommand = ["true"]\ninputs = ["in/*"]\nfolder = "sandbox"\n'
)
WRITERS = '[[task]]\narray = "1-{tasks}"\ncommand = ["head", "-c", "{bytes}", "/dev/zero"]\n'


@dataclass
class Line:
    """One job, and the cluster that runs it."""

    column: str
    size: int
    job: str
    tasks: int
    nodes: int = 2
    inputs: int = 0


def lines(tiny: bool) -> Iterator[Line]:
    """All jobs, column by column."""
    many, few, least = (1_000, 50, 100) if tiny else (100_000, 300, 1_000)
    for tasks in (least,) if tiny else (10**3, 10**4, 10**5, 10**6):
        yield Line("tasks", tasks, NOOPS.format(tasks=tasks), tasks)
    for nodes in (2, 4) if tiny else (2, 20, 100):
        yield Line("executors", nodes, NOOPS.format(tasks=many), many, nodes=nodes)
    for inputs in (1, 10) if tiny else (1, 10, 100, 1_000):
        yield Line("inputs", inputs, READERS.format(tasks=few), few, inputs=inputs)
    for size in (0, 1_000) if tiny else (0, 1_000, 100_000, 1_000_000):
        yield Line("output bytes", size, WRITERS.format(tasks=few, bytes=size), few)


def measure(command: Path, line: Line, folder: Path) -> Cost:
    """Runs the job once to warm the cluster up, and once to measure it."""
    (folder / "in").mkdir()
    for number in range(line.inputs):
        (folder / "in" / str(number)).write_text(f"{number}\n")
    words = ("--nodes", str(line.nodes), "--slots", "1", "--cache", "100MB")
    with MeasuredCluster(folder, *words, command=command) as cluster:
        cluster.submit(line.job)
        return cluster.submit(line.job)


def main() -> int:
    """Measures, prints a table, and says which columns are flat."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--eyas", type=Path, default=COMMAND, help="command [default: $EYAS_BIN]")
    parser.add_argument("--only", help="one column: tasks, executors, inputs or output bytes")
    parser.add_argument("--tiny", action="store_true", help="quick test; the figures mean nothing")
    words = parser.parse_args()
    roles = "".join(f"{role[:8]:>9}" for role in ROLES)
    print(f"{'':33}{'us a task':>24} {'processor us a task':>27} {'memory, MB':>27}")
    print(f"{'column':12}{'size':>9}{'tasks':>9} {'wall':>8}{'cpu':>9} {'':8}{roles} {roles}")
    costs: dict[str, list[float]] = {}
    for line in lines(words.tiny):
        if words.only not in (None, line.column):
            continue
        with tempfile.TemporaryDirectory(prefix="growth-", dir=os.environ.get("TMPDIR")) as folder:
            cost = measure(words.eyas, line, Path(folder))
        cpu_us = {role: cost.cpu_s[role] / line.tasks * 1e6 for role in ROLES}
        all_us = sum(cpu_us.values())
        costs.setdefault(line.column, []).append(all_us)
        cpu = "".join(f"{cpu_us[role]:9.1f}" for role in ROLES)
        memory = "".join(f"{cost.memory_mb[role]:9.0f}" for role in ROLES)
        time_us = f"{cost.seconds / line.tasks * 1e6:8.1f}{all_us:9.1f}"
        print(
            f"{line.column:12}{line.size:9}{line.tasks:9} {time_us} {'':8}{cpu} {memory}",
            flush=True,
        )
    for column, those in costs.items():
        spread = max(those) / max(min(those), 1e-9)
        print(
            f"{column}: {spread:.2f} between the least and the most: "
            f"{'flat' if spread <= FLAT else 'not flat'}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
