"""The dispatcher beside the client, and what all engines have in common."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import pickle
import platform
import shutil
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from importlib import metadata
from typing import Any, Protocol

from .. import _eyas
from .._clusters.child_process import OwnedProcess
from .._clusters.local import Cluster
from .._errors import ClusterError
from .._executor.executor import Executor, ExecutorOptions, on_cluster
from .node import Description

#: Seconds between two looks at a cluster that starts.
_LOOK_EVERY_S = 0.1
#: Folder of large arguments and shared values, in the files of the cluster.
_OBJECTS = "eyas:///.values"
#: Seconds between two looks at an engine.
_WATCH_EVERY_S = 1.0

_LOGGER = logging.getLogger("eyas")


class Engine(Protocol):
    """Starts executors in the workers of an engine."""

    def start(self, cluster: EngineCluster) -> None:
        """Begin to start executors."""

    def missing(self, joined: set[str]) -> list[str]:
        """Return the workers whose executors are not among those that have joined. Raises if one
        has failed.
        """
        ...

    def look(self) -> bool:
        """Look at the engine, and return whether it still runs. Called now and then."""
        ...

    def stop(self) -> None:
        """Stop the executors, and give their resources back. The engine may have ended before."""


class EngineCluster(Cluster):
    """A dispatcher of this process, with executors in the workers of an engine."""

    def __init__(self, engine: Engine, host: str, timeout: float, *, has_files: bool) -> None:
        """Start the cluster, with files if it keeps some. The workers reach this process at
        ``host``.
        """
        #: Begins the names of what the engine runs for this cluster.
        self.key = f"eyas-{uuid.uuid4().hex[:12]}"
        #: Workers and this process may share no folder.
        self.objects = _OBJECTS if has_files else None
        self._has_files = has_files
        self._engine = engine
        self._folder = tempfile.mkdtemp(prefix="eyas-")
        self._access = os.path.join(self._folder, "access.toml")
        self.address = {"access": self._access}
        self._lock = threading.Lock()
        self._is_stopped = False
        self._is_over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="eyas-engine", daemon=True)
        words = ["start", "dispatcher", "--owned", "--ephemeral"]
        words += ["--listen", _listen_address(host), "--advertise", host, "--access", self._access]
        try:
            self._dispatcher = OwnedProcess(words, "the dispatcher")
        except ClusterError:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        try:
            engine.start(self)
            self._wait(timeout)
        except BaseException:
            self.stop()
            raise
        self._watcher.start()

    def describe(
        self, worker: str, number: int, slots: int, memory_bytes: int | None, gpus: int = 0
    ) -> Description:
        """Describe the executor with this number, for a worker."""
        with open(self._access) as file:
            access = file.read()
        client = (sys.executable, platform.python_version(), version())
        name = f"{self.key}-{number}"
        return Description(worker, name, access, slots, client, memory_bytes, gpus, self._has_files)

    def _wait(self, timeout: float) -> None:
        """Wait until the executors have joined."""
        deadline = time.monotonic() + timeout
        while True:
            joined = {node["name"] for node in _eyas.ask("executors", **self.address)}
            missing = self._engine.missing(joined)
            if joined and not missing:
                return
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"{len(missing)} executors have not joined within {timeout:.0f} s: "
                    f"{', '.join(missing[:5])}. Their workers may be busy, or may not reach this "
                    "client: see `start_timeout` and `host`"
                )
            time.sleep(_LOOK_EVERY_S)

    def _watch(self) -> None:
        """End the dispatcher when the engine has ended, so that calls do not wait for ever."""
        while not self._is_over.wait(_WATCH_EVERY_S):
            try:
                if self._engine.look():
                    continue
            except Exception as error:
                _LOGGER.warning("the engine does not answer: %s", error)
            self._dispatcher.release()
            return

    def forget(self) -> None:
        """In the child of a fork: the cluster ends when the parent says so."""
        self._is_stopped = True
        self._dispatcher.release()

    def stop(self) -> None:
        """Give the resources back to the engine, and stop the dispatcher."""
        with self._lock:
            if self._is_stopped:
                return
            self._is_stopped = True
        self._is_over.set()
        if self._watcher.ident is not None:
            self._watcher.join()
        try:
            self._engine.stop()
        finally:
            self._dispatcher.stop()
            shutil.rmtree(self._folder, ignore_errors=True)


def version() -> str:
    """Return the version of this package."""
    try:
        return metadata.version("eyas")
    except metadata.PackageNotFoundError:
        return "without metadata"


def _listen_address(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "0.0.0.0:0"
    return f"[{address}]:0" if address.version == 6 else f"{address}:0"


def own_address(host: str) -> str:
    """Return the address of this machine on the way to a host."""
    for family, kind, protocol, _, address in socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM):
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
            # Nothing is sent.
            probe.connect(address)
            own: str = probe.getsockname()[0]
            return own
    raise ClusterError(
        f"there is no way to the host {host} of the engine: name the address of this client by "
        "`host`"
    )


def executor_on(
    engine: Engine, host: str, timeout: float, options: ExecutorOptions, *, has_files: bool
) -> Executor:
    """Return an executor on a new cluster inside an engine, which ends with the executor."""
    return on_cluster(EngineCluster(engine, host, timeout, has_files=has_files), options)


@contextlib.contextmanager
def by_value(cloudpickle: Any, engine: str) -> Iterator[None]:
    """Let the cloudpickle of an engine carry the code for its workers: :mod:`.node`, and the module
    of the engine.
    """
    modules = [sys.modules[Description.__module__], sys.modules[engine]]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


class ByValue:
    """A function of an engine's module that workers unpickle without this package."""

    def __init__(self, function: Any, cloudpickle: Any) -> None:
        """Pickle it with the cloudpickle that the engine's workers have."""
        with by_value(cloudpickle, function.__module__):
            self._content: bytes = cloudpickle.dumps(function)

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self._content,)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function: engines want something that can be called."""
        return pickle.loads(self._content)(*args, **kwargs)
