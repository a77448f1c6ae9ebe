"""Checks, without a build, that an unpacked source distribution has everything that the build of
the Python package reads: `dev/tools/python_tests.sh` runs this.

    check_sdist.py FOLDER

Cargo must find every package of the workspace there that is compiled for it. Each file of these
packages that git has, and that is compiled, must be in it, and so must the packages of Python.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMPILED = ("Cargo.toml", "build.rs", "src", "web")


def metadata(folder: Path) -> dict[str, dict[str, object]]:
    """The packages that cargo finds in a folder, by their names."""
    line = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--offline", "--locked"]
    done = subprocess.run(line, cwd=folder, check=True, capture_output=True)
    return {package["name"]: package for package in json.loads(done.stdout)["packages"]}


def needed(packages: dict[str, dict[str, object]], name: str) -> set[str]:
    """Names of the packages of the workspace that a build of this one compiles, with its own."""
    found: set[str] = set()
    names = [name]
    while names:
        package = packages[names.pop()]
        found.add(package["name"])
        dependencies = [row["name"] for row in package["dependencies"] if row["kind"] != "dev"]
        names += [name for name in dependencies if name in packages and name not in found]
    return found


def main(folder: Path) -> int:
    """Returns the exit code."""
    packages = metadata(ROOT)
    names = needed(packages, "eyas-python")
    wrong = [f"the package {name} is missing" for name in sorted(names - set(metadata(folder)))]
    places = {Path(packages[name]["manifest_path"]).parent.relative_to(ROOT) for name in names}
    project = tomllib.loads((ROOT / "doors" / "python" / "pyproject.toml").read_text())
    python = {
        Path("doors/python") / package for package in project["tool"]["maturin"]["python-packages"]
    }
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    for file in map(Path, tracked.splitlines()):
        crate = next((place for place in file.parents if place in places), None)
        if any(place in python for place in file.parents):
            # The packages of Python are at the top of a source distribution.
            place = folder / file.relative_to("doors/python")
        elif crate and file.relative_to(crate).parts[0] in COMPILED:
            place = folder / file
        else:
            continue
        if not place.exists():
            wrong.append(f"{file} is missing")
    print(
        "\n".join(wrong) or f"the source distribution has all of {len(names)} packages",
        file=sys.stderr,
    )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
