#!/usr/bin/env python3
"""Experiment: tasks that print, beside `xargs` that writes each task's output to a file of its own.

Each task prints a file of the given size: `dd if=FILE bs=1M`. In each round, all ways take turns:

- eyas run: `eyas run` with its own cluster, whose journal does not wait for the disk
- eyas cluster: `eyas run` on a local cluster that runs already; every result is on disk before it
  is printed
- xargs: `xargs -P2 dd if=FILE of=out/NUMBER bs=1M`, without a shell, because `dd` writes its own
  file
- xargs, synced: the same with `conv=fsync`

For eyas, the time of the whole command counts. Its output goes to /dev/null, because eyas also
keeps the output of each task (`eyas task log`) until the job is forgotten. Prints medians of wall
time and of processor time, of all processes, and the ratios to `xargs`: the command without a
cluster beside `xargs`, the durable cluster beside `xargs, synced`. The goal is 1.3 for tasks that
print 1 MB.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

GOAL = 1.3
PROJECT = Path(__file__).resolve().parents[2]


class Cost(NamedTuple):
    """What one run took, in seconds."""

    wall: float
    processor: float


class Way(NamedTuple):
    """A way to run the tasks, and the processes outside of the command whose processor
    time counts.
    """

    line: list[str]
    processes: list[int]


def processor_seconds(process: int) -> float:
    """Processor time of a process and of its children that have ended."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rsplit(") ", 1)[1].split()
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def own_children_seconds() -> float:
    """Processor time of all commands that this process has run."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(way: Way, folder: str, environment: dict[str, str], numbers: str) -> Cost:
    """Runs one command to its end."""
    before = own_children_seconds() + sum(map(processor_seconds, way.processes))
    started = time.monotonic()
    quiet = subprocess.DEVNULL
    subprocess.run(
        way.line,
        check=True,
        cwd=folder,
        env=environment,
        input=numbers,
        text=True,
        stdout=quiet,
        stderr=quiet,
    )
    wall = time.monotonic() - started
    return Cost(wall, own_children_seconds() + sum(map(processor_seconds, way.processes)) - before)


def cluster_processes(folder: Path) -> list[int]:
    """The processes whose command line names the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"start" in line and os.fsencode(folder) in line:
                found.append(int(entry.name))
    return found


def main() -> int:
    """Measures, prints a table, and says whether the goal is met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    eyas = Path(os.environ.get("EYAS_BIN", PROJECT / "target/release/eyas"))
    parser.add_argument(
        "--eyas",
        type=Path,
        action="append",
        help="command; several are compared [default: $EYAS_BIN]",
    )
    parser.add_argument(
        "--bytes",
        default="0,1000,65536,1000000",
        help="what each task prints [default: %(default)s]",
    )
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="quick test; the figures mean nothing")
    words = parser.parse_args()
    tasks, rounds = (20, 1) if words.tiny else (words.tasks, words.rounds)
    sizes = [int(size) for size in words.bytes.split(",")]
    numbers = "\n".join(str(number) for number in range(1, tasks + 1))
    is_met = True
    print(f"{'bytes':>9} {'way':32}{'wall':>9}{'processor':>11}{'of xargs':>10}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        environment = {**os.environ, "EYAS_HOME": f"{folder}/home"}
        environment.pop("EYAS_ACCESS", None)
        commands = [command.resolve() for command in words.eyas or [eyas]]
        labels = {command: f"{command.parent.name}/{command.name}" for command in commands}
        clusters: dict[Path, list[int]] = {}
        for number, command in enumerate(commands):
            start = [
                str(command),
                "--cluster",
                f"c{number}",
                "start",
                "local",
                "--slots",
                "2",
                "--detach",
            ]
            subprocess.run(start, check=True, env=environment, stderr=subprocess.DEVNULL)
            clusters[command] = cluster_processes(folder / "home")
        try:
            for size in sizes:
                (folder / "input").write_bytes(os.urandom(size))
                copy = ["dd", f"if={folder}/input", "bs=1M", "status=none"]
                ways: dict[str, Way] = {}
                for number, command in enumerate(commands):
                    run = ["run", "--report", "none", "--array", f"1-{tasks}", "--", *copy]
                    ways[f"{labels[command]} run"] = Way([str(command), *run], [])
                    on_cluster = [str(command), "--cluster", f"c{number}", *run]
                    ways[f"{labels[command]} cluster"] = Way(on_cluster, clusters[command])
                xargs = ["xargs", "-P2", "-I{}", *copy, "of=out/{}"]
                ways["xargs"] = Way(xargs, [])
                ways["xargs, synced"] = Way([*xargs, "conv=fsync"], [])
                costs: dict[str, list[Cost]] = {way: [] for way in ways}
                for _ in range(rounds):
                    for label, way in ways.items():
                        out = folder / "out"
                        shutil.rmtree(out, ignore_errors=True)
                        out.mkdir()
                        os.sync()
                        costs[label].append(measure(way, str(folder), environment, numbers))
                medians = {
                    way: Cost(*map(statistics.median, zip(*those))) for way, those in costs.items()
                }
                for way, cost in medians.items():
                    peer = medians[
                        "xargs, synced" if "cluster" in way or "synced" in way else "xargs"
                    ]
                    ratio = cost.wall / peer.wall
                    print(f"{size:9} {way:32}{cost.wall:8.3f}s{cost.processor:10.3f}s{ratio:10.2f}")
                last = labels[commands[-1]]
                if size == max(sizes):
                    is_met = medians[f"{last} run"].wall <= GOAL * medians["xargs"].wall
        finally:
            for number, command in enumerate(commands):
                stop = [str(command), "--cluster", f"c{number}", "stop"]
                subprocess.run(stop, check=False, env=environment, stderr=subprocess.DEVNULL)
    print(f"goal: {GOAL} times xargs: {'met' if is_met else 'missed'}")
    return 0 if is_met or words.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
