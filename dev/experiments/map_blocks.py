#!/usr/bin/env python3
"""Experiment: programs over the blocks of a text (`eyas map`) beside the same work of coreutils and
DuckDB.

    dev/experiments/map_blocks.py [--tiny] [--megabytes 256] [--runs 3] [--nodes 2] [--before
                                  BINARY] [--only TEXT]
                             [--cpuacct FOLDER]

The text has words of 1 to 12 letters, 100,000 different ones with the frequencies of Zipf's law; 16
MB of it are written again and again. The join has two tables of lines `key TAB value`, a quarter of
this size each; the first has each key once. Inputs are put into a cluster with this many nodes on
this machine, one replica in chunks of 16 MB. Runs of `eyas map` and of the programs beside it are
interleaved, and no other program may be busy. Prints medians, and the time of each `eyas map`
divided by that of the programs beside it. `--before` names an older eyas binary to measure as well,
with its eyas-text beside it. On a machine that others use, processor time is steadier: `--cpuacct
FOLDER` measures it for all processes of a control group (version 1), which the experiment enters.
`mkdir /sys/fs/cgroup/cpuacct/NAME` makes one.

Needs a release build of the workspace (or EYAS_BIN, with eyas-text beside it). DuckDB is measured
if Python has it: `python -m venv venv && venv/bin/pip install duckdb && venv/bin/python
dev/experiments/map_blocks.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import itertools
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from table import show

PROJECT = Path(__file__).resolve().parents[2]
EYAS = Path(os.environ.get("EYAS_BIN") or PROJECT / "target" / "release" / "eyas")
TEXT = EYAS.with_name("eyas-text")
WORDS, BLOCK_BYTES, CHUNK = 100_000, 16_000_000, "16MB"
ADD = (
    "awk -F'\\t' 'NR > 1 && $1 != k { print k \"\\t\" n; n = 0 } { k = $1; n += $2 } "
    'END { if (NR) print k "\\t" n }\''
)
COUNT = f"{TEXT} word-count reduce"
JOIN = f"{TEXT} join"
DUCKDB = """
import duckdb, sys
lines = ("read_csv('text', columns = {'line': 'varchar'}, header = false, "
         "delim = '\\x01', quote = '', escape = '')")
table = ("read_csv('{}', columns = {{'key': 'varchar', 'value': 'varchar'}}, header = false, "
         "delim = '\\t', quote = '')")
words = f"select unnest(string_split(line, ' ')) as word from {lines}"
queries = {
    "count": f"select word, count(*) from ({words}) where word <> '' group by word order by word",
    "sort": f"select line from {lines} order by line",
    "join": f"select * from {table.format('left')} a join {table.format('right')} b using (key)",
}
duckdb.sql("set memory_limit = '1GB'")
duckdb.sql(f"copy ({queries[sys.argv[1]]}) to '/dev/null' (format csv)")
"""

# Name of the work, arguments of `eyas map`, and the commands to compare with, by name.
WORK = [
    (
        "wc -l",
        ["/text", "--", "wc", "-l"],
        {"wc -l": "wc -l text", "cat | wc -l": "cat text | wc -l"},
    ),
    (
        "grep -c",
        ["/text", "--", "grep", "-c", "-F", "abc"],
        {"grep -c": "grep -c -F abc text | cat"},
    ),
    (
        "word count, eyas-text",
        ["/text", "--combine", COUNT, "--reduce", COUNT, "--", str(TEXT), "word-count", "map"],
        {
            "tr | sort | uniq -c": "tr -s ' ' '\\n' < text | sort -S 1G | uniq -c",
            "DuckDB": f"{sys.executable} query.py count",
        },
    ),
    (
        "word count, eyas-text, counted in the map",
        [
            "/text",
            "--combine",
            COUNT,
            "--reduce",
            COUNT,
            "--",
            str(TEXT),
            "aggregate-word-count",
            "map",
        ],
        {"DuckDB": f"{sys.executable} query.py count"},
    ),
    (
        "word count, tr | sed, awk",
        [
            "/text",
            "--combine",
            ADD,
            "--reduce",
            ADD,
            "--",
            "sh",
            "-c",
            "tr -s ' ' '\\n' | sed 's/$/\\t1/'",
        ],
        {"tr | sort | uniq -c": "tr -s ' ' '\\n' < text | sort -S 1G | uniq -c"},
    ),
    (
        "sort",
        ["/text", "--reduce", "cat", "--reducers", "2", "--", "cat"],
        {"sort": "sort -S 1G -t '\t' -k 1,1 text", "DuckDB": f"{sys.executable} query.py sort"},
    ),
    (
        "join",
        [
            "/marked",
            "--reduce",
            f"{JOIN} reduce",
            "--reducers",
            "2",
            "--",
            str(TEXT),
            "join",
            "map",
        ],
        {
            "sort, join": "sort -S 512M left > l; sort -S 512M right > r; join -t '\t' l r",
            "DuckDB": f"{sys.executable} query.py join",
        },
    ),
]


def write_text(path: Path, megabytes: int) -> None:
    """Writes the text; the same one for the same size."""
    draw = random.Random(1)
    words = [
        "".join(draw.choices("abcdefghijklmnop", k=1 + number % 12)) for number in range(WORDS)
    ]
    weights = list(itertools.accumulate(1 / rank for rank in range(1, WORDS + 1)))
    lines, written = [], 0
    while written < min(BLOCK_BYTES, megabytes * 1_000_000):
        lines.append(" ".join(draw.choices(words, cum_weights=weights, k=12)))
        written += len(lines[-1]) + 1
    block = "\n".join([*lines, ""])
    with path.open("w", encoding="ascii") as file:
        for _ in range(max(1, round(megabytes * 1_000_000 / len(block)))):
            file.write(block)


def write_tables(folder: Path, megabytes: int) -> None:
    """Writes the two tables of the join, and both in one file of marked lines."""
    draw, rows = random.Random(2), max(1, megabytes * 1_000_000 // 4 // 25)
    with (folder / "left").open("w") as left, (folder / "right").open("w") as right:
        with (folder / "marked").open("w") as marked:
            for number in range(rows):
                for side, table, key in [
                    (1, left, number * 7919 % rows),
                    (2, right, draw.randrange(rows)),
                ]:
                    row = f"{key:010}\tvalue{number:08}\n"
                    table.write(row)
                    marked.write(f"{side}\t{row}")


def timed(
    command: str | list[str], folder: Path, environment: dict[str, str], group: Path | None
) -> float:
    """Runs a command whose output is not read. Returns seconds: of processors in a control group if
    there is one.
    """

    def now() -> float:
        return int((group / "cpuacct.usage").read_text()) / 1e9 if group else time.perf_counter()

    began = now()
    subprocess.run(
        command,
        shell=isinstance(command, str),
        cwd=folder,
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return now() - began


def measure(asked: argparse.Namespace, folder: Path) -> None:
    """Measures all systems in turns, and prints the medians."""
    if asked.cpuacct:
        (asked.cpuacct / "tasks").write_text(str(os.getpid()))
    text = folder / "text"
    write_text(text, asked.megabytes)
    write_tables(folder, asked.megabytes)
    (folder / "query.py").write_text(DUCKDB)
    binaries = {"eyas map": EYAS} | ({"eyas map, before": asked.before} if asked.before else {})
    rows = []
    for work, words, beside in WORK:
        if asked.only and asked.only not in work:
            continue
        peers = {
            name: command for name, command in beside.items() if name != "DuckDB" or has_duckdb()
        }
        times: dict[str, list[float]] = {name: [] for name in [*binaries, *peers]}
        environments = {
            name: {**os.environ, "LC_ALL": "C", "EYAS_HOME": tempfile.mkdtemp(dir=folder)}
            for name in binaries
        }
        commands: dict[str, str | list[str]] = {}
        for name, binary in binaries.items():
            text_program = str(binary.with_name("eyas-text"))
            commands[name] = [
                str(binary),
                "map",
                *[word.replace(str(TEXT), text_program) for word in words],
            ]
        commands |= peers
        with contextlib.ExitStack() as clusters:
            for name, binary in binaries.items():
                clusters.enter_context(Nodes(binary, asked.nodes, folder, environments[name]))
            for _, (name, command) in itertools.product(range(asked.runs), commands.items()):
                environment = environments.get(name, {**os.environ, "LC_ALL": "C"})
                times[name].append(timed(command, folder, environment, asked.cpuacct))
        for name, run_s in times.items():
            median = statistics.median(run_s)
            ratios = [f"{statistics.median(times[eyas]) / median:.2f}" for eyas in binaries]
            rows.append([work, name, median, *ratios])
    show(
        f"{text.stat().st_size / 1e6:.0f} MB, {asked.nodes} nodes, medians of {asked.runs} runs",
        [
            "work",
            "system",
            "processor s" if asked.cpuacct else "s",
            *[f"{name} of it" for name in binaries],
        ],
        rows,
    )


def has_duckdb() -> bool:
    """Whether this Python has DuckDB."""
    return importlib.util.find_spec("duckdb") is not None


class Nodes:
    """A local cluster that has the text and the tables."""

    def __init__(self, binary: Path, nodes: int, folder: Path, environment: dict[str, str]) -> None:
        """A cluster of this binary, with a home of its own."""
        self.binary, self.nodes, self.folder, self.environment = binary, nodes, folder, environment

    def run(self, *words: str) -> None:
        """Runs eyas."""
        command = [str(self.binary), *words]
        subprocess.run(
            command, cwd=self.folder, env=self.environment, check=True, stdout=subprocess.DEVNULL
        )

    def __enter__(self) -> None:
        """Starts it, puts the inputs."""
        self.run("start", "local", "--nodes", str(self.nodes), "--dfs", "--detach")
        for file in ["text", "marked"]:
            self.run(
                "dfs",
                "put",
                file,
                f"/{file}",
                "--replicas",
                "1",
                "--chunk-size",
                CHUNK,
                "--format",
                "lines",
            )

    def __exit__(self, *_: object) -> None:
        """Stops it."""
        self.run("stop")


def main() -> int:
    """Runs the experiment."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--cpuacct", type=Path)
    parser.add_argument("--tiny", action="store_true", help="one run over 2 MB with one node")
    asked = parser.parse_args()
    if asked.tiny:
        asked.megabytes, asked.runs, asked.nodes = 2, 1, 1
    with tempfile.TemporaryDirectory() as folder:
        measure(asked, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
