"""Progress of calls, on a terminal or in a notebook.

Nothing here is done for a call when it is submitted. :func:`progress` does little for each future
that ends; :class:`JobProgress` asks the cluster for the counts of a job a few times a second,
however many calls there are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import queue
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from types import TracebackType
from typing import Any, TypeVar

from .._errors import ClusterError
from .._threads import join
from .._worker.worker import released
from . import html
from .answers import reads_of

__all__ = ["JobProgress", "progress"]

_F = TypeVar("_F", bound="futures.Future[Any]")

#: Seconds between two drawings, on a terminal and in a notebook.
_INTERVAL_S = 0.2
#: Seconds between two lines of a file, when progress is wanted in one.
_LOG_INTERVAL_S = 10.0
#: Characters of the bar of a terminal.
_BAR_WIDTH = 20


@dataclasses.dataclass
class _Counts:
    """Calls, of which some have ended, and seconds since the first look at them."""

    total: int
    done: int = 0
    failed: int = 0
    #: Calls that are at a node, if that is known.
    at_nodes: int | None = None
    seconds: float = 0.0
    #: Where inputs were read from: source, number, bytes.
    reads: list[tuple[str, int, int]] = dataclasses.field(default_factory=list)

    @property
    def ended(self) -> int:
        """Calls that have ended in any way."""
        return self.done + self.failed

    def words(self) -> list[str]:
        """Return what is told beside a bar."""
        words = [f"{self.ended:,} of {self.total:,}"]
        if self.failed:
            words.append(f"{self.failed:,} failed")
        if self.at_nodes:
            words.append(f"{self.at_nodes:,} at nodes")
        if self.ended and self.seconds > 0:
            rate = self.ended / self.seconds
            words.append(f"{rate:,.0f} calls/s" if rate >= 10 else f"{rate:.2g} calls/s")
        if self.ended >= self.total:
            words.append(html.duration_text(self.seconds))
        elif self.ended:
            words.append(
                f"{html.duration_text(self.seconds / self.ended * (self.total - self.ended))} left"
            )
        words += [
            f"{html.bytes_text(size)} from {source}" for source, _, size in self.reads if size
        ]
        return words


class _Display:
    """Where progress is shown."""

    #: Seconds between two drawings.
    interval_s = _INTERVAL_S

    def draw(self, counts: _Counts) -> None:
        """Show the present counts instead of the earlier ones."""

    def end(self, counts: _Counts) -> None:
        """Show the last counts, which stay."""
        self.draw(counts)


class _Terminal(_Display):
    """A line of a terminal."""

    def __init__(self, label: str) -> None:
        self._label = f"{label}: " if label else ""
        encoding = getattr(sys.stderr, "encoding", None) or "ascii"
        self._full, self._empty = ("█", "░") if encoding.lower().startswith("utf") else ("#", "-")

    def draw(self, counts: _Counts) -> None:
        """Write the line again."""
        part = counts.ended / counts.total if counts.total else 0.0
        full = int(part * _BAR_WIDTH)
        line = (
            f"{self._label}{int(100 * part):3d}% "
            f"{self._full * full}{self._empty * (_BAR_WIDTH - full)} "
        )
        # The last column is left free: some terminals begin a new line after it.
        width = shutil.get_terminal_size().columns - 1
        self._write("\r\x1b[K" + (line + " | ".join(counts.words()))[:width])

    def end(self, counts: _Counts) -> None:
        """Write the line for the last time."""
        self.draw(counts)
        self._write("\n")

    def _write(self, text: str) -> None:
        # Calls do not fail because nobody can see their progress.
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()


class _Log(_Terminal):
    """Lines of a file."""

    interval_s = _LOG_INTERVAL_S

    def draw(self, counts: _Counts) -> None:
        """Write a line."""
        self._write(f"{self._label}{' | '.join(counts.words())}\n")

    def end(self, counts: _Counts) -> None:
        """Write the last line."""
        self.draw(counts)


class _Notebook(_Display):
    """A box below the cell of a notebook."""

    def __init__(self, label: str, display: Callable[..., Any]) -> None:
        self._label, self._display = label, display
        self._handle: Any = None

    def draw(self, counts: _Counts) -> None:
        """Show the box, or update it."""
        at_nodes = counts.at_nodes or 0
        drawn = html.bar(
            counts.total or 1, done=counts.done, failed=counts.failed, running=at_nodes
        )
        words = counts.words()
        title = f"{self._label}: {words[0]}" if self._label else words[0]
        box = html.block(title, drawn, html.table([words[1:]] if words[1:] else []))
        content = {"text/html": box, "text/plain": f"{title} | {' | '.join(words[1:])}"}
        if self._handle is None:
            self._handle = self._display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


def _notebook() -> Callable[..., Any] | None:
    """Return the function that displays, if this process is the kernel of a notebook."""
    # What has not imported IPython is no kernel.
    interactive = sys.modules.get("IPython")
    shell = None if interactive is None else interactive.get_ipython()
    if interactive is None or shell is None or not hasattr(shell, "kernel"):
        return None
    display: Callable[..., Any] = interactive.display.display
    return display


def _display(label: str, show: bool | None) -> _Display | None:
    """Return where progress is shown: nowhere, unless someone can see it or ``show`` asks
    for it.
    """
    if show is False:
        return None
    if (display := _notebook()) is not None:
        return _Notebook(label, display)
    if sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        return _Terminal(label)
    return _Log(label) if show else None


def progress(calls: Iterable[_F], *, label: str = "", show: bool | None = None) -> Iterator[_F]:
    """Return an iterator over futures in the order in which they end, and show a bar meanwhile.

    It is :func:`concurrent.futures.as_completed` with a bar: on a terminal (standard error), or in
    a notebook. With ``show=True``, lines are written where there is neither; with ``show=False``,
    nothing is shown.

    >>> for future in eyas.progress([executor.submit(work, item) for item in items]):
    ...     future.result()
    """
    # Each future once, as in as_completed.
    waiting = dict.fromkeys(calls)
    for future in waiting:
        if not isinstance(future, futures.Future):
            raise TypeError(
                f"progress() takes futures, not {type(future).__name__}: around map(), use "
                "`with executor.progress():`"
            )
    return _follow(waiting, _display(label, show))


def _follow(waiting: dict[_F, None], display: _Display | None) -> Iterator[_F]:
    counts = _Counts(len(waiting))
    ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
    put = ended.put
    for future in waiting:
        future.add_done_callback(put)
    # The caller may want to drop each future after use.
    waiting.clear()
    interval_s = None if display is None else display.interval_s
    began = drawn = time.monotonic()
    try:
        if display is not None:
            display.draw(counts)
        while counts.ended < counts.total:
            try:
                # In a call, the calls that it waits for may need its processors.
                with released() if ended.empty() else contextlib.nullcontext():
                    future = ended.get(timeout=interval_s)
            except queue.Empty:
                pass
            else:
                # A result in the cluster is not fetched for it.
                if future.cancelled() or futures.Future.exception(future) is not None:
                    counts.failed += 1
                else:
                    counts.done += 1
                yield future
                del future
            if display is not None and (now := time.monotonic()) - drawn >= display.interval_s:
                counts.seconds, drawn = now - began, now
                display.draw(counts)
    finally:
        if display is not None:
            counts.seconds = time.monotonic() - began
            display.end(counts)


class JobProgress:
    """Shows the progress of the calls of an executor, as long as it is entered. See
    :meth:`Executor.progress`.
    """

    def __init__(self, ask: Callable[[], dict[str, Any]], label: str, show: bool | None) -> None:
        """Prepare for a job, whose view ``ask`` returns."""
        self._ask, self._label, self._show = ask, label, show

    def __enter__(self) -> JobProgress:
        """Begin to show."""
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None
        display = _display(self._label, self._show)
        if display is not None:
            # Calls that have ended before are not counted.
            self._first, self._began = self._ask(), time.monotonic()
            self._counts = self._count(self._first)
            display.draw(self._counts)
            self._thread = threading.Thread(
                target=self._follow, args=(display,), name="eyas-progress", daemon=True
            )
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Show the last counts."""
        self._is_over.set()
        if self._thread is not None:
            join(self._thread)

    def _follow(self, display: _Display) -> None:
        is_over = False
        while not is_over:
            is_over = self._is_over.wait(display.interval_s)
            # A cluster that is lost is the matter of the calls; the last counts stay.
            with contextlib.suppress(ClusterError):
                self._counts = self._count(self._ask())
            (display.end if is_over else display.draw)(self._counts)

    def _count(self, job: dict[str, Any]) -> _Counts:
        now, before = job["tasks"], self._first["tasks"]
        failed = now["failed"] + now["cancelled"] - before["failed"] - before["cancelled"]
        done = now["succeeded"] - before["succeeded"]
        outstanding = now["blocked"] + now["waiting"] + now["assigned"]
        reads = [
            (source, count - earlier, size - earlier_size)
            for (source, count, size), (_, earlier, earlier_size) in zip(
                reads_of(job["reads"]), reads_of(self._first["reads"])
            )
        ]
        seconds = time.monotonic() - self._began
        return _Counts(outstanding + done + failed, done, failed, now["assigned"], seconds, reads)
