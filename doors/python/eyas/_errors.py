"""Exceptions."""

from concurrent.futures import BrokenExecutor

from ._eyas import ClusterError
from ._worker.public import public

__all__ = ["CallFailed", "ClusterError", "ClusterLost"]


@public
class CallFailed(RuntimeError):
    """A call has ended without a result and without an exception: its worker was killed or has
    ended.

    The executor lives, and runs other calls.
    """


@public
class ClusterLost(BrokenExecutor):
    """The connection to the cluster has ended, or its workers cannot be initialised. The executor
    is of no more use.
    """
