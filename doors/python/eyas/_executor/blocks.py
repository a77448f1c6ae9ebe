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


def map_blocks(
    files: Sequence[str],
    function: Callable[[Piece], _T],
    *,
    address: dict[str, Any],
    max_workers: int,
    submit: Callable[[_eyas.FilesRun, Callable[..., None], tuple[Any, ...]], futures.Future[None]],
) -> Iterator[_T]:
    """Call a function with each piece of files, and yield the results in the order of the pieces in
    the files.

    ``address`` has the keywords that name the cluster. ``submit`` adds a call that may use the
    files of a run.
    """
    patterns = [name.removeprefix(_SCHEME) if name.startswith(_SCHEME) else name for name in files]
    session = _eyas.FilesSession(**address)
    run = _eyas.FilesRun.open(session, patterns, max_workers)
    try:
        count = min(max_workers, run.chunks)
        calls = [submit(run, _work, (run.address, function)) for _ in range(count)]
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


def _work(address: str, function: Callable[[Piece], Any]) -> None:
    """Process blocks of a run until there are no more."""
    run = _eyas.FilesRun.join(_eyas.FilesSession(), address)
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
