"""What all experiments on the testbed have in common: their command line, and how they begin and end."""

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
    """Reads numbers with commas between them; ascending."""
    return sorted(int(number) for number in text.split(","))


def command_line(description: str | None, tiny: str, runs: int) -> argparse.ArgumentParser:
    """What every experiment is asked: whether it is to be `tiny`, and how many runs of each there are."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=description, formatter_class=raw)
    parser.add_argument("--tiny", action="store_true", help=f"figures without meaning: {tiny}, once")
    parser.add_argument("--runs", type=int, default=runs, help="runs of each, of which the median counts")
    return parser


def ask_nodes(parser: argparse.ArgumentParser) -> None:
    """For experiments on one number of nodes."""
    parser.add_argument("--nodes", type=int, default=8, help="how many")


def ask_links(parser: argparse.ArgumentParser, link: str, store_link: str) -> None:
    """How fast links are, if nothing else is said."""
    parser.add_argument("--link", default=link, help="each node's link")
    parser.add_argument("--store-link", default=store_link, help="the store's link")


def proteins() -> Path:
    """The folder of what `apps/blast/fetch.py` fetches, which does so unless it is there."""
    folder = Path(os.environ.get("CARGO_TARGET_DIR") or PROJECT / "target") / "blast"
    subprocess.run([sys.executable, PROJECT / "apps" / "blast" / "fetch.py", folder], check=True)
    return folder


def conduct(
    parser: argparse.ArgumentParser, tiny: dict[str, object], experiment: Callable[[argparse.Namespace, Testbed], bool]
) -> int:
    """Runs an experiment as it is asked for, if tiny then with these options, and removes its testbed, however it ends.
    The exit code: 0 if all of its goals hold, which a tiny one need not reach."""
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
