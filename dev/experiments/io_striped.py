#!/usr/bin/env python3
"""Experiment: two calls to files that are striped over two servers (io-coordination §5.3, figure
5).

While a third call keeps both servers busy, a call of 15 MiB arrives, and after it one of 10 MiB.
Stripes have 5 MiB, so the larger call has 10 MiB on the first server and 5 on the second, the
smaller one 5 on each. Prints when each call ends after the third one, in stripes: the time in which
a server reads one. In the paper both calls take 5 stripes of time in all (25 of its units) if the
servers do not consider whole calls, and 4 (20 units) with shortest outstanding job first.

The disk is emulated: two channels, over which files are striped. *plain* has no `eyas io run`; the
others have it, with the policies *fifo* and *sojf*. The calls bypass the page cache (`O_DIRECT`),
because the kernel reads ahead too little at a time to use both servers. Needs root and Linux with
FUSE.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from coordinated import Agents, is_coordinated
from slow_disk import SlowDisk, SlowDiskError, check_needs, isolated
from table import conclude, show

SERVERS = 2
PLAIN = "plain"
POLICIES = ["fifo", "sojf"]
UNITS = [2, 3, 2]  # of the call before, and of the two calls
# Makes one call when it is told to, and prints when the call ended.
CALL = """
import mmap, os, sys, time
path, size = sys.argv[1], int(sys.argv[2])
file = os.open(path, os.O_RDONLY | os.O_DIRECT)
room = mmap.mmap(-1, size)
print("ready", flush=True)
sys.stdin.readline()
assert os.preadv(file, [room], 0) == size
print(time.monotonic())
"""


class Bench:
    """The disk with a file for each call."""

    def __init__(self, disk: SlowDisk, asked: argparse.Namespace) -> None:
        self.disk = disk
        self.stripe = int(asked.stripe_mib * (1 << 20))
        self.unit_s = self.stripe / asked.megabytes_per_second / 1e6
        for place, units in enumerate(UNITS):
            (disk.source / f"file-{place}").write_bytes(bytes(units * self.stripe))

    def once(self, before: list[object]) -> list[float]:
        """Ends of the two calls after that of the call before them, in stripes of time."""
        programs = []
        for place, units in enumerate(UNITS):
            file = self.disk.mounts[0] / f"file-{place}"
            words = [*before, sys.executable, "-c", CALL, file, units * self.stripe]
            programs.append(
                subprocess.Popen(
                    [str(word) for word in words],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        for program in programs:
            assert program.stdout
            if program.stdout.readline() != "ready\n":
                raise SlowDiskError("a program does not start")
        for program in programs:
            assert program.stdin
            program.stdin.write("\n")
            program.stdin.flush()
            # The call before is still being served when the two calls arrive, one after the other.
            time.sleep(self.unit_s / 8)
        said = [program.communicate()[0] for program in programs]
        if any(program.returncode for program in programs):
            raise SlowDiskError("a program failed")
        first, *ends = map(float, said)
        return [(end - first) / self.unit_s for end in ends]


def measure(folder: Path, asked: argparse.Namespace) -> int:
    """Measures all ways by turns. Returns the exit code."""
    options = ["--channels", SERVERS, "--stripe-bytes", int(asked.stripe_mib * (1 << 20))]
    options += ["--megabytes-per-second", asked.megabytes_per_second, "--seek-ms", 1]
    (folder / "disk").mkdir()
    with SlowDisk(folder / "disk", 1, options) as disk:
        bench = Bench(disk, asked)
        found: dict[str, list[list[float]]] = {PLAIN: []}
        agents = {}
        if is_coordinated():
            for policy in POLICIES:
                rules = f'default.policy = "{policy}"\ndefault.always = true\n'
                stripe = f"{SERVERS}, {asked.stripe_mib:g}MiB"
                rules += f'default.concurrency = 1\ndefault.stripe = "{stripe}"\n'
                agents[policy] = Agents(folder, rules, disk.mounts)
                found[policy] = []
        for _ in range(asked.runs):
            found[PLAIN].append(bench.once([]))
            for policy, agent in agents.items():
                with agent:
                    found[policy].append(bench.once(agent.before(disk.mounts[0])))
    middle = {
        name: [statistics.median(run[call] for run in runs) for call in range(2)]
        for name, runs in found.items()
    }
    rows = [[name, *ends, sum(ends)] for name, ends in middle.items()]
    show("ends of the calls, stripes of time", ["", "15 MiB", "10 MiB", "together"], rows)
    if not agents:
        print("not measured: eyas, which has no `io run` here")
        return 0
    print()
    holds = conclude("both calls with sojf, stripes of time", sum(middle["sojf"]), 4.4)
    return 0 if holds or asked.tiny else 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tiny", action="store_true", help="one quick run; its figures mean nothing"
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--stripe-mib", type=float, default=5)
    parser.add_argument("--megabytes-per-second", type=float, default=20, help="of each server")
    asked = parser.parse_args()
    if asked.tiny:
        asked.runs, asked.stripe_mib = 1, 1
    check_needs()
    return isolated(lambda folder: measure(folder, asked))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SlowDiskError as error:
        sys.exit(f"error: {error}")
