#!/usr/bin/env python3
"""Experiment: tasks a second that write one small output each, beside `xargs` with outputs as
durable.

Four runs take turns in each round: eyas without an output, eyas with `-o`, `xargs -P` whose outputs
are not synced, and `xargs -P` that syncs each output (`sync FILE`). Prints the medians. The goal:
500 tasks/s with outputs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GOAL = 500.0
PROJECT = Path(__file__).resolve().parents[2]


def measure(line: list[str], folder: str, environment: dict[str, str], numbers: str) -> None:
    """Runs one command to its end."""
    quiet = subprocess.DEVNULL
    subprocess.run(
        line,
        check=True,
        cwd=folder,
        env=environment,
        input=numbers,
        text=True,
        stdout=quiet,
        stderr=quiet,
    )


def main() -> int:
    """Measures, prints a table, and says whether the goal is met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    eyas = Path(os.environ.get("EYAS_BIN", PROJECT / "target/release/eyas"))
    parser.add_argument(
        "--eyas",
        type=Path,
        action="append",
        help="command; several are compared [default: $EYAS_BIN]",
    )
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="quick test; the figures mean nothing")
    words = parser.parse_args()
    tasks, rounds = (20, 1) if words.tiny else (words.tasks, words.rounds)
    numbers = "\n".join(str(number) for number in range(1, tasks + 1))
    xargs = ["xargs", "-P2", "-I{}"]
    ways: dict[str, list[str]] = {}
    for command in words.eyas or [eyas]:
        run = [str(command.resolve()), "run", "--report", "none", "--array", f"1-{tasks}"]
        # Several commands may have one name in different folders.
        name = f"{command.parent.name}/{command.name}"
        ways[f"{name}, no output"] = [*run, "--", "/bin/echo", "{}"]
        ways[f"{name}, -o"] = [
            *run,
            "-o",
            "o=out/{}",
            "--no-append",
            "--",
            "cp",
            "/etc/hostname",
            "o",
        ]
    ways["xargs, not synced"] = [*xargs, "cp", "/etc/hostname", "out/{}"]
    ways["xargs, synced"] = [
        *xargs,
        "sh",
        "-c",
        "cp /etc/hostname out/{} && sync out/{} && sync out",
    ]
    rates: dict[str, list[float]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "EYAS_HOME": f"{folder}/home"}
        environment.pop("EYAS_ACCESS", None)
        for _ in range(rounds):
            for way, line in ways.items():
                out = Path(folder, "out")
                shutil.rmtree(out, ignore_errors=True)
                out.mkdir()
                started = time.monotonic()
                measure(line, folder, environment, numbers)
                rates[way].append(tasks / (time.monotonic() - started))
                if "no output" not in way and len(list(out.iterdir())) != tasks:
                    print(f"task_outputs: {way} did not write all outputs", file=sys.stderr)
                    return 1
    print(f"{'tasks/s':36}{'median':>9}{'range':>18}")
    for way, those in rates.items():
        print(f"{way:36}{statistics.median(those):9.0f}{min(those):9.0f} to {max(those):.0f}")
    last = [statistics.median(those) for way, those in rates.items() if way.endswith("-o")][-1]
    print(f"goal: {GOAL:.0f} tasks/s with outputs: {'met' if last >= GOAL else 'missed'}")
    return 0 if last >= GOAL or words.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
