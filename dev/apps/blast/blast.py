#!/usr/bin/env python3
"""Searches a sequence database with BLAST for many queries, as tasks of eyas.

    blast.py --database PREFIX --queries FILE.fa --out HITS [options] [-- BLAST OPTIONS...]

The queries are split into groups; each group is a task. Every task has all files of the database as
inputs: each node fetches them once, for all tasks that it runs. The hits are joined in the order of
the queries, so that the result has the same bytes as one call of BLAST for all queries. Needs
Python 3.9 or later here, and BLAST+ (Debian's `ncbi-blast+`) on the nodes.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path


class BlastError(Exception):
    """The search cannot be run; the message says why."""


def database_files(prefix: Path) -> list[Path]:
    """The files of a database that `makeblastdb -out PREFIX` has made, in one or
    several volumes.
    """
    kind = re.compile(re.escape(prefix.name) + r"(\.\d\d+)?\.[np][a-z]{2}")
    found = sorted(
        path for path in prefix.parent.glob(f"{prefix.name}.*") if kind.fullmatch(path.name)
    )
    if not found:
        raise BlastError(
            f"there is no database {prefix}; `makeblastdb -in FILE.fa -dbtype prot -out {prefix}` "
            "makes one"
        )
    return found


def queries(path: Path) -> list[bytes]:
    """The sequences of a FASTA file, each with its header, in any encoding.

    BLAST calls a sequence without a name by its number in the file. A group would number it anew,
    so it gets that name.
    """
    before, *parts = re.split(
        rb"^(?=>)", path.read_bytes().removeprefix("\ufeff".encode()), flags=re.MULTILINE
    )
    # Lines with a semicolon are comments.
    if any(line.strip() and not line.startswith(b";") for line in before.splitlines()) or not parts:
        raise BlastError(f"{path} is not FASTA: no line with `>` is before its first sequence")
    name = rb">Query_%d\1"
    return [
        re.sub(rb"\A>[ \t]*(\r?\n|\Z)", name % number, part) for number, part in enumerate(parts, 1)
    ]


def groups(sequences: list[bytes], tasks: int | None, per_task: int) -> list[list[bytes]]:
    """Splits the queries, in their order, into `tasks` groups of nearly equal size, or into groups
    of `per_task`.
    """
    if tasks is None:
        return [sequences[first : first + per_task] for first in range(0, len(sequences), per_task)]
    if not 1 <= tasks <= len(sequences):
        raise BlastError(f"{len(sequences)} queries cannot make {tasks} tasks")
    ends = [len(sequences) * number // tasks for number in range(tasks + 1)]
    return [sequences[first:end] for first, end in zip(ends, ends[1:])]


def search(asked: argparse.Namespace) -> int:
    """Runs the search under eyas and joins the hits. Returns the number of tasks."""
    prefix = asked.database.absolute()
    files = database_files(prefix)
    parts = groups(queries(asked.queries), asked.tasks, asked.per_task)
    folder = asked.out.absolute().parent
    folder.mkdir(parents=True, exist_ok=True)
    # Queries and parts of the result, beside the result: the nodes must see this folder, too.
    with tempfile.TemporaryDirectory(prefix=f".{asked.out.name}.", dir=folder) as scratch:
        for number, part in enumerate(parts):
            (Path(scratch) / f"{number:06}.fa").write_bytes(b"".join(part))
        inputs = (
            [] if asked.in_place else [word for file in files for word in ("--input", str(file))]
        )
        name = str(prefix) if asked.in_place else prefix.name
        command = [
            asked.eyas,
            "run",
            *shlex.split(asked.run_with),
            "--name",
            asked.program.rsplit("/", 1)[-1],
        ]
        command += [
            "--each",
            f"{scratch}/*.fa",
            *inputs,
            "--output",
            f"hits={scratch}/{{/.}}.hits",
            "--",
        ]
        command += [
            asked.program,
            "-db",
            name,
            "-query",
            "{}",
            "-out",
            "hits",
            "-outfmt",
            asked.format,
            *asked.words,
        ]
        ran = subprocess.run(command)
        if ran.returncode:
            raise BlastError(
                f"eyas failed with exit code {ran.returncode}; {asked.out} is not written"
            )
        whole = Path(scratch) / "whole"
        with whole.open("wb") as file:
            for number in range(len(parts)):
                file.write((Path(scratch) / f"{number:06}.hits").read_bytes())
        whole.replace(asked.out)
    return len(parts)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--database",
        type=Path,
        required=True,
        metavar="PREFIX",
        help="as given to makeblastdb -out",
    )
    parser.add_argument(
        "--queries", type=Path, required=True, metavar="FILE", help="sequences in FASTA"
    )
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FILE",
        help="file of hits; all nodes must see it",
    )
    parser.add_argument(
        "--per-task", type=int, default=5, metavar="N", help="queries of a task (default: 5)"
    )
    parser.add_argument(
        "--tasks", type=int, metavar="N", help="instead, N tasks of nearly equal size"
    )
    parser.add_argument(
        "--program", default="blastp", help="blastp (default), blastn, blastx, tblastn ..."
    )
    parser.add_argument(
        "--format",
        default="6",
        metavar="OUTFMT",
        help="has no header or footer (default: 6, a table)",
    )
    parser.add_argument(
        "--in-place", action="store_true", help="read the database by its path, not as an input"
    )
    parser.add_argument("--eyas", default="eyas", metavar="PROGRAM", help="the eyas command")
    parser.add_argument(
        "--run-with", default="", metavar="OPTIONS", help="for eyas run, such as '--cluster lab'"
    )
    parser.add_argument(
        "words", nargs="*", metavar="BLAST OPTIONS", help="after `--`, such as -evalue 1e-5"
    )
    asked = parser.parse_args()
    if asked.per_task < 1:
        parser.error("--per-task must be 1 or more")
    try:
        tasks = search(asked)
    except (BlastError, OSError) as error:
        print(f"blast: {error}", file=sys.stderr)
        return 1
    print(f"{tasks} tasks; hits: {asked.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
