"""Other systems that run a program over all parts of a file, for comparison with eyas: see
`mappers.py`. `dev/tools/peers.sh pyspark` installs them.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from capped import Node
from mappers import START_S, Runs, System, Work, timed, wait_for


# Path on which their workers find the function.
FOUND = {"PYTHONPATH": str(Path(__file__).resolve().parent)}


def work_through(part: tuple[str, int, int, list[str]]) -> bytes:
    """A task of these systems. It imports what it needs, since it is sent to workers that have
    nothing but Python.
    """
    import subprocess

    path, begin, end, program = part
    with open(path, "rb") as file:
        file.seek(begin)
        content = file.read(end - begin)
    return subprocess.run(program, input=content, stdout=subprocess.PIPE, check=True).stdout


@contextlib.contextmanager
def parallel(nodes: list[Node], work: Work) -> Iterator[Runs]:
    """GNU parallel with one job slot in each node; the slot's number is the node's."""
    here = str(Path(sys.executable).parent)
    command = shutil.which("parallel", path=os.pathsep.join([here, os.environ["PATH"]]))
    if command is None:
        raise ModuleNotFoundError("GNU parallel: apt-get install parallel, or dev/tools/peers.sh")
    words = [
        command,
        "--will-cite",
        "--pipepart",
        "-a",
        str(work.text),
        "--block",
        str(work.chunk_bytes),
    ]
    words += [
        "-j",
        str(len(nodes)),
        f"echo $$ > {nodes[0].entrance('n$(({%}-1))')}; exec {shlex.join(work.program)}",
    ]
    yield {
        "GNU parallel": lambda: timed(
            lambda: subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        )
    }


@contextlib.contextmanager
def dask(nodes: list[Node], work: Work) -> Iterator[Runs]:
    """A Dask bag, with a worker of one thread in each node."""
    if (
        importlib.util.find_spec("distributed") is None
        or importlib.util.find_spec("dask.bag") is None
    ):
        raise ModuleNotFoundError(
            "Dask: dev/tools/peers.sh, and run this with target/peers/bin/python"
        )
    import dask.bag
    from distributed import Client

    with ExitStack() as ending:
        log = ending.enter_context(open(nodes[0].folder.parent / "dask.log", "ab"))
        told = nodes[0].folder.parent / "scheduler.json"

        def start(begin: Callable[..., subprocess.Popen[bytes]], kind: str, *words: object) -> None:
            common = ["--scheduler-file", told, "--no-dashboard", "--host", "127.0.0.1"]
            command = [str(word) for word in [sys.executable, "-m", "dask", kind, *common, *words]]
            process = begin(command, stdout=log, stderr=log, env={**os.environ, **FOUND})
            ending.callback(process.wait, START_S)
            ending.callback(process.terminate)

        start(subprocess.Popen, "scheduler", "--port", "0")
        wait_for(told.exists, "starting Dask")
        for node in nodes:
            start(
                node.start,
                "worker",
                "--nthreads",
                "1",
                "--no-nanny",
                "--local-directory",
                node.folder / "dask",
            )
        client = ending.enter_context(Client(scheduler_file=str(told)))
        client.wait_for_workers(len(nodes), START_S)
        parts = work.parts()
        bag = dask.bag.from_sequence(parts, npartitions=len(parts)).map(work_through)
        bag.compute()
        yield {"Dask bag": lambda: timed(bag.compute)}


def spark(is_speculative: bool) -> System:
    """Spark, standalone, with a worker of one core in each node."""

    @contextlib.contextmanager
    def system(nodes: list[Node], work: Work) -> Iterator[Runs]:
        if importlib.util.find_spec("pyspark") is None or shutil.which("java") is None:
            message = (
                "Spark is missing: install Java, run dev/tools/peers.sh pyspark, use "
                "target/peers/bin/python"
            )
            raise ModuleNotFoundError(message)
        import pyspark
        from pyspark.sql import SparkSession

        home = Path(pyspark.__file__).parent
        folder = nodes[0].folder.parent
        settings = {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": str(home),
            "PYSPARK_PYTHON": sys.executable,
            **FOUND,
        }
        os.environ.update(settings)
        with ExitStack() as ending:
            log = ending.enter_context(open(folder / "spark.log", "ab"))

            def start(
                begin: Callable[..., subprocess.Popen[bytes]], kind: str, *words: object
            ) -> None:
                spark = home / "bin" / "spark-class"
                command = [spark, f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1", *words]
                process = begin([str(word) for word in command], stdout=log, stderr=log)
                ending.callback(process.wait, START_S)
                ending.callback(process.terminate)

            start(subprocess.Popen, "master.Master", "--port", "7077", "--webui-port", "0")
            for node in nodes:
                room = [
                    "--cores",
                    "1",
                    "--memory",
                    "1g",
                    "--webui-port",
                    "0",
                    "--work-dir",
                    node.folder / "spark",
                ]
                start(node.start, "worker.Worker", *room, "spark://127.0.0.1:7077")
            told = {
                "spark.ui.enabled": False,
                "spark.locality.wait": 0,
                "spark.speculation": is_speculative,
            }
            told |= {"spark.ui.showConsoleProgress": False, "spark.executor.memory": "512m"}
            builder = SparkSession.builder.master("spark://127.0.0.1:7077").appName("straggler")
            for key, value in told.items():
                builder = builder.config(
                    key, str(value).lower() if isinstance(value, bool) else str(value)
                )
            session = builder.getOrCreate()
            ending.callback(session.stop)
            context = session.sparkContext
            context.setLogLevel("ERROR")
            executors = context._jsc.sc().getExecutorMemoryStatus
            wait_for(lambda: executors().size() == len(nodes) + 1, "starting Spark")
            parts = work.parts()
            tasks = context.parallelize(parts, len(parts)).map(work_through)
            tasks.collect()
            yield {
                "Spark, speculating" if is_speculative else "Spark": lambda: timed(tasks.collect)
            }

    return system


PEERS: list[System] = [parallel, dask, spark(False), spark(True)]
