"""Keywords: values that all calls of a map share, amounts of memory, variables of workers."""

import gc
import os
import pathlib
import time
from concurrent import futures

import eyas
import pytest
from eyas._executor.options import bytes_of
from eyas._files import values as value_files
from programs import LONG_S


@pytest.fixture(scope="module")
def executor():
    with eyas.local(max_workers=1, variables={"OWN_VARIABLE": "own"}) as executor:
        yield executor


def kept(executor):
    """The files of large values that there are."""
    folder = pathlib.Path(executor._state.cluster.objects)
    return list(folder.iterdir()) if folder.exists() else []


def item(number, table, offset=0):
    table.append(number)  # The list is the worker's: later calls find it.
    return table[number] + offset, len(table)


def test_a_large_keyword_of_a_map_is_one_file_that_a_worker_reads_once(executor, monkeypatch):
    monkeypatch.setattr(value_files, "_SPARE_BYTES", 0)
    table = list(range(500_000))
    found = executor.map(item, range(4), table=table, offset=10)
    assert len(kept(executor)) == 1
    assert list(found) == [(10 + n, 500_001 + n) for n in range(4)]
    # The same value is the same file while a map needs it.
    again = executor.map(item, range(6), chunksize=3, table=table)
    assert [first for first, _ in again] == list(range(6))
    del found, again
    deadline = time.monotonic() + LONG_S
    while kept(executor):
        gc.collect()
        assert time.monotonic() < deadline


def size_of(number, *, small, file=None, result=None):
    return small + number, None if file is None else file.read_text(), result


def test_small_keywords_files_and_futures(executor, tmp_path):
    (tmp_path / "one.txt").write_text("one")
    result = executor.submit(abs, -7)
    found = executor.map(
        size_of, range(2), small=5, file=eyas.File(tmp_path / "one.txt"), result=result
    )
    assert list(found) == [(5, "one", 7), (6, "one", 7)]
    nested = executor.map(
        lambda _, files: files[0][0].read_text(), [0], files=[[eyas.File(tmp_path / "one.txt")]]
    )
    assert list(nested) == ["one"]
    with pytest.raises(TypeError, match="pickle"):
        list(executor.map(size_of, range(2), small=(number for number in range(3))))
    with pytest.raises(TypeError, match="unknown"):
        list(executor.map(size_of, range(2), small=5, unknown=1))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (7, 7),
        ("7", 7),
        ("2GB", 2_000_000_000),
        ("1.5kB", 1500),
        ("64 MiB", 64 << 20),
        ("4G", 4_000_000_000),
        ("1TiB", 1 << 40),
    ],
)
def test_amounts_of_memory(text, found):
    assert bytes_of(text) == found


@pytest.mark.parametrize("text", ["", "GB", "2 gigabytes", "-1GB", "1kiB", "2XB"])
def test_a_text_that_is_no_amount_of_memory_is_refused(text):
    with pytest.raises(ValueError, match='is no amount of memory.*such as "2GB"'):
        bytes_of(text)


def test_memory_as_a_text_limits_calls(executor):
    with pytest.raises(ValueError, match="no amount"):
        executor.with_options(memory="much")
    with pytest.raises(
        ValueError, match="no node of this cluster has cpus=1, memory=9000000000000000"
    ):
        executor.with_options(memory="9000TB")

    @eyas.options(memory="64MB")
    def large():
        return len(bytearray(512 << 20))

    with pytest.raises(eyas.CallFailed, match="memory"):
        executor.submit(large).result(LONG_S)


def test_workers_get_variables_of_the_client(executor, monkeypatch):
    assert executor.submit(os.getenv, "OWN_VARIABLE").result(LONG_S) == "own"
    monkeypatch.setenv("CLIENTS_VARIABLE", "client")
    with eyas.Executor(access=executor._cluster["access"], variables=["CLIENTS_VARIABLE"]) as other:
        assert other.submit(os.getenv, "CLIENTS_VARIABLE").result(LONG_S) == "client"
    for variables, error, match in (
        (["MISSING_VARIABLE"], ValueError, "no environment variable 'MISSING_VARIABLE'"),
        ("CLIENTS_VARIABLE", TypeError, "a list of names"),
        ({"NUMBER": 1}, TypeError, "no text"),
        ({"EYAS_ACCESS": "a"}, ValueError, "is set by eyas"),
    ):
        with pytest.raises(error, match=match):
            eyas.Executor(access=executor._cluster["access"], variables=variables)


class Unsendable(Exception):
    def __init__(self, first, second):
        super().__init__(first)


def raise_unsendable():
    raise Unsendable(1, 2)


def test_an_exception_that_cannot_be_sent_has_a_public_class(executor):
    with pytest.raises(eyas.UnsentError, match="Unsendable: 1"):
        executor.submit(raise_unsendable).result(LONG_S)


def result_of(size):
    return bytearray(size)


def test_a_large_result_is_read_from_the_store_of_this_machine(executor):
    future = executor.submit(result_of, 2 << 20)
    assert futures.wait([future], LONG_S).done
    session = executor._state.session
    content = session.near_result(future.task)
    assert content is not None and len(content) > 2 << 20
    assert session.near_result(future.task + 1) is None
    assert future.result(LONG_S) == bytearray(2 << 20)
    # A damaged file is not used: the node finds the damage, too, and the call runs again.
    damaged = executor.submit(result_of, 2 << 20)
    eyas.progress([damaged], show=False).__next__()
    content = session.near_result(damaged.task)
    stores = pathlib.Path(executor._state.cluster.folder)
    [file] = [
        file
        for file in stores.rglob("store/objects/*/*")
        if file.stat().st_size == len(content) and file.read_bytes() == bytes(content)
    ][-1:]
    file.chmod(0o600)
    file.write_bytes(b"x" * len(content))
    assert session.near_result(damaged.task) is None
    assert damaged.result(LONG_S) == bytearray(2 << 20)
