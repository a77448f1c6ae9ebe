"""Keeps a node busy: writes a file and reads it again, past the page cache, forever; and computes
at the same time.

busy.py FILE
"""

from __future__ import annotations

import hashlib
import mmap
import os
import signal
import sys

BLOCK_BYTES = 1 << 20
BLOCKS = 16


def read_and_write(path: str) -> None:
    """Keeps the disk busy."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
    block = mmap.mmap(-1, BLOCK_BYTES)  # its address is one that direct reads and writes can have
    while True:
        for act in (os.pwritev, os.preadv):
            for number in range(BLOCKS):
                act(file, [block], number * BLOCK_BYTES)


def compute() -> None:
    """Keeps a processor busy."""
    content = bytes(BLOCK_BYTES)
    while True:
        hashlib.sha256(content).digest()


def main() -> None:
    """Runs until it is terminated, together with its other process."""
    computing = os.fork()
    if computing == 0:
        compute()

    def end(number: int, _frame: object) -> None:
        os.kill(computing, signal.SIGKILL)
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)
    read_and_write(sys.argv[1])


if __name__ == "__main__":
    main()
