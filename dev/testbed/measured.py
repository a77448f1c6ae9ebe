"""A cluster on this machine, and what its processes need: time, processor time, memory."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent
COMMAND = Path(os.environ.get("EYAS_BIN", PROJECT / "target/release/eyas"))
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
ROLES = ("dispatcher", "executor", "client")


@dataclass
class Cost:
    """What a job took, and what its command said. Processor seconds and memory are of all processes
    of a role.
    """

    seconds: float = 0.0
    said: str = ""
    cpu_s: dict[str, float] = field(default_factory=dict)
    memory_mb: dict[str, float] = field(default_factory=dict)


class MeasuredCluster:
    """A cluster on this machine. A context manager that stops it at its end."""

    def __init__(
        self, folder: Path, *words: str, command: Path = COMMAND, home: str = "home"
    ) -> None:
        self.command = str(command.resolve())
        self.folder = folder
        self.words = words
        self.environment = {**os.environ, "EYAS_HOME": str(folder / home)}
        self.environment.pop("EYAS_ACCESS", None)

    def __enter__(self) -> MeasuredCluster:
        self.eyas("start", "local", *self.words, "--detach")
        return self

    def __exit__(self, *_: object) -> None:
        self.eyas("stop")

    def eyas(self, *words: str) -> str:
        """Runs a command to its end, and returns what it prints."""
        line = [self.command, *words]
        done = subprocess.run(
            line, env=self.environment, cwd=self.folder, capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(f"eyas {' '.join(words)} failed: {done.stderr[-2000:]}")
        return done.stdout

    def submit(self, job: str) -> Cost:
        """Runs the job of a job file to its end."""
        (self.folder / "job.toml").write_text(job)
        before = self.cpu_s()
        began = time.monotonic()
        client = subprocess.Popen(
            [self.command, "submit", "--wait", "job.toml"],
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert client.stderr
        said = client.stderr.read()
        _, status, used = os.wait4(client.pid, 0)
        cost = Cost(time.monotonic() - began, said)
        client.returncode = os.waitstatus_to_exitcode(status)
        if client.returncode:
            raise SystemExit(f"the job failed: {said[-2000:]}")
        cost.cpu_s = {role: seconds - before[role] for role, seconds in self.cpu_s().items()}
        cost.cpu_s["client"] = used.ru_utime + used.ru_stime
        cost.memory_mb = {role: sum(map(largest_mb, self.processes(role))) for role in ROLES[:2]}
        cost.memory_mb["client"] = used.ru_maxrss / 1e3
        return cost

    def cpu_s(self) -> dict[str, float]:
        """Processor seconds so far of the dispatcher and of the executors, without
        their children.
        """
        return {role: sum(map(cpu_s_of, self.processes(role))) for role in ROLES[:2]}

    def processes(self, role: str) -> list[Path]:
        """The processes of a role."""
        home = f"EYAS_HOME={self.environment['EYAS_HOME']}".encode()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
                if words[1:3] == [b"start", role.encode()]:
                    found += (
                        [process] if home in (process / "environ").read_bytes().split(b"\0") else []
                    )
            except OSError:
                continue
        return found


def largest_mb(process: Path) -> float:
    """The largest resident memory of a process."""
    lines = (process / "status").read_text().splitlines()
    return next(float(line.split()[1]) / 1e3 for line in lines if line.startswith("VmHWM"))


def cpu_s_of(process: Path) -> float:
    """Processor seconds of a process."""
    fields = (process / "stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_A_SECOND
