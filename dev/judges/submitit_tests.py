"""Runs submitit's tests of an executor on the commands of `eyas shim`, with submitit unmodified.

Installs submitit; without a network the suite is skipped, which is said, and with CI=true that is a
failure.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

TESTBED = Path(__file__).resolve().parent.parent / "testbed"
sys.path.insert(0, str(TESTBED))
from workflow_systems import NotInstalled, ShimCluster, installed

PACKAGES = ["submitit==1.5.4", "pytest==8.4.2"]
#: Arrays of jobs and `scontrol requeue`, which eyas does not have; and tests that look at a local
#: process.
EXCLUDED = (
    "array or requeuing or checkpoint or local_job or killed or cancel or subprocess or "
    "load_submission"
)


def main() -> None:
    """Runs the tests in a cluster of two nodes."""
    try:
        python = installed("submitit", PACKAGES)
    except NotInstalled as why:
        print(f"SKIPPED: submitit on the commands of a shim: {why}", file=sys.stderr)
        sys.exit(1 if os.environ.get("CI") else 0)
    with (
        tempfile.TemporaryDirectory() as place,
        ShimCluster(Path(place) / "eyas", "--slots", "4") as cluster,
    ):
        words = [python, "-m", "pytest", "-q", "-p", "submitit_on_shim", "-p", "no:cacheprovider"]
        words += ["--pyargs", "submitit.local.test_local", "-k", f"not ({EXCLUDED})"]
        environment = {**cluster.environment, "PYTHONPATH": str(TESTBED)}
        sys.exit(subprocess.run(words, env=environment, cwd=place, timeout=900).returncode)


if __name__ == "__main__":
    main()
