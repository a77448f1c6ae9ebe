#!/usr/bin/env python3
"""Runs the judges of `dev/judges/judges.toml`, side by side where they do not need the same thing.

    dev/judges/run.py [NAME...]        these judges; without a name, all but those on call
    dev/judges/run.py --since REV      those whose rooms have changed since REV, and always the
                                       three shortest; by turns, a third of the long
                                       ones, and of those for which only what their
                                       rooms import has changed
    dev/judges/run.py --list           what there is

The output of a judge is shown when the judge has ended, and stays in `target/judges`. Everything
that they need is built before. Exit code 1 if a judge has failed. In CI (`CI` is set), a judge that
fails runs once more, alone, as tests do (`dev/tools/unstable.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "dev" / "tools"))
import unstable
from rooms import changed_files, room_of, with_imports

TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").resolve()
OUTPUTS = TARGET / "judges"
AT_ONCE = 3
ALWAYS = 3  # the shortest ones, which run after each change
# Changes of these files may change everything.
EVERYWHERE = (
    ".cargo/config.toml",
    "Cargo.lock",
    "Cargo.toml",
    "dev/judges/judges.toml",
    "dev/judges/run.py",
    "dev/tools/pack_wheel.py",
    "dev/tools/wheel.sh",
    "doors/python/pyproject.toml",
)
# Long judges, and those for which only imported rooms have changed, take turns: one in three runs.
# Commits of the next hour run the next ones.
LONG_S = 200
TURNS = 3
TURN_S = 3600
POLL_S = 0.2
LIMIT_S = 1800  # of one judge
GRACE_S = 60  # after its limit, until it is killed


@dataclass(frozen=True)
class Judge:
    """A row of the list."""

    name: str
    what: str
    command: list[str]
    rooms: list[str]
    files: list[str]
    uses: list[str]
    seconds: int
    # Whether it runs only if it is named.
    is_on_call: bool = False
    debian: dict[str, str] = field(default_factory=dict)

    def is_touched(self, changed: set[str]) -> bool:
        """Whether one of these files is of a room that it judges, or its own."""
        return any(
            file in self.command
            or room_of(file) in self.rooms
            or any(file == place or file.startswith(f"{place}/") for place in self.files)
            for file in changed
        )

    def is_concerned(self, changed: set[str]) -> bool:
        """Whether one of these files is of a room that a room imports which it judges, or may
        change everything.
        """
        rooms = with_imports(set(self.rooms))
        return any(file in EVERYWHERE or room_of(file) in rooms for file in changed)


@dataclass
class Running:
    """A judge that runs."""

    judge: Judge
    process: subprocess.Popen[bytes]
    output: Path
    began: float


def judges() -> list[Judge]:
    """All judges."""
    return [
        Judge(**row)
        for row in tomllib.loads((ROOT / "dev/judges/judges.toml").read_text())["judge"]
    ]


def chosen(names: list[str], since: str | None) -> list[Judge]:
    """The judges to run, the longest first."""
    everyone = sorted(judges(), key=lambda judge: judge.seconds)
    if unknown := set(names) - {judge.name for judge in everyone}:
        known = ", ".join(judge.name for judge in everyone)
        raise SystemExit(f"there is no judge {', '.join(sorted(unknown))}; there are {known}")
    if names:
        return [judge for judge in everyone if judge.name in names][::-1]
    everyone = [judge for judge in everyone if not judge.is_on_call]
    if since is not None:
        everyone = concerned(everyone, changed_files(since))
    return everyone[::-1]


def concerned(everyone: list[Judge], changed: set[str]) -> list[Judge]:
    """The shortest judges, those whose rooms have changed, and by turns a part of those for which
    only what these rooms import has changed, and of the long ones. The time of the newest commit
    says whose turn it is.
    """
    always, others = everyone[:ALWAYS], everyone[ALWAYS:]
    touched = [j for j in others if j.seconds <= LONG_S and j.is_touched(changed)]
    rest = [j for j in others if j not in touched]
    by_turns = [j for j in rest if j.is_touched(changed) or j.is_concerned(changed)]
    committed = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=True, capture_output=True
    )
    turn = int(committed.stdout) // TURN_S % TURNS
    chosen = [*always, *touched, *by_turns[turn::TURNS]]
    return [judge for judge in everyone if judge in chosen]


def install(todo: list[Judge]) -> None:
    """Installs programs that the judges need. A judge itself says what it lacks then."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    needed = {program: packages for judge in todo for program, packages in judge.debian.items()}
    packages = {
        name
        for program in needed
        if not shutil.which(program, path=path)
        for name in needed[program].split()
    }
    if not packages or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    print(f"installing {' '.join(sorted(packages))}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], env=environment)
    words = ["install", "-y", "-qq", "--no-install-recommends", *sorted(packages)]
    subprocess.run(["apt-get", *words], env=environment, stdout=subprocess.DEVNULL)


def build(todo: list[Judge]) -> None:
    """Builds what the judges need: eyas, and the wheel."""
    cargo = os.environ.get("CARGO") or "cargo"
    subprocess.run(
        [cargo, "build", "--locked", "--workspace", "--all-targets"], cwd=ROOT, check=True
    )
    if any(word.endswith("python.sh") for judge in todo for word in judge.command):
        # A judge that finds no wheel says so.
        subprocess.run(["dev/tools/wheel.sh", "dev"], cwd=ROOT)


def start(judge: Judge) -> Running:
    """Starts a judge."""
    output = OUTPUTS / f"{judge.name}.txt"
    environment = {
        **os.environ,
        "EYAS_BIN": os.environ.get("EYAS_BIN") or str(TARGET / "debug" / "eyas"),
    }
    with output.open("wb") as file:
        process = subprocess.Popen(
            judge.command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Running(judge, process, output, time.monotonic())


def end_if_late(at_work: Running) -> None:
    """Ends a judge beyond its time limit, with all of its processes."""
    late_s = time.monotonic() - at_work.began - LIMIT_S
    if late_s > 0:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(at_work.process.pid, signal.SIGTERM if late_s < GRACE_S else signal.SIGKILL)


def run(todo: list[Judge]) -> list[Judge]:
    """Runs judges. Returns those that have failed."""
    OUTPUTS.mkdir(parents=True, exist_ok=True)
    running: list[Running] = []
    failed = []
    while todo or running:
        used = {thing for at_work in running for thing in at_work.judge.uses}
        free = next((judge for judge in todo if not used.intersection(judge.uses)), None)
        if free and len(running) < AT_ONCE:
            todo.remove(free)
            running.append(start(free))
            continue
        ended = next((at_work for at_work in running if at_work.process.poll() is not None), None)
        if ended is None:
            for at_work in running:
                end_if_late(at_work)
            time.sleep(POLL_S)
            continue
        running.remove(ended)
        seconds = time.monotonic() - ended.began
        print(f"== {ended.judge.name}: {ended.judge.what} ({seconds:.0f} s)", flush=True)
        sys.stdout.write(ended.output.read_text(errors="replace"))
        if ended.process.returncode:
            failed.append(ended.judge)
            print(
                f"== {ended.judge.name} has failed, with exit code {ended.process.returncode}",
                flush=True,
            )
    return failed


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a judge")
    parser.add_argument(
        "--since", metavar="REV", help="only judges whose rooms differ from this revision"
    )
    parser.add_argument("--list", action="store_true", help="print what would run, and run nothing")
    asked = parser.parse_args()
    todo = chosen(asked.names, asked.since or None)
    left_out = [judge.name for judge in judges() if judge not in todo]
    print(f"judges: {', '.join(judge.name for judge in todo)}")
    if left_out and asked.since:
        print(f"not run, because of --since: {', '.join(left_out)}", flush=True)
    if asked.list:
        return 0
    install(todo)
    build(todo)
    failed = run(todo)
    if failed and os.environ.get("CI") and len(failed) <= unstable.MAX_UNSTABLE:
        names = [f"judge {judge.name}" for judge in failed]
        failed = [judge for judge in failed if run([judge])]
        if not failed and not unstable.note(names):
            return 1
    names = ", ".join(judge.name for judge in failed)
    print(f"judges: these have failed: {names}" if failed else "judges: all of them passed")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
