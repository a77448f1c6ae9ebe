"""The loads MI and SW of data-diffusion §5, with rates and times scaled down: times at which tasks
arrive.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

PEAK_PER_S = 1000
MI_INTERVAL_S, MI_TASKS = 60, 250_000
SW_S = 6505


def monotonically_increasing() -> Iterator[float]:
    """Equation 12: the rate grows by the factor 1.3 each minute; 250,000 tasks in 1,415 s."""
    rate = 1
    left = MI_TASKS
    for interval in range(24):
        tasks = min(rate * MI_INTERVAL_S, left)
        left -= tasks
        for task in range(tasks):
            yield interval * MI_INTERVAL_S + task / rate
        rate = min(math.ceil(1.3 * rate), PEAK_PER_S)


def sine_wave() -> Iterator[float]:
    """Equation 13: waves, each higher than the one before; 2,000,000 tasks in 6,505 s."""
    for second in range(SW_S):
        minutes = second / 60 + 0.11
        tasks = int((math.sin(math.sqrt(minutes) * 2.859678) + 1) * minutes * 5.705)
        for task in range(tasks):
            yield second + task / tasks


LOADS = {"MI": monotonically_increasing, "SW": sine_wave}


def scaled(load: str, faster: float, peak_per_s: float, tick_s: float) -> list[float]:
    """Arrivals in a time that is shorter by `faster`, at rates with this peak: every n-th task of
    the load. Tasks arrive at the next multiple of `tick_s`."""
    every = PEAK_PER_S * faster / peak_per_s
    times, following = [], every / 2
    for number, at_s in enumerate(LOADS[load]()):
        if number >= following:
            times.append(math.ceil(at_s / faster / tick_s) * tick_s)
            following += every
    return times


def write_trace(path: Path, times: list[float], compute_s: float) -> None:
    """The load as a recorded job, which `eyas simulate` runs again. Its tasks read nothing."""
    lines: list[dict[str, object]] = [{"eyas_trace": 1, "name": path.stem}]
    for at_s in times:
        at_us, ran_us = round(at_s * 1e6), round(compute_s * 1e6)
        times_us = {"at_us": at_us, "started_us": at_us, "ended_us": at_us + ran_us}
        lines.append({**times_us, "ran_us": ran_us, "cpu_us": ran_us, "inputs": []})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
