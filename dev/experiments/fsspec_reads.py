#!/usr/bin/env python3
"""Reads files of the cluster by fsspec, beside the local file system on the same disk.

Starts a cluster of one node that keeps files in `--folder`, stores a NumPy array and a Parquet
table of `--size` MB there, and copies both into a local folder beside it. The two take turns in
each round, and the one that begins changes. Every read has a session of its own. The chunks were
checked against their checksums by an earlier read; with `--first`, each read checks all of them.
Prints the medians, and the ratio of the rates in the same round. With `--cold`, the page cache is
emptied before each read, which needs root; otherwise everything is in the page cache.

Run it with the Python that has the package `eyas` of a release build, fsspec, numpy and pyarrow.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import fsspec
import numpy
import pyarrow
import pyarrow.fs
import pyarrow.parquet
from eyas.fs import EyasFileSystem

GOAL = 0.9
#: What processes of this user have checked on this machine.
CHECKED = Path(f"/dev/shm/eyas-checked-{os.getuid()}")
Readers = dict[str, tuple[Callable[[], object], Callable[[], object]]]


def seconds(work: Callable[[], object], is_cold: bool) -> float:
    """Time of one read, without that of freeing its result."""
    gc.collect()
    if is_cold:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3")
    began = time.perf_counter()
    result = work()
    took = time.perf_counter() - began
    del result
    return took


def store(cluster: EyasFileSystem, local: Path, megabytes: int) -> None:
    """Makes the files."""
    rows = megabytes * 1_000_000 // 8
    values = numpy.random.default_rng(1).random(rows)
    numpy.save(local / "array.npy", values)
    columns = {
        f"column{number}": part
        for number, part in enumerate(numpy.array_split(values[: rows // 8 * 8], 8))
    }
    pyarrow.parquet.write_table(
        pyarrow.table(columns), local / "table.parquet", compression="none", use_dictionary=False
    )
    for name in ("array.npy", "table.parquet"):
        cluster.put_file(local / name, f"/{name}", replicas=1)
        assert (local / name).read_bytes() == cluster.cat_file(f"/{name}")


def array(fs: fsspec.AbstractFileSystem, path: str) -> object:
    with fs.open(path) as file:
        return numpy.load(file)


def into(fs: fsspec.AbstractFileSystem, path: str) -> object:
    content = numpy.empty(fs.size(path), numpy.uint8)
    with fs.open(path) as file:
        assert file.readinto(content) == len(content)
    return content


def readers(access: str, local: Path, is_first: bool) -> Readers:
    """What is measured: for the local folder, and for the cluster."""
    here = fsspec.filesystem("file")

    def there() -> EyasFileSystem:
        if is_first:
            CHECKED.unlink(missing_ok=True)
        return EyasFileSystem(access=access, skip_instance_cache=True)

    npy, parquet = str(local / "array.npy"), str(local / "table.parquet")
    read_table = pyarrow.parquet.read_table
    return {
        "cat_file": (lambda: here.cat_file(npy), lambda: there().cat_file("/array.npy")),
        "readinto": (lambda: into(here, npy), lambda: into(there(), "/array.npy")),
        "numpy.load": (lambda: array(here, npy), lambda: array(there(), "/array.npy")),
        "Parquet, beside fsspec's local files": (
            lambda: read_table(parquet, filesystem=here),
            lambda: read_table("/table.parquet", filesystem=there()),
        ),
        "Parquet, beside pyarrow's local files": (
            lambda: read_table(parquet, filesystem=pyarrow.fs.LocalFileSystem()),
            lambda: read_table("/table.parquet", filesystem=there()),
        ),
    }


def measure(work: Readers, rounds: int, megabytes: int, is_cold: bool) -> bool:
    """Prints a table. Returns whether the goal is reached."""
    is_reached = True
    print(f"| read | local MB/s | eyas MB/s | ratio | range |\n{'| --- ' * 5}|")
    for name, pair in work.items():
        for read in pair:
            seconds(read, is_cold)
        times: list[list[float]] = [[], []]
        for number in range(rounds):
            for which in (0, 1) if number % 2 == 0 else (1, 0):
                times[which].append(seconds(pair[which], is_cold))
        ratios = [local / eyas for local, eyas in zip(*times, strict=True)]
        ratio = statistics.median(ratios)
        local, eyas = (megabytes / statistics.median(one) for one in times)
        found = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"| {name} | {local:,.0f} | {eyas:,.0f} | {ratio:.2f} | {found} |", flush=True)
        is_reached &= ratio >= GOAL
    return is_reached


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=1000, help="megabytes of each file")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--first", action="store_true", help="have each read check all chunks")
    parser.add_argument("--cold", action="store_true", help="empty the page cache before each read")
    parser.add_argument(
        "--folder", type=Path, help="on the disk that is measured; default: a temporary folder"
    )
    parser.add_argument("--only", default="", help="only measure reads with this in their names")
    parser.add_argument("--tiny", action="store_true", help="quick test; the figures mean nothing")
    options = parser.parse_args()
    if options.tiny:
        vars(options).update(size=2, rounds=1)
    folder = Path(tempfile.mkdtemp(prefix="eyas-fsspec-", dir=options.folder))
    access, local = folder / "cluster" / "access.toml", folder / "local"
    local.mkdir()
    access.parent.mkdir()
    words = [
        "start",
        "local",
        "--owned",
        "--ephemeral",
        "--dfs",
        "--nodes",
        "1",
        "--access",
        str(access),
    ]
    words += ["--cache", f"{4 * options.size + 1000}MB"]
    cluster = subprocess.Popen(
        [sys.executable, "-m", "eyas", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert cluster.stdin is not None and cluster.stdout is not None
    try:
        assert any(line.strip() == b"ready" for line in cluster.stdout), "the cluster did not start"
        store(EyasFileSystem(access=str(access)), local, options.size)
        work = readers(str(access), local, options.first)
        work = {name: pair for name, pair in work.items() if options.only in name}
        print(
            f"load average before: {os.getloadavg()[0]:.1f}; page cache "
            f"{'cold' if options.cold else 'warm'}"
        )
        return 0 if measure(work, options.rounds, options.size, options.cold) or options.tiny else 1
    finally:
        cluster.stdin.close()
        cluster.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
