"""Executors inside a Dask, Ray or Spark cluster that runs."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import eyas
import pytest

#: Seconds until something must have happened.
DEADLINE_S = 60


def wait_until(holds, what):
    deadline = time.monotonic() + DEADLINE_S
    while not (value := holds()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return value


def executors_of(executor):
    """Processes of the executors."""
    access = executor._state.cluster.key
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = open(f"/proc/{process}/cmdline", "rb").read().split(b"\0")
            state = open(f"/proc/{process}/stat").read().rpartition(") ")[2][0]
        except OSError:
            continue
        if state != "Z" and b"executor" in words and any(word.startswith(access.encode()) for word in words):
            found.append(int(process))
    return found


def parent_of(process):
    return int(open(f"/proc/{process}/stat").read().rpartition(") ")[2].split()[1])


@pytest.fixture
def dask_client():
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=2, memory_limit="500MB", processes=True, dashboard_address=None
    )
    with cluster, distributed.Client(cluster) as client:
        yield client


def test_dask_workers_run_calls_and_are_busy_meanwhile(dask_client):
    with eyas.on_dask(dask_client, name="on-dask") as executor:
        nodes = executor.nodes()
        assert [node["capacity"]["cpus_milli"] for node in nodes] == [2000, 2000]
        assert [node["capacity"]["memory_bytes"] for node in nodes] == [500_000_000] * 2
        workers = set(dask_client.run(os.getpid).values())
        assert {parent_of(process) for process in executors_of(executor)} == workers
        assert list(executor.map(pow, range(100), range(100))) == list(map(pow, range(100), range(100)))
        # All threads are taken.
        waiting = dask_client.submit(abs, -3)
        assert sorted(map(len, dask_client.processing().values())) in ([2, 2], [2, 3])
        assert executor.submit(abs, -2).result() == 2
        assert not waiting.done()
        processes = executors_of(executor)
    assert waiting.result(DEADLINE_S) == 3
    assert not any(os.path.exists(f"/proc/{process}") for process in processes)
    assert not executors_of(executor)


def test_dask_workers_that_join_and_die(dask_client):
    with eyas.on_dask(dask_client) as executor:
        dask_client.cluster.scale(3)
        wait_until(lambda: len(executor.nodes()) == 3, "the new worker has an executor")
        before = executors_of(executor)
        killed = parent_of(before[0])
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: before[0] not in executors_of(executor), "the executor ends with its worker")
        # The nanny starts another worker.
        wait_until(lambda: len(executors_of(executor)) == 3, "the worker that takes its place has an executor")
        assert executor.submit(abs, -2).result(DEADLINE_S) == 2


def test_a_dask_cluster_that_ends_ends_the_executor(dask_client):
    executor = eyas.on_dask(dask_client)
    outstanding = executor.submit(time.sleep, 600)
    dask_client.shutdown()
    with pytest.raises(eyas.ClusterLost):
        outstanding.result(DEADLINE_S)
    wait_until(lambda: not executors_of(executor), "the executors end with the cluster")
    executor.shutdown()


def test_a_client_that_dies_frees_dask(dask_client):
    program = textwrap.dedent("""
        import os, sys, eyas, distributed
        client = distributed.Client(sys.argv[1])
        executor = eyas.on_dask(client)
        print(executor._state.cluster.key, flush=True)
        os.kill(os.getpid(), 9)
    """)
    words = [sys.executable, "-c", program, dask_client.scheduler.address]
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == -signal.SIGKILL and done.stdout.startswith("eyas-"), done.stderr
    assert dask_client.submit(abs, -3).result(DEADLINE_S) == 3


def test_a_start_that_fails_on_a_dask_worker_is_told_with_its_log(dask_client, tmp_path):
    # A worker whose temporary folder is full of nothing: the executor cannot make its own.
    def break_start():
        import tempfile

        tempfile.tempdir = "/proc"

    dask_client.run(break_start)
    with pytest.raises(eyas.ClusterError, match="/proc"):
        eyas.on_dask(dask_client)
    assert dask_client.submit(abs, -3).result(DEADLINE_S) == 3


def test_a_dask_client_that_is_closed_is_refused(dask_client):
    dask_client.close()
    with pytest.raises(eyas.ClusterError, match="closed"):
        eyas.on_dask(dask_client)
