#!/usr/bin/env python3
"""Experiment: files that are registered at two mirrors of different rates (replica-coupled §4.1).

    dev/experiments/mirrors.py [--tiny] [--tasks 64] [--rounds 3] [--slow 4] [--fast 16]

- one file: all tasks read one large file, which is registered at the slow mirror alone, at the fast
  one alone, or at both, the slow one first;
- many files: each task reads a file of its own, so that the rates of both mirrors can add up;
- names: 10,000 names with two places each are imported, and queried.

Mirrors are web servers on this machine, each with a limited rate for all of its connections
together. Each job runs on a cluster of its own with two nodes, so that no store has its inputs, and
nothing is known of the mirrors; jobs take turns in each round. Prints medians of the seconds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from measured import MeasuredCluster
from table import conclude, show

PART_BYTES = 16 << 10
MOST_OF_FAST, MOST_OF_ADDED, MOST_IMPORT_S = 1.25, 1.25, 5.0


class Mirror(ThreadingHTTPServer):
    """A web server over a folder. All of its connections together have one rate."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, folder: Path, rate: float) -> None:
        self.rate = rate
        self.free_at = time.monotonic()
        self.lock = threading.Lock()

        class Handler(SimpleHTTPRequestHandler):
            """Sends files as the rate of the mirror permits."""

            protocol_version = "HTTP/1.1"

            def __init__(self, *words: object) -> None:
                super().__init__(*words, directory=str(folder))  # type: ignore[arg-type]

            def copyfile(self, source: object, outputfile: object) -> None:
                """Sends a file part by part."""
                while part := source.read(PART_BYTES):  # type: ignore[attr-defined]
                    mirror.wait_for_turn(len(part))
                    outputfile.write(part)  # type: ignore[attr-defined]

            def log_message(self, *_: object) -> None:
                """Prints nothing."""

        mirror = self
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_: object) -> None:
        """A reader that has gone is no error."""

    def wait_for_turn(self, count: int) -> None:
        """Waits until this number of bytes may be sent."""
        with self.lock:
            self.free_at = max(self.free_at, time.monotonic()) + count / self.rate
            until = self.free_at
        time.sleep(max(0.0, until - time.monotonic()))

    def url(self, name: str) -> str:
        """Where a file of the folder is."""
        return f"http://127.0.0.1:{self.server_port}/{name}"


def job(inputs: str, tasks: int) -> str:
    """A job whose tasks read a file of their own, or all the same."""
    command = 'command = ["sh", "-c", "wc -c <$0", "{input:1}"]'
    if inputs == "one":
        return f'[[task]]\narray = "1-{tasks}"\ninputs = ["lfn://one"]\n{command}\n'
    return f'[[task]]\neach = "lfn://many/*"\n{command}\n'


def names_of(files: dict[str, int], mirrors: list[Mirror]) -> str:
    """The lines of an import: each file with its size, at these mirrors."""
    places = {name: " ".join(mirror.url(name) for mirror in mirrors) for name in files}
    return "".join(f"{name} {places[name]} size={size}\n" for name, size in files.items())


def timed(work: Callable[[], object]) -> float:
    """Seconds that some work takes."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


def names_alone(folder: Path, count: int) -> list[tuple[str, float]]:
    """Imports names and queries them. Returns the seconds of each step."""
    text = "".join(
        f"survey/{number % 100}/{number} http://a/{number} http://b/{number} size=1\n"
        for number in range(count)
    )
    (folder / "names").write_text(text)
    with MeasuredCluster(folder, "--nodes", "1") as cluster:
        steps: list[tuple[str, tuple[str, ...]]] = [
            ("import", ("catalog", "import", "names")),
            ("one name", ("catalog", "query", "survey/7/7")),
            ("a pattern (1 %)", ("catalog", "query", "survey/42/*")),
            ("all, as JSON", ("--json", "catalog", "query")),
        ]
        took = [(step, timed(partial(cluster.eyas, *words))) for step, words in steps]
    subprocess.run(["rm", "-rf", str(folder / "home")], check=True)
    return took


def main() -> int:
    """Measures, prints tables, and says whether the goals are met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slow", type=float, default=4, help="MB/s of the slow mirror")
    parser.add_argument("--fast", type=float, default=16, help="MB/s of the fast mirror")
    parser.add_argument("--megabytes", type=float, default=48, help="of the one file")
    parser.add_argument("--own-megabytes", type=float, default=2, help="of each of many files")
    parser.add_argument("--names", type=int, default=10_000)
    parser.add_argument("--tiny", action="store_true", help="quick test; the figures mean nothing")
    words = parser.parse_args()
    tasks, rounds, names = words.tasks, words.rounds, words.names
    sizes = [int(words.megabytes * 1e6), int(words.own_megabytes * 1e6)]
    if words.tiny:
        tasks, rounds, names, sizes = 8, 1, 100, [400_000, 50_000]
    seconds: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        pages = folder / "pages"
        (pages / "many").mkdir(parents=True)
        (pages / "one").write_bytes(os.urandom(sizes[0]))
        for number in range(tasks):
            (pages / f"many/{number}").write_bytes(os.urandom(sizes[1]))
        files = {
            "one": {"one": sizes[0]},
            "many": {f"many/{number}": sizes[1] for number in range(tasks)},
        }
        slow, fast = Mirror(pages, words.slow * 1e6), Mirror(pages, words.fast * 1e6)
        ways = {"slow alone": [slow], "fast alone": [fast], "both": [slow, fast]}
        for _ in range(rounds):
            for case, of_case in files.items():
                for way, mirrors in ways.items():
                    (folder / "names").write_text(names_of(of_case, mirrors))
                    with MeasuredCluster(folder, "--nodes", "2") as cluster:
                        cluster.eyas("catalog", "import", "names")
                        took = cluster.submit(job(case, tasks)).seconds
                    subprocess.run(["rm", "-rf", str(folder / "home")], check=True)
                    seconds.setdefault((case, way), []).append(took)
        steps = names_alone(folder, names)
    medians = {key: statistics.median(values) for key, values in seconds.items()}
    rows = [
        [f"{case}: {sum(of.values()) / 1e6:g} MB", *(medians[case, way] for way in ways)]
        for case, of in files.items()
    ]
    title = f"Seconds of {tasks} tasks; mirrors of {words.slow:g} and {words.fast:g} MB/s"
    show(title, ["files", *ways], rows)
    show(f"Seconds with {names} names", [step for step, _ in steps], [[took for _, took in steps]])
    added_s = sum(files["many"].values()) / 1e6 / (words.slow + words.fast)
    holds = [
        conclude(
            "one file: both, of the fast one alone",
            medians["one", "both"] / medians["one", "fast alone"],
            MOST_OF_FAST,
        ),
        conclude(
            "many files: both, of the time at the rates of both together",
            medians["many", "both"] / added_s,
            MOST_OF_ADDED,
        ),
        conclude(f"seconds to import {names} names", steps[0][1], MOST_IMPORT_S),
    ]
    return 0 if all(holds) or words.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
