"""A worker: answers calls one after another over the socket that is its standard input.

=======  ===========================================================================================
message  bytes
=======  ===========================================================================================
ready    a byte, 1, before the first answer
call     number of parts (4), then each part: its length (8), and its bytes; the parts are the call,
         the id of the task, the folder of its files, and the paths of its inputs
answer   0, or 1 if the call has raised, or 2 if it has made the folder of its files (1); processor
         time in microseconds (8), length (8), and the pickled value, or the exception with its
         traceback; nothing if the value is in the folder, because it is large
lends    3, or 4 when it wants its processors again (1); zeros (16)
granted  a byte, 1, after 4
=======  ===========================================================================================

Numbers are little-endian.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import os
import pickle
import signal
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import IO, Any

from . import compatibility, pickling, shared
from .arguments import Arguments, result_file
from .public import public

#: Environment variable with the settings of the worker: JSON with ``path``, the folders in which
#: the client looks for modules (``None`` is the place of those of the interpreter), ``folder`` of
#: the client, ``reuse``, ``client``, its interpreter, ``threads``, and ``initializer``, the pickled
#: call of a function, in base64.
SETTINGS_VARIABLE = "EYAS_WORKER_SETTINGS"

#: Environment variables with the number of threads of libraries. Those for BLAS go by the one of
#: OpenMP.
THREADS_VARIABLES = "OMP_NUM_THREADS", "NUMBA_NUM_THREADS"

#: Environment variables with the cluster of the client: its name, or its access file.
CLUSTER_VARIABLE, ACCESS_VARIABLE = "EYAS_CALLER_CLUSTER", "EYAS_CALLER_ACCESS"

#: Environment variable of a worker that was ready before it began again.
_AGAIN_VARIABLE = "EYAS_WORKER_AGAIN"

_ANSWER = struct.Struct("<BQQ")
#: How a call has ended.
_RETURNED, _RAISED, _RETURNED_FILES, _LENDS, _RECLAIMS = range(5)
#: A call is idle if it has used less than this share of a processor for this many seconds.
_IDLE_SHARE, _IDLE_S = 0.2, 1.0
#: An answer of up to this size is sent with its header.
_SMALL_BYTES = 65536


def caller(cluster: str | None, access: str | os.PathLike[str] | None) -> dict[str, str]:
    """Return the variables that tell calls the cluster of the client, for its files."""
    if access is not None:
        return {ACCESS_VARIABLE: os.path.abspath(access)}
    return {} if cluster is None else {CLUSTER_VARIABLE: cluster}


class InitializerFailed(Exception):
    """The initializer of a worker has raised; the text is its traceback."""


@public
class UnsentError(RuntimeError):
    """Stands for an exception of a call that cannot be pickled. The text has its class."""


def _failure(error: BaseException, client: dict[str, str] | None) -> bytes:
    """Pickle an exception with its traceback."""
    compatibility.note_worker(error, client)
    text = "".join(traceback.format_exception(error))
    try:
        content = pickling.dumps((error, text))
        pickle.loads(content)
    except BaseException:  # Whatever the class of the exception does.
        content = pickling.dumps((UnsentError(f"{type(error).__name__}: {error}"), text))
    return content


def _search_path(client: list[str | None]) -> list[str]:
    """Return the client's folders of modules, in its order, and those that only this interpreter
    has.
    """
    # Without the current folder, which the interpreter has put there for its own command.
    own = [folder for folder in sys.path if folder and folder not in client]
    place = client.index(None) if None in client else len(client)
    first, last = (
        [folder for folder in part if folder] for part in (client[:place], client[place:])
    )
    return [*first, *own, *last]


def _reseed() -> None:
    """In the child of a fork: draw other random numbers than its siblings. Python's own generator
    does this itself.
    """
    if (random := sys.modules.get("numpy.random")) is not None:
        try:
            random.seed()
        except TypeError:  # The program has chosen a generator that has seeds of another kind.
            random.set_bit_generator(type(random.get_bit_generator())())
    if (torch := sys.modules.get("torch")) is not None:
        torch.seed()


class Released:
    """Gives the processors of the call that this process answers to other calls, and takes them
    again.
    """

    lock = threading.Lock()
    #: Those that hold them back now, one for each time that it was entered.
    open: list[Released] = []

    @classmethod
    def forget(cls) -> None:
        """In a child that a call has forked: the call is its parent's."""
        Worker.answering, cls.lock, cls.open = None, threading.Lock(), []

    @classmethod
    def end_call(cls) -> None:
        """The call has ended, whoever still lends its processors. Wait for a thread that takes them
        again.
        """
        with cls.lock:
            Worker.answering = None
            cls.open.clear()

    @classmethod
    def is_missing(cls) -> bool:
        """Whether this process answers a call, which holds its processors."""
        return Worker.answering is not None and not cls.open

    def __enter__(self) -> None:
        with Released.lock:
            if not Released.open and Worker.answering is not None:
                Worker.answering.lend()
            Released.open.append(self)

    def __exit__(self, *_: object) -> None:
        with Released.lock:
            # The call may have ended before.
            if self in Released.open:
                Released.open.remove(self)
                if not Released.open and Worker.answering is not None:
                    Worker.answering.reclaim()


def released() -> Released:
    """Give the processors of this call to other calls while it waits: ``with eyas.released():``.

    A call that waits for calls of its own holds a place that they may need. ``result()`` of a
    future does this by itself, and so does :func:`concurrent.futures.wait`; other ways to wait do
    it after a second. Outside of calls it does nothing.

    >>> with eyas.released():
    ...     asyncio.run(gather(futures))
    """
    return Released()


class IdleLoan:
    """Lends the processors of a call that does nothing while calls of its own are outstanding,
    however it waits.
    """

    def __init__(self) -> None:
        """Begin to look."""
        self._loan: Released | None = None
        self._begin()

    def __enter__(self) -> IdleLoan:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _begin(self) -> None:
        self._began, self._used = time.monotonic(), time.process_time()

    @property
    def wait_s(self) -> float:
        """Seconds until the next look."""
        is_looking = self._loan is None and Worker.answering is not None
        return max(0.0, self._began + _IDLE_S - time.monotonic()) if is_looking else math.inf

    def look(self, waits: bool) -> None:
        """Lend them if there is something to wait for, and this process has hardly used a processor
        for a while.
        """
        if self._loan is None and (seconds := time.monotonic() - self._began) >= _IDLE_S:
            is_idle = time.process_time() - self._used < _IDLE_SHARE * seconds
            if waits and is_idle and Released.is_missing():
                self._loan = released()
                self._loan.__enter__()
            self._begin()

    def end(self) -> None:
        """Take them again, and begin to look."""
        if self._loan is not None:
            self._loan.__exit__()
        self._loan = None
        self._begin()


class Worker:
    """The state of a worker."""

    #: The worker, while it answers a call.
    answering: Worker | None = None

    def __init__(self) -> None:
        """Take the socket, and initialise the process."""
        import select
        import socket

        self._channel = socket.socket(fileno=os.dup(0))
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        self._requests: IO[bytes] = self._channel.makefile("rb")
        # A thread that waits in `recv` is also woken when the peer has read the last answer.
        self._arrivals = select.poll()
        self._arrivals.register(self._channel, select.POLLIN)
        self._calls = pickling.CallReader()
        self._settings = os.environ.pop(SETTINGS_VARIABLE, "{}")
        settings = json.loads(self._settings)
        for name in THREADS_VARIABLES:
            # Libraries read it when they are loaded. By default they have a thread for each
            # processor of the node.
            os.environ.setdefault(name, str(settings.get("threads", 1)))
        sys.path[:] = _search_path(settings.get("path", []))
        if os.path.isdir(settings.get("folder", "")):
            os.chdir(settings["folder"])
        self._reuse = settings.get("reuse", "process")
        self._client: dict[str, str] | None = settings.get("client")
        self._broken: InitializerFailed | None = None
        if initializer := settings.get("initializer"):
            try:
                with Arguments():
                    function, args, kwargs = self._read(base64.b64decode(initializer))
                function(*args, **kwargs)
            except BaseException as error:
                self._broken = InitializerFailed("".join(traceback.format_exception(error)))

    def serve(self) -> None:
        """Answer calls until the socket is closed."""
        if _AGAIN_VARIABLE not in os.environ:
            self._channel.sendall(b"\1")
        while parts := self._next():
            if self._reuse == "fork":
                self._serve_in_child(parts)
                continue
            self._serve(parts)
            if self._reuse == "never":
                self._begin_again()

    def _serve_in_child(self, parts: list[bytes]) -> None:
        """Have a child answer a call. If the child ends in another way, this process ends in the
        same.
        """
        child = os.fork()
        if child == 0:
            _reseed()
            self._serve(parts)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            with contextlib.suppress(OSError):  # SIGKILL cannot be handled.
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        if code != 0:
            os._exit(code)

    def _begin_again(self) -> None:
        """Become a fresh interpreter, with the same socket."""
        os.dup2(self._channel.fileno(), 0)
        variables = {**os.environ, SETTINGS_VARIABLE: self._settings, _AGAIN_VARIABLE: "1"}
        os.execve(sys.executable, sys.orig_argv, variables)

    def _serve(self, parts: list[bytes]) -> None:
        """Answer a call."""
        began = time.process_time_ns()
        how, content = self._answer(parts)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        cpu_us = (time.process_time_ns() - began) // 1000
        head = _ANSWER.pack(how, cpu_us, len(content))
        if len(content) < _SMALL_BYTES:
            self._channel.sendall(head + content)
        else:
            self._channel.sendall(head)
            self._channel.sendall(content)

    def lend(self) -> None:
        """Let other calls have the processors of this one."""
        self._channel.sendall(_ANSWER.pack(_LENDS, 0, 0))

    def reclaim(self) -> None:
        """Wait until this call has its processors again."""
        self._channel.sendall(_ANSWER.pack(_RECLAIMS, 0, 0))
        self._requests.read(1)

    def _next(self) -> list[bytes]:
        """Return the parts of the next call; none if there are no more calls."""
        self._arrivals.poll()
        count = self._requests.read(4)
        if len(count) < 4:
            return []
        parts: list[bytes] = []
        for _ in range(int.from_bytes(count, "little")):
            length = int.from_bytes(self._requests.read(8), "little")
            parts.append(self._requests.read(length))
        return parts

    def _read(self, call: bytes) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """Return the function and the arguments of a call."""
        compatibility.refuse_other_code(self._client, call)
        try:
            return self._calls.read(call)
        except Exception as error:
            if (mismatch := compatibility.unread(self._client, error)) is not None:
                raise mismatch from error
            raise

    def _answer(self, parts: list[bytes]) -> tuple[int, bytes]:
        """How the call has ended, and the pickled value or exception."""
        try:
            if self._broken is not None:
                raise self._broken
            with Arguments(parts[2], parts[3:]):
                function, args, kwargs = self._read(parts[0])
            Worker.answering = self
            try:
                value = function(*args, **kwargs)
            finally:
                Released.end_call()
            pickled = pickling.dump_parts(value)
            if sum(part.nbytes for part in pickled) < pickling.LARGE_BYTES:
                return _RETURNED, pickled[0].tobytes()
            folder = os.fsdecode(parts[2])
            os.makedirs(folder, exist_ok=True)
            name = result_file(int(parts[1].rpartition(b".")[2]))
            shared.write(os.path.join(folder, name), shared.laid_out(pickled))
            return _RETURNED_FILES, b""
        except BaseException as error:  # Also the exit of a program that the function calls.
            return _RAISED, _failure(error, self._client)


os.register_at_fork(after_in_child=Released.forget)


def main() -> None:
    """Run a worker."""
    Worker().serve()
    # Threads that calls have left must not keep the process.
    sys.stdout.flush()
    os._exit(0)
