"""Runs pipelines of the real Nextflow and the real Snakemake, unmodified, on the commands of `eyas
shim`.

Downloads both; without a network the suite is skipped, which is said, and with CI=true that is a
failure.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "testbed"))
from slurm_cluster import wait_until
from workflow_systems import COMMAND, NotInstalled, ShimCluster, nextflow, snakemake

# The configuration that the guide shows.
GUIDE = Path(__file__).resolve().parent.parent.parent / "docs" / "guides" / "workflows.md"
CONFIGURATION = GUIDE.read_text().split("```groovy\n")[1].split("```")[0]
PIPELINE = """
process count {
  cpus 1
  memory '500 MB'
  time '5m'
  input: path shared
         val n
  output: path "out.txt"
  script: "wc -l < $shared > out.txt"
}
process flaky {
  errorStrategy 'retry'
  maxRetries 2
  clusterOptions '--partition=main'
  publishDir params.results, saveAs: { "${task.index}.txt" }, mode: 'copy'
  input: path counted
  output: path "result.txt"
  script: "[ $task.attempt -gt 1 ] || exit 7; cp $counted result.txt"
}
workflow { count(file(params.shared), channel.of(1, 2, 3)) | flaky }
"""
ENDLESS = """
process endless { script: "sleep 1000" }
workflow { endless() }
"""
SNAKEFILE = """
rule all:
    input: "out/sum.txt"
rule one:
    input: "shared.txt"
    output: "out/{n}.txt"
    resources: mem_mb=1000, runtime=5
    shell: "wc -l < {input} > {output}"
rule sum:
    input: expand("out/{n}.txt", n=range(3))
    output: "out/sum.txt"
    shell: "cat {input} > {output}"
"""


def jobs(cluster: ShimCluster) -> list[dict[str, Any]]:
    """All jobs of eyas."""
    listed: list[dict[str, Any]] = json.loads(
        cluster.run([str(COMMAND.resolve()), "--json", "job", "list"])
    )["jobs"]
    return listed


def nextflow_retries_and_caches(cluster: ShimCluster, folder: Path) -> None:
    """A pipeline whose second step fails at first ends well, and reads its shared input from the
    nodes' stores.
    """
    (folder / "nextflow.config").write_text(CONFIGURATION)
    (folder / "main.nf").write_text(PIPELINE)
    (folder / "shared.txt").write_text("line\n" * 10)
    words = [*nextflow(), "run", "main.nf", "--shared", str(folder / "shared.txt")]
    cluster.run([*words, "--results", str(folder / "results")], folder)
    results = [path.read_text() for path in (folder / "results").iterdir()]
    assert results == ["10\n"] * 3, results
    ended = [(str(job["name"]).split("_")[0], job["state"]) for job in jobs(cluster)]
    assert (
        sorted(ended)
        == [("nf-count", "succeeded")] * 3
        + [("nf-flaky", "failed")] * 3
        + [("nf-flaky", "succeeded")] * 3
    ), ended
    reads = [job["reads"] for job in jobs(cluster) if str(job["name"]).startswith("nf-count")]
    assert (
        sum(one[source]["count"] for one in reads for source in ["local", "peer", "persistent"])
        == 3
    ), reads
    links = list(folder.glob("work/*/*/shared.txt"))
    assert links and all(link.readlink() == folder / "shared.txt" for link in links), links


def a_cancelled_run_of_nextflow_cancels_its_jobs(cluster: ShimCluster, folder: Path) -> None:
    """SIGINT ends Nextflow, which calls scancel."""
    (folder / "nextflow.config").write_text(CONFIGURATION)
    (folder / "main.nf").write_text(ENDLESS)
    known = len(jobs(cluster))
    words = [*nextflow(), "run", "main.nf"]
    environment, quiet = cluster.environment, subprocess.DEVNULL
    with subprocess.Popen(words, env=environment, cwd=folder, stdout=quiet) as running:
        wait_until(
            "the job runs", lambda: any(job["tasks"]["assigned"] for job in jobs(cluster)[known:])
        )
        # A job may run before Nextflow has read its number.
        wait_until(
            "Nextflow knows it",
            lambda: "Submitted process" in (folder / ".nextflow.log").read_text(),
        )
        running.send_signal(signal.SIGINT)
    wait_until("the job is cancelled", lambda: jobs(cluster)[-1]["state"] == "cancelled")


def snakemake_runs(cluster: ShimCluster, folder: Path) -> None:
    """A profile for Slurm runs on the shim."""
    (folder / "Snakefile").write_text(SNAKEFILE)
    (folder / "shared.txt").write_text("line\n" * 10)
    words = [
        *snakemake(),
        "--executor",
        "slurm",
        "-j",
        "10",
        "--default-resources",
        "slurm_account=eyas",
    ]
    words += [
        "slurm_partition=eyas",
        "mem_mb=1000",
        "--slurm-init-seconds-before-status-checks",
        "1",
    ]
    cluster.run(words, folder)
    assert (folder / "out" / "sum.txt").read_text() == "10\n" * 3


def main() -> None:
    """Runs all of them, each in a folder of its own."""
    try:
        nextflow()
        snakemake()
    except NotInstalled as why:
        print(f"SKIPPED: pipelines of Nextflow and Snakemake: {why}", file=sys.stderr)
        sys.exit(1 if os.environ.get("CI") else 0)
    with (
        tempfile.TemporaryDirectory() as place,
        ShimCluster(Path(place) / "eyas", "--nodes", "2") as cluster,
    ):
        for check in [
            nextflow_retries_and_caches,
            a_cancelled_run_of_nextflow_cancels_its_jobs,
            snakemake_runs,
        ]:
            folder = Path(place).resolve() / check.__name__
            folder.mkdir()
            check(cluster, folder)
            print(f"{check.__name__.replace('_', ' ')}: ok", flush=True)


if __name__ == "__main__":
    main()
