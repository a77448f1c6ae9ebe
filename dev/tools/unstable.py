"""Tests that failed in CI and passed when they ran once more, alone: a run may have few of them,
and must name them.

dev/tools/unstable.py begin           forgets those of an earlier run
dev/tools/unstable.py note NAME...    adds tests; exit code 1 if there are too many
dev/tools/unstable.py report          prints those of this run
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

TARGET = Path(
    os.environ.get("CARGO_TARGET_DIR") or Path(__file__).resolve().parents[2] / "target"
).resolve()
LIST = TARGET / "unstable-tests"
MAX_UNSTABLE = 2


def note(names: list[str]) -> bool:
    """Adds tests to those of this run. Returns whether there are not too many of them."""
    LIST.parent.mkdir(parents=True, exist_ok=True)
    with LIST.open("a") as file:
        file.writelines(f"{name}\n" for name in names)
    count = len(noted())
    if count > MAX_UNSTABLE:
        print(
            f"{count} tests failed and then passed; a run may have {MAX_UNSTABLE}: "
            f"{', '.join(noted())}"
        )
    return count <= MAX_UNSTABLE


def noted() -> list[str]:
    """The tests of this run."""
    return LIST.read_text().splitlines() if LIST.exists() else []


def report() -> None:
    """Prints them; on GitHub, also to the summary of the run."""
    lines = [f"unstable: {name}" for name in noted()]
    print("\n".join(lines) or "no test failed at first and then passed")
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a") as file:
            file.writelines(f"{line}\n\n" for line in lines)


if __name__ == "__main__":
    if sys.argv[1:] == ["begin"]:
        LIST.unlink(missing_ok=True)
    elif sys.argv[1:2] == ["note"]:
        sys.exit(0 if note(sys.argv[2:]) else 1)
    elif sys.argv[1:] == ["report"]:
        report()
    else:
        sys.exit(__doc__)
