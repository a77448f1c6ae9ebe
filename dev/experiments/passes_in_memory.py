#!/usr/bin/env python3
"""Experiment: passes over files that are larger than the memory of the nodes, with and without
`memory` in the map step (elastic-blocks §2.3).

    dev/experiments/passes_in_memory.py [--tiny] [--megabytes 1000] [--passes 5] [--runs 3]

Two nodes whose control groups limit the disk to 100 MB/s, and the memory with its page cache to
three eighths of the file. The program is `wc -l`. With `memory`, each node may keep a quarter of
the file, which is half of what it reads. Both take turns. Prints medians: the first pass, each
later one, and their ratio.

Needs root, control groups of version 1, and a release build of eyas (or EYAS_BIN).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from capped import Node, nodes
from cluster import eyas
from elastic_hadoop import cluster_of_eyas
from map_blocks import write_text
from passes import forget, seconds_of_passes
from table import show

NODES, SHARE, DISK_BYTES_S = 2, 1.0, 100_000_000
JOB = """\
[[map]]
files = "/text"
command = ["wc", "-l"]
to = "{to}"
repeat = {passes}
{memory}
"""


def measure(asked: argparse.Namespace, folder: Path) -> None:
    """Measures both in turns, and prints the medians."""
    text = folder / "text"
    write_text(text, asked.megabytes)
    size = text.stat().st_size
    found: dict[str, list[list[float]]] = {"without": [], "with memory": []}
    with contextlib.ExitStack() as ending:
        # Below some tens of megabytes, the processes of a node do not fit.
        memory_bytes = max(size * 3 // 8, 200_000_000)
        some: list[Node] = ending.enter_context(
            nodes([SHARE] * NODES, folder / "nodes", DISK_BYTES_S, memory_bytes)
        )
        (folder / "home").mkdir()
        options = ["--dfs-memory", str(size // 4)]
        environment = ending.enter_context(cluster_of_eyas(some, folder / "home", options))
        put = [eyas(), "dfs", "put", text, "/text", "--replicas", "1", "--chunk-size"]
        put += ["100kB" if asked.tiny else "16MB"]
        subprocess.run(put, env=environment, check=True)
        for number, (name, times) in itertools.product(range(asked.runs), found.items()):
            forget()
            memory = f"memory = {size // 4}" if name == "with memory" else ""
            to = f"/counts/{name.split()[0]}{number}"
            job = JOB.format(to=to, passes=asked.passes, memory=memory)
            passes, said = seconds_of_passes(environment, folder, job, asked.passes)
            if memory and not re.search(r" [1-9]\d* chunks? in memory", said):
                raise SystemExit(f"nothing has stayed in memory: {said}")
            times.append(passes)
            print(f"{name}: {', '.join(f'{seconds:.2f}' for seconds in passes)} s")
    rows: list[list[object]] = []
    for name, times in found.items():
        first = statistics.median(passes[0] for passes in times)
        later = statistics.median(seconds for passes in times for seconds in passes[1:])
        rows.append([name, first, later, later / first])
    show(
        f"wc -l, {size / 1e6:.0f} MB, {NODES} nodes with {memory_bytes / 1e6:.0f} MB of memory and "
        f"{DISK_BYTES_S / 1e6:.0f} MB/s each, medians of {asked.runs} runs, seconds",
        ["", "first pass", "each later", "later / first"],
        rows,
    )


def main() -> int:
    """Runs the experiment."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="one run of 2 passes over 2 MB")
    asked = parser.parse_args()
    if asked.tiny:
        asked.megabytes, asked.passes, asked.runs = 2, 2, 1
    with tempfile.TemporaryDirectory() as folder:
        measure(asked, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
