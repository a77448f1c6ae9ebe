"""The executor: calls of functions on a cluster."""

from __future__ import annotations

import base64
import collections
import contextlib
import functools
import itertools
import os
import pickle
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeAlias, TypeVar, cast

from .. import _eyas
from .._environments import worker_start
from .._files.folders import SharedFolder, folder_of
from .._files.values import NO_FOLDER, ValueFiles
from .._threads import join
from .._views.notebook import Job, SeenExecutor
from .._worker import compatibility, pickling, worker
from .._worker.arguments import RESULT_PATTERN, Arguments, File
from .._worker.public import public
from .._worker.shared import Shared
from .calls import Call, after
from .functions import Function, Functions
from .futures import Future
from .keywords import SharedKeywords
from .options import Options, bytes_of, checked, options_of, refuse_excess
from .state import State, receivers

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._clusters.local import Cluster
    from ..fs import EyasFileSystem
    from .blocks import ChunkMemory, Piece
    from .catalog import Catalog
    from .commands import Completed

_T = TypeVar("_T")
_P = ParamSpec("_P")

#: Bytes of a result that the dispatcher passes on.
_MAX_ANSWER_BYTES = 16 << 20
#: Bytes of an initializer and its arguments, which are in the environment of workers.
_MAX_INITIALIZER_BYTES = 64 << 10

#: Kinds of tasks that have words of their own. Further commands share kinds: those with as many
#: words are of one.
_MAX_OWN_TEMPLATES = 1000

#: The words after the interpreter that start a worker.
_CALL = ("-c", "from eyas._worker.worker import main; main()")
#: The output of a call that is written if its result is large.
_RESULT = ((RESULT_PATTERN, None, "success"),)

#: Files of the cluster that calls may read, and folders into which they may write.
Scope: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]
_NO_FILES: Scope = ((), ())

Reuse: TypeAlias = Literal["process", "fork", "never"]


class ExecutorOptions(Options, total=False):
    """Keywords of an executor on any cluster."""

    initializer: Callable[..., object] | None
    initargs: tuple[Any, ...]
    name: str
    folder: str | os.PathLike[str] | None
    reuse: Reuse
    objects: str | os.PathLike[str] | None
    variables: Mapping[str, str] | Iterable[str]


@public
class Executor(SeenExecutor):
    """Runs calls in workers on a cluster. A worker is a process that stays for further calls.

    ``max_workers`` is the number of processors of a cluster that is started for this executor; with
    ``cluster`` or ``access``, calls run on the cluster with that name or access file.
    ``initializer`` is called in each worker before its first call, in ``folder``, which is the
    current one if the node has it. The other keywords are :class:`Options`.

    ``reuse`` says how much of a call the next one in its worker finds: everything (``process``),
    what the initializer and imports have left (``fork``: a child of the worker runs each call), or
    nothing (``never``: each call has a new interpreter). Values of :meth:`share` and large
    arguments are kept in the folder ``objects``, which all nodes must see, or which is in the files
    of the cluster: ``eyas:///PATH``. ``variables`` are names of environment variables that workers
    get from this process, or names with values.
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
        files: bool = False,
        files_memory: int | str = 0,
        folder: str | os.PathLike[str] | None = None,
        reuse: Reuse = "process",
        objects: str | os.PathLike[str] | None = None,
        variables: Mapping[str, str] | Iterable[str] = (),
        **options: Unpack[Options],
    ) -> None:
        """Start or join a cluster."""
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if reuse not in ("process", "fork", "never"):
            raise ValueError('reuse must be "process", "fork" or "never"')
        #: Where workers run, and commands in place.
        self._folder = os.path.abspath(folder or os.getcwd())
        settings: dict[str, Any] = {"reuse": reuse, "folder": self._folder}
        settings["client"] = compatibility.this_side()
        own_variables = _variables_of(variables)
        if initializer is not None:
            call = pickling.call_bytes(initializer, *initargs)
            if len(call) > _MAX_INITIALIZER_BYTES:
                raise ValueError(
                    f"the initializer and its arguments have {len(call)} bytes: pass large ones as "
                    "files"
                )
            settings["initializer"] = base64.b64encode(call).decode()
        options = checked(options)
        self._cluster: dict[str, Any] = {"cluster": cluster, "access": access}
        named = None if objects is None else folder_of(objects, self._cluster)
        own = None
        if cluster is None and access is None:
            slots = None if max_workers is None else -(-max_workers // nodes)
            # Imported late, as all that not every program needs: `import eyas` is fast.
            from .._clusters.local import LocalCluster

            own = LocalCluster(nodes, slots, has_files=files, files_memory=bytes_of(files_memory))
            self._cluster["access"] = access = own.address["access"]
        #: The folder of shared values and large arguments, if there is one.
        self._objects = (
            SharedFolder(own.objects)
            if named is None and own is not None and own.objects
            else named
        )
        # Calls on all workers find the same hashes, as programs that group by them need.
        given = {"PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0")} | own_variables
        given |= worker.caller(cluster, access)
        self._starts = worker_start.Starts(settings, given, _CALL, named, is_local=own is not None)
        self._options = options
        #: Numbers of the kinds of tasks that there are.
        self._templates: dict[Any, int] = {}
        try:
            found = self.nodes()
            #: The nodes, if there will be no others.
            self._only_nodes = found if own is not None else None
            cpus_milli = 1000 * (max_workers or 0) or sum(
                node["capacity"]["cpus_milli"] for node in found
            )
            self._max_workers = max(1, cpus_milli // 1000)
            # The folder of this executor's cluster is removed also if this process is killed.
            session = _eyas.CallSession(
                name, **self._cluster, results=own.folder if own is not None else None
            )
            self._state = State(Job(session, self._cluster), own)
            self._template = self._template_of(_CALL, _RESULT, options)
        except BaseException:
            if own is not None:
                own.stop()
            raise
        self._origin: Executor | None = None
        self._functions = Functions()
        self._receiver = threading.Thread(
            target=self._state.receive, name="eyas-results", daemon=True
        )
        receivers[self._receiver] = self._state
        self._receiver.start()
        # When the program drops the executor, its outstanding calls still end, and then its
        # cluster.
        self._finalizer = weakref.finalize(self, self._state.shut)
        self._finalizer.atexit = False

    def _function(self, function: Callable[..., Any]) -> Function:
        """Pickle a function, unless it was before."""
        return self._functions.get(function, self._values, has_folder=self._objects is not None)

    def _adder(
        self,
        function: Callable[..., Any],
        own: Options | None,
        *,
        wrapper: int = pickling.PLAIN,
        scope: Scope = _NO_FILES,
        shared: dict[str, Any] | None = None,
    ) -> Callable[[tuple[Any, ...]], Future[Any]]:
        """Return what adds a call of a function with some arguments, and with options of its own.

        The function is pickled for the first of them, and so are the keywords that all of them
        share. If that fails, it fails for each.
        """
        pickled = functools.cache(lambda: self._function(function))
        if not shared:
            return lambda args: self._submit(own, pickled, args, {}, wrapper=wrapper, scope=scope)
        self._state.refuse_if_over()
        keywords = SharedKeywords(shared, self._values())

        def add(args: tuple[Any, ...]) -> Future[Any]:
            future = self._submit(own, pickled, args, keywords.values, wrapper=wrapper, scope=scope)
            keywords.hold_for(future)
            return future

        return add

    def _template_of(
        self,
        words: tuple[str, ...],
        outputs: tuple[tuple[str, str | None, str], ...],
        options: Options,
        scope: Scope = _NO_FILES,
        *,
        in_place: bool = False,
    ) -> int:
        """Return the kind of tasks with this command, or of calls."""
        # Arguments, and what they are for the session.
        key = (words, outputs, scope, in_place, *sorted(options.items()))
        if (known := self._templates.get(key)) is not None:
            return known
        if self._only_nodes is not None:
            refuse_excess(options, self._only_nodes)
        timeout, is_call, cpus = options.get("timeout"), words is _CALL, options.get("cpus", 1)
        threads = max(1, int(cpus))
        start = (
            self._starts.of(options.get("environment"), threads)
            if is_call
            else worker_start.Start([*words], {}, [])
        )
        number = self._templates[key] = self._state.session.add_template(
            start.words,
            is_command=not is_call,
            environment=list(start.variables.items()),
            inputs=self._state.session.look_up(start.inputs) if start.inputs else [],
            outputs=list(outputs),
            cpus_milli=round(cpus * 1000),
            memory_bytes=bytes_of(options.get("memory", 0)),
            gpus=options.get("gpus", 0),
            timeout_us=None if timeout is None else round(timeout * 1e6),
            retries=options.get("retries", 0),
            priority=options.get("priority", 0),
            requirements=options.get("requirements"),
            capture_bytes=_MAX_ANSWER_BYTES,
            folder=self._folder if in_place else None,
            reads=list(scope[0]),
            folders=list(scope[1]),
        )
        return number

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Add a call of ``fn``, and return its future.

        A :class:`File` among the arguments becomes a path on the node, and so does an
        :class:`Output`. A :class:`Future` becomes its result; the call runs when all of them have
        ended, and fails if one has failed. Large arrays and other large arguments become files, of
        which each node gets one copy: they cannot be written to. What ``fn`` refers to becomes
        files, too; each call has its own view of it.
        """
        return self._submit(options_of(fn), lambda: self._function(fn), args, kwargs)

    def _submit(
        self,
        own: Options | None,
        function: Callable[[], Function],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        wrapper: int = pickling.PLAIN,
        scope: Scope = _NO_FILES,
    ) -> Future[Any]:
        """Add a call with options of its own."""
        # Before large arguments are written to files.
        self._state.refuse_if_over()
        future: Future[Any] = Future()
        try:
            call = Call(
                function(),
                args,
                kwargs,
                self._values,
                self._functions,
                wrapper=wrapper,
                has_folder=self._objects is not None,
            )
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # As for other executors, the error is the future's: it is no fault of the executor.
            future.set_running_or_notify_cancel()
            future.set_exception(_of_pickling(error))
            return future
        template = self._template
        if call.outputs or own is not None or scope is not _NO_FILES:
            options = self._options if own is None else cast(Options, {**self._options, **own})
            template = self._template_of(_CALL, _RESULT + call.outputs, options, scope)
        call.submit(future, template, self._state)
        return future

    def _values(self) -> ValueFiles | None:
        """Return the files of shared values and large arguments, if there is a folder for them."""
        state = self._state
        with state.values_lock:
            if self._objects is not None and state.values is None:
                state.values = ValueFiles(self._objects)
        return state.values

    def run(
        self,
        command: str | Sequence[str],
        /,
        *,
        in_place: bool = False,
        copy_inputs: bool = False,
        **values: object,
    ) -> Future[Completed]:
        """Add a command, and return its future. Other keywords replace placeholders in braces.

        >>> table, result = eyas.File("a.txt"), eyas.Output("b.txt")
        >>> executor.run("sort {table} -o {sorted}", table=table, sorted=result)

        A text is split into words as a shell does; there is no shell. The command runs in a folder
        of its own; with ``in_place``, in the ``folder`` of the executor, as for ``eyas run
        --in-place``. With ``copy_inputs``, it gets copies of its files, which it may write.
        """
        from .commands import Words

        words = Words(command, values, has_own_words=len(self._templates) < _MAX_OWN_TEMPLATES)
        template = self._template_of(
            tuple(words.words), tuple(words.outputs), self._options, in_place=in_place
        )
        future: Future[Completed] = Future()
        future._command, future._names = command, words.kept
        after(
            words.inputs,
            future,
            lambda: self._state.add(
                future, template, words.columns, words.inputs, copies=copy_inputs
            ),
            self._state,
        )
        return future

    def share(self, value: _T) -> Shared[_T]:
        """Write a value to a file, once, for any number of calls. Each node gets one copy, which
        workers read in place.

        The file stays until the executor ends.

        >>> table = executor.share(numpy.zeros((1000, 1000)))
        >>> executor.submit(lambda row, table: table[row].sum(), 7, table)
        """
        self._state.refuse_if_over()
        values = self._values()
        if values is None:
            raise ValueError(f"there is no folder for shared values: {NO_FOLDER}")
        return Shared(File(values.share(value)))

    def pickle_again(self, function: Callable[..., Any]) -> None:
        """Pickle a function again for its next call, because a value to which it refers was
        changed in place. A name that is bound to another value is noticed without this.

        >>> weights.append(3)
        >>> executor.pickle_again(function)
        >>> executor.submit(function)
        """
        self._functions.forget(function)

    def with_options(self, **options: Unpack[Options]) -> Executor:
        """Return the same executor with other options for its calls.

        >>> executor.with_options(memory="2GB", retries=1).submit(function)
        """
        options = checked(options)
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        other._options = cast(Options, {**self._options, **options})
        other._template = other._template_of(_CALL, _RESULT, other._options)
        # As long as one of them is held, calls can be added.
        other._origin = self
        return other

    def __copy__(self) -> Executor:
        """Return the same executor: configurations that hold one are copied."""
        return self

    def __deepcopy__(self, _: object) -> Executor:
        """Return the same executor, too."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if Arguments.now() is not None:
            raise TypeError(
                "an executor cannot be pickled for a call: begin one in the call, eyas.connect()"
            )
        return Elsewhere, (f"{os.getpid()} on {os.uname().nodename}",)

    @property
    def _job(self) -> Job:
        return self._state.job

    def _standing(self) -> str:
        state = self._state
        return "broken" if state.broken is not None else "shut down" if state.is_shut else "open"

    def _outstanding(self) -> int:
        return len(self._state.pending)

    @property
    def _broken(self) -> BaseException | None:
        """Why the executor is of no more use; the executors of the standard library have this
        attribute, too.
        """
        return self._state.broken

    def map(
        self,
        fn: Callable[..., _T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
        **shared: object,
    ) -> Iterator[_T]:
        """Call ``fn`` with the items of the iterables, and return the results in order.

        One task does ``chunksize`` calls. Other keywords are keywords of each call, with the same
        value. A large value is written to a file once, and each node gets one copy.

        >>> executor.map(lambda row, table: table[row].sum(), range(1000), table=table)

        With ``buffersize``, at most that many tasks are outstanding; without it, all are submitted
        at once.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if buffersize is not None and buffersize < 1:
            raise ValueError("buffersize must be None or > 0")
        deadline = None if timeout is None else time.monotonic() + timeout
        items, own = zip(*iterables), options_of(fn)
        if chunksize == 1:
            chunks: Iterator[tuple[Any, ...]] = items
            submit = self._adder(fn, own, shared=shared)
        else:
            chunks = zip(iter(lambda: tuple(itertools.islice(items, chunksize)), ()))
            submit = self._adder(fn, own, wrapper=pickling.CHUNK, shared=shared)
        first = chunks if buffersize is None else itertools.islice(chunks, buffersize)
        outstanding = collections.deque(map(submit, first))
        # The iterator keeps the executor only if it adds calls.
        more = None if buffersize is None else submit
        del submit, first

        def results() -> Iterator[Any]:
            try:
                while outstanding:
                    future = outstanding.popleft()
                    left = None if deadline is None else deadline - time.monotonic()
                    # Neither the future nor its result has a name here while it is used.
                    waiting = [future]
                    del future
                    result = [_result_or_cancel(waiting.pop(), left)]
                    if more is not None:
                        outstanding.extend(map(more, itertools.islice(chunks, 1)))
                    yield result.pop()
            finally:
                for future in outstanding:
                    future.cancel()

        return results() if chunksize == 1 else itertools.chain.from_iterable(results())

    def all_pairs(
        self,
        rows: Iterable[Any],
        columns: Iterable[Any],
        fn: Callable[[Any, Any], _T],
        *,
        side: int | None = None,
    ) -> Iterator[list[_T]]:
        """Call ``fn`` with each pair of a row and a column, and return the results, a list for each
        row, in order.

        One task does the pairs of up to ``side`` rows and columns, so that a node reads each file
        for many pairs.

        >>> images, templates = map(eyas.File, images), map(eyas.File, templates)
        >>> for row in executor.all_pairs(images, templates, compare): ...
        """
        from .all_pairs import all_pairs

        submit = self._adder(fn, options_of(fn), wrapper=pickling.TILE)
        return all_pairs(rows, columns, side, max_workers=self._max_workers, submit=submit)

    def map_blocks(
        self,
        files: str | Sequence[str],
        fn: Callable[[Piece], _T],
        *,
        memory: ChunkMemory | None = None,
    ) -> Iterator[_T]:
        """Call ``fn`` with each piece of files of the cluster, and return the results, in the order
        of the pieces.

        A file is a path or pattern such as ``"eyas:///data/*.csv"``. One call on each processor
        processes pieces of whole records, near their chunks first; which and how many is decided
        while they run, and fast nodes take over pieces of slow ones. A piece that is computed twice
        counts once. The chunks of the files stay in ``memory``, which :meth:`chunk_memory` opens.

        >>> def rows(piece): return piece.content.count(b"M31")
        >>> sum(executor.map_blocks("eyas:///data/sky.csv", rows))
        """

        if self._options.get("environment") is not None:
            raise ValueError(
                "map_blocks does not work in another environment: leave environment= out for it"
            )

        def submit(
            run: _eyas.FilesRun, function: Callable[..., None], args: tuple[Any, ...]
        ) -> Future[None]:
            scope = tuple(run.files), (run.folder,)
            return self._adder(function, options_of(fn), scope=scope)(args)

        from . import blocks

        return blocks.map_blocks(
            [files] if isinstance(files, str) else files,
            fn,
            memory=memory,
            address=self._cluster,
            max_workers=self._max_workers,
            submit=submit,
        )

    def chunk_memory(self, limit: int | str) -> ChunkMemory:
        """Keep chunks of files in memory from one :meth:`map_blocks` to the next, up to ``limit``
        on each node: bytes, or a text such as ``"2GB"``.

        Start nodes with ``--dfs-memory``, and clusters of :func:`local` with ``files_memory``.
        Other nodes keep no chunks in memory.

        >>> with executor.chunk_memory("2GB") as memory:
        ...     for number in range(10):
        ...         found = list(executor.map_blocks("eyas:///sky/*", step, memory=memory))
        """
        from . import blocks

        return blocks.ChunkMemory(bytes_of(limit), self._cluster)

    @property
    def files(self) -> EyasFileSystem:
        """The files of the cluster, as a file system of fsspec."""
        from ..fs import EyasFileSystem

        return EyasFileSystem(
            **{name: value for name, value in self._cluster.items() if value is not None}
        )

    @property
    def catalog(self) -> Catalog:
        """The names of files that lie at several places."""
        from .catalog import Catalog

        return Catalog(self._cluster)

    def push(self, *files: File | str | os.PathLike[str], to: Sequence[str] = ()) -> dict[str, Any]:
        """Copy files to nodes before calls need them, and wait for that. Each node passes on what
        it gets.

        ``to`` names nodes, or labels such as ``site=a``; without it, all nodes get the files.
        Returns what each node got, as ``eyas push --json`` does.
        """
        sources = [file.source if isinstance(file, File) else File(file).source for file in files]
        names = [source.encode(errors="surrogateescape") for source in sources]
        view: dict[str, Any] = _eyas.push(names, list(to), **self._cluster)
        return view

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls. With ``wait``, return when all calls have ended, and the cluster of
        this executor, too.

        With ``cancel_futures``, calls that no node has are cancelled. A node has a few more calls
        than it runs.
        """
        state = self._state
        with state.lock:
            state.is_shut = True
            deferred = list(state.deferred)
        if cancel_futures:
            for future in deferred:
                future.cancel()
            state.session.cancel_waiting()
        state.shut()
        if wait and threading.current_thread() is not self._receiver:
            # In a call, the calls that it waits for may need its processors.
            with worker.released() if state.pending or deferred else contextlib.nullcontext():
                join(self._receiver)

    def __exit__(self, kind: type[BaseException] | None, *error: Any) -> None:
        """Wait for all calls; after an interrupt, cancel them before."""
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self._state.cancel_all()
        self.shutdown()


def _variables_of(variables: Mapping[str, str] | Iterable[str]) -> dict[str, str]:
    """Return environment variables by their names: given ones, or those of this process."""
    if isinstance(variables, Mapping):
        found = dict(variables)
    elif isinstance(variables, str):
        raise TypeError(f"variables are a list of names, or names with values: [{variables!r}]")
    else:
        names = [*variables]
        if missing := [name for name in names if name not in os.environ]:
            raise ValueError(f"this process has no environment variable {missing[0]!r}")
        found = {name: os.environ[name] for name in names}
    for name, value in found.items():
        if not isinstance(value, str):
            raise TypeError(f"the value of the variable {name!r} is no text: {value!r}")
        if name.startswith("EYAS_"):
            raise ValueError(f"the variable {name!r} is set by eyas")
    return found


class Elsewhere:
    """Stands for an executor in another process, which has got a configuration that holds one."""

    def __init__(self, process: str) -> None:
        """Name the process of the executor."""
        self._process = process

    def __repr__(self) -> str:
        return f"<an eyas.Executor of process {self._process}: begin another one in this process>"


def _of_pickling(error: BaseException) -> Exception:
    """Return the error of a call that cannot be pickled. An exit would end the program that asks
    for the result.
    """
    if isinstance(error, Exception):
        return error
    wrong = pickle.PicklingError(f"the call cannot be pickled: {type(error).__name__}: {error}")
    wrong.__cause__ = error
    return wrong


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


def on_cluster(cluster: Cluster, options: ExecutorOptions) -> Executor:
    """Return an executor on a cluster that ends with it."""
    try:
        keywords: dict[str, Any] = {"objects": cluster.objects, **cluster.address, **options}
        executor = Executor(**keywords)
    except BaseException:
        cluster.stop()
        raise
    executor._state.cluster = cluster
    executor._max_workers = max(executor._max_workers, cluster.max_nodes)
    return executor


def local(
    nodes: int = 1,
    max_workers: int | None = None,
    *,
    files: bool = False,
    files_memory: int | str = 0,
    **options: Unpack[ExecutorOptions],
) -> Executor:
    """Start a cluster on this machine, which ends with the executor. With ``files``, it keeps
    files, ``eyas:///…``, and up to ``files_memory`` of them in the memory of each node.
    """
    return Executor(max_workers, nodes=nodes, files=files, files_memory=files_memory, **options)


def connect(
    cluster: str | None = None,
    *,
    access: str | os.PathLike[str] | None = None,
    pool: str | None = None,
    pool_options: str | Sequence[str] = (),
    host: str | None = None,
    **options: Unpack[ExecutorOptions],
) -> Executor:
    """Return an executor on a cluster that runs, or on nodes of a batch system.

    The cluster is the one with this name or access file, or the one that ``eyas`` commands use; in
    a call, that of the client, if the node has its access file. Large arguments and shared values
    are files in ``objects``, by default ``values`` beside the access file; nodes must see it. A
    folder ``eyas:///PATH`` is in the files of the cluster.

    With ``pool``, the executor has a cluster of its own, whose nodes the batch system grants while
    there are calls: ``"slurm"`` or another system, or a pool of a pools file, with options of
    ``eyas pool add`` such as ``"--max-nodes 4 --cpus 8"``. Nodes reach this process at ``host``, by
    default the name of this host.

    >>> options = "--max-nodes 4 -- --partition=long"
    >>> with eyas.connect(pool="slurm", pool_options=options) as executor: ...
    """
    if pool is not None:
        if cluster is not None or access is not None:
            raise ValueError(
                "name a cluster, or a pool for a cluster of this executor's own: not both"
            )
        from .._clusters.pool import PoolCluster

        return on_cluster(PoolCluster(pool, pool_options, host), options)
    if pool_options or host:
        raise ValueError("pool_options and host belong to a pool: name one, connect(pool=…)")
    if cluster is None and access is None:
        # In a call, the cluster of the client: its own `EYAS_ACCESS` opens inputs only.
        cluster, access = (
            os.environ.get(worker.CLUSTER_VARIABLE),
            os.environ.get(worker.ACCESS_VARIABLE),
        )
    access = access or (None if cluster else os.environ.get("EYAS_ACCESS"))
    name = None if access else cluster or os.environ.get("EYAS_CLUSTER") or "default"
    if options.get("objects") is None:
        known = _eyas.access_path(cluster=name, access=access)
        options["objects"] = os.path.join(os.path.dirname(os.path.abspath(known)), "values")
    return Executor(cluster=name, access=access, **options)
