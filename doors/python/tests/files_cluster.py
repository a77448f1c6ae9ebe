"""A cluster on this machine that keeps files, for the tests of them."""

import contextlib
import pathlib
import shutil
import subprocess
import sys
import tempfile


@contextlib.contextmanager
def files_cluster(nodes=2):
    """Start a cluster with files; yield its access file."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="eyas-test-"))
    access = folder / "access.toml"
    words = [
        sys.executable,
        "-m",
        "eyas",
        "start",
        "local",
        "--owned",
        "--ephemeral",
        "--dfs",
        "--nodes",
        str(nodes),
    ]
    process = subprocess.Popen(
        [*words, "--access", str(access)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert any(line.strip() == b"ready" for line in process.stdout), "the cluster did not start"
        yield access
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)
