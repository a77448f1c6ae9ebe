"""Command line, beginning and end of all experiments on the testbed."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cluster import PROJECT
from links import LinkError
from testbed import Testbed, TestbedError


def ascending(text: str) -> list[int]:
    """Parses numbers separated by commas; ascending."""
    return sorted(int(number) for number in text.split(","))


def command_line(description: str | None, tiny: str, runs: int) -> argparse.ArgumentParser:
    """Options of every experiment: whether it is `tiny`, and the number of runs."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=description, formatter_class=raw)
    parser.add_argument(
        "--tiny", action="store_true", help=f"quick test with {tiny}; the figures mean nothing"
    )
    parser.add_argument("--runs", type=int, default=runs, help="runs of each; the median counts")
    return parser


def ask_nodes(parser: argparse.ArgumentParser) -> None:
    """Option of experiments with a single number of nodes."""
    parser.add_argument("--nodes", type=int, default=8, help="number of nodes")


def ask_links(parser: argparse.ArgumentParser, link: str, store_link: str) -> None:
    """Options for the rates of links, with these defaults."""
    parser.add_argument("--link", default=link, help="rate of each node's link")
    parser.add_argument("--store-link", default=store_link, help="rate of the store's link")


def proteins() -> Path:
    """Folder with the files of `dev/apps/blast/fetch.py`, which runs if they are missing."""
    folder = Path(os.environ.get("CARGO_TARGET_DIR") or PROJECT / "target") / "blast"
    subprocess.run(
        [sys.executable, PROJECT / "dev" / "apps" / "blast" / "fetch.py", folder], check=True
    )
    return folder


def conduct(
    parser: argparse.ArgumentParser,
    tiny: dict[str, object],
    experiment: Callable[[argparse.Namespace, Testbed], bool],
) -> int:
    """Runs an experiment, with the options for `tiny` if asked for, and removes its testbed however
    it ends. Returns the exit code: 0 if all goals hold, which a tiny run need not reach.
    """
    asked = parser.parse_args()
    if asked.tiny:
        vars(asked).update(tiny, runs=1)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    bed = Testbed()
    try:
        return 0 if experiment(asked, bed) or asked.tiny else 1
    except (TestbedError, LinkError, subprocess.CalledProcessError) as error:
        print(f"{Path(parser.prog).stem}: {error}", file=sys.stderr)
        return 1
    finally:
        bed.down()
