#!/usr/bin/env python3
"""Experiment: jobs of Hadoop on HDFS and on elastic blocks of eyas, on nodes of different speeds
(elastic-blocks §3.2 to §3.5).

    dev/experiments/elastic_hadoop.py [--tiny] [--runs 3] [--megabytes 256] [--share 0.35]
                                      [--only idle|straggler|busy] [--program wordcount|grep]

Hadoop 3.5 runs on five nodes of this machine: four with a DataNode, a NodeManager and an executor
of eyas each, which a control group limits to a share of a processor together with their tasks, and
one for the masters of jobs, which is not limited. The program is one of Hadoop's own examples, the
same for both file systems, over one text of `--blocks` blocks. Its results are compared.

*idle*: equal nodes. *straggler*: one node has a fifth of the others' speed. *busy*: one node has
other work that computes and uses its disk all the time.

*HDFS* has a map task for each block, as `TextInputFormat` makes them. The others read the file in
eyas with `ElasticTextInputFormat`, under each scheduler, with a map task for each slot of the
nodes. Systems take turns. Prints medians of the whole job and of its map phase, and the ratios to
HDFS. Needs root, control groups of version 1, a JDK and Maven, a release build of eyas (or
EYAS_BIN), and `eyas.jar` and `eyas-hadoop.jar` in `--jars`, as `dev/tools/java.sh jar` makes them.
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
from collections.abc import Iterator
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
ENVIRONMENTS = ["idle", "straggler", "busy"]


@contextlib.contextmanager
def cluster_of_eyas(some: list[Node], home: Path) -> Iterator[dict[str, str]]:
    """A dispatcher, and an executor that keeps files in each node. Its value is the environment of
    its commands.
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
            executor += ["--folder", str(node.folder / "eyas")]
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
    said = hadoop.run("org.apache.hadoop.fs.FsShell", "-cat", f"{folder}/part-*")
    return sorted(said.splitlines())


def measure(asked: argparse.Namespace, environment: str, folder: Path) -> list[list[object]]:
    """Rows of the table of an environment."""
    text = folder / "text"
    write_text(text, asked.megabytes)
    block = -(-text.stat().st_size // asked.blocks // 1024) * 1024
    found: dict[str, list[JobTimes]] = {}
    of_hdfs: list[str] | None = None
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
        hadoop = ending.enter_context(HadoopNodes(some, folder / "hadoop", options, jars))
        put = [eyas(), "dfs", "put", str(text), "/text", "--chunk-size", str(block)]
        subprocess.run([*put, "--replicas", "2"], env=variables, check=True)
        hadoop.run("org.apache.hadoop.fs.FsShell", "-put", str(text), f"{hadoop.hdfs}/text")
        for node in some:
            node.cap(True)
        ending.callback(lambda: [node.cap(False) for node in some])
        if environment == "busy":
            ending.enter_context(busy(some[-1:]))
        systems = {"HDFS": (hadoop.hdfs, [])} | {
            name: ("eyas://elastic", [*ELASTIC, f"-Deyas.map.tasks={NODES}", *words])
            for name, words in SCHEDULERS.items()
        }
        for number, name in itertools.product(range(asked.runs), systems):
            place, words = systems[name]
            output = f"{place}/result-{name}-{number}"
            program = [*words, f"{place}/text", output, *PROGRAMS[asked.program]]
            times = hadoop.job(jar("hadoop-mapreduce-examples"), asked.program, *program)
            found.setdefault(name, []).append(times)
            result = lines(hadoop, output)
            of_hdfs = result if of_hdfs is None else of_hdfs
            if result != of_hdfs:
                raise SystemExit(f"the result of {name} differs from that on HDFS")
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
    parser.add_argument("--program", choices=PROGRAMS, default="wordcount")
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
    show(
        f"{asked.program}, {asked.megabytes} MB, {NODES} nodes, medians of {asked.runs} runs",
        ["environment", "system", "job, s", "maps, s", "job of HDFS's", "maps of HDFS's"],
        rows,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
