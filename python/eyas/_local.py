"""Clusters of this process on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile

from ._errors import ClusterError

#: Seconds that a cluster has to end.
_END_DEADLINE_S = 25.0


class Cluster:
    """A cluster that ends with an executor."""

    #: Path of its access file.
    access: str
    #: Folder for shared values, if the cluster has one.
    objects: str | None

    def forget(self) -> None:
        """In the child of a fork: the cluster ends when the parent says so."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop the cluster, and wait until it has ended."""
        raise NotImplementedError


class LocalCluster(Cluster):
    """A dispatcher and executors on this machine. They also end if this process is killed."""

    def __init__(self, nodes: int, slots: int | None) -> None:
        """Start the cluster with ``nodes`` executors of ``slots`` processors each."""
        self._folder = tempfile.mkdtemp(prefix="eyas-")
        self.access = os.path.join(self._folder, "access.toml")
        self.objects = os.path.join(self._folder, "values")
        words = [sys.executable, "-m", "eyas", "start", "local", "--owned", "--ephemeral", "--nodes", str(nodes)]
        if slots is not None:
            words += ["--slots", str(slots)]
        self._process = subprocess.Popen(
            words + ["--access", self.access],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # An interrupt from the terminal is for this process, which decides what ends.
            start_new_session=True,
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == b"ready":
                return
        _, messages = self._process.communicate()
        shutil.rmtree(self._folder, ignore_errors=True)
        raise ClusterError(f"the cluster did not start: {messages.decode(errors='replace').strip()}")

    def forget(self) -> None:
        """In the child of a fork: the cluster ends when the parent says so."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def stop(self) -> None:
        """Stop the cluster, and wait until it has ended."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(_END_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        shutil.rmtree(self._folder, ignore_errors=True)
