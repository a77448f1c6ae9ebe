#!/usr/bin/env python3
"""Experiment: files of the cluster from kept outputs and from other files, with `eyas dfs cp` and
by way of the client.

A local cluster of four nodes keeps an output of a task. `eyas dfs cp` makes a file of it, and a
copy of that file. Beside that, `eyas task get` or `eyas dfs get` brings the content to the client,
and `eyas dfs put` stores it. Then tasks read files of several chunks, one replica each: prints how
many tasks ran on the node with most bytes of their file. The page cache is warm.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from measured import MeasuredCluster

NODES = 4
SLOTS = 2
MEGABYTE = 1_000_000
KEEP = (
    '[[task]]\ncommand = ["cp", "large", "kept"]\ninputs = ["large"]\n'
    'outputs = [{ file = "kept", keep = true }]\n'
)
READ = '[[task]]\neach = "eyas:///many/*"\ncommand = ["wc", "-l"]\n'


def write_lines(file: Path, megabytes: int) -> None:
    """Writes lines of 100 bytes."""
    with file.open("wb") as out:
        for number in range(megabytes):
            out.write(b"".join(b"%099d\n" % (number * 10_000 + line) for line in range(10_000)))


def seconds(cluster: MeasuredCluster, *commands: tuple[str, ...]) -> float:
    """How long commands take, one after the other."""
    began = time.monotonic()
    for words in commands:
        cluster.eyas(*words)
    return time.monotonic() - began


def best_node(cluster: MeasuredCluster, name: str) -> str:
    """The address of the node that has most bytes of a file."""
    file = json.loads(cluster.eyas("--json", "dfs", "show", name))["file"]
    held: Counter[str] = Counter()
    for chunk in file["shape"]["chunks"]:
        for replica in chunk["replicas"]:
            held[replica["address"]] += chunk["size_bytes"]
    return held.most_common(1)[0][0]


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=1000, help="of the kept output")
    parser.add_argument(
        "--files", type=int, default=40, help="of several chunks, one for each task"
    )
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--policy", default="gcc")
    parser.add_argument("--tiny", action="store_true", help="quick test; the figures mean nothing")
    words = parser.parse_args()
    megabytes, files = (5, 4) if words.tiny else (words.megabytes, words.files)
    replicas = ("--replicas", str(words.replicas))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_lines(folder / "large", megabytes)
        write_lines(folder / "small", 1)
        shape = ("--nodes", str(NODES), "--slots", str(SLOTS), "--dfs", "--policy", words.policy)
        with MeasuredCluster(folder, *shape) as cluster:
            cluster.submit(KEEP)
            kept = seconds(cluster, ("dfs", "cp", "eyas://1/0/kept", "/a", *replicas))
            by_client = seconds(
                cluster,
                ("task", "get", "1.0", "--to", "got"),
                ("dfs", "put", "got/kept", "/b", *replicas),
            )
            copied = seconds(cluster, ("dfs", "cp", "/a", "/c"))
            by_client_again = seconds(
                cluster, ("dfs", "get", "/a", "again"), ("dfs", "put", "again", "/d", *replicas)
            )
            for number in range(files):
                chunks = ("--chunk-size", "64KiB", *replicas)
                cluster.eyas("dfs", "put", "small", f"/many/{number}", *chunks)
            cost = cluster.submit(READ)
            executors = json.loads(cluster.eyas("--json", "executor", "list"))["executors"]
            names = {executor["files"]: executor["name"] for executor in executors}
            tasks = json.loads(cluster.eyas("--json", "task", "list", "2"))["tasks"]
            best = {
                task["item"]: names[best_node(cluster, task["item"].removeprefix("eyas://"))]
                for task in tasks
            }
            near = sum(task["executor"] == best[task["item"]] for task in tasks)
    print(f"{megabytes} MB, {words.replicas} replicas, {NODES} nodes, policy {words.policy}")
    print(f"kept output to file: dfs cp {kept:.2f} s; task get and dfs put {by_client:.2f} s")
    print(f"file to file: dfs cp {copied:.2f} s; dfs get and dfs put {by_client_again:.2f} s")
    print(
        f"{near} of {len(tasks)} tasks ran on the node with most bytes of their file, in "
        f"{cost.seconds:.2f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
