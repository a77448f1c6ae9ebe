"""Programs that tests run as other processes."""

import os
import subprocess
import sys
import textwrap

#: Seconds that nothing here takes.
LONG_S = 60.0


def script(text, *, env=None):
    """Run a program as another process."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=LONG_S,
        env={**os.environ, **(env or {})},
    )
