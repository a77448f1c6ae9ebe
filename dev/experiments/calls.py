#!/usr/bin/env python3
"""Benchmark: calls of functions a second, beside the executors that a user would take instead.

Run it with an interpreter that has eyas; `dask[distributed]`, `joblib`, `parsl` and `ray` are
measured if it has them. All have two workers on this machine and take turns in each round:

- `submit`: calls of a function that does nothing, one `submit` each, until all results are here;
- `map`: the same in chunks of 100, where the executor has chunks;
- `sequence`: one call after another, each after the result of the one before;
- `large`: calls that return 2 MiB each, until all results are here, which eyas fetches from files
  of the node.

Prints medians of calls a second, and the ratio to `ProcessPoolExecutor` in the same round. Beside
that: how long `import eyas` takes, and the time from `eyas.local()` to the first result.
"""

from __future__ import annotations

import argparse
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


def rate(count: int, work: Callable[[], object]) -> float:
    """Calls a second."""
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


def measure(executor: Any, calls: int, has_chunks: bool) -> dict[str, float]:
    """Rates of an executor that has `submit`."""
    for future in [executor.submit(abs, -1) for _ in range(10)]:
        future.result()

    def submit() -> None:
        results = [executor.submit(abs, -number) for number in range(calls)]
        assert [future.result() for future in results] == list(range(calls))

    found = {"submit": rate(calls, submit)}
    if has_chunks:
        found["map"] = rate(
            10 * calls, lambda: list(executor.map(abs, range(10 * calls), chunksize=100))
        )

    def large() -> None:
        results = [executor.submit(bytes, LARGE) for _ in range(100)]
        assert all(len(future.result()) == LARGE for future in results)

    found["large"] = rate(100, large)
    found["sequence"] = rate(500, lambda: [executor.submit(abs, -1).result() for _ in range(500)])
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


def main() -> None:
    """Measures in turns and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--calls", type=int, default=20_000, help="calls of eyas and the process pools in a round"
    )
    parser.add_argument("--fewer", type=int, default=2_000, help="calls of the others")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="quick test; the figures mean nothing")
    asked = parser.parse_args()
    if asked.tiny:
        vars(asked).update(calls=200, fewer=20, rounds=1)
    rounds: list[dict[str, dict[str, float]]] = []
    missing: dict[str, str] = {}
    for number in range(asked.rounds):
        turns = {}
        for system, (start, has_chunks) in SYSTEMS.items():
            if system in missing:
                continue
            try:
                with start() as executor:
                    turns[system] = measure(
                        executor, asked.calls if has_chunks else asked.fewer, has_chunks
                    )
            except ImportError as error:
                missing[system] = str(error)
        rounds.append(turns)
        print(f"round {number + 1} of {asked.rounds}", file=sys.stderr)
    print("| executor | `submit` | ratio | `map` | ratio | `sequence` | ratio | `large` | ratio |")
    print(f"|{' --- |' * 9}")
    for system in rounds[0]:
        cells = []
        for what in "submit", "map", "sequence", "large":
            found = [
                (turn[system][what], turn["ProcessPoolExecutor"][what])
                for turn in rounds
                if what in turn[system]
            ]
            if not found:
                cells += ["", ""]
                continue
            cells.append(f"{statistics.median(own for own, _ in found):,.0f}")
            cells.append(f"{statistics.median(own / pool for own, pool in found):.2f}")
        print(f"| {system} | {' | '.join(cells)} |")
    for system, why in missing.items():
        print(f"{system} was not measured: {why}", file=sys.stderr)

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
