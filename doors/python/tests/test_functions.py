"""Functions, and what they refer to: large parts are files, as those of arguments are."""

import functools
import gc
import operator
import pathlib
import sys
import time
import weakref

import cloudpickle
import eyas
import pytest
from eyas._files import values as value_files
from eyas._worker import pickling
from eyas._worker.arguments import Arguments
from programs import LONG_S

numpy = pytest.importorskip("numpy")

#: Items of an array that is too large to be sent with a call.
MANY = 3_000_000


@pytest.fixture
def executor():
    with eyas.local(max_workers=2) as executor:
        yield executor


def kept(executor):
    """The files of large parts that there are."""
    folder = pathlib.Path(executor._state.cluster.objects)
    return list(folder.iterdir()) if folder.exists() else []


def ramp():
    return numpy.arange(MANY, dtype=numpy.float64)


class Table:
    def __init__(self):
        self.array, self.text = ramp(), "x" * (2 << 20)

    def item(self, number):
        self.array[number] += 1  # Of this task alone.
        return self.array[number], len(self.text)

    def __call__(self, number):
        return self.item(number)


def item_of(table, number):
    return table.item(number)


def item_of_array():
    array = ramp()
    return lambda number: (array[number] + 1, 2 << 20)


def item_of_table():
    table = Table()
    return lambda number: (table.array[number] + 1, len(table.text))


FUNCTIONS = {
    "a closure": item_of_array,
    "a closure with an object": item_of_table,
    "a partial": lambda: functools.partial(item_of, Table()),
    "a bound method": lambda: Table().item,
    "an object": Table,
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_large_parts_of_functions_become_files_once(executor, monkeypatch, kind):
    sent, add = [], executor._state.add
    monkeypatch.setattr(
        executor._state,
        "add",
        lambda *args: (sent.append(sum(len(text) for text, _ in args[2])), add(*args)),
    )
    function = FUNCTIONS[kind]()
    calls = [executor.submit(function, number) for number in range(5)]
    results = [call.result(LONG_S) for call in calls] + list(executor.map(function, range(5)))
    assert 1 <= len(kept(executor)) <= 2, "the array and the pickle, whatever the number of calls"
    results += executor.map(function, range(5), chunksize=3)
    assert results == [(n + 1, 2 << 20) for n in range(5)] * 3
    assert max(sent) < 10_000, "bytes of a call that pass through the dispatcher"


class Counted:
    """Counts how often it was pickled."""

    count = 0

    def __init__(self, content=b""):
        self.content = content

    def __call__(self, *_):
        return len(self.content)

    def __reduce__(self):
        Counted.count += 1
        return operator.itemgetter, (0,)


def test_a_function_is_pickled_once_for_all_calls_of_a_map(executor):
    for run in (
        lambda: list(executor.map(Counted(), [[1]] * 10)),
        lambda: list(executor.map(Counted(), [[1]] * 10, chunksize=2)),
    ):
        Counted.count = 0
        assert run() == [1] * 10
        assert Counted.count == 1
    Counted.count = 0
    executor.submit(Counted(), [1]).result(LONG_S)
    assert Counted.count == 1


def test_a_function_that_has_changed_is_another_one(executor):
    array = ramp()
    assert executor.submit(lambda: array[7]).result(LONG_S) == 7
    array[7] = -1
    assert executor.submit(lambda: array[7]).result(LONG_S) == -1


def refer_to(value):
    return lambda _: value([0])


def test_a_function_is_pickled_once_for_all_its_calls(executor):
    function = refer_to(Counted())
    Counted.count = 0
    assert [executor.submit(function, 0).result(LONG_S) for _ in range(3)] == [0] * 3
    assert list(executor.with_options(retries=1).map(function, range(4), chunksize=2)) == [0] * 4
    assert Counted.count == 1
    executor.pickle_again(function)
    executor.submit(function, 0).result(LONG_S)
    assert Counted.count == 2


CONSTANT = 1


def constant():
    return CONSTANT


def constant_by_another():
    return constant()


def test_a_name_that_is_bound_anew_is_noticed(executor, monkeypatch):
    count = 0

    def counted(step=1):
        return count + step

    def run(function):
        return executor.submit(function).result(LONG_S)

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        assert [run(counted), run(constant_by_another)] == [1, 1]
        count = 10
        monkeypatch.setitem(globals(), "CONSTANT", 2)
        assert [run(counted), run(constant_by_another)] == [11, 2]
        counted.__defaults__ = (5,)
        monkeypatch.setitem(globals(), "constant", lambda: 3)
        assert [run(counted), run(constant_by_another)] == [15, 3]
        counted.__code__ = (lambda step: 100 * count + step).__code__.replace(
            co_freevars=("count",)
        )
        assert run(counted) == 1005
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def test_a_value_that_changes_in_place_is_sent_when_the_function_is_pickled_again(executor):
    items = [1]

    def total():
        return sum(items)

    assert executor.submit(total).result(LONG_S) == 1
    items.append(2)
    assert executor.submit(total).result(LONG_S) == 1
    executor.pickle_again(total)
    assert executor.submit(total).result(LONG_S) == 3


class Counter:
    created = 0

    def __init__(self):
        self.count = 0

    def __setstate__(self, state):
        vars(self).update(state)
        type(self).created += 1

    def up(self, _=None):
        self.count += 1
        return self.count, type(self).created


def test_workers_keep_code_but_not_values():
    counter = Counter()

    def up(_=None):
        return counter.up()

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        with eyas.local(max_workers=1) as executor:
            # What a closure refers to is the worker's, as global variables are.
            assert list(executor.map(up, range(3))) == [(1, 1), (2, 1), (3, 1)]
            assert executor.submit(up).result(LONG_S) == (4, 1)
            # Each call has an object of its own, of one class.
            made = [executor.submit(counter.up).result(LONG_S) for _ in range(2)]
            made += [executor.submit(Counter.up, counter).result(LONG_S) for _ in range(2)]
            assert [count for count, _ in made] == [1] * 4
            assert [created - made[0][1] for _, created in made] == [0, 1, 2, 3]
            counter.count = 7
            assert executor.submit(counter.up).result(LONG_S)[0] == 8
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def item_plus(item, offset):
    return item + offset


class Plain:
    def __init__(self, factor):
        self.factor, self.itself = factor, None

    def times(self, number):
        return self.factor * number

    def is_whole(self):
        return self.itself is self


class Made(Plain):
    def __new__(cls, factor):
        return super().__new__(cls)

    def __getnewargs__(self):
        return (self.factor,)


class Slotted:
    __slots__ = ("factor",)

    def __init__(self, factor):
        self.factor = factor

    def times(self, number):
        return self.factor * number


def test_methods_of_objects_of_all_kinds(executor):
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        for kind in Plain, Made, Slotted:
            made = kind(3)
            assert executor.submit(made.times, 5).result(LONG_S) == 15
            made.factor = numpy.arange(3)
            assert list(executor.submit(made.times, 2).result(LONG_S)) == [0, 2, 4]
            made.factor = executor.submit(abs, -4)
            assert executor.submit(made.times, 5).result(LONG_S) == 20
        circle = Plain(1)
        circle.itself = circle
        assert executor.submit(circle.is_whole).result(LONG_S)
        times = functools.partial(Plain.times, Made(2), number=4)
        assert executor.submit(times).result(LONG_S) == 8
        times = functools.partial(item_plus, 1, offset=executor.submit(abs, -4))
        assert executor.submit(times).result(LONG_S) == 5
        times.note = "kept"
        assert executor.submit(times).result(LONG_S) == 5
        # Its own attribute hides the method of the class.
        circle.times = lambda number: "own"
        assert executor.submit(circle.times, 1).result(LONG_S) == "own"
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def test_functions_are_forgotten_when_they_are_dropped(executor):
    def recursive():
        def fall(number):
            return 0 if number == 0 else fall(number - 1)

        fall.itself = [fall]
        return fall

    fall = recursive()
    assert executor.submit(fall, 3).result(LONG_S) == 0
    assert executor.submit(functools.partial(fall, 3)).result(LONG_S) == 0
    dropped = weakref.ref(fall)
    del fall
    gc.collect()
    assert dropped() is None
    pickles = executor._functions
    assert not pickles._functions._known and not pickles._code._known


def test_a_worker_remembers_a_bounded_amount_of_code(monkeypatch):
    def call(value, held_bytes):
        code = pickling.Code(pickling.dumps(value), held_bytes)
        return pickling.beginning(pickling.PLAIN, [code], b"") + pickling.dumps(((), {}))

    reader = pickling.CallReader()
    with Arguments():
        first = reader.read(call([1], 10))[0]
        assert reader.read(call([1], 10))[0] is first
        reader.read(call([2], reader.MAX_BYTES))
        assert reader.read(call([1], 10))[0] is not first
        for number in range(3 * reader.MAX_PARTS):
            reader.read(call([number], 1))
            assert len(reader._code) <= reader.MAX_PARTS


def test_files_and_futures_beside_large_parts_of_a_function(executor, tmp_path):
    (tmp_path / "one.txt").write_text("one")
    array, file, output = (
        ramp(),
        eyas.File(tmp_path / "one.txt"),
        eyas.Output(tmp_path / "made.txt"),
    )

    def write(word, *, more):
        output.write_text(file.read_text() + word + more.read_text())
        return array[-1]

    assert (
        executor.submit(write, "+", more=eyas.File(tmp_path / "one.txt")).result(LONG_S) == MANY - 1
    )
    assert (tmp_path / "made.txt").read_text() == "one+one"
    one = executor.submit(ramp)
    assert executor.submit(lambda: (array == one).all()).result(LONG_S)


def test_files_of_functions_go_when_no_call_needs_them(executor, monkeypatch):
    monkeypatch.setattr(value_files, "_SPARE_BYTES", 0)
    array = ramp()
    for number in range(3):
        array[0] = number
        assert set(executor.map(lambda _: array[0], range(3))) == {number}
    deadline = time.monotonic() + LONG_S
    while kept(executor):
        gc.collect()
        assert time.monotonic() < deadline


def test_a_value_too_large_without_a_folder_is_named(executor):
    array = ramp()
    with eyas.Executor(access=executor._cluster["access"]) as elsewhere:
        with pytest.raises(
            ValueError, match="the function and its arguments have 24.* bytes.*objects=FOLDER"
        ):
            elsewhere.submit(lambda: array[0]).result(LONG_S)
        assert (
            elsewhere.submit(lambda part: len(part) + len(text), array[: 1 << 18]).result(LONG_S)
            == 2**18 + 2**21
        )


text = "x" * (2 << 20)


def test_batches_of_joblib_and_nodes_of_dask(executor):
    array = ramp()

    def item(table, number):
        return table[number] + array[number]

    joblib = pytest.importorskip("joblib")
    import eyas.joblib

    with eyas.joblib.backend(executor):
        made = joblib.Parallel()(joblib.delayed(item)(array, number) for number in range(20))
    assert made == [2 * number for number in range(20)]
    dask = pytest.importorskip("dask")
    import eyas.dask

    made = dask.compute(
        *[dask.delayed(item)(array, n) for n in range(5)],
        scheduler=eyas.dask.get,
        executor=executor,
    )
    assert made == tuple(2 * number for number in range(5))
    assert len(kept(executor)) == 1
