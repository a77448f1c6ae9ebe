"""Graphs of Dask on an executor."""

import copy
import operator
import os
import pickle
import time

import eyas
import pytest

dask = pytest.importorskip("dask")

import eyas.dask  # noqa: E402
from dask.utils_test import GetFunctionTestMixin  # noqa: E402


@pytest.fixture(scope="module")
def executor():
    with eyas.local(max_workers=2) as executor:
        yield executor


@pytest.fixture(autouse=True)
def configured(executor):
    with dask.config.set({"scheduler": eyas.dask.get, "eyas.executor": executor}):
        yield


class TestGet(GetFunctionTestMixin):
    """Dask's own tests of schedulers."""

    get = staticmethod(eyas.dask.get)


def test_delayed_calls_run_in_workers(executor):
    assert dask.delayed(os.getpid)().compute() != os.getpid()
    add = dask.delayed(operator.add)
    total = add(add(1, 2), add(3, 4))
    assert total.compute(executor=executor) == 10
    assert dask.compute(total, add(total, 1), [add(1, 1)]) == (10, 11, [2])


def test_arrays_bags_and_data_frames():
    array = pytest.importorskip("dask.array")
    numbers = array.arange(10_000, chunks=1000).reshape(100, 100)
    assert (numbers @ numbers.T).trace().compute() == sum(n * n for n in range(10_000))
    bag = pytest.importorskip("dask.bag")
    # The partitions of a group meet by the hash of its text, in several workers.
    words = bag.from_sequence([f"word {number % 7}" for number in range(700)], npartitions=10)
    groups = (
        words.groupby(lambda word: word, shuffle="tasks")
        .map(lambda group: (group[0], len(group[1])))
        .compute()
    )
    assert sorted(groups) == [(f"word {number}", 100) for number in range(7)]
    assert sorted(words.frequencies().compute()) == sorted(groups)


def test_a_data_frame():
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frames = pytest.importorskip("dask.dataframe")
    table = pandas.DataFrame({"key": list("abcd") * 25, "value": range(100)})
    means = frames.from_pandas(table, npartitions=5).groupby("key").value.mean().compute()
    assert means.to_dict() == table.groupby("key").value.mean().to_dict()


def test_the_first_exception_is_raised_and_the_rest_is_cancelled(executor):
    divide, sleep = dask.delayed(operator.truediv), dask.delayed(time.sleep)
    with pytest.raises(ZeroDivisionError) as caught:
        dask.compute(sleep(600), divide(1, 0) + 1)
    assert any("Task" in note for note in caught.value.__notes__)
    # Calls that have ended are outstanding no longer.
    deadline = time.monotonic() + 60
    while executor._state.pending:
        assert time.monotonic() < deadline, "the other call was cancelled"
        time.sleep(0.01)


def test_results_that_are_used_no_longer_are_released(executor):
    run = eyas.dask._Run(
        eyas.dask.convert_legacy_graph(
            {"a": 1, "b": (operator.neg, "a"), "c": (operator.neg, "b")}
        ),
        {"c"},
    )
    assert run.run(executor) == {"c": 1}
    assert run._values.keys() == {"c"}


def test_a_large_constant_of_many_tasks_is_one_call(executor):
    constant = bytes(100_000)
    graph = {"constant": constant, **{f"use {number}": (len, "constant") for number in range(5)}}
    keys = [f"use {number}" for number in range(5)]
    assert eyas.dask.get(graph, keys) == (100_000,) * 5


def test_without_an_executor_there_is_one_of_this_process():
    with dask.config.set({"eyas.executor": None}):
        here = {dask.delayed(os.getppid)().compute() for _ in range(2)}
        assert len(here) == 1 and os.getpid() not in here
    eyas.dask._own().shutdown()


def test_an_executor_of_another_kind_is_refused():
    with pytest.raises(TypeError, match="eyas.Executor"):
        dask.delayed(abs)(-1).compute(executor="threads")


def test_a_configuration_that_holds_an_executor_is_copied_and_sent_to_other_processes(executor):
    assert copy.deepcopy(dask.config.config)["eyas"]["executor"] is executor
    sent = pickle.loads(pickle.dumps(dask.config.config))
    with (
        dask.config.set(sent),
        pytest.raises(TypeError, match="another one in this process.*not an eyas.Executor"),
    ):
        dask.delayed(os.getpid)().compute()
    with pytest.raises(TypeError, match="cannot be pickled for a call"):
        executor.submit(lambda: executor).result()
