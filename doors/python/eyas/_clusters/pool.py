"""Executors on nodes that a batch system grants while there are calls."""

from __future__ import annotations

import shlex
import subprocess
import sys
import uuid
from collections.abc import Sequence

from .. import _eyas
from .._errors import ClusterError
from .local import Cluster
from .child_process import OwnedProcess

#: Name of the pool in its cluster.
_NAME = "python"
#: Systems whose nodes do not share files with this host.
_APART = ("kubernetes", "ssh")


class PoolCluster(Cluster):
    """A dispatcher on this machine, with nodes that a batch system grants. They are given back when
    it ends.
    """

    def __init__(self, pool: str, options: str | Sequence[str], host: str | None) -> None:
        """Start the dispatcher, which nodes reach at ``host``, and add the pool."""
        name = f"python-{uuid.uuid4().hex[:8]}"
        # The folder of a cluster with a name is where nodes see it, too.
        words = ["--cluster", name, "start", "dispatcher", "--owned", "--ephemeral"]
        self._dispatcher = OwnedProcess(
            words + (["--advertise", host] if host else []), "the dispatcher"
        )
        self.address = {"cluster": name}
        try:
            added = [
                sys.executable,
                "-P",
                "-m",
                "eyas",
                "--cluster",
                name,
                "pool",
                "add",
                pool,
                _NAME,
            ]
            added += shlex.split(options) if isinstance(options, str) else options
            ended = subprocess.run(added, stdin=subprocess.DEVNULL, capture_output=True)
            if ended.returncode != 0:
                said = ended.stderr.decode(errors="replace").strip().removeprefix("eyas: ")
                raise ClusterError(f"the pool cannot be added: {said}")
            [view] = _eyas.ask("pools", **self.address)
            self.objects = None if view["system"] in _APART else f"{view['folder']}/values"
            self.max_nodes = view["max_nodes"]
        except BaseException:
            self.stop()
            raise

    def forget(self) -> None:
        """In the child of a fork: the cluster ends when the parent says so."""
        self._dispatcher.release()

    def stop(self) -> None:
        """Give the nodes back, and stop the dispatcher."""
        self._dispatcher.stop()
