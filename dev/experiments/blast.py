#!/usr/bin/env python3
"""Experiment: BLAST on n nodes with 5n tasks (replica-coupled §5.1, figures 4 to 6).

    dev/experiments/blast.py [--tiny] [--nodes 4,8,16,32] [--runs 1] [--pause 5] [--link RATE]
                             [--store-link RATE]

Every task searches a protein database of 13 MB for one sequence and then sleeps; the sleep stands
for computation, since all nodes share the processors of one machine. Four ways are compared on
identical testbeds, one after the other:

    shared    tasks read the database on the shared file system
    staging   the database is copied to the node for each task, and not kept (first-available)
    ideal     the database is on each node's disk from the start
    ours      eyas with its defaults

Nodes do not cache what they read on the shared file system, as if the database were larger than
memory; the paper's was.

Prints medians: the time of all tasks; the time of a task on its node (transfer and computation,
figure 6); databases sent by the store; and, for the number of nodes nearest to 16, the number of
running tasks over time (figures 4 and 5). All four must give the same hits. Exits with 1 if a goal
does not hold.

Needs what `dev/testbed/testbed.py check` and `dev/apps/blast/fetch.py` list, and eyas: a release
build, or EYAS_BIN.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from cluster import PROJECT, Cluster, Job, eyas
from experiment import ascending, ask_links, command_line, conduct, proteins
from links import bits_per_s
from table import conclude, show
from testbed import Testbed, TestbedError

APP = PROJECT / "dev" / "apps" / "blast"
WAYS = ["shared", "staging", "ideal", "ours"]
TASKS_A_NODE = 5
OPTIONS = "-task blastp-fast -evalue 1e-5"
COLUMNS = 72
MOST_BEYOND_IDEAL, MOST_GROWTH = 1.05, 1.10


def prepare(bed: Testbed, way: str, nodes: int, data: Path, asked: argparse.Namespace) -> Path:
    """Creates the testbed with database, queries and program. Returns the path of the database on
    the nodes.
    """
    # BLAST maps files, so the node must be able to cache pages: the program drops them itself.
    bed.up(nodes, asked.link, asked.store_link, page_cache=way == "shared")
    folder = bed.folder / "local" if way == "ideal" else bed.shared / "db"
    folder.mkdir()
    for path in data.glob("tursiops.p*"):
        shutil.copy(path, folder)
    # Sequences of the database that are short enough.
    sequences = (">" + text for text in (data / "tursiops.fa").read_text()[1:].split("\n>"))
    short = [sequence for sequence in sequences if 200 < len(sequence) < 500][
        : nodes * TASKS_A_NODE
    ]
    (bed.shared / "queries.fa").write_text("\n".join(short) + "\n")
    seen = folder if way == "ideal" else bed.mount / "db"
    drop = f"for file in {seen}/*; do dd if=$file iflag=nocache count=0 status=none; done"
    program = bed.folder / "search"
    lines = [
        "#!/bin/sh",
        *([drop] if way == "shared" else []),
        f'blastp {OPTIONS} "$@" && sleep {asked.pause}',
    ]
    program.write_text("\n".join(lines) + "\n")
    program.chmod(0o755)
    return seen / "tursiops"


def run(
    bed: Testbed, way: str, number: int, data: Path, asked: argparse.Namespace
) -> tuple[Job, float, bytes]:
    """Runs one way on this many nodes. Returns the job, the number of databases that the store
    sent, and the hits.
    """
    database = prepare(bed, way, number, data, asked)
    words = [
        "--database",
        database,
        "--queries",
        bed.mount / "queries.fa",
        "--tasks",
        number * TASKS_A_NODE,
    ]
    words += ["--out", bed.mount / "hits", "--program", bed.folder / "search", "--eyas", eyas()]
    words += [
        "--run-with",
        "--report none",
        *(["--in-place"] if way in ("shared", "ideal") else []),
    ]
    with Cluster(bed, bed.nodes()[2:], "fa" if way == "staging" else "") as cluster:
        before = bed.sent_bytes("store")
        job = cluster.run(sys.executable, APP / "blast.py", *words)
        return (
            job,
            (bed.sent_bytes("store") - before) / size(data),
            (bed.shared / "hits").read_bytes(),
        )


def size(data: Path) -> int:
    """Bytes of the database."""
    return sum(path.stat().st_size for path in data.glob("tursiops.p*"))


def course(job: Job, nodes: int, length_s: float) -> str:
    """Number of computing tasks, in ninths of the nodes, from the start of the job to the end of
    the longest one.
    """
    spans = [(task["queued_us"] + task["waited_us"], task["ran_us"]) for task in job.tasks]
    instants = [length_s * 1e6 * (column + 0.5) / COLUMNS for column in range(COLUMNS)]
    counts = [sum(start <= instant < start + ran for start, ran in spans) for instant in instants]
    return "".join("." if count == 0 else str(max(1, round(9 * count / nodes))) for count in counts)


def experiment(asked: argparse.Namespace, bed: Testbed) -> bool:
    """Runs all of it. Returns whether the goals hold."""
    numbers = asked.nodes
    data = proteins()
    shown = min(numbers, key=lambda number: abs(number - 16))
    rows, courses, seconds = [], {}, {}
    for number in numbers:
        found = set()
        for way in WAYS:
            runs = [run(bed, way, number, data, asked) for _ in range(asked.runs)]
            found |= {hits for _, _, hits in runs}
            whole = statistics.median(job.elapsed_s for job, _, _ in runs)
            seconds[way, number] = whole
            mean_run = statistics.median(job.mean_run_s for job, _, _ in runs)
            sent = statistics.median(sent for _, sent, _ in runs)
            rows.append(
                [
                    number,
                    way,
                    whole,
                    whole / TASKS_A_NODE,
                    mean_run,
                    sent,
                    whole / seconds["shared", number],
                ]
            )
            if number == shown:
                courses[way] = runs[0][0]
        if len(found) != 1:
            raise TestbedError(
                f"the four ways gave {len(found)} different answers at {number} nodes"
            )
    title = (
        f"5n tasks on n nodes, links of {asked.link}, store's of {asked.store_link}, medians of "
        f"{asked.runs} runs"
    )
    show(
        title,
        [
            "nodes",
            "way",
            "all tasks, s",
            "one task, s",
            "running, s",
            "databases sent",
            "of shared",
        ],
        rows,
    )
    length = max(job.elapsed_s for job in courses.values())
    print(
        f"\ntasks that run, in ninths of {shown} nodes, over {length:.1f} s (those of `shared` "
        "also read):"
    )
    for way, job in courses.items():
        print(f"{way:>8} {course(job, shown, length)}")
    once = size(data) * 8 / bits_per_s(asked.link)
    holds = []
    for number in numbers:
        beyond = seconds["ours", number] / (seconds["ideal", number] + once)
        holds.append(
            conclude(
                f"{number} nodes: ours / (ideal + one distribution)", beyond, MOST_BEYOND_IDEAL
            )
        )
    ours = [seconds["ours", number] for number in numbers]
    holds.append(
        conclude("one task's time: longest of all n / shortest", max(ours) / min(ours), MOST_GROWTH)
    )
    for way, paper in (("staging", 44.3), ("shared", 57.5)):
        gain = 100 * (1 - seconds["ours", shown] / seconds[way, shown])
        print(
            f"{shown} nodes: ours takes {gain:.1f} % less time than {way}; in the paper, {paper} % "
            "at 16"
        )
    return all(holds)


def main() -> int:
    """The command line."""
    parser = command_line(__doc__, tiny="2 nodes", runs=1)
    parser.add_argument("--nodes", type=ascending, default="4,8,16,32", help="numbers of nodes")
    parser.add_argument(
        "--pause", type=float, default=5, help="seconds that each task sleeps after its search"
    )
    ask_links(parser, "100mbit", "400mbit")
    return conduct(parser, {"nodes": [2], "pause": 0.5}, experiment)


if __name__ == "__main__":
    sys.exit(main())
