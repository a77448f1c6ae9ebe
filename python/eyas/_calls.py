"""The bytes of calls, and what calls wait for."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Iterable
from concurrent import futures
from typing import Any

from . import _pickling
from ._files import Arguments
from ._futures import Future, KeptFile, Outputs
from ._state import State

#: Bytes of the function and the arguments of a call that are sent with it.
_MAX_CALL_BYTES = 16 << 20


class Call:
    """A call of a function, pickled."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        pickled: Callable[[Callable[..., Any]], bytes],
        keep: Callable[[memoryview], str | None],
    ) -> None:
        """Pickle the function, with ``pickled``, and its arguments.

        ``keep`` writes large content to a file, and returns its path if it did.
        """
        self._keep = keep

        def is_small(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            path = keep(raw) if raw.nbytes >= _pickling.LARGE_BYTES else None
            if path is not None:
                arguments.buffers.append(len(arguments.inputs))
                arguments.inputs.append(os.fsencode(path))
            return path is None

        with Arguments() as arguments:
            self._function = pickled(function)
            if arguments.values:
                # The function refers to futures, and it is unpickled before the arguments are together.
                arguments.cut((0, 0, 0, 0))
                self._function, args = pickled(_apply), (function, *args)
            self._arguments = _pickling.dumps((args, kwargs), is_small)
        self._found = arguments
        has_parts = arguments.values or arguments.buffers or len(self._arguments) >= _pickling.LARGE_BYTES
        #: Whether nothing but its bytes belongs to it.
        self._is_plain = not (arguments.inputs or arguments.outputs or has_parts)
        self._has_parts = has_parts
        #: Patterns and destinations of its outputs. The first column is the call.
        numbers = range(2, 2 * len(arguments.outputs) + 2, 2)
        self.outputs = tuple(
            (f"{{{number}}}", None if destination is None else f"{{{number + 1}}}")
            for number, (_, destination) in zip(numbers, arguments.outputs)
        )
        #: Names of the outputs that stay in the cluster: the number among all outputs, and the name of the file.
        kept = [name for name, destination in arguments.outputs if destination is None]
        places = [place for place, (_, destination) in enumerate(arguments.outputs, 1) if destination is None]
        self.kept: dict[str | int, tuple[int, str]] = {
            number: (place, os.path.basename(name)) for number, (place, name) in enumerate(zip(places, kept))
        }

    def submit(self, future: Future[Any], template: int, state: State) -> None:
        """Add the call when all that it reads has ended."""
        found = self._found
        if self._is_plain:
            return self._add(future, template, self._function + self._arguments, [], state)
        future._names = self.kept
        after([*found.values, *found.inputs], future, lambda: self._submit_now(future, template, state), state)

    def _submit_now(self, future: Future[Any], template: int, state: State) -> None:
        inputs = list(self._found.inputs)
        content = self._together(inputs, state) if self._has_parts else self._function + self._arguments
        self._add(future, template, content, inputs, state)

    def _add(self, future: Future[Any], template: int, content: bytes, inputs: list[Any], state: State) -> None:
        if len(content) > _MAX_CALL_BYTES:
            state.refuse_if_over()
            future.set_running_or_notify_cancel()
            why = f"the arguments have {len(content)} bytes: name a folder that all nodes see for large ones, "
            return future.set_exception(ValueError(why + "connect(…, objects=FOLDER), or use a File"))
        columns = [(content, False)]
        for name, destination in self._found.outputs:
            columns += [(os.fsencode(name), False), (os.fsencode(destination or ""), False)]
        state.add(future, template, columns, inputs)

    def _together(self, inputs: list[Any], state: State) -> bytes:
        """Return the call with what is elsewhere named. Adds to its inputs."""

        def place_of(pickled: bytes) -> bytes | int:
            path = self._keep(memoryview(pickled)) if len(pickled) >= _pickling.LARGE_BYTES else None
            if path is None:
                return pickled
            inputs.append(os.fsencode(path))
            return len(inputs) - 1

        values: list[bytes | int] = []
        for future in self._found.values:
            result = futures.Future.result(future)
            if type(result) is Outputs and result.session is state.session:
                values.append(len(inputs))
                inputs.append(future)
            else:
                values.append(_pickling.dumps(future.result()))
        parts = _pickling.Parts(place_of(self._arguments), self._found.buffers, values)
        return self._function + _pickling.dumps(parts)


def _apply(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def after(needs: Iterable[object], future: Future[Any], act: Callable[[], None], state: State) -> None:
    """Act when the futures among ``needs``, and those of kept files, have ended. If one fails, ``future`` fails.

    A call of a kept file runs when the dispatcher says so: here, its task must only have been added.
    """
    awaited = [need for need in needs if isinstance(need, Future) and not need.done()]
    files = [need.future for need in needs if isinstance(need, KeptFile)]
    awaited += [of for of in files if of.task is None and not of.done()]
    future._needs = [need for need in needs if isinstance(need, Future | KeptFile)]

    def failure() -> BaseException | None:
        needed = [need for need in needs if isinstance(need, Future)] + [of for of in files if of.task is None]
        for of in needed:
            if of.cancelled():
                return futures.CancelledError("a call whose result is an argument was cancelled")
            if (error := of.exception()) is not None:
                return error
        return None

    if not awaited:
        if (error := failure()) is not None:
            state.refuse_if_over()
            future.set_running_or_notify_cancel()
            future.set_exception(error)
        else:
            act()
        return
    lock, left = threading.Lock(), len(awaited)
    state.defer(future)

    def ended(_: futures.Future[Any]) -> None:
        nonlocal left
        with lock:
            left -= 1
            if left > 0:
                return
        try:
            error = failure()
            if error is None and not future.cancelled():
                act()
        except BaseException as raised:
            error = raised
        try:
            if error is not None and future.set_running_or_notify_cancel():
                future.set_exception(error)
        finally:
            state.undefer(future)

    for of in awaited:
        of.add_done_callback(ended)
