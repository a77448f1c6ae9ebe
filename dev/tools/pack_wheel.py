"""Packs the Python package and a built library into a wheel, without a build. `dev/tools/wheel.sh`
runs this.

    pack_wheel.py LIBRARY FOLDER             a wheel for tests on this machine, not compressed;
                                             prints the path of the wheel in FOLDER
    pack_wheel.py LIBRARY FOLDER PLATFORM    a wheel for users of this platform, such as
                                             manylinux_2_17_x86_64

The names of packages, metadata and entry points come from `doors/python/pyproject.toml`, as they do
when pip builds the source distribution with maturin.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED

from pyproject_metadata import StandardMetadata
from wheel.wheelfile import WheelFile

PYTHON = Path(__file__).resolve().parents[2] / "doors" / "python"


def stripped(library: Path, folder: str) -> Path:
    """A copy of the library without what only debuggers read."""
    copy = Path(folder) / library.name
    subprocess.run(["strip", "-o", copy, library], check=True)
    return copy


def entry_points(metadata: StandardMetadata) -> str:
    """The file `entry_points.txt`."""
    groups = {"console_scripts": metadata.scripts, **metadata.entrypoints}
    sections = [
        [f"[{group}]", *(f"{name} = {at}" for name, at in points.items())]
        for group, points in groups.items()
    ]
    return "\n".join(line for section in sections for line in [*section, ""])


def pack(library: Path, folder: Path, platform: str | None = None) -> Path:
    """Writes the wheel, and returns its path."""
    project = tomllib.loads((PYTHON / "pyproject.toml").read_text())
    metadata = StandardMetadata.from_pyproject(project, PYTHON)
    minimum = next(specifier.version for specifier in metadata.requires_python).replace(".", "")
    compression = ZIP_DEFLATED if platform else ZIP_STORED
    platform = platform or sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag = f"cp{minimum}-abi3-{platform}"
    name = f"{metadata.name}-{metadata.version}"
    path = folder / f"{name}-{tag}.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with WheelFile(path, "w", compression) as wheel, tempfile.TemporaryDirectory() as temporary:
        for package in project["tool"]["maturin"]["python-packages"]:
            for file in sorted((PYTHON / package).rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    wheel.write(str(file), str(file.relative_to(PYTHON)))
        module = project["tool"]["maturin"]["module-name"].replace(".", "/")
        wheel.write(str(stripped(library, temporary)), f"{module}.abi3.so")
        wheel.writestr(f"{name}.dist-info/METADATA", bytes(metadata.as_rfc822()))
        wheel.writestr(f"{name}.dist-info/entry_points.txt", entry_points(metadata))
        facts = f"Wheel-Version: 1.0\nGenerator: eyas\nRoot-Is-Purelib: false\nTag: {tag}\n"
        wheel.writestr(f"{name}.dist-info/WHEEL", facts)
    return path


if __name__ == "__main__":
    print(pack(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]))
