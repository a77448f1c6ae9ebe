"""Names of public classes."""

from __future__ import annotations

import sys
from typing import TypeVar

__all__ = ["public"]

_Class = TypeVar("_Class", bound=type)


def public(of: _Class) -> _Class:
    """Name a class as programs do: pickles, tracebacks and help have ``eyas.File``.

    :func:`typing.get_type_hints` looks for the names of annotations in the module of the class, so
    they are evaluated here, where they still have their meaning.
    """
    names = vars(sys.modules[of.__module__])
    hints = of.__annotations__.items()
    of.__annotations__ = {
        name: eval(hint, names) if isinstance(hint, str) else hint for name, hint in hints
    }
    of.__module__ = "eyas"
    return of
