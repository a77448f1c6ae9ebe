#!/usr/bin/env python3
"""Experiment: jobs over blocks on nodes of different speeds (elastic-blocks §3), under eyas and
other systems.

    dev/experiments/stragglers.py [--tiny] [--runs 5] [--lines 1000000] [--share 0.35] [--no-peers]
                                [--only straggler|idle|busy]

Each node has one executor, and a control group limits it to a share of a processor. The program
computes for each line of a file of 64 chunks.

*straggler*: four nodes, one of them with a fifth of the others' speed. No schedule can end before
all nodes together have done the work; that time is the bound. The speeds are measured with the
program alone, on all nodes at once.

*idle*: four equal nodes. *busy*: five nodes with disks of 20 MB/s; none, one or two of them have
other work that computes and uses their disk all the time (elastic-blocks table 2: none, a fifth,
two fifths); one job, and three jobs at once over their own files on executors with three slots
(§3.5). Files are read from the disk, not from memory.

GNU parallel, Dask and Spark run on the same nodes if they are installed: `dev/tools/peers.sh
pyspark`, then `target/peers/bin/python dev/experiments/stragglers.py`.

Prints medians and which goals hold; exits with 1 if one does not. Needs root, control groups of
version 1, and eyas: a release build, or EYAS_BIN.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from capped import Node, busy, nodes
from map_peers import PEERS
from mappers import POLICIES, Runs, Work, eyas_over, timed
from table import conclude, show

STRAGGLER = 0.2
CHUNKS = 64
DISK_BYTES_S = 20_000_000
LEAN, FIXED = "lean, alpha auto", "lean, alpha 0.5"
MOST_OF_BOUND, WORST_OF_BOUND = 1.10, 1.20
# Lean that chooses alpha itself, beside a fixed alpha; and beside static without a straggler.
MOST_OF_FIXED, MOST_OF_STATIC = 1.03, 1.01
# The computation for a line: useless, and proportional to the bytes read.
PROGRAM = ["awk", "{ for (i = 0; i < 500; i++) sum += length($0) % (i + 1) } END { print sum }"]


def text_of(lines: int, folder: Path, name: str) -> Work:
    """A file to work through."""
    text = folder / name
    text.write_text(
        "".join(f"{number} some words that no program counts\n" for number in range(lines))
    )
    return Work(text, CHUNKS, PROGRAM)


def speeds(work: Work, some: Sequence[Node]) -> list[float]:
    """Bytes a second of the program alone, on all of these nodes at once."""
    content = work.text.read_bytes()
    full = len(content) // (2 * len(some)) / max(node.share for node in some)

    def speed(node: Node) -> float:
        with tempfile.TemporaryFile() as part:
            part.write(content[: int(full * node.share)])
            part.seek(0)
            node.cap(True)
            process = node.start(work.program, stdin=part, stdout=subprocess.DEVNULL)
            return int(full * node.share) / timed(process.wait)

    with ThreadPoolExecutor(len(some)) as pool:
        return list(pool.map(speed, some))


def measured(
    some: list[Node], systems: Sequence[AbstractContextManager[Runs]], hogs: int, runs: int
) -> dict[str, list[float]]:
    """Seconds of all runs of each system. The last `hogs` nodes have other work."""
    times: dict[str, list[float]] = {}
    for system in systems:
        with contextlib.ExitStack() as ending:
            for node in some:
                node.cap(False)
            try:
                named = ending.enter_context(system)
            except ModuleNotFoundError as missing:
                print(f"left out: {missing}", flush=True)
                continue
            for node in some:
                node.cap(True)
            ending.callback(lambda: [node.cap(False) for node in some])
            ending.enter_context(busy(some[len(some) - hogs :]))
            for _ in range(runs):
                for name, run in named.items():
                    times.setdefault(name, []).append(run())
                    print(f"{name}: {times[name][-1]:.2f} s", flush=True)
    return times


def medians(times: dict[str, list[float]]) -> dict[str, float]:
    """Median seconds of each system."""
    return {name: statistics.median(taken) for name, taken in times.items()}


def straggler(asked: argparse.Namespace, folder: Path) -> list[bool]:
    """Measures with one slow node of four. Returns whether the goal holds."""
    work = text_of(asked.lines, folder, "text")
    with nodes([asked.share] * 3 + [asked.share * STRAGGLER], folder) as some:
        rates = speeds(work, some)
        ideal = work.bytes / sum(rates)
        print(
            f"all speeds together: {ideal:.2f} s; a chunk on the slowest: "
            f"{work.bytes / CHUNKS / min(rates):.2f} s"
        )
        systems = [
            eyas_over(some, [work], list(POLICIES)),
            *[peer(some, work) for peer in asked.peers],
        ]
        times = measured(some, systems, 0, asked.runs)
    middle = medians(times)
    rows = [
        [name, middle[name], min(taken), max(taken), middle[name] / ideal]
        for name, taken in times.items()
    ]
    show("one straggler of four", ["", "s", "least", "most", "of the bound"], rows)
    return [
        conclude("lean with a straggler, of the bound", middle[LEAN] / ideal, MOST_OF_BOUND),
        conclude("its worst run", max(times[LEAN]) / ideal, WORST_OF_BOUND),
        conclude("alpha auto, of alpha 0.5", middle[LEAN] / middle[FIXED], MOST_OF_FIXED),
    ]


def idle(asked: argparse.Namespace, folder: Path) -> list[bool]:
    """Measures with four equal nodes. Returns whether lean is as fast as static."""
    work = text_of(asked.lines, folder, "text")
    with nodes([asked.share] * 4, folder) as some:
        ideal = work.bytes / sum(speeds(work, some))
        systems = [
            eyas_over(some, [work], list(POLICIES)),
            *[peer(some, work) for peer in asked.peers],
        ]
        times = medians(measured(some, systems, 0, asked.runs))
    rows = [[name, time, time / ideal] for name, time in times.items()]
    show("no straggler", ["", "s", "of all speeds together"], rows)
    return [
        conclude(
            "lean without a straggler, of static's time",
            times[LEAN] / times["static"],
            MOST_OF_STATIC,
        )
    ]


def environments(asked: argparse.Namespace, folder: Path) -> list[bool]:
    """Measures with other work on some of five nodes. Returns whether lean is as fast as static in
    every case.
    """
    rows: list[list[object]] = []
    for jobs in (1, 3):
        works = [text_of(asked.lines // jobs, folder, f"text-{jobs}-{job}") for job in range(jobs)]
        for hogs in range(3):
            here = folder / f"{jobs}-{hogs}"
            with nodes([asked.share * 0.8] * 5, here, DISK_BYTES_S) as some:
                systems = [eyas_over(some, works, ["static", LEAN])]
                times = medians(measured(some, systems, hogs, asked.runs))
            rows.append(
                [
                    jobs,
                    f"{hogs / 5:.0%}",
                    times["static"],
                    times[LEAN],
                    times[LEAN] / times["static"],
                ]
            )
    show("environments", ["jobs", "busy", "static, s", "lean, s", "of static's"], rows)
    return [
        conclude(
            f"lean, {jobs} at a time, {hogs} busy, of static's time",
            float(str(ratio)),
            MOST_OF_STATIC,
        )
        for jobs, hogs, _, _, ratio in rows
    ]


EXPERIMENTS = {"straggler": straggler, "idle": idle, "busy": environments}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tiny", action="store_true", help="quick test with a small file; the figures mean nothing"
    )
    parser.add_argument("--runs", type=int, default=5, help="runs of each; the median counts")
    parser.add_argument("--lines", type=int, default=1_000_000, help="lines of the file")
    parser.add_argument(
        "--share", type=float, default=0.35, help="share of a processor, except for the straggler"
    )
    parser.add_argument(
        "--no-peers",
        dest="peers",
        action="store_const",
        const=[],
        default=PEERS,
        help="run eyas only",
    )
    parser.add_argument("--only", choices=EXPERIMENTS, help="run only this part")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    if asked.tiny:
        asked.lines, asked.runs = 50_000, 1
    holds = []
    for name in [asked.only] if asked.only else EXPERIMENTS:
        with tempfile.TemporaryDirectory(prefix="eyas-straggler-") as folder:
            holds += EXPERIMENTS[name](asked, Path(folder))
    return 0 if all(holds) or asked.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
