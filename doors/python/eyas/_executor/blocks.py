"""Calls over elastic blocks of files of the cluster."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Any, NamedTuple, TypeVar

from .. import _eyas
from .._errors import ClusterLost
from .._worker import pickling
from .._worker.public import public

_T = TypeVar("_T")

_SCHEME = "eyas://"
#: Seconds that commits have to be told after the last call has ended.
_STATUS_S = 10.0


@public
class Piece(NamedTuple):
    """A part of a file that a call processes as a whole. It consists of whole records."""

    #: Name of the file.
    file: str
    #: Place of the piece in the file, bytes.
    offset: int
    content: bytes


@public
class MemoryUse(NamedTuple):
    """What is in memory of the nodes."""

    chunks: int
    #: Whole pages.
    bytes: int
    #: Why chunks are not in memory for which it has room.
    failure: str | None


@public
class ChunkMemory:
    """Memory of the nodes in which chunks of files stay, so that the next
    :meth:`Executor.map_blocks` over them finds them there. A context manager: at its end, the
    memory is released. It is released by itself a minute after this process has ended.
    """

    def __init__(self, limit_bytes: int, address: dict[str, Any]) -> None:
        """Open it, for up to ``limit_bytes`` on each node."""
        self._memory = _eyas.FilesMemory.open(_eyas.FilesSession(**address), limit_bytes)

    @property
    def number(self) -> int:
        """The number by which nodes know it."""
        return self._memory.number

    def usage(self) -> MemoryUse:
        """Return what is in it, on all nodes together."""
        return MemoryUse(*self._memory.usage())

    def release(self) -> None:
        """Release the memory. Again, it does nothing."""
        self._memory.release()

    def __enter__(self) -> ChunkMemory:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release the memory."""
        self.release()


def map_blocks(
    files: Sequence[str],
    function: Callable[[Piece], _T],
    *,
    memory: ChunkMemory | None,
    address: dict[str, Any],
    max_workers: int,
    submit: Callable[[_eyas.FilesRun, Callable[..., None], tuple[Any, ...]], futures.Future[None]],
) -> Iterator[_T]:
    """Call a function with each piece of files, and yield the results in the order of the pieces in
    the files.

    The chunks stay in ``memory``, if there is one. ``address`` has the keywords that name the
    cluster. ``submit`` adds a call that may use the files of a run.
    """
    number = None if memory is None else memory.number
    patterns = [name.removeprefix(_SCHEME) if name.startswith(_SCHEME) else name for name in files]
    session = _eyas.FilesSession(**address)
    run = _eyas.FilesRun.open(session, patterns, max_workers)
    try:
        count = min(max_workers, run.chunks)
        calls = [submit(run, _work, (run.address, number, function)) for _ in range(count)]
    except BaseException:
        run.close()
        raise

    def results() -> Iterator[_T]:
        try:
            done, _ = futures.wait(calls, return_when=futures.FIRST_EXCEPTION)
            for call in done:
                call.result()
            status = run.wait(_STATUS_S)
            if missing := status.missing_chunks:
                raise ClusterLost(
                    f"{missing} of {run.chunks} chunks were not processed: the calls have ended "
                    "before"
                )
            numbers = {name: number for number, name in enumerate(run.files)}
            found: list[tuple[int, int, _T]] = []
            for name in status.outputs:
                opened = session.open(name)
                parts = pickle.loads(opened.read_at(0, opened.size))
                found += [(numbers[file], offset, value) for file, offset, value in parts]
            found.sort(key=lambda part: part[:2])
        finally:
            for call in calls:
                call.cancel()
            run.close()
        # Each result has no name here while it is used.
        found.reverse()
        while found:
            yield found.pop()[2]

    return results()


def _work(address: str, memory: int | None, function: Callable[[Piece], Any]) -> None:
    """Process blocks of a run until there are no more."""
    run = _eyas.FilesRun.join(_eyas.FilesSession(), address, memory)
    while True:
        block = run.begin()
        results: list[tuple[str, int, Any]] = []
        try:
            while (piece := block.next()) is not None:
                given = Piece(piece.file, piece.offset, piece.content)
                results.append((given.file, given.offset, function(given)))
            if block.is_taken:
                continue
            if not results:
                return block.leave()
            output = pickling.dumps(results)
        except BaseException:
            block.leave()
            raise
        block.commit(output)
