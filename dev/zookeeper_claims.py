#!/usr/bin/env python3
"""How many chunks a second workers claim from a ZooKeeper by a lock each, as VeloxDFS does (elastic-blocks §2.5), to be read
beside `cargo bench -p eyas-dev --bench leases`.

    dev/peers.sh kazoo && target/peers/bin/python dev/zookeeper_claims.py [--tiny] [--workers 4] [--seconds 5]

One server on this machine, from Debian's `zookeeper`, started and ended by this; workers are processes, each with a session of its own.
A lock is an ephemeral node: who makes it has the chunk. *alone*: each tries the chunks of its own part, and waits for each answer.
*shared*: all try the same chunks, and whoever comes second goes on to the next. *together*: like alone, with 64 asked for at a
time, which the paper's one lock after the other does not do. Each is done with the server's log on the disk, and without
waiting for that (`forceSync=no`).
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
    """A ZooKeeper; where it is."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    told = {"tickTime": 2000, "dataDir": folder, "clientPort": port, "clientPortAddress": "127.0.0.1"}
    told |= {"admin.enableServer": "false", "maxClientCnxns": 0}
    (folder / "zoo.cfg").write_text("".join(f"{key}={value}\n" for key, value in told.items()))
    jars = os.pathsep.join(jar for name in NEEDED for jar in glob.glob(f"{JARS}{name}*.jar"))
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    sync = f"-Dzookeeper.forceSync={'yes' if is_synced else 'no'}"
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(["java", "-Xmx512m", sync, "-cp", jars, main, folder / "zoo.cfg"], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"ZooKeeper does not start: {(folder / 'log').read_text()[-500:]}")
            time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def work(place: str, kind: str, worker: int, seconds: float, ready: Any, claimed: Any) -> None:
    """Claims chunks for so long; puts how many it has got."""
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
            asked = [client.create_async(f"{folder}/{chunk + more}", ephemeral=True) for more in range(TOGETHER)]
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="figures without meaning: a moment of each")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=5, help="of each")
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
