#!/usr/bin/env python3
"""Calls a second through the C library: reads of 4 KiB at random places of a file of the cluster,
beside `pread` of the same local file; look-ups; jobs of many tasks.

Starts a cluster of one node on this machine, installs the library into a temporary folder, and runs
`dev/experiments/capi_calls.c`. The chunks of the file are in the store of the node (`local`), or
have to be asked for, as by a program that does not know its node (`asked`). Kinds take turns; the
medians of the rounds are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from coordinated import eyas

ROOT = Path(__file__).resolve().parents[2]


def run(*words: str | Path, env: dict[str, str], cwd: Path) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(
        [str(word) for word in words], env=env, cwd=cwd, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{words[0]} {words[1]} failed: {done.stderr[-1000:]}")
    return done.stdout


def measure(
    program: Path, arguments: list[str], env: dict[str, str], cwd: Path
) -> dict[str, float]:
    """Median of the calls a second, for each kind."""
    rates = defaultdict(list)
    for line in run(program, *arguments, env=env, cwd=cwd).splitlines():
        kind, calls, seconds = line.split()
        rates[kind].append(int(calls) / float(seconds))
    return {kind: statistics.median(found) for kind, found in rates.items()}


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=256, help="size of the file, MiB")
    parser.add_argument("--reads", type=int, default=50_000, help="reads of each kind in a round")
    parser.add_argument(
        "--tasks", type=int, default=10_000, help="tasks of the job that is submitted"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="quick test; the figures mean nothing")
    options = parser.parse_args()
    if options.tiny:
        vars(options).update(size=8, reads=5000, tasks=100, rounds=1)
    command = Path(eyas())
    with tempfile.TemporaryDirectory(prefix="eyas-calls-") as name:
        folder = Path(name)
        env = {**os.environ, "EYAS_HOME": str(folder / "home")}
        prefix = folder / "prefix"
        run(
            ROOT / "doors/capi/install.sh",
            command.parent / "libeyas_capi.a",
            prefix,
            env=env,
            cwd=folder,
        )
        program = folder / "calls"
        flags = [f"-I{prefix}/include", f"-L{prefix}/lib", "-leyas", f"-Wl,-rpath,{prefix}/lib"]
        run(
            "cc",
            "-O2",
            ROOT / "dev/experiments/capi_calls.c",
            "-o",
            program,
            *flags,
            env=env,
            cwd=folder,
        )
        local = folder / "local"
        with local.open("wb") as file:
            for _ in range(options.size):
                file.write(os.urandom(1 << 20))
        run(command, "start", "local", "--nodes", "1", "--dfs", "--detach", env=env, cwd=folder)
        try:
            run(command, "dfs", "put", local, "/file", env=env, cwd=folder)
            usage = json.loads(run(command, "--json", "dfs", "du", env=env, cwd=folder))["usage"]
            near = {
                "EYAS_DFS_NODE": usage["nodes"][0]["node"],
                "EYAS_DFS_STORE": str(next((folder / "home").rglob("store"))),
            }
            arguments = [
                "/file",
                str(local),
                str(options.reads),
                str(options.tasks),
                str(options.rounds),
            ]
            here = measure(program, arguments, {**env, **near}, folder)
            arguments[2] = str(options.reads // 10)
            asked = measure(program, arguments, env, folder)
        finally:
            run(command, "stop", env=env, cwd=folder)
    print(f"pread: {here['pread']:,.0f}/s")
    print(f"eyas_read, local: {here['read']:,.0f}/s, {here['read'] / here['pread']:.2f} of pread")
    print(
        f"eyas_read, asked: {asked['read']:,.0f}/s, {asked['read'] / asked['pread']:.2f} of pread"
    )
    print(f"eyas_stat: {here['stat']:,.0f}/s")
    print(f"a job of {options.tasks:,} tasks: {options.tasks / here['submit'] * 1000:.0f} ms")


if __name__ == "__main__":
    main()
