"""A real Slurm on this machine, and dispatchers of eyas that submit to it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from measured import COMMAND, TICKS_A_SECOND

SCRIPT = Path(__file__).resolve().parent / "slurm.sh"
DEADLINE_S = 900


class Slurm:
    """Starts a Slurm whose nodes are processes on this machine. A context manager that ends it."""

    def __init__(self, folder: Path, nodes: int, cpus: int = 2, scheduler: str = "") -> None:
        self.folder = folder
        self.nodes = nodes
        self.cpus = cpus
        of_slurm = {"SLURM_SCHEDULER": scheduler, "SLURM_CONF": str(folder / "slurm.conf")}
        self.environment = {**os.environ, **of_slurm, "LC_ALL": "C"}

    def __enter__(self) -> Slurm:
        words = [SCRIPT, "up", "-n", str(self.nodes), "-c", str(self.cpus), self.folder]
        subprocess.run(words, env=self.environment, check=True, stdout=subprocess.DEVNULL)
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run([SCRIPT, "down", self.folder], check=False)

    def run(self, *words: str) -> str:
        """Runs a command of Slurm. Returns its standard output."""
        done = subprocess.run(
            words, env=self.environment, cwd=self.folder, capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(words)} failed: {done.stderr}")
        return done.stdout

    def queued(self) -> int:
        """Number of jobs that wait or run."""
        return len(self.run("squeue", "--noheader", "--format=%i").split())

    def wait_until_idle(self) -> None:
        """Waits until no job is left and all nodes are idle."""
        wait_until("the nodes are idle", lambda: self.queued() == 0 and self._idle() == self.nodes)

    def _idle(self) -> int:
        return int(
            self.run(
                "sinfo", "--noheader", "--partition=main", "--states=idle", "--format=%D"
            ).strip()
            or 0
        )

    def node_seconds(self, began_s: float, ended_s: float) -> float:
        """Seconds for which jobs held nodes between two times. Slurm counts whole seconds."""
        held = 0.0
        for line in self.run("scontrol", "--oneliner", "show", "job").splitlines():
            fields = dict(re.findall(r"(\S+?)=(\S*)", line))
            # A job that runs will end at its time limit.
            start, end = (seconds_of(fields[name]) for name in ["StartTime", "EndTime"])
            if fields["JobState"] != "PENDING" and start is not None and end is not None:
                nodes = int(fields["NumNodes"].split("-")[0])
                held += nodes * max(0.0, min(end, ended_s) - max(start, began_s))
        return held


def seconds_of(text: str) -> float | None:
    """Seconds since 1970 of a time that Slurm prints; none if it is not known."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def wait_until(
    what: str, fact: Callable[[], bool], pause_s: float = 0.05, deadline_s: float = DEADLINE_S
) -> None:
    """Waits until `fact` holds."""
    deadline = time.monotonic() + deadline_s
    while not fact():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited in vain for: {what}")
        time.sleep(pause_s)


class SlurmDispatcher:
    """A dispatcher of eyas in a home of its own. A context manager that stops it at its end."""

    def __init__(self, slurm: Slurm, home: Path, **environment: str) -> None:
        self.home = home
        self.environment = {
            **slurm.environment,
            **environment,
            "EYAS_HOME": str(home),
            "EYAS_CLUSTER": "figures",
        }
        self.environment.pop("EYAS_ACCESS", None)

    def __enter__(self) -> SlurmDispatcher:
        self.home.mkdir()
        self.eyas("start", "dispatcher", "--listen", "127.0.0.1:0", "--detach")
        return self

    def __exit__(self, *_: object) -> None:
        # Requests by the thousand are not withdrawn in time.
        subprocess.run([COMMAND.resolve(), "stop"], env=self.environment, capture_output=True)

    def eyas(self, *words: str) -> str:
        """Runs a command of eyas to its end. Returns its standard output."""
        line = [str(COMMAND.resolve()), *words]
        done = subprocess.run(
            line, env=self.environment, cwd=self.home, capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(f"eyas {' '.join(words)} failed: {done.stderr[-2000:]}")
        return done.stdout

    def ask(self, *words: str) -> Any:
        """Answer of a command in JSON."""
        return json.loads(self.eyas("--json", *words))

    def add_pool(self, name: str, *words: str) -> None:
        """Adds a pool on Slurm, whose nodes need no space on this machine's disk."""
        self.eyas("pool", "add", "slurm", name, "--executor-option=--keep-free=10MB", *words)

    def pool(self, name: str) -> dict[str, Any]:
        """What is known of a pool."""
        shown: dict[str, Any] = self.ask("pool", "show", name)["pools"][0]
        return shown

    def cpu_s(self) -> tuple[float, float]:
        """Processor seconds of the dispatcher, and of the commands that it has run."""
        home = f"EYAS_HOME={self.home}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
                if words[1:3] == [b"start", b"dispatcher"] and home in (
                    process / "environ"
                ).read_bytes().split(b"\0"):
                    fields = (process / "stat").read_text().rsplit(")", 1)[1].split()
                    own, others = (sum(map(int, fields[place : place + 2])) for place in (11, 13))
                    return own / TICKS_A_SECOND, others / TICKS_A_SECOND
            except OSError:
                continue
        raise SystemExit("the dispatcher has ended")
