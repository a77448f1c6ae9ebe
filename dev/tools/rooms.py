"""Which rooms (crates) a change touches, for checks that need not run each time."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def changed_files(since: str) -> set[str]:
    """Files that differ from a revision, in commits, in the index, or not yet added."""
    different = ["git", "diff", "--name-only", "--no-renames", since, "--"]
    untracked = ["git", "ls-files", "--others", "--exclude-standard"]
    files: set[str] = set()
    for line in (different, untracked):
        files.update(
            subprocess.run(
                line, cwd=ROOT, check=True, capture_output=True, text=True
            ).stdout.splitlines()
        )
    return files


@dataclass(frozen=True)
class Room:
    """A crate of the workspace."""

    package: str
    imports: frozenset[str]  # folders of rooms, without those that only tests import


@cache
def rooms() -> dict[str, Room]:
    """Rooms by their folders."""
    cargo = os.environ.get("CARGO") or "cargo"
    line = [cargo, "metadata", "--format-version", "1", "--no-deps", "--offline", "--locked"]
    packages = json.loads(subprocess.run(line, cwd=ROOT, check=True, capture_output=True).stdout)[
        "packages"
    ]
    folders = {
        package["name"]: str(Path(package["manifest_path"]).parent.relative_to(ROOT))
        for package in packages
    }
    found = {}
    for package in packages:
        names = {row["name"] for row in package["dependencies"] if row["kind"] != "dev"}
        imports = frozenset(folders[name] for name in names if name in folders)
        found[folders[package["name"]]] = Room(package["name"], imports)
    return found


def room_of(file: str) -> str | None:
    """Folder of the room that a file belongs to: the innermost."""
    return next((str(place) for place in Path(file).parents if str(place) in rooms()), None)


def with_imports(folders: set[str]) -> set[str]:
    """These rooms, and what they import, directly or through others."""
    found: set[str] = set()
    left = set(folders)
    while left:
        room = left.pop()
        found.add(room)
        left |= rooms()[room].imports - found
    return found
