"""Names of files that lie at several places: ``lfn://NAME``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, TypedDict

from .. import _eyas
from .._worker.public import public

# A place of a file. Annotations of public classes are evaluated, so this is not for checkers alone.
_Place = str | os.PathLike[str]


class _NamedPlaces(TypedDict):
    name: str
    places: Iterable[_Place]


class NamedFile(_NamedPlaces, total=False):
    """A file to be registered: its ``name``, its ``places``, and if they are known its
    ``size_bytes`` and ``sha256``.
    """

    size_bytes: int | None
    sha256: str | None


public(NamedFile)


@public
class Catalog:
    """The names of a cluster's files (``eyas catalog``). A name stands for one content at several
    places, and calls read it from the place that is the fastest for their node:
    ``eyas.File("lfn://NAME")``.

    Places are paths, ``file``, ``http``, ``https`` and ``s3`` URLs, or ``NODE:/PATH`` for a file on
    the own disk of a node.
    """

    def __init__(self, cluster: dict[str, Any]) -> None:
        self._cluster = cluster

    def register(
        self, name: str, *places: _Place, size_bytes: int | None = None, sha256: str | None = None
    ) -> None:
        """Register places of a file under a name. Nodes refuse content with another size or
        SHA-256. Registering a name again adds places.
        """
        entry: NamedFile = {"name": name, "places": places}
        self.register_all([{**entry, "size_bytes": size_bytes, "sha256": sha256}])

    def register_all(self, files: Iterable[NamedFile]) -> int:
        """Register places of many files: of all, or of none if one is refused. Returns the number
        of files.
        """
        entries = [
            (
                os.fsencode(file["name"]),
                [os.fsencode(place) for place in file["places"]],
                file.get("size_bytes"),
                file.get("sha256"),
            )
            for file in files
        ]
        return _eyas.change_file_names(entries, **self._cluster)

    def unregister(self, name: str, *places: _Place) -> None:
        """Remove places of a name; without a place, remove the name."""
        entry = (os.fsencode(name), [os.fsencode(place) for place in places], None, None)
        _eyas.change_file_names([entry], removes=True, **self._cluster)

    def query(self, pattern: str | None = None) -> list[dict[str, Any]]:
        """Return the files whose names match a pattern such as ``survey/*.fits``, and their places,
        as ``eyas catalog query --json`` does; all of them without a pattern.
        """
        encoded = None if pattern is None else os.fsencode(pattern)
        files: list[dict[str, Any]] = _eyas.file_names(encoded, **self._cluster)
        return files
