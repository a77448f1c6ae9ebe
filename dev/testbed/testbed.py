#!/usr/bin/env python3
"""An emulated cluster on one machine: nodes with network links of a given rate, and slow shared
storage.

    dev/testbed/testbed.py up [--nodes 8] [--link 100mbit] [--store-link 200mbit] [--page-cache]
    dev/testbed/testbed.py run NODE COMMAND...     run a command in `n1`, `n2` ..., `head` or
                                                   `store`
    dev/testbed/testbed.py kill NODE               kill -9 all of its processes; the node does not
                                                   come back
    dev/testbed/testbed.py status
    dev/testbed/testbed.py check                   list what is missing on this machine
    dev/testbed/testbed.py down                    also after an `up` that failed or was killed

A node is a process namespace with its own network, mounts and host name. Its first process holds
all of them: killing that process removes the node with its mounts and links. Nodes are connected by
a bridge, and both directions of each link are shaped (`links.py`). `store` has the shared files and
serves them over SFTP without encryption; `head` and all nodes mount them at one path, so all bytes
read from there cross the store's link. Without `--page-cache`, nodes do not cache what they read,
as if the files were larger than memory.

Nothing is created in the machine's own namespaces, and no packet can leave: there is no route.
Needs root, Linux, the programs of NEEDED, and Python 3.9 or later. All files are in $EYAS_TESTBED,
by default /tmp/eyas-testbed-UID. A folder has one testbed: `up`, and so every experiment, removes
the previous one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import links

MARK = "EYAS_TESTBED_OF"
SFTP_PORT = 7000
SFTP_SERVERS = (Path("/usr/lib/openssh/sftp-server"), Path("/usr/libexec/openssh/sftp-server"))
DEADLINE_S = 30
MAX_NODES = 200  # their addresses share one last byte, and come after those of store and head

# Program, and the Debian package that has it.
NEEDED = [
    ("ip", "iproute2"),
    ("tc", "iproute2"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("setpriv", "util-linux"),
    ("mount", "mount"),
    ("hostname", "hostname"),
    ("sshfs", "sshfs"),
]


class TestbedError(Exception):
    """Something is missing or has failed; the message says what to do."""


def sftp_server() -> Path | None:
    """OpenSSH's SFTP server, which uses standard streams."""
    return next((path for path in SFTP_SERVERS if path.exists()), None)


def check_needs() -> None:
    """Reports everything that is missing at once."""
    missing = (
        [] if os.geteuid() == 0 else ["the rights of root (sudo); namespaces and links need them"]
    )
    packages = {package for program, package in NEEDED if shutil.which(program) is None}
    if sftp_server() is None:
        packages.add("openssh-sftp-server")
    if packages:
        missing.append(
            f"programs: on Debian and Ubuntu, apt-get install {' '.join(sorted(packages))}"
        )
    if not Path("/dev/fuse").exists():
        missing.append("/dev/fuse: load the kernel's module `fuse`")
    if missing:
        raise TestbedError("the testbed lacks " + "; and ".join(missing))


def marked(mark: str) -> Iterator[int]:
    """Processes whose environment has this entry."""
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark.encode() in (process / "environ").read_bytes().split(b"\0"):
                    yield int(process.name)


def is_alive(process: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Testbed:
    """The nodes of one folder."""

    def __init__(self, folder: str | Path | None = None) -> None:
        """A testbed in this folder, by default in the folder that all commands use. It need not be
        up.
        """
        default = os.environ.get("EYAS_TESTBED") or f"/tmp/eyas-testbed-{os.geteuid()}"
        self.folder = Path(folder or default).resolve()
        self.mount = self.folder / "mnt"  # where nodes see the shared files
        self.shared = self.folder / "shared"  # where they lie; not to be read from there by a node
        self.mark = f"{MARK}={self.folder}"
        self.held: list[subprocess.Popen[bytes]] = []

    # ---- up and down

    def up(
        self,
        nodes: int,
        link: str,
        store_link: str,
        page_cache: bool = False,
        head_link: str = "",
        shares: bool = True,
    ) -> None:
        """Creates everything. Raises TestbedError, after which nothing is left. Without `shares`,
        no node sees the shared files until the caller mounts them.
        """
        check_needs()
        if not 1 <= nodes <= MAX_NODES:
            raise TestbedError(f"{nodes} nodes: there may be 1 to {MAX_NODES}")
        texts = (link, store_link, head_link or link)
        rates = [links.bits_per_s(text) for text in texts]
        self.down()
        for part in ("nodes", "mnt", "shared", "pids", "log"):
            (self.folder / part).mkdir(parents=True)
        addresses = links.addresses(nodes)
        hosts = "".join(f"{address} {name}\n" for name, address in addresses.items())
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost\n{hosts}")
        try:
            self._hold("switch")
            for name in addresses:
                (self.folder / "nodes" / name).mkdir()
                self._hold(name)
                self.check(name, ["mount", "--bind", self.folder / "hosts", "/etc/hosts"])
            links.connect(self.holder, addresses, *rates)
            if shares:
                self._share(addresses, page_cache)
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """Kills every process of the testbed, which removes all else, and removes its folder."""
        deadline = time.monotonic() + DEADLINE_S
        while left := [process for process in marked(self.mark) if is_alive(process)]:
            if time.monotonic() > deadline:
                raise TestbedError(f"processes {left} of the testbed do not end")
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.05)
        if (
            self.folder.exists()
            and not (self.folder / "nodes").exists()
            and any(self.folder.iterdir())
        ):
            raise TestbedError(f"{self.folder} is not the folder of a testbed, and stays")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _hold(self, name: str) -> None:
        """Starts the first process of a node, which also reaps orphans."""
        words = [
            "unshare",
            "--net",
            "--mount",
            "--uts",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]
        script = f"hostname {name}; echo ready; exec >&-; while :; do sleep 1000; done"
        holder = subprocess.Popen(
            [*words, "sh", "-c", script],
            env={**os.environ, MARK: str(self.folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=(self.folder / "log" / f"{name}.holder").open("w"),
            start_new_session=True,
            text=True,
        )
        assert holder.stdout is not None
        if holder.stdout.readline() != "ready\n":
            said = (self.folder / "log" / f"{name}.holder").read_text().strip()
            raise TestbedError(f"no namespaces for node {name}: {said}")
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
        (self.folder / "pids" / name).write_text(children[0])

    def _share(self, addresses: dict[str, str], page_cache: bool) -> None:
        """Serves the shared files from `store`, and mounts them on all others."""
        server = [
            sys.executable,
            Path(__file__).resolve().parent / "serve.py",
            str(SFTP_PORT),
            sftp_server(),
        ]
        serving = self.start("store", server, stdout=subprocess.PIPE, log="store.sftp")
        assert serving.stdout is not None
        if serving.stdout.readline() != b"ready\n":
            raise TestbedError(
                f"no file server: {(self.folder / 'log' / 'store.sftp').read_text()}"
            )
        serving.stdout.close()
        options = f"directport={SFTP_PORT},auto_cache" + ("" if page_cache else ",direct_io")
        for name in addresses:
            if name != "store":
                self.check(name, ["sshfs", "-o", options, f"store:{self.shared}", self.mount])

    # ---- nodes

    def holder(self, node: str) -> int:
        """The process that holds a node's namespaces."""
        try:
            process = int((self.folder / "pids" / node).read_text())
        except OSError:
            raise TestbedError(
                f"there is no node `{node}`; nodes are: {' '.join(self.nodes()) or 'none'}"
            ) from None
        if not is_alive(process):
            raise TestbedError(f"node {node} is dead")
        return process

    def nodes(self) -> list[str]:
        """All nodes, including killed ones, in the order of creation."""
        hosts = self.folder / "hosts"
        return (
            [line.split()[1] for line in hosts.read_text().splitlines()[1:]]
            if hosts.exists()
            else []
        )

    def put(self, folder: str, contents: Iterable[bytes]) -> list[Path]:
        """Shares files with these contents in a new folder. Returns their path on the nodes."""
        (self.shared / folder).mkdir()
        names = []
        for number, content in enumerate(contents):
            names.append(f"{number:03}")
            (self.shared / folder / names[-1]).write_bytes(content)
        return [self.mount / folder / name for name in names]

    def forget(self, *folders: str) -> None:
        """Removes folders of the shared files."""
        for folder in folders:
            shutil.rmtree(self.shared / folder)

    def words(self, node: str, command: Sequence[object]) -> list[str]:
        """Command to run outside so that `command` runs in the node."""
        enter = ["nsenter", f"--target={self.holder(node)}", "--net", "--mount", "--uts", "--pid"]
        # The command ends with the process outside.
        return [*enter, "env", self.mark, "setpriv", "--pdeathsig", "KILL", *map(str, command)]

    def start(
        self, node: str, command: Sequence[object], log: str = "", **options: Any
    ) -> subprocess.Popen[bytes]:
        """Starts a command in a node. Its output goes to a file of this name in `log/`, or where
        `options` say.
        """
        words = self.words(node, command)
        if not log:
            return subprocess.Popen(words, start_new_session=True, **options)
        with (self.folder / "log" / log).open("ab") as file:
            options = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": file, **options}
            return subprocess.Popen(words, start_new_session=True, **options)

    def hold(self, node: str, command: Sequence[object], log: str) -> subprocess.Popen[bytes]:
        """Starts a command in a node that serves until its standard input ends, which is when the
        caller or the testbed ends.
        """
        process = self.start(node, command, log, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.held.append(process)
        return process

    def check(self, node: str, command: Sequence[object], timeout_s: float = DEADLINE_S) -> str:
        """Runs a command in a node to its end. Returns its output; raises TestbedError if
        it fails.
        """
        words = self.words(node, ["timeout", str(timeout_s), *command])
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            what = shlex.join(map(str, command))
            raise TestbedError(
                f"{node}: `{what}` ended with {done.returncode}: {done.stderr.strip()}"
            )
        return done.stdout

    def kill(self, node: str) -> None:
        """Kills all processes of a node at once. The kernel closes their connections, as after any
        kill -9.
        """
        os.kill(self.holder(node), signal.SIGKILL)

    def sent_bytes(self, node: str) -> int:
        """Bytes that a node has sent over its link, headers included."""
        return links.counted(self.holder(node), column=8)

    def received_bytes(self, node: str) -> int:
        """Bytes that a node has received over its link, headers included."""
        return links.counted(self.holder(node), column=0)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="create all nodes")
    up.add_argument("--nodes", type=int, default=8, help="number of nodes besides store and head")
    up.add_argument("--link", default="100mbit", help="rate of each node's link in each direction")
    up.add_argument(
        "--store-link", default="200mbit", help="rate of the store's link in each direction"
    )
    up.add_argument(
        "--page-cache", action="store_true", help="nodes cache what they read of the shared files"
    )
    run = commands.add_parser("run", help="run a command in a node")
    run.add_argument("node")
    run.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND")
    kill = commands.add_parser("kill", help="kill all processes of a node")
    kill.add_argument("node")
    commands.add_parser("status", help="list the nodes")
    commands.add_parser("check", help="list what is missing on this machine")
    commands.add_parser("down", help="stop and remove everything")
    asked = parser.parse_args()
    testbed = Testbed()
    try:
        if asked.command == "up":
            testbed.up(asked.nodes, asked.link, asked.store_link, asked.page_cache)
            links_are = f"n1 to n{asked.nodes} at {asked.link}, store at {asked.store_link}"
            print(f"up: {links_are}; shared files at {testbed.mount}")
        elif asked.command == "run":
            if not asked.words:
                parser.error("run needs a command")
            return subprocess.run(testbed.words(asked.node, asked.words)).returncode
        elif asked.command == "kill":
            testbed.kill(asked.node)
        elif asked.command == "check":
            check_needs()
        elif asked.command == "status":
            for node in testbed.nodes():
                process = int((testbed.folder / "pids" / node).read_text())
                print(node, f"up, process {process}" if is_alive(process) else "dead")
        else:
            testbed.down()
    except (TestbedError, links.LinkError) as error:
        print(f"testbed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
