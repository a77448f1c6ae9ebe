"""Starts a program for each connection, with the connection as its standard input and output.
Prints `ready` when it listens.

    serve.py PORT PROGRAM

So a server made for standard streams, such as that of SFTP, serves a port.
"""

from __future__ import annotations

import socketserver
import subprocess
import sys


class Connection(socketserver.BaseRequestHandler):
    """One connection."""

    def handle(self) -> None:
        """Lets the program have it, until one of the two ends."""
        subprocess.run([sys.argv[2]], stdin=self.request, stdout=self.request, check=False)


class Server(socketserver.ThreadingTCPServer):
    """Handles all connections concurrently."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256


if __name__ == "__main__":
    with Server(("0.0.0.0", int(sys.argv[1])), Connection) as server:
        print("ready", flush=True)
        server.serve_forever()
