"""Futures, and results that stay in the cluster."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from concurrent.futures import _base
from typing import Any, TypeVar, cast

from .. import _eyas
from .._errors import ClusterError, ClusterLost
from .._views.notebook import SeenFuture
from .._worker import shared
from .._worker.arguments import Arguments, input_path, result_file, value_of_future
from .._worker.public import public
from .._worker.worker import Worker, released

_T = TypeVar("_T")


class Fetching:
    """Threads that fetch what belongs to calls: results for those who wait with a deadline, or in
    an event loop.
    """

    MAX_THREADS = 4
    lock = threading.Lock()
    threads: futures.ThreadPoolExecutor | None = None

    @classmethod
    def submit(cls, act: Callable[[], None]) -> futures.Future[None]:
        """Have one of the threads act."""
        with cls.lock:
            if cls.threads is None:
                cls.threads = futures.ThreadPoolExecutor(
                    cls.MAX_THREADS, thread_name_prefix="eyas-fetching"
                )
            return cls.threads.submit(act)

    @classmethod
    def forget(cls) -> None:
        """In the child of a fork there are no threads."""
        cls.lock, cls.threads = threading.Lock(), None


os.register_at_fork(after_in_child=Fetching.forget)


class Outputs:
    """What a task keeps in the cluster. It is released when nothing in this process refers
    to it.
    """

    def __init__(self, session: _eyas.CallSession, task: int) -> None:
        """Take over what a task of the session keeps."""
        self.session = session
        self.task = task
        self._lock = threading.Lock()
        self._value: futures.Future[Any] | None = None
        #: Its fetch by another thread.
        self._fetch: futures.Future[None] | None = None
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
                    self._value.set_result(self._read())
                except Exception as error:
                    error.add_note(
                        f"The result of task {self.session.job}.{self.task} cannot be fetched."
                    )
                    self._value.set_exception(error)
                except BaseException:
                    # An interrupt: the next one fetches it.
                    self._value = None
                    raise

    def _read(self) -> Any:
        if (content := self.session.near_result(self.task)) is not None:
            return shared.load_content(content)
        path = self.session.fetch_result(self.task, os.fsencode(result_file(self.task)))
        try:
            return shared.load(path, is_private=True)
        finally:
            # The content stays as long as it is used.
            os.unlink(path)

    def load_soon(self) -> futures.Future[None]:
        """Fetch the result in another thread, once."""
        if self._fetch is None:
            try:
                self._fetch = Fetching.submit(self.load)
            except RuntimeError:  # The interpreter ends, and takes no more threads.
                self.load()
                self._fetch = futures.Future()
                self._fetch.set_result(None)
        return self._fetch

    def _loaded(self, timeout: float | None) -> futures.Future[Any]:
        if self._value is None or not self._value.done():
            self.load() if timeout is None else self.load_soon().result(timeout)
        assert self._value is not None
        return self._value

    def value(self, timeout: float | None) -> Any:
        """Return the result, or raise a TimeoutError."""
        return self._loaded(timeout).result()

    def error(self, timeout: float | None) -> BaseException | None:
        """Return why the result cannot be had, or raise a TimeoutError."""
        return self._loaded(timeout).exception()

    def fetch(self, name: str, folder: str | os.PathLike[str]) -> None:
        """Download a file into a folder."""
        self._refuse_if_over()
        self.session.fetch(self.task, os.fsencode(name), os.fspath(folder))

    def _refuse_if_over(self) -> None:
        if self.session.is_over:
            raise ClusterLost(
                f"what task {self.session.job}.{self.task} has kept in the cluster ended with its "
                "executor: save it, or use it, before that"
            )


class _LendingEvent(threading.Event):
    """Lets other calls have the processors of this call while it waits."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the event."""
        if self.is_set():
            return True
        with released():
            return super().wait(timeout)


class _Waiters(list[Any]):
    """What waits for a future in a call: :func:`concurrent.futures.wait` and ``as_completed`` add a
    waiter.
    """

    def append(self, waiter: Any) -> None:
        """Add a waiter, before it waits for its event. It is the waiter of other futures, too."""
        if type(waiter.event) is threading.Event:
            waiter.event = _LendingEvent()
        super().append(waiter)


@public
class Future(SeenFuture[_T]):
    """The result of a call that may still run.

    A future can be an argument of another call, which then gets the result. Large results go from
    node to node.
    """

    #: The command, if it is no call of a function.
    _command: str | Sequence[str] | None = None
    #: What its task keeps in the cluster.
    _outputs: Outputs | None = None
    #: Names of the outputs that stay in the cluster, with their numbers.
    _names: dict[str | int, tuple[int, str]] | None = None
    #: What must stay until the call has ended: files in the cluster that it reads.
    _needs: Sequence[object] = ()

    def __init__(self) -> None:
        """Begin without a result, as executors do."""
        super().__init__()
        if Worker.answering is not None:
            self._waiters = _Waiters()

    def _invoke_callbacks(self) -> None:
        """Call all callbacks, whatever they raise. The first exit or interrupt is raised then."""
        interrupt: BaseException | None = None
        for callback in self._done_callbacks:  # type: ignore[attr-defined]
            try:
                callback(self)
            except BaseException as raised:
                _base.LOGGER.exception("exception calling callback for %r", self)
                interrupt = interrupt or (None if isinstance(raised, Exception) else raised)
        if interrupt is not None:
            raise interrupt

    def cancel(self) -> bool:
        """Cancel the call, also if it runs already. Returns whether it had not ended."""
        has_cancelled = super().cancel()
        job, task = self._of, self.task
        if has_cancelled and job is not None and task is not None:
            job.session.cancel(task)
        return has_cancelled

    def running(self) -> bool:
        """Whether a node has the call now. The dispatcher is asked."""
        if self._of is None or self.done():
            return False
        try:
            explanation = self.explain()
        except ClusterError:
            # The call goes over another connection, and may not have arrived.
            if self.task is not None and sum(self._of.view()["tasks"].values()) <= self.task:
                return False
            raise
        return bool(explanation["task"]["state"] == "assigned")

    def result(self, timeout: float | None = None) -> _T:
        """Return the result. One that has stayed in the cluster is fetched now."""
        began = time.monotonic()
        self._wait_released(timeout)
        result: object = super().result(_left(timeout, began))
        return cast(
            _T, result.value(_left(timeout, began)) if isinstance(result, Outputs) else result
        )

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the exception of the call. A result that has stayed in the cluster is fetched,
        which may fail.
        """
        began = time.monotonic()
        self._wait_released(timeout)
        error = super().exception(_left(timeout, began))
        if error is not None:
            return error
        result: object = super().result()
        return result.error(_left(timeout, began)) if isinstance(result, Outputs) else None

    def _wait_released(self, timeout: float | None) -> None:
        """In a call, let other calls have its processors while it waits: it may be that this one
        needs them.
        """
        if Worker.answering is not None and not self.done():
            with released():
                futures.wait([self], timeout)

    def add_done_callback(self, fn: Callable[[futures.Future[_T]], object]) -> None:
        """Call ``fn`` with the future when the call has ended."""
        if getattr(fn, "__module__", None) == "asyncio.futures":
            # It asks for the result in the thread of an event loop, which would stand meanwhile.
            super().add_done_callback(lambda _: self._when_fetched(fn))
        else:
            super().add_done_callback(fn)

    def _when_fetched(self, act: Callable[[futures.Future[_T]], object]) -> None:
        """Act when the result is in this process."""
        result: object = self._result
        if isinstance(result, Outputs):
            result.load_soon().add_done_callback(lambda _: act(self))
        else:
            act(self)

    def _result_type(self) -> str:
        result: object = super().result()
        return "a value in the cluster" if isinstance(result, Outputs) else type(result).__name__

    def output(self, which: str | int = 0) -> KeptFile:
        """Return a file that stays in the cluster: an :class:`Output` without destination, by its
        keyword or number.
        """
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


def _left(timeout: float | None, began: float) -> float | None:
    """Return what is left of a timeout."""
    return None if timeout is None else max(0.0, timeout - (time.monotonic() - began))


def _close_like(before: str, path: str) -> None:
    """Close a file to the users to whom another file, which it replaces, is closed."""
    try:
        mode = os.lstat(before).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISREG(mode):
        # One who may read a file may execute it, too, if the new one is a program.
        os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) & (0o700 | mode | (mode & 0o044) >> 2))


@public
class KeptFile:
    """A file that a task has written and that stays in the cluster, as long as this object or the
    future does.

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
        """Wait for the file, and download it.

        It has the permissions that the task gave it, less the umask. If it replaces a file, it is
        open to no user to whom that file was closed.
        """
        futures.Future.exception(self.future)
        outputs = self.future._outputs
        if outputs is None:
            self.future.result()
            raise FileNotFoundError(f"the call has not written its output {self.name!r}")
        path = os.path.abspath(path)
        import tempfile

        with tempfile.TemporaryDirectory(prefix=".eyas-", dir=os.path.dirname(path)) as folder:
            outputs.fetch(self.name, folder)
            fetched = os.path.join(folder, self.name)
            _close_like(path, fetched)
            os.replace(fetched, path)

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = Arguments.now()
        if arguments is None:
            raise TypeError(
                "a file that stays in the cluster can only be pickled as an argument of a call"
            )
        arguments.inputs.append(self)
        return input_path, (len(arguments.inputs) - 1,)
