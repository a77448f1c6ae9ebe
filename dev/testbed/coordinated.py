"""Programs under `eyas io run`, and the waiting times of their requests."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
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


class Agents:
    """An agent for each node, a mount, with a home folder of their own, so that they serve only the
    programs of one run. Of several nodes, a coordinator orders the requests.
    """

    def __init__(self, folder: Path, rules: str | None, mounts: Sequence[Path]) -> None:
        """`rules` is the content of their file of rules; None: there is none. The disk's kernel
        knows the versions of its files, so several nodes may pass parts on.
        """
        self.home = Path(tempfile.mkdtemp(prefix="home-", dir=folder))
        self.mounts = mounts
        self.coordinator: subprocess.Popen[bytes] | None = None
        (self.home / "io").mkdir()
        rules = (rules or "") + ("default.share = true\n" if len(mounts) > 1 else "")
        if rules:
            (self.home / "io" / "rules.toml").write_text(rules)

    def __enter__(self) -> Agents:
        """Starts them, and waits until they run."""
        if len(self.mounts) > 1:
            words = [*self.words(self.mounts[0]), "serve", "--listen", "127.0.0.1:0"]
            self.coordinator = subprocess.Popen(
                [str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            assert self.coordinator.stdout
            if self.coordinator.stdout.readline() != b"ready\n":
                raise SlowDiskError("the coordinator does not start")
        for mount in self.mounts:
            run(*self.words(mount), "run", "--", "true")
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the coordinator. The agents end by themselves."""
        if self.coordinator:
            self.coordinator.terminate()
            self.coordinator.wait(DEADLINE_S)

    def words(self, mount: Path) -> list[object]:
        """The words of `eyas io` on a node."""
        own = self.home / f"run-{mount.name}"
        own.mkdir(mode=0o700, exist_ok=True)
        return [
            "env",
            "--unset=EYAS_ACCESS",
            f"EYAS_HOME={self.home}",
            f"XDG_RUNTIME_DIR={own}",
            eyas(),
            "io",
        ]

    def before(self, mount: Path) -> list[object]:
        """Words in front of a program's command that order files of the node's mount."""
        return [*self.words(mount), "run", "--path", mount, "--"]

    @contextlib.contextmanager
    def mounted(self, mount: Path) -> Iterator[Path]:
        """A place at which any program's requests to the node's mount are ordered."""
        place = self.home / f"ordered-{mount.name}"
        place.mkdir()
        words = [str(word) for word in [*self.words(mount), "mount", mount, place]]
        server = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert server.stdout
        if not server.stdout.readline():
            raise SlowDiskError("the ordered mount does not start")
        try:
            yield place
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(DEADLINE_S)

    def waits(self) -> Waits:
        """Waiting times since they were started. Afterwards they no longer read ahead."""
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
        """Their status by storage."""
        status = json.loads(run(*self.words(self.mounts[0]), "status", "--json"))
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
