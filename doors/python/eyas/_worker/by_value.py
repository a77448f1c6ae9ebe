"""Pickles that have the code of functions and classes, where a name does not suffice: those of
``__main__``, say.

cloudpickle does most of it. What the standard library wraps functions in, classes with
``__slots__``, and proxies of managers are pickled here.
"""

from __future__ import annotations

import functools
import io
import pickle
import sys
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import cloudpickle
from cloudpickle import cloudpickle as _cloudpickle

from .arguments import Arguments, code_part

_REDUCERS: Any = cloudpickle.Pickler.dispatch_table

if "__mp_main__" in sys.modules:
    # The main script of a process that multiprocessing has started. Workers have no such module.
    cloudpickle.register_pickle_by_value(sys.modules["__mp_main__"])


def _with_file_name(code: types.CodeType, name: str) -> types.CodeType:
    return code.replace(co_filename=name)


def _reduce_code(code: types.CodeType) -> tuple[Any, ...]:
    # From version 3.1.3, cloudpickle drops the file name, and tracebacks of calls would not show
    # their lines.
    make, arguments = _REDUCERS[types.CodeType](code)
    return _with_file_name, (_Reduced(make, arguments), code.co_filename)


class _Reduced:
    """An object, as a reducer has reduced it."""

    def __init__(self, *reduced: Any) -> None:
        self._reduced = reduced

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reduced


def _has_name(wrapper: Any) -> bool:
    """Whether other processes find a function by its name."""
    module = sys.modules.get(wrapper.__module__)
    if (
        module is None
        or module.__name__ == "__main__"
        or _cloudpickle._is_registered_pickle_by_value(module)
    ):
        return False
    found: Any = module
    for name in wrapper.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is wrapper


def _reduce_cached(wrapper: Any) -> Any:
    """Reduce a function with a cache, which is empty where it is unpickled."""
    if _has_name(wrapper):
        return wrapper.__reduce__()
    parameters = wrapper.cache_parameters()
    attributes = {name: value for name, value in vars(wrapper).items() if name != "__wrapped__"}
    return _cached, (wrapper.__wrapped__, parameters["maxsize"], parameters["typed"]), attributes


def _cached(function: Callable[..., Any], maxsize: int | None, typed: bool) -> Any:
    return functools.lru_cache(maxsize, typed)(function)


def _reduce_cached_property(wrapper: functools.cached_property[Any]) -> tuple[Any, ...]:
    # Python 3.11 has a lock in it.
    attributes = {name: value for name, value in vars(wrapper).items() if name != "lock"}
    return functools.cached_property, (wrapper.func,), attributes


#: The code that all functions of `functools.singledispatch` have.
_DISPATCHING: types.CodeType = vars(functools)["singledispatch"](len).__code__


def _reduce_dispatching(function: Any) -> tuple[Any, ...]:
    """Reduce a function of `functools.singledispatch`, which has weak references."""
    return _dispatching, (function.__wrapped__, tuple(function.registry.items()))


def _dispatching(
    function: Callable[..., Any], registry: Iterable[tuple[type, Callable[..., Any]]]
) -> Any:
    made = functools.singledispatch(function)
    for of, implementation in registry:
        made.register(of, implementation)
    return made


def _reduce_dispatching_method(method: Any) -> tuple[Any, ...]:
    # From version 3.12, Python has weak references in it.
    return _dispatching_method, (method.func, method.dispatcher)


def _dispatching_method(function: Callable[..., Any], dispatcher: Any) -> Any:
    made: Any = functools.singledispatchmethod(function)
    made.dispatcher = dispatcher
    return made


#: Classes of other processes. The others are this process's own.
_received: weakref.WeakSet[type] = weakref.WeakSet()


def _reduce_class(reduced: tuple[Any, ...], of: Any) -> tuple[Any, ...]:
    """Complete what cloudpickle makes of a class: it forgets slots, and would change a class that
    comes back.
    """
    make, arguments, (state, slots), *_, set_state = reduced
    members = [
        name for name, member in vars(of).items() if isinstance(member, types.MemberDescriptorType)
    ]
    if members:
        state = {name: value for name, value in state.items() if name not in members}
        members += [name for name in ("__dict__", "__weakref__") if name in vars(of)]
        kind, name, bases, attributes, *tracked = arguments
        arguments = (kind, name, bases, {**attributes, "__slots__": tuple(members)}, *tracked)
    return _make_class, (make, *arguments), (state, slots), None, None, _Setter(set_state)


def _make_class(make: Callable[..., type], *arguments: Any) -> type:
    is_known = arguments[-2] in _cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID
    made = make(*arguments)
    if not is_known:
        _received.add(made)
    return made


class _Setter:
    """Sets the state of a class, unless it is one of this process, which has changed meanwhile,
    perhaps.
    """

    def __init__(self, set_state: Callable[..., None]) -> None:
        self.set_state = set_state

    def __call__(self, of: type, state: Any) -> None:
        if of in _received:
            self.set_state(of, state)


def _reduce_proxy(proxy: Any) -> tuple[Any, ...]:
    """Reduce a proxy of a manager of multiprocessing, with the key that the processes of a pool
    inherit.
    """
    _, (make, token, serializer, options) = proxy.__reduce__()
    return _proxy, (make, token, serializer, {**options, "authkey": bytes(proxy._authkey)})


def _proxy(make: Callable[..., Any], token: Any, serializer: str, options: dict[str, Any]) -> Any:
    from multiprocessing import managers
    from multiprocessing.process import AuthenticationString  # type: ignore[attr-defined]

    options["authkey"] = AuthenticationString(options["authkey"])
    try:
        return managers.RebuildProxy(make, token, serializer, options)  # type: ignore[attr-defined]
    except OSError as error:
        error.add_note(
            f"The manager of {token.typeid} is not reached at {token.address!r} from here. If it "
            "runs on another machine, give it an address: "
            'multiprocessing.managers.SyncManager(("HOST", 0)).'
        )
        raise


class _Pickler(cloudpickle.Pickler):
    dispatch_table = _REDUCERS.new_child(
        {
            types.CodeType: _reduce_code,
            functools._lru_cache_wrapper: _reduce_cached,
            functools.cached_property: _reduce_cached_property,
            functools.singledispatchmethod: _reduce_dispatching_method,
        }
    )

    #: As in `Arguments`.
    number_of_code: Callable[[Any], int | None] | None = None

    def reducer_override(self, obj: Any) -> Any:
        if self.number_of_code is not None and isinstance(obj, (types.FunctionType, type)):
            if (number := self.number_of_code(obj)) is not None:
                return code_part, (number,)
        if (
            isinstance(obj, types.FunctionType)
            and obj.__code__ is _DISPATCHING
            and not _has_name(obj)
        ):
            return _reduce_dispatching(obj)
        managers: Any = sys.modules.get("multiprocessing.managers")
        if managers is not None and isinstance(obj, managers.BaseProxy):
            return _reduce_proxy(obj)
        reduced = super().reducer_override(obj)
        is_class_by_value = (
            isinstance(obj, type) and isinstance(reduced, tuple) and len(reduced) == 6
        )
        return _reduce_class(reduced, obj) if is_class_by_value else reduced


def dumps(
    value: object, protocol: int, keep: Callable[[pickle.PickleBuffer], object] | None = None
) -> bytes:
    """Pickle a value. Buffers for which ``keep`` returns something false are left out."""
    content = io.BytesIO()
    pickler = _Pickler(content, protocol=protocol, buffer_callback=keep)
    if (arguments := Arguments.now()) is not None:
        pickler.number_of_code = arguments.number_of_code
    pickler.dump(value)
    return content.getvalue()


#: The flag of types that programs have made; the others are the interpreter's.
_MADE_TYPE = 1 << 9


def has_name(code: Callable[..., Any]) -> bool:
    """Whether a function or class is pickled by its name, as types of the interpreter are."""
    if isinstance(code, type) and not code.__flags__ & _MADE_TYPE:
        return True
    found: bool = _cloudpickle._should_pickle_by_reference(code)
    return found


def names_of_globals(code: types.CodeType) -> Iterable[str]:
    """Return the names of the global variables that code reads or writes."""
    found: Iterable[str] = _cloudpickle._extract_code_globals(code)
    return found
