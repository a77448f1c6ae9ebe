#!/usr/bin/env python3
"""Benchmark: Snakemake with `--executor eyas` beside Snakemake's local executor, on this machine.

Run it with an interpreter that has eyas and snakemake. A workflow has many small steps, each of
which reads a file of its own and one of 20 shared files, and a last step that reads all results.
Both executors use two processors and take turns in each round. The local executor runs `shell`
steps as children of the one Snakemake, and starts a Snakemake for each `run` step, as executors of
batch systems do for each job of any kind.

Prints medians of seconds from the start of Snakemake to its end, and of the processor time of all
processes, which other work on the machine changes less; and ratios in the same round.
"""

from __future__ import annotations

import argparse
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

SHARED = 20
PROCESSORS = 2

#: What a step does, as a directive of its rule.
DIRECTIVES = {
    "shell": 'shell: "cat {input} | wc -c > {output}"',
    "run": """run:
        with open(output[0], "w") as file:
            file.write(str(sum(len(open(path).read()) for path in input)))""",
}
EXECUTORS = {
    "local": ["--cores", str(PROCESSORS)],
    "eyas": ["--executor", "eyas", "--jobs", "100", "--cores", str(PROCESSORS)],
}


def write_workflow(folder: pathlib.Path, steps: int, directive: str) -> None:
    """Write the Snakefile and its inputs."""
    (folder / "data").mkdir(parents=True)
    for number in range(steps):
        (folder / "data" / f"{number}.txt").write_text(f"{number}\n")
    for number in range(SHARED):
        (folder / "data" / f"shared-{number}.txt").write_text("shared\n" * 10_000)
    (folder / "Snakefile").write_text(
        f"""
rule all:
    input: "sum.txt"
rule step:
    input: "data/{{i}}.txt", lambda wildcards: f"data/shared-{{int(wildcards.i) % {SHARED}}}.txt"
    output: "out/{{i}}.txt"
    {DIRECTIVES[directive]}
rule gather:
    input: expand("out/{{i}}.txt", i=range({steps}))
    output: "sum.txt"
    shell: "cat out/*.txt | wc -c > {{output}}"
"""
    )


def processor_seconds() -> float:
    """Processor time of all processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def seconds_of(executor: str, steps: int, directive: str) -> tuple[float, float]:
    """Run the workflow in a new folder. Returns seconds, and seconds of processors."""
    with tempfile.TemporaryDirectory(prefix="snakemake-bench-") as place:
        folder = pathlib.Path(place, "flow")
        write_workflow(folder, steps, directive)
        began, used = time.perf_counter(), processor_seconds()
        words = [sys.executable, "-m", "snakemake", "--quiet", "all", *EXECUTORS[executor]]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
        seconds = time.perf_counter() - began
        assert done.returncode == 0, done.stdout + done.stderr
        assert int((folder / "sum.txt").read_text()) > 0
        return seconds, processor_seconds() - used


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shell-steps", type=int, default=1000)
    parser.add_argument("--run-steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="quick test; the figures mean nothing")
    options = parser.parse_args()
    if options.tiny:
        vars(options).update(shell_steps=2, run_steps=1, rounds=1)
    print("directive  steps  what       local (s)  eyas (s)  eyas / local, in the same round")
    for directive, steps in (("shell", options.shell_steps), ("run", options.run_steps)):
        rounds = [
            {name: seconds_of(name, steps, directive) for name in EXECUTORS}
            for _ in range(options.rounds)
        ]
        for number, what in enumerate(("time", "processor")):
            local, eyas = (
                statistics.median(one[name][number] for one in rounds) for name in EXECUTORS
            )
            ratio = statistics.median(one["eyas"][number] / one["local"][number] for one in rounds)
            print(
                f"{directive:9}  {steps:5}  {what:9}  {local:9.1f}  {eyas:8.1f}  {ratio:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
