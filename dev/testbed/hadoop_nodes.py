"""Hadoop on nodes of limited speed (`capped.py`): a DataNode and a NodeManager in each, an HDFS or
any other file system below. Each is a process of its own, as on a real cluster.

The NameNode, the ResourceManager, the client, and the containers of the jobs' masters are not
limited: what Hadoop itself needs is not what is measured. Nodes have addresses of their own, of the
loopback network, so that tasks can be placed where their data is.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from capped import Node
from hadoop_cluster import JVM, OPENED, classpath
from mappers import wait_for

END_S, RUN_S = 30, 900
SERVER = "org.apache.hadoop.yarn.server"
NAME_NODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATA_NODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
#: Memory, MB, and processors of the container of a master and of a task, as YARN counts them. Nodes
#: have no memory for a master, and the masters' node has too few processors for a task.
MASTER_MB, MASTER_CORES = 1024, 1
TASK_MB, TASK_CORES = 512, 4

# Tasks report often, so that the end of a phase is seen when it comes.
OPTIONS = {
    "dfs.namenode.http-address": "127.0.0.1:0",
    "dfs.namenode.datanode.registration.ip-hostname-check": "false",
    "dfs.datanode.address": "0.0.0.0:0",
    "dfs.datanode.ipc.address": "0.0.0.0:0",
    "dfs.datanode.http.address": "127.0.0.1:0",
    "dfs.namenode.safemode.min.datanodes": "1",
    "dfs.namenode.fs-limits.min-block-size": "1024",
    "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "100",
    "yarn.scheduler.minimum-allocation-mb": str(TASK_MB),
    "yarn.scheduler.maximum-allocation-vcores": str(TASK_CORES),
    "yarn.scheduler.capacity.resource-calculator": (
        "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator"
    ),
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1",
    "yarn.nodemanager.localizer.address": "0.0.0.0:0",
    "yarn.nodemanager.webapp.address": "127.0.0.1:0",
    "yarn.nodemanager.disk-health-checker.enable": "false",
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.pmem-check-enabled": "false",
    "yarn.nodemanager.aux-services": "mapreduce_shuffle",
    "yarn.nodemanager.delete.debug-delay-sec": "0",
    "yarn.client.application-client-protocol.poll-interval-ms": "50",
    "yarn.app.mapreduce.am.staging-dir": "/tmp/staging",
    "yarn.app.mapreduce.am.resource.mb": str(MASTER_MB),
    "yarn.app.mapreduce.am.resource.cpu-vcores": str(MASTER_CORES),
    "yarn.app.mapreduce.am.command-opts": f"-Xmx400m {JVM}",
    "yarn.app.mapreduce.am.scheduler.heartbeat.interval-ms": "100",
    "mapreduce.framework.name": "yarn",
    "mapreduce.shuffle.port": "0",
    "mapreduce.map.memory.mb": str(TASK_MB),
    "mapreduce.map.cpu.vcores": str(TASK_CORES),
    "mapreduce.map.java.opts": "-Xmx300m -XX:+UseSerialGC -Xshare:auto",
    "mapreduce.reduce.memory.mb": str(TASK_MB),
    "mapreduce.reduce.cpu.vcores": str(TASK_CORES),
    "mapreduce.reduce.java.opts": "-Xmx300m -XX:+UseSerialGC -Xshare:auto",
    "mapreduce.task.io.sort.mb": "64",
    "mapreduce.task.progress-report.interval": "200",
    "mapreduce.job.reduce.slowstart.completedmaps": "1.0",
    "mapreduce.client.progressmonitor.pollinterval": "50",
    "mapreduce.client.completion.pollinterval": "50",
}


@dataclass
class JobTimes:
    """Seconds of a job, as its client saw it."""

    whole: float
    maps: float


def address_of(place: int) -> str:
    """The address of a node."""
    return f"127.0.1.{place + 1}"


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class HadoopNodes:
    """A context manager. `options` override others, `jars` are in the class path of all; each node
    has room for this number of tasks at a time. With none, there is HDFS alone. At most `masters`
    jobs, of at most three, run at a time.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        folder: Path,
        options: Mapping[str, str],
        jars: Sequence[Path] = (),
        tasks: int = 1,
        masters: int = 1,
    ) -> None:
        self.nodes, self.folder, self.tasks, self.masters = nodes, folder, tasks, masters
        self.classpath = ":".join([*map(str, jars), classpath()])
        ports = {name: free_port() for name in ("names", "rm", "scheduler", "tracker", "web")}
        here = "127.0.0.1:"
        self.hdfs = f"hdfs://{here}{ports['names']}"
        self.web = f"http://{here}{ports['web']}/ws/v1/cluster"
        self.options = {
            "fs.defaultFS": self.hdfs,
            **OPTIONS,
            "yarn.resourcemanager.address": f"{here}{ports['rm']}",
            "yarn.resourcemanager.scheduler.address": f"{here}{ports['scheduler']}",
            "yarn.resourcemanager.resource-tracker.address": f"{here}{ports['tracker']}",
            "yarn.resourcemanager.admin.address": f"{here}{free_port()}",
            "yarn.resourcemanager.webapp.address": f"{here}{ports['web']}",
            "yarn.application.classpath": self.classpath,
            "mapreduce.application.classpath": self.classpath,
            "dfs.namenode.rpc-address": f"{here}{ports['names']}",
            "dfs.namenode.name.dir": f"file://{folder}/names",
            **options,
        }
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> HadoopNodes:
        self.folder.mkdir(parents=True)
        (self.folder / "tmp").mkdir()
        self.log = (self.folder / "log").open("ab")
        subprocess.run(
            self.java("-Xmx256m", self.site("client", {}), NAME_NODE, "-format", "-nonInteractive"),
            env=self.environment(),
            stdout=self.log,
            stderr=self.log,
            check=True,
        )
        try:
            self.start(None, "names", {}, NAME_NODE)
            for place, node in enumerate(self.nodes):
                own = {
                    "dfs.datanode.hostname": address_of(place),
                    "dfs.datanode.data.dir": f"file://{node.folder}/hdfs",
                }
                self.start(node, f"{node.name}-data", own, DATA_NODE)
            if self.tasks:
                self.start_yarn()
            self.wait_for_data_nodes()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start_yarn(self) -> None:
        """Starts the ResourceManager, and the NodeManagers of the nodes and of the masters."""
        self.start(None, "rm", {}, f"{SERVER}.resourcemanager.ResourceManager")
        masters = (MASTER_MB * self.masters, MASTER_CORES * self.masters)
        self.start_tasks(None, "masters", "127.0.0.1", *masters)
        of_node = (TASK_MB * self.tasks, TASK_CORES * self.tasks)
        for place, node in enumerate(self.nodes):
            self.start_tasks(node, f"{node.name}-tasks", address_of(place), *of_node)
        wait_for(lambda: self.joined() == len(self.nodes) + 1, "starting YARN")

    def start_tasks(
        self, node: Node | None, name: str, address: str, memory_mb: int, cores: int
    ) -> None:
        """Starts a NodeManager with this address and room for containers."""
        own = {
            "yarn.nodemanager.hostname": address,
            "yarn.nodemanager.address": f"{address}:0",
            "yarn.nodemanager.resource.memory-mb": str(memory_mb),
            "yarn.nodemanager.resource.cpu-vcores": str(cores),
        }
        self.start(node, name, own, f"{SERVER}.nodemanager.NodeManager")

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.log.close()

    def site(self, name: str, own: Mapping[str, str]) -> Path:
        """A configuration folder for a process."""
        site = self.folder / "conf" / name
        site.mkdir(parents=True)
        options = {
            **self.options,
            "hadoop.tmp.dir": str(self.folder / "tmp" / name),
            "yarn.nodemanager.local-dirs": str(self.folder / "tmp" / name / "local"),
            "yarn.nodemanager.log-dirs": str(self.folder / "tmp" / name / "logs"),
            **own,
        }
        rows = "".join(
            f"<property><name>{escape(key)}</name><value>{escape(value)}</value></property>\n"
            for key, value in options.items()
        )
        # Hadoop reads its own defaults of a part after the file of another part.
        for part in "core", "hdfs", "yarn", "mapred":
            (site / f"{part}-site.xml").write_text(f"<configuration>\n{rows}</configuration>\n")
        return site

    def java(self, memory: str, site: Path, *words: str) -> list[str]:
        """A command that runs a class of Hadoop."""
        options = [*JVM.split(), *OPENED, f"-Djava.io.tmpdir={self.folder / 'tmp'}"]
        return ["java", memory, *options, "-cp", f"{site}:{self.classpath}", *words]

    def environment(self) -> dict[str, str]:
        """The variables of all processes."""
        java = Path(shutil.which("java") or "java").resolve().parents[1]
        return {**os.environ, "JAVA_HOME": str(java)}

    def start(self, node: Node | None, name: str, own: Mapping[str, str], main: str) -> None:
        """Starts a process of Hadoop, in a node or outside of all."""
        words = self.java("-Xmx256m", self.site(name, own), main)
        start = node.start if node else subprocess.Popen
        self.processes.append(
            start(
                words,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=self.log,
                stderr=self.log,
            )
        )

    def check_processes(self) -> None:
        """Raises an error if a process has ended."""
        for process in self.processes:
            if process.poll() is not None:
                said = (self.folder / "log").read_text(errors="replace")
                raise RuntimeError(f"a process of Hadoop has ended: {said[-3000:]}")

    def joined(self) -> int:
        """Number of nodes of YARN."""
        self.check_processes()
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(f"{self.web}/metrics") as answer:
                found = re.search(rb'"activeNodes":(\d+)', answer.read())
                return int(found[1]) if found else 0
        return 0

    def wait_for_data_nodes(self) -> None:
        """Waits until the HDFS has all of its nodes."""

        def have_joined() -> bool:
            self.check_processes()
            try:
                said = self.run("org.apache.hadoop.hdfs.tools.DFSAdmin", "-report")
            except RuntimeError:
                return False  # the NameNode does not listen yet
            return said.count("Hostname: ") == len(self.nodes)

        wait_for(have_joined, "starting HDFS")

    def run(self, *words: str) -> str:
        """Runs a program of Hadoop to its end. Returns what it has printed."""
        done = subprocess.run(
            self.java("-Xmx256m", self.folder / "conf" / "client", *words),
            env={**self.environment(), "HADOOP_ROOT_LOGGER": "INFO,console"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_S,
        )
        if done.returncode:
            said = (done.stdout + done.stderr)[-4000:]
            raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {said}")
        return done.stdout

    def job(self, jar: str, *words: str) -> JobTimes:
        """Runs a job. Its client says when all maps have ended."""
        options = ["-Dhadoop.root.logger=INFO,console", "org.apache.hadoop.util.RunJar", jar]
        began = time.monotonic()
        mapped = 0.0
        said = []
        process = subprocess.Popen(
            self.java("-Xmx256m", self.folder / "conf" / "client", *options, *words),
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout
        try:
            for line in process.stdout:
                said.append(line)
                if " map 100% " in line and not mapped:
                    mapped = time.monotonic() - began
            process.wait()
        finally:
            process.kill()
        if process.wait() or not mapped:
            raise RuntimeError(f"{' '.join(words)} has failed: {''.join(said)[-4000:]}")
        return JobTimes(time.monotonic() - began, mapped)
