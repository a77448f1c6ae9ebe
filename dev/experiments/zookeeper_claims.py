#!/usr/bin/env python3
"""Benchmark: chunks a second that workers claim from a ZooKeeper server with one lock each, as
VeloxDFS does (elastic-blocks §2.5). Compare with `cargo bench -p eyas-dev --bench leases`.

    dev/tools/peers.sh kazoo
    target/peers/bin/python dev/experiments/zookeeper_claims.py [--tiny] [--workers 4] [--seconds 5]

One server on this machine, from Debian's `zookeeper`, is started and stopped by this program;
workers are processes with a session each. A lock is an ephemeral node: the worker that creates the
node has the chunk. *alone*: each worker claims the chunks of its own part and waits for each
answer. *shared*: all claim the same chunks; a worker that comes second tries the next one.
*together*: like alone, but 64 claims are under way at a time, while the paper takes one lock after
the other. Each is measured with the server's log synced to the disk, and without (`forceSync=no`).
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import logging
import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

JARS = "/usr/share/java/"
NEEDED = ("zookeeper", "slf4j", "netty", "log4j", "commons-cli", "snappy-java", "metrics-core")
START_S = 60
TOGETHER = 64


@contextlib.contextmanager
def server(folder: Path, is_synced: bool) -> Iterator[str]:
    """A ZooKeeper server. Returns its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    told = {
        "tickTime": 2000,
        "dataDir": folder,
        "clientPort": port,
        "clientPortAddress": "127.0.0.1",
    }
    told |= {"admin.enableServer": "false", "maxClientCnxns": 0}
    (folder / "zoo.cfg").write_text("".join(f"{key}={value}\n" for key, value in told.items()))
    jars = os.pathsep.join(jar for name in NEEDED for jar in glob.glob(f"{JARS}{name}*.jar"))
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    sync = f"-Dzookeeper.forceSync={'yes' if is_synced else 'no'}"
    with open(folder / "log", "wb") as log:
        command = ["java", "-Xmx512m", sync, "-cp", jars, main, folder / "zoo.cfg"]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    f"ZooKeeper does not start: {(folder / 'log').read_text()[-500:]}"
                )
            time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def work(place: str, kind: str, worker: int, seconds: float, ready: Any, claimed: Any) -> None:
    """Claims chunks for this time, and reports the number."""
    from kazoo.client import KazooClient
    from kazoo.exceptions import NodeExistsError

    logging.disable(logging.CRITICAL)
    client = KazooClient(hosts=place)
    client.start()
    folder = f"/{kind}" if kind == "shared" else f"/{kind}-{worker}"
    client.ensure_path(folder)
    ready.wait()
    chunk = got = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if kind == "together":
            asked = [
                client.create_async(f"{folder}/{chunk + more}", ephemeral=True)
                for more in range(TOGETHER)
            ]
            for answer in asked:
                answer.get()
            chunk, got = chunk + TOGETHER, got + TOGETHER
            continue
        with contextlib.suppress(NodeExistsError):
            client.create(f"{folder}/{chunk}", ephemeral=True)
            got += 1
        chunk += 1
    claimed.put(got)
    client.stop()


def rate(place: str, kind: str, workers: int, seconds: float) -> float:
    """Chunks a second of all workers."""
    ready, claimed = multiprocessing.Barrier(workers), multiprocessing.Queue()
    working = [
        multiprocessing.Process(target=work, args=(place, kind, worker, seconds, ready, claimed))
        for worker in range(workers)
    ]
    for process in working:
        process.start()
    got = sum(claimed.get() for _ in working)
    for process in working:
        process.join()
    return got / seconds


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", action="store_true", help="quick test; the figures mean nothing")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=5, help="seconds of each measurement")
    asked = parser.parse_args()
    if shutil.which("java") is None or not os.path.exists(f"{JARS}zookeeper.jar"):
        print("there is no ZooKeeper: apt-get install zookeeper", file=sys.stderr)
        return 1
    seconds = 0.2 if asked.tiny else asked.seconds
    print(f"{asked.workers} workers; chunks claimed a second\n\n{'':>12}  on disk  not on disk")
    for kind in ("alone", "shared", "together"):
        rates = []
        for is_synced in (True, False):
            with tempfile.TemporaryDirectory(prefix="eyas-zookeeper-") as folder:
                with server(Path(folder), is_synced) as place:
                    rates.append(rate(place, kind, asked.workers, seconds))
        print(f"{kind:>12}  {rates[0]:>7.0f}  {rates[1]:>11.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
