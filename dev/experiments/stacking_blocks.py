#!/usr/bin/env python3
"""Experiment: the time of each block of code of a stacking task, compressed or not, from a local
disk or shared storage (data-diffusion §6.4, figure 43).

    dev/experiments/stacking_blocks.py

One task is one process, which cuts an object's region of 100 x 100 pixels out of a frame of its
own: 2 MB with gzip (GZ) or 6 MB without (FIT). The local disk is that of --folder; the shared
storage is emulated (`dev/src/bin/slow-disk`), with a seek of 8 ms and 60 MB/s. Before each task,
its frame is dropped from the page cache. Prints the medians over all tasks, in milliseconds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from slow_disk import SlowDisk, SlowDiskError, check_needs, forget, isolated
from table import show

PROJECT = Path(__file__).resolve().parents[2]
BLOCKS = [
    "open",
    "radec2xy",
    "readHDU",
    "curl",
    "getTile",
    "convertArray",
    "calibration",
    "interpolation",
    "doStacking",
    "writeStacking",
]
SEEK_MS, MEGABYTES_PER_SECOND = 8, 60


def program(name: str) -> Path:
    """A program beside $EYAS_BIN, or else of the release build."""
    target = Path(os.environ.get("CARGO_TARGET_DIR") or PROJECT / "target")
    folder = Path(os.environ["EYAS_BIN"]).parent if "EYAS_BIN" in os.environ else target / "release"
    return (folder / name).resolve()


def blocks(frame: Path, place: str, out: Path, size: int) -> dict[str, float]:
    """Runs one task. Returns the milliseconds of each block."""
    words = ["--object", place, frame, "--out", out, "--profile", "--size", size]
    done = subprocess.run(
        [program("stack"), *map(str, words)], check=True, capture_output=True, text=True
    )
    if "\tstacked=1\t" not in done.stdout:
        raise SlowDiskError(f"the object is not stacked: {done.stdout}")
    fields = (field.split("=") for field in done.stderr.split())
    return {name: float(value) for name, value in fields}


def measure(args: argparse.Namespace, folder: Path, local: Path) -> None:
    """Makes the frames, runs all tasks, and prints the table."""
    size = "180x170" if args.tiny else "2048x1489"
    times: dict[str, list[dict[str, float]]] = {}
    folder.mkdir()
    disk = SlowDisk(
        folder,
        1,
        ["--seek-ms", SEEK_MS, "--megabytes-per-second", MEGABYTES_PER_SECOND, "--uncached"],
    )
    with disk:
        for form in ["GZ", "FIT"]:
            sky = local / form
            words = ["--frames", args.tasks, "--locality", "1", "--size", size]
            words += ["--out", sky, "--gzip" if form == "GZ" else "--plain"]
            subprocess.run(
                [program("survey"), *map(str, words)], check=True, stdout=subprocess.DEVNULL
            )
            shutil.copytree(sky, disk.source / form)
        for round_number in range(args.rounds):
            for form in ["GZ", "FIT"]:
                lines = (local / form / "tasks.csv").read_text(encoding="utf-8").splitlines()
                for line in lines:
                    frame, place = line.split(",", 1)
                    for where, root in [("local", local), ("shared", disk.mounts[0])]:
                        path = root / form / frame
                        if where == "local":
                            os.sync()
                            forget([path])
                        disk.forget()
                        found = blocks(path, place, local / "p.fits", 60 if args.tiny else 100)
                        times.setdefault(f"{form} {where}", []).append(found)
            print(f"round {round_number + 1} of {args.rounds} is done", file=sys.stderr)
    table = {
        kind: [statistics.median(task[block] for task in tasks) for block in BLOCKS]
        for kind, tasks in times.items()
    }
    rows = [[block, *(table[kind][at] for kind in table)] for at, block in enumerate(BLOCKS)]
    rows.append(["all", *(sum(table[kind]) for kind in table)])
    show(f"milliseconds of a task, medians of {args.rounds} x {args.tasks}", ["", *table], rows)
    shares = {kind: (column[0] + column[2]) / sum(column) for kind, column in table.items()}
    words = [f"{share:.0%} of {kind}" for kind, share in shares.items()]
    print("open and readHDU: " + ", ".join(words))


def main() -> int:
    """Reads the arguments and runs the experiment."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=20, help="tasks of each kind")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="on the local disk")
    parser.add_argument("--tiny", action="store_true", help="tests that it runs")
    args = parser.parse_args()
    if args.tiny:
        args.tasks, args.rounds = 2, 1
    try:
        check_needs()

        def work(folder: Path) -> int:
            with tempfile.TemporaryDirectory(dir=args.folder) as local:
                measure(args, folder / "disk", Path(local))
            return 0

        return isolated(work)
    except SlowDiskError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
