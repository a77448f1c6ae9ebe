"""Hadoop's own programs on a real YARN whose file system is a cluster of two nodes (`eyas://`).

    yarn.py EYAS_JAR HADOOP_JAR [CHECK...]

Containers of the YARN are processes, of which this kills and stops some. dev/judges/yarn.sh makes
the jars. A check that fails must be in dev/judges/yarn_excluded.txt, and each row there must be
needed.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "testbed"))
from hadoop_cluster import Hadoop, NotInstalled, Program, classpath, jar
from measured import COMMAND, MeasuredCluster
from slurm_cluster import wait_until

HERE = Path(__file__).resolve().parent
RUN_JAR = "org.apache.hadoop.util.RunJar"
SHELL = "org.apache.hadoop.fs.FsShell"
DISTCP = "org.apache.hadoop.tools.DistCp"
MAP_TASKS = 4
LINES = 60_000
ROWS = 200_000  # of teragen, 100 bytes each
ROW_BYTES, KEY_BYTES = 100, 10
PAUSE_S = 0.05
AT_ONCE = 2

# What docs/guides/hadoop.md asks for. Small chunks, so that there are many pieces.
OPTIONS = {
    "fs.defaultFS": "eyas://default/",
    "fs.AbstractFileSystem.eyas.impl": "io.eyas.hadoop.EyasFs",
    "fs.eyas.block.size": "256k",
    "fs.eyas.replication": "2",
    "mapreduce.outputcommitter.factory.scheme.eyas": "io.eyas.hadoop.mapreduce.RunCommitterFactory",
}
ELASTIC = [
    "-Dmapreduce.job.inputformat.class=io.eyas.hadoop.mapreduce.ElasticTextInputFormat",
    f"-Deyas.map.tasks={MAP_TASKS}",
]
# Needs a while for each line, so that a map task can be found in the middle of its work.
SLOW = r"^(?:\w+ )*(?:\w+ )*(?:\w+ )*(?:\w+ )*(w1\w?)$"


class Judge:
    """The clusters, and what the checks share."""

    def __init__(self, folder: Path, eyas: MeasuredCluster, hadoop: Hadoop) -> None:
        self.folder = folder
        self.eyas = eyas
        self.hadoop = hadoop
        self.examples = jar("hadoop-mapreduce-examples-")
        self.found = b""

    # ---- programs

    def example(self, name: str, *words: str) -> Program:
        """Starts `hadoop jar hadoop-mapreduce-examples.jar NAME WORDS...`."""
        return self.hadoop.start(RUN_JAR, self.examples, name, *words)

    def grep(self, output: str) -> Program:
        """Starts a grep over elastic blocks, whose output is `found`."""
        return self.example("grep", *ELASTIC, "/in", output, SLOW, "1")

    def names(self, folder: str) -> list[str]:
        """The names of the entries of a folder of eyas."""
        lines = self.eyas.eyas("dfs", "ls", folder).splitlines()
        return sorted(Path(line.split()[-1]).name for line in lines[1:])

    def content(self, file: str) -> bytes:
        """The content of a file of eyas."""
        words = [self.eyas.command, "dfs", "cat", file]
        return subprocess.check_output(words, env=self.eyas.environment)

    def output(self, folder: str, *others: str) -> bytes:
        """All output of a job on eyas, of which nothing else may be left but these others."""
        names = self.names(folder)
        parts = [name for name in names if name.startswith("part-")]
        assert sorted(["_SUCCESS", *others, *parts]) == names, names
        return b"".join(self.content(f"{folder}/{part}") for part in parts)

    # ---- jobs that run

    def application(self, program: Program) -> str:
        """The application of a program's job, of which there is one at first."""
        return program.find(r"application_\d+_\d+")

    def tasks(self, application: str) -> list[dict[str, Any]]:
        """The map tasks of a running job, from the REST interface of its master."""
        job = application.replace("application", "job")
        address = self.hadoop.option("yarn.resourcemanager.webapp.address")
        url = f"http://{address}/proxy/{application}/ws/v1/mapreduce/jobs/{job}/tasks?type=m"
        request = urllib.request.Request(url, headers={"Accept": "application/json"})
        try:
            with urllib.request.urlopen(request) as answer:
                shown: dict[str, Any] = json.load(answer)
        except (OSError, ValueError):
            # There is no master yet, or it has ended.
            return []
        return (shown.get("tasks") or {}).get("task", [])

    def attempt_in_the_middle(self, program: Program) -> tuple[str, int]:
        """An attempt that has read a part of its input, and its process."""
        application = self.application(program)
        found: list[tuple[str, int]] = []

        def look() -> bool:
            assert program.process.poll() is None, program.said()[-3000:]
            for task in self.tasks(application):
                attempt = task["id"].replace("task_", "attempt_") + "_0"
                if task["state"] == "RUNNING" and 5 < task["progress"] < 60:
                    found.extend((attempt, one) for one in self.hadoop.containers(attempt))
            return bool(found)

        wait_until("a map task is in the middle", look, PAUSE_S)
        return found[0]


# ---- the checks


def jobs_over_elastic_blocks_equal_those_over_splits(judge: Judge) -> None:
    """Word count on HDFS, and grep on local files, write the same."""
    hdfs = judge.hadoop.hdfs
    local = ["-Dmapreduce.framework.name=local", "-Dfs.defaultFS=file:///"]
    paths = [str(judge.folder / name) for name in ["in", "found"]]
    found = judge.example("grep", *local, *paths, SLOW, "1")
    counted = judge.example("wordcount", f"{hdfs}/in", f"{hdfs}/counts")
    found.wait()
    judge.found = (judge.folder / "found" / "part-r-00000").read_bytes()
    assert judge.found.count(b"\n") > 10, judge.found
    counted.wait()
    judge.hadoop.run(SHELL, "-getmerge", f"{hdfs}/counts", f"{judge.folder}/counts")
    expected = (judge.folder / "counts").read_bytes()
    assert expected.count(b"\n") > 1000
    judge.example("wordcount", *ELASTIC, "/in", "/counts").wait()
    assert judge.output("/counts") == expected


def an_attempt_that_is_killed_counts_once(judge: Judge) -> None:
    """The process of a map attempt is killed in the middle of its work."""
    program = judge.grep("/killed")
    attempt, process = judge.attempt_in_the_middle(program)
    os.kill(process, signal.SIGKILL)
    said = program.wait()
    assert f"{attempt}, Status : FAILED" in said, said[-3000:]
    assert judge.output("/killed") == judge.found


def a_second_attempt_overtakes_one_that_stands_still(judge: Judge) -> None:
    """Speculation: a map attempt is stopped, and YARN begins another one of its task."""
    program = judge.grep("/overtaken")
    _, process = judge.attempt_in_the_middle(program)
    os.kill(process, signal.SIGSTOP)
    said = program.wait()
    assert "Killed map tasks=1" in said, said[-6000:]
    assert judge.output("/overtaken") == judge.found


def end_master(judge: Judge, number: signal.Signals, output: str) -> None:
    """Sends the application master a signal, in the middle of the maps."""
    program = judge.grep(output)
    judge.attempt_in_the_middle(program)
    masters = set(judge.hadoop.containers("MRAppMaster"))
    (master,) = masters & set(judge.hadoop.containers(judge.application(program)))
    os.kill(master, number)
    program.wait()
    assert judge.output(output) == judge.found


def a_master_that_is_killed_begins_again(judge: Judge) -> None:
    """The process of the application master is killed, and YARN begins another one."""
    end_master(judge, signal.SIGKILL, "/again")


def a_master_that_is_ended_begins_again(judge: Judge) -> None:
    """The application master gets a signal, upon which it aborts the job."""
    end_master(judge, signal.SIGTERM, "/again-after-end")


def terasort_sorts(judge: Judge) -> None:
    """Teragen, terasort and teravalidate; the rows are sorted here once more."""
    maps = "-Dmapreduce.job.maps=2"
    judge.example("teragen", maps, str(ROWS), "/tera/in").wait()
    # Otherwise, each chunk is the input of a process.
    splits = f"-Dmapreduce.input.fileinputformat.split.minsize={ROWS * ROW_BYTES // 2}"
    words = [splits, "-Dmapreduce.job.reduces=2", "/tera/in", "/tera/out"]
    judge.example("terasort", *words).wait()
    validation = judge.example("teravalidate", "/tera/out", "/tera/report")
    rows = judge.output("/tera/in")
    assert len(rows) == ROWS * ROW_BYTES
    cut = (rows[at : at + ROW_BYTES] for at in range(0, len(rows), ROW_BYTES))
    expected = b"".join(sorted(cut, key=lambda row: row[:KEY_BYTES]))
    # Terasort leaves its samples, also on HDFS.
    assert judge.output("/tera/out", "_partition.lst") == expected
    validation.wait()
    report = judge.output("/tera/report").decode()
    assert re.fullmatch(r"checksum\t[0-9a-f]+\n", report), report


def distcp_copies(judge: Judge) -> None:
    """From eyas to HDFS, from there to eyas, and from eyas to eyas."""
    hdfs = judge.hadoop.hdfs
    judge.hadoop.run(DISTCP, "/in", f"{hdfs}/copied")
    back = judge.hadoop.start(DISTCP, f"{hdfs}/copied", "/back")
    judge.hadoop.run(DISTCP, "-update", "-p", "/in", "/copied")
    back.wait()
    files = sorted((judge.folder / "in").iterdir())
    for folder in ["/back", "/copied"]:
        assert judge.names(folder) == [file.name for file in files], judge.names(folder)
        for file in files:
            copy = judge.content(f"{folder}/{file.name}")
            assert copy == file.read_bytes(), f"{folder}/{file.name} differs"
    again = judge.hadoop.run(DISTCP, "-update", "/in", "/copied")
    assert f"Files Skipped={len(files)}" in again, again[-3000:]


def nnbench_has_no_exceptions(judge: Judge) -> None:
    """Hadoop's benchmark of names. Its `delete` wants the names before `rename`, also on HDFS."""
    words = ["-maps", "2", "-reduces", "1", "-numberOfFiles", "20", "-bytesToWrite", "100"]
    words += ["-baseDir", "/benchmarks/nnbench", "-startTime", "0"]
    for operation in ["create_write", "open_read", "rename"]:
        said = judge.hadoop.run("org.apache.hadoop.hdfs.NNBench", "-operation", operation, *words)
        assert "Successful file operations: 40" in said, said[-3000:]
        assert re.search(r"# exceptions: 0\b", said), said[-3000:]


def mrbench_runs_small_jobs(judge: Judge) -> None:
    """Hadoop's benchmark of small jobs."""
    said = judge.hadoop.run(
        "org.apache.hadoop.mapred.MRBench", "-numRuns", "2", "-maps", "2", "-reduces", "1"
    )
    assert re.search(r"\n1\t\t2\t1\t\d+", said), said[-3000:]


def testdfsio_writes_and_reads(judge: Judge) -> None:
    """Hadoop's benchmark of large files."""
    words = ["-nrFiles", "2", "-size", "4MB", "-resFile", str(judge.folder / "dfsio")]
    for operation in ["-write", "-read", "-append"]:
        said = judge.hadoop.run("org.apache.hadoop.fs.TestDFSIO", operation, *words)
        assert re.search(r"Total MBytes processed: *8\b", said), said[-3000:]
    judge.hadoop.run("org.apache.hadoop.fs.TestDFSIO", "-clean")


def slive_finds_no_failures(judge: Judge) -> None:
    """Hadoop's stress test with random operations, which verifies what it reads.

    Its two map tasks create, rename and delete each other's files. The test counts as failures
    that a file which is to be created is there, and that one which is to be renamed or deleted is
    not; HDFS refuses these, too.
    """
    result = judge.folder / "slive"
    words = ["-maps", "2", "-reduces", "1", "-ops", "100", "-files", "20", "-dirSize", "8"]
    words += ["-duration", "10", "-seed", "1", "-replication", "2,2"]
    words += ["-blockSize", "1048576,1048576", "-writeSize", "1024,65536"]
    words += ["-appendSize", "1024,65536", "-readSize", "1024,65536"]
    words += ["-resFile", str(result), "-baseDir", "/benchmarks/slive"]
    judge.hadoop.run("org.apache.hadoop.fs.slive.SliveTest", *words)
    report = result.read_text()
    assert "successes" in report, report
    for operation in report.split("Basic report for operation type ")[1:]:
        wrong = "bad_files|chunks_unverified"
        if not operation.startswith(("CreateOp", "RenameOp", "DeleteOp")):
            wrong += "|failures"
        assert not re.search(rf'"({wrong})" = [1-9]', operation), operation


def logs_are_gathered(judge: Judge) -> None:
    """YARN writes the logs of containers into files of eyas, and `yarn logs` reads them."""
    program = judge.example("pi", "1", "10")
    program.wait()
    application = judge.application(program)
    words = ["org.apache.hadoop.yarn.client.cli.LogsCLI", "-applicationId", application]
    logs = ""

    def has_logs() -> bool:
        nonlocal logs
        shown = judge.hadoop.start(*words)
        shown.process.wait()
        logs = shown.said()
        return logs.count("End of LogType:syslog") >= 3

    wait_until("the logs of a master, a map and a reduce", has_logs)
    assert "MRAppMaster" in logs


CHECKS: list[Callable[[Judge], None]] = [
    jobs_over_elastic_blocks_equal_those_over_splits,
    a_second_attempt_overtakes_one_that_stands_still,
    an_attempt_that_is_killed_counts_once,
    a_master_that_is_killed_begins_again,
    a_master_that_is_ended_begins_again,
    terasort_sorts,
    distcp_copies,
    nnbench_has_no_exceptions,
    mrbench_runs_small_jobs,
    testdfsio_writes_and_reads,
    slive_finds_no_failures,
    logs_are_gathered,
]


def text(seed: int) -> str:
    """Lines of words, the same for each seed."""
    chance = random.Random(seed)
    words = [f"w{number:x}" for number in range(4000)]
    return "".join(" ".join(chance.choices(words, k=10)) + "\n" for _ in range(LINES // 2))


def excluded() -> list[str]:
    """The checks that may fail, of which `#` begins the reasons."""
    lines = (HERE / "yarn_excluded.txt").read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def failure_of(check: Callable[[Judge], None], judge: Judge) -> str:
    """Runs a check. Returns why it failed; an empty text if it did not."""
    begin = time.monotonic()
    failure = ""
    try:
        check(judge)
    except (AssertionError, OSError, SystemExit, ValueError, subprocess.SubprocessError) as why:
        failure = f"{type(why).__name__}: {why}"[-1500:] or "failed"
    verdict = "failed" if failure else "ok"
    print(f"{check.__name__.replace('_', ' ')}: {verdict} ({time.monotonic() - begin:.0f} s)")
    print(failure, end="\n" if failure else "", flush=True)
    return failure


def run(judge: Judge, checks: list[Callable[[Judge], None]]) -> int:
    """Runs the checks, two at a time. Returns the exit code."""
    for name in ["one.txt", "two.txt"]:
        (judge.folder / "in" / name).write_text(text(len(name) + ord(name[0])))
    local = str(judge.folder / "in")
    judge.hadoop.run(SHELL, "-put", local, "/in")
    judge.hadoop.run(SHELL, "-put", local, f"{judge.hadoop.hdfs}/in")
    # The others compare with its result.
    failures = {checks[0].__name__: failure_of(checks[0], judge)}
    with ThreadPoolExecutor(AT_ONCE) as threads:
        try:
            later = [threads.submit(failure_of, check, judge) for check in checks[1:]]
            for check, ended in zip(checks[1:], later, strict=True):
                failures[check.__name__] = ended.result()
        except BaseException:
            # Checks that wait do not begin. Those that run lose their programs, and end.
            threads.shutdown(wait=False, cancel_futures=True)
            judge.hadoop.end_programs()
            raise
    known = excluded()
    wrong = [name for name, failure in failures.items() if failure and name not in known]
    wrong += [
        f"excluded, but not needed: {name}"
        for name in known
        if not failures.get(name, "not run") and name
    ]
    for line in wrong:
        print(line)
    return int(bool(wrong))


def main() -> int:
    """Returns the exit code."""
    # dev/judges/run.py ends a judge that is late with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    jars = [Path(word).resolve() for word in sys.argv[1:3]]
    wanted = sys.argv[3:]
    checks = [CHECKS[0], *(one for one in CHECKS[1:] if not wanted or one.__name__ in wanted)]
    try:
        classpath()
    except NotInstalled as why:
        print(f"SKIPPED: Hadoop's programs on YARN: {why}", file=sys.stderr)
        return int(bool(os.environ.get("CI")))
    os.environ.pop("EYAS_CLUSTER", None)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        (folder / "in").mkdir()
        words = ["--nodes", "2", "--dfs", "--cluster", "default"]
        with MeasuredCluster(folder, *words, command=COMMAND) as eyas:
            access = folder / "home" / "clusters" / "default" / "access.toml"
            options = {**OPTIONS, "fs.eyas.access": str(access)}
            with Hadoop(folder / "hadoop", options, jars) as hadoop:
                return run(Judge(folder, eyas, hadoop), checks)


if __name__ == "__main__":
    sys.exit(main())
