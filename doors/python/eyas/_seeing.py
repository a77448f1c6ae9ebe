"""What executors and futures tell about themselves: to Python, to people, and to notebooks.

It imports what shows them when something is to be shown.
"""

from __future__ import annotations

import json
from concurrent import futures
from typing import TYPE_CHECKING, Any, TypeVar, cast

from . import _eyas
from ._errors import ClusterError

if TYPE_CHECKING:
    from ._progress import JobProgress
    from ._state import State
    from ._views import Explanation, Nodes, Report

__all__ = ["SeenExecutor", "SeenFuture"]

_T = TypeVar("_T")


class SeenFuture(futures.Future[_T]):
    """A future that knows its task and its node."""

    #: Number of the call in its executor's job.
    task: int | None = None
    #: Name of the node that has run the call.
    node: str | None = None
    #: The executor's state, once the call is sent.
    _of: State | None = None

    def explain(self) -> Explanation:
        """Return why the call waits for a node, or where it runs and why, as ``eyas explain --json`` does."""
        state = self._of
        if state is None:
            raise ValueError("the call waits for futures among its arguments, or could not be submitted")
        answer = _eyas.ask("explain", job=state.session.job, task=self.task, **state.address)
        from ._views import Explanation

        return Explanation(json.loads(answer))

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
        from . import _html

        rows = self._details()
        state = "cancelled" if self.cancelled() else "has ended" if self.done() else "has not ended"
        if self.done() and not self.cancelled():
            error = futures.Future.exception(self)
            rows.append(("returned", self._result_type()) if error is None else ("raised", repr(error)))
            rows += [("", note) for note in getattr(error, "__notes__", ())]
        return _html.block(f"Future: {state}", _html.table(rows))


class SeenExecutor(futures.Executor):
    """An executor that can be asked about its nodes and calls."""

    _cluster: dict[str, Any]
    _state: State
    _max_workers: int

    def nodes(self) -> Nodes:
        """Return the nodes of the cluster, as ``eyas executor list --json`` shows them."""
        from ._views import Nodes

        return Nodes(json.loads(_eyas.ask("executors", **self._cluster)))

    def report(self) -> Report:
        """Return what has become of the calls so far: counts, times, and where inputs came from."""
        from ._views import Report

        return Report(json.loads(_eyas.ask("report", job=self._state.session.job, **self._cluster)))

    def explain(self, future: SeenFuture[Any]) -> Explanation:
        """Return why a call waits, or where it runs and why: :meth:`Future.explain`."""
        return future.explain()

    def progress(self, *, label: str = "", show: bool | None = None) -> JobProgress:
        """Show the progress of the calls, on a terminal (standard error) or in a notebook, inside of a ``with``.

        With ``show=True``, lines are written where there is neither; with ``show=False``, nothing is shown.

        >>> with executor.progress():
        ...     results = list(executor.map(work, items))
        """
        from ._progress import JobProgress

        return JobProgress(self._job, label, show)

    def _job(self) -> dict[str, Any]:
        (job,) = json.loads(_eyas.ask("job", job=self._state.session.job, **self._cluster))
        return cast(dict[str, Any], job)

    def _standing(self) -> str:
        state = self._state
        return "broken" if state.broken is not None else "shut down" if state.is_shut else "open"

    def __repr__(self) -> str:
        """Return the job, how many calls run at a time, and how many are outstanding."""
        state = self._state
        return (
            f"<{type(self).__name__} job={state.session.job} max_workers={self._max_workers} "
            f"outstanding={len(state.pending)} {self._standing()}>"
        )

    def _repr_html_(self) -> str:
        from . import _html

        title = f"{type(self).__name__}: {self._standing()}"
        try:
            return _html.block(title, self.nodes()._repr_html_(), self.report()._repr_html_())
        except ClusterError as error:
            why = "Its cluster has ended." if self._state.is_shut else f"The cluster does not answer: {error}"
            return _html.block(title, _html.table([(why,)]))
