"""The native part of the package."""

from os import PathLike
from typing import final

class ClusterError(RuntimeError):
    """The cluster cannot be reached, or refuses a request."""

@final
class CallSession:
    """A job that is attached to a connection. Calls are added to it, and their results come in any order."""

    @property
    def job(self) -> int:
        """Id of the job."""

    def __new__(
        cls, name: str, *, cluster: str | None = None, access: str | PathLike[str] | None = None
    ) -> CallSession:
        """Connect to a cluster, and attach a job."""

    def add_template(
        self,
        words: list[str],
        *,
        is_command: bool,
        environment: list[tuple[str, str]],
        inputs: list[int],
        outputs: list[tuple[str, str | None]],
        cpus_milli: int,
        memory_bytes: int,
        gpus: int,
        timeout_us: int | None,
        retries: int,
        priority: int,
        requirements: str | None,
        capture_bytes: int,
    ) -> int:
        """Add a kind of tasks, and return its number.

        ``words`` start a worker that is called, or are a command with placeholders for columns. Each output is a
        pattern and a destination, both with placeholders. ``inputs`` are numbers of files that are on the node before;
        their paths there follow the words.
        """

    def look_up(self, names: list[bytes]) -> list[int]:
        """Look up paths and URLs of inputs, and return their numbers."""

    def submit(
        self, template: int, columns: list[tuple[bytes, bool]], inputs: list[tuple[int, int | None]]
    ) -> int:
        """Add a task, and return its number.

        A column is its text, and whether it is the path of an input: of the next one of ``inputs``. Further inputs have
        no column. An input is the number of one that was looked up, or a task and the number of its output.
        """

    def cancel(self, task: int) -> None:
        """Cancel a call."""

    def cancel_waiting(self) -> None:
        """Cancel the calls that no executor has."""

    def unneeded(self, task: int) -> None:
        """The outputs of a call are not needed any more, but by calls that were added."""

    def wake(self) -> None:
        """End the present or the next wait for results."""

    def close(self) -> None:
        """Add no more calls."""

    def results(self, timeout_s: float) -> list[tuple[int, int, bytes, bytes, str, str, list[int]]] | None:
        """Wait for results; ``None`` if no more can come.

        A result is the number of its call, how the call has ended (0: returned, 1: raised, 2: failed, 3: cancelled),
        its answer, what it has printed, the name of its executor, the reason of a failure, and the numbers of the
        outputs that the cluster keeps.
        """

    def disconnect(self) -> None:
        """End the connection. Calls that have not ended are cancelled."""

def fetch(
    job: int,
    task: int,
    file: bytes,
    folder: str | PathLike[str],
    *,
    cluster: str | None = None,
    access: str | PathLike[str] | None = None,
) -> None:
    """Download a file that a task keeps in the cluster into a folder."""

def push(
    files: list[bytes],
    to: list[str],
    *,
    cluster: str | None = None,
    access: str | PathLike[str] | None = None,
) -> str:
    """Copy files to nodes, wait for that, and return what each node got, as JSON."""

def ask(
    what: str,
    *,
    job: int | None = None,
    task: int | None = None,
    cluster: str | None = None,
    access: str | PathLike[str] | None = None,
) -> str:
    """Ask a cluster for its ``executors``, a ``job``, the ``report`` of a job, or to ``explain`` a task, as JSON."""

def main(words: list[str], program: str) -> int:
    """Run the ``eyas`` command, and return its exit code."""
