"""Functions of calls: each is pickled once, as long as it refers to the same values."""

from __future__ import annotations

import copyreg
import functools
import math
import os
import types
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from .._files.values import ValueFiles
from .._worker import pickling
from .._worker.arguments import Arguments, bound_method, partial_of

_T = TypeVar("_T")

#: Returns the files of large values, if there is a folder for them.
Values = Callable[[], ValueFiles | None]


class Function:
    """A function, pickled for any number of calls. Its large parts are files as long as it
    is held.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        values: Values,
        call_code: CallCode,
        *,
        has_folder: bool,
    ) -> None:
        """Pickle the function, with large parts in ``values``, if there is a folder for them."""
        is_code = pickling.is_code(function)
        large_bytes = pickling.LARGE_CODE_BYTES if is_code else pickling.LARGE_BYTES
        with Arguments() as found:
            found.number_of_code = None if is_code else call_code.number
            least_bytes = large_bytes if has_folder else math.inf
            stand = _stand_of(function, call_code)
            named = None if stand is None else pickling.dump_named(stand, least_bytes)
            pickled, buffers = named or pickling.dump(function, least_bytes)
        #: The function itself, if it refers to futures: it is unpickled before the arguments are
        #: together.
        self.itself = function if found.values else None
        #: What it reads and writes.
        self.inputs, self.outputs = found.inputs, found.outputs
        #: Whether workers unpickle it once: each call has files of its own.
        self.is_kept = is_code and not (found.inputs or found.outputs or found.values)
        #: Whether its pickle is its name.
        self.is_named = self.is_kept and b"cloudpickle" not in pickled and not buffers
        held_bytes = len(pickled) + sum(buffer.nbytes for buffer in buffers)
        is_large = has_folder and (len(pickled) >= large_bytes or bool(buffers))
        files = values() if is_large and self.itself is None else None
        #: The files of its large parts.
        self.paths: list[str] = []
        if files is not None:
            weakref.finalize(self, files.release, self.paths).atexit = False
            numbers = [self._keep(files, buffer) for buffer in buffers]
            is_file = len(pickled) >= large_bytes
            content = self._keep(files, memoryview(pickled)) if is_file else pickled
            names = tuple(map(os.path.basename, self.paths)) if self.is_kept else ()
            parts = pickling.Parts(content, numbers, [], is_private=True, files=names)
            pickled = pickling.dumps(parts)
        #: The code of its calls.
        self.code = [pickling.Code(pickled, held_bytes)] if self.is_kept else call_code.parts
        #: Whether its calls read and write nothing for it.
        self.is_plain = not (found.inputs or found.outputs or found.values)
        #: Its bytes in its calls.
        self._content = b"" if self.is_kept else pickled
        self._beginnings: dict[int, bytes] = {}

    def _keep(self, files: ValueFiles, content: memoryview) -> int:
        """Write content to a file, and return the number of the input."""
        self.paths.append(files.keep(content))
        self.inputs.append(os.fsencode(self.paths[-1]))
        return len(self.inputs) - 1

    def beginning(self, wrapper: int, further: list[pickling.Code]) -> bytes:
        """Return the beginning of calls, whose arguments have further code."""
        if further:
            return pickling.beginning(wrapper, self.code + further, self._content)
        if (known := self._beginnings.get(wrapper)) is None:
            known = pickling.beginning(wrapper, self.code, self._content)
            self._beginnings[wrapper] = known
        return known

    @property
    def has_good_names(self) -> bool:
        """Whether other processes find what it names: a program may have registered its module as
        one to be pickled by value since.
        """
        if not self.is_named or not pickling.modules_by_value():
            return True
        return pickling.names_suffice(self.code[0].content)


class _Stand:
    """Stands for a method or partial whose code is a part of the call."""

    def __init__(self, make: Callable[..., Any], *parts: Any) -> None:
        self._reduced = make, parts

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reduced


def _has_only_attributes(of: type) -> bool:
    """Whether objects of a class are pickled as their attributes, and made without arguments."""
    own: Any = of
    return (
        own.__reduce_ex__ is object.__reduce_ex__
        and own.__reduce__ is object.__reduce__
        and own.__getstate__ is object.__getstate__
        and own.__new__ is object.__new__
        and not hasattr(of, "__setstate__")
        and not hasattr(of, "__getnewargs__")
        and not hasattr(of, "__getnewargs_ex__")
        and of not in copyreg.dispatch_table
        and not copyreg._slotnames(of)  # type: ignore[attr-defined]
    )


def _stand_of(function: Any, call_code: CallCode) -> _Stand | None:
    """Return what is pickled in place of a partial, or of a method of a plain object, many times
    faster.
    """
    kind: Any = type(function)
    code: Any
    make: Callable[..., Any]
    if kind is functools.partial and not vars(function):
        if not isinstance(function.func, types.FunctionType):
            return None
        code, make, parts = function.func, partial_of, (function.args, function.keywords)
    elif kind is types.MethodType:
        code, make = type(function.__self__), bound_method
        name = function.__func__.__name__
        if not _has_only_attributes(code) or getattr(code, name, None) is not function.__func__:
            return None
        parts = name, vars(function.__self__)
    else:
        return None
    if code.__module__ not in ("__main__", "__mp_main__") and not pickling.modules_by_value():
        return None
    number = call_code.number(code)
    return None if number is None else _Stand(make, number, *parts)


class _Pickles(Generic[_T]):
    """What is known of functions and classes, by their identity, as long as they live."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], Any, _T]] = {}

    def get(self, code: Any) -> _T | None:
        """Return what is known, unless the code refers to other values now."""
        known = self._known.get(id(code))
        if known is None or known[0]() is not code:
            return None
        return known[2] if known[1] is None or known[1].is_current() else None

    def keep(self, code: Any, value: _T, *, is_named: bool) -> None:
        """Remember what is known until the code is dropped."""
        number, known = id(code), self._known

        def forget(reference: weakref.ref[Any]) -> None:
            # Another object may have its address by now.
            if (of := known.get(number)) is not None and of[0] is reference:
                del known[number]

        snapshot = None
        try:
            reference = weakref.ref(code, forget)
            if not is_named:
                # Imported late, as all that few programs need.
                from .snapshots import Snapshot

                snapshot = Snapshot(code)
        except TypeError:  # It has no weak references.
            return
        known[number] = reference, snapshot, value

    def forget(self, code: Any) -> None:
        """Forget what is known."""
        self._known.pop(id(code), None)


#: Code that goes with the values that refer to it.
_NOT_APART = pickling.Code(b"", 0)


class Functions:
    """The functions of an executor, and the functions and classes of the main script to which other
    functions and arguments refer.
    """

    def __init__(self) -> None:
        """Begin without functions."""
        self._functions: _Pickles[Function] = _Pickles()
        self._code: _Pickles[pickling.Code] = _Pickles()

    def get(self, function: Callable[..., Any], values: Values, *, has_folder: bool) -> Function:
        """Return a function, which is pickled unless it was before. Objects and partials are
        pickled each time, as they are values.
        """
        known = self._functions.get(function)
        if known is None or not known.has_good_names:
            known = Function(function, values, CallCode(self), has_folder=has_folder)
            if known.is_kept:
                self._functions.keep(function, known, is_named=known.is_named)
        return known

    def code(self, code: Any) -> pickling.Code | None:
        """Return the pickle of a function or class, if it is to be unpickled once."""
        # Imported late: few programs need it.
        from .._worker import by_value

        if by_value.has_name(code):
            return None
        known = self._code.get(code)
        if known is None:
            known = _NOT_APART
            # Others may refer to values to which the call refers, too: there must be one of each.
            if "<locals>" not in code.__qualname__ and not getattr(code, "__closure__", None):
                with Arguments() as found:
                    content = pickling.dumps(code)
                is_small = len(content) < pickling.LARGE_CODE_BYTES
                if is_small and not (found.inputs or found.outputs or found.values):
                    known = pickling.Code(content, len(content))
            self._code.keep(code, known, is_named=False)
        return known if known.content else None

    def forget(self, function: Any) -> None:
        """Pickle a function or class again when it is needed next."""
        self._functions.forget(function)
        self._code.forget(function)


class CallCode:
    """The functions and classes of the main script to which the function or the arguments of a call
    refer.
    """

    def __init__(self, functions: Functions, before: int = 0) -> None:
        """Begin, with a number of those that the call has already."""
        self.parts: list[pickling.Code] = []
        self._functions = functions
        self._before = before
        self._numbers: dict[int, int] = {}

    def number(self, code: Any) -> int | None:
        """Return the number of a function or class, unless it is pickled where it is found."""
        if (known := self._numbers.get(id(code))) is not None:
            return known
        number = self._before + len(self.parts)
        if number >= pickling.MAX_CODE_PARTS or (part := self._functions.code(code)) is None:
            return None
        self.parts.append(part)
        self._numbers[id(code)] = number
        return number
