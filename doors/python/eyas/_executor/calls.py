"""The bytes of calls, and what calls wait for."""

from __future__ import annotations

import collections
import io
import math
import os
import threading
from collections.abc import Callable, Iterable
from concurrent import futures
from typing import Any

from .._eyas import check_destination
from .._files.values import NO_FOLDER, ValueFiles
from .._worker import pickling, wrappers
from .._worker.arguments import Arguments
from .functions import CallCode, Function, Functions, Values
from .futures import Future, KeptFile, Outputs
from .state import State

#: Bytes of the function and the arguments of a call that are sent with it.
_MAX_CALL_BYTES = 16 << 20
#: A function and arguments of up to this many bytes each are sent without a further look.
_MAX_PLAIN_BYTES = pickling.LARGE_BYTES

#: What is found in arguments that refer to nothing.
_NOTHING = Arguments()


class Call:
    """A call of a function, pickled."""

    def __init__(
        self,
        function: Function,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        values: Values,
        known: Functions,
        *,
        wrapper: int = pickling.PLAIN,
        has_folder: bool,
    ) -> None:
        """Pickle the arguments: large ones into ``values``, if there is a folder for them."""
        self._values = values
        #: The files of its large arguments.
        self._files: list[str] = []
        #: Holds the files of the large parts of the function.
        self._functions = [function]
        #: Patterns and destinations of its outputs.
        self.outputs: tuple[tuple[str, str | None, str], ...] = ()
        if function.is_plain and not kwargs:
            plain = pickling.scalar_bytes(args, (args, kwargs))
            if plain is not None:
                self._function, self._arguments = function.beginning(wrapper, []), plain
                self._found = _NOTHING
                self._is_plain, self._has_parts = len(self._function) <= _MAX_PLAIN_BYTES, False
                return
        if function.itself is not None:
            args = function.itself, *args
            apply = pickling.WRAPPERS[wrapper] or wrappers.apply
            function, wrapper = known.get(apply, values, has_folder=has_folder), pickling.PLAIN
        self._functions = [function]
        code = CallCode(known, len(function.code))
        try:
            with Arguments() as arguments:
                arguments.number_of_code = code.number
                arguments.inputs += function.inputs
                arguments.outputs += function.outputs
                least_bytes = pickling.LARGE_BYTES if has_folder else math.inf
                self._arguments, buffers = pickling.dump((args, kwargs), least_bytes)
            for _, destination, _ in arguments.outputs:
                check_destination(os.fsencode(destination or ""))
            files = values() if buffers else None
            if files is not None:
                for buffer in buffers:
                    arguments.buffers.append(len(arguments.inputs))
                    arguments.inputs.append(self._kept(files.keep(buffer)))
        except BaseException as error:
            _release(values() if self._files else None, self._files, self._functions)
            given = (*args, *kwargs.values())
            if any(
                isinstance(value, futures.Future) and not isinstance(value, Future)
                for value in given
            ):
                raise TypeError(
                    "a future that is no future of eyas cannot be an argument: pass its result"
                ) from error
            if any(isinstance(value, io.IOBase) for value in given):
                raise TypeError(
                    "an open file like this cannot be an argument: pass its path, and open it in "
                    "the call. A path of files that nodes do not see is eyas.File(PATH), and a "
                    "file that the call writes is eyas.Output(PATH)"
                ) from error
            raise
        self._function = function.beginning(wrapper, code.parts)
        self._found = arguments
        has_parts = bool(
            arguments.values or arguments.buffers or len(self._arguments) >= pickling.LARGE_BYTES
        )
        #: Whether nothing but its bytes belongs to it, which are few enough.
        is_large = has_parts or len(self._function) > _MAX_PLAIN_BYTES
        self._is_plain = not (arguments.inputs or arguments.outputs or is_large)
        self._has_parts = has_parts
        self.outputs = _patterns_of(arguments.outputs) if arguments.outputs else ()

    def _kept(self, path: str) -> bytes:
        self._files.append(path)
        return os.fsencode(path)

    def submit(self, future: Future[Any], template: int, state: State) -> None:
        """Add the call when all that it reads has ended."""
        found = self._found
        if self._is_plain:
            return self._add(future, template, self._function + self._arguments, [], state)
        future._names = _kept_names(found.outputs)
        if self._has_parts or self._functions[0].paths:
            # The future must hold neither this nor what was an argument.
            paths, functions = self._files, self._functions
            future.add_done_callback(lambda _: _release(state.values, paths, functions))
        after(
            [*found.values, *found.inputs],
            future,
            lambda: self._submit_now(future, template, state),
            state,
        )

    def _submit_now(self, future: Future[Any], template: int, state: State) -> None:
        inputs = list(self._found.inputs)
        content = (
            self._together(inputs, state) if self._has_parts else self._function + self._arguments
        )
        self._add(future, template, content, inputs, state)

    def _add(
        self, future: Future[Any], template: int, content: bytes, inputs: list[Any], state: State
    ) -> None:
        if len(content) > _MAX_CALL_BYTES:
            raise ValueError(
                f"the function and its arguments have {len(content)} bytes: use a File for them, "
                f"or {NO_FOLDER}"
            )
        columns = [(content, False)]
        for name, destination, _ in self._found.outputs:
            columns += [(os.fsencode(name), False), (os.fsencode(destination or ""), False)]
        state.add(future, template, columns, inputs)

    def _together(self, inputs: list[Any], state: State) -> bytes:
        """Return the call with what is elsewhere named. Adds to its inputs."""
        values: list[bytes | int] = []
        for future in self._found.values:
            result = futures.Future.result(future)
            if type(result) is Outputs and result.session is state.session:
                values.append(len(inputs))
                inputs.append(future)
                continue
            pickled = pickling.dump_parts(future.result())
            files = (
                self._values()
                if sum(part.nbytes for part in pickled) >= pickling.LARGE_BYTES
                else None
            )
            if len(pickled) == 1 and files is None:
                values.append(pickled[0].tobytes())
            elif files is None:
                values.append(pickling.dumps(future.result()))
            else:
                values.append(len(inputs))
                inputs.append(self._kept(files.keep_parts(pickled)))
        content: bytes | int = self._arguments
        files = self._values() if len(self._arguments) >= pickling.LARGE_BYTES else None
        if files is not None:
            content = len(inputs)
            inputs.append(self._kept(files.keep(memoryview(self._arguments))))
        parts = pickling.Parts(content, self._found.buffers, values)
        return self._function + pickling.dumps(parts)


def _patterns_of(
    outputs: list[tuple[str, str | None, str]],
) -> tuple[tuple[str, str | None, str], ...]:
    # The first column is the call; each output has one for its name and one for its destination.
    numbers = range(2, 2 * len(outputs) + 2, 2)
    return tuple(
        (f"{{{number}}}", None if destination is None else f"{{{number + 1}}}", when)
        for number, (_, destination, when) in zip(numbers, outputs)
    )


def _kept_names(outputs: list[tuple[str, str | None, str]]) -> dict[str | int, tuple[int, str]]:
    """Name the outputs that stay in the cluster: the number among all outputs, and the name of the
    file.
    """
    kept = [
        (place, name)
        for place, (name, destination, _) in enumerate(outputs, 1)
        if destination is None
    ]
    return {number: (place, os.path.basename(name)) for number, (place, name) in enumerate(kept)}


def _release(files: ValueFiles | None, paths: list[str], functions: list[Function]) -> None:
    """The files of a call are not needed any more."""
    functions.clear()
    if files is not None:
        files.release(paths)
        paths.clear()


#: Steps that wait for the end of the present one, in each thread. The end of a call ends those that
#: wait for it, and so on: a chain of them may be longer than the stack.
_turns = threading.local()


def _in_turn(step: Callable[[], None]) -> None:
    """Take a step after those of this thread that have begun."""
    waiting: collections.deque[Callable[[], None]] | None = getattr(_turns, "waiting", None)
    if waiting is not None:
        waiting.append(step)
        return
    _turns.waiting = waiting = collections.deque([step])
    interrupt: BaseException | None = None
    try:
        while waiting:
            try:
                waiting.popleft()()
            except BaseException as raised:
                # The other steps are of other calls.
                interrupt = interrupt or raised
    finally:
        del _turns.waiting
    if interrupt is not None:
        raise interrupt


class _Deferred:
    """A call that waits for others."""

    def __init__(
        self, left: int, future: Future[Any], act: Callable[[], None], state: State
    ) -> None:
        """Wait for ``left`` calls, then act, or fail as they have."""
        self._lock = threading.Lock()
        self._left = left
        self._what: tuple[Future[Any], Callable[[], None], State] | None = future, act, state

    def ended(self, _: object) -> None:
        """One of the calls has ended."""
        with self._lock:
            self._left -= 1
            if self._left > 0 or self._what is None:
                return
            # Those for which it has waited refer to this.
            what, self._what = self._what, None
        _in_turn(lambda: _act(*what))


def _act(future: Future[Any], act: Callable[[], None], state: State) -> None:
    """Act, unless a call that the future needs has failed: then it fails, too."""
    error: BaseException | None
    interrupt: BaseException | None = None
    is_wanted = True
    try:
        error = _failure(future._needs)
        if error is None and (is_wanted := not future.cancelled()):
            act()
    except BaseException as raised:
        error = raised
        interrupt = None if isinstance(raised, Exception) else raised
    try:
        if error is not None or not is_wanted:
            future._needs = ()
            # If the future was cancelled, this wakes its waiters.
            if future.set_running_or_notify_cancel() and error is not None:
                future.set_exception(error)
    finally:
        state.undefer(future)
    if interrupt is not None:
        raise interrupt


def _failure(needs: Iterable[object]) -> BaseException | None:
    """Return why one of the futures, or of the tasks of kept files that were never added, has
    failed.
    """
    needed = [need for need in needs if isinstance(need, Future)]
    needed += [
        need.future for need in needs if isinstance(need, KeptFile) and need.future.task is None
    ]
    for future in needed:
        if future.cancelled():
            return futures.CancelledError("a call whose result is an argument was cancelled")
        # A result in the cluster is not fetched for it.
        if (error := futures.Future.exception(future)) is not None:
            return error
    return None


def after(
    needs: Iterable[object], future: Future[Any], act: Callable[[], None], state: State
) -> None:
    """Act when the futures among ``needs``, and those of kept files, have ended. If one fails,
    ``future`` fails.

    A call of a kept file runs when the dispatcher says so: here, its task must only have been
    added.
    """
    awaited = [need for need in needs if isinstance(need, Future) and not need.done()]
    files = [need.future for need in needs if isinstance(need, KeptFile)]
    awaited += [of for of in files if of.task is None and not of.done()]
    future._needs = [need for need in needs if isinstance(need, Future | KeptFile)]
    if awaited:
        state.defer(future)
        deferred = _Deferred(len(awaited), future, act, state)
        for of in awaited:
            of.add_done_callback(deferred.ended)
        return
    with state.lock:
        state.refuse_if_over()
    _act(future, act, state)
