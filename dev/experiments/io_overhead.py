#!/usr/bin/env python3
"""Experiment: the cost that `eyas io run` adds to a call that finds its bytes in the page cache.

Runs one program (dev/experiments/decompose/overhead.c) alternately without `eyas io run`, with it
on a file that is not ordered, on an ordered file that needs no turn, and on an ordered file with
`--always`. Prints the median time of a call and the ratios. The goal: less than twice as long.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from coordinated import eyas

FILE_BYTES = 16 << 20
GOAL = 2.0


def measure(words: list[str]) -> dict[str, float]:
    """Nanoseconds a call, by function."""
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return {name: float(ns) for name, ns in (line.split("\t") for line in done.stdout.splitlines())}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tiny", action="store_true", help="quick test of one round; the figures mean nothing"
    )
    parser.add_argument(
        "--eyas", type=Path, default=eyas(), help="command [default: $EYAS_BIN or release build]"
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--folder", type=Path, help="folder for the file [default: a temporary folder]"
    )
    words = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=words.folder) as folder:
        program, file, elsewhere = (
            Path(folder, name) for name in ("overhead", "file", "elsewhere")
        )
        source = Path(__file__).parent / "decompose" / "overhead.c"
        subprocess.run(["gcc", "-O2", "-o", program, source], check=True)
        file.write_bytes(bytes(FILE_BYTES))
        elsewhere.mkdir()
        under = [str(words.eyas), "io", "run", "--here", "--path"]
        ways = {
            "plain": [str(program), str(file)],
            "elsewhere": [*under, str(elsewhere), "--", str(program), str(file)],
            "in memory": [*under, folder, "--", str(program), str(file)],
            "asked for": [*under, folder, "--always", "--", str(program), str(file)],
        }
        runs: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
        for _ in range(1 if words.tiny else words.rounds):
            for way, line in ways.items():
                runs[way].append(measure(line))
    print(f"{'ns a call':14}{'plain':>8}" + "".join(f"{way:>17}" for way in list(ways)[1:]))
    worst = 0.0
    for name in runs["plain"][0]:
        plain, *others = (statistics.median(run[name] for run in runs[way]) for way in ways)
        worst = max(worst, *(other / plain for other in others))
        print(
            f"{name:14}{plain:8.1f}"
            + "".join(f"{other:9.1f} ({other / plain:.2f})" for other in others)
        )
    verdict = "reached" if worst < GOAL else "NOT reached"
    print(f"at most {worst:.2f} times as long; the goal is less than {GOAL}: {verdict}")
    return 0 if worst < GOAL or words.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
