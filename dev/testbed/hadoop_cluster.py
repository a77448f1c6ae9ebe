"""A real YARN on this machine, whose containers are processes, and an HDFS. See `hadoop/`."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from slurm_cluster import wait_until

PROJECT = Path(__file__).resolve().parent.parent.parent
SOURCE = Path(__file__).resolve().parent / "hadoop"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", PROJECT / "target")).resolve()
TOOLS = TARGET / "testbed" / "hadoop"
START_S = 400
END_S = 30
JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto"
OPENED = [
    f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ["lang", "io", "util", "net"]
]

# What makes jobs on a small machine take seconds. Eight containers run at the same time.
OPTIONS = {
    "yarn.minicluster.yarn.nodemanager.resource.memory-mb": "1024",
    "yarn.scheduler.minimum-allocation-mb": "256",
    "yarn.nodemanager.disk-health-checker.enable": "false",
    "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "100",
    "yarn.client.application-client-protocol.poll-interval-ms": "50",
    "yarn.log-aggregation-enable": "true",
    "yarn.nodemanager.remote-app-log-dir": "/tmp/logs",
    "yarn.app.mapreduce.am.staging-dir": "/tmp/staging",
    "yarn.app.mapreduce.am.resource.mb": "256",
    "yarn.app.mapreduce.am.command-opts": f"-Xmx256m {JVM}",
    "yarn.app.mapreduce.am.scheduler.heartbeat.interval-ms": "100",
    "mapreduce.map.memory.mb": "256",
    "mapreduce.map.java.opts": f"-Xmx200m {JVM}",
    "mapreduce.reduce.memory.mb": "256",
    "mapreduce.reduce.java.opts": f"-Xmx200m {JVM}",
    "mapreduce.task.io.sort.mb": "32",
    "mapreduce.task.progress-report.interval": "200",
    "mapreduce.client.progressmonitor.pollinterval": "100",
    "mapreduce.client.completion.pollinterval": "100",
    "mapreduce.job.ubertask.enable": "false",
}


class NotInstalled(Exception):
    """A program is missing, or Maven cannot get a package."""


def classpath() -> str:
    """The class path of Hadoop and of the testbed, which are fetched and compiled once."""
    for program in ["java", "javac", "mvn"]:
        if not shutil.which(program):
            raise NotInstalled(f"{program} is not installed")
    sources = [SOURCE / "pom.xml", *sorted((SOURCE / "src").rglob("*.java"))]
    stamp = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    TOOLS.mkdir(parents=True, exist_ok=True)
    with (TOOLS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = TOOLS / "stamp"
        if not done.exists() or done.read_text() != stamp:
            words = ["mvn", "-q", "-B", "-f", str(SOURCE / "pom.xml")]
            words += [f"-DbuildDirectory={TOOLS / 'build'}", "compile"]
            words += ["dependency:build-classpath", f"-Dmdep.outputFile={TOOLS / 'classpath'}"]
            run = subprocess.run(words, capture_output=True, text=True)
            if run.returncode:
                raise NotInstalled(f"mvn failed: {(run.stdout + run.stderr)[-1000:]}")
            done.write_text(stamp)
    return f"{TOOLS / 'build' / 'classes'}:{(TOOLS / 'classpath').read_text()}"


def jar(name: str) -> str:
    """The path of a jar of Hadoop, by the beginning of its name."""
    found = [path for path in classpath().split(":") if Path(path).name.startswith(name)]
    assert len(found) == 1, found
    return found[0]


@dataclass
class Program:
    """A program of Hadoop that runs, and the file with what it prints."""

    words: Sequence[str]
    process: subprocess.Popen[bytes]
    output: Path

    def said(self) -> str:
        """What it has printed."""
        return self.output.read_text(errors="replace")

    def find(self, pattern: str) -> str:
        """Waits until it has printed a match of the pattern. Returns the match."""
        wait_until(
            f"{pattern} in the output of {self.words}",
            lambda: bool(re.search(pattern, self.said())) or self.process.poll() is not None,
        )
        found = re.search(pattern, self.said())
        if not found:
            raise SystemExit(f"{self.words} has not printed {pattern}: {self.said()[-3000:]}")
        return found[0]

    def wait(self, code: int = 0) -> str:
        """Waits for its end. Returns what it has printed."""
        self.process.wait()
        if self.process.returncode != code:
            raise SystemExit(
                f"{' '.join(self.words)} ended with {self.process.returncode}: "
                f"{self.said()[-4000:]}"
            )
        return self.said()


class Hadoop:
    """YARN and HDFS. A context manager that ends them with all their containers.

    `options` are those of core-site.xml; `jars` stand in the class path of all processes.
    """

    def __init__(
        self,
        folder: Path,
        options: Mapping[str, str],
        jars: Sequence[Path] = (),
        nodes: int = 2,
    ) -> None:
        self.folder = folder.resolve()
        self.nodes = nodes
        self.options = {**OPTIONS, **options}
        self.classpath = ":".join([str(SOURCE), *map(str, jars), classpath()])
        self.process: subprocess.Popen[bytes] | None = None
        self.programs: list[Program] = []

    def __enter__(self) -> Hadoop:
        (self.folder / "tmp").mkdir(parents=True)
        self._write_options()
        words = self._java("-Xmx512m", f"{self.folder / 'site'}:{self.classpath}")
        words += [f"-Dtest.build.data={self.folder / 'data'}"]
        words += ["HadoopTestbed", str(self.folder), str(self.nodes)]
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                words,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            wait_until("YARN is ready", self._is_ready, deadline_s=START_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _write_options(self) -> None:
        """Writes the configuration that the nodes of YARN have."""
        (self.folder / "site").mkdir()
        rest = self.options
        for name, start in {"yarn": "yarn.", "mapred": "mapreduce.", "core": ""}.items():
            rows = [
                f"<property><name>{escape(key)}</name><value>{escape(value)}</value></property>\n"
                for key, value in rest.items()
                if key.startswith(start)
            ]
            rest = {key: value for key, value in rest.items() if not key.startswith(start)}
            text = f"<configuration>\n{''.join(rows)}</configuration>\n"
            (self.folder / "site" / f"{name}-site.xml").write_text(text)

    def _is_ready(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise SystemExit(f"Hadoop has not started: {self.log()[-3000:]}")
        return (self.folder / "conf").exists()

    def __exit__(self, *_: object) -> None:
        assert self.process is not None
        self.end_programs()
        self.process.terminate()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for process in self.containers(""):
            os.kill(process, signal.SIGKILL)

    def _java(self, memory: str, path: str, *options: str) -> list[str]:
        return [
            "java",
            memory,
            *JVM.split(),
            *OPENED,
            *options,
            f"-Djava.io.tmpdir={self.folder / 'tmp'}",
            "-cp",
            path,
        ]

    def log(self) -> str:
        """Warnings of YARN and HDFS."""
        return (self.folder / "log").read_text(errors="replace")

    @property
    def hdfs(self) -> str:
        """The URI of the HDFS."""
        return (self.folder / "hdfs").read_text()

    def start(self, *words: str) -> Program:
        """Starts a program of Hadoop, as `hadoop CLASS WORDS...` does."""
        folder = self.folder / "programs"
        folder.mkdir(exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, suffix=".log")
        path = f"{self.folder / 'conf'}:{self.classpath}"
        options = ["-Dhadoop.root.logger=INFO,console"]
        with os.fdopen(handle, "wb") as log:
            process = subprocess.Popen(
                [*self._java("-Xmx256m", path, *options), *words],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        program = Program(words, process, Path(name))
        self.programs.append(program)
        return program

    def end_programs(self) -> None:
        """Kills the programs that run."""
        for program in self.programs:
            if program.process.poll() is None:
                program.process.kill()

    def run(self, *words: str, code: int = 0) -> str:
        """Runs a program of Hadoop to its end. Returns what it has printed."""
        return self.start(*words).wait(code)

    def option(self, name: str) -> str:
        """The value of an option that programs of Hadoop have."""
        for file in (self.folder / "conf").iterdir():
            for row in ElementTree.parse(file).getroot().iter("property"):
                if row.findtext("name") == name:
                    return row.findtext("value") or ""
        raise KeyError(name)

    def containers(self, word: str) -> list[int]:
        """The processes of Java in containers of this YARN with this word in their command line."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
                place = os.readlink(process / "cwd")
            except OSError:
                continue
            is_ours = place.startswith(f"{self.folder}/data/") and words[0].endswith(b"java")
            if is_ours and any(word.encode() in one for one in words):
                found.append(int(process.name))
        return found
