"""The programs that decompose a file (`dev/experiments/decompose`): building them, running them
together, and combining their results.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from coordinated import Waits
from slow_disk import SlowDiskError, run

SOURCES = Path(__file__).resolve().parents[1] / "experiments" / "decompose"
TIMEOUT_S = 120.0


@dataclass
class Outcome:
    """Result of all applications together."""

    bytes: int
    elapsed_s: float
    ends_s: list[float]  # of each application, from the first one's beginning
    longest_s: float
    mean_wait_s: float
    # Added by the caller.
    seeks: int = 0  # of the disk
    busy_s: float = 0.0  # of the disk
    waits: Waits | None = None  # in eyas's queue

    @property
    def rate(self) -> float:
        """Megabytes a second."""
        return self.bytes / self.elapsed_s / 1e6

    @property
    def apart(self) -> float:
        """Time between the first and the last application's end, as a part of the whole time."""
        return (max(self.ends_s) - min(self.ends_s)) / self.elapsed_s


def build(folder: Path, mpi: bool) -> None:
    """Compiles them into this folder; with `mpi` also the one that uses MPI."""
    compilers = [("cc", "decompose"), *([("mpicc", "decompose_mpi")] if mpi else [])]
    for compiler, name in compilers:
        sources = [SOURCES / f"{name}.c", SOURCES / "shared.c"]
        run(compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-o", folder / name, *sources)


def outcome(programs: Sequence[Sequence[str]]) -> Outcome:
    """Combines the output of each application's programs."""
    applications = [
        [json.loads(line) for text in texts for line in text.splitlines()] for texts in programs
    ]
    processes = [process for application in applications for process in application]
    began = min(process["begin_us"] for process in processes)
    ends = [
        (max(process["end_us"] for process in application) - began) / 1e6
        for application in applications
    ]
    waited = sum(process["waited_us"] for process in processes) / sum(
        process["calls"] for process in processes
    )
    longest = max(process["longest_us"] for process in processes)
    return Outcome(
        sum(process["bytes"] for process in processes), max(ends), ends, longest / 1e6, waited / 1e6
    )


def together(commands: Sequence[Sequence[Sequence[object]]]) -> Outcome:
    """Runs all programs of all applications at once."""
    started = [[start(words) for words in programs] for programs in commands]
    try:
        said = [[finish(process) for process in programs] for programs in started]
    finally:
        for process in (process for programs in started for process in programs):
            process.kill()
    return outcome(said)


def start(words: Sequence[object]) -> subprocess.Popen[str]:
    """Starts a program that prints its result."""
    text = list(map(str, words))
    return subprocess.Popen(
        text, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen[str]) -> str:
    """The program's output. Raises SlowDiskError if it read wrong bytes or failed."""
    try:
        output, errors = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise SlowDiskError(f"{process.args!r} does not end within {TIMEOUT_S:g} s") from None
    if process.returncode:
        raise SlowDiskError(f"{process.args!r} ended with {process.returncode}: {errors.strip()}")
    return output
