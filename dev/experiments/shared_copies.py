#!/usr/bin/env python3
"""Experiment: what nodes make of an input, made on every node, and made on one and given to the
others.

- text: a large file in gzip, of which `gzip -dc` makes a text;
- index: a text of which `sort` makes a list of its words, which takes seconds and is small.

All nodes begin at the same time with a task for each of them, and tasks follow that read what was
made. To have each node make its own, the tasks of each node have a command of their own, which
differs in a word that does nothing. All nodes share the processors of this machine, as they
compute at the same time; each has a slot. Jobs take turns in each round, each on a cluster of its
own. Prints medians of the seconds, and how often the command ran.
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

WAYS = ("on every node", "on one, and given")


def text(lines: int) -> bytes:
    """Lines of words, which compress to about a third."""
    chance = random.Random(1)
    words = [f"{chance.getrandbits(40):x}" for _ in range(50_000)]
    return "".join(" ".join(chance.choices(words, k=8)) + "\n" for _ in range(lines)).encode()


def job(file: str, command: str, made: str, nodes: int, tasks: int, way: str) -> str:
    """The job file: tasks on all nodes, each of which reads what was made."""
    with_of = {
        WAYS[0]: [f"{command}; : n{node}" for node in range(1, nodes + 1)],
        WAYS[1]: [command] * nodes,
    }
    tables = [
        f'[[task]]\narray = "1-{tasks}"\nfolder = "sandbox"\n'
        f"requirements = \"node.name == 'n{node}'\"\n"
        f"inputs = [{{ path = '{file}', with = '''echo made >>{made}; {line}''' }}]\n"
        'command = ["sh", "-c", "wc -l \\"$0\\"/made", "{input:1}"]\n'
        for node, line in enumerate(with_of[way], 1)
    ]
    return "".join(tables)


def main() -> int:
    """Measures, prints a table, and says whether the goals are met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--tasks", type=int, default=4, help="of each node")
    parser.add_argument("--lines", type=int, default=1_000_000, help="of the text")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="quick test; the figures mean nothing")
    words = parser.parse_args()
    nodes, tasks, lines, rounds = words.nodes, words.tasks, words.lines, words.rounds
    if words.tiny:
        nodes, tasks, lines, rounds = 2, 1, 2000, 1
    seconds: dict[tuple[str, str], list[float]] = {}
    makings: dict[tuple[str, str], list[int]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "text").write_bytes(text(lines))
        (folder / "text.gz").write_bytes(gzip.compress((folder / "text").read_bytes(), 6))
        sort = "tr ' ' '\\\\n' <{in} | LC_ALL=C sort -u >{out}/made"
        cases = {
            "text": ("text.gz", "gzip -dc {in} >{out}/made"),
            "index": ("text", sort.replace("\\\\", "\\")),
        }
        for _ in range(rounds):
            for case, (file, command) in cases.items():
                for way in WAYS:
                    made = folder / "made"
                    made.write_text("")
                    with MeasuredCluster(folder, "--nodes", str(nodes), "--slots", "1") as cluster:
                        jobs = job(file, command, str(made), nodes, tasks, way)
                        took = cluster.submit(jobs).seconds
                    subprocess.run(["rm", "-rf", str(folder / "home")], check=True)
                    seconds.setdefault((case, way), []).append(took)
                    makings.setdefault((case, way), []).append(len(made.read_text().split()))
    rows = []
    for case in cases:
        row: list[object] = [case]
        for way in WAYS:
            row += [statistics.median(seconds[case, way]), statistics.median(makings[case, way])]
        spread = [f"{min(of):.2f} to {max(of):.2f}" for of in (seconds[case, way] for way in WAYS)]
        rows.append([*row, *spread])
    show(
        f"{nodes} nodes: seconds, and how often it was made; medians, ranges of the seconds",
        ["", WAYS[0], "made", WAYS[1], "made", *WAYS],
        rows,
    )
    medians = {key: statistics.median(values) for key, values in seconds.items()}
    share = medians["index", WAYS[1]] / medians["index", WAYS[0]]
    holds = conclude("index, of what it takes to make it on every node", share, 0.5)
    return 0 if holds or words.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
