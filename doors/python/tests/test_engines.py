"""Executors inside a Dask, Ray or Spark cluster that runs."""

import operator
import os
import signal
import subprocess
import sys
import textwrap
import time

import eyas
import pytest

#: Seconds until something must have happened.
DEADLINE_S = 180


def wait_until(holds, what):
    deadline = time.monotonic() + DEADLINE_S
    while not (value := holds()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return value


def executors_of(executor):
    """Processes of the executors."""
    key = executor._state.cluster.key.encode()
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = open(f"/proc/{process}/cmdline", "rb").read().split(b"\0")
            state = open(f"/proc/{process}/stat").read().rpartition(") ")[2][0]
        except OSError:
            continue
        if state != "Z" and b"executor" in words and any(word.startswith(key) for word in words):
            found.append(int(process))
    return found


def parent_of(process):
    return int(open(f"/proc/{process}/stat").read().rpartition(") ")[2].split()[1])


@pytest.fixture
def dask_client():
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=2,
        memory_limit="500MB",
        processes=True,
        dashboard_address=None,
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
        assert list(executor.map(pow, range(100), range(100))) == list(
            map(pow, range(100), range(100))
        )
        # All threads are taken.
        waiting = dask_client.submit(abs, -3)
        assert sorted(map(len, dask_client.processing().values())) in ([2, 2], [2, 3])
        assert executor.submit(abs, -2).result() == 2
        assert not waiting.done()
        processes = executors_of(executor)
    assert waiting.result(DEADLINE_S) == 3
    assert not any(os.path.exists(f"/proc/{process}") for process in processes)
    assert not executors_of(executor)


def test_large_values_on_dask_need_no_shared_folder(dask_client):
    table = bytes(range(256)) * (20 << 12)
    with eyas.on_dask(dask_client) as executor:
        with pytest.raises(ValueError, match="files=True"):
            executor.submit(len, table).result(DEADLINE_S)
        with pytest.raises(ValueError, match="files=True"):
            executor.share(table)
    with eyas.on_dask(dask_client, files=True) as executor:
        shared = executor.share(table)
        calls = [executor.submit(operator.eq, table, shared) for _ in range(8)]
        assert all(call.result(DEADLINE_S) for call in calls)
        assert len(executor.files.ls("/.values")) == 2


def test_dask_workers_that_join_and_die(dask_client):
    with eyas.on_dask(dask_client) as executor:
        dask_client.cluster.scale(3)
        wait_until(lambda: len(executor.nodes()) == 3, "the new worker has an executor")
        before = executors_of(executor)
        killed = parent_of(before[0])
        os.kill(killed, signal.SIGKILL)
        wait_until(
            lambda: before[0] not in executors_of(executor), "the executor ends with its worker"
        )
        # The nanny starts another worker.
        wait_until(
            lambda: len(executors_of(executor)) == 3,
            "the worker that takes its place has an executor",
        )
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
    # Executors cannot make a folder there.
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


@pytest.fixture(scope="module")
def ray_cluster():
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False}
    )
    ray.init(address=cluster.address)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def test_ray_nodes_run_calls_and_are_busy_meanwhile(ray_cluster):
    import ray

    ray_cluster.add_node(num_cpus=1)
    ray_cluster.wait_for_nodes()
    with eyas.on_ray(name="on-ray") as executor:
        assert sorted(node["capacity"]["cpus_milli"] for node in executor.nodes()) == [1000, 2000]
        assert list(executor.map(pow, range(100), range(100))) == list(
            map(pow, range(100), range(100))
        )
        wait_until(
            lambda: ray.available_resources().get("CPU", 0) == 0, "Ray sees the processors as taken"
        )
        before = executors_of(executor)
        assert len(before) == 2
        # A node that joins later, and leaves.
        late = ray_cluster.add_node(num_cpus=1)
        wait_until(lambda: len(executor.nodes()) == 3, "the new node has an executor")
        (its_executor,) = set(executors_of(executor)) - set(before)
        ray_cluster.remove_node(late, allow_graceful=False)
        wait_until(
            lambda: its_executor not in executors_of(executor), "the executor ends with its node"
        )
        assert executor.submit(abs, -2).result(DEADLINE_S) == 2
    assert not executors_of(executor)
    wait_until(lambda: ray.available_resources().get("CPU", 0) == 3, "Ray has its processors again")


def test_ray_without_a_free_processor_is_refused(ray_cluster):
    import ray

    @ray.remote(num_cpus=1)
    class Holder:
        def is_here(self):
            return True

    cpus = int(ray.available_resources()["CPU"])
    holders = [Holder.remote() for _ in range(cpus)]
    assert all(ray.get([holder.is_here.remote() for holder in holders]))
    wait_until(lambda: ray.available_resources().get("CPU", 0) == 0, "all processors are taken")
    with pytest.raises(eyas.ClusterError, match="free CPU"):
        eyas.on_ray()


def test_a_driver_that_has_not_joined_ray_is_refused():
    pytest.importorskip("ray")
    done = subprocess.run(
        [sys.executable, "-c", "import eyas; eyas.on_ray()"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert "call ray.init" in done.stderr


@pytest.fixture
def spark_session(request, monkeypatch, tmp_path):
    """A session with two executors of Spark, whose interpreter has the package, or does not."""
    sql = pytest.importorskip("pyspark.sql")
    interpreter = sys.executable
    if request.param == "bare":
        # Nothing but the standard library: Spark brings its own modules.
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True
        )
        interpreter = str(tmp_path / "bare/bin/python")
    monkeypatch.setenv("PYSPARK_PYTHON", interpreter)
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = sql.SparkSession.builder.master("local-cluster[2,1,1024]").config(
        "spark.ui.enabled", "false"
    )
    session = builder.config("spark.worker.cleanup.enabled", "true").getOrCreate()
    try:
        summary = session.sparkContext._jsc.sc().statusStore()
        # One of them is the driver.
        wait_until(
            lambda: summary.executorList(True).size() == 3, "both executors of Spark have joined"
        )
        yield session
    finally:
        session.stop()


@pytest.mark.parametrize("spark_session", ["same"], indirect=True)
def test_spark_executors_run_calls_and_are_busy_meanwhile(spark_session):
    context = spark_session.sparkContext
    with eyas.on_spark(spark_session, name="on-spark") as executor:
        nodes = executor.nodes()
        assert [node["capacity"]["cpus_milli"] for node in nodes] == [1000, 1000]
        assert [node["capacity"]["memory_bytes"] for node in nodes] == [1 << 30] * 2
        assert list(executor.map(pow, range(100), range(100))) == list(
            map(pow, range(100), range(100))
        )
        tracker = context.statusTracker()
        (job,) = tracker.getJobIdsForGroup(executor._state.cluster.key)
        (stage,) = tracker.getJobInfo(job).stageIds
        wait_until(lambda: tracker.getStageInfo(stage).numActiveTasks == 2, "both slots are taken")
        # The executor ends with its Python worker, and another one takes its place.
        before = executors_of(executor)
        os.kill(parent_of(before[0]), signal.SIGKILL)
        wait_until(
            lambda: before[0] not in executors_of(executor), "the executor ends with its worker"
        )
        wait_until(lambda: len(executors_of(executor)) == 2, "Spark starts it again")
        assert executor.submit(abs, -2).result(DEADLINE_S) == 2
    wait_until(lambda: not executors_of(executor), "the executors end")
    assert context.parallelize(range(4), 4).sum() == 6


@pytest.mark.parametrize("spark_session", ["same"], indirect=True)
def test_a_spark_session_that_ends_ends_the_executor(spark_session):
    executor = eyas.on_spark(spark_session)
    outstanding = executor.submit(time.sleep, 600)
    spark_session.stop()
    with pytest.raises(eyas.ClusterLost):
        outstanding.result(DEADLINE_S)
    wait_until(lambda: not executors_of(executor), "the executors end with the session")
    executor.shutdown()


@pytest.mark.parametrize("spark_session", ["bare"], indirect=True)
def test_a_spark_worker_without_the_package_is_told_with_both_sides(spark_session, tmp_path):
    with pytest.raises(eyas.ClusterError) as caught:
        eyas.on_spark(spark_session)
    assert f"{tmp_path}/bare/bin/python, without the package eyas" in str(caught.value)
    assert f"the client has Python {sys.version.split()[0]} at {sys.executable}" in str(
        caught.value
    )
    assert spark_session.sparkContext.parallelize(range(4), 4).sum() == 6
