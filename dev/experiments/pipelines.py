#!/usr/bin/env python3
"""Pipelines of many small steps over shared files on slow storage: Nextflow and Snakemake, each
with its local executor, on a real Slurm, and on eyas by the commands of `eyas shim`.

    EYAS_BIN=target/release/eyas dev/experiments/pipelines.py [--steps 1000] [--files 10]
        [--megabytes 4] [--runs 3] [--systems nextflow,snakemake] [--executors local,slurm,shim]
        [--snakemake-executor NAME]

Each step counts the lines of one shared file. The shared files are on an emulated disk that nodes
do not cache; the small files of the steps are on this machine's disk, for every executor alike. The
pipelines are unmodified: the same files and options run on Slurm and on the shim, and only PATH
differs. Each executor has two nodes of two slots, or four processes. Runs are interleaved, the time
is that of the whole command, and medians count. Results are checked.

Needs root, Slurm, Java, Maven, the network on the first run, and slow-disk (SLOW_DISK_BIN).
`--snakemake-executor NAME` also runs Snakemake with that executor, which must be installed beside
it, on the cluster of eyas.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from slow_disk import SlowDisk, SlowDiskError, check_needs, isolated
from slurm_cluster import Slurm
from workflow_systems import NotInstalled, ShimCluster, nextflow, snakemake

NODES, SLOTS = 2, 2
NEXTFLOW = """
process count {
  memory '200 MB'
  time '10m'
  input: tuple val(number), path(shared)
  output: path "lines.txt"
  script: "wc -l < $shared > lines.txt"
}
process total {
  publishDir params.results, mode: 'copy'
  memory '200 MB'
  input: path "lines*.txt"
  output: path "total.txt"
  script: "cat lines*.txt | wc -l > total.txt"
}
workflow {
  steps = channel.of(1..params.steps)
  count(steps.map { [it, file("${params.shared}/${it % params.files}")] }).collect() | total
}
"""
CONFIGURATION = """
executor.queueSize = 1000
executor.pollInterval = '1s'
executor.queueStatInterval = '2s'
executor.submitRateLimit = '200/1s'
"""
SNAKEMAKE = """
STEPS, FILES, SHARED = int(config["steps"]), int(config["files"]), config["shared"]
localrules: all, total
rule all:
    input: "results/total.txt"
rule count:
    input: lambda step: f"{SHARED}/{int(step.n) % FILES}"
    output: "out/{n}.txt"
    shell: "wc -l < {input} > {output}"
rule total:
    input: expand("out/{n}.txt", n=range(STEPS))
    output: "results/total.txt"
    shell: "cat out/*.txt | wc -l > {output}"
"""


def seconds(
    asked: argparse.Namespace, system: str, executor: str, place: Path, shared: Path
) -> float:
    """Time of one run of a pipeline, in a new folder and on a new cluster."""
    place.mkdir()
    work = place / "work"
    work.mkdir()
    if system == "nextflow":
        (work / "main.nf").write_text(NEXTFLOW)
        name = "local" if executor == "local" else "slurm"
        (work / "nextflow.config").write_text(f"process.executor = '{name}'\n" + CONFIGURATION)
        words = [
            *nextflow(),
            "run",
            "main.nf",
            "--steps",
            str(asked.steps),
            "--files",
            str(asked.files),
        ]
        words += ["--shared", str(shared), "--results", str(work / "results")]
        if executor == "local":
            words += ["-qs", str(NODES * SLOTS)]
    else:
        (work / "Snakefile").write_text(SNAKEMAKE)
        words = [
            *snakemake(),
            "--config",
            f"steps={asked.steps}",
            f"files={asked.files}",
            f"shared={shared}",
        ]
        if executor == "local":
            words += ["--cores", str(NODES * SLOTS)]
        else:
            name = "slurm" if executor in ("slurm", "shim") else executor
            words += ["--executor", name, "--jobs", "1000"]
        if executor in ("slurm", "shim"):
            words += ["--slurm-init-seconds-before-status-checks", "1", "--default-resources"]
            words += ["slurm_account=root", "slurm_partition=main", "mem_mb=400", "runtime=10"]
            if executor == "slurm":  # which has no database of jobs
                words += ["--slurm-status-command", "squeue"]
    if executor in ("local", "slurm"):
        plain = ShimCluster(place / "eyas").environment
        if executor == "local":
            return timed(words, work, plain, asked.steps)
        with Slurm(place / "slurm", NODES, SLOTS, "batch_sched_delay=0") as slurm:
            # Jobs find the cluster in Slurm's own place, as Snakemake clears SLURM_CONF. Only this
            # namespace sees it.
            with mounted(slurm.folder, Path("/etc/slurm")):
                return timed(words, work, plain, asked.steps)
    with ShimCluster(place / "eyas", "--nodes", str(NODES), "--slots", str(SLOTS)) as cluster:
        return timed(words, work, cluster.environment, asked.steps)


@contextlib.contextmanager
def mounted(folder: Path, place: Path) -> Iterator[None]:
    """Has `place` show a folder."""
    subprocess.run(["mount", "--bind", folder, place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def timed(words: list[str], work: Path, environment: dict[str, str], steps: int) -> float:
    """Time of a command whose result is right."""
    began = time.monotonic()
    done = subprocess.run(words, cwd=work, env=environment, capture_output=True, text=True)
    took = time.monotonic() - began
    if done.returncode:
        raise SystemExit(f"{' '.join(words[-8:])} failed: {(done.stdout + done.stderr)[-3000:]}")
    total = (work / "results" / "total.txt").read_text().strip()
    if total != str(steps):
        raise SystemExit(f"the pipeline has counted {total} results of {steps} steps")
    return took


def measure(asked: argparse.Namespace, folder: Path) -> int:
    """Runs everything, and prints a table."""
    options = ["--megabytes-per-second", str(asked.rate), "--seek-ms", "2", "--uncached"]
    disk = SlowDisk(folder / "disk", 1, options)
    disk.folder.mkdir()
    with disk:
        for number in range(asked.files):
            (disk.source / str(number)).write_bytes(
                b"a line of a shared file\n" * (asked.megabytes * 1_000_000 // 24)
            )
        taken: dict[tuple[str, str], list[float]] = {}
        for run in range(asked.runs):
            for system in asked.systems.split(","):
                executors = asked.executors.split(",")
                if system == "snakemake" and asked.snakemake_executor:
                    executors.append(asked.snakemake_executor)
                for executor in executors:
                    place = folder / f"{system}-{executor}-{run}"
                    took = seconds(asked, system, executor, place, disk.mounts[0])
                    taken.setdefault((system, executor), []).append(took)
                    print(f"run {run + 1}: {system}, {executor}: {took:.1f} s", flush=True)
                    shutil.rmtree(place, ignore_errors=True)
        print(
            f"\n{asked.steps} steps, {asked.files} shared files of {asked.megabytes} MB, disk of "
            f"{asked.rate} MB/s"
        )
        print("\n| system | executor | seconds |\n| --- | --- | ---: |")
        for (system, executor), times in taken.items():
            print(f"| {system} | {executor} | {statistics.median(times):.1f} |")
    return 0


def main() -> int:
    """Reads the command line, downloads what is missing, and measures in namespaces of its own."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--files", type=int, default=10)
    parser.add_argument("--megabytes", type=int, default=4)
    parser.add_argument(
        "--rate", type=int, default=25, help="megabytes per second of the shared disk"
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--systems", default="nextflow,snakemake")
    parser.add_argument("--executors", default="local,slurm,shim")
    parser.add_argument(
        "--snakemake-executor", help="a further executor of Snakemake, on the cluster of eyas"
    )
    parser.add_argument("--tiny", action="store_true", help="quick test; the figures mean nothing")
    asked = parser.parse_args()
    if asked.tiny:
        vars(asked).update(steps=2, files=1, megabytes=1, runs=1)
    try:
        check_needs()
        if "EYAS_SLOW_DISK_FOLDER" not in os.environ:
            for system, install in [("nextflow", nextflow), ("snakemake", snakemake)]:
                if system in asked.systems.split(","):
                    install()
    except (SlowDiskError, NotInstalled) as why:
        print(why, file=sys.stderr)
        return 1
    return isolated(lambda folder: measure(asked, folder))


if __name__ == "__main__":
    sys.exit(main())
