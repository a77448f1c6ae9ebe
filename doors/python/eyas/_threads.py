"""Waiting for threads."""

from __future__ import annotations

import threading

#: Seconds of one wait for a thread. A signal that a wait has lost is noticed by the next one.
_SLICE_S = 0.5


def join(thread: threading.Thread) -> None:
    """Wait for a thread in slices: CPython 3.13 loses a signal that comes just before a ``join``
    without a timeout.
    """
    while thread.is_alive():
        thread.join(_SLICE_S)
