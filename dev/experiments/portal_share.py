#!/usr/bin/env python3
"""Experiment: what AstroPortal adds to the time of a stack.

    dev/experiments/portal_share.py

A list of 10,000 positions on 300 frames of 2.2 MB goes through the portal, from its upload to the
image, and then the same tasks through `eyas submit` alone: `stack find`, one task for each frame,
and one for the sum. Both are measured in turns on one cluster of two nodes, which keeps nothing
from one round to the next. Prints medians, the share of the portal, and whether the images are the
same to the bit.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from table import conclude, show

PROJECT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or PROJECT / "target")
EYAS = Path(os.environ.get("EYAS_BIN") or TARGET / "release" / "eyas").resolve()
# The portal, `stack` and `survey`.
PROGRAMS = Path(os.environ.get("PORTAL_PROGRAMS") or EYAS.parent).resolve()
MOST = 0.05
END_S = 3600


class Site:
    """A cluster, its web, a survey and the portal."""

    def __init__(self, folder: Path, size: str, frames: int, objects: int, edge: int) -> None:
        self.folder, self.edge = folder, str(edge)
        self.environment = os.environ | {"EYAS_HOME": str(folder / "home"), "TMPDIR": str(folder)}
        self.running: list[subprocess.Popen[str]] = []
        words = ["--frames", str(frames), "--objects", str(objects), "--size", size]
        self.run(PROGRAMS / "survey", "--out", "sky", *words)
        self.run(PROGRAMS / "stack", "index", str(folder / "sky" / "frames"), "--out", "sky/index")
        text = (folder / "sky" / "objects.csv").read_text(encoding="utf-8").splitlines()
        self.list = "".join(",".join(line.split(",")[:2]) + "\n" for line in text)
        (folder / "list.csv").write_text(self.list, encoding="utf-8")

    def run(self, *words: str | Path) -> str:
        done = subprocess.run(
            [str(word) for word in words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{words}: {done.stderr}")
        return done.stdout

    def eyas(self, *words: str) -> str:
        return self.run(EYAS, "--cluster", "share", *words)

    def start(self, words: list[str | Path], begins: str) -> str:
        process = subprocess.Popen(
            [str(word) for word in words],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.running.append(process)
        line = process.stdout.readline() if process.stdout else ""
        if not line.startswith(begins):
            raise SystemExit(f"{words} did not start")
        return line.removeprefix(begins).strip()

    def begin_round(self) -> None:
        """A fresh cluster, which holds no frame, and a portal on it."""
        nodes = ["--nodes", "2", "--slots", "1", "--detach"]
        self.eyas("start", "local", *nodes)
        web = self.start([EYAS, "--cluster", "share", "web"], "eyas web: ").split("/?")[0]
        made = self.eyas("web", "token", "create", "--scope", "submit", "portal")
        (self.folder / "cluster.token").write_text(made, encoding="utf-8")
        survey = '[[survey]]\nname = "sky"\nindex = "sky/index"\npixel_scale = 0.396\n'
        (self.folder / "surveys.toml").write_text(survey + "quota = 1000000\n", encoding="utf-8")
        files = ["--token-file", "cluster.token", "--surveys", "surveys.toml"]
        words = [PROGRAMS / "astroportal", "serve", "--eyas", web, *files]
        self.url = self.start(words, "astroportal: ").rstrip("/")

    def end_round(self) -> None:
        for process in reversed(self.running):
            process.terminate()
            process.wait()
        self.running.clear()
        self.eyas("stop")

    def account(self) -> None:
        portal = str(PROGRAMS / "astroportal")
        subprocess.run(
            [portal, "account", "add", "ada", "--quota", "100000000"],
            cwd=self.folder,
            input="a password\n",
            text=True,
            check=True,
        )
        self.token = self.run(portal, "account", "token", "ada").strip()

    def ask(self, url: str, values: dict[str, str] | None = None) -> tuple[str, bytes]:
        """Asks the portal. Returns the URL of the answer, and its content."""
        data = urllib.parse.urlencode(values).encode() if values else None
        headers = {"Authorization": f"Bearer {self.token}"}
        with urllib.request.urlopen(urllib.request.Request(url, data, headers)) as answer:
            return answer.url, answer.read()

    def through_portal(self) -> tuple[float, bytes]:
        """Seconds from the upload to the image, and the image."""
        began = time.monotonic()
        values = {"SURVEY": "sky", "SIZE": self.edge, "POSITIONS": self.list, "PHASE": "RUN"}
        job, _ = self.ask(f"{self.url}/async", values)
        while b"<uws:phase>COMPLETED" not in (text := self.ask(f"{job}?WAIT=60")[1]):
            if b"<uws:phase>ERROR" in text or time.monotonic() - began > END_S:
                raise SystemExit(text.decode())
        _, image = self.ask(f"{job}/results/image")
        return time.monotonic() - began, image

    def by_eyas(self, number: int) -> tuple[float, bytes]:
        """The same without the portal."""
        began = time.monotonic()
        out = self.folder / f"alone-{number}"
        (out / "partials").mkdir(parents=True)
        stack = PROGRAMS / "stack"
        words = ["find", "--index", "sky/index", "--list", "list.csv", "--size", self.edge]
        words += ["--out-tasks", str(out / "tasks.csv"), "--out-lists", str(out / "lists")]
        self.run(stack, *words)
        with (out / "tasks.csv").open(encoding="utf-8", newline="") as tasks:
            rows = [row[:3] for row in csv.reader(tasks)]
        lines = [
            "\t".join([*row, str(out / "partials" / f"{at:07}.fits")])
            for at, row in enumerate(rows)
        ]
        (out / "tasks.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        command = [str(stack), "--size", self.edge, "--hdu", "{3}", "--list", "{2}", "{1}"]
        job = {
            "name": "alone",
            "task": [
                {
                    "each_line": str(out / "tasks.tsv"),
                    "separator": "\t",
                    "inputs": ["{1}"],
                    "command": [*command, "--out", "partial.fits"],
                    "outputs": [{"file": "partial.fits", "to": "{4}"}],
                }
            ],
        }
        (out / "job.toml").write_text(toml_of(job), encoding="utf-8")
        self.eyas("submit", "--wait", str(out / "job.toml"))
        words = [str(stack), "--sum", str(out / "partials"), "--out", str(out / "image.fits")]
        words += ["--png", str(out / "image.png"), "--jpeg", str(out / "image.jpg")]
        self.eyas("run", "--", *words)
        return time.monotonic() - began, (out / "image.fits").read_bytes()


def toml_of(job: dict[str, object]) -> str:
    """A job file: texts and lists are the same in JSON, and tables of a list are inline."""
    task = job["task"][0]  # type: ignore[index]
    lines = [f"name = {json.dumps(job['name'])}", "[[task]]"]
    for name, value in task.items():
        text = json.dumps(value)
        if name == "outputs":
            fields = [", ".join(f"{k} = {json.dumps(v)}" for k, v in row.items()) for row in value]
            text = "[" + ", ".join(f"{{ {row} }}" for row in fields) + "]"
        lines.append(f"{name} = {text}")
    return "\n".join(lines) + "\n"


def measure(args: argparse.Namespace, folder: Path) -> bool:
    """Measures both ways in turns. Returns whether the portal's share is within its limit."""
    site = Site(folder, args.size, args.frames, args.objects, args.edge)
    site.account()
    times: dict[str, list[float]] = {"through the portal": [], "by eyas alone": []}
    images = set()
    for number in range(args.rounds):
        ways = {
            "through the portal": site.through_portal,
            "by eyas alone": lambda number=number: site.by_eyas(number),
        }
        for name in sorted(ways, reverse=bool(number % 2)):
            site.begin_round()
            try:
                seconds, image = ways[name]()
            finally:
                site.end_round()
            times[name].append(seconds)
            images.add(image)
        print(f"round {number + 1} of {args.rounds} is done", file=sys.stderr)
    if len(images) != 1:
        raise SystemExit("the images differ")
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    rows = [[name, medians[name], min(seconds), max(seconds)] for name, seconds in times.items()]
    title = f"{args.objects} positions on {args.frames} frames, seconds to the image"
    show(title, ["", "median", "least", "most"], rows)
    print("all images are the same to the bit")
    portal, alone = medians["through the portal"], medians["by eyas alone"]
    return conclude("the portal's share of the time", (portal - alone) / portal, MOST)


def main() -> int:
    """Reads the arguments and runs the experiment."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--size", default="2048x1489", help="of a frame, pixels")
    parser.add_argument("--edge", type=int, default=100, help="of a region, pixels")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="tests that it runs")
    args = parser.parse_args()
    if args.tiny:
        args.objects, args.frames, args.size, args.edge, args.rounds = 20, 4, "400x300", 40, 1
    with tempfile.TemporaryDirectory() as folder:
        holds = measure(args, Path(folder))
    return 0 if holds or args.tiny else 1


if __name__ == "__main__":
    sys.exit(main())
