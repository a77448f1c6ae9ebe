"""The native part of the package."""

import builtins
from os import PathLike
from typing import Any, Literal, final

from typing_extensions import Buffer

class ClusterError(RuntimeError):
    """The cluster cannot be reached, or refuses a request."""

@final
class CallOutcome:
    """How a call has ended."""

    #: It has returned a value; a command has succeeded.
    RETURNED: CallOutcome
    #: It has raised an exception.
    RAISED: CallOutcome
    #: It has ended in another way.
    FAILED: CallOutcome
    CANCELLED: CallOutcome

@final
class EndedCall:
    """The end of a call or command. Each look at one of its bytes makes a copy."""

    @property
    def task(self) -> int:
        """Number of the task."""

    @property
    def outcome(self) -> CallOutcome:
        """How it has ended."""

    @property
    def answer(self) -> bytes:
        """The pickled value or exception of a call, or what a command has printed."""

    @property
    def printed(self) -> bytes:
        """What a call has printed."""

    @property
    def errors(self) -> bytes:
        """The standard error."""

    @property
    def executor(self) -> str:
        """Name of the executor; empty if the task was at none."""

    @property
    def reason(self) -> str:
        """Why it has failed."""

    @property
    def kept(self) -> list[int]:
        """Numbers of the outputs that the cluster keeps."""

    @property
    def cut_bytes(self) -> int:
        """Bytes of output that were dropped, because there is a bound."""

@final
class CallSession:
    """A job that is attached to a connection. Calls are added to it, and their results come in any
    order.
    """

    @property
    def job(self) -> int:
        """Id of the job."""

    @property
    def is_over(self) -> bool:
        """Whether the connection was ended here."""

    def __new__(
        cls,
        name: str,
        *,
        cluster: str | None = None,
        access: str | PathLike[str] | None = None,
        results: str | PathLike[str] | None = None,
    ) -> CallSession:
        """Connect to a cluster, and attach a job.

        Results are downloaded into a folder inside of ``results``, by default the folder for
        temporary files.
        """

    def add_template(
        self,
        words: list[str],
        *,
        is_command: bool,
        environment: list[tuple[str, str]],
        inputs: list[int],
        outputs: list[tuple[str, str | None, str]],
        cpus_milli: int,
        memory_bytes: int,
        gpus: int,
        timeout_us: int | None,
        retries: int,
        priority: int,
        requirements: str | None,
        capture_bytes: int,
        folder: str | PathLike[str] | None = ...,
        reads: list[str] = ...,
        folders: list[str] = ...,
    ) -> int:
        """Add a kind of tasks, and return its number.

        ``words`` start a worker that is called, or are a command with placeholders for columns.
        Each output is a pattern and a destination, both with placeholders. ``inputs`` are numbers
        of files that are on the node before; their paths there follow the words. Commands run in
        folders of their own, or in ``folder``.
        """

    def look_up(self, names: list[bytes]) -> list[int]:
        """Look up paths and URLs of inputs, and return their numbers."""

    def near_result(self, task: int) -> bytearray | None:
        """Return the content of the file of a large result, if a store on this machine has it."""

    def submit(
        self,
        template: int,
        columns: list[tuple[bytes, bool]],
        inputs: list[tuple[int, int | None]],
        *,
        copies: bool = ...,
    ) -> int:
        """Add a task, and return its number.

        A column is its text, and whether it is the path of an input: of the next one of ``inputs``.
        Further inputs have no column. An input is the number of one that was looked up, or a task
        and the number of its output. With ``copies``, the task gets copies of its own, which it may
        write.
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

    def results(self, timeout_s: float) -> list[EndedCall] | None:
        """Wait for results; ``None`` if no more can come."""

    def disconnect(self) -> None:
        """End the connection. Calls that have not ended are cancelled."""

def access_path(*, cluster: str | None = None, access: str | PathLike[str] | None = None) -> str:
    """Return the path of the access file of a cluster."""

def check_destination(destination: bytes) -> None:
    """Raise a ``ValueError`` if no task can write to a destination, a path or a URL."""

def trusted_folder(path: str | PathLike[str], *, is_own: bool = False) -> None:
    """Check a folder in which files are read by name, and make it if it is missing.

    Raises an ``OSError`` if another user could replace a file of this user in it. With ``is_own``,
    only this user may write to it.
    """

def change_file_names(
    entries: list[tuple[bytes, list[bytes], int | None, str | None]],
    *,
    removes: bool = False,
    cluster: str | None = None,
    access: str | PathLike[str] | None = None,
) -> int:
    """Register places of files under names, or remove places. An entry is a name, places, and the
    size and the SHA-256 of the content.
    """

def file_names(
    pattern: bytes | None = None,
    *,
    cluster: str | None = None,
    access: str | PathLike[str] | None = None,
) -> Any:
    """Return the files whose names match a pattern, as ``eyas catalog query --json`` does."""

def push(
    files: list[bytes],
    to: list[str],
    *,
    cluster: str | None = None,
    access: str | PathLike[str] | None = None,
) -> Any:
    """Copy files to nodes, wait for that, and return what each node got.

    The answer has the fields of the JSON of ``eyas push``.
    """

@final
class FileEntry:
    """A file, folder or link."""

    @property
    def name(self) -> str:
        """Path of it."""

    @property
    def kind(self) -> Literal["file", "directory", "link"]: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def modified_ns(self) -> int:
        """Time of the last write, nanoseconds since 1970."""

    @property
    def changed_ns(self) -> int:
        """Time of the last change of the content or an attribute, nanoseconds since 1970."""

    @property
    def mode(self) -> int:
        """Permission bits."""

    @property
    def uid(self) -> int: ...
    @property
    def gid(self) -> int: ...
    @property
    def target(self) -> str | None:
        """Target of a link."""

    @property
    def id(self) -> str: ...
    @property
    def attributes(self) -> dict[str, bytes] | None:
        """Named attributes of an entry that was looked up; ``None`` if it was listed."""

@final
class FileChunk:
    """A chunk of a file."""

    @property
    def size_bytes(self) -> int: ...
    @property
    def checksum(self) -> int: ...
    @property
    def nodes(self) -> list[str]:
        """The nodes that have it."""

@final
class FilesSession:
    """A connection to the files of a cluster. Paths begin with ``/``. Failures are of the classes
    of ``OSError``.
    """

    @property
    def process(self) -> int:
        """Process that has connected. In others, every method fails."""

    def __new__(
        cls, *, cluster: str | None = None, access: str | PathLike[str] | None = None
    ) -> FilesSession:
        """Connect to the files of a cluster; in a call, without arguments, to those of the cluster
        that runs it.
        """

    def stat(self, path: str) -> FileEntry:
        """Look up a file, folder or link."""

    def list(self, path: str, *, recursive: bool = False) -> builtins.list[FileEntry]:
        """List a folder, or everything below it. A folder that does not exist is empty."""

    def chunks(self, path: str) -> builtins.list[FileChunk]:
        """Return the chunks of a file."""

    def places(
        self, path: str
    ) -> builtins.list[tuple[int, int, int, builtins.list[tuple[str, str | None]]]]:
        """Return offset, size, and number of the block of each chunk of a file, and its nodes with
        their hosts.
        """

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

    def set_attribute(self, path: str, name: str, value: bytes) -> None:
        """Set a named attribute of a file, folder or link."""

    def remove_attribute(self, path: str, name: str) -> None:
        """Remove a named attribute of a file, folder or link."""

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
        """Begin a file, which appears, or replaces the file that has the name, when it is
        published.
        """

    def append(self, path: str) -> WrittenFile:
        """Begin to append to a file. All of it appears when it is published."""

    def edit(self, path: str) -> WrittenFile:
        """Begin to change a file at any offset. All changes appear when they are published."""

@final
class FilesRunStatus:
    """How far a run is."""

    @property
    def missing_chunks(self) -> int:
        """Number of chunks that are not committed."""

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs."""

@final
class FilesMemory:
    """Memory of the nodes in which chunks of files stay from run to run."""

    @staticmethod
    def open(session: FilesSession, limit_bytes: int) -> FilesMemory:
        """Open an account for up to this many bytes on each node."""

    @property
    def number(self) -> int:
        """Number of the account, for workers."""

    def usage(self) -> tuple[int, int, str | None]:
        """Return the chunks and bytes in it on all nodes, and why some are not in it."""

    def release(self) -> None:
        """Release the memory. Again, it does nothing."""

@final
class FilesPiece:
    """A part of a file, of whole records."""

    @property
    def file(self) -> str: ...
    @property
    def offset(self) -> int:
        """Place of it in the file, bytes."""

    @property
    def content(self) -> bytes: ...

@final
class FilesRun:
    """A run over the blocks of files."""

    @staticmethod
    def open(session: FilesSession, patterns: list[str], workers: int) -> FilesRun:
        """Open a run over the files that match patterns, for about this number of workers."""

    @staticmethod
    def join(session: FilesSession, address: str, memory: int | None) -> FilesRun:
        """Join a run that another process has opened. The chunks that the session reads from now on
        stay in the memory with this number.
        """

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

    def wait(self, timeout_s: float) -> FilesRunStatus:
        """Wait until all chunks are committed."""

    def begin(self) -> FilesBlock:
        """Begin a block, which has no piece at first."""

    def close(self) -> None:
        """End the run, and remove its outputs."""

@final
class FilesBlock:
    """A block of a run: the pieces that one worker processes and commits together."""

    @property
    def is_taken(self) -> bool:
        """Whether other workers have processed the block: discard its results."""

    def next(self) -> FilesPiece | None:
        """Return the next piece. ``None`` if the block has no more, or if it was taken."""

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
        """Fill a buffer, and return the number of bytes: less than its size only at the end of the
        file.
        """

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
        """Fill a buffer with the bytes from an offset of a file that is edited, and return their
        number.
        """

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
) -> Any:
    """Ask a cluster for its ``executors`` or ``pools``, a ``job``, the ``report`` of a job, or to
    ``explain`` a task.

    The answer has the fields of the JSON of the command that shows the same.
    """

def main(words: list[str], program: str) -> int:
    """Run the ``eyas`` command, and return its exit code."""
