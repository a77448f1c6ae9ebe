"""Functions that workers import in environments of their own, which have no pytest."""

import os
import pathlib
import subprocess
import sys
import time

#: Seconds that nothing here takes.
LONG_S = 60.0


def number():
    """Return what a module of the environment says."""
    import packed_number

    return packed_number.NUMBER


def add_one_word(source, target):
    """Write a file with the number of the environment after the content of another."""
    target.write_text(f"{source.read_text()} {number()}")
    return number()


def tool():
    """Return what a script of the environment prints."""
    return subprocess.check_output([f"{sys.prefix}/bin/tool"], text=True)


def meet(folder, count):
    """Wait until as many calls are here, which are in different workers then; return where this one
    is.
    """
    pathlib.Path(folder, str(os.getpid())).touch()
    deadline = time.monotonic() + LONG_S / 2
    while len(os.listdir(folder)) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return sys.prefix, os.stat(sys.prefix).st_ino, os.getpid()
