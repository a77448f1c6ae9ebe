#!/usr/bin/env python3
"""Measures what this repository costs those who build and test it: `make times`.

    dev/tools/times.py [--runs 3] [--busy 0] [ROW...]

    test        make test in a fresh clone
    edited      make test again there, after an edit in one room
    quick       make quick there, after an edit in one room
    ci          .ci/run in a fresh clone
    demo        make demo in a fresh clone
    size        size of the build folder after make test
    packages    packages in Cargo.lock

Each run has a clone of its own in $TMPDIR, of the last commit, which is removed; the cache of the
package registries is not. `--busy` starts that many busy processes beside. Prints one row of a
table for each, with medians of the runs and the load average of the machine before the first run.
The output of the commands is in ROW-RUN.txt in this folder's `target/times`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from run_tests import TARGET, busy, heed_signals

ROOT = Path(__file__).resolve().parents[2]
OUTPUTS = TARGET / "times"
EDITED = "data/store/src/lib.rs"
UNSET = (
    "CARGO_TARGET_DIR",
    "EYAS_BIN",
    "MAKEFLAGS",
    "MAKELEVEL",
)  # what belongs to this folder's own runs


def minutes(clone: Path, name: str, *command: str) -> float:
    """Minutes that a command takes in a clone, which must succeed."""
    environment = {name: value for name, value in os.environ.items() if name not in UNSET}
    OUTPUTS.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with (OUTPUTS / f"{name}.txt").open("wb") as output:
        done = subprocess.run(
            command,
            cwd=clone,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    took = (time.monotonic() - began) / 60
    print(f"{name}: {took:.1f} min, exit code {done.returncode}", file=sys.stderr, flush=True)
    if done.returncode:
        raise SystemExit(f"{name} has failed, so its time means nothing: {OUTPUTS / name}.txt")
    return took


def edit(clone: Path) -> None:
    """Changes a source file of one room."""
    with (clone / EDITED).open("a") as file:
        file.write(f"// {time.time()}\n")


def one_run(rows: set[str], number: int) -> dict[str, float]:
    """One value of each row."""
    values = {}
    with tempfile.TemporaryDirectory(prefix="eyas-times-") as folder:

        def clone() -> Path:
            place = Path(folder) / str(len(os.listdir(folder)))
            subprocess.run(["git", "clone", "--quiet", ROOT, place], check=True)
            return place

        if rows & {"test", "edited", "quick", "size"}:
            tested = clone()
            values["test"] = minutes(tested, f"test-{number}", "make", "test")
            size = subprocess.run(
                ["du", "-sm", tested / "target"], check=True, capture_output=True, text=True
            )
            values["size"] = float(size.stdout.split()[0]) / 1000
            if "edited" in rows:
                edit(tested)
                values["edited"] = minutes(tested, f"edited-{number}", "make", "test")
            if "quick" in rows:
                edit(tested)
                values["quick"] = minutes(tested, f"quick-{number}", "make", "quick")
        if "ci" in rows:
            values["ci"] = minutes(clone(), f"ci-{number}", "bash", ".ci/run")
        if "demo" in rows:
            values["demo"] = minutes(clone(), f"demo-{number}", "make", "demo")
    return values


def main() -> None:
    """Measures, and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ["test", "edited", "quick", "ci", "demo", "size", "packages"]
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(names))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--busy", type=int, default=0, help="number of busy processes beside")
    asked = parser.parse_args()
    if unknown := set(asked.rows) - set(names):
        parser.error(f"there is no row {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    rows = set(asked.rows or names)
    heed_signals()
    load = os.getloadavg()[0]
    runs = []
    if rows != {"packages"}:
        with busy(asked.busy):
            runs = [one_run(rows, number) for number in range(1, asked.runs + 1)]
    print(f"load before {load:.1f}, {asked.busy} busy processes beside, {asked.runs} runs\n")
    print("| what | median | range |\n| --- | --- | --- |")
    for name in names:
        found = [run[name] for run in runs if name in run]
        if name in rows and found:
            unit = "GB" if name == "size" else "min"
            print(
                f"| {name} | {statistics.median(found):.1f} {unit} | {min(found):.1f} to "
                f"{max(found):.1f} |"
            )
    if "packages" in rows:
        count = (ROOT / "Cargo.lock").read_text().count("[[package]]")
        print(f"| packages | {count} | |")


if __name__ == "__main__":
    main()
