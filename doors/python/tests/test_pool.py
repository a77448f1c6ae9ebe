"""Executors on nodes of batch systems: the system `local` starts processes on this machine."""

import os
import subprocess
import sys

import pytest

import eyas

LONG_S = 120


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("EYAS_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_nodes_come_for_calls_and_leave_with_the_executor(home):
    with eyas.connect(pool="local", pool_options="--max-nodes 2 --cpus 1") as executor:
        assert executor.nodes() == [], "no node was requested without calls"
        futures = [executor.submit(os.getpid) for _ in range(20)]
        processes = {future.result(LONG_S) for future in futures}
        large = executor.submit(bytes, 2 << 20)
        assert executor.submit(len, large).result(LONG_S) == 2 << 20
        assert executor.submit(len, bytes(3 << 20)).result(LONG_S) == 3 << 20
        assert all(node["name"].startswith("python-") for node in executor.nodes())
    assert os.getpid() not in processes
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
    assert not any((home / "clusters").iterdir()), "the folder of the cluster was removed"


def test_a_pool_that_cannot_be_added_leaves_no_cluster(home):
    for pool, options, why in [
        ("nonsense", "", "no batch system `nonsense`"),
        ("local", "--what 1", "'--what'"),
    ]:
        with pytest.raises(eyas.ClusterError, match=why):
            eyas.connect(pool=pool, pool_options=options)
    assert not any((home / "clusters").iterdir())
    with pytest.raises(ValueError, match="not both"):
        eyas.connect("lab", pool="local")
    with pytest.raises(ValueError, match="name one"):
        eyas.connect("lab", pool_options="--max-nodes 2")


def test_the_end_of_a_client_that_was_killed_gives_the_nodes_back(home):
    program = (
        "import eyas, os, time\n"
        "executor = eyas.connect(pool='local', pool_options='--max-nodes 1 --cpus 1')\n"
        "print(executor.submit(os.getpid).result(60), flush=True)\n"
        "time.sleep(600)\n"
    )
    client = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    worker = int(client.stdout.readline())
    client.kill()
    client.wait()
    client.stdout.close()
    # The descriptor becomes readable when the process has ended.
    try:
        descriptor = os.pidfd_open(worker)
    except ProcessLookupError:
        return
    import select

    ready, _, _ = select.select([descriptor], [], [], LONG_S)
    os.close(descriptor)
    assert ready, "the worker has ended"
