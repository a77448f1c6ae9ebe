#!/usr/bin/env python3
"""Experiment: nodes on demand from a real Slurm, which runs on this machine
(`dev/testbed/slurm.sh`). Needs root.

    dev/experiments/pools_on_slurm.py first|pending|loads|limits [--tiny]

- first: from the start of `eyas run --pool slurm` until its task runs, beside `sbatch`,
  dask-jobqueue and Parsl. Peers are those of `dev/tools/peers.sh dask-jobqueue`; a missing one is
  named
- pending: many requests wait in Slurm, in a partition that is down. The calls of `squeue`, and the
  processor time of the dispatcher
- loads: MI and SW of data-diffusion §5 with a pool of up to 8 nodes, beside 8 nodes all the time
  and beside the simulator. Rates and times are scaled down; tasks only sleep
- limits: what it costs to keep the limits of tasks that run `/bin/true`; needs no Slurm

Ways take turns in each round, or run side by side (loads). Prints medians.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from arrivals import scaled, write_trace
from measured import COMMAND, PROJECT, MeasuredCluster
from slurm_cluster import Slurm, SlurmDispatcher, wait_until
from table import conclude, show

PEERS = Path(os.environ.get("CARGO_TARGET_DIR") or PROJECT / "target") / "peers" / "bin"
PEER_DEADLINE_S = 180
FIRST_GOAL_S = 1.5
SQUEUE_PAUSE_S, CORE_GOAL = 10.0, 0.01
TIME_GOAL, NODES_GOAL, SIMULATOR_GOAL = 1.05, 0.5, 0.1
NODES, CPUS = 8, 2
# The paper's nodes leave after 30 s without a task.
IDLE_S, TARGET_S = 3, 2
COMPUTE_S, TICK_S, PEAK_PER_S = 1.0, 0.5, 12.0
# By how much each load is faster than the paper's.
FASTER = {"MI": 10.0, "SW": 30.0}
DATE = ["date", "+%s.%N"]


# ---- first


def of_sbatch(slurm: Slurm, folder: Path) -> float:
    """A job of Slurm that tells when it runs."""
    output = folder / "sbatch.out"
    output.unlink(missing_ok=True)
    began = time.time()
    slurm.run("sbatch", f"--output={output}", f"--wrap={' '.join(DATE)}")
    wait_until("the job has ended", lambda: output.exists() and output.read_text().endswith("\n"))
    return float(output.read_text()) - began


def of_run(slurm: Slurm, folder: Path) -> float:
    """A job of eyas with a pool of its own."""
    options = "--cpus 2 --max-nodes 1 --time-limit 10min --executor-option=--keep-free=10MB"
    line = [
        COMMAND.resolve(),
        "run",
        "--pool",
        "slurm",
        "--pool-options",
        options,
        "--report",
        "none",
        "--array",
        "1",
    ]
    environment = {**slurm.environment, "EYAS_HOME": str(folder / "run")}
    began = time.time()
    done = subprocess.run(
        [*line, "--", *DATE], env=environment, cwd=folder, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"eyas run failed: {done.stderr}")
    return float(done.stdout) - began


def of_pool(cluster: SlurmDispatcher) -> float:
    """A job on a dispatcher whose pool has no node."""
    began = time.time()
    return float(cluster.eyas("run", "--report", "none", "--array", "1", "--", *DATE)) - began


def of_peer(slurm: Slurm, folder: Path, system: str) -> tuple[float, float]:
    """Another system: seconds from the start of the program, and from its request for nodes."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        line = [PEERS / "python", PROJECT / "dev/testbed/pool_peers.py", system, own]
        environment = {**slurm.environment, "PATH": f"{PEERS}:{os.environ['PATH']}"}
        began = time.time()
        done = subprocess.run(
            line, env=environment, cwd=own, capture_output=True, text=True, timeout=PEER_DEADLINE_S
        )
        if done.returncode:
            raise ValueError((done.stderr.strip().splitlines() or ["it failed"])[-1])
        told = json.loads(done.stdout.splitlines()[-1])
        return told["ran"] - began, told["ran"] - told["began"]


def settle(slurm: Slurm) -> None:
    """Waits until all nodes are idle, and then for a random time: Slurm looks at its queue every
    second.
    """
    slurm.wait_until_idle()
    time.sleep(random.uniform(0, 2))


def first(asked: argparse.Namespace, folder: Path) -> bool:
    """The time until the first task runs."""
    figures: dict[str, list[float]] = {}
    peers = {system: "" for system in asked.peers.split(",") if system}
    scheduler = f"batch_sched_delay={asked.sched_delay}"
    with (
        Slurm(folder / "slurm", 2, scheduler=scheduler) as slurm,
        SlurmDispatcher(slurm, folder / "home") as cluster,
    ):
        cluster.add_pool(
            "batch",
            "--cpus",
            "2",
            "--max-nodes",
            "1",
            "--idle-timeout",
            "1s",
            "--time-limit",
            "10min",
        )
        # The first round warms caches.
        for turn in range(asked.runs + 1):
            found = {}
            ways = ["sbatch", "run", "pool", *(system for system, why in peers.items() if not why)]
            # Slurm remembers earlier jobs. In a random order, this favours none of the ways.
            for way in random.sample(ways, len(ways)):
                settle(slurm)
                if way == "sbatch":
                    found["sbatch"] = of_sbatch(slurm, folder)
                elif way == "run":
                    found["eyas run --pool slurm"] = of_run(slurm, folder)
                elif way == "pool":
                    found["eyas run, pool of a cluster"] = of_pool(cluster)
                else:
                    try:
                        found[way], found[f"{way}, after imports"] = of_peer(slurm, folder, way)
                    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
                        peers[way] = str(error)
                    slurm.run("scancel", "--user=root")
            for way, seconds in found.items() if turn else []:
                figures.setdefault(way, []).append(seconds)
    alone = statistics.median(figures["sbatch"])
    rows = []
    for way, those in sorted(figures.items(), key=lambda figure: statistics.median(figure[1])):
        middle = statistics.median(those)
        rows.append([way, middle, middle - alone, f"{min(those):.2f} to {max(those):.2f}"])
    show("seconds until the first task runs", ["way", "median", "beyond sbatch", "range"], rows)
    for system, why in peers.items():
        print(f"{system}: not measured: {why}" if why else "", end="\n" if why else "")
    beyond_s = statistics.median(figures["eyas run --pool slurm"]) - alone
    return conclude("seconds of `eyas run --pool slurm` beyond `sbatch`", beyond_s, FIRST_GOAL_S)


# ---- pending


def counting(folder: Path, programs: list[str]) -> str:
    """A PATH with programs that note each call before they run the real program."""
    folder.mkdir()
    for program in programs:
        real = subprocess.run(
            ["which", program], capture_output=True, text=True, check=True
        ).stdout.strip()
        path = folder / program
        path.write_text(f'#!/bin/sh\ndate +%s.%N >>"{folder}/{program}.calls"\nexec {real} "$@"\n')
        path.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def pending(asked: argparse.Namespace, folder: Path) -> bool:
    """What requests cost that wait in Slurm."""
    calls = folder / "counting" / "squeue.calls"
    path = counting(calls.parent, ["squeue"])
    at_most = 1000  # of one pool
    with Slurm(folder / "slurm", 1) as slurm:
        slurm.run("scontrol", "update", "PartitionName=main", "State=DOWN")
        with SlurmDispatcher(slurm, folder / "home", PATH=path) as cluster:
            for number in range(0, asked.requests, at_most):
                requests = str(min(at_most, asked.requests - number))
                some = [
                    "--max-nodes",
                    requests,
                    "--backlog",
                    requests,
                    "--cpus",
                    "1",
                    "--provision",
                    "all-at-once",
                ]
                cluster.add_pool(f"batch-{number}", "--no-try", *some)
            began = time.monotonic()
            job = {"array": f"1-{asked.requests}", "command": ["true"]}
            (cluster.home / "job.jsonl").write_text(json.dumps(job))
            cluster.eyas("submit", "job.jsonl")
            wait_until("all requests wait", lambda: slurm.queued() >= asked.requests, pause_s=0.5)
            submitted_s = time.monotonic() - began
            time.sleep(SQUEUE_PAUSE_S)
            began_unix, cpu_before = time.time(), cluster.cpu_s()
            time.sleep(asked.seconds)
            passed_s = time.time() - began_unix
            called = [
                moment for moment in map(float, calls.read_text().split()) if moment > began_unix
            ]
            own, others = (after - before for after, before in zip(cluster.cpu_s(), cpu_before))
            states = cluster.pool("batch-0")["requests"][-1]["says"]
            cluster.eyas("job", "cancel", "1")
            slurm.run("scancel", "--user=root")
    print(
        f"{asked.requests} requests were submitted in {submitted_s:.0f} s; Slurm says of the last "
        f"one: {states}"
    )
    commands = f"all commands took {others / passed_s:.2%} of a core"
    print(f"in {passed_s:.0f} s: {len(called)} calls of squeue; {commands}")
    between_s = (called[-1] - called[0]) / (len(called) - 1) if len(called) > 1 else float("inf")
    is_rare = conclude("calls of squeue in 10 s", round(SQUEUE_PAUSE_S / between_s, 2), 1.0)
    return conclude("share of a core, dispatcher", own / passed_s, CORE_GOAL) and is_rare


# ---- loads


class Load:
    """A scaled load on a pool of a Slurm of its own."""

    def __init__(self, name: str, times: list[float], folder: Path, is_static: bool) -> None:
        self.times = times
        self.folder = folder / f"{name}-{'static' if is_static else 'pool'}"
        self.is_static = is_static
        self.seconds = self.node_seconds = self.of_pool = float("nan")

    def run(self) -> None:
        """Submits the tasks as they arrive, and waits for the end of all."""
        self.folder.mkdir()
        with Slurm(self.folder / "slurm", NODES, CPUS) as slurm:
            with SlurmDispatcher(slurm, self.folder / "home") as cluster:
                options = ["--cpus", str(CPUS), "--max-nodes", str(NODES), "--time-limit", "1h"]
                if self.is_static:
                    options += ["--min-nodes", str(NODES)]
                else:
                    options += ["--idle-timeout", f"{IDLE_S}s", "--target", f"{TARGET_S}s"]
                cluster.add_pool("batch", *options)
                if self.is_static:
                    wait_until(
                        "all nodes have joined", lambda: cluster.pool("batch")["nodes"] == NODES
                    )
                began = time.time()
                self._submit(cluster, began)
                ended = time.time()
                self.seconds = ended - began
                time.sleep(1)  # Slurm counts whole seconds
                self.node_seconds = slurm.node_seconds(began, ended)
                pool = cluster.pool("batch")
                self.of_pool = pool["node_seconds"]
                cluster.eyas("pool", "remove", "batch")
                slurm.wait_until_idle()

    def _submit(self, cluster: SlurmDispatcher, began: float) -> None:
        ticks = sorted(set(self.times))
        job = cluster.home / "job.jsonl"
        for tick in ticks:
            task = {"array": f"1-{self.times.count(tick)}", "command": ["sleep", str(COMPUTE_S)]}
            job.write_text(json.dumps(task))
            time.sleep(max(0.0, began + tick - time.time()))
            cluster.eyas("submit", "job.jsonl")
        # The dispatcher forgets jobs that ended long ago.
        wait_until("all tasks have ended", lambda: not self._running(cluster))

    def _running(self, cluster: SlurmDispatcher) -> bool:
        jobs = cluster.ask("job", "list")["jobs"]
        if failed := [job["job"] for job in jobs if job["state"] == "failed"]:
            raise SystemExit(f"pools_experiment: these jobs failed: {failed}")
        return any(job["state"] == "running" for job in jobs)


def simulated(name: str, folder: Path, grant_s: tuple[float, float]) -> tuple[float, float]:
    """Seconds and node-seconds of the same load in the simulator, where requests are granted within
    these times.
    """
    scenario = f"""
        [cluster]
        nodes = {NODES}
        slots = {CPUS}
        [workload.trace]
        file = "{name}.jsonl"
        [provisioning]
        policy = "demand"
        grant_least = "{grant_s[0] * 1e3:.0f} ms"
        grant_most = "{grant_s[1] * 1e3:.0f} ms"
        idle = "{IDLE_S} s"
        target = "{TARGET_S} s"
        walltime = "1 h"
    """
    path = folder / f"{name}.toml"
    path.write_text(scenario)
    line = [COMMAND.resolve(), "--json", "simulate", "run", path]
    run = json.loads(subprocess.run(line, capture_output=True, text=True, check=True).stdout)["run"]
    return run["time_s"], run["held_cpu_hours"] * 3600 / CPUS


def loads(asked: argparse.Namespace, folder: Path) -> bool:
    """The scaled loads of the paper."""
    holds = True
    for name in asked.loads.split(","):
        times = scaled(name, FASTER[name], PEAK_PER_S, TICK_S)
        times = times[: asked.tasks or len(times)]
        write_trace(folder / f"{name}.jsonl", times, COMPUTE_S)
        runs: list[tuple[Load, Load]] = []
        for number in range(asked.runs):
            of_round = folder / f"{name}-{number}"
            of_round.mkdir()
            pair = (Load(name, times, of_round, True), Load(name, times, of_round, False))
            with ThreadPoolExecutor() as threads:
                for ran in [threads.submit(load.run) for load in pair]:
                    ran.result()
            runs.append(pair)
            for load in pair:
                print(
                    f"{load.folder.name}: {load.seconds:.1f} s, {load.node_seconds:.0f} "
                    "node-seconds",
                    flush=True,
                )
        grant_s = asked.grant_least, asked.grant_most
        middle = [
            tuple(
                statistics.median(getattr(pair[way], what) for pair in runs)
                for what in ["seconds", "node_seconds"]
            )
            for way in range(2)
        ]
        rows = [
            ["static", *middle[0]],
            ["pool", *middle[1]],
            ["simulated", *simulated(name, folder, grant_s)],
        ]
        show(
            f"{name}: {len(times)} tasks of {COMPUTE_S} s in {times[-1]:.0f} s",
            ["way", "s", "node-seconds"],
            rows,
        )
        (static_s, static_nodes), (pool_s, pool_nodes), (sim_s, sim_nodes) = (
            row[1:] for row in rows
        )
        conclusions = [
            (f"{name}: time, of static", pool_s / static_s, TIME_GOAL),
            (f"{name}: node-seconds, of static", pool_nodes / static_nodes, NODES_GOAL),
            (f"{name}: error of the simulator's time", abs(sim_s / pool_s - 1), SIMULATOR_GOAL),
            (
                f"{name}: error of the simulator's node-seconds",
                abs(sim_nodes / pool_nodes - 1),
                SIMULATOR_GOAL,
            ),
        ]
        holds &= all([conclude(*one) for one in conclusions])
    return holds


# ---- limits


def limits(asked: argparse.Namespace, folder: Path) -> bool:
    """The rate of short tasks with and without limits."""
    rates: dict[str, list[float]] = {"off": [], "poll": [], "cgroup": []}
    for turn in range(asked.runs + 1):
        for way in list(rates):
            home = folder / f"{way}-{turn}"
            home.mkdir()
            try:
                with MeasuredCluster(
                    home, "--nodes", "1", "--slots", "2", "--limits", way
                ) as cluster:
                    job = (
                        f'[[task]]\narray = "1-{asked.tasks}"\ncommand = ["/bin/true"]\n'
                        'memory = "64MB"\n'
                    )
                    said = cluster.submit(job).said
            except SystemExit as why:
                print(f"--limits {way}: not measured: {why}")
                del rates[way]
                continue
            found = re.search(r"\(([\d.]+)/s\)", said)
            if found is None:
                raise SystemExit(f"pools_experiment: no rate in: {said}")
            if turn:
                rates[way].append(float(found[1]))
    rows = []
    for way, those in rates.items():
        # Ratios are of the same turn.
        of_off = [rate / alone for rate, alone in zip(those, rates["off"])]
        between = f"{min(of_off):.2f} to {max(of_off):.2f}"
        rows.append([way, statistics.median(those), statistics.median(of_off), between])
    show(
        f"/bin/true with 64 MB, {asked.tasks} tasks",
        ["--limits", "tasks/s", "of off", "range"],
        rows,
    )
    return True


Part = Callable[[argparse.Namespace, Path], bool]
PARTS: dict[str, tuple[Part, dict[str, object], dict[str, object]]] = {
    # Options with their values, and those of a tiny run.
    "first": (first, {"runs": 7, "peers": "dask,parsl", "sched_delay": 0}, {"runs": 1}),
    "pending": (pending, {"requests": 1000, "seconds": 120.0}, {"requests": 5, "seconds": 1.0}),
    "loads": (
        loads,
        {"runs": 3, "loads": "MI,SW", "tasks": 0, "grant_least": 0.5, "grant_most": 1.5},
        {"runs": 1, "loads": "SW", "tasks": 3},
    ),
    "limits": (limits, {"runs": 5, "tasks": 2000}, {"runs": 1, "tasks": 10}),
}


def main() -> int:
    """The command line."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parts = parser.add_subparsers(dest="part", required=True)
    for name, (part, options, _) in PARTS.items():
        words = parts.add_parser(name, help=part.__doc__)
        words.add_argument(
            "--tiny", action="store_true", help="quick test; the figures mean nothing"
        )
        for option, value in options.items():
            words.add_argument(f"--{option.replace('_', '-')}", type=type(value), default=value)
    asked = parser.parse_args()
    part, _, tiny = PARTS[asked.part]
    if asked.tiny:
        vars(asked).update(tiny)
    print(f"load of this machine before: {os.getloadavg()[0]:.1f}", flush=True)
    with tempfile.TemporaryDirectory(prefix="eyas-pools-") as folder:
        return 0 if part(asked, Path(folder)) or asked.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
