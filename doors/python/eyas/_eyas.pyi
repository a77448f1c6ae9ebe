"""The native part of the package."""

import builtins
from os import PathLike
from typing import Literal, final

from typing_extensions import Buffer

class ClusterError(RuntimeError):
    """The cluster cannot be reached, or refuses a request."""

@final
class CallSession:
    """A job that is attached to a connection. Calls are added to it, and their results come in any order."""

    @property
    def job(self) -> int:
        """Id of the job."""

    @property
    def is_over(self) -> bool:
        """Whether the connection was ended here."""

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
        reads: list[str] = ...,
        folders: list[str] = ...,
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

    def fetch(self, task: int, file: bytes, folder: str | PathLike[str]) -> None:
        """Download a file that a call keeps in the cluster into a folder."""

    def fetch_result(self, task: int, file: bytes) -> str:
        """Download the result of a call, and return its path. The caller removes it."""

    def close(self) -> None:
        """Add no more calls."""

    def results(self, timeout_s: float) -> list[tuple[int, int, tuple[bytes, bytes, bytes], str, str, list[int]]] | None:
        """Wait for results; ``None`` if no more can come.

        A result is the number of its call, how the call has ended (0: returned, 1: raised, 2: failed, 3: cancelled),
        its answer, what it has printed and its standard error, the name of its executor, the reason of a failure, and
        the numbers of the outputs that the cluster keeps. The answer of a command is what it has printed.
        """

    def disconnect(self) -> None:
        """End the connection. Calls that have not ended are cancelled."""

def access_path(*, cluster: str | None = None, access: str | PathLike[str] | None = None) -> str:
    """Return the path of the access file of a cluster."""

def trusted_folder(path: str | PathLike[str], *, is_own: bool = False) -> None:
    """Check a folder in which files are read by name, and make it if it is missing.

    Raises an ``OSError`` if another user could replace a file of this user in it. With ``is_own``, only this user may
    write to it.
    """

def push(
    files: list[bytes],
    to: list[str],
    *,
    cluster: str | None = None,
    access: str | PathLike[str] | None = None,
) -> str:
    """Copy files to nodes, wait for that, and return what each node got, as JSON."""

#: Name, kind (``file``, ``directory`` or ``link``), size, time of the last write and of the last change (nanoseconds
#: since 1970), permission bits, user, group, target of a link, and id.
_Entry = tuple[str, str, int, int, int, int, int, int, str | None, str]

@final
class FilesSession:
    """A connection to the files of a cluster. Paths begin with ``/``. Failures are of the classes of ``OSError``."""

    @property
    def process(self) -> int:
        """Process that has connected. In others, every method fails."""

    def __new__(cls, *, cluster: str | None = None, access: str | PathLike[str] | None = None) -> FilesSession:
        """Connect to the files of a cluster; in a call, without arguments, to those of the cluster that runs it."""

    def stat(self, path: str) -> _Entry:
        """Look up a file, folder or link."""

    def list(self, path: str, *, recursive: bool = False) -> builtins.list[_Entry]:
        """List a folder, or everything below it. A folder that does not exist is empty."""

    def chunks(self, path: str) -> builtins.list[tuple[int, int, builtins.list[str]]]:
        """Return the size, the checksum, and the nodes of each chunk of a file."""

    def places(self, path: str) -> builtins.list[tuple[int, int, int, builtins.list[tuple[str, str | None]]]]:
        """Return offset, size, and number of the block of each chunk of a file, and its nodes with their hosts."""

    def make_folder(self, path: str) -> None:
        """Make a folder, and those above it that are missing."""

    def remove(self, path: str) -> None:
        """Remove a file or link."""

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""

    def remove_tree(self, path: str) -> None:
        """Remove a folder with everything in it."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file, link or folder. A file replaces a file."""

    def copy(self, source: str, copy: str) -> None:
        """Copy a file to a name that is free. The nodes copy the chunks that they have."""

    def set_modified(self, path: str, modified_ns: int) -> None:
        """Set the time of the last write, nanoseconds since 1970."""

    def open(self, path: str) -> OpenedFile:
        """Open a file for reading, at its present version."""

    def create(
        self,
        path: str,
        *,
        exclusive: bool = False,
        format: str | None = None,
        chunk_bytes: int | None = None,
        replicas: int | None = None,
    ) -> WrittenFile:
        """Begin a file, which appears, or replaces the file that has the name, when it is published."""

    def append(self, path: str) -> WrittenFile:
        """Begin to append to a file. All of it appears when it is published."""

    def edit(self, path: str) -> WrittenFile:
        """Begin to change a file at any offset. All changes appear when they are published."""

@final
class FilesRun:
    """A run over the blocks of files."""

    @staticmethod
    def open(session: FilesSession, patterns: list[str], workers: int) -> FilesRun:
        """Open a run over the files that match patterns, for about this number of workers."""

    @staticmethod
    def join(session: FilesSession, address: str) -> FilesRun:
        """Join a run that another process has opened."""

    @property
    def files(self) -> list[str]:
        """The files, in the order of the run; empty in a worker."""

    @property
    def address(self) -> str:
        """The address, by which other processes join."""

    @property
    def folder(self) -> str:
        """The folder of its outputs."""

    @property
    def chunks(self) -> int:
        """Number of chunks of all files."""

    def wait(self, timeout_s: float) -> tuple[int, list[str]]:
        """Wait until all chunks are committed, and return the number of those that are not, and the outputs."""

    def begin(self) -> FilesBlock:
        """Begin a block, which has no piece at first."""

    def close(self) -> None:
        """End the run, and remove its outputs."""

@final
class FilesBlock:
    """A block of a run: the pieces that one worker processes and commits together."""

    def next(self) -> tuple[str, int, bytes] | Literal[False] | None:
        """Return the next piece: its file, its place there, and its content.

        ``None`` if the block has no more; ``False`` if other workers have processed it: discard its results.
        """

    def commit(self, output: bytes) -> bool:
        """Commit the output of all pieces of the block. Returns whether it counts."""

    def leave(self) -> None:
        """Give the pieces that are not committed to other workers."""

@final
class OpenedFile:
    """A file that is open for reading."""

    @property
    def size(self) -> int:
        """Size of the file in bytes."""

    def read_at(self, offset: int, length: int) -> bytes:
        """Read up to ``length`` bytes."""

    def data(self) -> list[tuple[int, int]]:
        """Return the ranges that are not holes: the first byte and the end of each."""

    def read_into(self, offset: int, buffer: Buffer) -> int:
        """Fill a buffer, and return the number of bytes: less than its size only at the end of the file."""

@final
class WrittenFile:
    """A file that is being written. Nothing appears before it is published."""

    def write(self, buffer: Buffer) -> int:
        """Write bytes at the end."""

    def write_at(self, offset: int, buffer: Buffer) -> int:
        """Write bytes at an offset of a file that is edited."""

    def set_size(self, size: int) -> None:
        """Cut a file that is edited off at this size, or append zeros to it."""

    @property
    def size(self) -> int:
        """Size of a file that is edited, bytes."""

    def read_into(self, offset: int, buffer: Buffer) -> int:
        """Fill a buffer with the bytes from an offset of a file that is edited, and return their number."""

    def publish(self) -> None:
        """Make the file, or what is appended or changed, appear."""

    def discard(self) -> None:
        """Drop what was written."""

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
