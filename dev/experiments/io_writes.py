#!/usr/bin/env python3
"""Experiment: programs that write one file on a slow disk together, with `eyas io run`, without it,
and as a single writer.

Process p of N writes blocks p, p + N, p + 2N, ... of the granularity. The disk is emulated
(`dev/src/bin/slow-disk`) and passes each write on, as file systems without a write cache do. Slow
programs write less: a cell begins with as many bytes as would take PILOT_S if every block were a
request with a seek, and is repeated with as many as fit CELL_S. Runs are interleaved, so that
machine load affects all alike. The files are read again and checked. With several --nodes, each is
a mount of the disk with an agent of its own, and a coordinator runs.

With --gathered, each process has its own file on ext4 on a block device on the same disk instead:
writes gather in the page cache, and are written to the disk by the kernel, and by `fsync` at the
end.

Needs root and Linux with FUSE. Everything happens in namespaces that are removed at the end.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from coordinated import Agents, eyas, is_coordinated
from decomposition import build, finish, start, together
from io_order import granularity, size
from slow_disk import (
    NEEDED_BY_DEVICE,
    BlockDevice,
    SlowDisk,
    SlowDiskError,
    check_needs,
    isolated,
    run,
)
from table import conclude, show

ALONE, PLAIN, EYAS = "one writer", "plain", "eyas"
PILOT_S, CELL_S = 1.0, 4.0
MOST_BYTES = 256 << 20
GATHERED_BYTES = 48 << 20  # of each file that gathers in the page cache
DD_BYTES = 64 << 10


@dataclass
class Cell:
    """The writing system, the granularity, the number of bytes, and the measured rate."""

    name: str
    block: int
    bytes: int
    rates: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)


class Bench:
    """The disk, and the programs that write to it."""

    def __init__(self, disk: SlowDisk, programs: Path, asked: argparse.Namespace) -> None:
        self.disk = disk
        self.program = programs / "decompose"
        self.asked = asked
        self.numbers = 0

    def once(self, cell: Cell) -> float:
        """Writes a new file. Returns megabytes a second."""
        if cell.name != EYAS:
            return self.write(cell, lambda mount: [])
        with Agents(self.disk.folder, None, self.disk.mounts) as agents:
            return self.write(cell, agents.before)

    def write(self, cell: Cell, before: Callable[[Path], list[object]]) -> float:
        """Writes a new file by programs with these words in front of them."""
        self.numbers += 1
        name = f"file-{self.numbers}"
        words = ["--write", *self.share(cell)]
        mounts = self.disk.mounts if cell.name != ALONE else self.disk.mounts[:1]
        processes = self.asked.processes if cell.name != ALONE else 1
        programs: list[list[object]] = []
        first = 0
        for place, mount in enumerate(mounts):
            last = processes * (place + 1) // len(mounts)
            who = ["--first", first, "--processes", last - first, "--all", processes]
            programs.append([*before(mount), self.program, *words, *who, mount / name])
            first = last
        done = together([programs])
        written = self.disk.source / name
        run(self.program, *self.share(cell), written)
        written.unlink()
        return done.rate

    def share(self, cell: Cell) -> list[object]:
        return ["--bytes", cell.bytes, "--block", cell.block]

    def measure(self, name: str, block: int) -> Cell:
        """Measures a cell, with as many bytes as fit the time."""
        least_s = self.asked.seek_ms / 1e3 + block / self.asked.megabytes_per_second / 1e6
        align = max(block * self.asked.processes, 1 << 20)

        def whole(amount: float) -> int:
            return max(1, min(int(amount), MOST_BYTES) // align) * align

        cell = Cell(name, block, whole(PILOT_S / least_s * block))
        cell.bytes = max(cell.bytes, whole(self.once(cell) * 1e6 * CELL_S))
        return cell


def tell(bench: Bench, asked: argparse.Namespace) -> bool:
    """Measures and prints. Returns whether the goals are reached."""
    names = [ALONE, PLAIN, *([EYAS] if is_coordinated() else [])]
    rows = []
    for block in asked.granularity:
        cells = [bench.measure(name, block) for name in names]
        for _ in range(asked.runs):
            for cell in cells:
                cell.rates.append(bench.once(cell))
        rows.append((block, [cell.rate for cell in cells]))
    show("MB/s", ["granularity", *names], [[size(block), *rates] for block, rates in rows])
    if EYAS not in names:
        print("not measured: eyas, which has no `io run` here")
        return True
    shares = [[size(block), rates[2] / rates[0], rates[2] / rates[1]] for block, rates in rows]
    show("eyas's rate", ["granularity", f"of {ALONE}'s", f"of {PLAIN} calls'"], shares)
    print()
    alone = conclude(
        "one writer's rate, of eyas's", max(rates[0] / rates[2] for _, rates in rows), 1 / 0.8
    )
    plain = conclude(
        "plain calls' rate, of eyas's", max(rates[1] / rates[2] for _, rates in rows), 1 / 0.97
    )
    return alone and plain


def gather(mount: Path, name: str, processes: int) -> float:
    """Writes files through the page cache and syncs them; if `alone`, one process writes as much as
    all together. Returns megabytes a second.
    """
    count = GATHERED_BYTES * processes
    files = 1 if name == ALONE else processes
    before = [eyas(), "io", "run", "--here", "--path", mount, "--"] if name == EYAS else []
    words = [
        "if=/dev/zero",
        f"bs={DD_BYTES}",
        f"count={count // files // DD_BYTES}",
        "conv=fsync",
        "status=none",
    ]
    paths = [mount / f"file-{number}" for number in range(files)]
    began = time.monotonic()
    started = [start([*before, "dd", *words, f"of={path}"]) for path in paths]
    for process in started:
        finish(process)
    elapsed_s = time.monotonic() - began
    for path in paths:
        path.unlink()
    run("sync", "-f", mount)
    return count / elapsed_s / 1e6


def tell_gathered(disk: SlowDisk, asked: argparse.Namespace) -> bool:
    """Measures files whose writes gather in the page cache. Returns whether the goals
    are reached.
    """
    device = BlockDevice(disk, 2 * GATHERED_BYTES * asked.processes, is_written=True)
    device.fill(lambda mount: None)
    names = [ALONE, PLAIN, *([EYAS] if is_coordinated() else [])]
    rates: dict[str, list[float]] = {name: [] for name in names}
    with device:
        device.schedule("mq-deadline")
        for _ in range(asked.runs):
            for name in names:
                rates[name].append(gather(device.mount, name, asked.processes))
    middle = {name: statistics.median(found) for name, found in rates.items()}
    show("MB/s", names, [list(middle.values())])
    return EYAS not in names or conclude(
        "plain calls' rate, of eyas's", middle[PLAIN] / middle[EYAS], 1 / 0.97
    )


def writes(folder: Path, asked: argparse.Namespace) -> int:
    programs = folder / "programs"
    programs.mkdir()
    build(programs, mpi=False)
    # The experiment has an agent of its own, which ends with it.
    os.environ["XDG_RUNTIME_DIR"] = str(folder)
    costs = ["--seek-ms", asked.seek_ms, "--megabytes-per-second", asked.megabytes_per_second]
    disk = SlowDisk(
        folder / "disk", asked.nodes, [*costs, *(["--uncached"] if asked.uncached else [])]
    )
    disk.folder.mkdir()
    with disk:
        holds = (
            tell_gathered(disk, asked)
            if asked.gathered
            else tell(Bench(disk, programs, asked), asked)
        )
        return 0 if holds or asked.tiny else 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", action="store_true", help="quick test; the figures mean nothing")
    parser.add_argument("--runs", type=int, default=3, help="runs of each cell; the median counts")
    parser.add_argument(
        "--granularity",
        type=granularity,
        default="4,16,64,256,1024,4096",
        help="sizes in KiB, separated by commas",
    )
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--nodes", type=int, default=1, help="number of mounts for the processes")
    parser.add_argument("--seek-ms", type=float, default=8, help="duration of a seek")
    parser.add_argument(
        "--megabytes-per-second", type=float, default=150, help="bandwidth of the disk"
    )
    parser.add_argument(
        "--gathered",
        action="store_true",
        help="each process has its own file, through the page cache",
    )
    parser.add_argument("--uncached", action="store_true", help="the mount has no page cache")
    asked = parser.parse_args()
    if asked.tiny:
        asked.runs, asked.granularity, asked.seek_ms = 1, [64 << 10], 1
    try:
        check_needs([("cc", "gcc"), *(NEEDED_BY_DEVICE if asked.gathered else [])])
        return isolated(lambda folder: writes(folder, asked))
    except SlowDiskError as error:
        print(f"io_writes: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
