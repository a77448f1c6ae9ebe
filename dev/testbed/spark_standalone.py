"""A Spark cluster of this machine: a master, and two workers whose hosts have different names.

In Spark's own `local-cluster` all executors are of one host, and Spark runs no speculative attempt
on the host of the first attempt.
"""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark
from slurm_cluster import wait_until

# Options of Java for processes of which each lives a minute or two.
SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
END_S = 30
HOME = Path(pyspark.__file__).parent
HOSTS = ("127.0.0.1", "127.0.0.2")
MASTER = re.compile(r"Starting Spark master at (spark://\S+)")


class StandaloneSpark:
    """The processes of the cluster. A context manager that ends them at its end."""

    def __init__(self, folder: Path, cores: int, memory: str) -> None:
        self.folder = folder
        self.cores = cores
        self.memory = memory
        self.url = ""
        self._processes = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            starting.callback(self._processes.close)
            options = ["--host", HOSTS[0], "--port", "0", "--webui-port", "0"]
            log = self._start("master", *options)
            found: list[str] = []

            def is_known() -> bool:
                found.extend(MASTER.findall(log.read_text()))
                return bool(found)

            wait_until("Spark's master listens", is_known)
            self.url = found[0]
            for number, host in enumerate(HOSTS):
                options = ["--host", host, "--port", "0", "--webui-port", "0"]
                options += ["--cores", str(self.cores), "--memory", self.memory]
                options += ["--work-dir", str(self.folder / f"work-{number}")]
                self._start(f"worker-{number}", *options, self.url)
            starting.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._processes.close()

    def _start(self, name: str, *options: str) -> Path:
        """Starts a process, and returns the file of what it prints."""
        role = name.split("-")[0]
        command = [str(HOME / "bin" / "spark-class")]
        command += [f"org.apache.spark.deploy.{role}.{role.capitalize()}", *options]
        environment = {
            **os.environ,
            "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_HOME": str(HOME),
        }
        log = self.folder / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._processes.callback(process.wait, END_S)
        self._processes.callback(process.terminate)
        return log
