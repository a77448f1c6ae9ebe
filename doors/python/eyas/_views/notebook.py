"""What executors and futures tell about themselves: to Python, to people, and to notebooks.

It imports what shows them when something is to be shown.
"""

from __future__ import annotations

from concurrent import futures
from typing import TYPE_CHECKING, Any, TypeVar

from .. import _eyas
from .._errors import ClusterError

if TYPE_CHECKING:
    from .answers import Explanation, Nodes, Report
    from .progress import JobProgress

__all__ = ["Job", "SeenExecutor", "SeenFuture"]

_T = TypeVar("_T")


class Job:
    """The calls of an executor, as its cluster sees them."""

    def __init__(self, session: _eyas.CallSession, address: dict[str, Any]) -> None:
        """Take the session of the job, and the keywords that name its cluster."""
        self.session = session
        self.address = address

    def explain(self, task: int | None) -> Explanation:
        """Return why a call waits, or where it runs and why."""
        from .answers import Explanation

        return Explanation(_eyas.ask("explain", job=self.session.job, task=task, **self.address))

    def report(self) -> Report:
        """Return what has become of the calls so far."""
        from .answers import Report

        return Report(_eyas.ask("report", job=self.session.job, **self.address))

    def view(self) -> dict[str, Any]:
        """Return the counts and times that ``eyas job list --json`` shows."""
        views: list[dict[str, Any]] = _eyas.ask("job", job=self.session.job, **self.address)
        return views[0]


class SeenFuture(futures.Future[_T]):
    """A future that knows its task and its node."""

    #: Number of the call in its executor's job.
    task: int | None = None
    #: Name of the node that has run the call.
    node: str | None = None
    #: The job of its executor, once the call is sent.
    _of: Job | None = None

    def explain(self) -> Explanation:
        """Return why the call waits for a node, or where it runs and why, as ``eyas explain
        --json`` does.
        """
        if self._of is None:
            raise ValueError(
                "the call waits for futures among its arguments, or could not be submitted"
            )
        return self._of.explain(self.task)

    def _details(self) -> list[tuple[str, str]]:
        task = [] if self._of is None else [("task", f"{self._of.session.job}.{self.task}")]
        return task + ([("node", self.node)] if self.node else [])

    def __repr__(self) -> str:
        """Return the state, the task, and the node."""
        details = "".join(f" {name}={value}" for name, value in self._details())
        return f"{super().__repr__()[:-1]}{details}>"

    def _result_type(self) -> str:
        """Say of what type the result is."""
        return type(self.result()).__name__

    def _repr_html_(self) -> str:
        from . import html

        rows = self._details()
        state = "cancelled" if self.cancelled() else "has ended" if self.done() else "has not ended"
        if self.done() and not self.cancelled():
            error = futures.Future.exception(self)
            rows.append(
                ("returned", self._result_type()) if error is None else ("raised", repr(error))
            )
            rows += [("", note) for note in getattr(error, "__notes__", ())]
        return html.block(f"Future: {state}", html.table(rows))


class SeenExecutor(futures.Executor):
    """An executor that can be asked about its nodes and calls."""

    #: Keywords that name its cluster.
    _cluster: dict[str, Any]
    _max_workers: int

    @property
    def _job(self) -> Job:
        raise NotImplementedError

    def _standing(self) -> str:
        """Whether it takes calls: ``open``, ``shut down`` or ``broken``."""
        raise NotImplementedError

    def _outstanding(self) -> int:
        """How many calls have been sent and have not ended."""
        raise NotImplementedError

    def nodes(self) -> Nodes:
        """Return the nodes of the cluster, as ``eyas executor list --json`` shows them."""
        from .answers import Nodes

        return Nodes(_eyas.ask("executors", **self._cluster))

    def report(self) -> Report:
        """Return what has become of the calls so far: counts, times, and where inputs came from."""
        return self._job.report()

    def explain(self, future: SeenFuture[Any]) -> Explanation:
        """Return why a call waits, or where it runs and why: :meth:`Future.explain`."""
        return future.explain()

    def progress(self, *, label: str = "", show: bool | None = None) -> JobProgress:
        """Show the progress of the calls, on a terminal (standard error) or in a notebook, inside
        of a ``with``.

        With ``show=True``, lines are written where there is neither; with ``show=False``, nothing
        is shown.

        >>> with executor.progress():
        ...     results = list(executor.map(work, items))
        """
        from .progress import JobProgress

        return JobProgress(self._job.view, label, show)

    def __repr__(self) -> str:
        """Return the job, how many calls run at a time, and how many are outstanding."""
        return (
            f"<{type(self).__name__} job={self._job.session.job} max_workers={self._max_workers} "
            f"outstanding={self._outstanding()} {self._standing()}>"
        )

    def _repr_html_(self) -> str:
        from . import html

        title = f"{type(self).__name__}: {self._standing()}"
        try:
            return html.block(title, self.nodes()._repr_html_(), self.report()._repr_html_())
        except ClusterError as error:
            is_shut = self._standing() == "shut down"
            why = "Its cluster has ended." if is_shut else f"The cluster does not answer: {error}"
            return html.block(title, html.table([(why,)]))
