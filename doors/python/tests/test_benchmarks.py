"""The benchmarks of the Python package in miniature, so that they keep working. Their figures do
not matter here.
"""

import pathlib
import subprocess
import sys

import pytest

DEV = pathlib.Path(__file__).parents[3] / "dev" / "experiments"
LONG_S = 240


@pytest.mark.parametrize(
    "name", ["calls.py", "environments.py", "fsspec_reads.py", "snakemake_jobs.py"]
)
def test_benchmark(name, tmp_path):
    words = [sys.executable, str(DEV / name), "--tiny"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=LONG_S)
    assert done.returncode == 0 and done.stdout, done.stderr
