"""Processes of eyas that end with this process."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence

from .._errors import ClusterError

#: Seconds that a process has to end.
_END_DEADLINE_S = 25.0


class OwnedProcess:
    """A process of eyas that ends when its standard input does, so also if this process
    is killed.
    """

    def __init__(self, words: Sequence[str], what: str) -> None:
        """Run ``eyas`` with these words, and wait until it is ready. ``what`` names it in the error
        if it is not.
        """
        # The log must not fill a pipe.
        with tempfile.TemporaryFile() as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "eyas", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # An interrupt from the terminal is for this process, which decides what ends.
                start_new_session=True,
            )
            assert self._process.stdout is not None
            if not any(line.strip() == b"ready" for line in self._process.stdout):
                self._process.wait()
                log.seek(0)
                raise ClusterError(
                    f"{what} did not start: {log.read().decode(errors='replace').strip()}"
                )

    def release(self) -> None:
        """Let it end: at once, or in the child of a fork, when the parent does this, too."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def stop(self) -> None:
        """End it, and wait for that."""
        self.release()
        try:
            self._process.wait(_END_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
