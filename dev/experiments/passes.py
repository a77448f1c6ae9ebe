#!/usr/bin/env python3
"""Experiment: k-means pass after pass, as a job file with a map step, beside Spark with `cache()`.

    dev/experiments/passes.py [--tiny] [--megabytes 1000] [--passes 10] [--nodes 2] [--runs 3]

The points are uniform in a square, two coordinates of 6 decimals each, so no pass is the last one;
8 centroids. They are put into a cluster with this many nodes on this machine, one replica in chunks
of 16 MB; `eyas submit --wait` runs the passes. Spark reads the same text with its CSV reader, keeps
it with `cache()`, and runs `pyspark.ml.clustering.KMeans` with as many iterations, in one process
with as many threads as the machine has processors. Before each run, the page cache is emptied if
the user may do so. Prints medians: the first pass, each later one, and the whole, with and without
the start of Spark.

Needs a release build of the workspace (or EYAS_BIN, with eyas-text beside it). Spark is measured if
Python has pyspark: `dev/tools/peers.sh pyspark==3.5.6 numpy`, and the Python in target/peers.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from measured import COMMAND, MeasuredCluster
from table import show

TEXT = COMMAND.with_name("eyas-text").resolve()
CENTROIDS, CHUNK, BLOCK_POINTS = 8, "16MB", 100_000
JOB = """\
[[map]]
id = "means"
files = "/points"
command = ["{text}", "k-means", "map", "{{previous}}"]
inputs = ["{{previous}}"]
first = "centroids"
combine = "{text} k-means combine"
reduce = "{text} k-means reduce"
to = "{to}"
repeat = {passes}
"""
SPARK = """
import json, sys, time
began = time.monotonic()
from pyspark.ml.clustering import KMeans
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import SparkSession
path, k, passes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
session = (SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
           .config("spark.driver.memory", "12g").getOrCreate())
session.sparkContext.setLogLevel("ERROR")
started = time.monotonic()
table = session.read.csv(path, schema="x double, y double")
points = VectorAssembler(inputCols=["x", "y"], outputCol="features").transform(table)
points = points.select("features").cache()
points.count()
kept = time.monotonic()
model = KMeans(k=k, maxIter=passes, tol=0.0, initMode="random", seed=1).fit(points)
ended = time.monotonic()
print(json.dumps({"start": started - began, "first": kept - started,
                  "later": (ended - kept) / model.summary.numIter, "work": ended - started,
                  "whole": ended - began}))
"""


def write_points(path: Path, megabytes: int) -> None:
    """Writes points; the same ones for the same size."""
    draw = random.Random(1)
    block = "".join(f"{draw.random():.6f},{draw.random():.6f}\n" for _ in range(BLOCK_POINTS))
    with path.open("w", encoding="ascii") as file:
        for _ in range(max(1, round(megabytes * 1e6 / len(block)))):
            file.write(block)


def forget() -> None:
    """Empties the page cache, where that is allowed."""
    os.sync()
    if os.geteuid() == 0:
        Path("/proc/sys/vm/drop_caches").write_text("3")


def seconds_of_passes(
    environment: dict[str, str], folder: Path, job: str, passes: int
) -> tuple[list[float], str]:
    """Runs a job file of one map step. Returns the time of each pass, and what the command said."""
    file = folder / "passes.toml"
    file.write_text(job)
    ends = [time.monotonic()]
    said = ""
    process = subprocess.Popen(
        [COMMAND.resolve(), "submit", "--wait", file],
        cwd=folder,
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert process.stderr
    for line in process.stderr:
        said += line
        if re.search(r"pass \d+ of \d+: \d+ chunks? in \d+ block", line):
            ends.append(time.monotonic())
    if process.wait() or len(ends) != passes + 1:
        raise SystemExit(f"the job has failed: {said[-2000:]}")
    return [end - before for before, end in itertools.pairwise(ends)], said


def passes_of_eyas(cluster: MeasuredCluster, passes: int, number: int) -> dict[str, float]:
    """Runs the job."""
    job = JOB.format(text=TEXT, to=f"/means{number}", passes=passes)
    began = time.monotonic()
    first, *later = seconds_of_passes(cluster.environment, cluster.folder, job, passes)[0]
    whole = time.monotonic() - began
    return {
        "first": first,
        "later": statistics.median(later) if later else 0.0,
        "work": whole,
        "whole": whole,
    }


def passes_of_spark(points: Path, passes: int) -> dict[str, float]:
    """Runs the same in Spark."""
    done = subprocess.run(
        [sys.executable, "-c", SPARK, points, str(CENTROIDS), str(passes)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"Spark has failed: {done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(asked: argparse.Namespace, folder: Path) -> None:
    """Measures both in turns, and prints the medians."""
    points = folder / "points"
    write_points(points, asked.megabytes)
    draw = random.Random(2)
    (folder / "centroids").write_text(
        "".join(f"{draw.random():.6f},{draw.random():.6f}\n" for _ in range(CENTROIDS))
    )
    found: dict[str, list[dict[str, float]]] = {"eyas": []}
    if importlib.util.find_spec("pyspark"):
        found["Spark"] = []
    with MeasuredCluster(folder, "--nodes", str(asked.nodes), "--dfs") as cluster:
        cluster.eyas("dfs", "put", "points", "/points", "--replicas", "1", "--chunk-size", CHUNK)
        for number in range(asked.runs):
            forget()
            found["eyas"].append(passes_of_eyas(cluster, asked.passes, number))
            if "Spark" in found:
                forget()
                found["Spark"].append(passes_of_spark(points, asked.passes))
    columns = ["first", "later", "work", "whole"]
    medians = {
        system: [statistics.median(run[column] for run in runs) for column in columns]
        for system, runs in found.items()
    }
    rows = [[system, *values, values[0] / values[1]] for system, values in medians.items()]
    show(
        f"k-means, {points.stat().st_size / 1e6:.0f} MB, {asked.passes} passes, {asked.nodes} "
        f"nodes, medians of {asked.runs} runs, seconds",
        ["system", "first pass", "each later", "without start", "whole", "first / later"],
        rows,
    )
    if "Spark" in medians:
        of_spark = [own / peer for own, peer in zip(medians["eyas"], medians["Spark"])]
        print("eyas of Spark: " + ", ".join(f"{c} {r:.2f}" for c, r in zip(columns, of_spark)))


def main() -> int:
    """Runs the experiment."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--passes", type=int, default=10)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="one run of 2 passes over 2 MB")
    asked = parser.parse_args()
    if asked.tiny:
        asked.megabytes, asked.passes, asked.runs = 2, 2, 1
    with tempfile.TemporaryDirectory() as folder:
        measure(asked, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
