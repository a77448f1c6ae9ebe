"""Copies a file over plain sockets to several nodes in a chain: the time that network and disks
take without a file system.

    plain_copy.py take PORT FILE [NEXT]     receive a copy and pass it on to NEXT at the same time;
                                            prints `ready` first
    plain_copy.py give PORT FILE NODE       send the file to a node; returns when the whole chain
                                            has it
"""

from __future__ import annotations

import socket
import sys
from contextlib import ExitStack

BUFFER_BYTES = 1 << 20


def take(port: int, path: str, following: str | None) -> None:
    """The receiver; it answers with a byte when the rest of the chain has answered."""
    with ExitStack() as open_ones, socket.create_server(("0.0.0.0", port)) as server:
        print("ready", flush=True)
        source = open_ones.enter_context(server.accept()[0])
        file = open_ones.enter_context(open(path, "wb", buffering=0))
        behind = (
            open_ones.enter_context(socket.create_connection((following, port)))
            if following
            else None
        )
        buffer = memoryview(bytearray(BUFFER_BYTES))
        while count := source.recv_into(buffer):
            file.write(buffer[:count])
            if behind:
                behind.sendall(buffer[:count])
        if behind:
            behind.shutdown(socket.SHUT_WR)
            assert behind.recv(1), "the next node has not got it"
        source.sendall(b".")


def give(port: int, path: str, node: str) -> None:
    """The sender."""
    with open(path, "rb") as file, socket.create_connection((node, port)) as connection:
        connection.sendfile(file)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1), f"{node} has not got it"


if __name__ == "__main__":
    if sys.argv[1] == "take":
        take(int(sys.argv[2]), sys.argv[3], sys.argv[4] if len(sys.argv) > 4 else None)
    else:
        give(int(sys.argv[2]), sys.argv[3], sys.argv[4])
