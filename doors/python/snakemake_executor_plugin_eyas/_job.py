"""Runs a job of Snakemake in a child of a worker."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import tokenize
from dataclasses import dataclass
from typing import Any

#: Variables that name software, which the client and the nodes share.
_SOFTWARE = (
    "PATH",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "CONDA_EXE",
)
#: Modules that Snakemake imports when it runs a job. They cost more than all the rest of it.
_LATE = ("graphlib", "getpass", "smart_open", "snakemake.executors.local", "snakemake.storage")
#: Bytes of the end of a log in an exception.
_SHOWN_BYTES = 4096

# Of <sched.h> and <sys/mount.h>.
_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE, _MS_RELATIME = (
    1,
    32,
    4096,
    16384,
    1 << 18,
    1 << 21,
)


@dataclass
class Job:
    """A job, for the worker."""

    #: Arguments of Snakemake.
    words: list[str]
    #: A line for the shell that goes first.
    precommand: str
    #: Where the job runs; without, in a new folder that is removed afterwards.
    folder: str | None
    #: Where output of the job goes, if the node and the client share it.
    log: str | None
    variables: dict[str, str]
    #: Paths of inputs, and their copies on the node.
    inputs: list[tuple[str, Any]]
    #: Files of the cluster, and their copies on the node.
    stored: list[tuple[str, Any]]
    #: Whether files of storage providers go to a folder of this job.
    has_own_copies: bool


@dataclass
class Ended:
    """The end of a job that succeeded."""

    host: str
    #: Why it has read its inputs from shared storage, if it was to read copies.
    why_shared: str


class JobFailed(RuntimeError):
    """The job has failed."""


def software_variables() -> dict[str, str]:
    """Return the variables of this process that name software."""
    return {name: os.environ[name] for name in _SOFTWARE if name in os.environ}


def prepare() -> None:
    """Import and compile what jobs need, once in a worker."""
    import snakemake.cli

    # It also imports the plugins.
    snakemake.cli.get_argument_parser()
    for name in _LATE:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # The regular expression of all tokens, which Snakefiles are read with.
    list(tokenize.generate_tokens(iter(["rule\n"]).__next__))


def run(job: Job) -> Ended:
    """Run a job in this process, which is of no use afterwards."""
    os.environ.update(job.variables)
    with contextlib.ExitStack() as stack:
        if job.folder is None:
            os.chdir(stack.enter_context(_temporary_folder()))
            stack.callback(os.chdir, "/")
        else:
            os.chdir(job.folder)
        log = job.log or os.path.abspath(f".eyas-{os.getpid()}.log")
        os.makedirs(os.path.dirname(log), exist_ok=True)
        file = os.open(log, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
        for descriptor in (1, 2):
            os.dup2(file, descriptor)
        why_shared = _show_copies(job.inputs)
        words = job.words
        if job.has_own_copies:
            words = [*words, "--local-storage-prefix", stack.enter_context(_temporary_folder())]
        if job.stored:
            import snakemake_storage_plugin_eyas

            snakemake_storage_plugin_eyas.copies.update(
                (query, os.fspath(copy)) for query, copy in job.stored
            )
        code = _run(job.precommand, words)
        if code != 0:
            size = os.fstat(file).st_size
            text = (
                os.pread(file, _SHOWN_BYTES, max(0, size - _SHOWN_BYTES))
                .decode(errors="replace")
                .strip()
            )
            error = JobFailed(f"the job has ended with exit code {code}")
            error.add_note(f"It has printed:\n{text}")
            raise error
        if job.log is not None:
            # As other executors do: the log of a job that succeeded says nothing.
            os.unlink(log)
    return Ended(socket.gethostname(), why_shared)


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="eyas-snakemake-", ignore_cleanup_errors=True)


def _run(precommand: str, words: list[str]) -> int:
    """Return the exit code of Snakemake."""
    # The last command gets the sources of the workflow, for which no other Snakemake needs to
    # start.
    first, has_sources, rest = precommand.rpartition(
        f"{shlex.quote(sys.executable)} -m snakemake --deploy-sources "
    )
    if first := first.removesuffix(" && ") if has_sources else rest:
        code = subprocess.run(["/bin/sh", "-c", first], check=False).returncode
        if code != 0:
            return code
    if has_sources:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = _snakemake(["--deploy-sources", *shlex.split(rest)])
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code != 0:
            return code
    return _snakemake(words)


def _snakemake(words: list[str]) -> int:
    """Call Snakemake, and return its exit code."""
    import snakemake.cli

    sys.argv = ["snakemake", *words]
    try:
        snakemake.cli.main(words)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    return 0


def _show_copies(inputs: list[tuple[str, Any]]) -> str:
    """Have this process and its children see copies in place of inputs. Returns why they cannot."""
    if not inputs:
        return ""
    try:
        _enter_namespace()
        for path, copy in inputs:
            _mount(os.fspath(copy), path, _MS_BIND)
            _mount(None, path, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | _kept_flags(path))
    except OSError as error:
        return str(error)
    return ""


def _enter_namespace() -> None:
    """Have mounts of this process to itself."""
    user, group = os.getuid(), os.getgid()
    try:
        _call("unshare", _CLONE_NEWNS)
    except PermissionError:
        _call("unshare", _CLONE_NEWUSER | _CLONE_NEWNS)
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    _mount(None, "/", _MS_REC | _MS_PRIVATE)


def _mount(source: str | None, target: str, flags: int) -> None:
    _call(
        "mount",
        None if source is None else os.fsencode(source),
        os.fsencode(target),
        None,
        flags,
        None,
    )


def _kept_flags(path: str) -> int:
    """Return flags of a mount, which a user cannot clear."""
    flags = os.statvfs(path).f_flag
    same = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME
    return flags & same | (_MS_RELATIME if flags & os.ST_RELATIME else 0)


def _call(name: str, *arguments: Any) -> None:
    """Call a function of the C library."""
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    if name == "mount":
        function.argtypes = (
            ctypes.c_char_p,
            ctypes.c_char_p,
            ctypes.c_char_p,
            ctypes.c_ulong,
            ctypes.c_void_p,
        )
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
