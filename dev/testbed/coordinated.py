"""Programs under `eyas io run`, asked afterwards how long their requests waited for their turn."""

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
    """Of requests until they were granted, of all storages together."""

    mean_s: float
    longest_s: float

    @property
    def of_mean(self) -> float:
        """The longest, in means."""
        return self.longest_s / self.mean_s if self.mean_s else 1.0


class Agent:
    """One with a home of its own, so that it knows of nothing but the programs that are run with it."""

    def __init__(self, folder: Path, policy: str | None) -> None:
        """It is up when this returns. `policy` is its rules' for all storages; None: there are no rules."""
        home = Path(tempfile.mkdtemp(prefix="home-", dir=folder))
        (home / "io").mkdir()
        if policy:
            (home / "io" / "rules.toml").write_text(f'default.policy = "{policy}"\n')
        self.words = ["env", "--unset=EYAS_ACCESS", f"EYAS_HOME={home}", f"XDG_RUNTIME_DIR={home}", eyas(), "io"]
        run(*self.words, "run", "--", "true")

    def before(self, path: Path) -> list[object]:
        """What comes before a program's words, so that it is ordered below the path."""
        return [*self.words, "run", "--path", path, "--"]

    def waits(self) -> Waits:
        """How long requests have waited since it is up. It reads nothing any more when this returns."""
        deadline = time.monotonic() + DEADLINE_S
        while any(storage["queued"] or storage["outstanding"] for storage in self.storages()):
            if time.monotonic() > deadline:
                raise SlowDiskError(f"requests are not done within {DEADLINE_S} s of their programs' end")
        storages = self.storages()
        waits = [wait for storage in storages for wait in storage["waits"]]
        requests = sum(wait["requests"] for wait in waits)
        all_us = sum(wait["requests"] * wait["mean_us"] for wait in waits)
        return Waits(all_us / max(requests, 1) / 1e6, max((wait["max_us"] for wait in waits), default=0) / 1e6)

    def storages(self) -> list[dict[str, Any]]:
        """What it says of them."""
        status = json.loads(run(*self.words, "status", "--json"))
        return list(status["io"]["storages"])


def eyas() -> Path:
    """The command that is measured: $EYAS_BIN, else the release build."""
    target = Path(os.environ.get("CARGO_TARGET_DIR") or PROJECT / "target")
    return Path(os.environ.get("EYAS_BIN") or target / "release" / "eyas").resolve()


def is_coordinated() -> bool:
    """Whether there is an eyas that has the command."""
    return eyas().exists() and subprocess.run([eyas(), "io", "run", "--help"], capture_output=True).returncode == 0
