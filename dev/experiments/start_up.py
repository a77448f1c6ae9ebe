#!/usr/bin/env python3
"""Experiment: what `eyas run` costs beside its job: start-up, end, and many files.

- start-up: from the start of `eyas run` with its own cluster until its one task runs
- end: from then until the command has ended
- run: `/bin/true` many times, the time in the job alone, beside `xargs -P2 -n1 /bin/true`
- files: `eyas run --each 'FOLDER/*' --noop` on a local cluster that has read the files before: the
  time in the job, the time outside of it, and the client's peak memory

All ways take turns in each round. Prints medians.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
START_UP_GOAL_S = 0.03
RUN_GOAL = 1.1
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def job_seconds(said: str) -> float:
    """The time in the job, as the summary of `eyas run` says it."""
    found = re.search(r" in ([0-9.]+) (us|ms|s) \(", said)
    if not found:
        raise SystemExit(f"start_up: no summary in: {said}")
    return float(found[1]) * UNITS[found[2]]


class Bench:
    """Runs commands in a folder with a home of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "EYAS_HOME": f"{folder}/home"}
        self.environment.pop("EYAS_ACCESS", None)

    def run(self, line: list[str]) -> tuple[float, subprocess.CompletedProcess[str]]:
        """Runs one command to its end. Returns its time."""
        started = time.time()
        done = subprocess.run(
            line, check=True, cwd=self.folder, env=self.environment, capture_output=True, text=True
        )
        return time.time() - started, done

    def start_and_end(self, eyas: Path) -> tuple[float, float]:
        """Seconds until the task runs, and from then on."""
        started = time.time()
        _, done = self.run(
            [str(eyas), "run", "--report", "none", "--array", "1-1", "--", "date", "+%s.%N"]
        )
        ended, ran = time.time(), float(done.stdout)
        return ran - started, ended - ran

    def files(self, eyas: Path, cluster: str) -> tuple[float, float, float]:
        """Seconds in the job and outside of it, and MB of memory, for all files of the folder."""
        line = [
            str(eyas),
            "--cluster",
            cluster,
            "run",
            "--report",
            "none",
            "--each",
            "files/*",
            "--noop",
        ]
        started = time.monotonic()
        with subprocess.Popen(
            line, cwd=self.folder, env=self.environment, stderr=subprocess.PIPE, text=True
        ) as process:
            said = process.stderr.read() if process.stderr else ""
            _, _, usage = os.wait4(process.pid, 0)
            process.returncode = 0
        wall, job = time.monotonic() - started, job_seconds(said)
        return job, wall - job, usage.ru_maxrss * 1024 / 1e6


def main() -> int:
    """Measures, prints tables, and says whether the goals are met."""
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
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="quick test; the figures mean nothing")
    words = parser.parse_args()
    tasks, files, rounds = (20, 100, 1) if words.tiny else (words.tasks, words.files, words.rounds)
    commands = [command.resolve() for command in words.eyas or [eyas]]
    labels = {command: f"{command.parent.name}/{command.name}" for command in commands}
    figures: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name))
        (bench.folder / "files").mkdir()
        for number in range(files):
            (bench.folder / f"files/f{number:07}").write_bytes(b"x\n")
        for number, command in enumerate(commands):
            start = [
                str(command),
                "--cluster",
                f"c{number}",
                "start",
                "local",
                "--slots",
                "2",
                "--detach",
            ]
            bench.run(start)
        try:
            for turn in range(rounds + 1):
                for number, command in enumerate(commands):
                    start, end = bench.start_and_end(command)
                    run = [
                        str(command),
                        "run",
                        "--report",
                        "none",
                        "--array",
                        f"1-{tasks}",
                        "--",
                        "/bin/true",
                    ]
                    wall, done = bench.run(run)
                    job, outside, memory = bench.files(command, f"c{number}")
                    found = {
                        "start-up, s": start,
                        "end, s": end,
                        "run, s": job_seconds(done.stderr),
                    }
                    found |= {
                        "whole run, s": wall,
                        "files: job, s": job,
                        "files: outside, s": outside,
                    }
                    found |= {"files: client, MB": memory}
                    # The first turn warms stores and caches.
                    for what, figure in found.items() if turn else []:
                        figures.setdefault((what, labels[command]), []).append(figure)
                line = ["sh", "-c", f"seq {tasks} | xargs -P2 -n1 /bin/true"]
                if turn:
                    figures.setdefault(("run, s", "xargs -P2"), []).append(bench.run(line)[0])
        finally:
            for number, command in enumerate(commands):
                stop = [str(command), "--cluster", f"c{number}", "stop"]
                subprocess.run(stop, check=False, env=bench.environment, stderr=subprocess.DEVNULL)
        print(f"{'what':22}{'way':24}{'median':>9}{'range':>18}")
        for (what, way), those in sorted(figures.items()):
            print(
                f"{what:22}{way:24}{statistics.median(those):9.3f}{min(those):9.3f} to "
                f"{max(those):.3f}"
            )
        last = labels[commands[-1]]
        start, run, peer = (
            statistics.median(figures[key])
            for key in [("start-up, s", last), ("run, s", last), ("run, s", "xargs -P2")]
        )
        is_met = start <= START_UP_GOAL_S and run <= RUN_GOAL * peer
        print(
            f"goals: start-up {START_UP_GOAL_S} s, run {RUN_GOAL} times xargs: "
            f"{'met' if is_met else 'missed'}"
        )
    return 0 if is_met or words.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
