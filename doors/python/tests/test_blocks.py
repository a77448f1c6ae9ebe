"""Calls over elastic blocks of files of the cluster."""

import collections
import os
import signal
import zlib

import pytest

import eyas
from eyas import _eyas

LONG_S = 120
CHUNK_BYTES = 64 << 10


def write(executor, name, content):
    session = _eyas.FilesSession(**executor._cluster)
    file = session.create(name, format="lines", chunk_bytes=CHUNK_BYTES)
    file.write(content)
    file.publish()


@pytest.fixture(scope="module")
def executor():
    with eyas.local(nodes=2, max_workers=4, files=True) as executor:
        yield executor


def lines(number, count):
    return b"".join(b"%d %d %s\n" % (number, line, b"x" * (line % 50)) for line in range(count))


def test_the_pieces_are_the_files_in_order(executor):
    contents = {f"/text/{number}": lines(number, 20_000) for number in range(3)}
    for name, content in contents.items():
        write(executor, name, content)
    found = collections.defaultdict(list)
    for piece, process in executor.map_blocks("eyas:///text/*", lambda piece: (piece, os.getpid())):
        assert piece.offset == sum(len(part) for part in found[piece.file])
        assert piece.content.endswith(b"\n")
        found[piece.file].append(piece.content)
    assert {name: b"".join(parts) for name, parts in found.items()} == contents
    assert list(found) == sorted(contents)
    assert len(found["/text/0"]) > 1, "the file has several chunks"
    # What the calls have stored was removed.
    assert not _eyas.FilesSession(**executor._cluster).list("/.eyas/runs")


def test_a_file_that_is_one_record_is_one_piece_also_of_several_chunks(executor):
    content = b"a line\n" * 10_000_000
    session = _eyas.FilesSession(**executor._cluster)
    file = session.create("/whole", format="whole", replicas=1)
    file.write(content)
    file.publish()
    pieces = executor.map_blocks(
        "/whole", lambda piece: (piece.offset, len(piece.content), zlib.crc32(piece.content))
    )
    assert list(pieces) == [(0, len(content), zlib.crc32(content))]


def test_several_files_and_no_content(executor):
    write(executor, "/some", b"a\nb\n")
    write(executor, "/empty", b"")
    assert list(executor.map_blocks(["/some", "eyas:///empty"], lambda piece: piece.content)) == [
        b"a\nb\n"
    ]
    assert list(executor.map_blocks("/empty", len)) == []


def test_an_exception_of_a_function_is_raised_and_ends_the_run(executor):
    write(executor, "/bad", lines(0, 30_000))

    def fail(piece):
        if piece.offset > 0:
            raise KeyError(piece.file)

    with pytest.raises(KeyError, match="/bad"):
        list(executor.map_blocks("/bad", fail))
    assert not _eyas.FilesSession(**executor._cluster).list("/.eyas/runs")


def test_chunks_stay_in_memory_from_pass_to_pass():
    with eyas.local(nodes=2, max_workers=2, files=True, files_memory="1MiB") as executor:
        content = lines(0, 10_000)
        write(executor, "/again", content)
        with executor.chunk_memory("1MB") as memory:
            for _ in range(2):
                sizes = executor.map_blocks(
                    "/again", lambda piece: len(piece.content), memory=memory
                )
                assert sum(sizes) == len(content)
                used = memory.usage()
                # Both nodes have a chunk in memory if both have read it.
                chunks = -(-len(content) // CHUNK_BYTES)
                assert chunks <= used.chunks <= 2 * chunks, used
                assert len(content) <= used.bytes <= used.chunks * (CHUNK_BYTES + 8192), used
                assert used.failure is None
        with pytest.raises(ValueError, match="released"):
            executor.map_blocks("/again", len, memory=memory)
        memory.release()
        # A limit for some of them.
        with executor.chunk_memory(2 * CHUNK_BYTES) as memory:
            list(executor.map_blocks("/again", len, memory=memory))
            assert 1 <= memory.usage().chunks <= 4


def test_nodes_without_memory_for_files_say_so(executor):
    write(executor, "/often", lines(0, 1000))
    with executor.chunk_memory("1GB") as memory:
        assert list(executor.map_blocks("/often", lambda piece: 1, memory=memory))
        used = memory.usage()
    assert used.chunks == 0
    assert "--dfs-memory" in used.failure
    with pytest.raises(ValueError, match="amount of memory"):
        executor.chunk_memory("much")
    with pytest.raises(OverflowError):
        executor.chunk_memory(-1)
    with pytest.raises(eyas.ClusterError, match="--dfs"):
        eyas.local(files_memory="1GB")


def test_files_that_are_missing(executor):
    with pytest.raises(FileNotFoundError, match="missing"):
        executor.map_blocks("eyas:///missing", len)
    with pytest.raises(FileNotFoundError, match="no file of the cluster matches"):
        executor.map_blocks("eyas:///missing/*", len)
    with pytest.raises(ValueError, match="environment"):
        executor.with_options(environment=os.devnull)
    with eyas.local(max_workers=1) as other, pytest.raises(OSError, match="keeps files"):
        other.map_blocks("/some", len)


def test_pieces_of_a_worker_that_dies_are_processed_by_others(executor):
    write(executor, "/deadly", lines(0, 30_000))
    folder = os.environ.get("TMPDIR", "/tmp")
    mark = os.path.join(folder, f"eyas-test-died-{os.getpid()}")

    def die_once(piece):
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return len(piece.content)
        os.kill(os.getpid(), signal.SIGKILL)

    try:
        assert sum(executor.with_options(retries=1).map_blocks("/deadly", die_once)) == len(
            lines(0, 30_000)
        )
    finally:
        os.unlink(mark)
