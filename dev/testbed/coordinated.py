"""Programs under `eyas io run`, and the waiting times of their requests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from slow_disk import DEADLINE_S, PROJECT, SlowDiskError, run


@dataclass
class Waits:
    """Waiting times of requests, of all storages together."""

    mean_s: float
    longest_s: float

    @property
    def of_mean(self) -> float:
        """Longest waiting time, divided by the mean."""
        return self.longest_s / self.mean_s if self.mean_s else 1.0


class Agent:
    """An agent with its own home folder, so that it serves only the programs of one run."""

    def __init__(self, folder: Path, rules: str | None) -> None:
        """Starts the agent and waits until it runs. `rules` is the content of its file of rules;
        None: it has none.
        """
        home = Path(tempfile.mkdtemp(prefix="home-", dir=folder))
        (home / "io").mkdir()
        if rules:
            (home / "io" / "rules.toml").write_text(rules)
        self.words = [
            "env",
            "--unset=EYAS_ACCESS",
            f"EYAS_HOME={home}",
            f"XDG_RUNTIME_DIR={home}",
            eyas(),
            "io",
        ]
        run(*self.words, "run", "--", "true")

    def before(self, path: Path) -> list[object]:
        """Words in front of a program's command that order files below the path."""
        return [*self.words, "run", "--path", path, "--"]

    def waits(self) -> Waits:
        """Waiting times since the agent was started. Afterwards the agent no longer reads ahead."""
        deadline = time.monotonic() + DEADLINE_S
        while any(storage["queued"] or storage["outstanding"] for storage in self.storages()):
            if time.monotonic() > deadline:
                raise SlowDiskError(
                    f"requests are not done within {DEADLINE_S} s of their programs' end"
                )
        storages = self.storages()
        waits = [wait for storage in storages for wait in storage["waits"]]
        requests = sum(wait["requests"] for wait in waits)
        all_us = sum(wait["requests"] * wait["mean_us"] for wait in waits)
        return Waits(
            all_us / max(requests, 1) / 1e6,
            max((wait["max_us"] for wait in waits), default=0) / 1e6,
        )

    def storages(self) -> list[dict[str, Any]]:
        """Its status by storage."""
        status = json.loads(run(*self.words, "status", "--json"))
        return list(status["io"]["storages"])


def eyas() -> Path:
    """The command that is measured: $EYAS_BIN, else the release build."""
    target = Path(os.environ.get("CARGO_TARGET_DIR") or PROJECT / "target")
    return Path(os.environ.get("EYAS_BIN") or target / "release" / "eyas").resolve()


def is_coordinated() -> bool:
    """Whether eyas is available and has the command."""
    return (
        eyas().exists()
        and subprocess.run([eyas(), "io", "run", "--help"], capture_output=True).returncode == 0
    )
