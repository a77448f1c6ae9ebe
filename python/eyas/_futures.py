"""Futures, and results that stay in the cluster."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent import futures
from typing import Any, TypeVar, cast

from . import _eyas, _shared
from ._errors import ClusterLost
from ._files import Arguments, input_path, result_file, value_of_future
from ._seeing import SeenFuture

_T = TypeVar("_T")


class Outputs:
    """What a task keeps in the cluster. It is released when nothing in this process refers to it."""

    def __init__(self, session: _eyas.CallSession, task: int) -> None:
        """Take over what a task of the session keeps."""
        self.session = session
        self.task = task
        self._lock = threading.Lock()
        self._value: futures.Future[Any] | None = None
        #: Whether the result of the call is there, too.
        self.has_result = False

    def __del__(self) -> None:
        self.session.unneeded(self.task)

    def load(self) -> None:
        """Fetch the result, once. An error is that of :meth:`value`."""
        with self._lock:
            if self._value is None:
                self._value = futures.Future()
                try:
                    self._refuse_if_over()
                    path = self.session.fetch_result(self.task, os.fsencode(result_file(self.task)))
                    try:
                        self._value.set_result(_shared.load(path, is_private=True))
                    finally:
                        # The content stays as long as it is used.
                        os.unlink(path)
                except Exception as error:
                    error.add_note(f"The result of task {self.session.job}.{self.task} cannot be fetched.")
                    self._value.set_exception(error)
                except BaseException:
                    # An interrupt: the next one fetches it.
                    self._value = None
                    raise

    def value(self) -> Any:
        """Return the result."""
        self.load()
        assert self._value is not None
        return self._value.result()

    def error(self) -> BaseException | None:
        """Return why the result cannot be had."""
        self.load()
        assert self._value is not None
        return self._value.exception()

    def fetch(self, name: str, folder: str | os.PathLike[str]) -> None:
        """Download a file into a folder."""
        self._refuse_if_over()
        self.session.fetch(self.task, os.fsencode(name), os.fspath(folder))

    def _refuse_if_over(self) -> None:
        if self.session.is_over:
            raise ClusterLost(
                f"what task {self.session.job}.{self.task} has kept in the cluster ended with its executor: save it, "
                "or use it, before that"
            )


class Future(SeenFuture[_T]):
    """The result of a call that may still run.

    A future can be an argument of another call, which then gets the result. Large results go from node to node.
    """

    #: The command, if it is no call of a function.
    _command: str | Sequence[str] | None = None
    #: What its task keeps in the cluster.
    _outputs: Outputs | None = None
    #: Names of the outputs that stay in the cluster, with their numbers.
    _names: dict[str | int, tuple[int, str]] | None = None
    #: What must stay until the call has ended: files in the cluster that it reads.
    _needs: Sequence[object] = ()

    def cancel(self) -> bool:
        """Cancel the call, also if it runs already. Returns whether it had not ended."""
        has_cancelled = super().cancel()
        state, task = self._of, self.task
        if has_cancelled and state is not None and task is not None:
            state.session.cancel(task)
        return has_cancelled

    def running(self) -> bool:
        """Whether a node has the call now. The dispatcher is asked."""
        if self._of is None or self.done():
            return False
        return bool(self.explain()["task"]["state"] == "assigned")

    def result(self, timeout: float | None = None) -> _T:
        """Return the result. One that has stayed in the cluster is fetched now."""
        result: object = super().result(timeout)
        return cast(_T, result.value() if isinstance(result, Outputs) else result)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the exception of the call. A result that has stayed in the cluster is fetched, which may fail."""
        error = super().exception(timeout)
        if error is not None:
            return error
        result: object = super().result()
        return result.error() if isinstance(result, Outputs) else None

    def _result_type(self) -> str:
        result: object = super().result()
        return "a value in the cluster" if isinstance(result, Outputs) else type(result).__name__

    def output(self, which: str | int = 0) -> KeptFile:
        """Return a file that stays in the cluster: an :class:`Output` without destination, by its keyword or number."""
        known = self._names or {}
        if which not in known:
            has = f": it has {', '.join(map(repr, known))}" if known else ""
            raise KeyError(f"{which!r} is no output of the call that stays in the cluster{has}")
        return KeptFile(self, *known[which])

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = Arguments.now()
        if arguments is None:
            raise TypeError("a future can only be pickled as an argument of a call: use its result")
        arguments.values.append(self)
        return value_of_future, (len(arguments.values) - 1,)


class KeptFile:
    """A file that a task has written and that stays in the cluster, as long as this object or the future does.

    As an argument of a call or command it becomes a path on the node.
    """

    def __init__(self, future: Future[Any], number: int, name: str) -> None:
        """Name an output of a task."""
        self.future = future
        self.number = number
        self.name = name

    def __repr__(self) -> str:
        return f"<eyas.KeptFile {self.name!r} of task {self.future.task}>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Wait for the file, and download it."""
        futures.Future.exception(self.future)
        outputs = self.future._outputs
        if outputs is None:
            self.future.result()
            raise FileNotFoundError(f"the call has not written its output {self.name!r}")
        path = os.path.abspath(path)
        import tempfile

        with tempfile.TemporaryDirectory(prefix=".eyas-", dir=os.path.dirname(path)) as folder:
            outputs.fetch(self.name, folder)
            os.replace(os.path.join(folder, self.name), path)

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = Arguments.now()
        if arguments is None:
            raise TypeError("a file that stays in the cluster can only be pickled as an argument of a call")
        arguments.inputs.append(self)
        return input_path, (len(arguments.inputs) - 1,)
