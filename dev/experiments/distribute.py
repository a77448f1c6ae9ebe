#!/usr/bin/env python3
"""Experiment: one file is distributed to n nodes over shaped links, by simultaneous demand,
compared with a star over HTTP.

    dev/experiments/distribute.py [--tiny] [--nodes 1,2,4,8,16,32] [--runs 3] [--megabytes 96]
                                  [--link 48mbit] [--alone]

A job of n tasks, one on each node, reads one file of the shared storage. The time is from the start
of the job until the last task has its input. A chain of relays takes 1 + (n-1) c/S times as long as
a single node (S bytes, pieces of c bytes); a star, in which the source sends to each node, takes n
times as long. Then half of the largest n is tried again, and the node that has sent most is killed
after half of the time. For the smallest and the largest n, `eyas push` is measured as well, in a
chain and along a spanning tree, which takes 1 + ceil(log2 n) times as long as a single node. Prints
medians, the bytes sent by the source in file sizes (headers included), and which goals hold; exits
with 1 if one does not.

The defaults suit a machine with two cores: half of its time can forward what 32 links of 48 Mbit/s
carry, and 31 hops of one piece each take a small part of the file's time.

Needs what `dev/testbed/testbed.py check` lists, and eyas: a release build, or EYAS_BIN.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from cluster import Cluster, Job, eyas
from experiment import ascending, command_line, conduct
from table import conclude, show
from testbed import Testbed, TestbedError

HTTP_PORT = 8000
READ_ALL = (
    "import sys, urllib.request as web\nwith web.urlopen(sys.argv[1]) as file:\n"
    "  while file.read(1 << 16): pass"
)
MOST_GROWTH, MOST_UPLOAD, MOST_FOR_A_KILL = 1.15, 1.05, 1.10
LEAST_RELAYED = 0.05  # of a file, by the one that is killed


def job(bed: Testbed, nodes: list[str], hold_s: float) -> list[object]:
    """A job with one task for each node; each task keeps its slot until all others have one."""
    each = ["--array", f"1-{len(nodes)}", "--input", bed.mount / "file", "--report", "none"]
    return [eyas(), "run", *each, "--", "sleep", f"{hold_s}"]


def demand(bed: Testbed, nodes: list[str], hold_s: float) -> tuple[Job, float]:
    """One distribution. Returns the job, and the file sizes that the source sent."""
    size = (bed.shared / "file").stat().st_size
    with Cluster(bed, nodes) as cluster:
        before = bed.sent_bytes("store")
        done = cluster.run(*job(bed, nodes, hold_s))
        return done, (bed.sent_bytes("store") - before) / size


def star(bed: Testbed, nodes: list[str]) -> float:
    """Every node gets the file from the source over HTTP, all at once. Returns seconds."""
    server = bed.start(
        "store",
        [sys.executable, "-m", "http.server", "--directory", bed.shared, HTTP_PORT],
        log="http",
    )
    try:
        wait = f"import socket; socket.create_connection(('store', {HTTP_PORT}))"
        while bed.start("head", [sys.executable, "-c", wait], stderr=subprocess.DEVNULL).wait():
            time.sleep(0.1)
        began = time.monotonic()
        command = [sys.executable, "-c", READ_ALL, f"http://store:{HTTP_PORT}/file"]
        # A list, so that the loop waits for all.
        if any([reader.wait() for reader in [bed.start(node, command) for node in nodes]]):
            raise TestbedError("a node has not got the file over HTTP")
        return time.monotonic() - began
    finally:
        server.kill()
        server.wait()


def pushed(bed: Testbed, nodes: list[str], distribution: str) -> float:
    """Every node gets the file before any task needs it. Returns seconds."""
    with Cluster(bed, nodes) as cluster:
        began = time.monotonic()
        cluster.ask("push", str(bed.mount / "file"), "--distribution", distribution)
        return time.monotonic() - began


def killed(
    bed: Testbed, nodes: list[str], usual_s: float, hold_s: float
) -> tuple[float, str, float]:
    """A distribution whose busiest relay is killed half way. Returns when the last other node had
    the file, the killed node, and how many file sizes it had sent.
    """
    with Cluster(bed, nodes) as cluster:
        before = {node: bed.sent_bytes(node) for node in nodes}
        running = bed.start("head", cluster.words(*job(bed, nodes, hold_s)), log="killed")
        time.sleep(usual_s / 2)
        relay = max(nodes, key=lambda node: bed.sent_bytes(node) - before[node])
        relayed = (bed.sent_bytes(relay) - before[relay]) / (bed.shared / "file").stat().st_size
        bed.kill(relay)
        if running.wait():
            said = (bed.folder / "log" / "killed").read_text()
            raise TestbedError(f"the job failed after {relay} was killed: {said[-500:]}")
        return cluster.last_job().staged_s, relay, relayed


def experiment(asked: argparse.Namespace, bed: Testbed) -> bool:
    """Runs all of it. Returns whether the goals hold."""
    numbers = asked.nodes
    bed.up(numbers[-1], asked.link, asked.link)
    (bed.shared / "file").write_bytes(os.urandom(int(asked.megabytes * 1e6)))
    nodes = bed.nodes()[2:]
    rows, times, uploads = [], {}, {}
    hold_s = 2.0
    for number in numbers:
        runs = [demand(bed, nodes[:number], hold_s) for _ in range(asked.runs)]
        times[number] = statistics.median(done.staged_s for done, _ in runs)
        uploads[number] = statistics.median(sent for _, sent in runs)
        # No task may end before all have their input; otherwise one node could run two.
        hold_s = max(hold_s, times[number] / 2)
        spread = min(done.executors for done, _ in runs)
        row = [number, times[number], times[number] / times[numbers[0]], uploads[number], spread]
        others: list[float | str] = ["-", "-", "-"]
        if number in (numbers[0], numbers[-1]) and not asked.alone:
            others = [pushed(bed, nodes[:number], how) for how in ("chain", "spanning-tree")]
            others.append(star(bed, nodes[:number]))
        rows.append([*row, *others])
    title = (
        f"{asked.megabytes:g} MB over links of {asked.link}, medians of {asked.runs} runs; pushes "
        "and star: one run"
    )
    heads = ["nodes", "s", "of the first", "source sent, files", "nodes with a task"]
    show(title, [*heads, "pushed, s", "spanning tree, s", "star, s"], rows)
    half = max(numbers[-1] // 2, 2)
    usual = statistics.median(
        demand(bed, nodes[:half], hold_s)[0].staged_s for _ in range(asked.runs)
    )
    kills: list[tuple[float, str, float]] = []
    for _ in range(asked.runs):
        alive = [node for node in nodes if node not in {dead for _, dead, _ in kills}]
        if len(alive) >= half:
            kills.append(killed(bed, alive[:half], usual, hold_s))
    with_kill = statistics.median(seconds for seconds, _, _ in kills)
    dead = ", ".join(f"{relay} had sent {sent:.2f} files" for _, relay, sent in kills)
    print(f"{half} nodes: {usual:.2f} s; with a relay killed half way {with_kill:.2f} s ({dead})")
    growth = times[numbers[-1]] / times[numbers[0]]
    holds = [
        conclude(f"time at {numbers[-1]} nodes / time at {numbers[0]}", growth, MOST_GROWTH),
        conclude(
            f"file sizes sent by the source at {numbers[-1]} nodes",
            uploads[numbers[-1]],
            MOST_UPLOAD,
        ),
        conclude(
            f"time with a relay killed / without, {half} nodes", with_kill / usual, MOST_FOR_A_KILL
        ),
    ]
    if min(sent for _, _, sent in kills) < LEAST_RELAYED:
        print(
            "DOES NOT HOLD: one that was killed had not relayed anything yet, so that its death "
            "proves nothing"
        )
        holds.append(False)
    return all(holds)


def main() -> int:
    """The command line."""
    parser = command_line(__doc__, tiny="4 nodes, 4 MB", runs=3)
    parser.add_argument("--nodes", type=ascending, default="1,2,4,8,16,32", help="numbers of nodes")
    parser.add_argument("--megabytes", type=float, default=96, help="size of the file")
    parser.add_argument("--link", default="48mbit", help="rate of each link, including the store's")
    parser.add_argument(
        "--alone", action="store_true", help="skip pushes and the star, which takes very long"
    )
    return conduct(parser, {"nodes": [1, 4], "megabytes": 4}, experiment)


if __name__ == "__main__":
    sys.exit(main())
