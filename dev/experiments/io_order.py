#!/usr/bin/env python3
"""Experiment: programs that share a slow disk, with `eyas io run` and without (io-coordination §6).

Experiments 1 to 3 are the paper's, with smaller files. 1: eight processes decompose one file. 2:
two applications of four processes, each with its own file. 3: five applications of 6, 4, 2, 2 and 2
processes with files in the proportion 1.5 : 1 : 0.8 : 0.5 : 0.2. Experiment 4 is not in the paper:
eight processes, each with its own file. Process p of N reads blocks p, p + N, p + 2N, ... of the
granularity, and checks every word.

The disk is emulated (`dev/src/bin/slow-disk`). With several --nodes, the disk has several mounts,
each like a node with its own kernel and its own agent, and a coordinator runs; agents reach each
other over this machine's loopback. Measured side by side: one sequential reader, which shows what
the disk can do; plain calls; MPI-IO with two phases and with data sieving, which need modified
programs; plain calls on ext4 on a block device on the same disk, with mq-deadline and with BFQ; and
plain calls under `eyas io run` with its default policy (`eyas`) or another one (`--peers "eyas
fifo,eyas mlf time"`, where `time` predicts when requests end), or in a mount of `eyas io mount`
(`--peers "eyas mount"`). Slow programs read only part of the
files: a cell begins with as many bytes as would take PILOT_S if every block were a request with a
seek; if it is faster, it is repeated with as many as fit CELL_S. The caches of these files are
dropped before each run; other caches are not.

Needs root, Linux with FUSE, and mpich. Everything happens in namespaces that are removed at the
end.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
import plot
from coordinated import Agents, is_coordinated
from decomposition import Outcome, build, together
from slow_disk import (
    NEEDED_BY_DEVICE,
    BlockDevice,
    SlowDisk,
    SlowDiskError,
    check_needs,
    forget,
    isolated,
    run,
)
from table import conclude, show

NEEDED = [("cc", "gcc")]
NEEDED_BY_MPI = [("mpicc", "libmpich-dev"), ("mpiexec", "mpich")]
READER, PLAIN, TWO_PHASES, SIEVING, EYAS = (
    "one reader",
    "plain",
    "two phases",
    "data sieving",
    "eyas",
)
SCHEDULERS = ["mq-deadline", "bfq"]
PEERS = [PLAIN, TWO_PHASES, SIEVING, *SCHEDULERS, EYAS]
POLICIES = {
    f"{EYAS} {policy}": f'default.policy = "{policy}"\n'
    for policy in ["fifo", "sjf", "wsjf", "wsjf-paper", "mlf", "sojf"]
}
# The paper's variants with TIME, which predict when a request ends.
POLICIES |= {
    f"{name} time": f'{rules}default.predict = "200us"\n' for name, rules in POLICIES.items()
}
MOUNTED = f"{EYAS} mount"
COORDINATED = {EYAS: None, **POLICIES, MOUNTED: None}
# Processes of each application, and megabytes of its file in the paper; --scale makes the files
# smaller.
EXPERIMENTS = {
    1: [(8, 2048)],
    2: [(4, 2048), (4, 2048)],
    3: [(6, 1536), (4, 1024), (2, 819), (2, 512), (2, 205)],
}
EXPERIMENTS[4] = [(1, 256)] * 8
PILOT_S, CELL_S = 2.0, 4.0
ALIGN = 4 << 20  # files are whole blocks of every granularity
READER_BYTES = 1 << 20
EQUAL = 2  # the experiment whose applications are equal


@dataclass
class Application:
    """A file, and the number of processes that decompose it."""

    name: str
    processes: int
    bytes: int


Measured = dict[str, dict[int, list[Outcome]]]  # by who is measured, and by granularity
Commands = Callable[[Application, int, int], list[list[object]]]
Once = Callable[[int, float], Outcome]  # with this granularity, over this share of each file


class Bench:
    """The disk with the files of one experiment, and the programs that are measured on it."""

    def __init__(
        self, disk: SlowDisk, programs: Path, asked: argparse.Namespace, number: int
    ) -> None:
        self.disk = disk
        self.programs = programs
        self.asked = asked
        scaled = [
            (processes, int(megabytes * asked.scale * 1e6))
            for processes, megabytes in EXPERIMENTS[number]
        ]
        sizes = [(processes, max(1, size // ALIGN) * ALIGN) for processes, size in scaled]
        self.applications = [
            Application(f"file-{place}", *size) for place, size in enumerate(sizes)
        ]
        self.schedulers = [name for name in SCHEDULERS if name in asked.peers]
        self.device = BlockDevice(disk, sum(application.bytes for application in self.applications))

    def fill(self) -> None:
        """Writes all files."""

        def write(folder: Path) -> None:
            for application in self.applications:
                words = ["--write", "--bytes", application.bytes, "--block", READER_BYTES]
                run(self.programs / "decompose", *words, folder / application.name)

        write(self.disk.source)
        if self.schedulers:
            self.device.fill(write)

    # ---- what is measured: the programs of an application, for a given number of bytes of its file

    def reader(self, application: Application, size: int, _: int) -> list[list[object]]:
        words = ["--bytes", size, "--block", READER_BYTES]
        return [[self.programs / "decompose", *words, self.disk.mounts[0] / application.name]]

    def plain(self, application: Application, size: int, block: int) -> list[list[object]]:
        return self.on_nodes(application, size, block, lambda mount: [])

    def on_nodes(
        self,
        application: Application,
        size: int,
        block: int,
        before: Callable[[Path], list[object]],
        place_of: Callable[[Path], Path] = lambda mount: mount,
    ) -> list[list[object]]:
        """A program for each node that has processes of the application, with the command that runs
        it there, and the folder in which it finds the files of the node's mount.
        """
        programs = []
        first = 0
        nodes = min(len(self.disk.mounts), application.processes)
        for place, mount in enumerate(self.disk.mounts[:nodes]):
            last = application.processes * (place + 1) // nodes
            words = self.words(application, size, block, first, last - first)
            programs.append(
                [
                    *before(mount),
                    self.programs / "decompose",
                    *words,
                    place_of(mount) / application.name,
                ]
            )
            first = last
        return programs

    def on_device(self, application: Application, size: int, block: int) -> list[list[object]]:
        words = self.words(application, size, block, 0, application.processes)
        return [[self.programs / "decompose", *words, self.device.mount / application.name]]

    def words(
        self, application: Application, size: int, block: int, first: int, count: int
    ) -> list[object]:
        who = ["--first", first, "--processes", count, "--all", application.processes]
        how = ["--contiguous"] if self.asked.split == "contiguous" else []
        return ["--bytes", size, "--block", block, *who, *how]

    def collective(self, application: Application, size: int, block: int) -> list[list[object]]:
        names = [mount / application.name for mount in self.disk.mounts]
        how = ["--contiguous"] if self.asked.split == "contiguous" else []
        words = ["--bytes", size, "--block", block, *how]
        return [
            [
                "mpiexec",
                "-n",
                application.processes,
                self.programs / "decompose_mpi",
                *words,
                *names,
            ]
        ]

    def sieving(self, application: Application, size: int, block: int) -> list[list[object]]:
        [words] = self.collective(application, size, block)
        return [[*words[:4], "--independent", *words[4:]]]

    def folders(self) -> list[Path]:
        """Paths of the files; those of the device exist only while it is mounted."""
        return [*self.disk.mounts, self.device.mount]

    # ---- cells

    def once(self, commands: Commands, block: int, share: float) -> Outcome:
        """Runs all applications at once, over this share of each file."""
        paths = [
            folder / application.name
            for folder in self.folders()
            for application in self.applications
        ]
        forget(path for path in paths if path.exists())
        self.disk.forget()
        align = max(block, READER_BYTES)
        sizes = [
            max(align, int(application.bytes * share) // align * align)
            for application in self.applications
        ]
        before = self.disk.counters()
        outcome = together([commands(*cell, block) for cell in zip(self.applications, sizes)])
        done = {name: count - before[name] for name, count in self.disk.counters().items()}
        return replace(outcome, seeks=done["seeks"], busy_s=done["busy_us"] / 1e6)

    def coordinated(self, rules: str | None, block: int, share: float) -> Outcome:
        """The same under `eyas io run`."""
        with Agents(self.disk.folder, rules, self.disk.mounts) as agents:

            def commands(application: Application, size: int, block: int) -> list[list[object]]:
                return self.on_nodes(application, size, block, agents.before)

            return replace(self.once(commands, block, share), waits=agents.waits())

    def mounted(self, block: int, share: float) -> Outcome:
        """The same in mounts of `eyas io mount`."""
        mounts = self.disk.mounts
        with Agents(self.disk.folder, None, mounts) as agents, contextlib.ExitStack() as opened:
            places = {mount: opened.enter_context(agents.mounted(mount)) for mount in mounts}

            def commands(application: Application, size: int, block: int) -> list[list[object]]:
                return self.on_nodes(application, size, block, lambda mount: [], places.__getitem__)

            return replace(self.once(commands, block, share), waits=agents.waits())

    def cell(self, once: Once, block: int) -> list[Outcome]:
        """Runs a cell repeatedly, over as much of the files as it can read in the time."""
        all_bytes = sum(application.bytes for application in self.applications)
        least_s = 1 / self.asked.iops if self.asked.iops else 0.0
        request_s = max(
            self.asked.seek_ms / 1e3 + block / self.asked.megabytes_per_second / 1e6, least_s
        )
        share = min(1.0, PILOT_S / request_s * block / all_bytes)
        while True:
            found = once(block, share)
            if share == 1.0 or found.elapsed_s >= PILOT_S:
                return [found, *(once(block, share) for _ in range(self.asked.runs - 1))]
            share = min(1.0, share * CELL_S / found.elapsed_s)

    def measure(self) -> Measured:
        """Runs all cells of this experiment. The single reader has no granularity; its cell is at
        0.
        """
        measured: Measured = {}

        def each(name: str, once: Once) -> None:
            if name in self.asked.peers:
                measured[name] = {block: self.cell(once, block) for block in self.asked.granularity}

        measured[READER] = {0: self.alone()}
        each(PLAIN, partial(self.once, self.plain))
        each(TWO_PHASES, partial(self.once, self.collective))
        each(SIEVING, partial(self.once, self.sieving))
        if self.schedulers:
            with self.device:
                for scheduler in self.schedulers:
                    self.device.schedule(scheduler)
                    each(scheduler, partial(self.once, self.on_device))
        if is_coordinated():
            for name, rules in COORDINATED.items():
                coordinated = partial(self.coordinated, rules)
                each(name, self.mounted if name == MOUNTED else coordinated)
        return measured

    def alone(self) -> list[Outcome]:
        """One process reads the first application's file from its beginning to its end."""
        first = self.applications[0]
        outcomes = []
        for _ in range(self.asked.runs):
            forget([self.disk.mounts[0] / first.name])
            self.disk.forget()
            outcomes.append(together([self.reader(first, first.bytes, 0)]))
        return outcomes


def median(outcomes: Sequence[Outcome], what: Callable[[Outcome], float]) -> float:
    return statistics.median(map(what, outcomes))


def rate(outcomes: Sequence[Outcome]) -> float:
    return median(outcomes, lambda found: found.rate)


def longest_queued(found: Outcome) -> float:
    """Longest waiting time of a request under eyas, divided by the mean. For plain calls this is
    not known: most are answered from memory.
    """
    return found.waits.of_mean if found.waits else math.nan


def size(number: int) -> str:
    """A granularity as text."""
    return f"{number >> 20} MiB" if number >= 1 << 20 else f"{number >> 10} KiB"


def tell(number: int, measured: Measured, asked: argparse.Namespace) -> bool:
    """Prints and draws the results. Returns whether eyas reaches its goals."""
    limit = rate(measured.pop(READER)[0])
    rates = {
        name: {block: rate(cell) for block, cell in cells.items()}
        for name, cells in measured.items()
    }
    heads = ["granularity", *measured]

    def table(title: str, what: Callable[[str, int], float]) -> None:
        show(
            title,
            heads,
            [
                [size(block), *(what(name, block) for name in measured)]
                for block in asked.granularity
            ],
        )

    def middle(title: str, what: Callable[[Outcome], float]) -> None:
        table(title, lambda name, block: median(measured[name][block], what))

    print(f"\nexperiment {number}, {asked.nodes} nodes: one sequential reader {limit:.1f} MB/s")
    table("MB/s", lambda name, block: rates[name][block])
    table("of one sequential reader's rate", lambda name, block: rates[name][block] / limit)
    if PLAIN in measured:
        table("of plain calls' rate", lambda name, block: rates[name][block] / rates[PLAIN][block])
    middle("MB read, where the rest was cut off", lambda found: found.bytes / 1e6)
    if len(EXPERIMENTS[number]) > 1:
        middle(
            "between the first and the last application's end, of the time",
            lambda found: found.apart,
        )
    middle("longest wait of a call, s", lambda found: found.longest_s)
    middle("longest wait of a call, of the mean", lambda found: found.longest_s / found.mean_wait_s)
    middle(
        "MB read between two seeks of the disk",
        lambda found: found.bytes / 1e6 / max(found.seeks, 1),
    )
    middle("disk busy, of the time", lambda found: found.busy_s / found.elapsed_s)
    coordinated = [name for name in measured if name in COORDINATED]
    if coordinated:
        waits = [
            [median(measured[name][block], longest_queued) for name in coordinated]
            for block in asked.granularity
        ]
        rows = [[size(block), *each] for block, each in zip(asked.granularity, waits)]
        show(
            "longest wait of a request in eyas's queue, of the mean",
            ["granularity", *coordinated],
            rows,
        )
    if asked.plots:
        asked.plots.mkdir(parents=True, exist_ok=True)
        places = [(block, size(block)) for block in asked.granularity]
        drawn = {name: list(each.values()) for name, each in rates.items()}
        path = asked.plots / f"experiment-{number}-{asked.nodes}-nodes.svg"
        drawn[READER] = [limit] * len(places)
        plot.lines(path, f"Experiment {number}, {asked.nodes} nodes", "MB/s", places, drawn)
        print(f"\nplot: {path}")
    print()
    if not coordinated:
        asked_for = not set(COORDINATED).isdisjoint(asked.peers)
        print("not measured: eyas" + (", which has no `io run` here" if asked_for else ""))
    return all(
        [
            reaches_goals(name, number, measured[name], rates.get(PLAIN), limit)
            for name in coordinated
        ]
    )


def reaches_goals(
    name: str,
    number: int,
    cells: dict[int, list[Outcome]],
    plain: dict[int, float] | None,
    limit: float,
) -> bool:
    """Prints which goals a column of eyas reaches. Returns whether it reaches all."""
    rates = {block: rate(cell) for block, cell in cells.items()}
    goals = [
        conclude(f"one sequential reader's rate, of {name}'s", limit / min(rates.values()), 1 / 0.8)
    ]
    if plain:
        worst = max(plain[block] / rates[block] for block in rates)
        goals.append(conclude(f"plain calls' rate, of {name}'s", worst, 1 / 0.97))
    if number == EQUAL:
        apart = max(median(cell, lambda found: found.apart) for cell in cells.values())
        goals.append(
            conclude(f"between the equal applications' ends under {name}, of the time", apart, 0.05)
        )
    longest = max(median(cell, longest_queued) for cell in cells.values())
    goals.append(conclude(f"longest wait of a request under {name}, of the mean", longest, 3))
    return all(goals)


def experiments(folder: Path, asked: argparse.Namespace) -> int:
    """Runs all requested experiments, each on its own disk. Returns the exit code."""
    programs = folder / "programs"
    programs.mkdir()
    build(programs, uses_mpi(asked))
    costs = [
        "--seek-ms",
        asked.seek_ms,
        "--megabytes-per-second",
        asked.megabytes_per_second,
        "--iops",
        asked.iops,
    ]
    costs += ["--channels", asked.channels, "--memory-megabytes", asked.memory_megabytes]
    costs += ["--memory-megabytes-per-second", asked.memory_megabytes_per_second]
    holds = True
    for number in asked.experiment:
        disk = SlowDisk(
            folder / f"disk-{number}", asked.nodes, [*costs, "--latency-us", asked.latency_us]
        )
        disk.folder.mkdir()
        with disk:
            bench = Bench(disk, programs, asked, number)
            bench.fill()
            holds &= tell(number, bench.measure(), asked)
    return 0 if holds or asked.tiny else 1


def uses_mpi(asked: argparse.Namespace) -> bool:
    return not {TWO_PHASES, SIEVING}.isdisjoint(asked.peers)


def needed(asked: argparse.Namespace) -> list[tuple[str, str]]:
    """Programs that the measured systems need, with their packages."""
    by_device = [] if set(SCHEDULERS).isdisjoint(asked.peers) else NEEDED_BY_DEVICE
    return [*NEEDED, *by_device, *(NEEDED_BY_MPI if uses_mpi(asked) else [])]


def granularity(text: str) -> list[int]:
    """Parses sizes in KiB, separated by commas. Returns them ascending, in bytes."""
    return sorted(int(number) << 10 for number in text.split(","))


def peers(text: str) -> list[str]:
    """Parses names of columns, separated by commas."""
    names = text.split(",")
    known = [*PEERS, *POLICIES, MOUNTED]
    if unknown := set(names).difference(known):
        raise argparse.ArgumentTypeError(
            f"{', '.join(sorted(unknown))}: not among {', '.join(known)}"
        )
    return names


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tiny", action="store_true", help="quick test with small files; the figures mean nothing"
    )
    parser.add_argument("--runs", type=int, default=3, help="runs of each cell; the median counts")
    numbers = sorted(EXPERIMENTS)
    parser.add_argument(
        "--experiment",
        type=int,
        action="append",
        choices=numbers,
        help="numbers of the experiments",
    )
    parser.add_argument(
        "--granularity",
        type=granularity,
        default="4,16,64,256,1024,4096",
        help="sizes in KiB, separated by commas",
    )
    parser.add_argument(
        "--scale", type=float, default=0.125, help="scale of the paper's file sizes (from 2 GB)"
    )
    parser.add_argument(
        "--nodes", type=int, default=1, help="number of mounts for an application's processes"
    )
    splits = ["interleaved", "contiguous"]
    parser.add_argument("--split", choices=splits, default=splits[0], help="blocks of a process")
    parser.add_argument("--peers", type=peers, default=PEERS, help="columns, separated by commas")
    parser.add_argument("--seek-ms", type=float, default=8, help="duration of a seek")
    parser.add_argument(
        "--megabytes-per-second", type=float, default=150, help="bandwidth of the disk"
    )
    parser.add_argument(
        "--iops", type=float, default=0, help="requests a second of the disk; 0: unlimited"
    )
    parser.add_argument("--channels", type=int, default=1, help="requests served at a time")
    parser.add_argument(
        "--memory-megabytes", type=int, default=0, help="memory of the disk's server"
    )
    rate = "of what is in memory; 0: as fast as it can"
    parser.add_argument("--memory-megabytes-per-second", type=float, default=1000, help=rate)
    parser.add_argument("--latency-us", type=int, default=0, help="latency between nodes and disk")
    parser.add_argument("--plots", type=Path, help="folder for the plots")
    asked = parser.parse_args()
    asked.experiment = asked.experiment or numbers[:3]
    if asked.tiny:
        asked.runs, asked.scale, asked.granularity, asked.seek_ms = 1, 0.01, [64 << 10], 1
    try:
        check_needs(needed(asked))
        return isolated(lambda folder: experiments(folder, asked))
    except SlowDiskError as error:
        print(f"io_experiment: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
