"""An executor of eyas inside a worker of an engine.

Engines carry this module to their workers by value, because the workers may lack the package, which
is an error that names both sides. It uses the standard library alone.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import shutil
import subprocess
import sys
import tempfile

#: Seconds that an executor has to end.
_END_DEADLINE_S = 20.0
#: Characters of the log of an executor that failed, in its error.
_SHOWN_CHARACTERS = 4000


class StartFailed(Exception):
    """An executor did not start on a worker, or has failed there."""


@dataclasses.dataclass
class Description:
    """What a worker needs to know to start an executor."""

    #: Name of the engine's worker, for messages.
    worker: str
    #: Name of the executor.
    name: str
    #: Content of the access file.
    access: str
    slots: int
    #: The client: its interpreter, version of Python, and version of eyas.
    client: tuple[str, str, str]
    memory_bytes: int | None = None
    gpus: int = 0
    #: Whether the executor keeps files of the cluster.
    has_files: bool = False


def check(description: Description) -> None:
    """Refuse an interpreter in which calls of the client cannot run."""
    from importlib import metadata, util

    interpreter, python, version = description.client
    here = (
        f"the worker {description.worker} of the engine has Python {platform.python_version()} at "
        f"{sys.executable}"
    )
    there = f"the client has Python {python} at {interpreter}"
    try:
        found = metadata.version("eyas")
    except metadata.PackageNotFoundError:
        # It may be in a folder of PYTHONPATH, without its metadata.
        if util.find_spec("eyas") is None:
            raise StartFailed(
                f"{here}, without the package eyas, and {there}, with eyas {version}: install eyas "
                "for the worker's Python, too"
            ) from None
        found = version
    if found != version:
        raise StartFailed(
            f"{here}, with eyas {found}, and {there}, with eyas {version}: install the same version"
        )
    if python.split(".")[:2] != platform.python_version().split(".")[:2]:
        raise StartFailed(f"{here}, and {there}: use the same version of Python")
    if not os.access(interpreter, os.X_OK):
        raise StartFailed(f"{here}, and {there}, which the worker does not have: use the same path")


class Node:
    """The process of an executor. It ends when the process that holds this object ends, however
    that happens.
    """

    def __init__(self, description: Description) -> None:
        """Start the executor."""
        check(description)
        self._worker = description.worker
        try:
            self._folder = tempfile.mkdtemp(prefix="eyas-")
        except OSError as error:
            why = f"the worker {self._worker} of the engine has no folder for an executor: {error}"
            raise StartFailed(why) from None
        # The executor removes its folder, and its log must stay readable.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            access = os.path.join(self._folder, "access.toml")
            with open(os.open(access, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(description.access)
            words = [
                sys.executable,
                "-P",
                "-m",
                "eyas",
                "start",
                "executor",
                "--owned",
                "--ephemeral",
            ]
            words += ["--access", access]
            # The cluster lives no longer than its client.
            words += ["--folder", self._folder, "--reconnect", "10s", "--name", description.name]
            words += ["--slots", str(description.slots)]
            if description.memory_bytes is not None:
                words += ["--node-memory", str(description.memory_bytes)]
            words += ["--node-resource", f"gpu={description.gpus}"]
            if description.has_files:
                words.append("--dfs")
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._log,
                # An interrupt from the terminal is for the client, which decides what ends.
                start_new_session=True,
            )
        except BaseException:
            self._log.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the process. Returns whether it has ended; raises its log if it has
        failed.
        """
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        if code != 0:
            self._log.seek(0)
            text = self._log.read().decode(errors="replace")[-_SHOWN_CHARACTERS:].strip()
            raise StartFailed(
                f"the executor on the worker {self._worker} of the engine has ended with {code}; "
                "its log:\n"
                f"{text}"
            )
        return True

    def stop(self) -> None:
        """Stop the executor, and wait until it has ended."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_END_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)
