"""What calls find in their workers, such as the modules of their client's program, and how workers
end.
"""

import os
import signal
import subprocess
import sys

import eyas
import pytest
from programs import LONG_S, script

PROGRAM = """
import sys, utils, eyas

def where():
    import utils
    return utils.__file__

with eyas.local(max_workers=1, folder=sys.argv[1]) as executor:
    assert executor.submit(where).result() == utils.__file__
    print(executor.submit(utils.name).result())
"""


def run_program(words, folder):
    """Run a program in a folder, and return what it has printed. Its workers run in this folder,
    too.
    """
    done = subprocess.run(
        [sys.executable, *words, str(folder)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONG_S,
    )
    return done.stdout.strip()


def test_modules_are_those_of_the_client_whatever_the_current_folder_has(tmp_path):
    script = tmp_path / "scripts" / "run.py"
    for folder, name in (script.parent, "the script's"), (tmp_path, "the current folder's"):
        folder.mkdir(exist_ok=True)
        (folder / "utils.py").write_text(f"def name():\n    return {name!r}\n")
    script.write_text(PROGRAM)
    assert run_program(["scripts/run.py"], tmp_path) == "the script's"
    assert run_program(["-m", "scripts.run"], tmp_path) == "the current folder's"
    # A module that the worker imports after it has entered the folder.
    (tmp_path / "cloudpickle.py").write_text("raise ImportError('the current folder')")
    assert run_program(["scripts/run.py"], tmp_path) == "the script's"


def test_an_environment_has_the_modules_of_the_client_in_the_order_of_the_client(
    tmp_path, monkeypatch
):
    import venv

    monkeypatch.setenv("EYAS_CACHE", str(tmp_path / "cache"))
    venv.create(tmp_path / "venv", with_pip=False)
    site = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    places = {"first": tmp_path / "first", "environment": site, "last": tmp_path / "last"}
    for name, folder in places.items():
        folder.mkdir(exist_ok=True)
        for module in ("one", "two") if name != "last" else ("one", "two", "three"):
            (folder / f"order_{module}.py").write_text(f"NAME = {name!r}")
    (places["first"] / "order_two.py").unlink()
    monkeypatch.syspath_prepend(str(places["first"]))
    sys.path.append(str(places["last"]))

    def names():
        import order_one
        import order_three
        import order_two

        return order_one.NAME, order_two.NAME, order_three.NAME

    with eyas.local(max_workers=1, environment=tmp_path / "venv") as executor:
        assert executor.submit(names).result(LONG_S) == ("first", "environment", "last")


def import_numpy():
    import numpy.random  # noqa: F401


def draw():
    import random

    import numpy

    return (
        random.random(),
        float(numpy.random.random()),
        float(numpy.random.mtrand._rand.standard_normal()),
    )


def other_generator():
    import numpy

    numpy.random.set_bit_generator(numpy.random.PCG64(1))


@pytest.mark.parametrize("initializer", [import_numpy, other_generator])
def test_children_of_one_worker_draw_different_random_numbers(initializer):
    pytest.importorskip("numpy")
    with eyas.local(max_workers=2, reuse="fork", initializer=initializer) as executor:
        drawn = list(executor.map(lambda _: draw(), range(8)))
    for numbers in zip(*drawn):
        assert len(set(numbers)) == 8, drawn


def test_libraries_that_are_not_loaded_by_the_initializer_are_not_loaded_for_their_seeds():
    with eyas.local(max_workers=1, reuse="fork") as executor:
        assert not executor.submit(lambda: "numpy" in sys.modules).result(LONG_S)


def threads():
    return os.environ["OMP_NUM_THREADS"], os.environ["NUMBA_NUM_THREADS"]


def test_libraries_have_as_many_threads_as_the_call_has_processors(monkeypatch):
    for name in "OMP_NUM_THREADS", "NUMBA_NUM_THREADS":
        monkeypatch.delenv(name, raising=False)
    with eyas.local(max_workers=4) as executor:
        for cpus, count in (1, "1"), (3, "3"), (2.5, "2"), (0.25, "1"):
            assert executor.with_options(cpus=cpus).submit(threads).result(LONG_S) == (count, count)
        monkeypatch.setenv("OMP_NUM_THREADS", "7")
        with eyas.connect(access=executor._cluster["access"]) as told:
            assert told.submit(threads).result(LONG_S) == ("7", "1")


def test_a_call_that_was_killed_prints_nothing_of_eyas(capfd):
    with eyas.local(max_workers=1, reuse="fork") as executor:
        for number in signal.SIGKILL, signal.SIGTERM, signal.SIGABRT:
            with pytest.raises(eyas.CallFailed, match=f"signal {int(number)}") as raised:
                executor.submit(lambda: os.kill(os.getpid(), number)).result(LONG_S)
            assert not any("Traceback" in note for note in raised.value.__notes__)
    printed = capfd.readouterr()
    assert "Traceback" not in printed.out + printed.err


def test_the_outputs_of_calls_are_apart_as_those_of_this_process_are(capfd):
    def tell(ends):
        print("out")
        print("error", file=sys.stderr)
        os.system("echo child; echo child error >&2")
        return ends()

    with eyas.local(max_workers=1) as executor:
        assert executor.submit(tell, int).result(LONG_S) == 0
        assert capfd.readouterr() == ("out\nchild\n", "error\nchild error\n")
        for end, error in (
            (lambda: 1 / 0, ZeroDivisionError),
            (lambda: os._exit(1), eyas.CallFailed),
        ):
            with pytest.raises(error) as raised:
                executor.submit(tell, end).result(LONG_S)
            printed = capfd.readouterr()
            assert ("child\n" in printed.out, printed.err) == (True, "error\nchild error\n")
            notes = "\n".join(raised.value.__notes__)
            assert (
                "Its output ended with:\n" in notes
                and "Its standard error ended with:\nerror\n" in notes
            )
        done = executor.run(["sh", "-c", "echo out; echo error >&2"]).result(LONG_S)
        assert (done.stdout, done.stderr) == (b"out\n", b"error\n")


@pytest.mark.parametrize("folder", ["/nowhere/at/all", ""])
def test_a_folder_for_temporary_files_that_does_not_exist_is_passed_over(folder):
    done = script(
        """
        import eyas
        with eyas.local(max_workers=1, files=True) as executor:
            large = executor.submit(bytes, 2 << 20)
            length = executor.submit(len, bytes(3 << 20)).result()
            print(len(large.result()), length, executor.run("pwd").result().args)
        """,
        env={"TMPDIR": folder},
    )
    assert done.stdout == f"{2 << 20} {3 << 20} pwd\n", done.stderr
