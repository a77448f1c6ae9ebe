"""Reads files in pieces of 32 KiB, as the program of data-diffusion §4.2 does, and with `--copies`
writes what it has read to another file.

    reader.py [--copies FOLDER] FILE...

Prints `ready`, and waits for a line with two times of the monotonic clock. It reads the files in
turns until the second time, and then prints how many bytes it has read and written since the first.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import sys
import time
from pathlib import Path

PIECE_BYTES = 32 << 10


def main() -> None:
    """Reads and writes, and counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--copies", type=Path)
    parser.add_argument("files", nargs="+")
    asked = parser.parse_args()
    print("ready", flush=True)
    begin, end = map(float, sys.stdin.readline().split())
    counted = 0
    for number, path in enumerate(itertools.cycle(asked.files)):
        source = os.open(path, os.O_RDONLY)
        with contextlib.ExitStack() as opened:
            opened.callback(os.close, source)
            target = None
            if asked.copies:
                # Processes of two nodes may have one number.
                made = asked.copies / f"{os.uname().nodename}-{os.getpid()}-{number}"
                target = os.open(made, os.O_WRONLY | os.O_CREAT)
                opened.callback(os.unlink, made)
                opened.callback(os.close, target)
            while piece := os.read(source, PIECE_BYTES):
                counted += len(piece) * (begin <= time.monotonic() <= end)
                if target is not None:
                    counted += os.write(target, piece) * (begin <= time.monotonic() <= end)
                if time.monotonic() > end:
                    print(counted)
                    return


if __name__ == "__main__":
    main()
