#!/usr/bin/env python3
"""Experiment: Hadoop's calls of a file system on `eyas://` and on HDFS.

    dev/experiments/hadoop_files.py [--tiny] [--megabytes 512] [--names 100000] [--rounds 5]

Three DataNodes and three executors that keep files are on this machine, three replicas of each
file. One program uses both file systems in turns (`dev/testbed/hadoop/.../FileTimes.java`): it
writes a file, reads it in parts of 4 KiB, 64 KiB and 1 MiB and at random, and lists a folder with
many files. Reads are from the page cache. HDFS has no short-circuit reads here, which need Hadoop's
native library, that Maven Central does not have. As a limit, the program does the same on the local
file system with Hadoop's own `file://`, which also checks sums.

Prints medians, and the medians of the ratios in the same round. Needs a JDK and Maven, a release
build of eyas (or EYAS_BIN), and `eyas.jar` and `eyas-hadoop.jar` in `--jars`, as
`dev/tools/java.sh jar` makes them.
"""

from __future__ import annotations

import argparse
import collections
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from capped import Node
from hadoop_nodes import HadoopNodes
from measured import PROJECT, MeasuredCluster
from table import show

NODES = 3


def measure(asked: argparse.Namespace, folder: Path) -> None:
    """Measures, and prints the tables."""
    some = [Node(f"n{place}", 1, folder) for place in range(NODES)]
    words = ["--nodes", str(NODES), "--dfs", "--cluster", "default"]
    access = folder / "home" / "clusters" / "default" / "access.toml"
    options = {"fs.eyas.access": str(access), "dfs.replication": str(NODES)}
    jars = [asked.jars / "eyas.jar", asked.jars / "eyas-hadoop.jar"]
    try:
        with (
            MeasuredCluster(folder, *words),
            HadoopNodes(some, folder / "hadoop", options, jars, tasks=0) as hadoop,
        ):
            uris = [f"{hadoop.hdfs}/", "eyas://default/", f"file://{folder}/"]
            sizes = [str(asked.megabytes), str(asked.names), str(asked.rounds)]
            said = hadoop.run("FileTimes", *sizes, *uris)
    finally:
        for node in some:
            node.remove()
    times: dict[str, dict[str, list[float]]] = collections.defaultdict(dict)
    for line in said.splitlines():
        if line.count("\t") == 2:
            scheme, what, seconds = line.split("\t")
            times[what].setdefault(scheme, []).append(float(seconds))
    rows = []
    for what, found in times.items():
        ratios = [hdfs / eyas for hdfs, eyas in zip(found["hdfs"], found["eyas"])]
        middle = {scheme: statistics.median(all_of) for scheme, all_of in found.items()}
        rows.append(
            [what, middle["hdfs"], middle["eyas"], middle["file"], statistics.median(ratios)]
        )
    show(
        f"{asked.megabytes} MB, {asked.names} names, medians of {asked.rounds} rounds, seconds",
        ["call", "HDFS", "eyas", "local", "HDFS / eyas"],
        rows,
    )


def main() -> int:
    """Runs the experiment."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--megabytes", type=int, default=512, help="size of the file")
    parser.add_argument("--names", type=int, default=100_000, help="files in the folder")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--jars", type=Path, default=PROJECT / "target" / "java", help="folder of the jars"
    )
    parser.add_argument("--tiny", action="store_true", help="one round with little")
    asked = parser.parse_args()
    if asked.tiny:
        asked.megabytes, asked.names, asked.rounds = 4, 100, 1
    with tempfile.TemporaryDirectory(prefix="eyas-files-") as folder:
        measure(asked, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
