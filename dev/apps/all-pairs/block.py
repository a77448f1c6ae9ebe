#!/usr/bin/env python3
"""Computes one block of an All-Pairs matrix. `all_pairs.py` runs this program as a task on a node.

    block.py [--triangle] --rows FILE... --columns FILE... -- PROGRAM [WORDS...]

Writes `block.csv`, a line for each row. If the program fails for a pair, or does not print one
number, this program names the pair and exits with 1.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from pathlib import Path


def value(command: list[str], row: str, column: str) -> str:
    """The number that the program prints for a pair, as text."""
    pair = f"`{' '.join(command)} {row} {column}`"
    try:
        ran = subprocess.run(
            [*command, row, column], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
    except OSError as error:
        sys.exit(f"all-pairs: {pair} cannot be run: {error.strerror}")
    if ran.returncode:
        sys.exit(f"all-pairs: {pair} failed with exit code {ran.returncode}")
    printed = ran.stdout.strip()
    try:
        float(printed)
    except ValueError:
        sys.exit(f"all-pairs: {pair} printed {printed[:100]!r}, which is not a number")
    return printed


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--triangle", action="store_true", help="leave out the values below the diagonal"
    )
    parser.add_argument("--rows", nargs="+", required=True)
    parser.add_argument("--columns", nargs="+", required=True)
    parser.add_argument("program", nargs="+")
    asked = parser.parse_args()
    with Path("block.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for number, row in enumerate(asked.rows):
            left_out = number if asked.triangle else 0
            computed = [value(asked.program, row, column) for column in asked.columns[left_out:]]
            writer.writerow([""] * left_out + computed)


if __name__ == "__main__":
    main()
