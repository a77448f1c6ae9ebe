"""What the native part gives to Python: objects with names, and no texts to be parsed."""

import os
import pickle
import time
import typing
from collections.abc import Sequence

import eyas
import pytest
from eyas import _eyas
from programs import LONG_S


@pytest.fixture(scope="module")
def executor():
    with eyas.local(max_workers=2, files=True) as executor:
        yield executor


@pytest.fixture
def results(executor, monkeypatch):
    """The results that the executor receives, by their tasks."""
    found, settle = {}, executor._state.settle

    def note(result):
        found[result.task] = result
        settle(result)

    monkeypatch.setattr(executor._state, "settle", note)
    return found


def say(text):
    print(text)
    return text


def test_results_say_how_calls_have_ended(executor, results):
    returned, raised = executor.submit(say, "yes"), executor.submit(int, "no number")
    failed, cancelled = executor.submit(os._exit, 3), executor.submit(time.sleep, 600)
    command = executor.run("sh -c 'echo out; echo err >&2'")
    assert returned.result(LONG_S) == "yes"
    assert isinstance(raised.exception(LONG_S), ValueError)
    assert isinstance(failed.exception(LONG_S), eyas.CallFailed)
    assert command.result(LONG_S).stdout == b"out\n"
    assert cancelled.cancel()
    deadline = time.monotonic() + LONG_S
    while cancelled.task not in results:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    outcome = _eyas.CallOutcome
    assert [
        results[future.task].outcome for future in (returned, raised, failed, cancelled, command)
    ] == [outcome.RETURNED, outcome.RAISED, outcome.FAILED, outcome.CANCELLED, outcome.RETURNED]
    said, program = results[returned.task], results[command.task]
    assert (pickle.loads(said.answer), said.printed, said.kept) == ("yes", b"yes\n", [])
    assert type(pickle.loads(results[raised.task].answer)[0]) is ValueError
    assert "3" in results[failed.task].reason
    assert (program.answer, program.printed, program.errors) == (b"out\n", b"", b"err\n")
    assert said.executor is returned.node
    with pytest.raises(AttributeError):
        said.task = 1


def test_a_large_result_is_kept(executor, results):
    future = executor.submit(bytes, 2 << 20)
    assert len(future.result(LONG_S)) == 2 << 20
    assert (results[future.task].kept, results[future.task].answer) == ([0], b"")


def test_answers_of_a_cluster_are_lists_and_dicts(executor, tmp_path):
    (node,) = _eyas.ask("executors", **executor._cluster)
    assert node["capacity"]["cpus_milli"] == 2000
    (job,) = _eyas.ask("job", job=executor._state.session.job, **executor._cluster)
    assert (job["name"], job["is_stuck"], type(job["elapsed_us"])) == ("python", False, int)
    (tmp_path / "file").write_bytes(b"content")
    assert isinstance(executor.push(tmp_path / "file"), dict)
    with pytest.raises(eyas.ClusterError, match="nothing to ask about weather"):
        _eyas.ask("weather", **executor._cluster)


def test_files_have_entries_and_chunks(executor):
    session = _eyas.FilesSession(**executor._cluster)
    file = session.create("/folder/file", format="fixed:1", chunk_bytes=64 << 10)
    file.write(b"x" * (100 << 10))
    file.publish()
    (entry,) = session.list("/folder")
    for found in entry, session.stat("/folder/file"):
        assert (found.name, found.kind, found.size_bytes, found.target) == (
            "/folder/file",
            "file",
            100 << 10,
            None,
        )
        assert (found.uid, found.gid, found.mode & 0o400) == (os.getuid(), os.getgid(), 0o400)
        assert abs(found.modified_ns - time.time_ns()) < LONG_S * 1e9
    assert entry.id == session.stat("/folder/file").id != session.stat("/folder").id
    assert session.stat("/folder").kind == "directory"
    chunks = session.chunks("/folder/file")
    assert [chunk.size_bytes for chunk in chunks] == [64 << 10, 36 << 10]
    assert all(len(chunk.nodes) == 1 for chunk in chunks)


@pytest.mark.parametrize(
    "name", [name for name in eyas.__all__ if isinstance(getattr(eyas, name), type)]
)
def test_pickles_name_public_classes_as_programs_do(name):
    public = getattr(eyas, name)
    assert (public.__module__, pickle.loads(pickle.dumps(public))) == ("eyas", public)


def test_an_error_of_a_cluster_can_be_pickled():
    error = pickle.loads(pickle.dumps(eyas.ClusterError("a test")))
    assert (type(error), error.args) == (eyas.ClusterError, ("a test",))


@pytest.mark.parametrize(
    "name", [name for name in eyas.__all__ if isinstance(getattr(eyas, name), type)]
)
def test_the_annotations_of_public_classes_can_be_evaluated(name):
    hints = typing.get_type_hints(getattr(eyas, name))
    assert not any(isinstance(hint, str) for hint in hints.values())
    if name == "Completed":
        assert hints["args"] == str | Sequence[str]
