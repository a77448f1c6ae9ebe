"""What executors, futures and jobs show."""

import contextlib
import json
import os
import pty
import re
import sys
import textwrap
import threading
import time
from concurrent import futures
from html.parser import HTMLParser

import eyas
import pytest
from eyas._views import answers, html
from eyas._views import progress as bars

#: Seconds that nothing here takes.
LONG_S = 60.0


@pytest.fixture(scope="module")
def executor():
    with eyas.local(nodes=2, max_workers=2) as executor:
        yield executor


class Balanced(HTMLParser):
    """Checks that elements are nested, and keeps names and texts."""

    def __init__(self, content):
        super().__init__()
        self.open, self.names, self.text = [], set(), ""
        self.feed(content)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.names.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data + " "


def settled(ended):
    """Return futures that end as asked: with a value, or with an exception."""
    made = []
    for error in ended:
        future = futures.Future()
        future.set_result(1) if error is None else future.set_exception(error)
        made.append(future)
    return made


def test_progress_returns_futures_as_they_end(executor, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    late = executor.submit(lambda path: open(path).read(), str(gate))
    early = executor.submit(abs, -1)
    seen = eyas.progress([late, early, early], show=False)
    assert next(seen) is early
    gate.write_text("now")
    assert next(seen) is late
    assert list(seen) == []


def test_progress_tells_of_failures_and_cancelled_calls(capfd):
    calls = settled([None, ZeroDivisionError(), None])
    cancelled = futures.Future()
    cancelled.cancel()
    assert set(eyas.progress([*calls, cancelled], label="work", show=True)) == {*calls, cancelled}
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith("work: 4 of 4 | 2 failed | ")


def test_progress_is_silent_without_a_terminal(capfd):
    assert len(list(eyas.progress(settled([None])))) == 1
    assert capfd.readouterr() == ("", "")


def test_progress_of_nothing_ends_at_once():
    assert list(eyas.progress([], show=True)) == []


def test_progress_of_values_is_refused_with_the_way_out(executor):
    with pytest.raises(TypeError, match="not int: around map.*executor.progress"):
        eyas.progress(executor.map(abs, [1]))


def test_very_many_futures_are_drawn_as_rarely_as_few():
    class Once(bars._Display):
        interval_s = LONG_S
        drawn = 0

        def draw(self, counts):
            self.drawn += 1

    display = Once()
    calls = dict.fromkeys(settled([None] * 100_000))
    assert sum(1 for _ in bars._follow(calls, display)) == 100_000
    assert display.drawn == 2


def on_terminal(program):
    """Run a program on a terminal, and return what it wrote there."""
    process, terminal = pty.fork()
    if process == 0:
        os.environ |= {"TERM": "xterm", "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"}
        os.execv(sys.executable, [sys.executable, "-c", textwrap.dedent(program)])
    written = b""
    # The end of a terminal is an error.
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 4096):
            written += part
    os.close(terminal)
    assert os.waitpid(process, 0)[1] == 0, written.decode()
    return written.decode()


def test_progress_of_an_executor_on_a_terminal(tmp_path):
    (tmp_path / "table").write_text("call me ishmael")
    written = on_terminal(
        f"""
        import eyas

        with eyas.local(max_workers=1) as executor:
            executor.submit(abs, -1).result()
            with executor.progress(label="stack"):
                done = [executor.submit(abs, -1) for _ in range(9)]
                done += [executor.run("cat {{t}}", t=eyas.File({str(tmp_path / "table")!r}))]
                done += [executor.submit(divmod, 1, 0)]
                for call in done:
                    call.exception()
        """
    )
    # Each drawing replaces the one before.
    first, *_, last = [line for line in written.split("\r\x1b[K") if line.strip()]
    assert first.startswith("stack:   0% ░"), written
    assert re.match(
        r"stack: 100% █{20} 11 of 11 \| 1 failed \| .* \| 15 bytes from shared", last
    ), written
    assert all(len(line.rstrip()) < 100 for line in written.split("\r\x1b[K"))


def test_progress_ends_when_the_block_raises(executor):
    with pytest.raises(ZeroDivisionError), executor.progress(show=True):
        raise ZeroDivisionError
    assert all(thread.name != "eyas-progress" for thread in threading.enumerate())


def test_progress_counts_the_calls_of_its_block(executor, capfd):
    list(executor.map(abs, range(3)))
    with executor.progress(show=True):
        list(executor.map(abs, range(5)))
    assert capfd.readouterr().err.splitlines()[-1].startswith("5 of 5 | ")


def test_a_report_is_a_dict_that_shows_itself(executor, tmp_path):
    (tmp_path / "table").write_text("call me ishmael")
    executor.run("cat {t}", t=eyas.File(tmp_path / "table")).result(LONG_S)
    with pytest.raises(eyas.CallFailed):
        executor.run(["false", "<b>&"]).result(LONG_S)
    report = executor.report()
    assert json.loads(json.dumps(report)) == report
    assert "Job 1 (python): running" in str(report)
    assert "15 bytes (1 inputs)" in str(report)
    shown = Balanced(report._repr_html_())
    assert "read from shared storage" in shown.text and "failed task" in shown.text


def test_nodes_are_a_list_that_shows_itself(executor):
    nodes = executor.nodes()
    assert isinstance(nodes, list) and nodes.summary() == "2 nodes with 2 processors"
    assert len(str(nodes).splitlines()) == 3
    assert {"n1", "n2"} <= set(Balanced(nodes._repr_html_()).text.split())


def test_futures_and_executors_say_what_they_are(executor):
    done = executor.submit(abs, -1)
    assert done.result(LONG_S) == 1
    assert re.search(rf"state=finished returned int task=1\.{done.task} node=n[12]>$", repr(done))
    assert f"1.{done.task}" in Balanced(done._repr_html_()).text
    assert done.explain() == executor.explain(done)
    assert str(done.explain()).startswith(f"Task 1.{done.task}: succeeded.")
    assert "succeeded" in Balanced(done.explain()._repr_html_()).text
    assert re.fullmatch(r"<Executor job=1 max_workers=2 outstanding=\d+ open>", repr(executor))
    assert "Executor: open" in Balanced(executor._repr_html_()).text


def test_an_explanation_names_inputs_and_their_holders(executor, tmp_path):
    (tmp_path / "table").write_text("call me ishmael")
    os.mkfifo(gate := tmp_path / "gate")
    call = executor.run("cat {t} {gate}", t=eyas.File(tmp_path / "table"), gate=gate)
    deadline = time.monotonic() + LONG_S
    while not re.search(r"Input .*/table \(15 bytes\) is on n[12]\.", str(call.explain())):
        assert time.monotonic() < deadline, str(call.explain())
    assert "/table" in Balanced(call.explain()._repr_html_()).text
    gate.write_text("now")
    assert call.result(LONG_S).stdout == b"call me ishmaelnow"


def test_a_completed_command_is_shown_in_short(executor):
    done = executor.run("seq 1000000").result(LONG_S)
    assert len(repr(done)) < 1000 and repr(done).startswith(
        "Completed('seq 1000000', stdout=b'1\\n2"
    )
    shown = Balanced(done._repr_html_()).text
    assert len(shown) < 1000 and "6,888,896 bytes" in shown


def test_a_call_that_was_not_submitted_cannot_be_explained(executor):
    with pytest.raises(ValueError, match="could not be submitted"):
        executor.submit(abs, threading.Lock()).explain()


def test_an_executor_that_has_ended_still_shows_itself():
    with eyas.local(max_workers=1) as executor:
        call = executor.submit(abs, -1)
    assert "Its cluster has ended." in Balanced(executor._repr_html_()).text
    assert repr(executor).endswith("outstanding=0 shut down>")
    with pytest.raises(eyas.ClusterError):
        call.explain()


def test_html_is_escaped(executor):
    def fail():
        print("<script>printed()</script>")
        raise ValueError("<script>raised()</script>")

    call = executor.submit(fail)
    with pytest.raises(ValueError):
        call.result(LONG_S)
    shown = Balanced(call._repr_html_())
    assert "script" not in shown.names and "<script>raised()</script>" in shown.text
    task = {"task": "1.0", "item": "<i>", "state": "waiting"}
    explanation = answers.Explanation(task=task, because=["<i>"], inputs=[])
    assert "i" not in Balanced(explanation._repr_html_()).names
    progress = bars._Notebook("<i>", lambda content, **_: contents.append(content))
    contents = []
    progress.draw(bars._Counts(2, 1))
    assert "i" not in Balanced(contents[0]["text/html"]).names


def test_the_output_of_a_failed_call_is_in_its_exception(executor):
    def fail():
        print("the log of the call")
        sys.stdout.flush()
        os._exit(3)

    with pytest.raises(eyas.CallFailed) as raised:
        executor.submit(fail).result(LONG_S)
    assert any("the log of the call" in note for note in raised.value.__notes__)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1500, "1.5 kB"),
        (999_600, "1.0 MB"),
        (12e15, "12000 TB"),
    ],
)
def test_sizes_are_rounded(size, text):
    assert html.bytes_text(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0123, "12 ms"), (0.9999, "1.0 s"), (59.99, "1:00"), (3599.7, "1:00:00"), (90, "1:30")],
)
def test_durations_are_rounded(seconds, text):
    assert html.duration_text(seconds) == text
