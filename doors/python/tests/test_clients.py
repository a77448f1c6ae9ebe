"""Clients that are interrupted, stopped, forked or killed, and programs that end with calls
outstanding.
"""

import functools
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time

import eyas
import pytest
from programs import LONG_S, script


@pytest.fixture(scope="module")
def executor():
    with eyas.local(max_workers=2) as executor:
        yield executor


def test_calls_end_before_the_interpreter_does(tmp_path):
    done = script(
        f"""
        import atexit, eyas, time
        def run_last():
            try:
                executor.submit(abs, 1)
            except RuntimeError as error:
                print(error)
        atexit.register(run_last)
        executor = eyas.local(max_workers=1)
        executor.submit(time.sleep, 0.5)
        opened = executor.submit(open, {str(tmp_path / "made")!r}, "w")
        opened.add_done_callback(lambda future: None)
        """
    )
    assert done.stdout == "cannot schedule new futures after shutdown\n"
    assert (tmp_path / "made").exists()


def test_an_executor_is_of_no_use_in_a_forked_child():
    done = script(
        """
        import eyas, os
        with eyas.local(max_workers=1) as executor:
            child = os.fork()
            if child == 0:
                try:
                    executor.submit(abs, 1)
                except eyas.ClusterLost as error:
                    print(error, flush=True)
                os._exit(0)
            os.waitpid(child, 0)
            print(executor.submit(abs, -1).result())
        """
    )
    assert done.stdout.splitlines() == [
        "an executor cannot be used in a process that was forked after its start",
        "1",
    ]


def test_calls_of_a_client_that_dies_end(tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    env = {"EYAS_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "eyas"]
    run = functools.partial(subprocess.run, check=True, env={**os.environ, **env}, timeout=LONG_S)
    run(
        [*command, "start", "local", "--nodes", "1", "--slots", "1", "--detach"],
        capture_output=True,
    )
    try:
        text = f"""
            import eyas, os, pathlib, time
            def work(number):
                (pathlib.Path({str(marks)!r}) / str(number)).touch()
                time.sleep(0.5)
            executor = eyas.connect()
            calls = [executor.submit(work, number) for number in range(1000)]
            calls[0].result()
            os.kill(os.getpid(), 9)
        """
        assert script(text, env=env).returncode == -9
        deadline = time.monotonic() + LONG_S
        while b"[]" not in run([*command, "job", "list", "--json"], capture_output=True).stdout:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert len(list(marks.iterdir())) < 20
    finally:
        run([*command, "stop"], capture_output=True)


def test_an_interrupt_ends_all_calls():
    program = """
        import eyas, os, signal, threading, time
        # Also where tests run in the background, and shells have them ignore interrupts.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with eyas.local(max_workers=2) as executor:
            calls = [executor.submit(time.sleep, 50) for _ in range(100)]
            executor.submit(abs, 1)
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
            calls[0].result()
        """
    began = time.monotonic()
    done = script(program)
    assert done.stderr.strip().endswith("KeyboardInterrupt")
    assert time.monotonic() - began < LONG_S / 2


def test_an_interrupt_ends_the_wait_for_a_dispatcher_that_does_not_answer(executor, tmp_path):
    access, known = tmp_path / "access.toml", pathlib.Path(executor._cluster["access"]).read_text()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f'dispatcher = "127.0.0.1:{silent.getsockname()[1]}"'
        changed, count = re.subn('^dispatcher = ".*"', address, known, flags=re.MULTILINE)
        assert count == 1
        access.touch(0o600)
        access.write_text(changed)
        program = (
            "import eyas, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        )
        program += "eyas.connect(access=sys.argv[1])"
        words = [sys.executable, "-c", program, str(access)]
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as connecting:
            silent.settimeout(LONG_S)
            with silent.accept()[0]:
                connecting.send_signal(signal.SIGINT)
                # Without the interrupt, it would give up later.
                _, told = connecting.communicate(timeout=5)
    assert told.strip().endswith("KeyboardInterrupt"), told


def test_the_job_of_a_client_that_does_not_read_its_results_ends(executor):
    """A client is stopped while its calls run: the dispatcher keeps a part of the results only."""
    program = """
        import eyas, sys
        with eyas.connect(access=sys.argv[1]) as executor:
            made = executor.map(lambda number: bytes(900_000), range(1500))
            next(made)
            print(executor._state.session.job, flush=True)
            try:
                print(sum(map(len, made)))
            except eyas.ClusterLost as error:
                print(error)
        """
    words = [sys.executable, "-c", textwrap.dedent(program), executor._cluster["access"]]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as stopped:
        job = int(stopped.stdout.readline())
        stopped.send_signal(signal.SIGSTOP)
        try:
            deadline = time.monotonic() + LONG_S
            with pytest.raises(eyas.ClusterError, match=f"no job {job}"):
                while time.monotonic() < deadline:
                    eyas._eyas.ask("job", job=job, **executor._cluster)
                    time.sleep(0.1)
        finally:
            stopped.send_signal(signal.SIGCONT)
        told, _ = stopped.communicate(timeout=LONG_S)
    assert "has not read its results" in told, told


def test_a_fork_does_not_hold_the_cluster():
    done = script(
        """
        import eyas, os, time
        executor = eyas.local(max_workers=1)
        child = os.fork()
        if child == 0:
            time.sleep(600)
            os._exit(0)
        executor.shutdown()
        # The child still runs.
        print(os.waitpid(child, os.WNOHANG) == (0, 0))
        os.kill(child, 9)
        """
    )
    assert done.stdout == "True\n", done.stderr
