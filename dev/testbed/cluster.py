"""A cluster of eyas on the testbed: dispatcher and clients in `head`, an executor in each node."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from testbed import Testbed, TestbedError

PROJECT = Path(__file__).resolve().parent.parent.parent
NAME = "testbed"
PORT = 7400
START_S, JOB_S = 60, 3600
# Numbers of clusters. A mount may still remember the folder of a node that an earlier one had.
NUMBERS = itertools.count(1)


def eyas() -> str:
    """The command that is measured: $EYAS_BIN, else the release build."""
    target = Path(os.environ.get("CARGO_TARGET_DIR") or PROJECT / "target")
    path = Path(os.environ.get("EYAS_BIN") or target / "release" / "eyas").resolve()
    if not path.exists():
        raise TestbedError(
            f"there is no {path}: cargo build --release -p eyas-cli, or say in EYAS_BIN where it is"
        )
    return str(path)


@dataclass
class Job:
    """A job that has ended."""

    elapsed_s: float
    tasks: list[dict[str, Any]]
    reads: dict[str, int]  # bytes by where they came from: local, peer, persistent

    @property
    def staged_s(self) -> float:
        """Seconds from the start of the job until the last task, counting first attempts, had its
        inputs.
        """
        instants = [
            int(task["queued_us"] + task["waited_us"]) for task in self.tasks if task["tries"] == 1
        ]
        return max(instants) / 1e6

    @property
    def mean_run_s(self) -> float:
        """Mean run time of tasks, without staging."""
        return statistics.fmean(task["ran_us"] for task in self.tasks) / 1e6

    @property
    def executors(self) -> int:
        """Number of nodes on which its tasks ran."""
        return len({task["executor"] for task in self.tasks})


class Cluster:
    """Executors with empty stores on these nodes. A context manager that stops all processes at its
    end.
    """

    def __init__(
        self, bed: Testbed, nodes: list[str], policy: str = "", files: bool = False, slots: int = 1
    ) -> None:
        self.bed = bed
        self.slots = slots
        self.nodes = nodes
        self.policy = ["--policy", policy] if policy else []
        self.files = files
        self.home = bed.folder / "home"
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Cluster:
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir()
        try:
            listen = ["--listen", f"0.0.0.0:{PORT}", "--advertise", "head", "--owned", *self.policy]
            self._start(
                "head", ["start", "dispatcher", *listen], "dispatcher.log", stdout=subprocess.PIPE
            )
            self._wait_for_dispatcher()
            number = next(NUMBERS)
            for node in self.nodes:
                for old in (self.bed.folder / "nodes" / node).glob("eyas-*"):
                    shutil.rmtree(old, ignore_errors=True)
                folder = self.bed.folder / "nodes" / node / f"eyas-{number}"
                words = [
                    "start",
                    "executor",
                    "--folder",
                    folder,
                    "--slots",
                    self.slots,
                    "--name",
                    node,
                    "--owned",
                ]
                words += ["--dfs"] if self.files else []
                self._start(node, words, "executors.log")
            deadline = time.monotonic() + START_S
            while (there := len(self.ask("executor", "list")["executors"])) < len(self.nodes):
                if time.monotonic() > deadline:
                    raise TestbedError(
                        f"{there} of {len(self.nodes)} executors are up; see {self.bed.folder}/log"
                    )
                time.sleep(0.1)
            while self.files and len(self.ask("dfs", "du")["usage"]["nodes"]) < len(self.nodes):
                if time.monotonic() > deadline:
                    raise TestbedError(f"not all nodes keep files; see {self.bed.folder}/log")
                time.sleep(0.1)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in reversed(self.processes):  # the dispatcher last
            if process.stdin:
                process.stdin.close()
        for process in reversed(self.processes):
            process.wait(START_S)

    def _start(self, node: str, words: list[object], log: str, **options: Any) -> None:
        """Starts a process of the cluster, which ends when its standard input is closed."""
        command = self.words(eyas(), *words)
        self.processes.append(
            self.bed.start(node, command, log=log, stdin=subprocess.PIPE, **options)
        )

    def _wait_for_dispatcher(self) -> None:
        """Waits until the dispatcher reports that it listens."""
        output = self.processes[0].stdout
        if output is None or output.readline() != b"ready\n":
            said = (self.bed.folder / "log" / "dispatcher.log").read_text()
            raise TestbedError(f"the dispatcher has not started: {said[-500:]}")

    def words(self, *command: object) -> list[object]:
        """A command with the variables that point eyas to this cluster."""
        return ["env", f"EYAS_HOME={self.home}", f"EYAS_CLUSTER={NAME}", *command]

    def ask(self, *words: str) -> dict[str, Any]:
        """JSON answer of a command."""
        answer: dict[str, Any] = json.loads(
            self.bed.check("head", self.words(eyas(), "--json", *words), JOB_S)
        )
        return answer

    def run(self, *command: object) -> Job:
        """Runs a command in `head` that runs one job. Returns the job."""
        self.bed.check("head", self.words(*command), JOB_S)
        return self.last_job()

    def last_job(self) -> Job:
        """The newest job, which has ended."""
        number = str(max(job["job"] for job in self.ask("job", "list")["jobs"]))
        job = self.ask("job", "show", number)["jobs"][0]
        tasks = self.ask("task", "list", number, "--limit", "10000")["tasks"]
        reads = {place: job["reads"][place]["bytes"] for place in ("local", "peer", "persistent")}
        return Job(job["elapsed_us"] / 1e6, tasks, reads)
