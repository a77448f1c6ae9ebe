#!/usr/bin/env python3
"""The headline: one data-heavy job under GNU parallel, HyperQueue, Dask, Parsl and eyas, side by
side.

    dev/experiments/headline.py [--tiny] [--runs 3] [--files 48] [--patterns 12] [--draw]

Each of 576 tasks counts the lines of one of 48 shared files of 2 MB that have one of 12 patterns
(`grep -c -F PATTERN FILE`), in a shuffled order. Four nodes with two slots each reach the shared
files through one link of 200 Mbit/s. Every system has the same testbed, made anew for each run, so
that nothing is cached. Before the time begins, all workers run, and each slot has run a task that
does nothing. `report` says for each system what its time includes. All results are checked. Runs
are interleaved: each system once, then each again. Medians count. There are two settings:

    large   nodes do not cache what they read from the shared files, as if the files were larger
            than memory
    small   each node's kernel caches what it has read, as if all files fit in its memory

What each system is told about the data is in SYSTEMS. `--draw` makes the picture and the table in
`benchmarks/RESULTS.md` again from `benchmarks/headline.json`, and measures nothing.

Needs what `dev/testbed/testbed.py check` lists, `dev/tools/peers.sh`, and eyas: a release build, or
EYAS_BIN. Systems that are not installed are left out and named.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
import bars
from cluster import PROJECT, Cluster, eyas
from experiment import command_line, conduct
from table import show
from testbed import Testbed, TestbedError

PEERS = Path(os.environ.get("EYAS_PEERS") or PROJECT / "target" / "peers" / "bin")
FIGURES = PROJECT / "benchmarks" / "headline.json"
PAGE = PROJECT / "benchmarks" / "RESULTS.md"
PICTURE = PROJECT / "docs" / "images"
SLOTS, PORT, DEADLINE_S = 2, 7500, 600
SEED = 1
SETTINGS = {"large": "files larger than memory", "small": "files fit in memory"}

Task = tuple[str, str]  # a file as nodes see it, and a pattern


def content(random_: random.Random, size: int) -> bytes:
    """Lines of hexadecimal digits."""
    digits = random_.randbytes(size // 2).hex()
    return "\n".join(digits[start : start + 63] for start in range(0, size, 63)).encode() + b"\n"


def prepare(bed: Testbed, asked: argparse.Namespace, setting: str) -> tuple[list[Task], int]:
    """Makes the testbed and its shared files. Returns the tasks, and the sum of their results."""
    bed.up(asked.nodes, asked.link, asked.store_link, page_cache=setting == "small")
    random_ = random.Random(SEED)
    contents = [content(random_, asked.file_bytes) for _ in range(asked.files)]
    paths = bed.put("data", contents)
    patterns = [f"{random_.randrange(1 << 16):04x}" for _ in range(asked.patterns)]
    tasks = [(str(path), pattern) for path in paths for pattern in patterns]
    random_.shuffle(tasks)
    lines = [text.split(b"\n") for text in contents]
    total = sum(
        sum(pattern.encode() in line for line in file) for file in lines for pattern in patterns
    )
    return tasks, total


def write_list(bed: Testbed, tasks: list[Task]) -> Path:
    """The tasks as a file of lines with two columns."""
    path = bed.folder / "tasks.csv"
    path.write_text("".join(f"{file},{pattern}\n" for file, pattern in tasks))
    return path


def write_enter(bed: Testbed) -> Path:
    """Writes a program that enters a node like `ssh`, but faster: `enter NODE COMMAND...`. The node
    `core` is the node of the core that HyperQueue gives to a task."""
    path = bed.folder / "enter"
    targets = " ".join(f"{node}) target={bed.holder(node)} ;;" for node in bed.nodes()[2:])
    enter = 'exec nsenter --target="$target" --net --mount --uts --pid'
    lines = [
        "#!/bin/sh",
        "node=$1; shift",
        '[ "$1" != -- ] || shift',
        "is_core=",
        "if [ $node = core ]; then is_core=yes",
    ]
    lines += [f"node=n$((${{HQ_CPUS:-0}} / {SLOTS} + 1)); fi", f"case $node in {targets} esac"]
    lines += [f'[ -z "$is_core" ] || {enter} "$@"', f'{enter} sh -c "$*"']
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o755)
    return path


def timed(command: list[object], environment: dict[str, str] | None = None) -> tuple[float, str]:
    """Runs a command. Returns the seconds from its start to its end, and its output."""
    began = time.perf_counter()
    words = [str(word) for word in command]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=DEADLINE_S, env=environment
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        raise TestbedError(
            f"`{words[0]}` failed with exit code {done.returncode}: {done.stderr.strip()[-500:]}"
        )
    return seconds, done.stdout


def parallel_words(bed: Testbed) -> list[object]:
    """The command of GNU parallel with its nodes."""
    program = shutil.which("parallel", path=f"{PEERS}{os.pathsep}{os.environ['PATH']}")
    logins = ",".join(f"{SLOTS}/{node}" for node in bed.nodes()[2:])
    return [program, "--will-cite", "--ssh", write_enter(bed), "--sshlogin", logins]


def run_parallel(bed: Testbed, tasks: list[Task]) -> tuple[float, int]:
    """Runs one `parallel` command outside the nodes, with `enter` in place of ssh."""
    words = parallel_words(bed)
    warm = [str(number) for number in range(len(bed.nodes()[2:]) * SLOTS * 4)]
    timed([*words, "true", ":::", *warm])
    line = ["--colsep", ",", "grep", "-c", "-F", "{2}", "{1}", "::::", write_list(bed, tasks)]
    seconds, output = timed([*words, *line])
    return seconds, sum(map(int, output.split()))


def run_parallel_copied(bed: Testbed, tasks: list[Task]) -> tuple[float, int]:
    """All nodes copy all files at the same time; then one `parallel` command runs."""
    began = time.perf_counter()
    shared = Path(tasks[0][0]).parent
    here = {node: bed.folder / "nodes" / node / "data" for node in bed.nodes()[2:]}
    copying = [bed.start(node, ["cp", "-r", shared, folder]) for node, folder in here.items()]
    if any(process.wait(DEADLINE_S) for process in copying):
        raise TestbedError("a node could not copy the files")
    copied = time.perf_counter() - began
    # Nodes share the disk of this machine: each sees its own copy at one path.
    for node, folder in here.items():
        (bed.folder / "copied").mkdir(exist_ok=True)
        bed.check(node, ["mount", "--bind", folder, bed.folder / "copied"])
    local = [(str(bed.folder / "copied" / Path(path).name), pattern) for path, pattern in tasks]
    seconds, total = run_parallel(bed, local)
    return copied + seconds, total


def run_eyas(bed: Testbed, tasks: list[Task]) -> tuple[float, int]:
    """Runs one `eyas run` command in `head`."""
    with Cluster(bed, bed.nodes()[2:], slots=SLOTS) as cluster:
        common = ["run", "--cluster", "testbed", "--report", "none"]
        warm = ["--array", f"1-{len(cluster.nodes) * SLOTS * 4}", "--", "true"]
        bed.check("head", cluster.words(eyas(), *common, *warm))
        lines = ["--each-line", write_list(bed, tasks), "--colsep", ",", "-i", "{1}"]
        command = cluster.words(eyas(), *common, *lines, "--", "grep", "-c", "-F", "{2}", "{1}")
        seconds, output = timed(bed.words("head", command))
        return seconds, sum(map(int, output.split()))


def run_peer(
    system: str, start_workers: Callable[[Testbed, Path], None]
) -> Callable[..., tuple[float, int]]:
    """Runs a system with a Python interface: `peers.py` in `head`, after its workers have been
    started.
    """

    def run(bed: Testbed, tasks: list[Task]) -> tuple[float, int]:
        folder = bed.folder / system
        folder.mkdir()
        nodes = bed.nodes()[2:]
        address = next(
            line.split()[0]
            for line in (bed.folder / "hosts").read_text().splitlines()
            if "head" in line
        )
        job: dict[str, Any] = {
            "tasks": tasks,
            "nodes": len(nodes),
            "slots": SLOTS,
            "port": PORT,
            "address": address,
        }
        job.update(folder=str(folder), enter=str(write_enter(bed)))
        (folder / "job").write_text(json.dumps(job))
        start_workers(bed, folder)
        path = f"PATH={PEERS}{os.pathsep}{os.environ['PATH']}"
        command = [
            "env",
            path,
            PEERS / "python",
            Path(__file__).parents[1] / "testbed" / "peers.py",
            system,
            folder / "job",
        ]
        # HyperQueue's worker enters the nodes, which is possible only from outside.
        words = list(command) if system == "hyperqueue" else bed.words("head", command)
        _, output = timed(words)
        answer = json.loads(output.splitlines()[-1])
        return answer["seconds"], answer["total"]

    return run


def start_dask(bed: Testbed, folder: Path) -> None:
    """A scheduler in `head`, a worker in each node."""
    python = [PEERS / "python", "-m"]
    server = [
        "distributed.cli.dask_scheduler",
        "--host",
        "head",
        "--port",
        str(PORT),
        "--no-dashboard",
        "--no-show",
    ]
    bed.start("head", [*python, *server], log="dask.log")
    for node in bed.nodes()[2:]:
        worker = [
            "distributed.cli.dask_worker",
            f"tcp://head:{PORT}",
            "--nthreads",
            str(SLOTS),
            "--nworkers",
            "1",
        ]
        own = [
            "--host",
            node,
            "--name",
            node,
            "--no-nanny",
            "--no-dashboard",
            "--local-directory",
            folder / node,
        ]
        bed.start(node, [*python, *worker, *own], log="dask.log")


def start_parsl(bed: Testbed, folder: Path) -> None:
    """Starts a block in each node when Parsl requests it."""
    path = f"PATH={PEERS}{os.pathsep}{os.environ['PATH']}"

    def watch() -> None:
        for number, node in enumerate(bed.nodes()[2:]):
            block = folder / f"block-{number}"
            deadline = time.monotonic() + DEADLINE_S
            while not block.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            bed.start(node, ["env", path, "sh", block], log="parsl.log")

    threading.Thread(target=watch, daemon=True).start()


def start_nothing(_bed: Testbed, _folder: Path) -> None:
    """HyperQueue's worker is in its server's process."""


# Name, what runs it, and what it is told about the data.
SYSTEMS: list[tuple[str, Callable[[Testbed, list[Task]], tuple[float, int]], str]] = [
    ("GNU parallel", run_parallel, "nothing; tasks read paths of the shared files"),
    (
        "GNU parallel, files copied first",
        run_parallel_copied,
        "every node copies every file first, which counts",
    ),
    (
        "HyperQueue",
        run_peer("hyperqueue", start_nothing),
        "nothing; tasks read paths of the shared files",
    ),
    ("Parsl", run_peer("parsl", start_parsl), "nothing; tasks read paths of the shared files"),
    ("Dask, paths", run_peer("dask", start_dask), "nothing; tasks read paths of the shared files"),
    (
        "Dask, files as results",
        run_peer("dask-results", start_dask),
        "a task loads each file; others take its result",
    ),
    ("eyas", run_eyas, "column 1 of the list is the file that a task reads"),
]


def version(words: list[str]) -> str:
    """The first line that a command prints."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        return done.stdout.strip().splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def machine() -> dict[str, Any]:
    """The machine, and the versions of all systems."""
    packages = (
        "import importlib.metadata as m; "
        "print(*(f'{p} {m.version(p)}' for p in ('dask', 'parsl', 'hyperqueue')), sep=', ')"
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return {
        "commit": os.environ.get("EYAS_COMMIT")
        or version(["git", "-C", str(PROJECT), "rev-parse", "--short=7", "HEAD"]),
        "machine": (
            f"{os.cpu_count()} cores, {memory:.0f} GB of memory, Linux "
            f"{platform.release().split('-')[0]}"
        ),
        "date": time.strftime("%Y-%m-%d"),
        "versions": ", ".join(
            version([str(program), *words])
            for program, words in [
                (shutil.which("parallel"), ["--version"]),
                (PEERS / "python", ["-c", packages]),
            ]
        ),
    }


def draw(figures: dict[str, Any]) -> None:
    """The picture, for light and for dark pages."""
    job = figures["job"]
    title = (
        f"{job['tasks']} tasks, {job['files']} shared files of {job['file_bytes'] / 1e6:.0f} MB, 4 "
        "nodes: seconds"
    )
    rows = [
        (row["system"], [row[setting]["seconds"] for setting in SETTINGS])
        for row in figures["rows"]
    ]
    for theme in bars.THEMES:
        picture = bars.draw(title, list(SETTINGS.values()), rows, theme, highlight="eyas")
        (PICTURE / f"headline-{theme}.svg").write_text(picture)


def report(figures: dict[str, Any]) -> str:
    """The figures as a section of a page."""
    job = figures["job"]
    lines = [
        f"`make headline` (`dev/experiments/headline.py`): {job['tasks']} tasks, each "
        f"`grep -c -F PATTERN FILE` on one of {job['files']} shared files of "
        f"{job['file_bytes'] / 1e6:.0f} MB, in a shuffled order; {job['nodes']} emulated nodes "
        f"with {SLOTS} slots each; links of {job['link']}, shared storage behind a link of "
        f"{job['store_link']}. Medians of {job['runs']} interleaved runs; commit "
        f"{figures['commit']}, {figures['date']}, {figures['machine']}. Versions: "
        f"{figures['versions']}. {figures['beside']}",
        "\n*Large*: nodes keep nothing in memory of what they read from the shared storage, as if "
        "the files were larger than their memory. *Small*: each node's kernel caches what it has "
        "read. *Read*: bytes that the storage sent, divided by the size of all files.\n",
        "| system | told about the data | large | range | read | small | range | read |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in figures["rows"]:
        cells = [row["system"], row["told"]]
        for setting in SETTINGS:
            part = row[setting]
            cells += [
                f"{part['seconds']:.2f} s",
                "{:.2f} to {:.2f}".format(*part["range"]),
                f"{part['read']:.2f}",
            ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [f"\n{name} is not in the table: {why}." for name, why in figures["missing"].items()]
    lines.append(
        "\nWhat the times include: for GNU parallel and eyas, the whole command in a shell, from "
        "its start to its end. For Dask and Parsl, the time in a Python program that is already "
        "connected, from the first submission to the last result in that program. For HyperQueue, "
        "the time from the submission to the time stamp of the last output file, because its "
        "client polls only once a second whether the job has ended. So HyperQueue's figure leaves "
        "out how its user learns of the end. For all of them, workers run before the time begins."
    )
    lines.append(
        "\nGNU parallel and HyperQueue enter a node with `nsenter` where they would use `ssh`, "
        "which is faster. The HyperQueue package on PyPI has no command that starts workers on "
        "other nodes, so one worker has the cores of all nodes, and each task enters the node of "
        'its core. "Files copied first" is what a person can do by hand: of its time, the copies '
        "take some 16 s, and more with more nodes."
    )
    return "\n".join(lines)


def write_page(figures: dict[str, Any]) -> None:
    """Replaces the section of the page with the results."""
    before, rest = PAGE.read_text().split("<!-- headline: begin -->\n")
    _, after = rest.split("<!-- headline: end -->")
    wrapped = "\n".join(
        line if line.startswith("|") else textwrap.fill(line, 120, break_on_hyphens=False)
        for line in report(figures).splitlines()
    )
    PAGE.write_text(f"{before}<!-- headline: begin -->\n{wrapped}\n<!-- headline: end -->{after}")


def experiment(asked: argparse.Namespace, bed: Testbed) -> bool:
    """Runs all of it. Returns whether every system gave the right answer."""
    before_load = os.getloadavg()[0]
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    missing: dict[str, str] = {}
    for number in range(asked.runs):
        for setting in SETTINGS:
            for name, run, _ in SYSTEMS:
                if name in missing or asked.only and name not in asked.only:
                    continue
                tasks, total = prepare(bed, asked, setting)
                before = bed.sent_bytes("store")
                try:
                    seconds, said = run(bed, tasks)
                except (TestbedError, OSError, subprocess.TimeoutExpired, IndexError) as error:
                    missing[name] = str(error).splitlines()[-1]
                    print(f"{name} is left out: {missing[name]}", file=sys.stderr)
                    continue
                if said != total:
                    raise TestbedError(f"{name} counted {said} lines, not {total}")
                read = (bed.sent_bytes("store") - before) / (asked.files * asked.file_bytes)
                found.setdefault((name, setting), []).append((seconds, read))
                print(
                    f"run {number + 1}, {setting}: {name}: {seconds:.2f} s, {read:.2f} times the "
                    "files",
                    flush=True,
                )
    rows = []
    for name, _, told in SYSTEMS:
        row: dict[str, Any] = {"system": name, "told": told}
        for setting in SETTINGS:
            if not (runs := found.get((name, setting))):
                break
            seconds = [seconds for seconds, _ in runs]
            read = statistics.median(read for _, read in runs)
            row[setting] = {"seconds": round(statistics.median(seconds), 2), "read": round(read, 2)}
            row[setting]["range"] = [round(min(seconds), 2), round(max(seconds), 2)]
        else:
            rows.append(row)
    job = {
        name: getattr(asked, name)
        for name in ("files", "file_bytes", "nodes", "link", "store_link", "runs")
    }
    load = f"Load average of the machine before it: {before_load:.1f}."
    figures = {
        "beside": load,
        "job": {"tasks": asked.files * asked.patterns, **job},
        **machine(),
        "missing": missing,
        "rows": rows,
    }
    heads = [
        "system",
        *(f"{head}{setting}" for setting in SETTINGS for head in ("s, ", "files read, ")),
    ]
    lines = [
        [row["system"], *(row[s][part] for s in SETTINGS for part in ("seconds", "read"))]
        for row in rows
    ]
    show(
        f"medians of {asked.runs} runs; files read: bytes from the store, of all files",
        heads,
        lines,
    )
    if not asked.tiny and not asked.only:
        FIGURES.parent.mkdir(exist_ok=True)
        FIGURES.write_text(json.dumps(figures, indent=2) + "\n")
        draw(figures)
        write_page(figures)
    return True


def main() -> int:
    """The command line."""
    if "--draw" in sys.argv:
        draw(figures := json.loads(FIGURES.read_text()))
        write_page(figures)
        return 0
    parser = command_line(__doc__, tiny="8 files, 2 patterns", runs=3)
    parser.add_argument("--nodes", type=int, default=4, help="number of nodes")
    parser.add_argument("--files", type=int, default=48, help="number of shared files")
    parser.add_argument("--file-bytes", type=int, default=2_000_000, help="size of each file")
    parser.add_argument("--patterns", type=int, default=12, help="tasks for each file")
    parser.add_argument("--link", default="1gbit", help="rate of each node's link")
    parser.add_argument("--store-link", default="200mbit", help="rate of the shared storage's link")
    parser.add_argument(
        "--only", action="append", help="run only this system (repeatable); figures are not kept"
    )
    parser.add_argument(
        "--draw", action="store_true", help="draw the picture from the figures that were kept"
    )
    return conduct(parser, {"files": 8, "patterns": 2}, experiment)


if __name__ == "__main__":
    sys.exit(main())
