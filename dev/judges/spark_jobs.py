#!/usr/bin/env python3
"""Jobs of a real Spark on files of a cluster give the same bytes over elastic blocks as over splits
of files.

`dev/judges/spark.sh` runs it, with pyspark, on a cluster that has no files yet. Spark has a master
and two workers with two cores each; their executors are processes. What Spark logs stays in the
folder of the test, and is shown if a check fails.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "testbed"))
from slurm_cluster import wait_until
from spark_standalone import SHORT_LIVED, StandaloneSpark

EYAS = os.environ["EYAS_BIN"]
ROOT = "eyas://default"
INPUT = f"{ROOT}/in"
SCHEDULERS = ("lean", "multiwave", "io-aware", "static")
TASKS = 4
LINES = 20_000
DEADLINE_S = 120
POLL_S = 0.05
LOG_CHARACTERS = 4000
# More than the runs that a node leads at a time.
MANY_SCANS = 1100
MAX_OPEN_RUNS = 300


# ---- files and sessions


def put(sources: Iterable[Path], name: str) -> None:
    """Writes files into a folder of the cluster, with many chunks."""
    words = [EYAS, "dfs", "put", "--chunk-size", "16KiB", *map(str, sources), name]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def write_inputs(folder: Path) -> None:
    """Lines of each kind: many; with other ends and a mark of their encoding; none; compressed."""
    inputs = folder / "in"
    inputs.mkdir()
    lines = [f"line {n} of {n % 97} word{n * 7919 % 1013}" for n in range(LINES)]
    (inputs / "lines.txt").write_text("".join(f"{line}\n" for line in lines))
    (inputs / "dos.txt").write_bytes("\ufeffone\r\ntwo\r\n\r\nand\rth\u00e9e".encode())
    (inputs / "empty.txt").write_bytes(b"")
    (inputs / "packed.txt.gz").write_bytes(gzip.compress(b"packed one\npacked two\n"))
    put(sorted(inputs.iterdir()), "/in/")
    names = folder / "names.txt"
    names.write_text("".join(f"{n} name-{n}\n" for n in range(0, 97, 2)))
    put([names], "/names/")
    nothing = folder / "nothing"
    nothing.mkdir()
    for number in range(1000):
        (nothing / f"{number}.txt").touch()
    put(sorted(nothing.iterdir()), "/nothing/")


def start_session(spark: StandaloneSpark, is_speculating: bool) -> SparkSession:
    """A session that has all of the executors."""
    options = {
        "spark.jars": os.environ["EYAS_JARS"],
        "spark.hadoop.fs.eyas.impl": "io.eyas.hadoop.EyasFileSystem",
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "768m",
        "spark.executor.extraJavaOptions": SHORT_LIVED,
        "spark.executor.memory": "768m",
        "spark.local.dir": str(spark.folder / "local"),
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.shuffle.partitions": "3",
        "spark.speculation": str(is_speculating).lower(),
        "spark.speculation.interval": "50ms",
        "spark.speculation.minTaskRuntime": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master(spark.url).appName("judge")
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    status = session.sparkContext._jsc.sc().statusTracker()
    # The driver counts as one.
    wait_until("Spark has two executors", lambda: len(status.getExecutorInfos()) == 3)
    return session


def elastic(session: SparkSession, *paths: str, **options: object) -> DataFrame:
    """Lines of files over elastic blocks."""
    reader = session.read.format("eyas")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(list(paths) if len(paths) > 1 else paths[0])


def open_runs(session: SparkSession) -> int:
    """Number of runs that the driver holds."""
    return int(session._jvm.io.eyas.spark.EyasSource.openRuns())  # type: ignore[union-attr]


def texts(frame: DataFrame) -> list[str]:
    """The rows, as text, in the order of Spark."""
    return ["\t".join(map(str, row)) for row in frame.collect()]


# ---- jobs: lines, and names by number, to rows


def grep(lines: DataFrame, names: DataFrame) -> list[str]:
    """Lines that match, whose order is of no account."""
    return sorted(texts(lines.filter(f.col("value").rlike(r"of 1[37] |two|\u00e9"))))


def word_count(lines: DataFrame, names: DataFrame) -> list[str]:
    """Words with their counts, by words."""
    words = lines.select(f.explode(f.split("value", r"\s+")).alias("word"))
    return texts(words.groupBy("word").count().orderBy("word"))


def join(lines: DataFrame, names: DataFrame) -> list[str]:
    """Lines with the names of their numbers."""
    parts = f.split("value", " ")
    numbered = lines.withColumn("number", f.get(parts, f.lit(3)))
    named = names.select(
        f.get(parts, f.lit(0)).alias("number"), f.get(parts, f.lit(1)).alias("name")
    )
    return sorted(texts(numbered.join(named, "number")))


def sort(lines: DataFrame, names: DataFrame) -> list[str]:
    """Lines by their bytes."""
    return texts(lines.orderBy(f.desc("value")))


JOBS = (grep, word_count, join, sort)


def content(rows: list[str]) -> bytes:
    """The bytes of rows."""
    return "".join(f"{row}\n" for row in rows).encode()


def jobs_give_the_same_bytes(session: SparkSession, folder: Path) -> None:
    """Each job under each scheduler, against `spark.read.text`."""
    lines, names = session.read.text(INPUT), session.read.text(f"{ROOT}/names")
    for job in JOBS:
        expected = content(job(lines, names))
        assert len(expected) > 1000, f"{job.__name__} has too small a result to tell anything"
        for scheduler in SCHEDULERS:
            own = {"scheduler": scheduler, "tasks": TASKS}
            pair = elastic(session, INPUT, **own), elastic(session, f"{ROOT}/names", **own)
            found = content(job(*pair))
            assert found == expected, (
                f"{job.__name__} under {scheduler} wrote {len(found)} bytes, and spark.read.text "
                f"{len(expected)}, or other ones"
            )


# ---- attempts


def await_file(path: Path, what: str) -> None:
    """Waits in a task until another process has made a file."""
    deadline = time.monotonic() + DEADLINE_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: waited in vain for {path}")
        time.sleep(POLL_S)


def slow_first_attempt(folder: Path) -> Callable[[Iterable[Row]], Iterator[str]]:
    """The first attempt of partition 0 reads a few lines, and goes on when another has begun."""

    def read(rows: Iterable[Row]) -> Iterator[str]:
        context = TaskContext.get()
        assert context is not None
        lines = (row.value for row in rows)
        few = list(islice(lines, 10))
        if context.partitionId() == 0:
            if context.attemptNumber() > 0:
                (folder / "second").touch()
            else:
                await_file(folder / "second", "no speculative attempt")
        yield from few
        yield from lines

    return read


def speculation_counts_lines_once(session: SparkSession, folder: Path) -> None:
    """Two attempts of a partition run at once."""
    expected = Counter(row.value for row in session.read.text(INPUT).collect())
    for scheduler in SCHEDULERS:
        place = folder / scheduler
        place.mkdir()
        lines = elastic(session, INPUT, scheduler=scheduler, tasks=TASKS)
        found = Counter(lines.rdd.mapPartitions(slow_first_attempt(place)).collect())
        assert (place / "second").exists(), "no speculative attempt has begun"
        assert found == expected, f"under {scheduler}: {differences(found, expected)}"


def differences(found: Counter[str], expected: Counter[str]) -> str:
    """What differs, in short."""
    extra, missing = found - expected, expected - found
    return (
        f"{extra.total()} lines too many, such as {list(extra)[:3]}; "
        f"{missing.total()} too few, such as {list(missing)[:3]}"
    )


def parent_of(pid: int) -> int:
    """The parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def wait_to_be_killed(folder: Path, stage: str) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The first attempt of partition 0 of a stage names its executor, and waits for its end."""

    def read(items: Iterable[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        each = iter(items)
        yield from islice(each, 10)
        if context.partitionId() == 0 and not (folder / f"{stage}.killed").exists():
            # This process is a child of pyspark's daemon, and that is one of the executor.
            written = folder / f"{stage}.part"
            written.write_text(str(parent_of(os.getppid())))
            written.rename(folder / f"{stage}.pid")
            await_file(folder / "never", "the executor was not killed")
        yield from each

    return read


def kill_executors(folder: Path, stages: tuple[str, ...], killed: list[int]) -> None:
    """Kills the executor that each stage names, in this order."""
    for stage in stages:
        named = folder / f"{stage}.pid"
        await_file(named, f"no executor has begun stage {stage}")
        (folder / f"{stage}.killed").touch()
        pid = int(named.read_text())
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)


def killed_executors_lose_nothing(session: SparkSession, folder: Path) -> None:
    """An executor ends while it reads pieces, and another one when others need its outputs."""
    text = session.read.text(INPUT).rdd
    expected = text.map(lambda row: (row.value[-3:], 1)).reduceByKey(int.__add__, 3).collectAsMap()
    stages = ("map", "reduce")
    for scheduler in ("lean", "static"):
        place = folder / scheduler
        place.mkdir()
        killed: list[int] = []
        killer = threading.Thread(target=kill_executors, args=(place, stages, killed), daemon=True)
        killer.start()
        rows = elastic(session, INPUT, scheduler=scheduler, tasks=TASKS).rdd
        found = (
            rows.mapPartitions(wait_to_be_killed(place, "map"))
            .map(lambda row: (row.value[-3:], 1))
            .reduceByKey(int.__add__, 3)
            .mapPartitions(wait_to_be_killed(place, "reduce"))
            .collectAsMap()
        )
        assert len(set(killed)) == len(stages), f"{killed} were killed, and two should have been"
        assert found == expected, differences(Counter(found), Counter(expected))


# ---- actions on one DataFrame


def digest_of(partition: Iterable[Row]) -> Iterator[str]:
    """One text that differs if a line of the partition, or their order, does."""
    digest = hashlib.sha256()
    for row in partition:
        digest.update(f"{row.value}\n".encode())
    yield digest.hexdigest()


def actions_may_be_repeated(session: SparkSession, folder: Path) -> None:
    """Actions that stop early, before and after those that read all; and cached lines."""
    expected = Counter(row.value for row in session.read.text(INPUT).collect())
    lines = elastic(session, INPUT, tasks=TASKS)
    for number in (5, 1):
        taken = Counter(row.value for row in lines.take(number))
        assert taken.total() == number and taken <= expected, taken
    assert lines.limit(7).count() == 7
    assert lines.limit(10 * LINES).count() == expected.total()
    assert lines.count() == expected.total()
    assert lines.union(lines).count() == 2 * expected.total()

    rows = elastic(session, f"{INPUT}/lines.txt", tasks=TASKS).rdd
    first = rows.mapPartitions(lambda partition: islice(partition, 5)).collect()
    assert len(set(first)) == len(first), f"lines that were read twice: {first}"
    few = rows.take(5)
    digests = rows.mapPartitions(digest_of).collect()
    session._jvm.System.gc()  # type: ignore[union-attr]
    assert rows.mapPartitions(digest_of).collect() == digests, "the same RDD has other lines"
    assert rows.take(5) == few and rows.count() == LINES

    cached = elastic(session, INPUT, tasks=TASKS).cache()
    assert cached.count() == expected.total() == cached.count()
    assert {row.value for row in cached.take(5)} <= set(expected)
    assert Counter(row.value for row in cached.collect()) == expected
    cached.unpersist()


def shapes_of_input(session: SparkSession, folder: Path) -> None:
    """Patterns, several paths, another name of the column, empty and compressed files."""
    assert elastic(session, f"{INPUT}/l*.txt").count() == LINES
    assert elastic(session, f"{INPUT}/{{dos,empty}}.txt").count() == 5
    assert elastic(session, f"{INPUT}/dos.txt", f"{INPUT}/packed.txt.gz").count() == 7
    packed = elastic(session, f"{INPUT}/packed.txt.gz", tasks=3)
    assert sorted(texts(packed)) == ["packed one", "packed two"]
    assert elastic(session, f"{ROOT}/nothing").collect() == []
    assert elastic(session, f"{ROOT}/nothing", INPUT).count() == LINES + 7
    renamed = session.read.format("eyas").schema("line string").load(f"{INPUT}/dos.txt")
    assert sorted(row.line for row in renamed.collect()) == ["", "and", "one", "th\u00e9e", "two"]
    options = f"path '{INPUT}', scheduler 'multiwave', waves '2'"
    session.sql(f"CREATE TEMPORARY VIEW seen USING eyas OPTIONS ({options})")
    assert texts(session.sql("SELECT count(*) FROM seen")) == [f"{LINES + 7}"]


def mistakes_are_explained(session: SparkSession, folder: Path) -> None:
    """What a program gets wrong fails, with a message that says what."""

    def read(path: str = INPUT, **options: object) -> Callable[[], object]:
        return lambda: elastic(session, path, **options).count()

    wrong: list[tuple[Callable[[], object], str]] = [
        (read(schedule="lean"), "the source eyas has no option schedule; its options are alpha"),
        (read(lineSep=";"), "no option lineSep"),
        (read(scheduler="best"), "`best` is not a scheduler"),
        (read(alpha=2), "from 0 to 1"),
        (read(waves=2), "of multiwave only"),
        (read(tasks=0), "the option tasks is '0': write a whole number from 1 to 1048575"),
        (read(tasks="many"), "the option tasks is 'many'"),
        (read(termMs=1), "a term of 1 ms is not possible: 3000 to 3600000 ms"),
        (read(idleMs=-1), "the option idleMs is '-1'"),
        (read(f"{ROOT}/missing"), f"there is no file {ROOT}/missing"),
        (read(f"{INPUT}/*.csv"), f"there is no file {INPUT}/*.csv"),
        (read("file:///etc/hosts"), "eyas://NAME/PATH: file:/etc/hosts is none"),
        (lambda: session.read.format("eyas").load(), "no path"),
        (
            lambda: session.read.format("eyas").schema("a int").load(INPUT).count(),
            "one column of type string, and cannot read them as struct<a:int>",
        ),
    ]
    for call, message in wrong:
        try:
            call()
        except Exception as error:
            assert message in str(error), f"{message!r} is not in {str(error)[:500]!r}"
        else:
            raise AssertionError(f"nothing failed with {message!r}")


# ---- files of Spark's own sources


def spark_writes_and_reads_files(session: SparkSession, folder: Path) -> None:
    """Parquet, CSV, JSON and text, written and read again; and whole files."""
    rows = [(n, f'a "quoted", {n}\n\u00e9' if n % 3 else None, n / 8) for n in range(2000)]
    frame = session.createDataFrame(rows, "number long, text string, eighth double")
    expected = sorted(rows)
    out = f"{ROOT}/out"
    schema = frame.schema

    frame.write.parquet(f"{out}/parquet")
    frame.write.mode("overwrite").parquet(f"{out}/parquet")
    assert sorted(map(tuple, session.read.parquet(f"{out}/parquet").collect())) == expected
    seen = session.read.parquet(f"{out}/parquet").filter("number > 1990").select("eighth")
    assert sorted(row.eighth for row in seen.collect()) == [n / 8 for n in range(1991, 2000)]
    parted = frame.withColumn("part", f.col("number") % 3)
    parted.write.partitionBy("part").parquet(f"{out}/parted")
    frame.limit(1).write.mode("append").parquet(f"{out}/parted/part=7")
    assert session.read.parquet(f"{out}/parted").filter("part = 1").count() == 667
    assert session.read.parquet(f"{out}/parted").count() == 2001

    csv = {"header": "true", "multiLine": "true", "escape": '"'}
    frame.write.options(**csv).csv(f"{out}/csv")
    read = session.read.options(**csv).schema(schema).csv(f"{out}/csv")
    assert sorted(map(tuple, read.collect())) == expected
    frame.write.json(f"{out}/json")
    assert sorted(map(tuple, session.read.schema(schema).json(f"{out}/json").collect())) == expected

    session.read.text(INPUT).write.text(f"{out}/text", compression="gzip")
    written = Counter(texts(session.read.text(f"{out}/text")))
    assert written == Counter(texts(session.read.text(INPUT)))
    assert Counter(texts(elastic(session, f"{out}/text"))) == written
    whole = dict(session.sparkContext.wholeTextFiles(f"{INPUT}/d*").collect())
    assert whole == {f"{INPUT}/dos.txt": "\ufeffone\r\ntwo\r\n\r\nand\rth\u00e9e"}, whole
    # A file that is read as a table over splits.
    numbers = session.read.option("sep", " ").csv(f"{INPUT}/lines.txt")
    assert texts(numbers.agg(f.sum(f.col("_c1").cast("long")))) == [f"{LINES * (LINES - 1) // 2}"]


# ---- runs


def runs_end(session: SparkSession, folder: Path) -> None:
    """More scans than the runs that a node leads, of which no program needs the earlier ones."""
    path = f"{INPUT}/lines.txt"
    kept = elastic(session, path, tasks=TASKS).rdd
    digests = kept.mapPartitions(digest_of).collect()
    shown = elastic(session, path)
    before = open_runs(session)
    shown._jdf.queryExecution().executedPlan().toString()
    assert open_runs(session) == before, "a plan that is only shown has opened a run"
    for _ in range(MANY_SCANS):
        elastic(session, path)._jdf.queryExecution().toRdd()
    found = open_runs(session)
    assert 0 < found < MAX_OPEN_RUNS, f"the driver holds {found} runs"
    assert kept.mapPartitions(digest_of).collect() == digests, "an RDD lost its run"


CHECKS: dict[bool, list[Callable[[SparkSession, Path], None]]] = {
    True: [jobs_give_the_same_bytes, speculation_counts_lines_once],
    False: [
        jobs_give_the_same_bytes,
        shapes_of_input,
        mistakes_are_explained,
        actions_may_be_repeated,
        spark_writes_and_reads_files,
        killed_executors_lose_nothing,
        runs_end,
    ],
}


def run_checks(spark: StandaloneSpark, is_speculating: bool, names: list[str]) -> None:
    """Runs the checks of a kind in one session, each with a folder of its own."""
    checks = [one for one in CHECKS[is_speculating] if not names or one.__name__ in names]
    if not checks:
        return
    session = start_session(spark, is_speculating)
    session.sparkContext.setLogLevel("WARN")
    jvm = session._jvm
    try:
        for check in checks:
            began = time.monotonic()
            place = spark.folder / f"{check.__name__}-{is_speculating}"
            place.mkdir()
            check(session, place)
            how = "with speculation" if is_speculating else "without speculation"
            seconds = time.monotonic() - began
            print(f"{check.__name__.replace('_', ' ')}, {how}: ok ({seconds:.1f} s)", flush=True)
    finally:
        session.stop()
    left = jvm.io.eyas.spark.EyasSource.openRuns()  # type: ignore[union-attr]
    assert left == 0, f"{left} runs are left after the end of the application"


def main() -> None:
    """Runs all checks, or those that are named."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        log = folder / "driver.log"
        # Java's processes get the log as their standard error; messages of this program do not.
        own = os.dup(2)
        with log.open("wb") as file:
            os.dup2(file.fileno(), 2)
        sys.stderr = os.fdopen(own, "w")
        try:
            write_inputs(folder)
            with StandaloneSpark(folder, cores=2, memory="1g") as spark:
                for is_speculating in CHECKS:
                    run_checks(spark, is_speculating, sys.argv[1:])
        except BaseException:
            print(log.read_text(errors="replace")[-LOG_CHARACTERS:])
            raise


if __name__ == "__main__":
    main()
