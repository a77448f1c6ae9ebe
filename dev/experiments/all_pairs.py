#!/usr/bin/env python3
"""Experiment: All-Pairs on 8 nodes; how often each distinct byte is read from persistent storage.

    dev/experiments/all_pairs.py [--tiny] [--nodes 8] [--files 24] [--kilobytes 200] [--block 4]
                                 [--runs 3]

Every pair of files, cut from one set of proteins, is compared by `dev/apps/all-pairs/ncd.py`. With
eyas, the matrix is split into blocks whose tasks have their files as inputs. For comparison, the
same blocks, also placed by eyas, read the files on the shared file system, where each node caches
all that it has read: plain shared storage at its best. Counted are the bytes that the store sends
over its link, headers included. Prints medians and whether the goal holds; exits with 1 if not.

Needs what `dev/testbed/testbed.py check` and `dev/apps/blast/fetch.py` list, and eyas: a release
build, or EYAS_BIN.
"""

from __future__ import annotations

import argparse
import csv
import shlex
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from cluster import PROJECT, Cluster, eyas
from experiment import ask_links, ask_nodes, command_line, conduct, proteins
from table import conclude, show
from testbed import Testbed, TestbedError

APPS = PROJECT / "dev" / "apps"
PROGRAM = APPS / "all-pairs" / "ncd.py"
MOST_READS = 1.1


def prepare(bed: Testbed, data: Path, files: int, length: int) -> list[Path]:
    """Cuts the set into files of this length. Returns their paths on the nodes."""
    whole = (data / "tursiops.fa").read_bytes()
    if files * length > len(whole):
        raise TestbedError(
            f"{files} files of {length} bytes are more than the {len(whole)} of the data"
        )
    return bed.put(
        "parts", (whole[number * length : (number + 1) * length] for number in range(files))
    )


def by_inputs(bed: Testbed, paths: list[Path], side: int) -> list[object]:
    """Runs the application with files as inputs."""
    words = [
        "--eyas",
        eyas(),
        "--rows",
        *paths,
        "--symmetric",
        "--block",
        side,
        "--out",
        bed.mount / "out",
    ]
    return [sys.executable, APPS / "all-pairs" / "all_pairs.py", *words, "--", PROGRAM]


def in_place(bed: Testbed, paths: list[Path], side: int) -> list[object]:
    """Runs the same blocks as tasks without inputs; each command reads the files where they are."""
    lines = []
    for top in range(0, len(paths), side):
        for left in range(top, len(paths), side):
            words = [
                sys.executable,
                APPS / "all-pairs" / "block.py",
                *(["--triangle"] if top == left else []),
            ]
            words += [
                "--rows",
                *paths[top : top + side],
                "--columns",
                *paths[left : left + side],
                "--",
                PROGRAM,
            ]
            lines.append(f"{shlex.join(map(str, words))} && cat block.csv\n")
    (bed.folder / "blocks").write_text("".join(lines))
    each = ["--each-line", bed.folder / "blocks", "--sandbox", "--report", "none"]
    return [eyas(), "run", *each, "--", "sh", "-c", 'eval "$1"', "sh", "{}"]


def experiment(asked: argparse.Namespace, bed: Testbed) -> bool:
    """Runs all of it. Returns whether the goal holds."""
    data = proteins()
    length = int(asked.kilobytes * 1000)
    rows, reads = [], {}
    for way, command in (("shared", in_place), ("ours", by_inputs)):
        times, sent = [], []
        for _ in range(asked.runs):
            # Created for each run, so that no node has cached anything.
            bed.up(asked.nodes, asked.link, asked.store_link, page_cache=True)
            paths = prepare(bed, data, asked.files, length)
            with Cluster(bed, bed.nodes()[2:]) as cluster:
                before = bed.sent_bytes("store")
                job = cluster.run(*command(bed, paths, asked.block))
                sent.append((bed.sent_bytes("store") - before) / (asked.files * length))
                times.append(job.elapsed_s)
        if way == "ours":
            with (bed.shared / "out" / "matrix.csv").open(newline="") as file:
                whole = all(value for row in csv.reader(file) for value in row[1:])
            if not whole:
                raise TestbedError("the matrix has empty places")
        reads[way] = statistics.median(sent)
        rows.append([way, statistics.median(times), reads[way], job.executors, len(job.tasks)])
    pairs = asked.files * (asked.files + 1) // 2
    what = f"{pairs} pairs of {asked.files} files of {asked.kilobytes:g} kB on {asked.nodes} nodes"
    title = f"{what}, medians of {asked.runs} runs"
    show(title, ["way", "s", "read / distinct bytes", "nodes with a task", "tasks"], rows)
    print(
        f"shared storage sends {reads['shared'] / reads['ours']:.2f} times as much when it is read "
        "in place"
    )
    return conclude(
        "bytes read from persistent storage / distinct bytes", reads["ours"], MOST_READS
    )


def main() -> int:
    """The command line."""
    parser = command_line(__doc__, tiny="2 nodes, 4 files", runs=3)
    ask_nodes(parser)
    parser.add_argument("--files", type=int, default=24, help="rows and columns of the matrix")
    parser.add_argument("--kilobytes", type=float, default=200, help="size of each file")
    parser.add_argument("--block", type=int, default=4, help="rows and columns of a task")
    ask_links(parser, "50mbit", "50mbit")
    return conduct(parser, {"nodes": 2, "files": 4, "block": 2}, experiment)


if __name__ == "__main__":
    sys.exit(main())
