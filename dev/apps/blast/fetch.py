#!/usr/bin/env python3
"""Fetches protein sequences from Debian's archive, and makes a BLAST database of them.

    fetch.py FOLDER

The package `plast-example` has proteins of the bottlenose dolphin (Tursiops truncatus, Ensembl):
16,598 sequences, and 71 of them as queries. It is downloaded and unpacked, not installed. FOLDER
gets `tursiops.fa`, `query.fa` and the database `tursiops.p*`, 13 MB. Does nothing if FOLDER has
them. Needs apt-get with its lists (`apt-get update`), dpkg, `makeblastdb` of `ncbi-blast+`, and
Python 3.9 or later.
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = "plast-example"
FILES = f"usr/share/doc/{PACKAGE}/db"
NEEDED = {"apt-get": "apt", "dpkg": "dpkg", "makeblastdb": "ncbi-blast+"}


def fetch(folder: Path) -> None:
    """Makes the files in the folder. The file `complete` is made last."""
    missing = [
        f"{program} (package {package})"
        for program, package in NEEDED.items()
        if shutil.which(program) is None
    ]
    if missing:
        sys.exit(f"fetch: missing: {', '.join(missing)}")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        scratch = Path(name)
        got = subprocess.run(
            ["apt-get", "download", "-qq", PACKAGE], cwd=scratch, stderr=subprocess.PIPE, text=True
        )
        if got.returncode:
            why = "is there a network, and did `apt-get update` run?"
            sys.exit(f"fetch: {PACKAGE} cannot be downloaded; {why}\n{got.stderr}")
        subprocess.run(["dpkg", "-x", next(scratch.glob("*.deb")), scratch], check=True)
        for file in ("tursiops.fa", "query.fa"):
            (folder / file).write_bytes(
                gzip.decompress((scratch / FILES / f"{file}.gz").read_bytes())
            )
    make = [
        "makeblastdb",
        "-in",
        "tursiops.fa",
        "-dbtype",
        "prot",
        "-out",
        "tursiops",
        "-title",
        "tursiops",
    ]
    subprocess.run(make, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (folder / "complete").touch()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if not (Path(sys.argv[1]) / "complete").exists():
        fetch(Path(sys.argv[1]))
