"""The executor, on a cluster on this machine."""

import asyncio
import collections
import contextlib
import functools
import operator
import os
import pathlib
import pickle
import random
import signal
import socket
import stat
import sys
import tempfile
import threading
import time
import weakref
from concurrent import futures

import eyas
from eyas._executor import executor as executor_module
import pytest
from programs import LONG_S, script


@pytest.fixture(scope="module")
def executor():
    with eyas.local(max_workers=2) as executor:
        yield executor


def test_functions_of_this_process_go_along(executor):
    offset = 3

    class Point:
        def __init__(self, x):
            self.x = x

    point = executor.submit(lambda point: Point(point.x + offset), Point(1)).result(LONG_S)
    assert (type(point).__name__, point.x) == ("Point", 4)


def test_workers_stay(executor):
    seen = {executor.submit(os.getpid).result(LONG_S) for _ in range(20)}
    assert len(seen) <= 2
    assert os.getpid() not in seen


def test_an_exception_has_its_traceback_and_says_where(executor):
    with pytest.raises(ZeroDivisionError) as raised:
        executor.submit(divmod, 1, 0).result(LONG_S)
    assert "function(*args, **kwargs)" in str(raised.value.__cause__)
    (note,) = raised.value.__notes__
    assert note.startswith("Task 1.") and note.endswith(" on n1")


def test_tracebacks_show_the_lines_of_functions_that_are_pickled_by_value(executor):
    def fail():
        def fail_inside():
            raise ValueError("inside")  # the inner line

        fail_inside()  # the outer line

    with pytest.raises(ValueError, match="inside") as raised:
        executor.submit(fail).result(LONG_S)
    assert "the inner line" in str(raised.value.__cause__)
    assert "the outer line" in str(raised.value.__cause__)


class Unpicklable(Exception):
    def __init__(self, first, second):
        super().__init__(first)


def raise_unpicklable():
    raise Unpicklable(1, 2)


def test_exceptions_that_do_not_unpickle_are_described(executor):
    with pytest.raises(RuntimeError, match="Unpicklable: 1") as raised:
        executor.submit(raise_unpicklable).result(LONG_S)
    assert "raise_unpicklable" in str(raised.value.__cause__)


def test_an_unpicklable_value_is_the_error_of_its_call(executor):
    with pytest.raises(TypeError, match="pickle"):
        executor.submit(len, threading.Lock()).result(LONG_S)
    with pytest.raises(TypeError, match="pickle"):
        executor.submit(threading.Lock).result(LONG_S)
    with socket.socket() as channel, pytest.raises(TypeError, match="pickle"):
        executor.submit(lambda: channel.recv(1)).result(LONG_S)
    assert executor.submit(abs, -1).result(LONG_S) == 1


def deep(depth):
    return [] if depth == 0 else [deep(depth - 1)]


def test_recursion_without_an_end_is_an_error(executor):
    with pytest.raises(RecursionError):
        executor.submit(deep, 1_000_000).result(LONG_S)


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (functools.partial(os._exit, 3), "exit code 3"),
        (functools.partial(os._exit, 0), "exit code 0"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "killed by signal 11"),
    ],
)
def test_a_worker_that_ends_fails_its_call_alone(executor, end, reason):
    with pytest.raises(eyas.CallFailed, match=reason):
        executor.submit(end).result(LONG_S)
    assert executor.submit(abs, -1).result(LONG_S) == 1


def test_sys_exit_is_an_exception(executor):
    pid = executor.submit(os.getpid).result(LONG_S)
    with pytest.raises(SystemExit):
        executor.submit(sys.exit, 3).result(LONG_S)
    assert pid in {executor.submit(os.getpid).result(LONG_S) for _ in range(20)}


def test_a_call_that_is_cancelled_ends(executor):
    running = executor.submit(time.sleep, LONG_S)
    assert executor.submit(abs, -1).result(LONG_S) == 1
    began = time.monotonic()
    assert running.cancel()
    # Its slot is free again.
    assert list(executor.map(abs, range(-9, 0))) == list(range(9, 0, -1))
    futures.wait([executor.submit(time.sleep, 0.1) for _ in range(2)])
    assert time.monotonic() - began < LONG_S / 2


def test_a_call_ends_at_its_timeout():
    with eyas.local(max_workers=1, timeout=2) as executor:
        limit = r"timed out: it ran 2\.\d+ s and may run 2\.00 s: give it more time with timeout"
        with pytest.raises(eyas.CallFailed, match=limit):
            executor.submit(time.sleep, LONG_S).result(LONG_S)
        assert executor.submit(abs, -1).result(LONG_S) == 1
        hasty = executor.with_options(timeout=0.5)
        limit = r"may run 500\.0 ms: give it more time with timeout"
        with pytest.raises(eyas.CallFailed, match=limit):
            hasty.run("sleep 60").result(LONG_S)


def test_large_arguments_and_results(executor):
    content = os.urandom(5 << 20)
    assert executor.submit(bytes.upper, content).result(LONG_S) == content.upper()


def test_map_in_chunks_and_with_a_buffer(executor):
    assert list(executor.map(pow, range(100), [2] * 100, chunksize=7)) == [
        x * x for x in range(100)
    ]
    taken = []
    results = executor.map(abs, (taken.append(x) or x for x in range(1000)), buffersize=4)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    assert len(taken) <= 8
    results.close()
    with pytest.raises(ValueError):
        executor.map(abs, [], buffersize=0)


def test_asyncio(executor):
    async def both():
        loop = asyncio.get_running_loop()
        one = loop.run_in_executor(executor, pow, 2, 5)
        return await one, await asyncio.wrap_future(executor.submit(pow, 2, 6))

    assert asyncio.run(both()) == (32, 64)


def test_output_of_calls_is_printed_here():
    done = script(
        """
        import eyas
        with eyas.local(max_workers=1) as executor:
            executor.submit(print, "from a worker").result()
        """
    )
    assert (done.stdout, done.stderr, done.returncode) == ("from a worker\n", "", 0)


def test_an_executor_without_a_cluster_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("EYAS_HOME", str(tmp_path))
    with pytest.raises(eyas.ClusterError, match="access"):
        eyas.connect("nowhere")
    with pytest.raises(eyas.ClusterError, match="none.toml"):
        eyas.connect(access=tmp_path / "none.toml")


def test_a_cluster_that_is_killed_ends_its_calls():
    executor = eyas.local(max_workers=1)
    future = executor.submit(time.sleep, LONG_S)
    os.kill(executor._state.cluster._process._process.pid, signal.SIGKILL)
    with pytest.raises(eyas.ClusterLost):
        future.result(LONG_S)
    with pytest.raises(eyas.ClusterLost):
        executor.submit(abs, 1)
    executor.shutdown()


def test_a_file_arrives_as_a_local_path_and_an_output_appears(executor, tmp_path):
    (tmp_path / "a.txt").write_text("some text\n")

    def copy(source, target, *, word):
        assert not str(source).startswith(str(tmp_path))
        target.write_text(word + source.read_text())
        return source.name

    source, target = eyas.File(tmp_path / "a.txt"), eyas.Output(tmp_path / "deep" / "b.txt")
    assert executor.submit(copy, source, target, word="x").result(LONG_S) == "a.txt"
    assert (tmp_path / "deep" / "b.txt").read_text() == "xsome text\n"
    names = executor.map(lambda file: file.name, [source] * 5, chunksize=2)
    assert list(names) == ["a.txt"] * 5


def test_a_file_that_does_not_exist_is_an_error_where_it_is_named(executor, tmp_path):
    with pytest.raises(OSError, match="missing.txt"):
        executor.submit(len, eyas.File(tmp_path / "missing.txt")).result(LONG_S)
    assert executor.submit(abs, -1).result(LONG_S) == 1


def test_a_missing_output_fails_the_call(executor, tmp_path):
    with pytest.raises(eyas.CallFailed, match="output"):
        executor.submit(lambda path: None, eyas.Output(tmp_path / "never")).result(LONG_S)


def test_a_call_that_fails_delivers_the_outputs_for_a_failure(executor, tmp_path):
    def write(log, note, made, fails):
        for path in log, note, made:
            path.write_text("written")
        if fails:
            raise KeyError(log.name)

    def outputs(name):
        folder = tmp_path / name
        whens = ("log", "always"), ("note", "failure"), ("made", "success")
        return folder, [eyas.Output(folder / file, when) for file, when in whens]

    for name, fails, appear in (
        ("failed", True, ["log", "note"]),
        ("done", False, ["log", "made"]),
    ):
        folder, files = outputs(name)
        future = executor.submit(write, *files, fails)
        assert isinstance(future.exception(LONG_S), KeyError if fails else type(None))
        assert sorted(path.name for path in folder.iterdir()) == appear
    folder, (log, *_) = outputs("command")
    with pytest.raises(eyas.CallFailed, match="exit code 7"):
        executor.run(["sh", "-c", "echo $0 >$1; exit 7", "why", "{log}"], log=log).result(LONG_S)
    assert (folder / "log").read_text() == "why\n"
    assert repr(log) == f"eyas.Output({str(folder / 'log')!r}, when='always')"
    with pytest.raises(ValueError, match='"failure"'):
        eyas.Output(tmp_path / "x", when="never")
    with pytest.raises(ValueError, match="destination"):
        eyas.Output(when="failure")


def test_commands(executor, tmp_path):
    (tmp_path / "a b.txt").write_text("b\na\n")
    table, made = eyas.File(tmp_path / "a b.txt"), eyas.Output(tmp_path / "sorted")
    done = executor.run("sort {table} -o {made}", table=table, made=made).result(LONG_S)
    assert (done.returncode, done.stdout, (tmp_path / "sorted").read_text()) == (0, b"", "a\nb\n")
    done = executor.run(["printf", "%s-%s", "{{}}", "{word}"], word="two words").result(LONG_S)
    assert done.stdout == b"{}-two words"
    with pytest.raises(eyas.CallFailed, match="exit code 2") as raised:
        executor.run("ls /nowhere/at/all").result(LONG_S)
    assert "/nowhere/at/all" in raised.value.__notes__[-1]
    for command, values in ("cat {a}", {}), ("cat", {"a": 1}), ("cat {}", {}):
        with pytest.raises(ValueError, match="the command has"):
            executor.run(command, **values)


def test_results_of_a_map_do_not_keep_the_executor():
    executor = eyas.local(max_workers=1)
    results, dropped = executor.map(abs, range(-20, 0)), weakref.ref(executor)
    cluster = executor._state.cluster._process._process
    del executor
    assert dropped() is None
    assert list(results) == list(range(20, 0, -1))
    cluster.wait(LONG_S)


class RaisesWhenPickled:
    def __init__(self, error):
        self.error = error

    def __reduce__(self):
        raise self.error


def test_an_exit_while_a_call_is_pickled_does_not_end_the_program(executor):
    future = executor.submit(id, RaisesWhenPickled(SystemExit(3)))
    with pytest.raises(pickle.PicklingError, match="cannot be pickled: SystemExit: 3"):
        future.result(LONG_S)
    with pytest.raises(KeyError, match="own"):
        executor.submit(id, RaisesWhenPickled(KeyError("own"))).result(LONG_S)
    with pytest.raises(KeyboardInterrupt):
        executor.submit(id, RaisesWhenPickled(KeyboardInterrupt()))
    assert executor.submit(abs, -1).result(LONG_S) == 1


def test_commands_in_place_run_in_the_folder_of_the_executor(tmp_path):
    (tmp_path / "table.txt").write_text("b\na\n")
    with eyas.local(max_workers=1, folder=tmp_path) as executor:
        assert executor.run("pwd").result(LONG_S).stdout != f"{tmp_path}\n".encode()
        done = executor.run("cat table.txt", in_place=True).result(LONG_S)
        assert done.stdout == b"b\na\n"
        made, kept = eyas.Output(tmp_path / "made" / "sorted"), eyas.Output()
        table = eyas.File(tmp_path / "table.txt")
        sorting = executor.run(
            [
                "sh",
                "-c",
                'pwd; sort "$1" >"$2"; sort -r "$1" >"$3"',
                "",
                "{table}",
                "{made}",
                "{kept}",
            ],
            table=table,
            made=made,
            kept=kept,
            in_place=True,
        )
        assert sorting.result(LONG_S).stdout == f"{tmp_path}\n".encode()
        assert (tmp_path / "made" / "sorted").read_text() == "a\nb\n"
        sorting.output("kept").save(tmp_path / "reverse")
        assert (tmp_path / "reverse").read_text() == "b\na\n"
    # Outputs are written elsewhere, and appear whole.
    assert sorted(os.listdir(tmp_path)) == ["made", "reverse", "table.txt"]


def test_commands_may_write_to_copies_of_their_files(executor, tmp_path):
    (tmp_path / "table.txt").write_text("b\na\n")
    table = eyas.File(tmp_path / "table.txt")
    append = ["sh", "-c", 'echo c >>"$1"; cat "$1"', "", "{table}"]
    with pytest.raises(eyas.CallFailed, match="wrote to one of its inputs"):
        executor.run(append, table=table).result(LONG_S)
    for _ in range(2):
        done = executor.run(append, table=table, copy_inputs=True).result(LONG_S)
        assert done.stdout == b"b\na\nc\n"
    kept = executor.run("cp {table} {copy}", table=table, copy=eyas.Output()).output("copy")
    for _ in range(2):
        done = executor.run(append, table=kept, copy_inputs=True).result(LONG_S)
        assert done.stdout == b"b\na\nc\n"
    assert executor.run("cat {kept}", kept=kept).result(LONG_S).stdout == b"b\na\n"
    assert (tmp_path / "table.txt").read_text() == "b\na\n"


def test_many_different_commands_are_of_few_kinds(executor, monkeypatch):
    monkeypatch.setattr(executor_module, "_MAX_OWN_TEMPLATES", len(executor._templates))
    calls = [
        executor.run(f"printf '%s {{{{x}}}} {number}' {{word}}", word="a b") for number in range(20)
    ]
    outputs = [call.result(LONG_S).stdout.decode() for call in calls]
    assert outputs == [f"a b {{x}} {number}" for number in range(20)]
    assert len(executor._templates) <= executor_module._MAX_OWN_TEMPLATES + 1
    with pytest.raises(ValueError, match="no words"):
        executor.run("")


def test_an_output_may_replace_that_of_an_earlier_call(executor, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    for number, folder in enumerate(["folder", "link", "link"]):
        output = eyas.Output(tmp_path / folder / "out")
        executor.submit(lambda path, text: path.write_text(text), output, str(number)).result(
            LONG_S
        )
        assert (tmp_path / "folder" / "out").read_text() == str(number)


def test_reuse_says_what_a_call_finds_of_earlier_ones():
    def count():
        import builtins

        builtins.calls = getattr(builtins, "calls", 0) + 1
        return builtins.calls

    def initialize():
        import builtins

        builtins.calls = 10

    for reuse, counts in ("process", [11, 12, 13]), ("fork", [11, 11, 11]), ("never", [11, 11, 11]):
        with eyas.local(max_workers=1, reuse=reuse, initializer=initialize) as executor:
            assert [executor.submit(count).result(LONG_S) for _ in range(3)] == counts
            pids = {executor.submit(os.getpid).result(LONG_S) for _ in range(3)}
            assert len(pids) == (3 if reuse == "fork" else 1)
            for end, reason in (
                (functools.partial(os._exit, 4), "exit code 4"),
                (os.abort, "signal 6"),
            ):
                with pytest.raises(eyas.CallFailed, match=reason):
                    executor.submit(end).result(LONG_S)
            assert executor.submit(abs, -1).result(LONG_S) == 1
    with pytest.raises(ValueError, match="reuse"):
        eyas.local(reuse="sometimes")


def test_a_shared_value_is_read_in_place_once_a_node():
    numpy = pytest.importorskip("numpy")
    with eyas.local(nodes=2, max_workers=4) as executor:
        table = executor.share({"table": numpy.arange(2_000_000)})

        def look(shared, row):
            table = shared["table"]
            return os.getpid(), int(table[row]), table.flags.writeable, table.flags.owndata

        looks = list(executor.map(look, [table] * 100, range(100)))
        assert [value for _, value, _, _ in looks] == list(range(100))
        assert {look[2:] for look in looks} == {(False, False)}
        reads = [node["reads"] for node in executor.nodes()]
        assert all(node["persistent"]["count"] + node["peer"]["count"] <= 1 for node in reads), (
            reads
        )
        assert executor.report()["job"]["tasks"]["succeeded"] == 100


def test_a_call_is_explained(executor):
    future = executor.submit(abs, -1)
    future.result(LONG_S)
    assert executor.explain(future)["task"]
    assert executor._max_workers == 2


def test_a_callback_may_submit_and_shut_the_executor():
    ends = []
    executor = eyas.local(max_workers=1)

    def go_on(future):
        ends.append(future.result())
        if len(ends) < 3:
            executor.submit(abs, -len(ends)).add_done_callback(go_on)
        else:
            executor.shutdown()

    executor.submit(abs, 0).add_done_callback(go_on)
    executor._receiver.join(LONG_S)
    assert ends == [0, 1, 2]


def test_threads_submit_at_the_same_time(executor):
    def submit(offset):
        return [executor.submit(abs, -number - offset) for number in range(500)]

    with futures.ThreadPoolExecutor(8) as threads:
        batches = list(threads.map(submit, range(8)))
    for offset, batch in enumerate(batches):
        assert [future.result(LONG_S) for future in batch] == [
            number + offset for number in range(500)
        ]


def test_callables_with_state_are_pickled_for_each_call(executor):
    start = functools.partial(operator.add, [1])
    assert executor.submit(start, [2]).result(LONG_S) == [1, 2]
    start.args[0].append(9)
    assert executor.submit(start, [2]).result(LONG_S) == [1, 9, 2]
    counter = collections.Counter()
    for _ in range(3):
        assert executor.submit(counter.update, "a").result(LONG_S) is None
    assert executor.submit(operator.methodcaller("total"), counter).result(LONG_S) == 0


def test_files_in_functions_and_beside_classes_of_this_program(executor, tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(name)

    class Local:
        pass

    def reader(file):
        return lambda: file.read_text()

    read = [executor.submit(reader(eyas.File(tmp_path / name))).result(LONG_S) for name in "ab"]
    assert read == ["a", "b"]
    same = functools.partial(pathlib.Path.samefile, eyas.File(tmp_path / "a"))
    assert [executor.submit(same, eyas.File(tmp_path / name)).result(LONG_S) for name in "ab"] == [
        True,
        False,
    ]
    made = eyas.Output(tmp_path / "made")
    executor.submit(lambda local, path: path.write_text("made"), Local(), made).result(LONG_S)
    assert (tmp_path / "made").read_text() == "made"


def test_a_call_that_is_too_large_fails_alone(executor):
    running = executor.submit(time.sleep, 0.5)
    with eyas.Executor(access=executor._cluster["access"]) as elsewhere:
        with pytest.raises(ValueError, match="objects=FOLDER"):
            elsewhere.submit(len, bytes(20 << 20)).result(LONG_S)
    with pytest.raises(ValueError, match="initializer"):
        eyas.local(initializer=len, initargs=(bytes(100_000),))
    assert running.result(LONG_S) is None


def test_options_are_checked(tmp_path, monkeypatch):
    with pytest.raises(TypeError, match="'time' is no option: there are cpus, memory"):
        eyas.local(time=3)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(TypeError):
        eyas.local(memory=[1])
    with pytest.raises(ValueError, match="no amount of memory"):
        eyas.local(memory="1 gigabyte")
    assert not list(tmp_path.iterdir())


def test_the_start_of_a_worker_does_not_count_towards_the_timeout():
    with eyas.local(max_workers=1, timeout=2, initializer=time.sleep, initargs=(3,)) as executor:
        assert executor.submit(abs, -1).result(LONG_S) == 1


def test_commands_and_calls_share_a_slot():
    with eyas.local(max_workers=1) as executor:
        pid = executor.submit(os.getpid).result(LONG_S)
        executor.run("true").result(LONG_S)
        assert executor.submit(os.getpid).result(LONG_S) == pid
        with pytest.raises(eyas.CallFailed, match="exit code 1"):
            executor.run(["sh", "-c", "echo printed; exit 1"]).result(LONG_S)


def test_a_worker_that_breaks_its_socket_or_output_harms_no_other_call(executor):
    def write(content):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        for number in range(3, 20):
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK(os.fstat(number).st_mode):
                    os.write(number, content)

    with pytest.raises(eyas.CallFailed):
        executor.submit(write, b"\xff" * 17).result(LONG_S)
    assert list(executor.map(abs, range(-5, 0))) == [5, 4, 3, 2, 1]


def test_the_memory_of_a_call_is_limited():
    with eyas.local(max_workers=1, memory=300 << 20) as executor:
        with pytest.raises(eyas.CallFailed, match="memory"):
            executor.submit(lambda: (bytearray(700 << 20), time.sleep(LONG_S))).result(LONG_S)
        assert executor.submit(abs, -1).result(LONG_S) == 1


def test_a_wrong_option_harms_no_other_call(executor):
    running = executor.submit(time.sleep, 0.5)
    with pytest.raises(ValueError, match="node.label"):
        executor.with_options(requirements='node.label.site == "a"')
    assert running.result(LONG_S) is None


def test_options_of_single_calls(executor):
    hasty = executor.with_options(timeout=2, retries=0)
    with pytest.raises(eyas.CallFailed, match="timed out"):
        hasty.submit(time.sleep, LONG_S).result(LONG_S)
    assert executor.submit(time.sleep, 0.5).result(LONG_S) is None
    assert list(hasty.map(abs, [-1, -2])) == [1, 2]
    with pytest.raises(TypeError, match="is no option"):
        executor.with_options(time=3)


def test_an_executor_with_other_options_keeps_the_executor():
    executor = eyas.local(max_workers=1).with_options(priority=1)
    assert executor.submit(abs, -1).result(LONG_S) == 1
    executor.shutdown()


def test_workers_that_were_suspended_go_on():
    dice = random.Random(1)
    with (
        eyas.local(max_workers=1) as low,
        eyas.Executor(access=low._cluster["access"], priority=10) as high,
    ):
        for _ in range(200):
            calls = [low.submit(time.sleep, dice.random() * 0.004) for _ in range(3)]
            time.sleep(dice.random() * 0.004)
            calls.append(high.submit(time.sleep, dice.random() * 0.002))
            assert [call.result(LONG_S) for call in calls] == [None] * 4


def test_a_shared_value_without_room_leaves_nothing(tmp_path):
    done = script(
        f"""
        import eyas, os, resource, signal
        with eyas.local(max_workers=1, objects={str(tmp_path)!r}) as executor:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
            try:
                executor.share(bytes(2 << 20))
            except OSError as error:
                print(os.listdir({str(tmp_path)!r}), executor.submit(abs, -1).result())
        """
    )
    assert done.stdout == "[] 1\n", done.stderr
