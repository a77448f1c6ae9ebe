#!/usr/bin/env python3
"""Experiment: tasks a second whose sandboxes have many inputs, beside a shell loop that links and
unlinks them.

All tasks of a job read the same small files, which the store of the only node has: the first run of
each job is not counted. Each number of inputs has one job for each command, and the loop; they take
turns in each round. The loop does for each task what a sandbox is: a new folder, a hard link for
each input, `/bin/true`, removal. Prints the medians. The goal: 300 tasks/s with 1,000 inputs.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from measured import COMMAND, MeasuredCluster

GOAL = 300.0
INPUTS = (1, 10, 100, 1000)
LOOP = "d=box-{}; mkdir $d && ln -t $d in-%d/* && /bin/true {} && rm -r $d"


def rate(cluster: MeasuredCluster, job: str) -> float:
    """Tasks a second of one job, as eyas says."""
    said = cluster.submit(job).said
    found = re.search(r"\(([0-9.]+)/s\)", said)
    if found is None:
        raise SystemExit(f"no rate in: {said}")
    return float(found[1])


def prepare(folder: Path, inputs: int, tasks: int) -> str:
    """Writes the files for a number of inputs. Returns the job file."""
    names = [f"in-{inputs}/{number}" for number in range(inputs)]
    (folder / f"in-{inputs}").mkdir()
    for name in names:
        (folder / name).write_text(f"{name}\n")
    listed = ", ".join(f'"{name}"' for name in names)
    return (
        f'[[task]]\narray = "1-{tasks}"\nfolder = "sandbox"\ncommand = ["/bin/true", "{{}}"]\n'
        f"inputs = [{listed}]\n"
    )


def loop(folder: Path, inputs: int, tasks: int) -> float:
    """Tasks a second of the shell loop, two at a time."""
    numbers = "\n".join(str(number) for number in range(tasks))
    line = ["xargs", "-P2", "-I{}", "sh", "-c", LOOP % inputs]
    began = time.monotonic()
    subprocess.run(line, check=True, cwd=folder, input=numbers, text=True)
    return tasks / (time.monotonic() - began)


def main() -> int:
    """Measures, prints a table, and says whether the goal is met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--eyas",
        type=Path,
        action="append",
        help="command; several are compared [default: $EYAS_BIN]",
    )
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--inputs", type=int, nargs="+", default=list(INPUTS))
    parser.add_argument("--tiny", action="store_true", help="quick test; the figures mean nothing")
    words = parser.parse_args()
    tasks, rounds = (10, 1) if words.tiny else (words.tasks, words.rounds)
    # Several commands may have one name in different folders.
    commands = {
        f"{command.parent.name}/{command.name}": command for command in words.eyas or [COMMAND]
    }
    rates: dict[tuple[int, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        jobs = {inputs: prepare(folder, inputs, tasks) for inputs in words.inputs}
        for _ in range(rounds):
            for inputs in words.inputs:
                rates.setdefault((inputs, "shell loop"), []).append(loop(folder, inputs, tasks))
                for label, command in commands.items():
                    shape = ("--nodes", "1", "--slots", "2")
                    home = label.replace("/", "-")
                    with MeasuredCluster(folder, *shape, command=command, home=home) as cluster:
                        rate(cluster, jobs[inputs])
                        rates.setdefault((inputs, label), []).append(rate(cluster, jobs[inputs]))
    columns = [*commands, "shell loop"]
    print(
        f"{'inputs':>8}" + "".join(f"{column:>20}" for column in columns) + "    tasks/s, medians"
    )
    for inputs in words.inputs:
        medians = [statistics.median(rates[inputs, column]) for column in columns]
        print(f"{inputs:>8}" + "".join(f"{median:>20.0f}" for median in medians))
    most = max(words.inputs)
    last = statistics.median(rates[most, [*commands][-1]])
    print(f"goal: {GOAL:.0f} tasks/s with {most} inputs: {'met' if last >= GOAL else 'missed'}")
    return 0 if last >= GOAL or words.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
