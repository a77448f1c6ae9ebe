"""Answers of a cluster about nodes, jobs and calls: lists and dicts of JSON that also print and
show themselves.
"""

from __future__ import annotations

from typing import Any

from . import html

__all__ = ["Explanation", "Nodes", "Report", "reads_of"]

#: Nodes and failures that are shown; the values have all of them.
_MAX_SHOWN = 20
#: States of calls, in the order in which a call passes through them.
_STATES = "blocked", "waiting", "assigned", "succeeded", "failed", "cancelled"


def reads_of(reads: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Return where inputs were read from: the source, how many inputs, and their bytes."""
    rows = [
        ("the node's own disk", reads["local"]["count"], reads["local"]["bytes"]),
        ("other nodes", reads["peer"]["count"], reads["peer"]["bytes"]),
        ("shared storage", reads["persistent"]["count"], reads["persistent"]["bytes"]),
    ]
    files = reads["files"]
    return [
        *rows,
        ("files of the cluster", files["count"], files["own_bytes"] + files["other_bytes"]),
    ]


def _lines(rows: list[tuple[str, str]]) -> str:
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"  {name:<{width}}  {value}" for name, value in rows)


def _item(item: object) -> str:
    # Calls are bytes, which say nothing to a reader.
    return item if isinstance(item, str) else "a call"


class _Shown:
    """Shows what ``print`` prints, also where IPython has no HTML."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


class Report(_Shown, dict[str, Any]):
    """What has become of the calls of an executor, as ``eyas report --json`` tells it.

    ``print(report)`` and notebooks show a summary.
    """

    def _title(self) -> str:
        job = self["job"]
        return f"Job {job['job']} ({job['name']}): {job['state']}"

    def _counts(self) -> dict[str, int]:
        counts: dict[str, int] = self["job"]["tasks"]
        return counts

    def _rows(self) -> list[tuple[str, str]]:
        job, metrics = self["job"], self["metrics"]
        counts = self._counts()
        calls = (
            ", ".join(f"{counts[state]:,} {state}" for state in _STATES if counts[state]) or "none"
        )
        nodes = f"{job['executors']} with {job['capacity_milli'] / 1000:g} processors"
        rows = [
            ("calls", calls),
            ("time", html.duration_text(job["elapsed_us"] / 1e6)),
            ("nodes", nodes),
        ]
        ended = counts["succeeded"] + counts["failed"] + counts["cancelled"]
        if ended and metrics["execution_us"] is not None:
            rows.append(("mean time of a call", html.duration_text(metrics["execution_us"] / 1e6)))
        if job["retried"]:
            rows.append(("retries", f"{job['retried']:,}"))
        rows += [
            (f"read from {source}", f"{html.bytes_text(size)} ({count:,} inputs)")
            for source, count, size in reads_of(job["reads"])
            if count
        ]
        return rows + [("warning", text) for text in job["warnings"]]

    def _failures(self) -> list[tuple[str, str, str]]:
        failures = self["failures"][:_MAX_SHOWN]
        return [
            (failure["task"], _item(failure["item"]), failure["status"] or "has raised")
            for failure in failures
        ]

    def __str__(self) -> str:
        """Return the summary."""
        failures = [
            (f"task {task}", f"{item}: {status}") for task, item, status in self._failures()
        ]
        parts = [self._title(), _lines(self._rows())]
        return "\n".join([*parts, "Failed calls:", _lines(failures)] if failures else parts)

    def _repr_html_(self) -> str:
        counts, failures = self._counts(), self._failures()
        parts = [html.table(self._rows())]
        if total := sum(counts.values()):
            succeeded, failed = counts["succeeded"], counts["failed"] + counts["cancelled"]
            parts.insert(
                0, html.bar(total, done=succeeded, failed=failed, running=counts["assigned"])
            )
        if failures:
            parts.append(html.table(failures, ("failed task", "item", "status")))
        return html.block(self._title(), *parts)


class Explanation(_Shown, dict[str, Any]):
    """Why a call waits, or where it runs and why, as ``eyas explain --json`` tells it.

    ``print(explanation)`` and notebooks show the sentences.
    """

    def _title(self) -> str:
        task = self["task"]
        item = f" ({task['item']})" if task["item"] and isinstance(task["item"], str) else ""
        return f"Task {task['task']}{item}: {task['state']}"

    def _inputs(self) -> list[tuple[str, str, str]]:
        """Return the source of each input, its size, and the nodes that hold it."""
        rows = []
        for view in self["inputs"]:
            source = view["source"] if isinstance(view["source"], str) else view["object"]
            rows.append(
                (
                    source,
                    html.bytes_text(view["size_bytes"]),
                    ", ".join(view["holders"]) or "no node",
                )
            )
        return rows

    def __str__(self) -> str:
        """Return the sentences."""
        inputs = [
            f"Input {source} ({size}) is on {holders}." for source, size, holders in self._inputs()
        ]
        return "\n".join([f"{self._title()}.", *self["because"], *inputs])

    def _repr_html_(self) -> str:
        inputs = self._inputs()
        parts = [html.table([(line,) for line in self["because"]])]
        if inputs:
            parts.append(html.table(inputs, ("input", "size", "is on")))
        return html.block(self._title(), *parts)


class Nodes(_Shown, list[dict[str, Any]]):
    """The nodes of a cluster, as ``eyas executor list --json`` tells them.

    ``print(nodes)`` and notebooks show a table.
    """

    def summary(self) -> str:
        """Return how many nodes and processors there are."""
        processors = sum(node["capacity"]["cpus_milli"] for node in self) / 1000
        return f"{len(self):,} node{'' if len(self) == 1 else 's'} with {processors:g} processors"

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        for node in self[:_MAX_SHOWN]:
            capacity = node["capacity"]
            rows.append(
                (
                    node["name"],
                    node["host"],
                    node["state"],
                    f"{node['assigned_milli'] / 1000:g} of {capacity['cpus_milli'] / 1000:g}",
                    html.bytes_text(capacity["memory_bytes"]),
                    f"{html.bytes_text(node['held_bytes'])} in {node['objects']:,}",
                    f"{node['ended']:,}",
                )
            )
        if len(self) > _MAX_SHOWN:
            rows.append((f"and {len(self) - _MAX_SHOWN:,} more", *[""] * 6))
        return rows

    def __str__(self) -> str:
        """Return a table."""
        rows = [_HEAD, *self._rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
            for row in rows
        )

    def _repr_html_(self) -> str:
        return html.block(self.summary(), html.table(self._rows(), _HEAD))


_HEAD = ("node", "host", "state", "processors in use", "memory", "files held", "tasks ended")
