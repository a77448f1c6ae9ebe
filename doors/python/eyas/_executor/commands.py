"""Commands with files."""

from __future__ import annotations

import dataclasses
import os
import reprlib
import shlex
import string
from collections.abc import Sequence

from .._eyas import check_destination
from .._views import html
from .._worker.arguments import File, Output
from .._worker.public import public
from .futures import Future, KeptFile

__all__ = ["Completed", "Words"]

#: Bytes of what a command has printed, in a notebook and in ``repr``.
_SHOWN = 500


@public
@dataclasses.dataclass(frozen=True)
class Completed:
    """The end of a command that succeeded."""

    #: The words of the command, as they were submitted.
    args: str | Sequence[str]
    #: What it has printed, in bytes.
    stdout: bytes
    stderr: bytes

    @property
    def returncode(self) -> int:
        """Exit code of the command, as :class:`subprocess.CompletedProcess` has it."""
        return 0

    def __repr__(self) -> str:
        """Return the command, and the first of what it has printed."""
        shown = reprlib.Repr()
        shown.maxother = shown.maxstring = _SHOWN
        return (
            f"Completed({self.args!r}, stdout={shown.repr(self.stdout)}, "
            f"stderr={shown.repr(self.stderr)})"
        )

    def _repr_html_(self) -> str:
        outputs = [("stdout", self.stdout), ("stderr", self.stderr)]
        rows = [
            (name, text[:_SHOWN].decode(errors="replace"), f"{len(text):,} bytes")
            for name, text in outputs
        ]
        words = self.args if isinstance(self.args, str) else shlex.join(self.args)
        return html.block(f"Completed: {words}", html.table(rows))


class Words:
    """A command with placeholders in braces, such as ``sort {table} -o {sorted}``, for the keywords
    of a call.
    """

    def __init__(
        self, command: str | Sequence[str], values: dict[str, object], *, has_own_words: bool = True
    ) -> None:
        """Find the placeholders. A text is split into words as a shell does.

        Without ``has_own_words``, all text is in columns, so that other commands may be of the same
        kind.
        """
        words = shlex.split(command) if isinstance(command, str) else list(command)
        if not words:
            raise ValueError("the command has no words: name a program")
        #: Words with numbers of columns in braces.
        self.words: list[str] = []
        #: The columns: the text, and whether it names an input.
        self.columns: list[tuple[bytes, bool]] = []
        #: The inputs, in the order of their columns.
        self.inputs: list[bytes | KeptFile] = []
        #: Patterns and destinations of the outputs, with numbers of columns in braces, and when
        #: they appear.
        self.outputs: list[tuple[str, str | None, str]] = []
        #: Keywords of outputs that stay in the cluster, with the numbers and names of the files.
        self.kept: dict[str | int, tuple[int, str]] = {}
        self._numbers: dict[str, int] = {}
        self._values = values
        for word in words:
            parts: list[str] = []
            for literal, name, spec, conversion in string.Formatter().parse(word):
                # Braces have a meaning for eyas, too, so text with braces is a column.
                is_column = (
                    "{" in literal or "}" in literal or (literal != "" and not has_own_words)
                )
                parts.append(f"{{{self._column(literal)}}}" if is_column else literal)
                if name is None:
                    continue
                if spec or conversion or name not in values:
                    raise ValueError(f"the command has {{{name}}}, and there is no such keyword")
                parts.append(f"{{{self._number(name)}}}")
            self.words.append("".join(parts))
        if unused := values.keys() - self._numbers.keys():
            raise ValueError(f"the command has no {{{min(unused)}}}")

    def _column(self, text: str, is_input: bool = False) -> int:
        self.columns.append((text.encode(errors="surrogateescape"), is_input))
        return len(self.columns)

    def _number(self, name: str) -> int:
        """Return the column of a keyword."""
        if name not in self._numbers:
            value = self._values[name]
            if isinstance(value, Future):
                raise TypeError(
                    f"{name} is a future: pass its result, or a file of it, future.output()"
                )
            if isinstance(value, File):
                self.inputs.append(value.source.encode(errors="surrogateescape"))
                number = self._column(value.source, True)
            elif isinstance(value, KeptFile):
                self.inputs.append(value)
                number = self._column(value.name, True)
            elif isinstance(value, Output) and (destination := value.destination) is not None:
                check_destination(os.fsencode(destination))
                # A name of the command's own folder.
                number = self._column(f"{name}-{destination.rpartition('/')[2]}")
                place = f"{{{self._column(destination)}}}"
                self.outputs.append((f"{{{number}}}", place, value.when))
            elif isinstance(value, Output):
                self.kept[name] = len(self.outputs), name
                number = self._column(name)
                self.outputs.append((f"{{{number}}}", None, value.when))
            else:
                number = self._column(str(value))
            self._numbers[name] = number
        return self._numbers[name]
