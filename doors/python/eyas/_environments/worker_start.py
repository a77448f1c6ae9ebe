"""How workers are started, in the environment of this process or in one that goes along."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from .._files.values import NO_FOLDER
from .._worker.worker import SETTINGS_VARIABLE, THREADS_VARIABLES

if TYPE_CHECKING:
    from .._files.folders import Folder
    from .packing import Environment

#: How messages of `start.sh` begin.
_FAILURE = b"eyas: environment: "


def failure_in(printed: bytes) -> str | None:
    """Return why a worker could not be started in its environment, if it has said so."""
    found = next((line for line in printed.splitlines() if line.startswith(_FAILURE)), None)
    return None if found is None else found.removeprefix(_FAILURE).decode(errors="replace")


class Start(NamedTuple):
    """How a worker is started, or a command."""

    words: list[str]
    variables: dict[str, str]
    #: Files that are on the node before; their paths follow the words.
    inputs: list[bytes]


class Starts:
    """How the workers of an executor are started in each environment."""

    def __init__(
        self,
        settings: dict[str, Any],
        variables: dict[str, str],
        words: tuple[str, ...],
        nodes_folder: Folder | None,
        *,
        is_local: bool,
    ) -> None:
        """Take settings and variables of workers, and the words after this process's interpreter
        that start one.
        """
        # Absolute: the current folder of a worker is another one, and comes first only if it does
        # here.
        path = [os.path.abspath(folder) for folder in sys.path if isinstance(folder, str)]
        self._settings = {**settings, "path": path}
        # What the program says about threads holds for its calls, too.
        told = {name: os.environ[name] for name in THREADS_VARIABLES if name in os.environ}
        self._variables = {**variables, **told}
        self._words = words
        self._nodes_folder = nodes_folder
        self._is_local = is_local
        self._known: dict[str, Environment] = {}

    def of(self, environment: str | os.PathLike[str] | None, threads: int) -> Start:
        """Return how a worker with some threads is started, in this environment or in the one of
        this process.
        """
        own = {**self._settings, "threads": threads}
        if environment is None:
            return Start([sys.executable, *self._words], self._variables_with(own), [])
        if self._nodes_folder is None and not self._is_local:
            raise ValueError(f"there is no folder for environments: {NO_FOLDER}")
        path = os.path.abspath(environment)
        if path not in self._known:
            # Imported late, because it imports much.
            from . import packing

            self._known[path] = packing.prepare(path, self._nodes_folder)
        packed = self._known[path]
        words, client = (
            packed.words(self._settings["folder"]),
            {**self._settings["client"], "environment": path},
        )
        settings = {**own, "client": client, "path": _own_modules(self._settings["path"])}
        return Start(words, self._variables_with(settings), [os.fsencode(packed.archive)])

    def _variables_with(self, settings: dict[str, Any]) -> dict[str, str]:
        return {**self._variables, SETTINGS_VARIABLE: json.dumps(settings)}


def _own_modules(path: list[str]) -> list[str | None]:
    """Return the folders with modules of the program's own; ``None`` is the place of those of its
    interpreter.
    """
    prefixes = tuple(
        {
            os.path.realpath(prefix) + os.sep
            for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix)
        }
    )
    own: list[str | None] = []
    for folder in path:
        if not (os.path.realpath(folder) + os.sep).startswith(prefixes):
            own.append(folder)
        elif None not in own:
            own.append(None)
    return own
