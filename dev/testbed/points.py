"""Measured points of a figure, in a file. A point that is there is not measured again, so that an
experiment that was ended goes on where it was.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path

Values = dict[str, float]


class Points:
    """Points by their names; each has the values of its rounds."""

    def __init__(self, path: Path, again: bool) -> None:
        """The points of this file. With `again`, they are forgotten."""
        self.path = path
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if again:
            self.path.unlink(missing_ok=True)
        self.rounds: dict[str, list[Values]] = {}
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                point = json.loads(line)
                self.rounds.setdefault(point["point"], []).append(point["values"])

    def measure(self, name: str, rounds: int, measure: Callable[[], Values]) -> None:
        """Measures a point, unless it has as many rounds already."""
        if len(self.rounds.get(name, [])) >= rounds:
            return
        values = measure()
        self.rounds.setdefault(name, []).append(values)
        with self.path.open("a") as file:
            file.write(json.dumps({"point": name, "values": values}) + "\n")
        figures = ", ".join(f"{key} {value:,.4g}" for key, value in values.items())
        print(f"{name}: {figures}", flush=True)

    def median(self, name: str, key: str) -> float:
        """Median of a value over the rounds of a point; not a number if there are none."""
        found = [values[key] for values in self.rounds.get(name, [])]
        return statistics.median(found) if found else float("nan")
