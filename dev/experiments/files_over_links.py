#!/usr/bin/env python3
"""Experiment: the distributed file system over shaped links, compared with plain copies; and the
loss of a node.

    dev/experiments/files_over_links.py [--tiny] [--nodes 8] [--runs 3] [--megabytes 128]
                                        [--kept-megabytes 1000] [--link 100mbit]
                                        [--only copies|loss]

A client in `head`, which stores no files, puts a file with three replicas. For comparison, the file
is copied over sockets to three nodes in a chain, each of which writes it to its disk and passes it
on at the same time; this takes the time of one link, less than `cp` and two network copies one
after the other. Then one client gets the file, and clients on all nodes get it at once, compared
with a plain copy from one node to another.

Then all processes of a node are killed while a client reads files in a loop, each with its own
command; none may fail. Replication is complete when the remaining nodes have three replicas of all
chunks: they report it, and the last replica's time stamp in a store shows when. The time is counted
from when the nodes receive a tenth of their links' capacity, which is when they have agreed that
the node is gone. The bytes that were lost and replicated in that time are compared with the
capacity of all links, alone and together with the reader's; and the bytes given to one node with
the mean. Chunks have 1 MiB, so that there are many.

Prints medians and which goals hold; exits with 1 if one does not. Needs what
`dev/testbed/testbed.py check` lists, and eyas: a release build, or EYAS_BIN.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from cluster import Cluster, eyas
from experiment import ask_nodes, command_line, conduct
from links import bits_per_s
from table import conclude, show
from testbed import Testbed, TestbedError

COPY, COPY_PORT = Path(__file__).resolve().parents[1] / "testbed" / "plain_copy.py", 8100
REPLICAS = 3
MOST_OF_PLAIN = 1 / 0.8
LEAST_OF_LINKS = 0.8
FILES = 128  # that are read while a node dies
PAUSE_S = 0.5  # between two reads, so that they leave links to the repair
LOOK_EVERY_S = 0.1
REPAIR_S = 180
BEGUN = 0.1  # of what links carry


def plain(bed: Testbed, giver: str, takers: list[str], source: Path) -> float:
    """Copies a file from a node to others in a chain. Returns seconds."""
    taking = []
    try:
        for number, node in enumerate(takers):
            target = bed.folder / "nodes" / node / "copy"
            words = [
                sys.executable,
                COPY,
                "take",
                COPY_PORT,
                target,
                *takers[number + 1 : number + 2],
            ]
            taking.append(bed.start(node, words, stdout=subprocess.PIPE, log="copies"))
        for process in taking:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                raise TestbedError(f"a plain copy has not started; see {bed.folder}/log/copies")
        began = time.monotonic()
        bed.check(giver, [sys.executable, COPY, "give", COPY_PORT, source, takers[0]], REPAIR_S)
        return time.monotonic() - began
    finally:
        for process in taking:
            process.kill()
            process.wait()


def timed(cluster: Cluster, node: str, *words: object) -> float:
    """Runs `eyas dfs` in a node. Returns seconds."""
    began = time.monotonic()
    cluster.bed.check(node, cluster.words(eyas(), "dfs", *words), REPAIR_S)
    return time.monotonic() - began


def copies(asked: argparse.Namespace, bed: Testbed, nodes: list[str]) -> list[bool]:
    """Puts and gets a file. Returns whether the goals hold."""
    source = bed.folder / "file"
    source.write_bytes(os.urandom(int(asked.megabytes * 1e6)))
    target = {node: bed.folder / "nodes" / node / "got" for node in ["head", *nodes]}
    chain, put, one, got, each, all_got = [], [], [], [], [], []
    with Cluster(bed, nodes, files=True) as cluster:
        for run in range(asked.runs):
            chain.append(plain(bed, "head", nodes[:REPLICAS], source))
            put.append(timed(cluster, "head", "put", "--format", "fixed:1", source, f"/file-{run}"))
            one.append(plain(bed, nodes[0], ["head"], source))
            got.append(timed(cluster, "head", "get", "--force", f"/file-{run}", target["head"]))
            if target["head"].read_bytes() != source.read_bytes():
                raise TestbedError("what was got is not what was put")
            began = time.monotonic()
            words = [eyas(), "dfs", "get", "--force", f"/file-{run}"]
            clients = [
                bed.start(node, cluster.words(*words, target[node]), log="gets") for node in nodes
            ]
            # A list, so that the loop waits for all.
            if any([client.wait() for client in clients]):
                raise TestbedError(f"a client has not got the file; see {bed.folder}/log/gets")
            all_got.append(time.monotonic() - began)
            timed(cluster, "head", "rm", f"/file-{run}")
    least_s = asked.megabytes * 8e6 / bits_per_s(asked.link)
    rows = []
    for what, ours, beside in [
        (f"put, {REPLICAS} replicas; a chain of plain copies", put, chain),
        ("get by one; a plain copy", got, one),
        (f"get by {len(nodes)} at once; a plain copy to one", all_got, one),
    ]:
        ratio = statistics.median(our / other for our, other in zip(ours, beside))
        rows.append([what, statistics.median(ours), statistics.median(beside), least_s, ratio])
    title = f"{asked.megabytes:g} MB over links of {asked.link}, medians of {asked.runs} runs"
    show(title, ["", "s", "plain, s", "the link's time, s", "of plain"], rows)
    return [
        conclude(f"{row[0]}: time of the plain one's", float(row[4]), MOST_OF_PLAIN)
        for row in rows[:2]
    ]


class Reader(threading.Thread):
    """Reads all files in a loop until it is stopped."""

    def __init__(self, cluster: Cluster) -> None:
        """A reader of this cluster's files."""
        super().__init__()
        self.cluster = cluster
        self.times_s: list[float] = []
        self.failed: list[str] = []
        self.stopped = threading.Event()

    def run(self) -> None:
        """Reads until it is stopped."""
        while not self.stopped.wait(PAUSE_S):
            try:
                self.times_s.append(
                    timed(self.cluster, "head", "get", "--force", self.next(), "/dev/null")
                )
            except TestbedError as error:
                self.failed.append(str(error))

    def next(self) -> str:
        """The name of the next file."""
        return f"/files/{len(self.times_s) % FILES:03}"


def chunks_by_address(cluster: Cluster) -> dict[str, tuple[int, int]]:
    """Chunks and their bytes of each node, by its address."""
    nodes = cluster.ask("dfs", "du")["usage"]["nodes"]
    return {
        node["address"].split(":")[0]: (node["chunks"] or 0, node["bytes"] or 0) for node in nodes
    }


def last_stored_s(bed: Testbed, nodes: list[str]) -> float:
    """Time at which the last object arrived in one of their stores, by the machine's clock."""
    stores = (
        store for node in nodes for store in (bed.folder / "nodes" / node).glob("eyas-*/store")
    )
    return max(
        file.stat().st_ctime for store in stores for file in store.rglob("*") if file.is_file()
    )


def loss(
    asked: argparse.Namespace, bed: Testbed, nodes: list[str]
) -> tuple[list[float], list[bool]]:
    """Kills a node. Returns the results, and whether all files stayed readable and were replicated
    in time.
    """
    source = bed.folder / "source"
    source.write_bytes(os.urandom(int(asked.kept_megabytes * 1e6 / FILES)))
    address = {
        line.split()[1]: line.split()[0] for line in (bed.folder / "hosts").read_text().splitlines()
    }
    with Cluster(bed, nodes, files=True) as cluster:
        put = [eyas(), "dfs", "put", "--format", "fixed:1", "--chunk-size", "1MiB", source]
        for first in range(0, FILES, len(nodes)):
            places = zip(nodes, range(first, FILES))
            putting = [
                bed.start(node, cluster.words(*put, f"/files/{place:03}"), log="puts")
                for node, place in places
            ]
            if any([process.wait() for process in putting]):
                raise TestbedError(f"a file was not put; see {bed.folder}/log/puts")
        before = chunks_by_address(cluster)
        all_chunks = sum(chunks for chunks, _ in before.values())
        reader = Reader(cluster)
        reader.start()
        dead, left = nodes[-1], nodes[:-1]
        links_bytes_per_s = len(left) * bits_per_s(asked.link) / 8
        killed_s = time.time()
        bed.kill(dead)
        received, came_bytes = sum(map(bed.received_bytes, left)), 0
        while came_bytes < BEGUN * links_bytes_per_s * LOOK_EVERY_S:
            began_s = time.time()
            time.sleep(LOOK_EVERY_S)
            now_received = sum(map(bed.received_bytes, left))
            received, came_bytes = now_received, now_received - received
        read_bytes = bed.received_bytes("head")
        now = chunks_by_address(cluster)
        while sum(chunks for chunks, _ in now.values()) < all_chunks:
            if time.time() > began_s + REPAIR_S:
                raise TestbedError(f"replication does not become whole again: {now} after {before}")
            time.sleep(LOOK_EVERY_S)
            now = chunks_by_address(cluster)
        took_s, watched_s = last_stored_s(bed, left) - began_s, time.time() - began_s
        read_bytes = bed.received_bytes("head") - read_bytes
        reader.stopped.set()
        reader.join()
        cluster.ask("dfs", "verify", "/files")
    lost_bytes = before[address[dead]][1]
    gained = [now[address[node]][1] - before[address[node]][1] for node in left]
    share, read_share = (
        lost_bytes / took_s / links_bytes_per_s,
        read_bytes / watched_s / links_bytes_per_s,
    )
    most = max(gained) / statistics.fmean(gained)
    reads = [len(reader.times_s), statistics.median(reader.times_s), max(reader.times_s)]
    row = [lost_bytes / 1e6, began_s - killed_s, took_s, share, share + read_share, most, *reads]
    if reader.failed:
        print(f"DOES NOT HOLD: {len(reader.failed)} reads failed, the first: {reader.failed[0]}")
    return row, [not reader.failed]


def experiment(asked: argparse.Namespace, bed: Testbed) -> bool:
    """Runs all of it. Returns whether the goals hold."""
    bed.up(asked.nodes + asked.runs - 1, asked.link, asked.link)
    nodes = bed.nodes()[2:]
    holds = []
    if asked.only != "loss":
        holds += copies(asked, bed, nodes[: asked.nodes])
    if asked.only != "copies":
        losses = [
            loss(asked, bed, nodes[: len(nodes) - run][-asked.nodes :]) for run in range(asked.runs)
        ]
        heads = [
            "lost, MB",
            "s until it begins",
            "s until whole",
            "of the links",
            "with reads",
            "most of one / mean",
        ]
        size = f"{asked.kept_megabytes:g} MB in {REPLICAS} replicas"
        title = f"one of {asked.nodes} nodes dies; {size}, links of {asked.link}"
        show(title, [*heads, "reads", "usual, s", "longest, s"], [row for row, _ in losses])
        holds += [hold for _, all_hold in losses for hold in all_hold]
        share = statistics.median(row[4] for row, _ in losses)
        what = "what links carry / what was repaired and read until all was whole"
        holds.append(conclude(what, 1 / share, 1 / LEAST_OF_LINKS))
    return all(holds)


def main() -> int:
    """The command line."""
    parser = command_line(__doc__, tiny="4 nodes, 8 MB and 32 MB", runs=3)
    ask_nodes(parser)
    parser.add_argument(
        "--megabytes", type=float, default=128, help="size of the file that is copied"
    )
    parser.add_argument(
        "--kept-megabytes", type=float, default=1000, help="size of all files when a node is killed"
    )
    parser.add_argument("--link", default="100mbit", help="rate of each link")
    parser.add_argument("--only", choices=["copies", "loss"], help="run only this part")
    return conduct(parser, {"nodes": 4, "megabytes": 8, "kept_megabytes": 32}, experiment)


if __name__ == "__main__":
    sys.exit(main())
