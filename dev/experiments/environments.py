#!/usr/bin/env python3
"""Benchmark: what an environment costs, and what workers that stay save.

Run it with an interpreter that has eyas, on a machine with `tar`.

- environment: time to pack a virtual environment and its size, beside `tar czf`; time from the
  start of a cluster to the results of two calls on its two nodes, which have not unpacked the
  environment, when the client packs it, when it has packed it before, and without an environment;
- import: 200 calls of a function whose module takes 2 s to import, with two workers, beside
  `ProcessPoolExecutor`.

`--environment` names another environment than that of this interpreter. Prints medians of the
rounds.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent import futures
from typing import Any

import eyas

#: A module that takes long, and notes how often it was imported.
SLOW = """
import os, pathlib, time
time.sleep({seconds})
pathlib.Path({notes!r}, f"{{os.getpid()}}-{{time.monotonic_ns()}}").touch()

def call(number):
    return number
"""


def seconds_of(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def first_result(**options: Any) -> float:
    """Time from the start of a cluster with two nodes to the results of two calls."""
    began = time.perf_counter()
    with eyas.local(nodes=2, max_workers=2, **options) as executor:
        futures.wait([executor.submit(abs, -1) for _ in range(2)])
        return time.perf_counter() - began


def environments(environment: str, rounds: int, folder: pathlib.Path) -> None:
    from eyas._environments import packing

    os.environ[packing.CACHE_VARIABLE] = str(folder / "cache")
    times: dict[str, list[float]] = {}
    size = 0

    def note(what: str, seconds: float) -> None:
        times.setdefault(what, []).append(seconds)

    tar = folder / "tar.gz"
    for _ in range(rounds):
        shutil.rmtree(folder / "cache", ignore_errors=True)
        note("eyas packs it", seconds_of(lambda: packing.prepare(environment, None)))
        size = os.path.getsize(packing.prepare(environment, None).archive)
        note("eyas finds it packed", seconds_of(lambda: packing.prepare(environment, None)))
        words = ["tar", "--create", "--gzip", "--file", str(tar), "--directory", environment, "."]
        note("tar czf", seconds_of(lambda: subprocess.run(words, check=True)))
        note("first results, packed before", first_result(environment=environment))
        note("first results, without an environment", first_result())
        shutil.rmtree(folder / "cache")
        note("first results, packed now", first_result(environment=environment))
    files = [
        path
        for path in pathlib.Path(environment).rglob("*")
        if path.is_file() and not path.is_symlink()
    ]
    content = sum(path.stat().st_size for path in files)
    print(
        f"environment: {len(files)} files, {content / 1e6:.1f} MB; archive {size / 1e6:.1f} MB, by "
        "tar",
        end=" ",
    )
    print(f"{tar.stat().st_size / 1e6:.1f} MB")
    for what, seconds in times.items():
        print(f"  {what:40} {statistics.median(seconds):7.2f} s")


def imports(rounds: int, calls: int, seconds: float, folder: pathlib.Path) -> None:
    notes = folder / "notes"
    (folder / "slow_module.py").write_text(SLOW.format(seconds=seconds, notes=str(notes)))
    # The program itself does not import it: its workers would inherit it.
    (folder / "calls_of_slow.py").write_text(
        "def call(n):\n    import slow_module\n    return slow_module.call(n)\n"
    )
    sys.path.insert(0, str(folder))
    import calls_of_slow  # type: ignore[import-not-found]

    times: dict[str, list[tuple[float, int]]] = {"eyas": [], "ProcessPoolExecutor": []}
    for _ in range(rounds):
        for name, start in (
            ("eyas", lambda: eyas.local(max_workers=2)),
            ("ProcessPoolExecutor", lambda: futures.ProcessPoolExecutor(2)),
        ):
            shutil.rmtree(notes, ignore_errors=True)
            notes.mkdir()
            with start() as executor:
                took = seconds_of(lambda: list(executor.map(calls_of_slow.call, range(calls))))
            times[name].append((took, len(os.listdir(notes))))
    print(f"import: {calls} calls of a module that takes {seconds} s to import, two workers")
    for name, seen in times.items():
        imported = sorted({count for _, count in seen})
        print(
            f"  {name:40} {statistics.median(took for took, _ in seen):7.2f} s, imported "
            f"{imported} times"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--environment", default=sys.prefix)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--import-seconds", type=float, default=2.0)
    parser.add_argument("--tiny", action="store_true", help="quick test; the figures mean nothing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.tiny:
            # As `eyas`, what it needs is in the new environment through the interpreter's own.
            small = f"{folder}/environment"
            subprocess.run(
                [sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", small],
                check=True,
            )
            vars(options).update(environment=small, rounds=1, calls=10, import_seconds=0.01)
        environments(os.path.abspath(options.environment), options.rounds, pathlib.Path(folder))
        imports(options.rounds, options.calls, options.import_seconds, pathlib.Path(folder))


if __name__ == "__main__":
    main()
