"""Line plots over a logarithmic axis as standalone SVG pictures. The upright axis may be
logarithmic, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import ceil, floor, log2, log10
from pathlib import Path

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 60, 150, 40, 50
Lines = Mapping[str, Sequence[float]]
# Distinguishable without red and green vision (Okabe and Ito).
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000"]


def amount(size: int) -> str:
    """A size of a file in few letters: 100 kB as 100K."""
    power = min((len(str(size)) - 1) // 3, 3)
    return f"{size // 1000**power}{('B', 'K', 'M', 'G')[power]}"


def lines(
    path: Path,
    title: str,
    unit: str,
    places: Sequence[tuple[int, str]],
    of: Lines,
    is_logarithmic: bool = False,
) -> None:
    """Draws the values of each series at these named positions; values that are not numbers are
    left out.
    """
    known = [value for values in of.values() for value in values if value == value]
    top = 1.1 * max(known, default=1.0) or 1.0
    if is_logarithmic:  # whole powers of ten
        bottom = 10.0 ** floor(log10(min((value for value in known if value > 0), default=0.1)))
        top = 10.0 ** max(ceil(log10(top)), log10(bottom) + 1)
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    least, most = log2(places[0][0]), log2(places[-1][0])

    def across(place: int) -> float:
        return LEFT + width * (log2(place) - least) / max(most - least, 1)

    def up(value: float) -> float:
        if is_logarithmic:
            value = max(value, bottom)
            return TOP + height * (1 - log10(value / bottom) / log10(top / bottom))
        return TOP + height * (1 - value / top)

    parts = [text(WIDTH / 2, 20, title, "middle"), text(LEFT, TOP - 8, unit, "end")]
    marks = [top * step / 5 for step in range(6)]
    if is_logarithmic:
        marks = [bottom * 10**step for step in range(round(log10(top / bottom)) + 1)]
    for value in marks:
        parts.append(f'<path d="M{LEFT} {up(value):.1f}h{width}" stroke="#ddd"/>')
        parts.append(text(LEFT - 6, up(value) + 4, f"{value:.3g}", "end"))
    parts += [text(across(place), HEIGHT - BOTTOM + 20, name, "middle") for place, name in places]
    for number, (name, values) in enumerate(of.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = [
            (across(place), up(value))
            for (place, _), value in zip(places, values)
            if value == value
        ]
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        line = TOP + 10 + 20 * number
        parts.append(
            f'<path d="M{WIDTH - RIGHT + 12} {line}h20" stroke="{colour}" stroke-width="2"/>'
        )
        parts.append(text(WIDTH - RIGHT + 38, line + 4, name, "start"))
    view = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12"'
    path.write_text(
        "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {view}>',
                '<rect width="100%" height="100%" fill="#fff"/>',
                *parts,
                "</svg>\n",
            ]
        )
    )


def text(x: float, y: float, what: str, anchor: str) -> str:
    """A text anchored at this position."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(what)}</text>'
