"""Nextflow from Maven Central and Snakemake from PyPI, and a cluster of eyas with a shim."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from measured import COMMAND

HERE = Path(__file__).resolve().parent
TOOLS = HERE.parents[1] / "target" / "workflow-systems"
OPENED = ["lang", "io", "nio", "net", "util", "util.concurrent"]
SNAKEMAKE = ["snakemake==9.27.1", "snakemake-executor-plugin-slurm==2.8.0"]


class NotInstalled(Exception):
    """A program is missing and cannot be downloaded."""


def nextflow() -> list[str]:
    """The words that start Nextflow. Downloads it on the first call."""
    jars = TOOLS / "nextflow"
    if not list(jars.glob("nextflow-*.jar")):
        words = [
            "mvn",
            "-q",
            "-B",
            "-f",
            HERE / "nextflow" / "pom.xml",
            "dependency:copy-dependencies",
        ]
        _install([*words, f"-DoutputDirectory={jars}"])
    opened = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in OPENED]
    opened += [f"--add-opens=java.base/sun.nio.{name}=ALL-UNNAMED" for name in ["ch", "fs"]]
    return ["java", *opened, "-cp", f"{jars}/*", "nextflow.cli.Launcher"]


def snakemake() -> list[str]:
    """The words that start Snakemake. Installs it on the first call."""
    return [str(Path(installed("snakemake", SNAKEMAKE)).parent / "snakemake")]


def installed(name: str, packages: list[str]) -> str:
    """The interpreter of a virtual environment with these packages, which are installed on the
    first call.
    """
    environment = TOOLS / name
    done = environment / "installed"
    if not done.exists():
        _install([sys.executable, "-m", "venv", environment])
        _install(
            [environment / "bin" / "pip", "--disable-pip-version-check", "install", "-q", *packages]
        )
        done.touch()
    return str(environment / "bin" / "python")


def _install(words: list[str | Path]) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True)
    except FileNotFoundError as missing:
        raise NotInstalled(str(missing)) from missing
    if done.returncode:
        raise NotInstalled(f"{words[0]} failed: {(done.stdout + done.stderr)[-500:]}")


class ShimCluster:
    """A local cluster of eyas with a shim. A context manager that stops it."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.options = options
        environment = {
            name: text for name, text in os.environ.items() if not name.startswith("EYAS_")
        }
        self.environment = {
            **environment,
            "EYAS_HOME": str(folder / "home"),
            "EYAS_CLUSTER": "pipelines",
        }
        self.environment["PATH"] = f"{folder / 'shim'}:{os.environ['PATH']}"
        self.environment["NXF_HOME"] = str(TOOLS / "nextflow-home")
        self.environment["NXF_OFFLINE"] = self.environment["NXF_DISABLE_CHECK_LATEST"] = "true"

    def __enter__(self) -> ShimCluster:
        (self.folder / "home").mkdir(parents=True)
        self.run([str(COMMAND.resolve()), "start", "local", "--detach", *self.options])
        self.run([str(COMMAND.resolve()), "shim", str(self.folder / "shim")])
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run([COMMAND.resolve(), "stop"], env=self.environment, capture_output=True)

    def run(self, words: list[str], folder: Path | None = None, code: int | None = 0) -> str:
        """Runs a program with the commands of the shim. Returns what it has printed."""
        done = subprocess.run(
            words, env=self.environment, cwd=folder, capture_output=True, text=True, timeout=1800
        )
        if code is not None and done.returncode != code:
            raise SystemExit(
                f"{words[0]} ended with {done.returncode}: {(done.stdout + done.stderr)[-3000:]}"
            )
        return done.stdout
