"""The executor: calls of functions on a cluster."""

from __future__ import annotations

import base64
import collections
import contextlib
import copy
import itertools
import json
import os
import pickle
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from concurrent.futures import _base
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeAlias, TypedDict, TypeVar, cast

from . import _eyas, _pickling, _worker
from ._commands import Completed, Words
from ._errors import CallFailed, ClusterLost
from ._files import Arguments, File
from ._local import LocalCluster
from ._shared import Shared, store

if TYPE_CHECKING:
    from typing_extensions import Unpack

_T = TypeVar("_T")
_P = ParamSpec("_P")

#: Bytes of a result that the dispatcher passes on.
_MAX_ANSWER_BYTES = 16 << 20
#: Bytes of an initializer and its arguments, which are in the environment of workers.
_MAX_INITIALIZER_BYTES = 64 << 10
#: Bytes of the function and the arguments of a call.
_MAX_CALL_BYTES = 16 << 20
#: Seconds of one wait for results. What ends the executor is noticed at once.
_WAIT_S = 60.0
#: Bytes of the standard error of a command that failed, in the note of its exception.
_SHOWN_BYTES = 2048

# How a call has ended, as `CallSession.results` tells it.
_RETURNED, _RAISED, _FAILED, _CANCELLED = range(4)

#: The words after the interpreter that start a worker.
_CALL = ("-c", "from eyas._worker import main; main()")

Reuse: TypeAlias = Literal["process", "fork", "never"]


class Options(TypedDict, total=False):
    """What each call needs, and what becomes of it."""

    #: Processors; by default one.
    cpus: float
    #: Bytes of memory. A call that uses more fails.
    memory: int
    #: GPUs of its own.
    gpus: int
    #: Seconds after which a call is ended.
    timeout: float | None
    #: Tries after the first one.
    retries: int
    #: Calls of higher priority go first.
    priority: int
    #: A match expression about nodes, such as ``node.labels.site == "a"``.
    requirements: str | None


class ExecutorOptions(Options, total=False):
    """Keywords of an executor on any cluster."""

    initializer: Callable[..., object] | None
    initargs: tuple[Any, ...]
    name: str
    folder: str | os.PathLike[str] | None
    reuse: Reuse
    objects: str | os.PathLike[str] | None


class Future(futures.Future[_T]):
    """The result of a call that may still run. ``running()`` does not tell: ask :meth:`Executor.explain`."""

    #: Number of the call in its executor's job.
    task: int | None = None
    _session: _eyas.CallSession | None = None
    #: The command, if it is no call of a function.
    _command: str | Sequence[str] | None = None

    def cancel(self) -> bool:
        """Cancel the call, also if it runs already. Returns whether it had not ended."""
        has_cancelled = super().cancel()
        session, task = self._session, self.task
        if has_cancelled and session is not None and task is not None:
            session.cancel(task)
        return has_cancelled


class _State:
    """What an executor shares with the thread that receives its results."""

    def __init__(self, session: _eyas.CallSession, cluster: LocalCluster | None) -> None:
        self.session = session
        self.cluster = cluster
        # Of the same thread, too: a collection of garbage may shut an executor anywhere.
        self.lock = threading.RLock()
        self.pending: dict[int, Future[Any]] = {}
        self.is_shut = False
        self.broken: BaseException | None = None
        #: Files of shared values.
        self.values: list[str] = []

    def receive(self) -> None:
        """Receive results until there are no more."""
        why: BaseException | None = None
        try:
            while (results := self.session.results(_WAIT_S)) is not None:
                for result in results:
                    self.settle(*result)
        except BaseException as error:
            why = error
        self.end(why)

    def settle(self, task: int, how: int, answer: bytes, printed: bytes, executor: str, why: str) -> None:
        """Give a future its result."""
        with self.lock:
            future = self.pending.pop(task, None)
        command = None if future is None else future._command
        if printed and command is None:
            # As if the function had run here. A program that has closed its output needs its results all the same.
            with contextlib.suppress(Exception):
                print(printed.decode(errors="replace"), end="", flush=True)
        # The client has cancelled it.
        if future is None or not future.set_running_or_notify_cancel():
            return
        try:
            if how == _RETURNED:
                value = pickle.loads(answer) if command is None else Completed(command, answer, printed)
                return future.set_result(value)
            # A command may end with 1, too.
            error = self.error_of(_FAILED if how == _RAISED and command is not None else how, answer, why)
        except BaseException as wrong:
            error = wrong
            error.add_note("The result of the call cannot be unpickled here.")
        error.add_note(f"Task {self.session.job}.{task}" + (f" on {executor}" if executor else ""))
        if command is not None and printed:
            error.add_note("Its standard error ended with:\n" + printed[-_SHOWN_BYTES:].decode(errors="replace"))
        future.set_exception(error)
        # The exception refers to the future through its traceback: no circle must stay.
        del future, error

    def error_of(self, how: int, answer: bytes, why: str) -> BaseException:
        """The exception of a call."""
        if how == _RAISED:
            error, text = pickle.loads(answer)
            if isinstance(error, _worker.InitializerFailed):
                _base.LOGGER.critical("Exception in initializer:\n%s", error)
                self.break_with(ClusterLost("the initializer of a worker has raised"))
                return ClusterLost("the initializer of a worker has raised")
            assert isinstance(error, BaseException)
            # Imported late, because it imports much.
            from concurrent.futures.process import _RemoteTraceback

            # It is a class of texts, although stubs say otherwise.
            error.__cause__ = _RemoteTraceback(f'\n"""\n{text}"""')  # type: ignore[arg-type]
            return error
        if how == _CANCELLED:
            return futures.CancelledError("the call was cancelled")
        return CallFailed(why)

    def break_with(self, why: BaseException) -> None:
        """Take no more calls, and end all that have not ended."""
        with self.lock:
            self.broken = self.broken or why
            pending, self.pending = self.pending, {}
        for future in pending.values():
            if future.set_running_or_notify_cancel():
                future.set_exception(ClusterLost(str(why)))

    def end(self, why: BaseException | None) -> None:
        """There are no more results."""
        if why is not None or self.pending:
            self.break_with(ClusterLost(str(why or "the job has ended")))
        self.session.disconnect()
        for path in self.values:
            with contextlib.suppress(OSError):
                os.unlink(path)
        if self.cluster is not None:
            self.cluster.stop()

    def shut(self) -> None:
        """Take no more calls."""
        with self.lock:
            self.is_shut = True
        self.session.close()


#: The threads of executors, to be waited for at the end of the interpreter.
_receivers: weakref.WeakKeyDictionary[threading.Thread, _State] = weakref.WeakKeyDictionary()


def _end_all() -> None:
    for thread, state in list(_receivers.items()):
        state.shut()
        thread.join()


def _forget_all() -> None:
    """In the child of a fork there are neither threads nor connections."""
    for state in list(_receivers.values()):
        # Another thread may have had it.
        state.lock = threading.RLock()
        if state.cluster is not None:
            state.cluster.forget()
        state.broken = ClusterLost("an executor cannot be used in a process that was forked after its start")
    _receivers.clear()


# As the executors of the standard library do: calls that are outstanding end before the interpreter does.
threading._register_atexit(_end_all)  # type: ignore[attr-defined]
os.register_at_fork(after_in_child=_forget_all)


class Executor(futures.Executor):
    """Runs calls in workers on a cluster. A worker is a process that stays for further calls.

    ``max_workers`` is the number of processors of a cluster that is started for this executor; with ``cluster`` or
    ``access``, calls run on the cluster with that name or access file. ``initializer`` is called in each worker before
    its first call, in ``folder``, which is the current one if the node has it. The other keywords are :class:`Options`.

    ``reuse`` says how much of a call the next one in its worker finds: everything (``process``), what the initializer
    and imports have left (``fork``: a child of the worker runs each call), or nothing (``never``: each call has a new
    interpreter). Values of :meth:`share` are kept in the folder ``objects``, which all nodes must see.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        cluster: str | None = None,
        access: str | os.PathLike[str] | None = None,
        name: str = "python",
        nodes: int = 1,
        folder: str | os.PathLike[str] | None = None,
        reuse: Reuse = "process",
        objects: str | os.PathLike[str] | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Start or join a cluster."""
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if reuse not in ("process", "fork", "never"):
            raise ValueError('reuse must be "process", "fork" or "never"')
        settings: dict[str, Any] = {"reuse": reuse, "path": sys.path, "folder": os.fspath(folder or os.getcwd())}
        if initializer is not None:
            call = _pickling.call_bytes(_pickling.function_bytes(initializer), initargs, {})
            if len(call) > _MAX_INITIALIZER_BYTES:
                raise ValueError(f"the initializer and its arguments have {len(call)} bytes: pass large ones as files")
            settings["initializer"] = base64.b64encode(call).decode()
        _check(options)
        own = None
        if cluster is None and access is None:
            slots = None if max_workers is None else -(-max_workers // nodes)
            own = LocalCluster(nodes, slots)
            access = own.access
        self._cluster: dict[str, Any] = {"cluster": cluster, "access": access}
        self._objects = None if objects is None else os.path.abspath(objects)
        self._environment = [(_worker.SETTINGS_VARIABLE, json.dumps(settings)), *_worker.caller(cluster, access)]
        self._options = options
        #: Numbers of the kinds of tasks that there are.
        self._templates: dict[Any, int] = {}
        try:
            cpus_milli = 1000 * (max_workers or 0) or sum(node["capacity"]["cpus_milli"] for node in self.nodes())
            self._max_workers = max(1, cpus_milli // 1000)
            self._state = _State(_eyas.CallSession(name, **self._cluster), own)
            self._template = self._template_of(_CALL, (), options)
        except BaseException:
            if own is not None:
                own.stop()
            raise
        self._origin: Executor | None = None
        #: The pickled form of functions that are pickled by name.
        self._functions: weakref.WeakKeyDictionary[Any, bytes] = weakref.WeakKeyDictionary()
        self._receiver = threading.Thread(target=self._state.receive, name="eyas-results", daemon=True)
        _receivers[self._receiver] = self._state
        self._receiver.start()
        # When the program drops the executor, its outstanding calls still end, and then its cluster.
        self._finalizer = weakref.finalize(self, self._state.shut)
        self._finalizer.atexit = False

    def _function_bytes(self, function: Callable[..., Any]) -> bytes:
        try:
            known = self._functions.get(function)
        except TypeError:  # It has no hash, or no weak references.
            return _pickling.function_bytes(function)
        if known is None:
            known = _pickling.function_bytes(function)
            if _pickling.is_named(known):
                self._functions[function] = known
        return known

    def _template_of(self, words: tuple[str, ...], outputs: tuple[tuple[str, str], ...], options: Options) -> int:
        """Return the kind of tasks with this command, or of calls."""
        # Arguments, and what they are for the session.
        key = (words, outputs, *sorted(options.items()))
        if (known := self._templates.get(key)) is not None:
            return known
        timeout, is_call = options.get("timeout"), words is _CALL
        number = self._templates[key] = self._state.session.add_template(
            [sys.executable, *words] if is_call else list(words),
            is_command=not is_call,
            environment=self._environment if is_call else [],
            outputs=list(outputs),
            cpus_milli=round(options.get("cpus", 1) * 1000),
            memory_bytes=options.get("memory", 0),
            gpus=options.get("gpus", 0),
            timeout_us=None if timeout is None else round(timeout * 1e6),
            retries=options.get("retries", 0),
            priority=options.get("priority", 0),
            requirements=options.get("requirements"),
            capture_bytes=_MAX_ANSWER_BYTES,
        )
        return number

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Add a call of ``fn``, and return its future.

        A :class:`File` among the arguments becomes a path on the node, and so does an :class:`Output`.
        """
        with Arguments() as arguments:
            try:
                payload = _pickling.call_bytes(self._function_bytes(fn), args, kwargs)
                if len(payload) > _MAX_CALL_BYTES:
                    raise ValueError(f"the arguments have {len(payload)} bytes: use a File, or share() large values")
            except BaseException as error:
                self._refuse_if_over()
                # As for other executors, the error is the future's: it is no fault of the executor.
                future: Future[_T] = Future()
                future.set_running_or_notify_cancel()
                future.set_exception(error)
                return future
        template, columns = self._template, [(payload, False)]
        if arguments.outputs:
            # The first column is the call.
            numbers = range(2, 2 * len(arguments.outputs) + 2, 2)
            outputs = tuple((f"{{{number}}}", f"{{{number + 1}}}") for number in numbers)
            template = self._template_of(_CALL, outputs, self._options)
            columns += [(os.fsencode(text), False) for output in arguments.outputs for text in output]
        return self._add(Future(), template, columns, arguments.inputs)

    def _add(
        self, future: Future[_T], template: int, columns: list[tuple[bytes, bool]], names: list[bytes]
    ) -> Future[_T]:
        state = self._state
        inputs = []
        if names:
            self._refuse_if_over()
            inputs = state.session.look_up(names)
        with state.lock:
            self._refuse_if_over()
            task = state.session.submit(template, columns, inputs)
            future.task, future._session = task, state.session
            state.pending[task] = future
        return future

    def run(self, command: str | Sequence[str], /, **values: object) -> Future[Completed]:
        """Add a command, and return its future. Keywords replace placeholders in braces.

        >>> executor.run("sort {table} -o {sorted}", table=eyas.File("a.txt"), sorted=eyas.Output("b.txt"))

        A text is split into words as a shell does; there is no shell. The command runs in a folder of its own.
        """
        words = Words(command, values)
        template = self._template_of(tuple(words.words), tuple(words.outputs), self._options)
        future: Future[Completed] = Future()
        future._command = command
        return self._add(future, template, words.columns, [text for text, is_input in words.columns if is_input])

    def share(self, value: _T) -> Shared[_T]:
        """Write a value to a file, once, for any number of calls. Each node gets one copy, which workers read in place.

        The file stays until the executor ends.

        >>> table = executor.share(numpy.zeros((1000, 1000)))
        >>> executor.map(lambda table, row: table[row].sum(), itertools.repeat(table), range(1000))
        """
        own = self._state.cluster
        folder = self._objects or (None if own is None else own.objects)
        if folder is None:
            raise ValueError("name a folder that all nodes see for shared values: connect(…, objects=FOLDER)")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, f"value-{uuid.uuid4().hex}")
        store(value, path)
        self._state.values.append(path)
        return Shared(File(path))

    def with_options(self, **options: Unpack[Options]) -> Executor:
        """Return the same executor with other options for its calls.

        >>> executor.with_options(memory=2 << 30, retries=1).submit(function)
        """
        _check(options)
        other = copy.copy(self)
        other._options = cast(Options, {**self._options, **options})
        other._template = other._template_of(_CALL, (), other._options)
        # As long as one of them is held, calls can be added.
        other._origin = self
        return other

    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes of the cluster, as ``eyas executor list --json`` shows them."""
        nodes: list[dict[str, Any]] = json.loads(_eyas.ask("executors", **self._cluster))
        return nodes

    def report(self) -> dict[str, Any]:
        """Return what has become of the calls so far: counts, times, and where inputs came from."""
        report: dict[str, Any] = json.loads(_eyas.ask("report", job=self._state.session.job, **self._cluster))
        return report

    def explain(self, future: Future[Any]) -> dict[str, Any]:
        """Return why a call waits, or where it runs and why, as ``eyas explain --json`` does."""
        if future.task is None:
            raise ValueError("the call was not submitted")
        job, task = self._state.session.job, future.task
        explanation: dict[str, Any] = json.loads(_eyas.ask("explain", job=job, task=task, **self._cluster))
        return explanation

    @property
    def _broken(self) -> BaseException | None:
        """Why the executor is of no more use; the executors of the standard library have this attribute, too."""
        return self._state.broken

    def _refuse_if_over(self) -> None:
        state = self._state
        if state.broken is not None:
            raise ClusterLost(str(state.broken))
        if state.is_shut:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def map(
        self,
        fn: Callable[..., _T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[_T]:
        """Call ``fn`` with the items of the iterables, and return the results in order.

        One task does ``chunksize`` calls.

        With ``buffersize``, at most that many tasks are outstanding; without it, all are submitted at once.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if buffersize is not None and buffersize < 1:
            raise ValueError("buffersize must be None or > 0")
        deadline = None if timeout is None else time.monotonic() + timeout
        items = zip(*iterables)
        if chunksize == 1:
            chunks: Iterator[Any] = items
            submit: Callable[[Any], Future[Any]] = lambda args: self.submit(fn, *args)
        else:
            chunks = iter(lambda: tuple(itertools.islice(items, chunksize)), ())
            submit = lambda chunk: self.submit(_run_chunk, fn, chunk)
        first = chunks if buffersize is None else itertools.islice(chunks, buffersize)
        outstanding = collections.deque(map(submit, first))

        def results() -> Iterator[Any]:
            try:
                while outstanding:
                    future = outstanding.popleft()
                    left = None if deadline is None else deadline - time.monotonic()
                    # Neither the future nor its result has a name here while it is used.
                    waiting = [future]
                    del future
                    result = [_result_or_cancel(waiting.pop(), left)]
                    if buffersize is not None:
                        outstanding.extend(map(submit, itertools.islice(chunks, 1)))
                    yield result.pop()
            finally:
                for future in outstanding:
                    future.cancel()

        return results() if chunksize == 1 else itertools.chain.from_iterable(results())

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls. With ``wait``, return when all calls have ended, and the cluster of this executor, too.

        With ``cancel_futures``, calls that have not begun are cancelled; the oldest ``max_workers`` ones count as
        begun.
        """
        state = self._state
        with state.lock:
            state.is_shut = True
            pending = list(state.pending.values()) if cancel_futures else []
        for future in pending[self._max_workers :]:
            future.cancel()
        state.shut()
        if wait and threading.current_thread() is not self._receiver:
            self._receiver.join()

    def __exit__(self, kind: type[BaseException] | None, *error: Any) -> None:
        """Wait for all calls; after an interrupt, cancel them before."""
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            with self._state.lock:
                pending = list(self._state.pending.values())
            for future in pending:
                future.cancel()
        self.shutdown()


def _check(options: Options) -> None:
    if unknown := options.keys() - Options.__annotations__:
        raise TypeError(f"{min(unknown)!r} is no option: there are {', '.join(Options.__annotations__)}")


def _result_or_cancel(future: Future[_T], timeout: float | None) -> _T:
    """Return the result of a future, which is cancelled if it has none in time."""
    try:
        try:
            return future.result(timeout)
        finally:
            future.cancel()
    finally:
        # The exception refers to this frame: no circle must stay.
        del future


def _run_chunk(function: Callable[..., _T], chunk: Iterable[tuple[Any, ...]]) -> list[_T]:
    """Call a function with each item of a part of the input of ``map``."""
    return [function(*args) for args in chunk]


def local(nodes: int = 1, max_workers: int | None = None, **options: Unpack[ExecutorOptions]) -> Executor:
    """Start a cluster on this machine, which ends with the executor."""
    return Executor(max_workers, nodes=nodes, **options)


def connect(
    cluster: str | None = None,
    *,
    access: str | os.PathLike[str] | None = None,
    **options: Unpack[ExecutorOptions],
) -> Executor:
    """Return an executor on a cluster that runs.

    It is the one with this name or access file, or the one that ``eyas`` commands use.
    """
    access = access or (None if cluster else os.environ.get("EYAS_ACCESS"))
    name = None if access else cluster or os.environ.get("EYAS_CLUSTER") or "default"
    return Executor(cluster=name, access=access, **options)
