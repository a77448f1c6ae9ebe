"""Waiting for calls: deadlines, event loops, interrupts, exits, and calls that no node can run."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent import futures

import eyas
import pytest
from eyas._executor import state
from eyas._worker import worker
from programs import LONG_S, script


@pytest.fixture(scope="module")
def executor():
    with eyas.local(max_workers=2) as executor:
        yield executor


class SlowSession:
    """A session that fetches results when it is allowed to."""

    def __init__(self, session):
        self._session, self.may_fetch, self.was_in_time = session, threading.Event(), None

    def __getattr__(self, name):
        return getattr(self._session, name)

    def near_result(self, task):
        return None

    def fetch_result(self, *args):
        self.was_in_time = self.may_fetch.wait(LONG_S)
        return self._session.fetch_result(*args)


@pytest.fixture
def large(executor):
    """A call with a large result, which stays in the cluster until it is allowed to be fetched."""
    future = executor.submit(bytes, 2 << 20)
    futures.wait([future], LONG_S)
    future._outputs.session = SlowSession(future._outputs.session)
    yield future
    future._outputs.session.may_fetch.set()


def test_a_timeout_holds_for_the_fetch_of_a_large_result(large):
    for wait in large.result, large.exception:
        with pytest.raises(futures.TimeoutError):
            wait(0.05)
    large._outputs.session.may_fetch.set()
    assert large.exception(LONG_S) is None
    assert len(large.result(LONG_S)) == len(large.result()) == 2 << 20


def test_an_event_loop_goes_on_while_a_large_result_is_fetched(large):
    async def wait():
        waits = asyncio.wrap_future(large)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waits.done()
        large._outputs.session.may_fetch.set()
        return len(await asyncio.wait_for(waits, LONG_S))

    assert asyncio.run(wait()) == 2 << 20
    assert large._outputs.session.was_in_time


def test_an_exit_in_a_callback_ends_neither_the_executor_nor_other_callbacks(executor, caplog):
    called = []

    def leave(future):
        called.append(future)
        sys.exit("from a callback")

    future = executor.submit(time.sleep, 0.3)
    for _ in range(2):
        future.add_done_callback(leave)
    assert future.result(LONG_S) is None
    assert executor.submit(abs, -1).result(LONG_S) == 1
    assert called == [future] * 2
    assert "from a callback" in caplog.text


#: A program whose calls take longer than any test.
PROGRAM = """
import sys, time, eyas

executor = eyas.local(max_workers=1)
calls = [executor.submit(time.sleep, 600) for _ in range(50)]
calls.append(executor.submit(abs, calls[-1]))
wait = executor.with_options(priority=1).submit(abs, -1).result()
print("ready", flush=True)
if sys.argv[1] == "waits":
    calls[-1].result()
"""


@pytest.mark.parametrize("how", ["waits", "has ended"])
def test_one_interrupt_ends_a_program_with_outstanding_calls(how):
    words = [sys.executable, "-c", PROGRAM, how]
    program = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert program.stdout.readline() == "ready\n"
    program.send_signal(signal.SIGINT)
    _, told = program.communicate(timeout=LONG_S)
    assert "KeyboardInterrupt" in told


def test_outstanding_calls_end_before_the_program(tmp_path):
    done = script(
        f"""
        import pathlib, time, eyas
        from eyas._executor import state
        state._ASK_S = 0.05
        def note(place):
            time.sleep(1)
            place.touch()
        executor = eyas.local(max_workers=1)
        for number in range(2):
            executor.submit(note, pathlib.Path({str(tmp_path)!r}, str(number)))
        """
    )
    assert (done.stdout, done.stderr, sorted(path.name for path in tmp_path.iterdir())) == (
        "",
        "",
        ["0", "1"],
    )


def fork_and_release():
    child = os.fork()
    if child == 0:
        with eyas.released():
            os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_child_of_a_call_releases_nothing(executor):
    assert executor.submit(fork_and_release).result(LONG_S) == 7
    assert executor.submit(abs, -1).result(LONG_S) == 1


def test_resources_that_a_local_cluster_lacks_are_refused(executor):
    for options in {"gpus": 1}, {"cpus": 3}, {"memory": 1 << 60}:
        with pytest.raises(ValueError, match="no node of this cluster has .*the nodes have cpus=2"):
            executor.with_options(**options)

    @eyas.options(gpus=2)
    def function():
        pass

    with pytest.raises(ValueError, match="gpus=2"):
        executor.submit(function)
    assert executor.with_options(cpus=2, memory=1 << 30).submit(abs, -1).result(LONG_S) == 1


def test_resources_that_a_growing_cluster_lacks_are_named(executor, caplog, monkeypatch):
    monkeypatch.setattr(state, "_ASK_S", 0.1)
    with eyas.connect(access=executor._cluster["access"]) as other:
        hopeless = [
            other.with_options(gpus=1).submit(abs, -1),
            other.with_options(requirements='"site" in node.labels').submit(abs, -1),
        ]
        assert other.submit(abs, -1).result(LONG_S) == 1
        deadline = time.monotonic() + LONG_S
        while caplog.text.count("It waits because") < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for future in hopeless:
            future.cancel()
    assert ".0: It waits because no executor has as much as it needs" in caplog.text
    assert all(record.levelno == logging.WARNING for record in caplog.records)


def nested(depth):
    """Wait for calls of this call's own, on the same cluster."""
    if depth == 0:
        return 1
    with eyas.connect() as executor:
        calls = [executor.submit(nested, depth - 1) for _ in range(2)]
        if depth == 1:
            return sum(call.result(LONG_S) for call in calls)
        with eyas.released():
            futures.wait(calls, LONG_S)
        return sum(call.result(0) for call in calls)


@pytest.mark.parametrize("reuse", ["process", "fork"])
def test_calls_that_wait_for_calls_of_their_own_give_their_processors_to_them(reuse):
    with eyas.local(max_workers=1, reuse=reuse) as executor:
        depth = 2 if reuse == "process" else 1
        waits = executor.submit(nested, depth)
        assert list(executor.map(abs, range(-20, 0))) == list(range(20, 0, -1))
        assert waits.result(LONG_S) == 2**depth


def end_block_before_calls():
    """Wait for a call of this call's own at the end of its executor's block."""
    with eyas.connect() as executor:
        call = executor.submit(abs, -1)
    return call.result(0)


def test_the_end_of_a_block_gives_the_processors_of_a_call_to_the_calls_that_it_waits_for():
    with eyas.local(max_workers=1) as executor:
        assert executor.submit(end_block_before_calls).result(LONG_S) == 1


def wait_with_the_standard_library(how):
    """Wait for calls of this call's own as the standard library does."""
    with eyas.connect() as executor:
        calls = [executor.submit(abs, -number) for number in range(3)]
        if how == "as_completed":
            results = {call.result(0) for call in futures.as_completed(calls, LONG_S)}
        elif how == "mixed":
            other = futures.Future()
            done, _ = futures.wait([other, *calls], LONG_S, futures.FIRST_COMPLETED)
            assert done and other not in done
            results = {call.result(LONG_S) for call in calls}
        else:
            results = {call.result(0) for call in futures.wait(calls, LONG_S).done}
        assert not worker.Released.open and not any(call._waiters for call in calls)
        return results


@pytest.mark.parametrize("how", ["wait", "as_completed", "mixed"])
def test_waits_of_the_standard_library_give_the_processors_of_a_call_to_its_own_calls(how):
    with eyas.local(max_workers=1) as executor:
        assert executor.submit(wait_with_the_standard_library, how).result(LONG_S) == {0, 1, 2}


async def awaited(call):
    return await asyncio.wrap_future(call)


def wait_in_other_ways(how):
    """Wait for calls of this call's own in ways of which a future hears nothing, twice."""
    results = []
    with eyas.connect() as executor:
        for number in range(2):
            call = executor.submit(abs, -number)
            if how == "asyncio":
                results.append(asyncio.run(asyncio.wait_for(awaited(call), LONG_S)))
                continue
            deadline = time.monotonic() + LONG_S
            while not call.done() and time.monotonic() < deadline:
                time.sleep(0.01)
            results.append(call.result(0))
        assert not worker.Released.open
    return results


@pytest.mark.parametrize("how", ["asyncio", "done"])
def test_an_idle_call_gives_its_processors_to_its_own_calls_however_it_waits(how):
    with eyas.local(max_workers=1) as executor:
        assert executor.submit(wait_in_other_ways, how).result(LONG_S) == [0, 1]
        assert executor.submit(abs, -1).result(LONG_S) == 1


def leave_a_loan(place):
    """End while a thread lends the processors of this call."""
    executor = eyas.connect(max_workers=1)
    executor.submit(wait_for_file, place)
    deadline = time.monotonic() + LONG_S
    while not worker.Released.open and time.monotonic() < deadline:
        time.sleep(0.01)
    return len(worker.Released.open)


def wait_for_file(place):
    while not place.exists():
        time.sleep(0.01)


def test_a_call_may_end_while_it_lends_its_processors(tmp_path):
    with eyas.local(max_workers=1) as executor:
        assert executor.submit(leave_a_loan, tmp_path / "end").result(LONG_S) == 1
        (tmp_path / "end").touch()
        assert executor.submit(wait_in_other_ways, "done").result(LONG_S) == [0, 1]


def wait_without_giving_way(seconds):
    """Wait for a call of this call's own and compute meanwhile, so that no other call gets the
    processors.
    """
    state._ASK_S = 0.1
    with eyas.connect() as executor:
        call = executor.submit(abs, -1)
        deadline = time.monotonic() + seconds
        while not call.done() and time.monotonic() < deadline:
            pass
        call.cancel()
        return call.cancelled()


def test_a_call_that_holds_the_processors_of_its_own_calls_prints_a_warning(capfd):
    with eyas.local(max_workers=1) as executor:
        assert executor.submit(wait_without_giving_way, 3).result(LONG_S)
    assert (
        "The call that waits for it holds processors, which it may need: wait inside of"
        in capfd.readouterr().err
    )


def test_outside_of_calls_nothing_is_released():
    with eyas.released(), eyas.released():
        pass


def hold(place):
    with eyas.released():
        (place / "began").touch()
        while not (place / "end").exists():
            time.sleep(0.01)
    return time.sleep(0)


def test_a_call_that_has_given_its_processors_away_can_be_cancelled(tmp_path):
    with eyas.local(max_workers=1) as executor:
        held = executor.submit(hold, tmp_path)
        while not (tmp_path / "began").exists():
            time.sleep(0.01)
        assert executor.submit(abs, -1).result(LONG_S) == 1
        assert held.cancel()
        assert executor.submit(abs, -2).result(LONG_S) == 2
        again = executor.submit(hold, tmp_path)
        (tmp_path / "end").touch()
        assert again.result(LONG_S) is None
