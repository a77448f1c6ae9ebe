"""Pickles that have the code of functions and classes, where a name does not suffice: those of ``__main__``, say."""

from __future__ import annotations

import io
import pickle
import types
from collections.abc import Callable
from typing import Any

import cloudpickle

_REDUCERS: Any = cloudpickle.Pickler.dispatch_table


def _with_file_name(code: types.CodeType, name: str) -> types.CodeType:
    return code.replace(co_filename=name)


def _reduce_code(code: types.CodeType) -> tuple[Any, ...]:
    # From version 3.1.3, cloudpickle drops the file name, and tracebacks of calls would not show their lines.
    make, arguments = _REDUCERS[types.CodeType](code)
    return _with_file_name, (_Code(make, arguments), code.co_filename)


class _Code:
    """Code, as cloudpickle reduces it."""

    def __init__(self, *reduced: Any) -> None:
        self._reduced = reduced

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reduced


class _Pickler(cloudpickle.Pickler):
    dispatch_table = _REDUCERS.new_child({types.CodeType: _reduce_code})


def dumps(value: object, protocol: int, keep: Callable[[pickle.PickleBuffer], object] | None = None) -> bytes:
    """Pickle a value. Buffers for which ``keep`` returns something false are left out."""
    content = io.BytesIO()
    _Pickler(content, protocol=protocol, buffer_callback=keep).dump(value)
    return content.getvalue()
