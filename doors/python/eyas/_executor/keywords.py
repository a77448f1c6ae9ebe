"""Keywords that all calls of a map have."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from .._files.values import ValueFiles
from .._worker import pickling
from .._worker.arguments import Arguments, File
from .._worker.shared import Shared, parts_of
from .futures import Future


class SharedKeywords:
    """Values by keywords. Large ones are files as long as this is held, or a call needs them."""

    def __init__(self, values: Mapping[str, Any], files: ValueFiles | None) -> None:
        """Write large values to files, if there is a folder for them."""
        #: What the calls get.
        self.values = dict(values)
        paths: list[str] = []
        if files is None:
            return
        weakref.finalize(self, files.release, paths).atexit = False
        for name, value in values.items():
            try:
                with Arguments() as found:
                    parts = parts_of(value)
            except Exception:  # Whatever pickling may raise. The calls fail with it.
                continue
            if found.inputs or found.outputs or found.values:
                # It names files or results, which are arguments of each call.
                continue
            if sum(part.nbytes for part in parts) >= pickling.LARGE_BYTES:
                paths.append(files.keep_value(parts))
                self.values[name] = Shared(File(paths[-1]))

    def hold_for(self, future: Future[Any]) -> None:
        """Keep the files until a call has ended."""
        held = [self]
        future.add_done_callback(lambda _: held.clear())
