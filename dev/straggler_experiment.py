#!/usr/bin/env python3
"""A straggler among four nodes: `eyas map` with elastic blocks beside static ones and others (elastic-blocks §3).

Four executors on this machine, each held by a cgroup to a share of a processor, one of them to a fifth of what the others
have. Each runs a program that computes for every line, over the blocks of one file. No schedule can end before all speeds
together have done the work; the bound that is compared with is that time, plus one chunk on the slowest. Speeds are
measured: each executor works through a file alone.

Needs root and cgroups of version 1 with the processor's controller.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "testbed"))
from cluster import eyas
from table import conclude, show

CPU = Path("/sys/fs/cgroup/cpu")
PERIOD_US = 20_000
START_S = 60
POLICIES = {
    "static": ["--policy", "static"],
    "multiwave": ["--policy", "multiwave"],
    "io-aware": ["--policy", "io-aware"],
    "lean, alpha 0.5": ["--policy", "lean", "--alpha", "0.5"],
    "lean, alpha auto": ["--policy", "lean", "--alpha", "auto"],
}
# What a node computes for a line: nothing of use, in a time that is proportional to what it reads.
PROGRAM = ["awk", "{ for (i = 0; i < 40; i++) sum += length($0) % (i + 1) } END { print sum }"]


class Group:
    """A cgroup that has a share of one processor."""

    def __init__(self, name: str, share: float) -> None:
        self.folder = CPU / f"eyas-{os.getpid()}-{name}"
        self.folder.mkdir()
        (self.folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (self.folder / "cpu.cfs_quota_us").write_text(str(int(PERIOD_US * share)))

    def enter(self) -> None:
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self) -> None:
        deadline = time.monotonic() + START_S
        while (self.folder / "cgroup.procs").read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.folder.rmdir()


class Cluster:
    """A dispatcher, and an executor of one slot in each group."""

    def __init__(self, folder: Path, shares: list[float]) -> None:
        self.environment = {**os.environ, "EYAS_HOME": str(folder / "home"), "EYAS_CLUSTER": "straggler"}
        self.processes: list[subprocess.Popen[bytes]] = []
        self.groups: list[Group] = []
        try:
            self.start(["dispatcher", "--listen", "127.0.0.1:0"], None, folder)
            for place, share in enumerate(shares):
                group = Group(str(place), share)
                self.groups.append(group)
                name = f"n{place}"
                words = ["executor", "--dfs", "--slots", "1", "--name", name, "--folder", str(folder / name)]
                self.start(words, group, folder)
            self.wait(len(shares))
        except BaseException:
            self.end()
            raise

    def start(self, words: list[str], group: Group | None, folder: Path) -> None:
        enter = group.enter if group else None
        with open(folder / "log", "ab") as log:
            process = subprocess.Popen(
                [eyas(), "start", *words, "--owned"],
                env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, preexec_fn=enter,
            )  # fmt: skip
        self.processes.append(process)
        if group is None and process.stdout is not None:
            process.stdout.readline()

    def wait(self, nodes: int) -> None:
        deadline = time.monotonic() + START_S
        while True:
            done = subprocess.run([eyas(), "--json", "dfs", "du"], env=self.environment, capture_output=True)
            if done.returncode == 0:
                joined = [node for node in json.loads(done.stdout)["usage"]["nodes"] if node["is_member"]]
                if len(joined) == nodes:
                    return
            if time.monotonic() > deadline:
                raise RuntimeError(f"the cluster does not come up: {done.stderr.decode()}")
            time.sleep(0.2)

    def run(self, *words: str) -> float:
        began = time.monotonic()
        subprocess.run([eyas(), *words], env=self.environment, check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - began

    def end(self) -> None:
        for process in reversed(self.processes):
            if process.stdin is not None:
                process.stdin.close()
            process.wait(START_S)
        for group in self.groups:
            group.remove()


def makespan(shares: list[float], text: Path, chunk: str, words: list[str], runs: int) -> float:
    """Median of how long the program takes over the file on executors with these shares, in a cluster of their own."""
    with tempfile.TemporaryDirectory(prefix="eyas-straggler-") as folder:
        cluster = Cluster(Path(folder), shares)
        try:
            cluster.run("dfs", "put", str(text), "/text", "--chunk-size", chunk)
            times = [cluster.run("map", "/text", *words, "--", *PROGRAM) for _ in range(runs)]
        finally:
            cluster.end()
        return statistics.median(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="figures without meaning: a small file, once")
    parser.add_argument("--runs", type=int, default=3, help="runs of each, of which the median counts")
    parser.add_argument("--lines", type=int, default=1_000_000, help="of the file")
    parser.add_argument("--share", type=float, default=0.4, help="of a processor, for all but the straggler")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    if asked.tiny:
        asked.lines, asked.runs = 50_000, 1
    chunks = 64
    with tempfile.TemporaryDirectory(prefix="eyas-straggler-") as folder:
        text = Path(folder) / "text"
        text.write_text("".join(f"{number} some words that are counted by nobody\n" for number in range(asked.lines)))
        chunk = str(max(1024, text.stat().st_size // chunks))
        full, straggler = asked.share, asked.share / 5
        alone = {share: makespan([share], text, chunk, [], 1) for share in (full, straggler)}
        print(f"alone: {alone[full]:.1f} s with {full:g} of a processor, {alone[straggler]:.1f} s with {straggler:g}")
        speeds = 3 / alone[full] + 1 / alone[straggler]
        bound = 1 / speeds + alone[straggler] / chunks
        idle = {}
        rows = []
        for name, words in POLICIES.items():
            equal = makespan([full] * 4, text, chunk, words, asked.runs)
            slow = makespan([full] * 3 + [straggler], text, chunk, words, asked.runs)
            idle[name] = equal
            rows.append([name, slow, slow / bound, equal, equal / (alone[full] / 4)])
        show("makespans, s", ["blocks", "one straggler", "of the bound", "none", "of the bound"], rows)
    lean = dict((row[0], row) for row in rows)["lean, alpha auto"]
    holds = conclude("lean with a straggler, of the bound", lean[2], 1.10)
    return 0 if conclude("lean without one, of static's time", lean[3] / idle["static"], 1.0) and holds or asked.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
