#!/usr/bin/env python3
"""Experiment: jobs of Hadoop on HDFS and on elastic blocks of eyas, on nodes of different speeds
(elastic-blocks §3.2 to §3.5).

    dev/experiments/elastic_hadoop.py [--tiny] [--runs 3] [--megabytes 256] [--share 0.35]
                                      [--only idle|low|high|straggler] [--alphas 0 0.5 1]
                                      [--programs wordcount grep]

Hadoop 3.5 runs on five nodes of this machine: four with a DataNode, a NodeManager and an executor
of eyas each, which a control group limits to a share of a processor together with their tasks, and
one for the masters of jobs, which is not limited. The programs are Hadoop's own examples, the same
for both file systems. Each has a text of its own of `--blocks` blocks, and all run at once. Their
results are compared.

*idle*: equal nodes. *low* and *high*: one node of four, or two, have other work that computes and
uses their disk all the time, where the thesis has 6 and 12 of 30. *straggler*: one node has a fifth
of the others' speed.

*HDFS* has a map task for each block, as `TextInputFormat` makes them. The others read the file in
eyas with `ElasticTextInputFormat`, under each scheduler or, with `--alphas`, under lean with each
alpha, with a map task for each slot of the nodes. Systems take turns. Prints medians of the time
of all jobs and of their map phases, and the ratios to HDFS. Needs root, control groups of version
1, a JDK and Maven, a release build of eyas (or EYAS_BIN), and `eyas.jar` and `eyas-hadoop.jar` in
`--jars`, as `dev/tools/java.sh jar` makes them.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from capped import Node, busy, nodes
from cluster import PROJECT, eyas
from hadoop_cluster import jar
from hadoop_nodes import HadoopNodes, JobTimes, address_of
from map_blocks import write_text
from mappers import START_S, wait_for
from table import show

NODES, STRAGGLER = 4, 0.2
SCHEDULERS = {
    "static": ["-Deyas.scheduler=static"],
    "multiwave": ["-Deyas.scheduler=multiwave"],
    "io-aware": ["-Deyas.scheduler=io-aware"],
    "lean": ["-Deyas.scheduler=lean"],
}
PROGRAMS = {"wordcount": [], "grep": ["a[b-d]+"]}
ELASTIC = [
    "-Dmapreduce.job.inputformat.class=io.eyas.hadoop.mapreduce.ElasticTextInputFormat",
    "-Dmapreduce.outputcommitter.factory.class=io.eyas.hadoop.mapreduce.RunCommitterFactory",
]
#: With the number of nodes that have other work.
ENVIRONMENTS = {"idle": 0, "low": 1, "high": 2, "straggler": 0}


@contextlib.contextmanager
def cluster_of_eyas(
    some: list[Node], home: Path, options: Sequence[str] = ()
) -> Iterator[dict[str, str]]:
    """A dispatcher, and an executor that keeps files in each node, with these options. Its value is
    the environment of its commands.
    """
    environment = {**os.environ, "EYAS_HOME": str(home), "EYAS_CLUSTER": "elastic"}
    with contextlib.ExitStack() as ending:
        log = ending.enter_context((home.parent / "eyas.log").open("ab"))

        def start(node: Node | None, words: list[str]) -> subprocess.Popen[bytes]:
            process = (node.start if node else subprocess.Popen)(
                words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
            assert process.stdin
            ending.callback(process.wait, START_S)
            ending.callback(process.stdin.close)
            return process

        words = [eyas(), "start", "dispatcher", "--listen", "127.0.0.1:0", "--owned"]
        dispatcher = start(None, words)
        assert dispatcher.stdout
        dispatcher.stdout.readline()
        for place, node in enumerate(some):
            executor = [eyas(), "start", "executor", "--dfs", "--owned", "--name", node.name]
            executor += ["--folder", str(node.folder / "eyas"), *options]
            # The name by which Hadoop knows the node.
            named = f'hostname {address_of(place)}; exec "$@"'
            start(node, ["unshare", "--uts", "sh", "-c", named, "sh", *executor])

        def joined() -> bool:
            asked = [eyas(), "dfs", "ls"]
            done = subprocess.run(asked, env=environment, capture_output=True)
            shown = subprocess.run(
                [eyas(), "--json", "dfs", "du"], env=environment, capture_output=True, text=True
            )
            return done.returncode == 0 and shown.stdout.count('"is_member": true') + (
                shown.stdout.count('"is_member":true')
            ) == len(some)

        wait_for(joined, "starting eyas")
        yield environment


def shares(asked: argparse.Namespace, environment: str) -> list[float]:
    """The nodes' shares of a processor."""
    last = STRAGGLER if environment == "straggler" else 1
    return [asked.share] * (NODES - 1) + [asked.share * last]


def lines(hadoop: HadoopNodes, folder: str) -> list[str]:
    """The result of a job, in the order of its lines."""
    # Programs of Hadoop print warnings to standard output.
    into = hadoop.folder / "result"
    hadoop.run("org.apache.hadoop.fs.FsShell", "-getmerge", f"{folder}/part-*", f"file://{into}")
    return sorted(into.read_text().splitlines())


def all_at_once(hadoop: HadoopNodes, jobs: list[list[str]]) -> JobTimes:
    """Runs jobs at once. Returns the time of the last to end, and of the last maps."""
    examples = jar("hadoop-mapreduce-examples")
    with ThreadPoolExecutor(len(jobs)) as runners:
        times = list(runners.map(lambda words: hadoop.job(examples, *words), jobs))
    return JobTimes(max(one.whole for one in times), max(one.maps for one in times))


def systems_of(asked: argparse.Namespace, hdfs: str) -> dict[str, tuple[str, list[str]]]:
    """For each system, the address of its file system and the options of its jobs."""
    schedulers = SCHEDULERS
    if asked.alphas:
        lean = SCHEDULERS["lean"]
        schedulers = {f"lean, {alpha}": [*lean, f"-Deyas.alpha={alpha}"] for alpha in asked.alphas}
    return {"HDFS": (hdfs, [])} | {
        name: ("eyas://elastic", [*ELASTIC, f"-Deyas.map.tasks={NODES}", *words])
        for name, words in schedulers.items()
    }


def measure(asked: argparse.Namespace, environment: str, folder: Path) -> list[list[object]]:
    """Rows of the table of an environment."""
    text = folder / "text"
    write_text(text, asked.megabytes)
    block = -(-text.stat().st_size // asked.blocks // 1024) * 1024
    found: dict[str, list[JobTimes]] = {}
    of_hdfs: list[list[str]] | None = None
    with contextlib.ExitStack() as ending:
        some = ending.enter_context(nodes(shares(asked, environment), folder / "nodes"))
        (folder / "home").mkdir()
        variables = ending.enter_context(cluster_of_eyas(some, folder / "home"))
        options = {
            "fs.eyas.access": str(folder / "home" / "clusters" / "elastic" / "access.toml"),
            "dfs.blocksize": str(block),
            "dfs.replication": "2",
        }
        jars = [asked.jars / "eyas.jar", asked.jars / "eyas-hadoop.jar"]
        masters = len(asked.programs)
        hadoop = ending.enter_context(
            HadoopNodes(some, folder / "hadoop", options, jars, masters=masters)
        )
        for program in asked.programs:
            put = [eyas(), "dfs", "put", str(text), f"/{program}", "--chunk-size", str(block)]
            subprocess.run([*put, "--replicas", "2"], env=variables, check=True)
            shell = "org.apache.hadoop.fs.FsShell"
            hadoop.run(shell, "-put", str(text), f"{hadoop.hdfs}/{program}")
        for node in some:
            node.cap(True)
        ending.callback(lambda: [node.cap(False) for node in some])
        ending.enter_context(busy(some[len(some) - ENVIRONMENTS[environment] :]))
        systems = systems_of(asked, hadoop.hdfs)
        for number, name in itertools.product(range(asked.runs), systems):
            place, words = systems[name]
            outputs = {
                program: f"{place}/result-{program}-{name.replace(', ', '-')}-{number}"
                for program in asked.programs
            }
            times = all_at_once(
                hadoop,
                [
                    [program, *words, f"{place}/{program}", output, *PROGRAMS[program]]
                    for program, output in outputs.items()
                ],
            )
            found.setdefault(name, []).append(times)
            result = [lines(hadoop, output) for output in outputs.values()]
            of_hdfs = result if of_hdfs is None else of_hdfs
            if result != of_hdfs:
                differing = [sorted(set(a) ^ set(b))[:6] for a, b in zip(of_hdfs, result)]
                raise SystemExit(f"results of {name} differ from those on HDFS in: {differing}")
            print(
                f"{environment}, {name}: {times.whole:.1f} s, maps {times.maps:.1f} s", flush=True
            )
    middle = {
        name: (
            statistics.median(one.whole for one in times),
            statistics.median(one.maps for one in times),
        )
        for name, times in found.items()
    }
    return [
        [environment, name, whole, maps, whole / middle["HDFS"][0], maps / middle["HDFS"][1]]
        for name, (whole, maps) in middle.items()
    ]


def main() -> int:
    """Runs the experiment."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--megabytes", type=int, default=256, help="size of the text")
    parser.add_argument("--blocks", type=int, default=32, help="blocks of the text")
    parser.add_argument("--runs", type=int, default=3, help="runs of each; the median counts")
    parser.add_argument("--share", type=float, default=0.35, help="share of a processor of a node")
    parser.add_argument("--only", choices=ENVIRONMENTS, help="run only this part")
    parser.add_argument(
        "--programs", choices=PROGRAMS, nargs="+", default=["wordcount"], help="all run at once"
    )
    parser.add_argument(
        "--alphas", nargs="+", type=float, help="lean with each of these, and no other scheduler"
    )
    parser.add_argument(
        "--jars", type=Path, default=PROJECT / "target" / "java", help="folder of the jars"
    )
    parser.add_argument("--tiny", action="store_true", help="one run over 4 MB in 4 blocks")
    asked = parser.parse_args()
    if asked.tiny:
        asked.megabytes, asked.blocks, asked.runs = 4, 4, 1
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    rows = []
    for environment in [asked.only] if asked.only else ENVIRONMENTS:
        folder = Path(tempfile.mkdtemp(prefix="eyas-elastic-"))
        try:
            rows += measure(asked, environment, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    programs = ", ".join(asked.programs)
    show(
        f"{programs}, {asked.megabytes} MB, {NODES} nodes, medians of {asked.runs} runs",
        ["environment", "system", "job, s", "maps, s", "job of HDFS's", "maps of HDFS's"],
        rows,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
