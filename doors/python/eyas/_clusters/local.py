"""Clusters that end with an executor."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any

from .._errors import ClusterError
from .child_process import OwnedProcess


class Cluster:
    """A cluster that ends with an executor."""

    #: Keywords that name it for the functions of the native part: ``access`` or ``cluster``.
    address: dict[str, Any]
    #: Folder for shared values, if the cluster has one.
    objects: str | None
    #: Nodes that may join later.
    max_nodes: int = 0

    def forget(self) -> None:
        """In the child of a fork: the cluster ends when the parent says so."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop the cluster, and wait until it has ended."""
        raise NotImplementedError


class LocalCluster(Cluster):
    """A dispatcher and executors on this machine. They also end if this process is killed."""

    def __init__(
        self, nodes: int, slots: int | None, *, has_files: bool = False, files_memory: int = 0
    ) -> None:
        """Start the cluster with ``nodes`` executors of ``slots`` processors each. It keeps files
        if it ``has_files``, and up to ``files_memory`` bytes of them in the memory of each node.
        """
        #: The dispatcher removes it, also if this process is killed.
        self.folder = tempfile.mkdtemp(prefix="eyas-")
        access = os.path.join(self.folder, "access.toml")
        self.address = {"access": access}
        self.objects = os.path.join(self.folder, "values")
        words = [
            "start",
            "local",
            "--owned",
            "--ephemeral",
            "--nodes",
            str(nodes),
            "--access",
            access,
        ]
        if slots is not None:
            words += ["--slots", str(slots)]
        if has_files:
            words.append("--dfs")
        if files_memory:
            words += ["--dfs-memory", str(files_memory)]
        try:
            self._process = OwnedProcess(words, "the cluster")
        except ClusterError:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def forget(self) -> None:
        """In the child of a fork: the cluster ends when the parent says so."""
        self._process.release()

    def stop(self) -> None:
        """Stop the cluster, and wait until it has ended."""
        self._process.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
