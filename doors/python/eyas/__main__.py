"""The ``eyas`` command."""

import os
import signal
import sys
import sysconfig

from . import _eyas


def program() -> str:
    """Path of the command, for the processes that it starts."""
    script = os.path.join(sysconfig.get_path("scripts"), "eyas")
    return script if os.path.exists(script) else os.path.abspath(sys.argv[0])


def main() -> int:
    """Run the command line of this process."""
    # The command has its own ways to end.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _eyas.main(["eyas", *sys.argv[1:]], program())


if __name__ == "__main__":
    sys.exit(main())
