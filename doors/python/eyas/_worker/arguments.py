"""Files as arguments: what a call reads and writes."""

from __future__ import annotations

import functools
import os
import pathlib
import threading
from collections.abc import Callable
from typing import Any

from .public import public

__all__ = [
    "RESULT_PATTERN",
    "Arguments",
    "File",
    "Output",
    "bound_method",
    "code_part",
    "input_path",
    "partial_of",
    "result_file",
    "value_of_future",
]

#: When an output appears; the first is the default.
WHEN = ("success", "failure", "always")

#: Name of the file with a large result, in the folder of a call's outputs, for the placeholder of
#: the task's number. It is no name of an input, such as the result of another call.
RESULT_PATTERN = ".result-{#}"


class Arguments:
    """What is found in the arguments of one call while they are pickled, or given back while they
    are unpickled.
    """

    _now = threading.local()

    def __init__(self, folder: bytes = b"", paths: list[bytes] | None = None) -> None:
        """Begin a call. In a worker, ``folder`` is that of its outputs, and ``paths`` are those of
        its inputs.
        """
        #: Paths and URLs of files that the call reads, and files that stay in the cluster.
        self.inputs: list[Any] = []
        #: Files that the call writes: names in its folder, destinations, and when they appear.
        self.outputs: list[tuple[str, str | None, str]] = []
        #: Futures whose results are arguments; in a worker, their results.
        self.values: list[Any] = []
        #: Large buffers of arguments, by the numbers of the inputs that have their content.
        self.buffers: list[int] = []
        #: In a worker: the functions and classes of the main script that the call has.
        self.code: list[Any] = []
        #: In a client: numbers the functions and classes that the call sends beside its arguments;
        #: returns None for code that is pickled among the arguments.
        self.number_of_code: Callable[[Any], int | None] | None = None
        self.folder = folder
        self.paths = paths or []
        self._outer: Arguments | None = None

    def __enter__(self) -> Arguments:
        self._outer, self._now.arguments = self.now(), self
        return self

    def __exit__(self, *_: object) -> None:
        self._now.arguments, self._outer = self._outer, None

    def counts(self) -> tuple[int, int, int, int]:
        """How much of each was found so far."""
        return len(self.inputs), len(self.outputs), len(self.values), len(self.buffers)

    def cut(self, counts: tuple[int, int, int, int]) -> None:
        """Forget what was found since."""
        inputs, outputs, values, buffers = counts
        del (
            self.inputs[inputs:],
            self.outputs[outputs:],
            self.values[values:],
            self.buffers[buffers:],
        )

    @classmethod
    def now(cls) -> Arguments | None:
        """Return those of the call that is pickled or unpickled in this thread."""
        found: Arguments | None = getattr(cls._now, "arguments", None)
        return found


def _absolute(source: str) -> str:
    """Return a path that is good in every folder; a URL is."""
    return source if "://" in source else os.path.abspath(source)


@public
class File:
    """A file that a call reads: a path of shared storage, ``s3://``, ``https://``, or a file of the
    cluster.

    The call gets a :class:`pathlib.Path` of a copy on its node, which other calls read, too. The
    call runs where the copy is, if it can, and must not change it. A file that changes after the
    call was submitted fails the call.
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
        return input_path, (len(arguments.inputs) - 1,)


@public
class Output:
    """A file that a call writes: a path of shared storage, ``s3://``, or a file of the cluster.

    The call gets a :class:`pathlib.Path` in a folder of its own. The file appears at its
    destination, whole, when the call has returned. Without a destination it stays in the cluster,
    as ``future.output()``.
    """

    def __init__(
        self, destination: str | os.PathLike[str] | None = None, when: str = "success"
    ) -> None:
        """Name the destination by its path or URL. With ``when="failure"``, the file appears when
        the call has failed and is not tried again, and with ``"always"`` in both cases.
        """
        if when not in WHEN:
            raise ValueError(f'`when` cannot be {when!r}: write "success", "failure" or "always"')
        if destination is None and when != WHEN[0]:
            raise ValueError(
                "an output without a destination stays in the cluster, and only when the call has "
                "returned: name a destination, or leave `when` out"
            )
        self.destination = None if destination is None else _absolute(os.fspath(destination))
        self.when = when

    def __repr__(self) -> str:
        words = [] if self.destination is None else [repr(self.destination)]
        words += [] if self.when == WHEN[0] else [f"when={self.when!r}"]
        return f"eyas.Output({', '.join(words)})"

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = Arguments.now()
        if arguments is None:
            return Output, (self.destination, self.when)
        number = len(arguments.outputs)
        # Files that a task keeps have different names.
        name = (
            f"output-{number}" if self.destination is None else os.path.basename(self.destination)
        )
        name = f"output-{number}/{name}"
        arguments.outputs.append((name, self.destination, self.when))
        return _output_path, (name,)


def _arguments() -> Arguments:
    arguments = Arguments.now()
    assert arguments is not None, "files are unpickled by workers"
    return arguments


def result_file(task: int) -> str:
    """Return the name of the file with the result of a task."""
    return RESULT_PATTERN.replace("{#}", str(task + 1))


def input_path(number: int) -> pathlib.Path:
    """In a worker: return the path of an input."""
    return pathlib.Path(os.fsdecode(_arguments().paths[number]))


def code_part(number: int) -> Any:
    """In a worker: return a function or class of the call."""
    return _arguments().code[number]


def bound_method(number: int, name: str, attributes: dict[str, Any]) -> Any:
    """In a worker: return a method of a new object of a class of the call."""
    of = code_part(number)
    made = of.__new__(of)
    vars(made).update(attributes)
    return getattr(made, name)


def partial_of(number: int, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """In a worker: return a partial of a function of the call."""
    return functools.partial(code_part(number), *args, **keywords)


def value_of_future(number: int) -> Any:
    """In a worker: return the result of a future."""
    return _arguments().values[number]


def _output_path(name: str) -> pathlib.Path:
    path = pathlib.Path(os.fsdecode(_arguments().folder), name)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
