"""Prints results: a table with columns of the needed width, and a conclusion."""

from __future__ import annotations

from collections.abc import Sequence


def show(title: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints rows below their heads; numbers are aligned to the right."""
    print(f"\n{title}")
    texts = [
        [f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows
    ]
    widths = [max(len(row[place]) for row in [list(heads), *texts]) for place in range(len(heads))]
    for row in [list(heads), *texts]:
        print("  ".join(text.rjust(width) for text, width in zip(row, widths)), flush=True)


def conclude(what: str, figure: float, limit: float) -> bool:
    """Prints whether a figure is within its limit. Returns whether it is."""
    holds = figure <= limit
    print(
        f"{'holds' if holds else 'DOES NOT HOLD'}: {what}: {figure:.3f}, at most {limit:g}",
        flush=True,
    )
    return holds
