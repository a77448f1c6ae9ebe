"""Results and files that stay in the cluster, and futures as arguments."""

import asyncio
import contextlib
import functools
import gc
import hashlib
import operator
import os
import pathlib
import pickle
import signal
import stat
import subprocess
import sys
import textwrap
import time
import weakref
from concurrent import futures

import eyas
from eyas._environments import packing
from eyas._files import folders
from eyas._files import values as value_files
import numpy
import pytest

#: Seconds that nothing here takes.
LONG_S = 60.0
#: Items of an array that is too large to be sent with a call.
MANY = 1 << 20


@pytest.fixture(scope="module")
def executor():
    with eyas.local(nodes=2, max_workers=2) as executor:
        yield executor


def ramp(count):
    return numpy.arange(count, dtype=numpy.float64)


def later(value, seconds=0.2):
    time.sleep(seconds)
    return value


def reads(executor):
    """Bytes that tasks of the executor have read so far, by where they came from."""
    read = executor.report()["job"]["reads"]
    return {where: read[where]["bytes"] for where in ("local", "peer", "persistent")}


def test_futures_are_arguments_wherever_they_are(executor):
    one, two = executor.submit(later, 1), executor.submit(later, 2)
    total = executor.submit(
        lambda numbers, more: sum(numbers) + more["two"], [one, 10], more={"two": two}
    )
    assert total.result(LONG_S) == 13
    assert executor.submit(lambda: one).result(LONG_S) == 1, "a function may refer to one, too"
    with pytest.raises(TypeError, match="argument of a call"):
        pickle.dumps(one)


def test_the_failure_of_an_argument_is_that_of_the_call(executor):
    failed = executor.submit(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError, match="division"):
        executor.submit(abs, executor.submit(abs, failed)).result(LONG_S)
    cancelled = executor.submit(later, 1, 30)
    dependent = executor.submit(abs, cancelled)
    assert cancelled.cancel()
    with pytest.raises(futures.CancelledError):
        dependent.result(LONG_S)


def test_an_exit_in_a_call_is_an_exception_of_the_calls_that_need_it_and_of_no_other(executor):
    running = executor.submit(later, 7, 0.5)
    ended = executor.submit(sys.exit, 3)
    dependent = [executor.submit(abs, ended) for _ in range(3)]
    futures.wait([ended])
    dependent.append(executor.submit(abs, ended))
    for future in dependent:
        assert isinstance(future.exception(LONG_S), SystemExit)
    assert running.result(LONG_S) == 7


def test_waiters_for_cancelled_calls_are_told(executor):
    slow = executor.submit(later, 1, 0.5)
    waits = executor.submit(abs, slow)
    assert waits.cancel()
    assert futures.wait([waits], LONG_S).done == {waits}
    other = eyas.local(max_workers=1)
    runs = other.submit(time.sleep, LONG_S)
    runs.task = 1
    assert not runs.running(), "no such call has arrived"
    runs.task = 0
    deadline = time.monotonic() + LONG_S
    while not runs.running():
        assert time.monotonic() < deadline
    # The connection ends before the cluster confirms it.
    with other._state.lock:
        runs.cancel()
        other._state.break_with(eyas.ClusterLost("a test"))
    assert futures.wait([runs], LONG_S).done == {runs}
    other.shutdown()


def raise_here(of, content):
    if os.getpid() == of:
        raise ValueError("it does not unpickle here")
    return content


class UnreadableHere:
    def __init__(self, client):
        self.client = client

    def __reduce__(self):
        return raise_here, (self.client, bytes(2 << 20))


def test_a_large_result_that_cannot_be_read_is_an_error_also_for_asyncio(executor):
    client = os.getpid()

    async def call():
        loop = asyncio.get_running_loop()
        return await asyncio.wait_for(
            loop.run_in_executor(executor, UnreadableHere, client), LONG_S
        )

    with pytest.raises(ValueError, match="not unpickle here"):
        asyncio.run(call())
    made = executor.submit(UnreadableHere, client)
    assert isinstance(made.exception(LONG_S), ValueError)
    assert executor.submit(len, made).result(LONG_S) == 2 << 20


def test_a_call_runs_while_a_node_has_it(executor):
    running = executor.submit(later, 1, 2)
    waits = executor.submit(abs, running)
    deadline = time.monotonic() + LONG_S
    while not running.running():
        assert time.monotonic() < deadline
    assert not waits.running()
    assert running.result(LONG_S) == waits.result(LONG_S) == 1
    assert not running.running()


def test_the_end_of_an_executor_cancels_what_no_node_has():
    executor = eyas.local(max_workers=1)
    calls = [executor.submit(later, number, 0.1) for number in range(100)]
    calls[0].result(LONG_S)
    executor.shutdown(cancel_futures=True)
    assert all(call.done() for call in calls)
    assert sum(call.cancelled() for call in calls) > 50
    results = [call.result(0) for call in calls if not call.cancelled()]
    assert results == list(range(len(results)))


def test_a_call_that_waits_for_an_argument_can_be_cancelled_and_ends_before_the_executor():
    with eyas.local(max_workers=2) as executor:
        first = executor.submit(later, 1, 1)
        waits, goes = executor.submit(abs, first), executor.submit(abs, first)
        assert waits.cancel()
    assert waits.cancelled()
    assert goes.result(0) == 1


def test_large_results_go_from_node_to_node_and_are_read_in_place(executor):
    before = reads(executor)
    made = executor.submit(ramp, MANY)
    is_writable, total = executor.submit(
        lambda array: (array.flags.writeable, float(array.sum())), made
    ).result(LONG_S)
    assert (is_writable, total) == (False, MANY * (MANY - 1) / 2)
    executor.submit(lambda arrays: [len(array) for array in arrays], [made, made]).result(LONG_S)
    read = {where: count - before[where] for where, count in reads(executor).items()}
    assert read["persistent"] == 0
    assert sum(read.values()) >= 2 * 8 * MANY
    array = made.result(LONG_S)
    assert array is made.result(LONG_S)
    assert (array == ramp(MANY)).all()


def test_many_large_results_are_fetched_by_several_threads(executor):
    made = [executor.submit(ramp, MANY // 8 + number) for number in range(100)]
    with futures.ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda one: len(one.result(LONG_S)), made)) == [
            MANY // 8 + n for n in range(100)
        ]


def test_results_stay_beyond_their_executor():
    with eyas.local(max_workers=1) as executor:
        arrays = [executor.submit(ramp, MANY) for _ in range(3)]
        sizes = [executor.submit(len, array) for array in arrays]
    assert [size.result(0) for size in sizes] == [MANY] * 3
    assert [float(array.result(0)[-1]) for array in arrays] == [MANY - 1] * 3


def test_values_without_a_future_are_released(executor, tmp_path):
    def is_kept(task):
        try:
            executor._state.session.fetch(task, f".result-{task + 1}".encode(), tmp_path)
        except eyas.ClusterError as error:
            assert "keeps no" in str(error)
            return False
        return True

    kept = [executor.submit(ramp, MANY) for _ in range(3)]
    chain = [kept[0]]
    for _ in range(5):
        chain.append(executor.submit(numpy.negative, chain[-1]))
    last = chain[-1]
    assert float(last.result(LONG_S)[-1]) == -(MANY - 1)
    futures.wait(kept)
    tasks = {future.task for future in kept + chain[:-1]}
    assert all(is_kept(task) for task in tasks)
    del kept, chain
    gc.collect()
    deadline = time.monotonic() + LONG_S
    while any(is_kept(task) for task in tasks):
        assert time.monotonic() < deadline
    assert is_kept(last.task)
    assert executor.submit(len, last).result(LONG_S) == MANY


def test_large_arguments_become_files_which_each_node_gets_once(executor):
    array, before = ramp(MANY), reads(executor)
    totals = [executor.submit(lambda x, n: float(x[n]), array, number) for number in range(20)]
    assert [total.result(LONG_S) for total in totals] == [float(number) for number in range(20)]
    read = {where: count - before[where] for where, count in reads(executor).items()}
    assert 0 < read["persistent"] + read["peer"] <= 2 * array.nbytes
    content = b"x" * (3 << 20)
    assert executor.submit(len, [content, "text"]).result(LONG_S) == 2
    assert executor.submit(bytes.upper, content).result(LONG_S) == content.upper()


def test_files_stay_in_the_cluster_until_they_are_saved(executor, tmp_path):
    words = tmp_path / "words"
    words.write_text("b\na\nc\n")
    ordered = executor.run(
        "sort {words} -o {ordered}", words=eyas.File(words), ordered=eyas.Output()
    )
    counted = executor.run("wc -l {words}", words=ordered.output("ordered"))
    assert counted.result(LONG_S).stdout.split()[0] == b"3"
    read = executor.submit(lambda path: path.read_text(), ordered.output("ordered"))
    assert read.result(LONG_S) == "a\nb\nc\n"
    ordered.output("ordered").save(tmp_path / "ordered")
    assert (tmp_path / "ordered").read_text() == "a\nb\nc\n"
    with pytest.raises(KeyError, match="it has 'ordered'"):
        ordered.output("other")
    two = executor.submit(
        lambda one, two: [one.write_text("1"), two.write_text("2")], eyas.Output(), eyas.Output()
    )
    two.output(1).save(tmp_path / "two")
    assert (tmp_path / "two").read_text() == "2"
    secret = executor.submit(lambda path: [path.write_text("3"), path.chmod(0o640)], eyas.Output())
    for before, expected in [(None, 0o640), (0o600, 0o600), (0o666, 0o640)]:
        if before is not None:
            (tmp_path / "secret").chmod(before)
        secret.output().save(tmp_path / "secret")
        assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == expected
    failed = executor.submit(lambda path: 1 / 0, eyas.Output())
    with pytest.raises(ZeroDivisionError):
        failed.output().save(tmp_path / "never")


def test_functions_have_options_of_their_own(executor):
    @eyas.options(timeout=0.3)
    def sleep():
        time.sleep(30)

    with pytest.raises(eyas.CallFailed, match="time"):
        executor.submit(sleep).result(LONG_S)
    with pytest.raises(TypeError, match="'patience' is no option"):
        eyas.options(patience=3)


def test_all_pairs_in_tiles(executor, tmp_path):
    for number in range(5):
        (tmp_path / str(number)).write_text(str(number))
    files = [eyas.File(tmp_path / str(number)) for number in range(5)]

    def times(file, number):
        return int(file.read_text()) * number

    expected = [[row * column for column in range(7)] for row in range(5)]
    assert list(executor.all_pairs(files, range(7), times, side=3)) == expected
    assert list(executor.all_pairs(iter(files), range(7), times)) == expected
    assert list(executor.all_pairs([], range(7), times)) == []
    with pytest.raises(ValueError, match="side"):
        executor.all_pairs(files, files, times, side=0)


def test_files_are_pushed_before_calls_need_them(executor, tmp_path):
    (tmp_path / "table").write_bytes(bytes(1000))
    view = executor.push(tmp_path / "table")
    assert [node["state"] for node in view["executors"]] == ["complete"] * 2
    with pytest.raises(OSError, match="nothing-here"):
        executor.push(tmp_path / "nothing-here")


def test_files_with_names_are_read_from_a_place_that_has_their_content(executor, tmp_path):
    names = executor.catalog
    for place, text in [("lies", "another content"), ("right", "call me ishmael")]:
        (tmp_path / place).write_text(text)
    digest = hashlib.sha256(b"call me ishmael").hexdigest()
    names.register("texts/whale", tmp_path / "lies", tmp_path / "right", sha256=digest)
    file = eyas.File("lfn://texts/whale")
    assert executor.submit(pathlib.Path.read_text, file).result(LONG_S) == "call me ishmael"
    [whale] = names.query("texts/*")
    assert (whale["name"], whale["sha256"]) == ("texts/whale", digest)
    passed = {place["url"]: place["passed_over"] for place in whale["places"]}
    assert list(passed) == [f"file://{tmp_path / place}" for place in ("lies", "right")]
    names.unregister("lfn://texts/whale", tmp_path / "lies")
    assert [place["url"] for place in names.query("texts/whale")[0]["places"]] == list(passed)[1:]
    # All, or none.
    two = [
        {"name": "texts/one", "places": ["http://h/1"], "size_bytes": 1},
        {"name": "texts/two", "places": ["s3://bucket/2", "n1:/data/2"]},
    ]
    with pytest.raises(eyas.ClusterError, match="is registered with SHA-256"):
        names.register_all([*two, {**two[0], "name": "texts/whale", "sha256": "0" * 64}])
    assert [file["name"] for file in names.query()] == ["texts/whale"]
    assert names.register_all(two) == 2
    assert [file["name"] for file in names.query()] == ["texts/one", "texts/two", "texts/whale"]
    for wrong, why in [
        (("a b", "/x"), "cannot be the name"),
        (("one", "ftp://x/y"), "cannot be a place"),
        (("one",), "place"),
    ]:
        with pytest.raises(eyas.ClusterError, match=why):
            names.register(*wrong)
    names.unregister("texts/one")
    with pytest.raises(eyas.ClusterError, match="is not registered"):
        names.unregister("texts/one")


def test_large_arguments_on_a_cluster_that_runs_are_files_beside_its_access_file(executor):
    access = pathlib.Path(executor._cluster["access"])
    program = (
        "import eyas, os, signal, sys\n"
        f"executor = eyas.connect(access={str(access)!r})\n"
        "shared = executor.share(bytes(100))\n"
        "print(executor.submit(len, bytes(20 << 20)).result(60), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert int(done.stdout) == 20 << 20
    folder = access.parent / "values"

    def left():
        return [path for path in folder.iterdir() if f"-{os.getpid()}-" not in path.name]

    assert len(left()) == 2, "a client that was killed removes nothing"
    with eyas.connect(access=access) as other:
        assert other.submit(len, bytes(20 << 20)).result(LONG_S) == 20 << 20
        assert len(left()) == 0, "the next one does"


def test_large_arguments_and_shared_values_can_be_files_of_the_cluster():
    """Nodes and clients that share no folder. The files of a client that was killed are removed by
    the next one.
    """
    with eyas.local(nodes=2, files=True) as executor:
        access = executor._cluster["access"]
        program = (
            "import eyas, os, signal, sys\n"
            f"executor = eyas.connect(access={access!r}, objects='eyas:///own/values')\n"
            "print(executor.submit(len, bytes(20 << 20)).result(60), flush=True)\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        assert int(done.stdout) == 20 << 20
        assert len(executor.files.ls("/own/values")) == 1
        with eyas.connect(access=access, objects="eyas:///own/values") as other:
            array = ramp(4 * MANY)
            table = other.share({"array": array})
            calls = [
                other.submit(lambda values, table: (values == table["array"]).all(), array, table)
            ] * 4
            assert all(call.result(LONG_S) for call in calls)
            assert len(executor.files.ls("/own/values")) == 2
        assert executor.files.ls("/own/values") == []
    with pytest.raises(ValueError, match="eyas:///PATH"):
        eyas.connect(access=access, objects="eyas://own/values")


def chain_of(head, executor, length):
    calls = [head]
    for _ in range(length):
        calls.append(executor.submit(operator.add, calls[-1], 1))
    return calls


@pytest.mark.parametrize("how", ["fails", "cancelled", "lost"])
def test_the_end_of_a_call_ends_a_long_chain_of_calls_that_need_it(how):
    executor = eyas.local(max_workers=1)
    head = executor.submit(time.sleep, 0.5 if how == "fails" else LONG_S)
    calls = chain_of(head, executor, 3000)
    if how == "cancelled":
        head.cancel()
    elif how == "lost":
        executor._state.session.disconnect()
    expected = {"fails": TypeError, "cancelled": futures.CancelledError, "lost": eyas.ClusterLost}[
        how
    ]
    for call in calls[1:]:
        assert isinstance(call.exception(LONG_S), expected)
    executor.shutdown()


def test_an_ended_call_holds_none_that_needed_it(executor):
    head = executor.submit(time.sleep, 0.2)
    last, seen = head, []
    for _ in range(5):
        last = executor.submit(lambda x: bytes(2 << 20), last)
        seen.append(weakref.ref(last))
    last.result(LONG_S)
    running = executor.submit(lambda x: time.sleep(LONG_S), last)
    running.cancel()
    del last
    deadline = time.monotonic() + LONG_S
    while any(future() is not None for future in seen):
        gc.collect()
        assert time.monotonic() < deadline


def test_files_of_arguments_that_no_call_needs_are_removed_from_some_size_on(monkeypatch):
    monkeypatch.setattr(value_files, "_SPARE_BYTES", 10 << 20)
    with eyas.local(max_workers=1) as executor:
        for number in range(8):
            content = bytes([number]) * (4 << 20)
            assert executor.submit(len, content).result(LONG_S) == len(content)
        folder = pathlib.Path(executor._state.cluster.objects)
        # The last one is released just after its result is told.
        assert len(list(folder.iterdir())) <= 3
        assert [executor.submit(bytes.count, content, b"\7").result(LONG_S) for _ in range(3)] == [
            4 << 20
        ] * 3
        assert len(list(folder.iterdir())) <= 3


def test_an_executor_that_is_over_writes_no_files():
    with eyas.local(max_workers=1) as executor:
        folder = pathlib.Path(executor._state.cluster.objects)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(len, bytes(4 << 20))
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.share(1)
    assert not folder.exists()


def test_values_are_not_written_where_others_may_write(tmp_path):
    folder = tmp_path / "values"
    folder.mkdir()
    folder.chmod(0o777)
    with eyas.local(max_workers=1, objects=folder) as executor:
        with pytest.raises(PermissionError, match="other users can write to .*values.*chmod go-w"):
            executor.share(1)
        folder.chmod(0o755)
        old = os.umask(0)
        try:
            assert executor.submit(len, bytes(2 << 20)).result(LONG_S) == 2 << 20
            [file] = folder.iterdir()
        finally:
            os.umask(old)
        assert file.stat().st_mode & 0o022 == 0


def _given_away(folder):
    os.chown(folder, 4321, -1)


def _led_away(folder):
    folder.rename(folder.with_name("own"))
    folder.symlink_to("own")
    os.lchown(folder, 4321, -1)


@pytest.mark.parametrize(
    ("change", "needs_root"),
    [
        (lambda folder: folder.parent.chmod(0o777), False),
        (lambda folder: folder.parent.chmod(0o775), False),
        (_given_away, True),
        (lambda folder: _given_away(folder.parent), True),
        (_led_away, True),
    ],
)
def test_code_is_not_read_where_another_user_could_replace_it(
    tmp_path, monkeypatch, change, needs_root
):
    if needs_root and os.geteuid() != 0:
        pytest.skip("only root can make files of another user")
    folder = tmp_path / "above" / "objects"
    folder.mkdir(parents=True)
    (folder / "environments").mkdir()
    values = folders.SharedFolder(str(folder))
    monkeypatch.setenv(packing.CACHE_VARIABLE, str(folder))
    path = values.write("value", [b"x"])
    assert values.find("value") == path
    packing._cache()
    change(folder)
    for read in (
        lambda: values.write("other", [b"x"]),
        lambda: values.find("value"),
        packing._cache,
    ):
        with pytest.raises(
            PermissionError, match=r"other users can write to|belongs to another user"
        ):
            read()
    assert not (folder / "other").exists()


def test_a_cluster_starts_no_module_of_the_current_folder(tmp_path):
    (tmp_path / "eyas.py").write_text("open('stolen', 'w')")
    script = tmp_path / "program" / "script.py"
    script.parent.mkdir()
    call = "executor.submit(len, 'abc').result()"
    script.write_text(f"import eyas\nwith eyas.local(max_workers=1) as executor: print({call})")
    ended = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=LONG_S
    )
    assert not (tmp_path / "stolen").exists()
    assert ended.stdout == "3\n", ended.stderr


def test_options_of_functions_hold_in_chunks_and_tiles(executor):
    @eyas.options(timeout=0.3)
    def slow(one, two=None):
        time.sleep(30)

    with pytest.raises(eyas.CallFailed, match="time"):
        list(executor.map(slow, [1, 2], chunksize=2))
    with pytest.raises(eyas.CallFailed, match="time"):
        list(executor.all_pairs([1], [2], slow))
    with pytest.raises(eyas.CallFailed, match="time"):
        executor.submit(functools.partial(slow, 1)).result(LONG_S)


def test_futures_of_others_are_arguments_or_refused(executor, tmp_path):
    with eyas.local(max_workers=1) as other:
        assert executor.submit(len, other.submit(bytes, 20 << 20)).result(LONG_S) == 20 << 20
        kept = other.submit(lambda path: path.write_text("kept"), eyas.Output())
        kept.result(LONG_S)
        with pytest.raises(ValueError, match="of another executor: save"):
            executor.submit(len, kept.output()).result(LONG_S)
        with pytest.raises(ValueError, match="of another executor: save"):
            executor.run("cat {file}", file=kept.output()).result(LONG_S)
    with pytest.raises(eyas.ClusterLost, match="before that"):
        kept.output().save(tmp_path / "late")
    with (
        futures.ThreadPoolExecutor(1) as threads,
        pytest.raises(TypeError, match="pass its result"),
    ):
        executor.submit(abs, threads.submit(abs, 1)).result(LONG_S)


def executors_named(name, access):
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if os.fsencode(access) in words and name in words and b"executor" in words:
                found.append(int(path.parent.name))
    return found


def test_a_result_that_is_lost_with_its_node_is_computed_again(tmp_path):
    ran = tmp_path / "ran"

    def large():
        with open(ran, "a") as file:
            file.write("x")
        return bytes(4 << 20)

    with eyas.local(nodes=2, max_workers=2) as executor:
        made = executor.submit(large)
        futures.wait([made])
        lost = executors_named(os.fsencode(made.node), executor._cluster["access"])
        assert lost, "the node has processes"
        for process in lost:
            os.kill(process, signal.SIGKILL)
        read = executor.submit(len, made)
        assert read.result(LONG_S) == 4 << 20
        assert ran.read_text() == "xx"
        # The second result is still there for others.
        assert executor.submit(len, made).result(LONG_S) == 4 << 20
        assert len(made.result(LONG_S)) == 4 << 20


def test_large_results_can_be_written_to_as_small_ones_can(executor):
    for count in (1000, MANY):
        array = executor.submit(ramp, count).result(LONG_S)
        array += 1
        assert array[-1] == count
    fixed = executor.submit(lambda: numpy.broadcast_to(ramp(MANY), MANY).view()).result(LONG_S)
    assert not fixed.flags.writeable, "what the call could not write to"


def write(path):
    path.write_text("x")


@pytest.mark.parametrize(
    "destination", ["s3://bucket/a/./b", "s3://bucket", "eyas:///../x", "http://host/x"]
)
def test_a_destination_to_which_nothing_can_be_written_is_refused_before_a_task_runs(
    executor, destination
):
    ran = executor._state.session.job
    with pytest.raises(ValueError, match=destination.replace(".", r"\.")):
        executor.submit(write, eyas.Output(destination)).result()
    with pytest.raises(ValueError, match=destination.replace(".", r"\.")):
        executor.run("touch {file}", file=eyas.Output(destination))
    assert executor._state.session.job == ran and not executor._state.pending


def test_an_open_file_that_cannot_be_pickled_is_refused_with_what_to_do(executor, tmp_path):
    with open(tmp_path / "written", "w") as file:
        with pytest.raises(TypeError, match="pass its path"):
            executor.submit(write, file).result()


def test_output_that_was_dropped_is_told(executor, caplog):
    with pytest.raises(
        eyas.CallFailed, match=r"1000 bytes of its output were dropped: .* eyas\.Output"
    ):
        executor.run(f"head -c {(16 << 20) + 1000} /dev/zero").result()
    assert len(executor.run(f"head -c {16 << 20} /dev/zero").result().stdout) == 16 << 20


KILLED = """
    import os, signal, sys, eyas
    cluster = sys.argv[1]
    executor = eyas.connect(access=cluster) if cluster else eyas.local(max_workers=1)
    assert len(executor.submit(bytes, 2 << 20).result()) == 2 << 20
    os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.parametrize("is_own", [True, False])
def test_a_client_that_is_killed_leaves_no_folder_of_results(executor, tmp_path, is_own):
    def left():
        return [path for path in tmp_path.rglob("eyas-results-*") if path.is_dir()]

    def run(program):
        access = "" if is_own else executor._cluster["access"]
        words = [sys.executable, "-c", textwrap.dedent(program), access]
        return subprocess.run(
            words, env={**os.environ, "TMPDIR": str(tmp_path)}, timeout=LONG_S
        ).returncode

    assert run(KILLED) == -signal.SIGTERM
    if is_own:
        # The dispatcher removes the folder of the cluster.
        deadline = time.monotonic() + LONG_S
        while any(tmp_path.iterdir()):
            assert time.monotonic() < deadline, list(tmp_path.iterdir())
            time.sleep(0.05)
    else:
        # The next client removes it.
        assert len(left()) == 1
        assert run(KILLED.replace("os.kill", "executor.shutdown() # ")) == 0
        assert not left()
