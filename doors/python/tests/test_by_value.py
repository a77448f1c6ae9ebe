"""What is pickled by value: functions and classes of the main script, as workers have
another one.
"""

import dataclasses
import functools
import importlib
import multiprocessing
import subprocess
import sys

import cloudpickle
import eyas
import pytest
from programs import LONG_S


@pytest.fixture(scope="module")
def executor():
    with eyas.local(max_workers=1) as executor:
        yield executor


# Functions and classes inside of functions have no names elsewhere, as those of the main script
# have none.


def test_functions_with_caches(executor):
    @functools.cache
    def fibonacci(n):
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    @functools.lru_cache(maxsize=3, typed=True)
    def half(n):
        return n / 2

    assert executor.submit(fibonacci, 60).result(LONG_S) == fibonacci(60)
    assert executor.submit(lambda n: half(n) + fibonacci(n), 4).result(LONG_S) == 5
    assert executor.submit(lambda f: f.cache_parameters(), half).result(LONG_S) == {
        "maxsize": 3,
        "typed": True,
    }
    assert executor.submit(lambda f: f is functools.lru_cache, functools.lru_cache).result(LONG_S)


def test_functions_that_dispatch_by_type(executor):
    @functools.singledispatch
    def depth(value):
        return 0

    @depth.register
    def _(value: list):
        return 1 + max(map(depth, value), default=0)

    assert executor.submit(depth, [1, [2, []]]).result(LONG_S) == 3
    assert executor.submit(lambda: [depth([[]]), depth(1)]).result(LONG_S) == [2, 0]


def test_classes_with_cached_properties_and_methods(executor):
    class Numbers:
        def __init__(self, numbers):
            self.numbers = numbers

        @functools.cached_property
        def total(self):
            return sum(self.numbers)

        @functools.lru_cache
        def plus(self, number):
            return self.total + number

        @functools.singledispatchmethod
        def show(self, value):
            return "other"

        @show.register
        def _(self, value: int):
            return "int"

    numbers = executor.submit(lambda n: (n.plus(1), n.show(1), n.show(""), n)[:3], Numbers([1, 2]))
    assert numbers.result(LONG_S) == (4, "int", "other")


def slotted():
    class Base:
        __slots__ = ("a",)

        def __init__(self, *values):
            for name, value in zip(self.names, values):
                setattr(self, name, value)

        names = ("a",)

        def values(self):
            return [getattr(self, name) for name in self.names]

    class More(Base):
        __slots__ = ["b", "__weakref__"]
        names = ("a", "b")

    class Single(Base):
        __slots__ = "b"
        names = ("a", "b")

    class Described(Base):
        __slots__ = {"b": "a text about it"}
        names = ("a", "b")

    class Private:
        __slots__ = ("__a", "__dict__")

        def __init__(self, a, b):
            self.__a, self.b = a, b

        def values(self):
            return [self.__a, self.b]

    @dataclasses.dataclass(slots=True, weakref_slot=True)
    class Record:
        a: int
        b: int = 2

        def values(self):
            return [self.a, self.b]

    @dataclasses.dataclass(slots=True, frozen=True)
    class Frozen:
        a: int
        b: int

        def values(self):
            return [self.a, self.b]

    class Without(Base):
        __slots__ = ()

    return [
        Base(1),
        More(1, 2),
        Single(1, 2),
        Described(1, 2),
        Private(1, 2),
        Record(1),
        Frozen(1, 2),
        Without(1),
    ]


@pytest.mark.parametrize("value", slotted(), ids=lambda value: type(value).__name__)
def test_classes_with_slots(executor, value):
    assert executor.submit(value.values).result(LONG_S) == value.values()
    again = executor.submit(lambda value: value, value).result(LONG_S)
    assert type(again) is type(value) and again.values() == value.values()
    assert hasattr(again, "__dict__") == hasattr(value, "__dict__")


def test_a_class_stays_as_it_is_when_an_instance_comes_back(executor):
    class Counted:
        count = 0

        def next(self):
            Counted.count += 1
            return self

    method, first = Counted.next, executor.submit(Counted().next)
    Counted.count = 5
    assert type(first.result(LONG_S)) is Counted
    assert (Counted.count, Counted.next) == (5, method)
    # Calls have the class as it is now.
    assert executor.submit(lambda counted: counted.next().count, Counted()).result(LONG_S) == 6


def test_modules_that_are_registered_go_by_value(executor, tmp_path, monkeypatch):
    (tmp_path / "own_tools.py").write_text(
        "FACTOR = 2\ndef times(x): return FACTOR * x\nclass Of(int): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    tools = importlib.import_module("own_tools")
    with pytest.raises(ModuleNotFoundError, match="own_tools"):
        executor.submit(tools.times, 3).result(LONG_S)
    cloudpickle.register_pickle_by_value(tools)
    try:
        tools.FACTOR = 5
        assert executor.submit(tools.times, 3).result(LONG_S) == 15
        assert type(executor.submit(abs, tools.Of(3)).result(LONG_S)) is int
        assert type(executor.submit(lambda x: x, tools.Of(3)).result(LONG_S)) is tools.Of
    finally:
        cloudpickle.unregister_pickle_by_value(tools)


def test_functions_of_the_main_script_in_a_process_of_multiprocessing(tmp_path):
    (tmp_path / "main.py").write_text(
        "import multiprocessing, eyas\n"
        "class Own:\n    pass\n"
        "def twice(x):\n    return 2 * x\n"
        "def child():\n"
        "    with eyas.local(max_workers=1) as executor:\n"
        "        own = executor.submit(lambda own: own, Own()).result()\n"
        "        print(executor.submit(twice, 3).result(), type(own) is Own, flush=True)\n"
        "if __name__ == '__main__':\n"
        "    process = multiprocessing.get_context('spawn').Process(target=child)\n"
        "    process.start()\n"
        "    process.join()\n"
    )
    done = subprocess.run(
        [sys.executable, tmp_path / "main.py"], capture_output=True, text=True, timeout=LONG_S
    )
    assert done.stdout == "6 True\n", done.stderr


def test_proxies_of_managers_are_arguments_and_results(executor):
    with multiprocessing.Manager() as manager:
        table, queue, lock = manager.dict(), manager.Queue(), manager.Lock()

        def note(number):
            with lock:
                table[number] = number
            queue.put(number)
            return table

        for number in range(3):
            assert len(executor.submit(note, number).result(LONG_S)) == number + 1
        executor.submit(lambda of: of.update(more=1), table).result(LONG_S)
        assert table.copy() == {0: 0, 1: 1, 2: 2, "more": 1}
        assert [queue.get() for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OSError) as raised:
        executor.submit(len, table).result(LONG_S)
    assert any("SyncManager" in note for note in raised.value.__notes__)
