"""Packages that only some programs need."""

from __future__ import annotations

from types import TracebackType


class Needs:
    """A block that imports a package, which may not be installed: an error says what needs it, and
    how to install it.

    >>> with Needs("dask", "eyas.dask", "eyas[dask]"):
    ...     import dask
    """

    def __init__(self, package: str, by: str, install: str | None = None) -> None:
        """Name the package, what needs it, and what pip is to install, by default the package."""
        self._package, self._by, self._install = package, by, install or package

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A package that is there may lack one of its own.
        if (
            isinstance(error, ModuleNotFoundError)
            and (error.name or "").partition(".")[0] == self._package
        ):
            raise ModuleNotFoundError(
                f"{self._by} needs the package {self._package}, which is not installed: pip "
                f"install '{self._install}'",
                name=error.name,
            ) from error
