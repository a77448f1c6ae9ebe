#!/usr/bin/env python3
"""Experiment: tasks that read what each node makes once of an input, beside tasks that make it
themselves.

- shared content: all tasks count the lines of one compressed file: each decompresses it in a pipe,
  or eyas does once (`decompress`); beside tasks that read the file that was decompressed before;
- own contents: each task has a compressed file of its own, so nothing is shared;
- shared folder: all tasks read all files of one archive: each unpacks it in its sandbox, or eyas
  does once (`with`); beside tasks that read the folder that was unpacked before.

Each job runs on a cluster of its own, so that no store has its inputs; jobs take turns in each
round. Prints medians of the seconds.
"""

from __future__ import annotations

import argparse
import gzip
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from measured import MeasuredCluster
from table import conclude, show

WORDS = 5000
SCRIPTS = {
    "content": 'gzip -dc "$0" | wc -l',
    "content, made": 'wc -l <"$0"',
    "folder": 'tar xf "$0" && cat part/* | wc -l',
    "folder, made": 'cat "$0"/part/* | wc -l',
}


def text(lines: int, seed: int) -> str:
    """Lines of words, which compress to about a third."""
    chance = random.Random(seed)
    words = [f"{chance.getrandbits(40):x}" for _ in range(WORDS)]
    return "".join(" ".join(chance.choices(words, k=8)) + "\n" for _ in range(lines))


def job(array: str, inputs: str, script: str) -> str:
    """The job file of an array of tasks in sandboxes."""
    return (
        f'[[task]]\n{array}\nfolder = "sandbox"\ninputs = [{inputs}]\n'
        f'command = ["sh", "-c", \'{SCRIPTS[script]}\', "{{input:1}}"]\n'
    )


def jobs(folder: Path, tasks: int, lines: int, files: int) -> dict[str, dict[str, str]]:
    """Writes the inputs. Returns the job files of each case, the one to beat first."""
    (folder / "text").write_text(text(lines, 1))
    (folder / "text.gz").write_bytes(gzip.compress((folder / "text").read_bytes(), 6))
    (folder / "own").mkdir()
    for number in range(tasks):
        (folder / f"own/{number}.gz").write_bytes(gzip.compress(text(lines // 20, number).encode()))
    (folder / "tree/part").mkdir(parents=True)
    for number in range(files):
        (folder / f"tree/part/{number}").write_text(text(10, number))
    subprocess.run(["tar", "cf", "tree.tar", "-C", "tree", "part"], check=True, cwd=folder)
    all_tasks, own = f'array = "1-{tasks}"', 'each = "own/*.gz"'
    unpack = 'with = "tar xf {in} -C {out}"'
    at_place = f'[[task]]\n{all_tasks}\ncommand = ["sh", "-c", \'{{}}\', "{folder}/{{}}"]\n'

    def in_place(script: str, name: str) -> str:
        return at_place.replace("{}", SCRIPTS[script], 1).replace("{}", name, 1)

    return {
        "shared content": {
            "each task": job(all_tasks, '"text.gz"', "content"),
            "once a node": job(
                all_tasks, '{ path = "text.gz", decompress = true }', "content, made"
            ),
            "made before": in_place("content, made", "text"),
        },
        "own contents": {
            "each task": job(own, "", "content"),
            "once a node": job(f"{own}\ndecompress = true", "", "content, made"),
        },
        "shared folder": {
            "each task": job(all_tasks, '"tree.tar"', "folder"),
            "once a node": job(all_tasks, f'{{ path = "tree.tar", {unpack} }}', "folder, made"),
            "made before": in_place("folder, made", "tree"),
        },
    }


def main() -> int:
    """Measures, prints a table, and says whether the goals are met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--lines", type=int, default=500_000, help="of the shared file")
    parser.add_argument("--files", type=int, default=1000, help="of the archive")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="quick test; the figures mean nothing")
    words = parser.parse_args()
    tasks, lines, files, rounds = words.tasks, words.lines, words.files, words.rounds
    if words.tiny:
        tasks, lines, files, rounds = 8, 2000, 20, 1
    seconds: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        cases = jobs(folder, tasks, lines, files)
        for _ in range(rounds):
            for case, ways in cases.items():
                for way, text_of_job in ways.items():
                    with MeasuredCluster(folder, "--nodes", "2") as cluster:
                        took = cluster.submit(text_of_job).seconds
                    subprocess.run(["rm", "-rf", str(folder / "home")], check=True)
                    seconds.setdefault((case, way), []).append(took)
    medians = {key: statistics.median(values) for key, values in seconds.items()}
    ways = ["each task", "once a node", "made before"]
    rows = [[case, *(medians.get((case, way), "") for way in ways)] for case in cases]
    show("Seconds of a job, medians", ["", *ways], rows)
    holds = [
        conclude(
            f"{case}, of what each task makes",
            medians[case, ways[1]] / medians[case, ways[0]],
            most,
        )
        for case, most in [("shared content", 0.7), ("own contents", 1.1), ("shared folder", 0.7)]
    ]
    return 0 if all(holds) or words.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
