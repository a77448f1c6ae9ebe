#!/usr/bin/env python3
"""Experiment: throughput of reads, and of reads and writes, on 1 to 64 emulated nodes
(data-diffusion §4.2 and §4.3, figures 7 to 14).

    dev/experiments/data_throughput.py [--tiny] [--figures 7,12,13,14] [--nodes 1,2,4,8,16,32,64]
                                       [--sizes 1,1000,...] [--rounds 1] [--scale 100] [--again]

Nodes with a disk and a link of their own, and shared storage of eight servers, have the rates of
the paper divided by --scale (`dev/testbed/scaled.py`); so have the sizes of files. All throughputs
and sizes that are printed are multiplied by it, so that they stand beside those of the paper. Bytes
read and bytes written count.

Figure 7 stands for 7 to 11: programs on the nodes read the local disks or the storage, without
eyas. In the other figures, each task is `dd`:

    fa          first-available; the task reads and writes the shared path
    fa-wrapper  the same in a folder of its own on the storage, with a link to its input, as the
                paper's wrapper has it
    fa-sandbox  first-available; eyas copies the input to the node, and makes a sandbox there
    fca-0       first-cache-available, empty caches; fca-100: each file is on one node
    mcu-0       max-compute-util, empty caches; mcu-100: each file is on one node
    mch-100     max-cache-hit; cost-100: eyas's own policy

Tasks of all but `fa` and `fa-wrapper` write to the node's disk; outputs stay there, but for
`fa-sandbox`, which copies them to the storage. Each measured point is stored in --points, and is
not measured again unless --again says so. Prints tables, writes pictures beside the points, and
exits with 1 if max-compute-util with full caches misses the share of the ideal that the paper's
has.

Needs what `dev/testbed/testbed.py check` lists, the programs `slow-disk` and eyas (a release build,
or SLOW_DISK_BIN and EYAS_BIN).
"""

from __future__ import annotations

import argparse
import concurrent.futures
import itertools
import json
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
import plot
import scaled
from cluster import PROJECT, Cluster, eyas
from experiment import ascending, command_line, conduct
from points import Points, Values
from scaled import Machines
from table import conclude, show
from testbed import Testbed

READER = PROJECT / "dev" / "testbed" / "reader.py"
NODES = "1,2,4,8,16,32,64"
SIZES = ",".join(str(10**power) for power in (0, 3, 4, 5, 6, 7, 8, 9))
LARGE = 10**8  # figures 12 and 13
WAYS = ("fa", "fca-0", "fca-100", "mcu-0", "mcu-100", "mch-100", "cost-100")
SANDBOXES = ("fa", "fa-wrapper", "fa-sandbox", "mcu-0")
MODES = ("read", "both")
NAMES = {"read": "read", "both": "read and write"}
# The paper's share of the ideal, with max-compute-util and full caches.
GOALS = {"read": 0.94, "both": 0.96}
NEWEST = itertools.count(1)
# Files on each node whose caches are full, and the seconds that a point should take with empty and
# with full caches: with those, what the first tasks do counts less.
FILES, POINT_S, WARM_S, PUSHES = 4, 15, 60, 8
WRAPPER = (
    'd=$1/$2; mkdir "$d" && ln -s "$3" "$d/in" && dd if="$d/in" of="$4" bs=32k status=none; '
    'code=$?; rm "$d/in" && rmdir "$d" && exit $code'
)


@dataclass(frozen=True)
class Setting:
    """A way to run tasks, on so many nodes, with files of this size at full scale."""

    way: str
    mode: str
    nodes: int
    size: int

    def __str__(self) -> str:
        return f"{self.way} {self.mode} {self.nodes} nodes {self.size} B"

    @property
    def policy(self) -> str:
        """The placement policy."""
        return self.way.split("-")[0]

    @property
    def is_warm(self) -> bool:
        """Whether the caches of nodes have all files from the beginning."""
        return self.way.endswith("-100")

    @property
    def is_shared(self) -> bool:
        """Whether tasks read and write paths of the shared storage themselves."""
        return self.way in ("fa", "fa-wrapper")


def readers(asked: argparse.Namespace, bed: Testbed, setting: Setting) -> Values:
    """Throughput of programs that read a node's disk or the storage, one on each node."""
    length = asked.machines.bytes(setting.size)
    names = bed.nodes()[2 : 2 + setting.nodes]
    running = []
    for name in names:
        folder = bed.mount if setting.way == "storage" else bed.folder / "nodes" / name
        # The same folder below the mount.
        source = bed.shared if setting.way == "storage" else folder
        files = [f"{name}-{next(NEWEST)}" for _ in range(2)]
        for file in files:
            (source / file).write_bytes(random.randbytes(length))
        words = ["--copies", folder] if setting.mode == "both" else []
        command = [sys.executable, "-S", READER, *words, *(folder / file for file in files)]
        running.append((bed.hold(name, command, "readers.log"), [source / file for file in files]))
    for process, _ in running:
        assert process.stdout is not None
        process.stdout.readline()
    # The first requests of all readers arrive at once; they have spread after some seconds.
    begin = time.monotonic() + asked.seconds / 4
    for process, _ in running:
        assert process.stdin is not None
        process.stdin.write(f"{begin} {begin + asked.seconds}\n".encode())
        process.stdin.close()
    counted = 0
    for process, files in running:
        assert process.stdout is not None
        counted += int(process.stdout.read())
        process.wait()
        for file in files:
            file.unlink()
    # A file of a byte is not smaller at any scale.
    return {"Mb/s": counted / length * setting.size * 8 / asked.seconds / 1e6}


def command_of(setting: Setting, bed: Testbed, folder: str, number: int, path: Path) -> list[str]:
    """The words of a task."""
    written = bed.mount / f"{folder}-out" / str(number)
    target = "/dev/null" if setting.mode == "read" else str(written)
    if setting.way == "fa-wrapper":
        scratch = bed.mount / f"{folder}-scratch"
        return ["sh", "-c", WRAPPER, "sh", str(scratch), str(number), str(path), target]
    if not setting.is_shared and setting.mode == "both":
        target = "out"
    return ["dd", f"if={path}", f"of={target}", "bs=32k", "status=none"]


def tasks(
    setting: Setting, bed: Testbed, folder: str, paths: Sequence[Path], count: int
) -> Iterator[str]:
    """Tasks as lines of a job file. Each file is read as often as any other, in a random order."""
    order = [paths[number % len(paths)] for number in range(count)]
    random.Random(1).shuffle(order)
    for number, path in enumerate(order):
        written = str(bed.mount / f"{folder}-out" / str(number))
        # First-available keeps nothing on nodes.
        kept: dict[str, object] = {"to": written} if setting.policy == "fa" else {"keep": True}
        words = command_of(setting, bed, folder, number, path)
        task: dict[str, object] = {"command": words}
        if not setting.is_shared:
            task["inputs"] = [str(path)]
            task["folder"] = "sandbox"
            task["command"] = [word.replace(f"if={path}", "if={input:1}") for word in words]
            if setting.mode == "both":
                task["outputs"] = [{"file": "out", **kept}]
        yield json.dumps(task) + "\n"


def expected_s(setting: Setting) -> float:
    """Seconds that the tasks of one round over all nodes take at the rates of the machines."""
    bits, each = setting.size * 8 / 1e6, setting.nodes
    slots = 1 / 25  # what a node adds to each task, at least
    storage = each * bits / min(scaled.STORAGE_READ, each * scaled.STORAGE_READ / scaled.SERVERS)
    if setting.is_warm:
        disk = scaled.DISK_READ if setting.mode == "read" else scaled.DISK_BOTH / 2
        return max(bits / disk, slots)
    if setting.is_shared and setting.mode == "both":
        storage *= 2 * scaled.STORAGE_READ / scaled.STORAGE_BOTH
    wrapper = each * scaled.CHANGE_MS * 4 / 1000 if setting.way == "fa-wrapper" else 0
    return max(storage, slots, wrapper)


def run(asked: argparse.Namespace, bed: Testbed, setting: Setting) -> Values:
    """Runs the tasks of a setting. Returns their throughput, and where the bytes came from."""
    length = asked.machines.bytes(setting.size)
    point_s = WARM_S if setting.is_warm else POINT_S
    rounds = max(1, min(asked.most, round(point_s / expected_s(setting))))
    count = rounds * setting.nodes
    folder = f"f{next(NEWEST)}"
    for also in ("out", "scratch"):
        (bed.shared / f"{folder}-{also}").mkdir()
    dice = random.Random(2)
    files = FILES * setting.nodes if setting.is_warm else count
    files = min(files, count)
    paths = bed.put(folder, (dice.randbytes(length) for _ in range(files)))
    lines = bed.folder / "tasks.jsonl"
    lines.write_text("".join(tasks(setting, bed, folder, paths, count)))
    nodes = bed.nodes()[2 : 2 + setting.nodes]
    with Cluster(bed, nodes, setting.policy) as cluster:
        if setting.is_warm:
            push(cluster, nodes, paths)
        job = cluster.run(eyas(), "submit", "--wait", lines)
    bed.forget(folder, f"{folder}-out", f"{folder}-scratch")
    moved = count * setting.size * (2 if setting.mode == "both" else 1)
    total = sum(job.reads.values())
    values = {"Mb/s": moved * 8 / job.elapsed_s / 1e6, "tasks/s": count / job.elapsed_s}
    values |= {"tasks": count, "seconds": job.elapsed_s}
    return values | {f"{place} share": part / max(total, 1) for place, part in job.reads.items()}


def push(cluster: Cluster, nodes: Sequence[str], paths: Sequence[Path]) -> None:
    """Puts every file into the cache of one node, equally many into each."""

    def give(number: int) -> None:
        own = paths[number :: len(nodes)]
        if own:
            words = cluster.words(eyas(), "push", "--to", nodes[number], *own)
            cluster.bed.check("head", words, 600)

    with concurrent.futures.ThreadPoolExecutor(PUSHES) as pool:
        list(pool.map(give, range(len(nodes))))


def settings(asked: argparse.Namespace) -> Iterator[Setting]:
    """Everything that is measured for the figures, in the order in which it is."""
    largest = max(asked.nodes)
    ordered = sorted(asked.nodes, key=lambda nodes: (nodes not in (1, largest), nodes))
    for figure in asked.figures:
        if figure == 7:
            for mode, way in itertools.product(MODES, ("disk", "storage")):
                yield from (Setting(way, mode, nodes, LARGE) for nodes in ordered)
                yield from (Setting(way, mode, largest, size) for size in asked.sizes)
        elif figure in (12, 13):
            mode = MODES[figure - 12]
            yield Setting("disk", mode, 1, LARGE)
            for nodes, way in itertools.product(ordered, reversed(WAYS)):
                yield Setting(way, mode, nodes, LARGE)
        else:
            for mode, size in itertools.product(MODES, asked.sizes):
                yield Setting("disk", mode, largest, size)
                yield from (Setting(way, mode, largest, size) for way in SANDBOXES)


def measure(asked: argparse.Namespace, bed: Testbed, points: Points) -> None:
    """Measures all points that are missing."""
    wanted = list(dict.fromkeys(settings(asked)))
    missing = [one for one in wanted if len(points.rounds.get(str(one), [])) < asked.runs]
    if not missing:
        return
    scaled.up(bed, max(one.nodes for one in missing), asked.machines)
    for rounds in range(1, asked.runs + 1):
        for one in wanted:
            how = readers if one.way in ("disk", "storage") else run
            points.measure(str(one), rounds, lambda: how(asked, bed, one))


def experiment(asked: argparse.Namespace, bed: Testbed) -> bool:
    """Measures and shows. Returns whether the goals hold."""
    asked.machines = Machines(asked.scale)
    asked.points.mkdir(parents=True, exist_ok=True)
    points = Points(asked.points / f"data-throughput-{asked.scale:g}.jsonl", asked.again)
    measure(asked, bed, points)
    holds = True
    for figure in asked.figures:
        if figure == 7:
            show_machines(asked, points)
        elif figure in (12, 13):
            holds = show_nodes(asked, points, figure) and holds
        else:
            show_sizes(asked, points)
    return holds


def of_nodes(points: Points, way: str, mode: str, nodes: Sequence[int]) -> list[float]:
    """Throughput of large files on these numbers of nodes."""
    return [points.median(str(Setting(way, mode, one, LARGE)), "Mb/s") for one in nodes]


def show_machines(asked: argparse.Namespace, points: Points) -> None:
    """Figures 7 to 11: the machines alone."""
    places = [(nodes, str(nodes)) for nodes in asked.nodes]
    for mode in MODES:
        lines = {way: of_nodes(points, way, mode, asked.nodes) for way in ("disk", "storage")}
        title = f"Figures 7 to 11: {NAMES[mode]} without eyas, files of 100 MB, {asked.machines}"
        rows = [[nodes, *values] for nodes, *values in zip(asked.nodes, *lines.values())]
        show(f"{title}; Mb/s", ["nodes", "local disks", "storage"], rows)
        picture = asked.points / f"storage-{mode}.svg"
        plot.lines(picture, title, "Mb/s", places, {"storage": lines["storage"]})
        most = scaled.STORAGE_READ if mode == "read" else scaled.STORAGE_BOTH
        print(f"the paper's storage tops out at {most} Mb/s; picture: {picture}")
        by_size = [
            [size, *(points.median(str(Setting(way, mode, max(asked.nodes), size)), "Mb/s")
                     for way in ("disk", "storage"))]
            for size in asked.sizes
        ]  # fmt: skip
        title = f"{NAMES[mode]} on {max(asked.nodes)} nodes by size of files; Mb/s"
        show(title, ["bytes", "local disks", "storage"], by_size)


def show_nodes(asked: argparse.Namespace, points: Points, figure: int) -> bool:
    """Figures 12 and 13: large files by number of nodes."""
    mode = MODES[figure - 12]
    one = points.median(str(Setting("disk", mode, 1, LARGE)), "Mb/s")
    ideal = [one * nodes for nodes in asked.nodes]
    most = scaled.STORAGE_READ if mode == "read" else scaled.STORAGE_BOTH
    storage = [min(most, most / scaled.SERVERS * nodes) for nodes in asked.nodes]
    lines = {"ideal: local disks": ideal, "ideal: storage": storage}
    lines |= {way: of_nodes(points, way, mode, asked.nodes) for way in WAYS}
    title = f"Figure {figure}: {NAMES[mode]}, files of 100 MB, {asked.machines}"
    rows = [[nodes, *values] for nodes, *values in zip(asked.nodes, *lines.values())]
    show(f"{title}; Mb/s", ["nodes", *lines], rows)
    picture = asked.points / f"figure-{figure}.svg"
    plot.lines(picture, title, "Mb/s", [(nodes, str(nodes)) for nodes in asked.nodes], lines)
    print(f"picture: {picture}")
    shares = {way: lines[way][-1] / ideal[-1] for way in WAYS if way.endswith("-100")}
    told = ", ".join(f"{way} {share:.3f}" for way, share in shares.items())
    print(f"of the ideal: {told}; the paper's mcu {GOALS[mode]:g}")
    name = f"figure {figure}: ideal / mcu-100 on {asked.nodes[-1]} nodes"
    return conclude(name, 1 / shares["mcu-100"], round(1 / GOALS[mode], 3))


def show_sizes(asked: argparse.Namespace, points: Points) -> None:
    """Figure 14: sandboxes by size of files."""
    nodes = max(asked.nodes)
    for mode in MODES:
        rates: dict[str, list[float]] = {}
        rows: list[list[object]] = [[f"{size:,} B"] for size in asked.sizes]
        for way in ("disk", *SANDBOXES):
            names = [str(Setting(way, mode, nodes, size)) for size in asked.sizes]
            rates[way] = [points.median(name, "Mb/s") for name in names]
            for row, name, rate in zip(rows, names, rates[way]):
                row.append(rate)
                if way != "disk":
                    row.append(points.median(name, "tasks/s"))
        heads = [word for way in SANDBOXES for word in (way, "tasks/s")]
        title = f"Figure 14: {NAMES[mode]}, {nodes} nodes, {asked.machines}"
        show(f"{title}; Mb/s", ["size", "local disks", *heads], rows)
        picture = asked.points / f"figure-14-{mode}.svg"
        places = [(size, plot.amount(size)) for size in asked.sizes]
        plot.lines(picture, title, "Mb/s", places, rates, is_logarithmic=True)
        print(f"picture: {picture}")


def main() -> int:
    """The command line."""
    parser = command_line(__doc__, tiny="2 nodes, files of a byte and 100 kB", runs=1)
    parser.add_argument("--figures", type=ascending, default=[7, 12, 13, 14])
    parser.add_argument("--nodes", type=ascending, default=ascending(NODES))
    parser.add_argument(
        "--sizes", type=ascending, default=ascending(SIZES), help="bytes of files at full scale"
    )
    parser.add_argument("--scale", type=float, default=100, help="the paper's rates, divided by it")
    parser.add_argument("--seconds", type=float, default=20, help="of readers without eyas")
    parser.add_argument("--most", type=int, default=80, help="tasks for each node at most")
    parser.add_argument("--again", action="store_true", help="measure all points again")
    target = Path(os.environ.get("CARGO_TARGET_DIR") or PROJECT / "target")
    parser.add_argument("--points", type=Path, default=target / "figures", help="folder of results")
    # A testbed in memory has disks of its own rates only.
    os.environ.setdefault("EYAS_TESTBED", f"/dev/shm/eyas-testbed-{os.geteuid()}")
    tiny = {"nodes": [2], "sizes": [1], "seconds": 0.5, "most": 1, "scale": 1000.0}
    return conduct(parser, tiny, experiment)


if __name__ == "__main__":
    sys.exit(main())
