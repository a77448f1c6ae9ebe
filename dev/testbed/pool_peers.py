"""The first task of other systems on Slurm. It runs with the Python that has them.

    pool_peers.py dask|parsl FOLDER

Prints a line of JSON: when the cluster was asked for, after all imports, and when the first task
ran, seconds since
1970. Slurm is the one that SLURM_CONF names.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def now() -> float:
    """A task: when it runs. Parsl sends the function alone, so it imports what it needs."""
    import time

    return time.time()


def dask(folder: str) -> tuple[float, float]:
    """dask-jobqueue: a job with one worker, asked for at once."""
    from dask_jobqueue import SLURMCluster
    from distributed import Client

    began = time.time()
    with (
        SLURMCluster(
            cores=2,
            processes=1,
            memory="1GB",
            walltime="00:10:00",
            interface="lo",
            log_directory=folder,
            local_directory=folder,
            scheduler_options={"dashboard_address": None},
        ) as cluster,
        Client(cluster) as client,
    ):
        cluster.scale(jobs=1)
        return began, client.submit(now, pure=False).result(timeout=120)


def parsl(folder: str) -> tuple[float, float]:
    """Parsl's SlurmProvider: a block of one node, asked for at once."""
    import parsl as system
    from parsl.config import Config
    from parsl.executors import HighThroughputExecutor
    from parsl.launchers import SimpleLauncher
    from parsl.providers import SlurmProvider

    provider = SlurmProvider(
        nodes_per_block=1,
        cores_per_node=2,
        init_blocks=1,
        max_blocks=1,
        walltime="00:10:00",
        exclusive=False,
        launcher=SimpleLauncher(),
        worker_init=f"export PATH={Path(sys.executable).parent}:$PATH",
    )
    executor = HighThroughputExecutor(
        address="127.0.0.1",
        loopback_address="127.0.0.1",
        max_workers_per_node=2,
        encrypted=False,
        provider=provider,
        worker_logdir_root=folder,
    )
    config = Config(executors=[executor], run_dir=f"{folder}/runs", usage_tracking=0)
    began = time.time()
    with system.load(config):
        return began, system.python_app(now)().result(timeout=120)


SYSTEMS = {"dask": dask, "parsl": parsl}


def main() -> None:
    """The command line."""
    system, folder = sys.argv[1:]
    began, ran = SYSTEMS[system](folder)
    print(json.dumps({"began": began, "ran": ran}), flush=True)


if __name__ == "__main__":
    main()
