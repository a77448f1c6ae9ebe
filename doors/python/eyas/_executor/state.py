"""What an executor shares with the thread that receives its results."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import pickle
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from concurrent import futures
from concurrent.futures import _base
from typing import TYPE_CHECKING, Any

from .._environments import worker_start
from .._errors import CallFailed, ClusterLost
from .._eyas import CallOutcome, EndedCall
from .._files.values import ValueFiles
from .._threads import join
from .._views.notebook import Job
from .._worker import compatibility, worker
from .futures import Fetching, Future, KeptFile, Outputs

if TYPE_CHECKING:
    from .._clusters.local import Cluster

#: Seconds of one wait for results. What ends the executor is noticed at once.
_WAIT_S = 60.0
#: Seconds that the first call of a kind has to end, before the dispatcher is asked whether any node
#: can run it.
_ASK_S = 4.0
#: Reasons for which a call waits, as the dispatcher tells them, that do not pass while nodes work.
_HOPELESS = (
    "It waits because no executor has as much as it needs",
    "It waits because no executor matches it",
    "It waits because no executor has joined: start some",
)
#: The warning for a call that computes while it waits for calls of its own, so that it keeps its
#: processors.
_HOLDING = (
    "The call that waits for it holds processors, which it may need: wait inside of "
    "`with eyas.released():`."
)
#: Bytes of the output of a call that failed, or of the standard error of a command, in the note of
#: its exception.
_SHOWN_BYTES = 2048


class State:
    """What an executor shares with the thread that receives its results."""

    def __init__(self, job: Job, cluster: Cluster | None) -> None:
        """Begin with the job, and the cluster if it is the executor's own."""
        self.job = job
        self.session = job.session
        self.cluster = cluster
        # Of the same thread, too: a collection of garbage may shut an executor anywhere.
        self.lock = threading.RLock()
        self.pending: dict[int, Future[Any]] = {}
        #: Calls whose arguments have not ended.
        self.deferred: set[Future[Any]] = set()
        self.is_shut = False
        self.is_closed = False
        #: What tasks keep in the cluster, by their numbers, as long as something refers to it.
        self.kept: weakref.WeakValueDictionary[int, Outputs] = weakref.WeakValueDictionary()
        self.broken: BaseException | None = None
        #: Files of shared values and large arguments, if there are any.
        self.values: ValueFiles | None = None
        #: The numbers of those files that calls have as inputs.
        self._own_inputs: dict[bytes, int] = {}
        #: Held while they are begun, which may take long.
        self.values_lock = threading.Lock()
        #: Kinds of tasks of which one was added, and the first of those of which none has ended,
        #: with the time to ask why it waits.
        self.kinds: set[int] = set()
        self.unproven: dict[int, tuple[Future[Any], float]] = {}

    def receive(self) -> None:
        """Receive results until there are no more."""
        why: BaseException | None = None
        try:
            with worker.IdleLoan() as loan:
                self._receive(loan)
        except BaseException as error:
            why = error
        self.end(why)

    def _receive(self, loan: worker.IdleLoan) -> None:
        while (
            results := self.session.results(min(_ASK_S if self.unproven else _WAIT_S, loan.wait_s))
        ) is not None:
            if results:
                loan.end()
            else:
                loan.look(waits=bool(self.pending))
            for result in results:
                try:
                    self.settle(result)
                except (SystemExit, KeyboardInterrupt, GeneratorExit):
                    # Of a callback, and logged: it ends this thread no more than other exceptions
                    # do.
                    pass
            if self.unproven:
                self._ask_why_they_wait()
            if self.is_shut and not self.is_closed:
                self.close_if_idle()

    def _ask_why_they_wait(self) -> None:
        """Say which kinds of tasks no node can run."""
        now = time.monotonic()
        with self.lock:
            kinds = [kind for kind, (_, when) in self.unproven.items() if when <= now]
            waiting = [self.unproven.pop(kind)[0] for kind in kinds]
        for future in waiting:
            # Not in this thread, which receives results. At the end of the interpreter there are no
            # others.
            with contextlib.suppress(RuntimeError):
                Fetching.submit(functools.partial(_warn_if_hopeless, self, future))

    def close_if_idle(self) -> None:
        """Close the job if all calls have ended."""
        with self.lock:
            if self.pending or self.deferred:
                return
            self.is_closed = True
        # Results that are in the cluster only would end with the job.
        for outputs in list(self.kept.values()):
            if outputs.has_result:
                outputs.load()
        self.session.close()

    def cancel_all(self) -> None:
        """Cancel all calls that have not ended."""
        with self.lock:
            outstanding = [*self.pending.values(), *self.deferred]
        for future in outstanding:
            future.cancel()

    def refuse_if_over(self) -> None:
        """Raise an exception if no calls are taken any more."""
        if self.broken is not None:
            raise ClusterLost(str(self.broken))
        if self.is_shut:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def add(
        self,
        future: Future[Any],
        template: int,
        columns: list[tuple[bytes, bool]],
        inputs: Sequence[bytes | KeptFile | Future[Any]] = (),
        *,
        copies: bool = False,
    ) -> None:
        """Add a task, or a call that was deferred.

        An input is a path or URL, a file that stays in the cluster, or a result that does. With
        ``copies``, the task gets copies of its own, which it may write.
        """
        numbers: list[tuple[int, int | None]] = []
        if inputs:
            looked_up = iter(self._numbers_of([name for name in inputs if isinstance(name, bytes)]))
            for given in inputs:
                if isinstance(given, bytes):
                    numbers.append((next(looked_up), None))
                    continue
                of = given if isinstance(given, Future) else given.future
                assert of.task is not None, "it was added before"
                if of._of is not self.job:
                    raise ValueError(
                        f"{given!r} is of another executor: save() it, and name the file as "
                        "eyas.File"
                    )
                numbers.append((of.task, 0 if isinstance(given, Future) else given.number))
        with self.lock:
            is_deferred = future in self.deferred
            if not is_deferred:
                self.refuse_if_over()
            task = self.session.submit(template, columns, numbers, copies=copies)
            future.task, future._of = task, self.job
            self.pending[task] = future
            if is_first := template not in self.kinds:
                self.kinds.add(template)
                self.unproven[template] = future, time.monotonic() + _ASK_S
        if is_first:
            # Its wait may be a longer one.
            self.session.wake()
        if is_deferred:
            self.undefer(future)
            if future.cancelled():
                # Before it had a number.
                self.session.cancel(task)

    def _numbers_of(self, names: list[bytes]) -> list[int]:
        """Return the numbers of files. Those of this executor never change."""
        known, values = self._own_inputs, self.values
        unknown = [name for name in names if name not in known]
        found = dict(zip(unknown, self.session.look_up(unknown))) if unknown else {}
        if values is not None:
            own = {name: number for name, number in found.items() if values.has(os.fsdecode(name))}
            known.update(own)
        return [found[name] if name in found else known[name] for name in names]

    def defer(self, future: Future[Any]) -> None:
        """Keep the session open until :meth:`undefer`."""
        with self.lock:
            self.refuse_if_over()
            self.deferred.add(future)

    def undefer(self, future: Future[Any]) -> None:
        """A call was added, or is not going to be."""
        with self.lock:
            if future in self.deferred:
                self.deferred.remove(future)
                if self.is_shut:
                    self.session.wake()

    def settle(self, result: EndedCall) -> None:
        """Give a future its result."""
        task, outcome, executor, kept = result.task, result.outcome, result.executor, result.kept
        answer, printed, errors, why = result.answer, result.printed, result.errors, None
        with self.lock:
            future = self.pending.pop(task, None)
            if future is None and task in self.kept:
                # It has run again, because what it keeps was lost.
                return
            # If nobody refers to what the task keeps, it is released.
            outputs = Outputs(self.session, task) if kept else None
            if outputs is not None:
                self.kept[task] = outputs
            if self.unproven:
                self.unproven = {
                    kind: first for kind, first in self.unproven.items() if first[0] is not future
                }
        command = None if future is None else future._command
        if (
            outcome == CallOutcome.FAILED
            and command is None
            and (why := worker_start.failure_in(errors)) is not None
        ):
            errors = b""
        if future is not None:
            future.node = executor
            future._needs = ()
        for text, stream in (
            ((printed, sys.stdout), (errors, sys.stderr)) if command is None else ()
        ):
            # As if the function had run here. A program that has closed its output needs its
            # results all the same.
            if text:
                with contextlib.suppress(Exception):
                    print(text.decode(errors="replace"), end="", flush=True, file=stream)
        if command is None and result.cut_bytes:
            logging.getLogger("eyas").warning(
                "task %s.%s: %s", self.session.job, task, _dropped(result)
            )
        if future is not None and outcome == CallOutcome.CANCELLED:
            # By the executor's end, or by a command.
            futures.Future.cancel(future)
        # The client has cancelled it.
        if future is None or not future.set_running_or_notify_cancel():
            return
        future._outputs = outputs
        value: Any = None
        error: BaseException | None = None
        try:
            if outcome != CallOutcome.RETURNED:
                is_raised = outcome == CallOutcome.RAISED
                reason = why or result.reason
                error = (
                    self._raised(answer)
                    if is_raised
                    else CallFailed(compatibility.missing_interpreter(reason))
                )
            elif command is not None and result.cut_bytes:
                error = CallFailed(f"the command has ended well, but {_dropped(result)}")
            elif outputs is not None and command is None and 0 in kept:
                outputs.has_result, value = True, outputs
            else:
                value = _completed(command, answer, errors) if command else pickle.loads(answer)
        except BaseException as wrong:
            error = wrong
            error.add_note("The result of the call cannot be unpickled here.")
        # What callbacks raise is none of the call's.
        if error is None:
            return future.set_result(value)
        error.add_note(f"Task {self.session.job}.{task}" + (f" on {executor}" if executor else ""))
        for what, text in ("output", printed), ("standard error", errors):
            if text:
                error.add_note(
                    f"Its {what} ended with:\n" + text[-_SHOWN_BYTES:].decode(errors="replace")
                )
        future.set_exception(error)
        # The exception refers to the future through its traceback: no circle must stay.
        del future, error

    def _raised(self, answer: bytes) -> BaseException:
        """Return the exception that a call has raised."""
        error, text = pickle.loads(answer)
        compatibility.note_client(error)
        if isinstance(error, worker.InitializerFailed):
            _base.LOGGER.critical("Exception in initializer:\n%s", error)
            self.break_with(ClusterLost("the initializer of a worker has raised"))
            return ClusterLost("the initializer of a worker has raised")
        assert isinstance(error, BaseException)
        # Imported late, because it imports much.
        from concurrent.futures.process import _RemoteTraceback

        # It is a class of texts, although stubs say otherwise.
        error.__cause__ = _RemoteTraceback(f'\n"""\n{text}"""')  # type: ignore[arg-type]
        return error

    def break_with(self, why: BaseException) -> None:
        """Take no more calls, and end all that have not ended."""
        with self.lock:
            self.broken = self.broken or why
            ended = [*self.pending.values(), *self.deferred]
            self.pending, self.deferred = {}, set()
        for future in ended:
            future._needs = ()
            # A cancelled future still has to wake its waiters. Futures in other states are ended by
            # another thread.
            is_left = future._state in (_base.PENDING, _base.CANCELLED)
            if is_left and future.set_running_or_notify_cancel():
                future.set_exception(ClusterLost(str(why)))

    def end(self, why: BaseException | None) -> None:
        """There are no more results."""
        if why is not None or self.pending or self.deferred:
            self.break_with(ClusterLost(str(why or "the job has ended")))
        self.session.disconnect()
        try:
            if self.values is not None and not (
                self.cluster is not None and self.values.end_with_cluster
            ):
                self.values.remove()
        finally:
            if self.cluster is not None:
                self.cluster.stop()

    def shut(self) -> None:
        """Take no more calls."""
        with self.lock:
            self.is_shut = True
        self.session.wake()


def _warn_if_hopeless(state: State, future: Future[Any]) -> None:
    """Say it if a call waits for what no node has, or for processors that a call of this process
    holds.
    """
    with contextlib.suppress(Exception):
        because = future.explain()["because"]
        is_hopeless = bool(because) and because[0].startswith(_HOPELESS)
        if not is_hopeless and worker.Released.is_missing():
            because.append(_HOLDING)
        elif not is_hopeless:
            return
        logging.getLogger("eyas").warning(
            "task %s.%s: %s", state.session.job, future.task, " ".join(because)
        )


def _dropped(result: EndedCall) -> str:
    """Say how much of the output was dropped, and what to do."""
    return (
        f"{result.cut_bytes} bytes of its output were dropped: write large output to a file, "
        "eyas.Output"
    )


def _completed(command: str | Sequence[str], answer: bytes, printed: bytes) -> object:
    from .commands import Completed

    return Completed(command, answer, printed)


#: The threads of executors, to be waited for at the end of the interpreter.
receivers: weakref.WeakKeyDictionary[threading.Thread, State] = weakref.WeakKeyDictionary()


def _end_all() -> None:
    # After an interrupt, nobody waits for results. In interactive sessions it was one of an earlier
    # statement, perhaps.
    if issubclass(getattr(sys, "last_type", None) or Exception, KeyboardInterrupt) and not hasattr(
        sys, "ps1"
    ):
        _cancel_all()
    try:
        _wait_for_all()
    except KeyboardInterrupt:
        _cancel_all()
        _wait_for_all()
        raise


def _wait_for_all() -> None:
    for thread, state in list(receivers.items()):
        state.shut()
        join(thread)


def _cancel_all() -> None:
    for state in list(receivers.values()):
        state.cancel_all()


def _forget_all() -> None:
    """In the child of a fork there are neither threads nor connections."""
    for state in list(receivers.values()):
        # Another thread may have had it.
        state.lock = threading.RLock()
        state.values_lock = threading.Lock()
        if state.values is not None:
            state.values.lock = threading.RLock()
        if state.cluster is not None:
            state.cluster.forget()
        state.broken = ClusterLost(
            "an executor cannot be used in a process that was forked after its start"
        )
    receivers.clear()


# As the executors of the standard library do: calls that are outstanding end before the interpreter
# does.
threading._register_atexit(_end_all)  # type: ignore[attr-defined]
os.register_at_fork(after_in_child=_forget_all)
