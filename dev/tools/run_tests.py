#!/usr/bin/env python3
"""Builds the workspace, and runs its tests with cargo-nextest: the longest first, each in a process
of its own.

    dev/tools/run_tests.py [WORD...]                 all tests, or what these words of `cargo
                                                     nextest run` select
    dev/tools/run_tests.py --since REV               tests of the rooms that differ from REV; of the
                                                     end-to-end tests, the files that differ
    dev/tools/run_tests.py --stress NAME --runs 50 --load 8
                                                     the tests whose names contain NAME, again and
                                                     again, beside this number of busy processes

A test that still runs after some minutes is killed, and its output is shown: after the time in
`.config/nextest.toml`, or after 20 times the seconds that `dev/tests/slow.toml` has for it, if that
is more. At the end come the slowest tests; tests of over 10 s have a line in that list. The results
are also in `target/test-results.xml`, as JUnit has them.

In CI (`CI` is set), a test that fails runs once more, alone, at the end. If it passes then, the run
passes, too, and the test is named at the end of the run (`dev/tools/unstable.py`). More than two
such tests fail the run.

cargo-nextest comes from PyPI into `target/tools`. Where that is not possible, and none is in PATH,
the tests run under plain `cargo test`. EYAS_BIN names another binary for the end-to-end tests than
the one that was built.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import shutil
import signal
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import unstable
from rooms import changed_files, room_of, rooms

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").resolve()
CARGO = os.environ.get("CARGO") or "cargo"
REQUIREMENTS = ROOT / "dev" / "tests" / "nextest.txt"
SLOW_LIST = ROOT / "dev" / "tests" / "slow.toml"
JUNIT = TARGET / "nextest" / "default" / "junit.xml"
RESULTS = TARGET / "test-results.xml"  # of all tests, also when some have run again
TESTS_FAILED = 100  # nextest's exit code if tests have failed, and nothing else has
SLOWEST_SHOWN = 20
SLOW_S = 10.0
# A listed test is killed when it has taken this many times its usual time, but not before
# `.config/nextest.toml` says.
PATIENCE = 20
PERIOD_S = 60
MIN_PERIODS = 4
TESTS_A_CORE = 3  # most tests wait for processes, disks and deadlines


@dataclass(frozen=True)
class Test:
    """A test that has run."""

    binary: str
    name: str
    seconds: float
    has_failed: bool

    def __str__(self) -> str:
        return f"{self.binary} {self.name}"

    @property
    def filter(self) -> str:
        """The filter of nextest that selects this test alone."""
        return f"binary_id(={self.binary}) & test(={self.name})"


def nextest() -> str | None:
    """The program, which is installed if it is missing; nothing if it cannot be."""
    requirement = REQUIREMENTS.read_text().split()[0]
    place = TARGET / "tools" / requirement.replace("==", "-")
    program = place / "bin" / "cargo-nextest"
    if program.exists():
        return str(program)
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        words = [
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--require-hashes",
            "--requirement",
            REQUIREMENTS,
        ]
        subprocess.run([place / "bin" / "pip", *words], check=True)
        return str(program)
    shutil.rmtree(place, ignore_errors=True)
    return shutil.which("cargo-nextest")


def slow_tests() -> list[dict[str, object]]:
    """The rows of the list of slow tests."""
    rows: list[dict[str, object]] = tomllib.loads(SLOW_LIST.read_text()).get("test", [])
    return rows


def write_priorities(path: Path) -> None:
    """Writes the part of nextest's configuration that comes from the list of slow tests: longest
    first, the number of threads that a test takes, and after how many periods it is killed. On a
    busy machine a test that computes takes many times its usual time.
    """
    longest = max((float(str(row["seconds"])) for row in slow_tests()), default=1.0)
    parts = []
    for row in slow_tests():
        seconds = float(str(row["seconds"]))
        priority = max(1, round(100 * seconds / longest))
        periods = max(MIN_PERIODS, math.ceil(PATIENCE * seconds / PERIOD_S))
        filter_ = f"binary_id(={row['binary']}) & test(={row['name']})"
        parts.append(
            f"[[profile.default.overrides]]\nfilter = '{filter_}'\npriority = {priority}\n"
        )
        parts.append(f'slow-timeout = {{ period = "{PERIOD_S}s", terminate-after = {periods} }}\n')
        if "threads" in row:
            parts.append(f"threads-required = {row['threads']}\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(parts))


def results() -> list[Test]:
    """The tests of the last run."""
    tests = []
    for suite in ElementTree.parse(JUNIT).getroot().iter("testsuite"):
        for case in suite.iter("testcase"):
            has_failed = case.find("failure") is not None or case.find("error") is not None
            tests.append(
                Test(
                    suite.attrib["name"],
                    case.attrib["name"],
                    float(case.attrib["time"]),
                    has_failed,
                )
            )
    return tests


def report_slow(tests: list[Test]) -> None:
    """Prints the slowest tests, and which of them the list does not have."""
    slowest = sorted(tests, key=lambda test: test.seconds, reverse=True)
    print(f"\nThe {SLOWEST_SHOWN} slowest of {len(tests)} tests, in seconds:")
    for test in slowest[:SLOWEST_SHOWN]:
        print(f"{test.seconds:8.1f}  {test}")
    listed = {(row["binary"], row["name"]) for row in slow_tests()}
    for test in slowest:
        if test.seconds > SLOW_S and (test.binary, test.name) not in listed:
            print(f"over {SLOW_S:.0f} s, and not in dev/tests/slow.toml: {test}")


def run(program: str, words: list[str]) -> int:
    """Runs tests. Returns the exit code of nextest."""
    priorities = TARGET / "nextest" / "priorities.toml"
    write_priorities(priorities)
    JUNIT.unlink(missing_ok=True)
    line = [
        program,
        "nextest",
        "run",
        "--locked",
        "--workspace",
        "--tool-config-file",
        f"eyas:{priorities}",
        *words,
    ]
    at_once = str(TESTS_A_CORE * (os.cpu_count() or 1))
    environment = {
        "NEXTEST_TEST_THREADS": at_once,
        "EYAS_BIN": str(TARGET / "debug" / "eyas"),
        **os.environ,
    }
    return subprocess.run(line, cwd=ROOT, env=environment).returncode


def run_all(program: str, words: list[str]) -> int:
    """Runs tests, in CI those that failed once more. Returns the exit code."""
    code = run(program, words)
    if not JUNIT.exists():
        return code or 1
    shutil.copyfile(JUNIT, RESULTS)
    tests = results()
    report_slow(tests)
    failed = [test for test in tests if test.has_failed]
    if code != TESTS_FAILED or not failed or not os.environ.get("CI"):
        return code
    if len(failed) > unstable.MAX_UNSTABLE:
        print(f"{len(failed)} tests failed, so none is run again")
        return code
    for test in failed:
        print(f"\nonce more, alone: {test}", flush=True)
        if run(program, ["--run-ignored", "all", "--filterset", test.filter]):
            return code
    return 0 if unstable.note([str(test) for test in failed]) else 1


def filter_of_changes(since: str) -> str:
    """The filter of nextest for the tests that belong to changed files; nothing if there
    are none.
    """
    folders, modules = set(), set()
    # Files of the workspace, and what end-to-end tests share, are left to `make test`.
    for path in map(Path, changed_files(since)):
        if path.parent == Path("dev/tests/end_to_end"):
            modules.add(path.stem)
        elif room := room_of(str(path)):
            folders.add(room)
    packages = [f"package(={rooms()[folder].package})" for folder in sorted(folders - {"dev"})]
    return " + ".join(
        packages + [f"(binary(=end_to_end) & test(/^{module}::/))" for module in sorted(modules)]
    )


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """This many processes that compute, until the end of the block."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def heed_signals() -> None:
    """Lets signals end programs again if the parent process ignores them, as `nohup` and `&` of a
    shell do: tests of interrupts would fail.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--since", metavar="REV", help="only tests of what differs from this revision"
    )
    parser.add_argument(
        "--stress", metavar="NAME", help="run the tests whose names contain NAME many times"
    )
    parser.add_argument("--runs", type=int, default=50, help="number of runs of --stress")
    parser.add_argument(
        "--load", type=int, default=8, help="number of busy processes beside --stress"
    )
    asked, words = parser.parse_known_args()
    heed_signals()
    RESULTS.unlink(missing_ok=True)
    built = subprocess.run([CARGO, "build", "--locked", "--workspace", "--all-targets"], cwd=ROOT)
    if built.returncode:
        return built.returncode
    program = nextest()
    if program is None:
        if os.environ.get("CI") or asked.stress or asked.since or words:
            print(
                "cargo-nextest cannot be installed from PyPI, and is not in PATH", file=sys.stderr
            )
            return 1
        print(
            "cargo-nextest cannot be installed from PyPI: plain `cargo test` runs all tests",
            file=sys.stderr,
        )
        return subprocess.run([CARGO, "test", "--locked", "--workspace"], cwd=ROOT).returncode
    if asked.since is not None:
        changed = filter_of_changes(asked.since)
        if not changed:
            print(
                f"no test belongs to a file that differs from {asked.since}: `make test` runs all "
                "tests"
            )
            return 0
        words += ["--filterset", changed, "--no-tests", "pass"]
    if asked.stress is None:
        return run_all(program, words)
    stressed = ["--stress-count", str(asked.runs), "--no-fail-fast", "--status-level", "fail"]
    with busy(asked.load):
        return run(program, [*stressed, "--filterset", f"test({asked.stress})", *words])


if __name__ == "__main__":
    sys.exit(main())
