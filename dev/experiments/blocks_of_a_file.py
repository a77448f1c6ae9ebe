#!/usr/bin/env python3
"""Experiment: a job with one task for each block of a large file of the cluster.

A local cluster of four nodes keeps a file of lines in about 10,000 chunks, one for each task.
Prints how many of the bytes that the tasks read came from their own node, and how long the job
took. `xargs` runs the same program over parts of the same file on the local disk, two at a time.
The page cache is warm for both. The goal: 95 % of the bytes are read from the task's own node.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from measured import MeasuredCluster

GOAL_PERCENT = 95
NODES = 4
SLOTS = 2
MEGABYTE = 1_000_000
JOB = '[[task]]\neach_block = "eyas:///blocks"\ncommand = ["wc", "-l"]\n'


def write_lines(file: Path, size_bytes: int) -> None:
    """Writes lines of 100 bytes that do not repeat within a megabyte."""
    with file.open("wb") as out:
        for number in range(size_bytes // MEGABYTE):
            lines = (b"%099d\n" % (number * 10_000 + line) for line in range(10_000))
            out.write(b"".join(lines))


def plain(folder: Path, part_bytes: int) -> float:
    """Seconds of `xargs` with the same program, for parts of the file."""
    (folder / "parts").mkdir()
    line = ["split", "-a", "6", "-C", str(part_bytes), "blocks", "parts/"]
    subprocess.run(line, check=True, cwd=folder)
    began = time.monotonic()
    counted = f"ls parts | sed s,^,parts/, | xargs -P{SLOTS} -n1 wc -l > counted"
    subprocess.run(["sh", "-c", counted], check=True, cwd=folder)
    return time.monotonic() - began


def main() -> int:
    """Measures, prints, and says whether the goal is met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=8000)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--policy", default="gcc")
    parser.add_argument("--tiny", action="store_true", help="quick test; the figures mean nothing")
    words = parser.parse_args()
    megabytes, tasks = (20, 50) if words.tiny else (words.megabytes, words.tasks)
    chunk_bytes = megabytes * MEGABYTE // tasks
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_lines(folder / "blocks", megabytes * MEGABYTE)
        beside = plain(folder, chunk_bytes)
        subprocess.run(["rm", "-r", "parts"], check=True, cwd=folder)
        shape = ("--nodes", str(NODES), "--slots", str(SLOTS), "--dfs", "--policy", words.policy)
        with MeasuredCluster(folder, *shape) as cluster:
            put = (
                "put",
                "blocks",
                "/blocks",
                "--chunk-size",
                str(chunk_bytes),
                "--replicas",
                str(words.replicas),
            )
            cluster.eyas("dfs", *put)
            (folder / "blocks").unlink()
            cost = cluster.submit(JOB)
            job = json.loads(cluster.eyas("job", "show", "1", "--json"))["jobs"][0]
    count, reads = job["tasks"]["succeeded"], job["reads"]
    files = reads["files"]
    own = reads["local"]["bytes"] + files["own_bytes"]
    percent = (
        100
        * own
        / (own + reads["peer"]["bytes"] + reads["persistent"]["bytes"] + files["other_bytes"])
    )
    print(
        f"{megabytes} MB in {count} blocks, {words.replicas} replicas, {NODES} nodes, policy "
        f"{words.policy}"
    )
    print(f"read from the task's own node: {percent:.1f} % of the bytes")
    print(
        f"job: {cost.seconds:.2f} s ({count / cost.seconds:.0f} tasks/s); xargs -P{SLOTS}: "
        f"{beside:.2f} s"
    )
    print(f"goal: {GOAL_PERCENT} %: {'met' if percent >= GOAL_PERCENT else 'missed'}")
    return 0 if percent >= GOAL_PERCENT or words.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
