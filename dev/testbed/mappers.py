"""Systems that run a program over all parts of a file, on nodes with limited processors: eyas and
others.

Each is a context manager: its processes are started without limits, since starting a Java machine
on a fifteenth of a processor would take too long. Its value runs the program over the whole file
and returns the seconds. For eyas these include the whole command; for Spark and Dask only the work
within a warm session. All run the same program on the same bytes: eyas on its chunks, the others on
the file, which is in the memory of the machine, as if each node had cached it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from capped import Node
from cluster import eyas

START_S, RUN_S = 120, 330
POLICIES = {
    "static": ["--policy", "static"],
    "multiwave": ["--policy", "multiwave"],
    "io-aware": ["--policy", "io-aware"],
    "lean, alpha 0.5": ["--policy", "lean", "--alpha", "0.5"],
    "lean, alpha auto": ["--policy", "lean", "--alpha", "auto"],
}

Runs = dict[str, Callable[[], float]]
System = Callable[[list[Node], "Work"], AbstractContextManager[Runs]]


@dataclass
class Work:
    """A program, and a text of this many parts."""

    text: Path
    chunks: int
    program: list[str]

    @property
    def bytes(self) -> int:
        """Size of the text."""
        return self.text.stat().st_size

    @property
    def chunk_bytes(self) -> int:
        """Size of a part, before it is extended to the end of its last line."""
        return max(1024, -(-self.bytes // self.chunks))

    def parts(self) -> list[tuple[str, int, int, list[str]]]:
        """All parts: the file, the range in it, and the program, so that another process can run
        it.
        """
        ends = [0]
        with open(self.text, "rb") as file:
            while ends[-1] < self.bytes:
                file.seek(min(ends[-1] + self.chunk_bytes, self.bytes) - 1)
                file.readline()
                ends.append(file.tell())
        return [(str(self.text), begin, end, self.program) for begin, end in zip(ends, ends[1:])]


def timed(act: Callable[[], object]) -> float:
    """Seconds of one run."""
    began = time.monotonic()
    act()
    return time.monotonic() - began


def wait_for(is_so: Callable[[], bool], what: str) -> None:
    """Waits until the condition holds."""
    deadline = time.monotonic() + START_S
    while not is_so():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} takes too long")
        time.sleep(0.1)


class Eyas:
    """A dispatcher, and an executor in each node. Its files are in `/text`, one for each concurrent
    job.
    """

    def __init__(self, nodes: list[Node], works: Sequence[Work], ending: ExitStack) -> None:
        self.works, self.tasks = works, len(nodes)
        folder = nodes[0].folder.parent
        self.environment = {
            **os.environ,
            "EYAS_HOME": str(folder / "home"),
            "EYAS_CLUSTER": "straggler",
        }
        self.log = ending.enter_context(open(folder / "log", "ab"))
        self._start(None, ["dispatcher", "--listen", "127.0.0.1:0"], ending)
        for node in nodes:
            words = [
                "executor",
                "--dfs",
                "--slots",
                len(works),
                "--name",
                node.name,
                "--folder",
                node.folder / "eyas",
            ]
            self._start(node, words, ending)
        wait_for(lambda: self._joined() == len(nodes), "starting a cluster")
        for place, work in enumerate(works):
            self._check("dfs", "put", work.text, f"/text/{place}", "--chunk-size", work.chunk_bytes)

    def _start(self, node: Node | None, words: Sequence[object], ending: ExitStack) -> None:
        command = [eyas(), "start", *words, "--owned"]
        start = node.start if node else subprocess.Popen
        options: dict[str, Any] = {
            "env": self.environment,
            "stdin": subprocess.PIPE,
            "stderr": self.log,
        }
        process = start([str(word) for word in command], stdout=subprocess.PIPE, **options)
        ending.callback(process.wait, START_S)
        ending.callback(process.stdin.close)
        if node is None:
            process.stdout.readline()

    def _joined(self) -> int:
        asked = subprocess.run(
            [eyas(), "--json", "dfs", "du"], env=self.environment, capture_output=True
        )
        nodes = json.loads(asked.stdout)["usage"]["nodes"] if asked.returncode == 0 else []
        return sum(node["is_member"] for node in nodes)

    def _begin(self, *words: object) -> subprocess.Popen[bytes]:
        command = [eyas(), *[str(word) for word in words]]
        return subprocess.Popen(
            command, env=self.environment, stdout=subprocess.DEVNULL, stderr=self.log
        )

    def _check(self, *words: object) -> None:
        if self._begin(*words).wait(RUN_S):
            raise RuntimeError(
                f"eyas {words[0]} has failed: {Path(self.log.name).read_text()[-500:]}"
            )

    def map(self, words: Sequence[str]) -> None:
        """Runs all jobs at once."""
        # Few enough tasks that all jobs have slots from the beginning.
        words = [*words, "--tasks", str(self.tasks)]
        jobs = [
            self._begin("map", f"/text/{place}", *words, "--", *work.program)
            for place, work in enumerate(self.works)
        ]
        if any([job.wait(RUN_S) for job in jobs]):
            raise RuntimeError(f"eyas map has failed: {Path(self.log.name).read_text()[-500:]}")


@contextlib.contextmanager
def eyas_over(nodes: list[Node], works: Sequence[Work], policies: Sequence[str]) -> Iterator[Runs]:
    """Runs one job for each file, all at once, with these policies."""
    with ExitStack() as ending:
        cluster = Eyas(nodes, works, ending)
        yield {
            name: lambda words=POLICIES[name]: timed(lambda: cluster.map(words))
            for name in policies
        }
