"""The headline's job under Dask, Parsl or HyperQueue. It runs in the testbed's `head`, with the
Python that has these systems.

    peers.py SYSTEM JOB

JOB is a file of JSON: `tasks` (pairs of a file and a pattern), `nodes`, `slots` of each node,
`address` of this node, `folder` for files of the system's own. Prints a line of JSON: the seconds
from the first submission to the last result (for HyperQueue: to the time stamp of the last output
file), and the sum of all results. Before the time begins, all workers run, and each slot has run a
task that does nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

COUNT = ["grep", "-c", "-F"]


def count_in_file(pattern: str, path: str) -> int:
    """A task: the program reads the file by its path. Parsl sends the function alone, so it imports
    what it needs.
    """
    import subprocess

    return int(
        subprocess.run(["grep", "-c", "-F", pattern, path], check=True, capture_output=True).stdout
    )


def count_in_bytes(pattern: str, content: bytes) -> int:
    """A task whose file is the result of another task."""
    return int(
        subprocess.run(
            [*COUNT, pattern, "-"], check=True, input=content, capture_output=True
        ).stdout
    )


def read(path: str) -> bytes:
    """A task whose result is a file."""
    return Path(path).read_bytes()


def nothing(_number: int) -> None:
    """A task that does nothing."""


def dask(job: dict[str, Any], as_results: bool) -> tuple[float, int]:
    """A scheduler in this node, at the port that the workers of the nodes connect to."""
    from distributed import Client

    with Client(f"tcp://{job['address']}:{job['port']}") as client:
        client.wait_for_workers(job["nodes"], timeout=60)
        client.gather(client.map(nothing, range(job["nodes"] * job["slots"] * 4), pure=False))
        began = time.perf_counter()
        if as_results:
            files = {path: client.submit(read, path) for path, _ in job["tasks"]}
            counts = [
                client.submit(count_in_bytes, pattern, files[path])
                for path, pattern in job["tasks"]
            ]
        else:
            counts = [client.submit(count_in_file, pattern, path) for path, pattern in job["tasks"]]
        total = sum(client.gather(counts))
        return time.perf_counter() - began, total


def parsl(job: dict[str, Any]) -> tuple[float, int]:
    """Parsl's high-throughput executor, with a block for each node. Blocks are requested through
    files in a folder.
    """
    import parsl as system
    from parsl.config import Config
    from parsl.executors import HighThroughputExecutor
    from parsl.jobs.states import JobState, JobStatus
    from parsl.providers.base import ExecutionProvider

    class FolderProvider(ExecutionProvider):
        """Requests a block by a file with the command to run. Parsl then takes the block to be
        running.
        """

        label = "folder"
        nodes_per_block = 1
        init_blocks = min_blocks = max_blocks = job["nodes"]
        parallelism = 1.0
        script_dir = None
        status_polling_interval = 60

        def __init__(self) -> None:
            self.blocks: list[str] = []

        def submit(self, command: str, tasks_per_node: int, job_name: str = "") -> str:
            """Requests a block."""
            name = str(len(self.blocks))
            unfinished = Path(job["folder"], f"block-{name}.new")
            unfinished.write_text(command)
            unfinished.rename(Path(job["folder"], f"block-{name}"))
            self.blocks.append(name)
            return name

        def status(self, job_ids: list[Any]) -> list[JobStatus]:
            """Reports all blocks as running."""
            return [JobStatus(JobState.RUNNING) for _ in job_ids]

        def cancel(self, job_ids: list[Any]) -> list[bool]:
            """Does nothing: blocks end with the testbed."""
            return [True for _ in job_ids]

    executor = HighThroughputExecutor(
        address=job["address"],
        max_workers_per_node=job["slots"],
        encrypted=False,
        provider=FolderProvider(),
        worker_logdir_root=job["folder"],
    )
    config = Config(
        executors=[executor], run_dir=f"{job['folder']}/runs", usage_tracking=0, strategy="none"
    )
    with system.load(config):
        while len(executor.connected_managers()) < job["nodes"]:
            time.sleep(0.1)
        warm, app = system.python_app(nothing), system.python_app(count_in_file)
        for future in [warm(number) for number in range(job["nodes"] * job["slots"] * 4)]:
            future.result()
        began = time.perf_counter()
        futures = [app(pattern, path) for path, pattern in job["tasks"]]
        total = sum(future.result() for future in futures)
        return time.perf_counter() - began, total


def hyperqueue(job: dict[str, Any]) -> tuple[float, int]:
    """HyperQueue's server and one worker with the cores of all nodes, because the package cannot
    start workers elsewhere: each task enters the node to which its core belongs."""
    from hyperqueue import Job, LocalCluster
    from hyperqueue.cluster import WorkerConfig

    folder = Path(job["folder"])
    with LocalCluster(str(folder)) as cluster:
        cluster.start_worker(WorkerConfig(cores=job["nodes"] * job["slots"]))
        client = cluster.client()

        def run(commands: list[list[str]], outputs: list[str | None]) -> None:
            batch = Job()
            for command, output in zip(commands, outputs):
                batch.program(command, stdout=output, stderr=None)
            client.wait_for_jobs([client.submit(batch)])

        enter = [job["enter"], "core"]
        warm = job["nodes"] * job["slots"] * 4
        run([[*enter, "true"]] * warm, [None] * warm)
        outputs = [str(folder / f"out-{number}") for number in range(len(job["tasks"]))]
        began = time.time()
        run([[*enter, *COUNT, pattern, path] for path, pattern in job["tasks"]], list(outputs))
        # The client polls once a second whether the job has ended; so the time ends with the last
        # output file.
        ended = max(Path(output).stat().st_mtime for output in outputs)
        return ended - began, sum(int(Path(output).read_text()) for output in outputs)


SYSTEMS = {
    "dask": lambda job: dask(job, as_results=False),
    "dask-results": lambda job: dask(job, as_results=True),
    "parsl": parsl,
    "hyperqueue": hyperqueue,
}


def main() -> None:
    """The command line."""
    system, path = sys.argv[1:]
    job = json.loads(Path(path).read_text())
    seconds, total = SYSTEMS[system](job)
    print(json.dumps({"seconds": seconds, "total": total}), flush=True)


if __name__ == "__main__":
    main()
