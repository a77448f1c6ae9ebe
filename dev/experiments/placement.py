#!/usr/bin/env python3
"""Experiment: all placement policies on the same workloads, on emulated nodes with shaped links.

    dev/experiments/placement.py [--tiny] [--nodes 8] [--side 16] [--kilobytes 400] [--seconds 0.1]
                                 [--runs 3]

Each task reads one or two files of the shared file system and then sleeps for the time of a
computation, because all nodes share the processors of one machine. Pairs: each file of one half
with each file of the other half, row by row. Stacking: each file eight times, in random order.
Zipf: the same number of tasks, where the n-th file is read in proportion to 1/n. Prints the median
times of the policies, and the distance of `cost` to the best; exits with 1 if it is more than a
tenth.

Needs what `dev/testbed/testbed.py check` lists, and eyas: a release build, or EYAS_BIN.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from cluster import Cluster, eyas
from experiment import ask_links, ask_nodes, command_line, conduct
from table import conclude, show
from testbed import Testbed

POLICIES = ("fa", "mch", "mcu", "gcc", "cost")
LOCALITY = 8
MOST_BEHIND = 1.1
Reads = list[tuple[int, ...]]  # the files that each task reads, by their numbers


def workloads(side: int) -> dict[str, Reads]:
    """Files that each task reads, for 2 * side files."""
    dice = random.Random(1)
    files = range(2 * side)
    stacking = [(file,) for file in files for _ in range(LOCALITY)]
    dice.shuffle(stacking)
    weights = [1 / (1 + file) for file in files]
    zipf = [(file,) for file in dice.choices(files, weights, k=len(stacking))]
    return {"pairs": [(row, side + column) for row in range(side) for column in range(side)],
            "stacking": stacking, "zipf": zipf}  # fmt: skip


def timed(
    asked: argparse.Namespace, bed: Testbed, reads: Reads, policy: str
) -> tuple[float, float]:
    """Seconds of the job, and bytes sent by the store divided by the bytes of distinct files."""
    # Created for each run, so that no node has cached anything.
    bed.up(asked.nodes, asked.link, asked.store_link)
    length = int(asked.kilobytes * 1000)
    dice = random.Random(2)
    # Incompressible.
    paths = bed.put("in", (dice.randbytes(length) for _ in range(2 * asked.side)))
    lines = bed.folder / "lines"
    lines.write_text(
        "".join(",".join(str(paths[file]) for file in files) + "\n" for files in reads)
    )
    inputs = [word for place in range(len(reads[0])) for word in ("--input", f"{{{place + 1}}}")]
    words = ["run", "--each-line", lines, "--colsep", ",", *inputs, "--report", "none"]
    words += ["--", "sh", "-c", f"sleep {asked.seconds}", "{#}"]
    with Cluster(bed, bed.nodes()[2:], policy) as cluster:
        before = bed.sent_bytes("store")
        job = cluster.run(eyas(), *words)
        return job.elapsed_s, (bed.sent_bytes("store") - before) / (2 * asked.side * length)


def experiment(asked: argparse.Namespace, bed: Testbed) -> bool:
    """Runs all of it. Returns whether the goal holds."""
    behind = {}
    for name, reads in workloads(asked.side).items():
        medians, rows = {}, []
        for policy in POLICIES:
            runs = [timed(asked, bed, reads, policy) for _ in range(asked.runs)]
            times, sent = zip(*runs)
            medians[policy] = statistics.median(times)
            rows.append([policy, medians[policy], min(times), max(times), statistics.median(sent)])
        title = (
            f"{name}: {len(reads)} tasks of {asked.seconds:g} s on {asked.nodes} nodes, "
            f"{asked.runs} runs"
        )
        show(title, ["policy", "median s", "least", "most", "read / distinct bytes"], rows)
        behind[name] = medians["cost"] / min(medians.values())
    return all(
        [conclude(f"{name}: cost / best", ratio, MOST_BEHIND) for name, ratio in behind.items()]
    )


def main() -> int:
    """The command line."""
    parser = command_line(__doc__, tiny="2 nodes, 4 files", runs=3)
    ask_nodes(parser)
    parser.add_argument("--side", type=int, default=16, help="rows and columns of the pairs")
    parser.add_argument("--kilobytes", type=float, default=400, help="size of each file")
    parser.add_argument("--seconds", type=float, default=0.1, help="seconds that each task sleeps")
    ask_links(parser, "50mbit", "50mbit")
    return conduct(parser, {"nodes": 2, "side": 2, "seconds": 0.0}, experiment)


if __name__ == "__main__":
    sys.exit(main())
