"""Functions, and what they refer to: large parts are files, as those of arguments are."""

import functools
import gc
import operator
import pathlib
import time

import eyas
import pytest
from eyas._files import values as value_files
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
    return lambda number: table.item(number)


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
