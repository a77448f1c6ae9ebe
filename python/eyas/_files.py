"""Files as arguments: what a call reads and writes."""

from __future__ import annotations

import os
import pathlib
import threading
from typing import Any

__all__ = ["Arguments", "File", "Output"]


class Arguments:
    """What is found in the arguments of one call while they are pickled, or given back while they are unpickled."""

    _now = threading.local()

    def __init__(self, folder: bytes = b"", paths: list[bytes] | None = None) -> None:
        """Begin a call. In a worker, ``folder`` is that of its outputs, and ``paths`` are those of its inputs."""
        self.inputs: list[bytes] = []
        self.outputs: list[tuple[str, str]] = []
        self.folder = folder
        self.paths = paths or []

    def __enter__(self) -> Arguments:
        self._now.arguments = self
        return self

    def __exit__(self, *_: object) -> None:
        self._now.arguments = None

    def counts(self) -> tuple[int, int]:
        """How many inputs and outputs were found so far."""
        return len(self.inputs), len(self.outputs)

    def cut(self, counts: tuple[int, int]) -> None:
        """Forget what was found since."""
        inputs, outputs = counts
        del self.inputs[inputs:], self.outputs[outputs:]

    @classmethod
    def now(cls) -> Arguments | None:
        """Return those of the call that is pickled or unpickled in this thread."""
        found: Arguments | None = getattr(cls._now, "arguments", None)
        return found


def _absolute(source: str) -> str:
    """Return a path that is good in every folder; a URL is."""
    return source if "://" in source else os.path.abspath(source)


class File:
    """A file that a call reads: a path of shared storage, ``s3://``, ``https://``, or a file of the cluster.

    The call gets a :class:`pathlib.Path` of a copy on its node, which other calls read, too. The call runs where the
    copy is, if it can, and must not change it. A file that changes after the call was submitted fails the call.
    """

    def __init__(self, source: str | os.PathLike[str]) -> None:
        """Name a file by its path or URL."""
        self.source = _absolute(os.fspath(source))

    def __repr__(self) -> str:
        return f"eyas.File({self.source!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = Arguments.now()
        if arguments is None:
            return File, (self.source,)
        arguments.inputs.append(os.fsencode(self.source))
        return _input_path, (len(arguments.inputs) - 1,)


class Output:
    """A file that a call writes: a path of shared storage, ``s3://``, or a file of the cluster.

    The call gets a :class:`pathlib.Path` in a folder of its own. The file appears at its destination, whole, when the
    call has returned.
    """

    def __init__(self, destination: str | os.PathLike[str]) -> None:
        """Name the destination by its path or URL."""
        self.destination = _absolute(os.fspath(destination))

    def __repr__(self) -> str:
        return f"eyas.Output({self.destination!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = Arguments.now()
        if arguments is None:
            return Output, (self.destination,)
        name = f"output-{len(arguments.outputs)}/{os.path.basename(self.destination)}"
        arguments.outputs.append((name, self.destination))
        return _output_path, (name,)


def _arguments() -> Arguments:
    arguments = Arguments.now()
    assert arguments is not None, "files are unpickled by workers"
    return arguments


def _input_path(number: int) -> pathlib.Path:
    return pathlib.Path(os.fsdecode(_arguments().paths[number]))


def _output_path(name: str) -> pathlib.Path:
    path = pathlib.Path(os.fsdecode(_arguments().folder), name)
    path.parent.mkdir(exist_ok=True)
    return path
