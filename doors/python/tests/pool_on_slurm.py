"""An executor on nodes of a real Slurm, which runs on this machine."""

import os
import pathlib
import shutil
import subprocess
import time

import pytest

import eyas

SCRIPT = pathlib.Path(__file__).parents[3] / "dev" / "testbed" / "slurm.sh"
LONG_S = 240


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    if (
        os.geteuid() != 0
        or shutil.which("slurmctld", path=os.environ["PATH"] + ":/usr/sbin") is None
    ):
        assert "CI" not in os.environ, "in CI, Slurm is installed"
        pytest.skip(
            "a Slurm needs root, and the packages slurmctld, slurmd, slurm-client and munge"
        )
    folder = tmp_path / "slurm"
    subprocess.run([SCRIPT, "up", "-n", "2", "-c", "1", folder], check=True)
    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    monkeypatch.setenv("EYAS_HOME", str(tmp_path / "home"))
    yield
    subprocess.run([SCRIPT, "down", folder], check=True)


def jobs():
    return subprocess.run(
        ["squeue", "--noheader"], capture_output=True, text=True, check=True
    ).stdout.splitlines()


def test_calls_run_on_nodes_that_slurm_grants(slurm):
    options = "--max-nodes 2 --cpus 1 --time-limit 10min"
    with eyas.connect(pool="slurm", pool_options=options, host="127.0.0.1") as executor:
        assert jobs() == []
        assert executor.submit(pow, 2, 10).result(LONG_S) == 1024
        assert any(" R " in job for job in jobs()), "Slurm runs a job with the node"
        assert sum(executor.map(pow, range(100), [2] * 100, timeout=LONG_S)) == 328350
    # Slurm takes some seconds to notice the end of a job.
    deadline = time.monotonic() + LONG_S
    while left := jobs():
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
