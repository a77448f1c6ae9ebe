#!/usr/bin/env python3
"""Programs of others on four emulated nodes that share one slow disk, at the same time and under
`eyas io run`, where agents pass parts of files on to each other. Each must print what it prints
without eyas, and leave the same bytes.

fio with verification, the tools of HDF5 and netCDF, tar, git, sqlite3 and Python's imports read the
same files on all nodes; fsx writes and verifies one file on two nodes in turn.

Needs root, /dev/fuse, the debug build (or EYAS_BIN and SLOW_DISK_BIN), and the packages that
`dev/judges/judges.toml` lists; installs fsx under target/. What is missing is skipped, which is
said; with CI=true, that is a failure. `--quick` takes half a minute.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "testbed"))
from coordinated import Agents
from slow_disk import PROJECT, SlowDisk, SlowDiskError, check_needs, isolated

NODES = 4
IS_QUICK = "--quick" in sys.argv
# Agents pass on parts of files that have not changed for two seconds.
SETTLED_S = 3
FSX = "0.3.2"
DEADLINE_S = 300
# The disk sends each file once for each node if no node takes parts from another.
MOST_SENT = 3.2

CDL = """netcdf data {{
dimensions: x = {count} ;
variables: float v(x) ; v:_ChunkSizes = 65536 ; v:_Storage = "chunked" ;
data: v = {values} ;
}}
"""

# Name, programs that it needs, and what a shell runs: in $D, the node's mount, and $O, a folder of
# the node's own. What it prints is compared, and the files in $O.
COMMANDS = [
    ("h5dump", ["h5dump"], "cd $D; h5dump data.nc | sha256sum"),
    (
        "h5repack",
        ["h5repack", "h5dump"],
        "h5repack -f GZIP=1 $D/data.nc $O/a.h5; cd $O; h5dump a.h5",
    ),
    ("h5diff", ["h5diff"], "h5diff -v $D/data.nc $D/same.nc"),
    ("ncdump", ["ncdump"], "ncdump $D/data.nc | sha256sum"),
    ("nccopy", ["nccopy", "ncdump"], "nccopy -d1 $D/data.nc $O/a.nc; ncdump $O/a.nc | sha256sum"),
    ("tar", ["tar"], "tar -xf $D/files.tar -C $O; cd $O; find . -type f | sort | xargs sha256sum"),
    ("git", ["git"], "git clone -q --no-local $D/repository.git $O/r; cd $O/r; git fsck; git log"),
    ("sqlite3", ["sqlite3"], "sqlite3 -readonly $D/table.db 'select sum(a), count(b) from t'"),
    ("cmp", ["cmp"], "cmp $D/large $D/large.copy && sha256sum < $D/large"),
    ("python3", ["python3"], "PYTHONPATH=$D/modules python3 -B -c 'import all; print(all.sum)'"),
    ("dd", ["dd"], "dd if=$D/large bs=37k status=none | sha256sum"),
]


def skip(what: str) -> bool:
    """Says what is not tried."""
    print(f"SKIPPED: {what}", file=sys.stderr)
    if os.environ.get("CI"):
        sys.exit(1)
    return False


def can_use(programs: list[str]) -> bool:
    missing = [program for program in programs if shutil.which(program) is None]
    return not missing or skip(f"{', '.join(missing)}: not installed")


def sh(script: str, folder: Path, **variables: object) -> None:
    environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
    subprocess.run(["bash", "-euc", script], cwd=folder, env=environment, check=True)


def fill(source: Path) -> None:
    """Writes the files that all nodes read."""
    megabytes = 8 if IS_QUICK else 24
    (source / "large").write_bytes(os.urandom(megabytes << 20))
    shutil.copy(source / "large", source / "large.copy")
    count = 200_000 if IS_QUICK else 1_000_000
    if shutil.which("ncgen"):
        values = ", ".join(str(number / 7) for number in range(count))
        (source / "data.cdl").write_text(CDL.format(count=count, values=values))
        sh("ncgen -k nc4 -o data.nc data.cdl; cp data.nc same.nc; rm data.cdl", source)
    modules = source / "modules"
    modules.mkdir()
    for number in range(200):
        (modules / f"m{number}.py").write_text(f"value = {number}\n" + "# filled\n" * 500)
    lines = [f"import m{number}" for number in range(200)]
    total = " + ".join(f"m{number}.value" for number in range(200))
    (modules / "all.py").write_text("\n".join([*lines, f"sum = {total}", ""]))
    sh("tar -cf files.tar large modules", source)
    if shutil.which("git"):
        sh(
            "git init -q r; cd r; cp ../large ../modules/*.py .; git add .; "
            "git -c user.name=a -c user.email=a@b commit -qm all --date=2026-01-01T00:00:00Z; "
            "cd ..; git clone -q --bare r repository.git; rm -rf r; git -C repository.git gc -q",
            source,
            GIT_COMMITTER_DATE="2026-01-01T00:00:00Z",
        )
    if shutil.which("sqlite3"):
        sh(
            "sqlite3 table.db 'create table t(a, b); with recursive n(i) as (select 1 union all "
            "select i + 1 from n where i < 100000) insert into t select i, hex(randomblob(20)) "
            "from n'",
            source,
        )


def contents(folder: Path) -> dict[str, bytes]:
    """The files in a folder, without those in `.git`, which have times."""
    files = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def start(script: str, data: Path, own: Path, before: list[object]) -> subprocess.Popen[bytes]:
    own.mkdir(parents=True)
    environment = {**os.environ, "D": str(data), "O": str(own), "HOME": str(own.parent)}
    words = [*map(str, before), "bash", "-euo", "pipefail", "-c", script]
    return subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def compare(disk: SlowDisk, agents: Agents, folder: Path) -> int:
    """Runs each command without eyas and then on all nodes. Returns the number of differences."""
    differences = 0
    for name, programs, script in COMMANDS:
        if not can_use(programs):
            continue
        process = start(script, disk.source, folder / name / "plain", [])
        plain, _ = process.communicate(timeout=DEADLINE_S)
        plain = plain.replace(str(disk.source).encode(), b"D")
        expected = (process.returncode, plain, contents(folder / name / "plain"))
        places = [folder / name / f"n{node}" for node in range(NODES)]
        nodes = zip(disk.mounts, places, strict=True)
        running = [start(script, mount, own, agents.before(mount)) for mount, own in nodes]
        for mount, own, process in zip(disk.mounts, places, running, strict=True):
            told, _ = process.communicate(timeout=DEADLINE_S)
            told = told.replace(str(mount).encode(), b"D")
            found = (process.returncode, without(told, own), contents(own))
            if found != (expected[0], without(plain, folder / name / "plain"), expected[2]):
                differences += 1
                print(f"{name} on {mount.name} differs: {told[-500:]!r}, expected {plain[-500:]!r}")
        shutil.rmtree(folder / name)
        print(f"{name}: {NODES} nodes, exit code {expected[0]}")
    return differences


def without(told: bytes, own: Path) -> bytes:
    return told.replace(str(own).encode(), b"O")


def fio(disk: SlowDisk, agents: Agents) -> int:
    """Each node verifies what a program without eyas has written."""
    words = ["fio", "--name=a", "--size=16m", "--bs=16k", "--verify=crc32c", "--minimal"]
    write = [*words, f"--filename={disk.source / 'fio'}", "--rw=write", "--do_verify=0"]
    subprocess.run(write, cwd=disk.folder, check=True, stdout=subprocess.DEVNULL)
    time.sleep(SETTLED_S)
    verify = ["--rw=read", "--verify_only", "--verify_fatal=1"]
    running = [
        subprocess.Popen(
            [*map(str, agents.before(mount)), *words, f"--filename={mount / 'fio'}", *verify],
            cwd=disk.folder,
            stdout=subprocess.DEVNULL,
        )
        for mount in disk.mounts
    ]
    failed = sum(process.wait(DEADLINE_S) != 0 for process in running)
    print(f"fio --verify: {NODES} nodes, {failed} failed")
    return failed


def fsx(disk: SlowDisk, agents: Agents) -> int:
    """Two nodes write and verify one file in turn."""
    tools = Path(os.environ.get("CARGO_TARGET_DIR") or PROJECT / "target") / "tools"
    cargo = os.environ.get("CARGO", "cargo")
    install = [cargo, "install", "--quiet", "--locked", "--root", tools]
    words = [*install, "--target-dir", tools / "build", f"fsx@{FSX}"]
    if subprocess.run(words, check=False).returncode:
        return int(skip(f"fsx {FSX} cannot be installed"))
    operations = "300" if IS_QUICK else "2000"
    failed = 0
    for turn in range(2 if IS_QUICK else 6):
        mount = disk.mounts[turn % 2]
        run = [tools / "bin" / "fsx", "-q", "-N", operations, "-S", turn + 1, "-P", disk.folder]
        words = [*agents.before(mount), *run, mount / "fsx"]
        ended = subprocess.run([str(word) for word in words], cwd=disk.folder, check=False)
        failed += ended.returncode != 0
    print(f"fsx: {2 if IS_QUICK else 6} turns on two nodes, {failed} failed")
    return failed


def judge(folder: Path) -> int:
    options = ["--seek-ms", "2", "--megabytes-per-second", "200"]
    (folder / "disk").mkdir()
    with SlowDisk(folder / "disk", NODES, options) as disk:
        fill(disk.source)
        time.sleep(SETTLED_S)
        with Agents(folder, None, disk.mounts) as agents:
            failures = compare(disk, agents, folder / "own")
            sent = disk.counters()["read_bytes"]
            files = sum(path.stat().st_size for path in disk.source.rglob("*") if path.is_file())
            print(f"the disk has sent the files {sent / files:.2f} times to {NODES} nodes")
            failures += fio(disk, agents) if can_use(["fio"]) else 0
            failures += fsx(disk, agents)
    if sent > MOST_SENT * files:
        print(f"nodes have hardly taken anything from each other: at most {MOST_SENT} times")
        return 1
    return 1 if failures else 0


if __name__ == "__main__":
    debug = Path(os.environ.get("CARGO_TARGET_DIR") or PROJECT / "target") / "debug"
    os.environ.setdefault("EYAS_BIN", str(debug / "eyas"))
    os.environ.setdefault("SLOW_DISK_BIN", str(debug / "slow-disk"))
    try:
        check_needs()
    except SlowDiskError as error:
        skip(str(error))
        sys.exit(0)
    sys.exit(isolated(judge))
