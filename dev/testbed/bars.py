"""Horizontal bars as a standalone SVG picture, for light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

WIDTH, LEFT, RIGHT, TOP, BAR, GAP = 760, 220, 60, 74, 13, 14
# Colours of text, lines, bars, highlighted bars.
THEMES = {
    "light": ("#1f2328", "#d0d7de", ("#8c959f", "#c4cad1"), ("#0969da", "#8ab9f0")),
    "dark": ("#e6edf3", "#3d444d", ("#7d8590", "#4a525b"), ("#58a6ff", "#2b5c94")),
}


def draw(
    title: str,
    series: Sequence[str],
    rows: Sequence[tuple[str, Sequence[float]]],
    theme: str,
    highlight: str,
) -> str:
    """A group of bars for each row: one bar for each of the series."""
    ink, line, others, ours = THEMES[theme]
    top = max(max(values) for _, values in rows)
    step = len(series) * (BAR + 1) + GAP
    height = TOP + step * len(rows) + 8
    parts = [text(16, 26, title, "start", ink, 'font-size="15" font-weight="600"')]
    across = LEFT
    for number, name in enumerate(series):
        parts.append(
            rectangle(across, 42, 12, others[number]) + rectangle(across + 13, 42, 12, ours[number])
        )
        parts.append(text(across + 32, 53, name, "start", ink))
        across += 200
    for row, (name, values) in enumerate(rows):
        y = TOP + row * step
        weight = 'font-weight="600"' if name == highlight else ""
        parts.append(text(LEFT - 10, y + step / 2 - 3, name, "end", ink, weight))
        for number, value in enumerate(values):
            length = (WIDTH - LEFT - RIGHT) * value / top
            at = y + number * (BAR + 1)
            parts.append(
                rectangle(LEFT, at, length, (ours if name == highlight else others)[number])
            )
            parts.append(
                text(
                    LEFT + length + 6, at + BAR - 2, f"{value:.1f}", "start", ink, 'font-size="12"'
                )
            )
    parts.append(f'<path d="M{LEFT} {TOP - 6}V{height - 10}" stroke="{line}"/>')
    view = f'viewBox="0 0 {WIDTH} {height}" font-family="system-ui, sans-serif" font-size="13"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {view} role="img" aria-label="{escape(title)}">'
    )
    return "\n".join([head, *parts, "</svg>\n"])


def rectangle(x: float, y: float, width: float, colour: str) -> str:
    """A bar."""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 1):.1f}" height="{BAR}" rx="2" '
        f'fill="{colour}"/>'
    )


def text(x: float, y: float, what: str, anchor: str, colour: str, more: str = "") -> str:
    """A text that begins or ends at this position."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" '
        f"{more}>{escape(what)}</text>"
    )
