#!/usr/bin/env python3
"""Experiment: what open pages of `eyas web` cost the dispatcher, and what `eyas web` itself needs.

The rate of a job of tasks that do nothing is measured in turns without pages, and with pages that
follow the state of the cluster. Then `eyas web` is left alone, and pages of the last job's tasks
are asked for: in the order of the job, sorted for the first time, and sorted again; and its
timeline, for the first time and again. Prints medians.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from measured import MeasuredCluster, cpu_s_of, largest_mb
from table import conclude, show


class Web:
    """`eyas web` of a cluster. A context manager that ends it."""

    def __init__(self, cluster: MeasuredCluster) -> None:
        self.process = subprocess.Popen(
            [cluster.command, "web"],
            env=cluster.environment,
            cwd=cluster.folder,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout
        url = self.process.stdout.readline().split()[-1]
        self.base, self.token = url.split("/?token=")
        self.proc = Path(f"/proc/{self.process.pid}")

    def __enter__(self) -> Web:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    def request(self, path: str) -> urllib.request.Request:
        """A request with the token."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return urllib.request.Request(f"{self.base}/api/v1{path}", headers=headers)

    def get(self, path: str) -> tuple[float, dict[str, list[dict[str, int]]]]:
        """The seconds that an answer takes, and the answer."""
        began = time.monotonic()
        with urllib.request.urlopen(self.request(path)) as answer:
            text = answer.read()
        return time.monotonic() - began, json.loads(text)

    def wait_for_pages(self, count: int) -> None:
        """Waits until so many pages follow the state."""
        request = self.request("")
        request.full_url = f"{self.base}/metrics"
        deadline = time.monotonic() + 30
        while True:
            with urllib.request.urlopen(request) as answer:
                text = answer.read().decode()
            if re.search(rf"^eyas_web_streams {count}$", text, re.MULTILINE):
                return
            if time.monotonic() > deadline:
                raise SystemExit(f"{count} pages do not follow: {text}")
            time.sleep(0.05)

    def pages(self, count: int) -> list[subprocess.Popen[bytes]]:
        """Programs that follow the state of the cluster, as a page does."""
        line = ["curl", "-sN", "-H", f"Authorization: Bearer {self.token}"]
        line.append(f"{self.base}/api/v1/events?include=state")
        pages = [subprocess.Popen(line, stdout=subprocess.DEVNULL) for _ in range(count)]
        self.wait_for_pages(count)
        return pages


def rate(cluster: MeasuredCluster, tasks: int) -> float:
    """Tasks a second of a job whose tasks do nothing."""
    said = cluster.submit(f'[[task]]\nnoop = true\narray = "1-{tasks}"\n').said
    found = re.search(r"\(([0-9.]+)/s\)", said)
    if found is None:
        raise SystemExit(f"no rate in: {said}")
    return float(found[1])


def main() -> int:
    """Measures, prints tables, and says whether the goals are met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--pages", type=int, nargs="+", default=[0, 50, 500])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="quick test; the figures mean nothing")
    words = parser.parse_args()
    tasks, numbers, rounds = words.tasks, words.pages, words.rounds
    idle_s = 10.0
    if words.tiny:
        tasks, numbers, rounds, idle_s = 200, [0, 2], 1, 0.5
    rates: dict[int, list[float]] = {number: [] for number in numbers}
    with (
        tempfile.TemporaryDirectory() as scratch,
        MeasuredCluster(Path(scratch), "--nodes", "2") as cluster,
        Web(cluster) as web,
    ):
        rate(cluster, tasks)
        for _ in range(rounds):
            for number in numbers:
                pages = web.pages(number)
                rates[number].append(rate(cluster, tasks))
                for page in pages:
                    page.kill()
                    page.wait()
        before = cpu_s_of(web.proc)
        time.sleep(idle_s)
        idle = (cpu_s_of(web.proc) - before) / idle_s
        job = web.get("/jobs?order=newest&limit=1")[1]["jobs"][0]["job"]
        paths = {
            "in order": "tasks",
            "sorted": "tasks?sort=ran_us",
            "again": "tasks?sort=ran_us",
            "timeline": "timeline",
            "timeline again": "timeline?from_us=1",
        }
        took = {name: web.get(f"/jobs/{job}/{path}")[0] for name, path in paths.items()}
        memory = largest_mb(web.proc)
    medians = {number: statistics.median(values) for number, values in rates.items()}
    base = medians[numbers[0]]
    rows = [[number, f"{medians[number]:.0f}", medians[number] / base] for number in numbers]
    show("Tasks a second beside open pages, medians", ["pages", "tasks/s", "of none"], rows)
    seconds = [[f"{s:.3f}" for s in took.values()]]
    show("Seconds of a page of tasks, and of a timeline", list(took), seconds)
    print(f"eyas web: {idle:.3f} of a core idle, {memory:.0f} MB at most")
    holds = [
        conclude("loss of rate beside pages", 1 - min(medians.values()) / base, 0.03),
        conclude("of a core, idle", idle, 0.01),
    ]
    return 0 if all(holds) or words.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
