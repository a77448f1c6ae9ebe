#!/usr/bin/env python3
"""Benchmark: tasks a second of eyas and other systems on this machine, with one scheduler and two
workers each.

There are two kinds of task: a no-op, where a system has one (a Python function that returns at
once; eyas's own no-op), and ``/bin/true`` as a process. Each system runs in a process of its own.
Runs are interleaved; the median rate is printed, from the first submission to the last result,
without starting the workers. All listen on 127.0.0.1 only.

``dev/tools/peers.sh`` installs the systems that package registries have; missing ones are skipped
and named. The number of tasks suits each system's speed, so that a run takes seconds.

    dev/tools/peers.sh && target/peers/bin/python dev/experiments/noop_tasks.py [--tiny]
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PEERS = PROJECT / "target" / "peers" / "bin"
TRUE = "/bin/true"
ROUNDS = 3
DEADLINE_S = 180


def noop(_number: int) -> None:
    """A task that does nothing."""


def true(_number: int) -> None:
    """A task that runs a process. It imports what it needs, because Parsl sends the
    function alone.
    """
    import subprocess

    subprocess.run(["/bin/true", "1"], check=True)


def timed(run: Callable[[], object], tasks: int) -> float:
    """Tasks a second of one run."""
    began = time.perf_counter()
    run()
    return tasks / (time.perf_counter() - began)


def eyas(kind: str, tasks: int) -> float:
    """Runs two executors in a cluster of their own. The rate is the one that eyas reports."""
    binary = os.environ.get("EYAS_BIN") or str(PROJECT / "target" / "release" / "eyas")
    words = ["--noop"] if kind == "noop" else ["--", TRUE]
    with tempfile.TemporaryDirectory() as home:
        command = [binary, "run", "--array", f"1-{tasks}", "--report", "none", *words]
        ran = subprocess.run(
            command,
            env={**os.environ, "EYAS_HOME": home},
            check=True,
            capture_output=True,
            text=True,
        )
    told = re.search(r"\(([\d.]+)/s\)", ran.stderr)
    if told is None:
        raise RuntimeError(f"no rate in: {ran.stderr}")
    return float(told.group(1))


def dask(kind: str, tasks: int) -> float:
    """``distributed``: a scheduler and two worker processes of one thread."""
    from distributed import Client, LocalCluster

    function = noop if kind == "noop" else true
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        client.gather(client.map(function, range(10), pure=False))
        return timed(lambda: client.gather(client.map(function, range(tasks), pure=False)), tasks)


def parsl(kind: str, tasks: int) -> float:
    """Parsl's high-throughput executor with two workers."""
    import parsl as system
    from parsl.config import Config
    from parsl.executors import HighThroughputExecutor
    from parsl.providers import LocalProvider

    with tempfile.TemporaryDirectory() as folder:
        executor = HighThroughputExecutor(
            address="127.0.0.1",
            loopback_address="127.0.0.1",
            max_workers_per_node=2,
            encrypted=False,
            provider=LocalProvider(init_blocks=1, max_blocks=1),
        )
        config = Config(executors=[executor], run_dir=folder, usage_tracking=0)
        with system.load(config):
            app = system.python_app(noop if kind == "noop" else true)
            for future in [app(number) for number in range(10)]:
                future.result()

            def run() -> None:
                for future in [app(number) for number in range(tasks)]:
                    future.result()

            return timed(run, tasks)


def hyperqueue(_kind: str, tasks: int) -> float:
    """HyperQueue's server with two workers of one core; its tasks are processes."""
    from hyperqueue import Job, LocalCluster
    from hyperqueue.cluster import WorkerConfig

    with LocalCluster() as cluster:
        cluster.start_worker(WorkerConfig(cores=1))
        cluster.start_worker(WorkerConfig(cores=1))
        client = cluster.client()

        def run(count: int) -> None:
            job = Job()
            for _ in range(count):
                job.program([TRUE, "1"], stdout=None, stderr=None)
            client.wait_for_jobs([client.submit(job)])

        run(10)
        return timed(lambda: run(tasks), tasks)


def pipeline(command: list[str]) -> Callable[[str, int], float]:
    """A command that reads one item a line and runs a process for each."""

    def run(_kind: str, tasks: int) -> float:
        items = "".join(f"{number}\n" for number in range(tasks))
        return timed(
            lambda: subprocess.run([*command, TRUE], input=items, text=True, check=True), tasks
        )

    return run


PARALLEL = shutil.which("parallel") or str(PEERS / "parallel")

# Name, kind, tasks, how.
SYSTEMS: list[tuple[str, str, int, Callable[[str, int], float]]] = [
    ("eyas", "noop", 500_000, eyas),
    ("dask", "noop", 4_000, dask),
    ("parsl", "noop", 4_000, parsl),
    ("eyas", "true", 3_000, eyas),
    ("hyperqueue", "true", 3_000, hyperqueue),
    ("xargs", "true", 2_000, pipeline(["xargs", "-P2", "-n1"])),
    ("parallel", "true", 500, pipeline([PARALLEL, "-j2", "--will-cite"])),
    ("dask", "true", 1_000, dask),
    ("parsl", "true", 1_000, parsl),
]


def measure_apart(place: int, tasks: int) -> float | str:
    """The rate of one run in a process of its own, or the reason why it failed."""
    command = [sys.executable, __file__, "--one", str(place), "--tasks", str(tasks)]
    # Parsl looks for its own programs on the PATH.
    environment = {**os.environ, "PATH": f"{PEERS}{os.pathsep}{os.environ.get('PATH', '')}"}
    try:
        ran = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return f"not done in {DEADLINE_S} s"
    told = [line for line in ran.stdout.splitlines() if line.startswith("rate ")]
    if ran.returncode != 0 or not told:
        return (ran.stderr.strip().splitlines() or ["it failed"])[-1]
    return float(told[-1].split()[1])


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description="Tasks a second, eyas and its peers.")
    parser.add_argument("--tiny", action="store_true", help="quick test; the figures mean nothing")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--tasks", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one is not None:
        _, kind, _, run = SYSTEMS[args.one]
        print("rate", run(kind, args.tasks), flush=True)
        return
    rates: dict[int, list[float]] = {place: [] for place in range(len(SYSTEMS))}
    missing: dict[int, str] = {}
    for _ in range(1 if args.tiny else ROUNDS):
        for place, (_, _, tasks, _) in enumerate(SYSTEMS):
            if place in missing:
                continue
            rate = measure_apart(place, 20 if args.tiny else tasks)
            if isinstance(rate, str):
                missing[place] = rate
            else:
                rates[place].append(rate)
    print("task  system         tasks/s   eyas is")
    best: dict[str, float] = {}
    for place, (name, kind, _, _) in enumerate(SYSTEMS):
        if place in missing:
            print(f"{kind:<6}{name:<12}not measured: {missing[place]}")
            continue
        rate = statistics.median(rates[place])
        best.setdefault(kind, rate)
        print(f"{kind:<6}{name:<12}{rate:>10.0f}{best[kind] / rate:>9.1f} x")


if __name__ == "__main__":
    main()
