#!/usr/bin/env python3
"""Benchmark: calls of functions a second, beside the executors that a user would take instead.

Run it with an interpreter that has eyas; `dask[distributed]`, `joblib`, `parsl` and `ray` are
measured if it has them. All have two workers on this machine and take turns in each round:

- `submit`: calls of a function that does nothing, one `submit` each, until all results are here;
- `map`: the same in chunks of 100, where the executor has chunks;
- `sequence`: one call after another, each after the result of the one before;
- `large`: calls that return 2 MiB each, until all results are here, which eyas fetches from files
  of the node.

The functions, of which `--functions` names some:

- `abs`: a function of the interpreter, pickled by its name;
- `main`: a function of this script, which only `ProcessPoolExecutor` can pickle by its name;
- `closure`: a function that refers to 1 MB. `ProcessPoolExecutor` cannot pickle it, and gets a
  partial with the same 1 MB;
- `method`: a method of an object of this script;
- `partial`: a partial of a function of this script.

Prints medians of calls a second, and of the ratios to `ProcessPoolExecutor` in the same round.
Beside that: how long `import eyas` takes, and the time from `eyas.local()` to the first result.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import eyas

WORKERS = 2
LARGE = 2 << 20
#: Bytes to which the closure refers.
REFERRED = 1_000_000


def double(number: int) -> int:
    """A function of the main script."""
    return 2 * number


def large(size: int) -> bytes:
    """A function of the main script with a large result."""
    return bytes(size)


def product(factor: int, number: int) -> int:
    """A function for partials."""
    return factor * number


def beside(table: bytes, number: int) -> int:
    """A function for partials with a large value."""
    return number + table[number % len(table)]


class Doubling:
    """An object of the main script."""

    def __init__(self) -> None:
        self.factor = 2

    def of(self, number: int) -> int:
        """A method."""
        return self.factor * number


def closure() -> Callable[[int], int]:
    """A function that refers to 1 MB."""
    table = bytes(REFERRED)
    return lambda number: number + table[number % REFERRED]


#: How each function is made, and what it makes of a number.
FUNCTIONS: dict[str, tuple[Callable[[], Callable[..., Any]], int]] = {
    "abs": (lambda: abs, 1),
    "main": (lambda: double, 2),
    "closure": (closure, 1),
    "method": (lambda: Doubling().of, 2),
    "partial": (lambda: functools.partial(product, 2), 2),
}


def function_for(kind: str, executor: Any) -> Callable[..., Any]:
    """Return a function of a kind, as the executor can pickle it."""
    if kind == "closure" and isinstance(executor, futures.ProcessPoolExecutor):
        return functools.partial(beside, bytes(REFERRED))
    return FUNCTIONS[kind][0]()


def rate(count: int, work: Callable[[], object]) -> float:
    """Calls a second."""
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


def measure(
    executor: Any, kind: str, calls: int, singles: int, has_chunks: bool
) -> dict[str, float]:
    """Rates of an executor that has `submit`, with a function of a kind."""
    function, factor = function_for(kind, executor), FUNCTIONS[kind][1]
    for future in [executor.submit(function, 1) for _ in range(10)]:
        future.result()

    def submit() -> None:
        results = [executor.submit(function, number) for number in range(calls)]
        assert [future.result() for future in results] == [n * factor for n in range(calls)]

    def sequence() -> None:
        for number in range(singles):
            assert executor.submit(function, number).result() == number * factor

    found = {"submit": rate(calls, submit)}
    if has_chunks:
        found["map"] = rate(
            10 * calls, lambda: list(executor.map(function, range(10 * calls), chunksize=100))
        )
    found["sequence"] = rate(singles, sequence)
    if kind in ("abs", "main"):
        make, count = (bytes if kind == "abs" else large), max(1, singles // 5)

        def results() -> None:
            made = [executor.submit(make, LARGE) for _ in range(count)]
            assert all(len(future.result()) == LARGE for future in made)

        found["large"] = rate(count, results)
    return found


@contextmanager
def dask_client() -> Iterator[Any]:
    """Dask's scheduler and workers in processes of their own."""
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            yield client.get_executor(pure=False)


@contextmanager
def parsl_executor() -> Iterator[Any]:
    """Parsl's HighThroughputExecutor."""
    import parsl
    from parsl.config import Config
    from parsl.executors import HighThroughputExecutor

    executor = HighThroughputExecutor(label="htex", max_workers_per_node=WORKERS, encrypted=False)
    # It starts programs that are beside the interpreter.
    os.environ["PATH"] = f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"
    with parsl.load(Config(executors=[executor], run_dir="/tmp/parsl-bench")):

        class Calls:
            def submit(self, function: Callable[..., Any], *args: Any) -> Any:
                return executor.submit(function, {}, *args)

        yield Calls()


@contextmanager
def joblib_loky() -> Iterator[Any]:
    """The reusable executor of loky, which is joblib's default."""
    from joblib.externals.loky import ProcessPoolExecutor

    with ProcessPoolExecutor(WORKERS) as executor:
        yield executor


@contextmanager
def ray_calls() -> Iterator[Any]:
    """Ray's remote functions."""
    import ray

    ray.init(num_cpus=WORKERS, include_dashboard=False, logging_level="error")

    class Result:
        def __init__(self, reference: Any) -> None:
            self.reference = reference

        def result(self) -> Any:
            return ray.get(self.reference)

    class Calls:
        known: dict[Any, Any] = {}

        def submit(self, function: Callable[..., Any], *args: Any) -> Result:
            if function not in self.known:
                self.known[function] = ray.remote(lambda *args: function(*args))
            return Result(self.known[function].remote(*args))

    try:
        yield Calls()
    finally:
        ray.shutdown()


SYSTEMS: dict[str, tuple[Callable[[], Any], bool]] = {
    "ProcessPoolExecutor": (lambda: futures.ProcessPoolExecutor(WORKERS), True),
    "eyas": (lambda: eyas.local(max_workers=WORKERS), True),
    "loky": (joblib_loky, True),
    "Dask": (dask_client, False),
    "Parsl HTEX": (parsl_executor, False),
    "Ray": (ray_calls, False),
}


def table(rounds: list[dict[str, dict[str, float]]]) -> None:
    """Prints the medians of each system."""
    print("| executor | `submit` | ratio | `map` | ratio | `sequence` | ratio | `large` | ratio |")
    print(f"|{' --- |' * 9}")
    for system in rounds[0]:
        cells = []
        for what in "submit", "map", "sequence", "large":
            found = [
                (turn[system][what], turn["ProcessPoolExecutor"][what])
                for turn in rounds
                if what in turn.get(system, {})
            ]
            if not found:
                cells += ["", ""]
                continue
            cells.append(f"{statistics.median(own for own, _ in found):,.0f}")
            cells.append(f"{statistics.median(own / pool for own, pool in found):.2f}")
        print(f"| {system} | {' | '.join(cells)} |")


def main() -> None:
    """Measures in turns and prints a table for each function."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--calls", type=int, default=20_000, help="calls of eyas and the process pools in a round"
    )
    parser.add_argument("--fewer", type=int, default=2_000, help="calls of the others")
    parser.add_argument("--singles", type=int, default=500, help="calls one after another")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--functions", nargs="+", choices=FUNCTIONS, default=[*FUNCTIONS])
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=[*SYSTEMS])
    parser.add_argument("--tiny", action="store_true", help="quick test; the figures mean nothing")
    asked = parser.parse_args()
    if asked.tiny:
        vars(asked).update(calls=200, fewer=20, singles=20, rounds=1)
    # Ratios are to this one.
    systems = list(dict.fromkeys(["ProcessPoolExecutor", *asked.systems]))
    rounds: dict[str, list[dict[str, dict[str, float]]]] = {kind: [] for kind in asked.functions}
    missing: dict[str, str] = {}
    for number in range(asked.rounds):
        for kind, before in rounds.items():
            turns = {}
            for system in systems:
                if system in missing:
                    continue
                start, has_chunks = SYSTEMS[system]
                # A megabyte goes with each call of a process pool.
                calls = (asked.calls if has_chunks else asked.fewer) // (
                    10 if kind == "closure" else 1
                )
                try:
                    with start() as executor:
                        turns[system] = measure(executor, kind, calls, asked.singles, has_chunks)
                except ImportError as error:
                    missing[system] = str(error)
            before.append(turns)
        print(f"round {number + 1} of {asked.rounds}", file=sys.stderr)
    for kind, before in rounds.items():
        print(f"\nFunction: `{kind}`\n")
        table(before)
    for system, why in missing.items():
        print(f"{system} was not measured: {why}", file=sys.stderr)
    times_of_start()


def times_of_start() -> None:
    """Prints how long the package and a cluster take to start."""
    for what, program in (
        ("import eyas", IMPORT),
        ("eyas.local() to the first result", FIRST_RESULT),
    ):
        command = [sys.executable, "-c", program]
        times = [
            float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            for _ in range(5)
        ]
        print(f"{what}: {statistics.median(times) * 1000:.0f} ms")


IMPORT = """
import time
began = time.perf_counter()
import eyas
eyas.local
print(time.perf_counter() - began)
"""

FIRST_RESULT = """
import eyas, time
began = time.perf_counter()
with eyas.local() as executor:
    executor.submit(abs, -1).result()
    print(time.perf_counter() - began)
"""


if __name__ == "__main__":
    main()
