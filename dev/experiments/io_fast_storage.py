#!/usr/bin/env python3
"""Experiment: `eyas io run` and plain calls where ordering gains nothing: flash, memory, the page
cache.

    dev/experiments/io_fast_storage.py --folder /scratch/somewhere --folder /dev/shm

Each workload runs alternately with and without `eyas io run`, on files that are in the page cache
and, if the folder's file system has a storage, on files that are not. Prints the medians of the
times and their ratios. The programs measure their own time: starting `eyas io run` is not counted,
starting child processes is. The agent lives from one round to the next, as it does when programs
run one after the other. It needs tens of milliseconds to judge a storage; these are in the first
round only. The goal: at least 0.97 of the rate of plain calls.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from coordinated import eyas
from decomposition import build, finish, outcome, start
from slow_disk import SlowDiskError, forget, run
from table import conclude, show

GOAL = 1 / 0.97
PROCESSES = 8
SMALL_FILES, SMALL_BYTES, IN_A_FOLDER = 4000, 6000, 100
TIMED = 'began=$(date +%s%N); "$@" > "$0"; echo $(( ($(date +%s%N) - began) / 1000 ))'
TMPFS = "tmpfs"


@dataclass
class Workload:
    """A workload; `seconds` runs it with these words in front of its command."""

    name: str
    seconds: Callable[[list[str]], float]
    files: list[Path]


def decompositions(folder: Path, programs: Path, size: int) -> list[Workload]:
    """Programs that read one large file together."""
    file = folder / "file"
    run(programs / "decompose", "--write", "--bytes", size, "--block", 1 << 20, file)

    def workload(name: str, block: int, processes: int, *how: object) -> Workload:
        share = min(size, block * 20_000 * processes) // block * block
        words = ["--bytes", share, "--block", block, "--processes", processes, *how, file]

        def seconds(before: list[str]) -> float:
            return outcome([[finish(start([*before, programs / "decompose", *words]))]]).elapsed_s

        return Workload(name, seconds, [file])

    return [
        workload("one reader, 64 KiB", 64 << 10, 1),
        workload("one reader, 4 KiB, at random", 4 << 10, 1, "--shuffled"),
        *(
            workload(f"{PROCESSES} readers, {block >> 10} KiB", block, PROCESSES)
            for block in (4 << 10, 64 << 10, 1 << 20)
        ),
        workload(f"{PROCESSES} readers, 64 KiB, a part each", 64 << 10, PROCESSES, "--contiguous"),
        workload(f"{PROCESSES} readers, 4 KiB, at random", 4 << 10, PROCESSES, "--shuffled"),
    ]


def trees(folder: Path) -> list[Workload]:
    """Programs that read many small files."""
    tree = folder / "tree"
    files = [tree / str(number // IN_A_FOLDER) / str(number) for number in range(SMALL_FILES)]
    for number, file in enumerate(files):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{number} ".ljust(SMALL_BYTES, "x"))

    def workload(name: str, *words: object) -> Workload:
        def seconds(before: list[str]) -> float:
            return int(finish(start([*before, "sh", "-c", TIMED, os.devnull, *words]))) / 1e6

        return Workload(name, seconds, files)

    return [
        workload(f"grep in {SMALL_FILES} files", "grep", "-rc", "needle", tree),
        workload(f"tar of {SMALL_FILES} files", "sh", "-c", f"tar -cf - -C {tree} . | cat"),
        workload(
            "a program for each of 200 files",
            "sh",
            "-c",
            'for file; do cksum "$file"; done',
            "sh",
            *files[:200],
        ),
    ]


def kind_of(folder: Path) -> str:
    """Type of a folder's file system."""
    return subprocess.run(
        ["stat", "-f", "-c", "%T", folder], check=True, capture_output=True, text=True
    ).stdout.strip()


def measure(
    workload: Workload, before: list[str], rounds: int, is_cold: bool
) -> tuple[float, float]:
    """Median seconds without and with these words in front of the command."""
    ways: list[list[str]] = [[], before]
    found: list[list[float]] = [[], []]
    for number in range(rounds):
        # They take turns at being first.
        for place in [0, 1] if number % 2 == 0 else [1, 0]:
            os.sync()
            if is_cold:
                forget(workload.files)
            else:
                run("sh", "-c", 'cat "$@" > "$0"', os.devnull, *workload.files)
            found[place].append(workload.seconds(ways[place]))
    plain, ordered = map(statistics.median, found)
    return plain, ordered


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--eyas", type=Path, default=eyas(), help="command [default: $EYAS_BIN or release build]"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        action="append",
        help="folder for the files [default: temporary folder]",
    )
    parser.add_argument("--megabytes", type=int, default=512, help="size of the large file")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="run only workloads whose names contain this")
    parser.add_argument(
        "--tiny", action="store_true", help="quick test with a small file; the figures mean nothing"
    )
    asked = parser.parse_args()
    if asked.tiny:
        asked.megabytes, asked.rounds = 8, 1
    ratios: list[float] = []
    try:
        for parent in asked.folder or [Path(tempfile.gettempdir())]:
            with tempfile.TemporaryDirectory(dir=parent) as name:
                folder, kind = Path(name), kind_of(parent)
                programs = folder / "programs"
                programs.mkdir()
                build(programs, mpi=False)
                before = [str(asked.eyas.resolve()), "io", "run", "--here", "--path", name, "--"]
                rows: list[list[object]] = []
                for workload in [
                    *decompositions(folder, programs, asked.megabytes << 20),
                    *trees(folder),
                ]:
                    for is_cold in [False] if kind == TMPFS else [False, True]:
                        if asked.only not in workload.name:
                            continue
                        plain, ordered = measure(workload, before, asked.rounds, is_cold)
                        ratios.append(ordered / plain)
                        state = "cold" if is_cold else "cached"
                        rows.append(
                            [workload.name, state, plain * 1e3, ordered * 1e3, plain / ordered]
                        )
                show(f"{kind}, ms", ["workload", "files", "plain", "eyas", "of plain's rate"], rows)
    except SlowDiskError as error:
        print(f"io_fast_storage: {error}", file=sys.stderr)
        return 1
    if not ratios:
        print(f"io_fast_storage: no workload's name contains `{asked.only}`", file=sys.stderr)
        return 1
    print()
    return (
        0
        if conclude("what it took, of what plain calls took", max(ratios), GOAL) or asked.tiny
        else 1
    )


if __name__ == "__main__":
    sys.exit(main())
