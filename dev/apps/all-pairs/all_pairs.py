#!/usr/bin/env python3
"""All-Pairs: runs a program on every pair of files from two lists, and collects the printed numbers
in a matrix.

    all_pairs.py --rows FILE... [--columns FILE...] --out FOLDER [options] -- PROGRAM [WORDS...]

`PROGRAM WORDS... A B` is run for each row's file A and each column's file B. Without columns the
rows are compared with themselves. The matrix is divided into square blocks. Each block is a task of
eyas, whose inputs are the files of its rows and columns: the number of inputs is bounded, and each
file that a node has fetched serves all pairs of a block. Needs Python 3.9 or later, here and on the
nodes, and nothing else.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

# The files of a block are words of its task's command, and a command line holds some 2 MB of paths;
# a job may have 65535 different commands (`MAX_TEMPLATES` of eyas), and here each task has its own.
MAX_BLOCK = 2000
MAX_TASKS = 65_535
BLOCK_PROGRAM = Path(__file__).resolve().parent / "block.py"

Block = tuple[range, range]


class AllPairsError(Exception):
    """The matrix cannot be computed; the message says why."""


def cut(rows: int, columns: int, side: int, symmetric: bool) -> Iterator[Block]:
    """Divides a matrix into blocks of at most `side` rows and columns; for a symmetric one, without
    the lower half.
    """
    for top in range(0, rows, side):
        for left in range(top if symmetric else 0, columns, side):
            yield range(top, min(top + side, rows)), range(left, min(left + side, columns))


def block_file(folder: Path, block: Block) -> Path:
    """The file of a block's values."""
    return folder / "blocks" / f"{block[0].start}-{block[1].start}.csv"


def task(
    block: Block, rows: list[Path], columns: list[Path], asked: argparse.Namespace
) -> dict[str, object]:
    """The task of a block as a line of a job file. Inputs are named by row and column, because
    names may repeat.
    """
    row_names = {f"r{number}-{rows[number].name}": rows[number] for number in block[0]}
    column_names = {f"c{number}-{columns[number].name}": columns[number] for number in block[1]}
    inputs = {"block.py": BLOCK_PROGRAM, **row_names, **column_names}
    program, *words = asked.program
    if "/" in program:
        name = f"program-{Path(program).name}"
        inputs[name] = Path(program).absolute()
        program = f"./{name}"
    inputs.update({path.name: path.absolute() for path in asked.input})
    is_diagonal = asked.symmetric and block[0].start == block[1].start
    command = ["python3", "block.py", *(["--triangle"] if is_diagonal else [])]
    command += ["--rows", *row_names, "--columns", *column_names, "--", program, *words]
    return {
        "command": command,
        "folder": "sandbox",
        "inputs": [{"path": str(path), "name": name} for name, path in inputs.items()],
        "outputs": [{"file": "block.csv", "to": str(block_file(asked.out, block))}],
        "retries": asked.retries,
    }


@contextlib.contextmanager
def cluster(eyas: str, nodes: int) -> Iterator[dict[str, str]]:
    """The environment for `eyas`: the cluster that the user named, or a new local one that is
    stopped at the end.
    """
    environment = dict(os.environ)
    if environment.get("EYAS_CLUSTER") or environment.get("EYAS_ACCESS"):
        yield environment
        return
    environment["EYAS_CLUSTER"] = f"all-pairs-{os.getpid()}"
    subprocess.run(
        [eyas, "start", "local", "--detach", "--nodes", str(nodes)], env=environment, check=True
    )
    try:
        yield environment
    finally:
        subprocess.run([eyas, "stop"], env=environment, check=False)


def compute(tasks: list[dict[str, object]], asked: argparse.Namespace) -> None:
    """Submits the tasks and waits for them."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", prefix="all-pairs-") as job:
        job.writelines(json.dumps(task) + "\n" for task in tasks)
        job.flush()
        with cluster(asked.eyas, asked.nodes) as environment:
            submit = [asked.eyas, "submit", "--wait", job.name]
            ran = subprocess.run(submit, env=environment, stdout=subprocess.PIPE, text=True)
            number = ran.stdout.strip()
            if ran.returncode and number:
                task = first_failed(asked.eyas, number, environment)
                subprocess.run(
                    [asked.eyas, "task", "log", "--stderr", task],
                    env=environment,
                    stdout=sys.stderr,
                )
    if ran.returncode:
        raise AllPairsError(f"some blocks failed; the others are in {asked.out / 'blocks'}")


def first_failed(eyas: str, job: str, environment: dict[str, str]) -> str:
    """The first failed task of a job."""
    words = [eyas, "--json", "task", "list", job, "--failed", "--limit", "1"]
    answer = subprocess.run(words, env=environment, stdout=subprocess.PIPE, check=True)
    tasks = json.loads(answer.stdout)["tasks"]
    return str(tasks[0]["task"]) if tasks else f"{job}.0"


def collect(
    blocks: list[Block], rows: int, columns: int, asked: argparse.Namespace
) -> list[list[str]]:
    """The whole matrix, as the program printed it."""
    matrix = [[""] * columns for _ in range(rows)]
    for block in blocks:
        with block_file(asked.out, block).open(newline="") as file:
            for row, values in zip(block[0], csv.reader(file)):
                for column, value in zip(block[1], values):
                    if value:
                        matrix[row][column] = value
                        if asked.symmetric:
                            matrix[column][row] = value
    return matrix


def write_csv(path: Path, matrix: list[list[str]], rows: list[Path], columns: list[Path]) -> None:
    """Writes the matrix with the names of the files in the first row and column."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["", *map(str, columns)])
        writer.writerows([str(row), *values] for row, values in zip(rows, matrix))


def write_npy(path: Path, matrix: list[list[str]]) -> None:
    """Writes NumPy's `.npy`, version 1.0: magic, length and text of a header, then rows of 64-bit
    floats.
    """
    shape = (len(matrix), len(matrix[0]))
    header = repr({"descr": "<f8", "fortran_order": False, "shape": shape}).encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    values = array.array("d", (float(value) for row in matrix for value in row))
    if sys.byteorder == "big":
        values.byteswap()
    path.write_bytes(
        b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + values.tobytes()
    )


def parse() -> argparse.Namespace:
    """Reads and checks the arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        fromfile_prefix_chars="@",
    )
    parser.add_argument(
        "--rows",
        nargs="+",
        type=Path,
        required=True,
        metavar="FILE",
        help="files, or @LIST: one on each line",
    )
    parser.add_argument(
        "--columns", nargs="+", type=Path, metavar="FILE", help="likewise (default: the rows)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="write matrix.csv and matrix.npy to this folder",
    )
    parser.add_argument(
        "--block",
        type=int,
        default=16,
        metavar="N",
        help="rows and columns of a task (default: 16)",
    )
    parser.add_argument(
        "--symmetric", action="store_true", help="F(a, b) is F(b, a): compute one of the two"
    )
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="a further file for the program",
    )
    parser.add_argument(
        "--retries",
        type=int,
        default=0,
        metavar="N",
        help="number of retries of a failed block (default: 0)",
    )
    parser.add_argument("--eyas", default="eyas", metavar="PROGRAM", help="the eyas command")
    parser.add_argument(
        "--nodes",
        type=int,
        default=2,
        metavar="N",
        help="executors of a new local cluster (default: 2)",
    )
    parser.add_argument(
        "program", nargs="+", metavar="PROGRAM", help="the program and its first words, after `--`"
    )
    asked = parser.parse_args()
    if not 1 <= asked.block <= MAX_BLOCK:
        parser.error(
            f"--block is from 1 to {MAX_BLOCK}: all rows and columns of a block are inputs of one "
            "task"
        )
    if asked.symmetric and asked.columns:
        parser.error("--symmetric compares the rows with themselves: leave out --columns")
    missing = [
        path for path in [*asked.rows, *(asked.columns or []), *asked.input] if not path.is_file()
    ]
    if missing:
        parser.error(f"not a file: {missing[0]}")
    asked.out = asked.out.absolute()
    return asked


def main() -> int:
    """The command line."""
    asked = parse()
    rows = [path.absolute() for path in asked.rows]
    columns = [path.absolute() for path in asked.columns] if asked.columns else rows
    blocks = list(cut(len(rows), len(columns), asked.block, asked.symmetric))
    try:
        if len(blocks) > MAX_TASKS:
            raise AllPairsError(
                f"{len(blocks)} blocks, but a job can have at most {MAX_TASKS}: make --block larger"
            )
        shutil.rmtree(asked.out / "blocks", ignore_errors=True)
        asked.out.mkdir(parents=True, exist_ok=True)
        compute([task(block, rows, columns, asked) for block in blocks], asked)
        matrix = collect(blocks, len(rows), len(columns), asked)
    except (AllPairsError, OSError, subprocess.CalledProcessError) as error:
        print(f"all-pairs: {error}", file=sys.stderr)
        return 1
    write_csv(asked.out / "matrix.csv", matrix, asked.rows, asked.columns or asked.rows)
    write_npy(asked.out / "matrix.npy", matrix)
    shutil.rmtree(asked.out / "blocks")
    print(
        f"{len(rows)} x {len(columns)} values from {len(blocks)} tasks: matrix.csv and matrix.npy "
        f"in {asked.out}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
