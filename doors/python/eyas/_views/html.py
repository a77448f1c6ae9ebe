"""Pieces of HTML for notebooks: they follow the colours of the page, light or dark, and need no
other files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["bar", "block", "bytes_text", "duration_text", "table"]

_BOX = (
    "font-size:13px;line-height:1.5;border:1px solid rgba(128,128,128,.4);border-radius:4px;"
    "padding:6px 10px"
)
_CELL = "text-align:left;padding:1px 14px 1px 0;background:none;border:none;vertical-align:top"
#: Colours that can be seen on white and on black.
_COLOURS = {"done": "#3a8f5c", "failed": "#cf4a3c", "running": "#3f7fd0"}


def _escape(text: object) -> str:
    # Imported late: it has a table of all names of characters.
    from html import escape

    return escape(str(text))


def block(title: str, *parts: str) -> str:
    """Return a box with a title, which is text, and parts, which are HTML."""
    return f'<div style="{_BOX}"><b>{_escape(title)}</b>{"".join(parts)}</div>'


def table(rows: Iterable[Sequence[object]], head: Sequence[object] = ()) -> str:
    """Return a table of texts."""
    lines = [_row(head, "th")] if head else []
    lines += [_row(row, "td") for row in rows]
    return (
        f'<table style="border-collapse:collapse;margin:2px 0;border:none">{"".join(lines)}</table>'
    )


def _row(cells: Sequence[object], kind: str) -> str:
    content = "".join(f'<{kind} style="{_CELL}">{_escape(cell)}</{kind}>' for cell in cells)
    return f'<tr style="background:none">{content}</tr>'


def bar(total: int, **parts: int) -> str:
    """Return a bar for ``total`` calls, with one coloured part each for those ``done``, ``failed``
    and ``running``.
    """
    pieces = ""
    for kind, count in parts.items():
        if count:
            style = f"width:{100 * count / total:.2f}%;background:{_COLOURS[kind]}"
            pieces += f'<div title="{count:,} {kind}" style="{style}"></div>'
    style = (
        "display:flex;height:10px;margin:4px 0;border-radius:3px;overflow:hidden;"
        "background:rgba(128,128,128,.25)"
    )
    return f'<div style="{style}">{pieces}</div>'


def bytes_text(count: float) -> str:
    """Return a number of bytes as a person writes it, such as ``1.5 GB``."""
    for unit in "bytes", "kB", "MB", "GB", "TB":
        if count < 999.5 or unit == "TB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "bytes" or count >= 99.95 else f"{count:.1f} {unit}"


def duration_text(seconds: float) -> str:
    """Return a duration as a person writes it: ``850 ms``, ``12.3 s``, ``4:05`` or ``1:00:00``."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"
