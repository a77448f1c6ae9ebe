"""Whether code refers to the same values as when it was pickled.

A snapshot has what names are bound to: global variables, cells of closures, defaults, attributes of
functions and classes. It does not look into values, so it does not see that a list has another
item.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Iterable
from typing import Any

from .._worker import by_value

#: Values of these types are kept, and compared: they refer to nothing.
_SCALARS = frozenset([type(None), bool, int, float, complex, str, bytes])
#: Objects of a snapshot. What further ones refer to is not compared.
_MAX_OBJECTS = 1000


class _Address(int):
    """Stands for a value that has no weak references. It must not be kept: it may refer to the
    code, which would then live as long as its snapshot.
    """


def _mark(value: object) -> object:
    """Return what stands for a value in a snapshot."""
    if type(value) in _SCALARS:
        return value
    try:
        return weakref.ref(value)
    except TypeError:
        return _Address(id(value))


def _is_same(mark: object, value: object) -> bool:
    if type(mark) is weakref.ref:
        return mark() is value
    if type(mark) is _Address:
        return mark == id(value)
    # A number that is not equal to itself is the same.
    return mark is value or (type(mark) is type(value) and mark == value)


def _referred(of: Any, names: Iterable[str]) -> list[Any]:
    """Return the values to which a function, class or partial refers."""
    if isinstance(of, types.FunctionType):
        variables = of.__globals__
        found = [of.__code__, of.__defaults__, of.__kwdefaults__, *of.__dict__.values()]
        found += [variables.get(name) for name in names]
        for cell in of.__closure__ or ():
            try:
                found.append(cell.cell_contents)
            except ValueError:  # It is empty.
                found.append(None)
        return found
    if isinstance(of, type):
        return list(vars(of).values())
    return [of.func, *of.args, *of.keywords.values()]


def _is_followed(value: object) -> bool:
    """Whether a snapshot has what a value refers to, too."""
    if isinstance(value, functools.partial):
        return True
    return isinstance(value, types.FunctionType | type) and not by_value.has_name(value)


class Snapshot:
    """What code refers to at a time."""

    def __init__(self, code: Any) -> None:
        """Follow what the code refers to."""
        #: Each object, the names of its global variables, and what stands for its values.
        self._marks: list[tuple[weakref.ref[Any], tuple[str, ...], list[object]]] = []
        seen, left = {id(code)}, [code]
        while left and len(self._marks) < _MAX_OBJECTS:
            of = left.pop()
            names: tuple[str, ...] = ()
            if isinstance(of, types.FunctionType):
                names = tuple(by_value.names_of_globals(of.__code__))
            values = _referred(of, names)
            self._marks.append((weakref.ref(of), names, [_mark(value) for value in values]))
            for value in values:
                if id(value) not in seen and _is_followed(value):
                    seen.add(id(value))
                    left.append(value)

    def is_current(self) -> bool:
        """Whether all names are bound to the same values."""
        for reference, names, marks in self._marks:
            of = reference()
            if of is None:
                return False
            values = _referred(of, names)
            if len(values) != len(marks) or not all(map(_is_same, marks, values)):
                return False
        return True
