"""Files of an eyas cluster as inputs and outputs of Snakemake's rules:
``storage.eyas("eyas:///data/sky.csv")``.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_storage_plugins.common import Operation
from snakemake_interface_storage_plugins.io import (
    IOCacheStorageInterface,
    Mtime,
    get_constant_prefix,
)
from snakemake_interface_storage_plugins.settings import StorageProviderSettingsBase
from snakemake_interface_storage_plugins.storage_object import (
    StorageObjectGlob,
    StorageObjectRead,
    StorageObjectTouch,
    StorageObjectWrite,
)
from snakemake_interface_storage_plugins.storage_provider import (
    ExampleQuery,
    QueryType,
    StorageProviderBase,
    StorageQueryValidationResult,
)

__all__ = ["StorageObject", "StorageProvider", "StorageProviderSettings", "copies"]

_SCHEME = "eyas://"

#: Copies of files that this node has, by their queries.
copies: dict[str, str] = {}


@dataclass
class StorageProviderSettings(StorageProviderSettingsBase):
    """Options of ``--default-storage-provider eyas``."""

    cluster: Optional[str] = field(
        default=None,
        metadata={
            "help": "Name of the cluster that has the files. Without a name and an access file, it "
            "is the one that eyas commands use."
        },
    )
    access: Optional[str] = field(
        default=None, metadata={"help": "Access file of the cluster that has the files."}
    )


class StorageProvider(StorageProviderBase):
    """The files of a cluster."""

    def __post_init__(self) -> None:
        """Prepare the connection, which is made at the first use."""
        try:
            from eyas.fs import EyasFileSystem
        except ImportError as error:
            raise WorkflowError(
                f"Files of an eyas cluster need fsspec: pip install fsspec ({error})"
            ) from error
        settings = self.settings or StorageProviderSettings()
        access = None if settings.access is None else os.path.abspath(settings.access)
        self.files = EyasFileSystem(cluster=settings.cluster, access=access)

    @classmethod
    def example_queries(cls) -> list[ExampleQuery]:
        """Return examples of queries."""
        return [ExampleQuery("eyas:///data/sky.csv", "A file of the cluster.", QueryType.ANY)]

    def rate_limiter_key(self, query: str, operation: Operation) -> Any:
        """Return what requests share: nothing limits them."""
        return None

    def default_max_requests_per_second(self) -> float:
        """Return the rate of requests, which is not used."""
        return 1000.0

    def use_rate_limiter(self) -> bool:
        """Whether requests are limited."""
        return False

    @classmethod
    def is_valid_query(cls, query: str) -> StorageQueryValidationResult:
        """Whether a query is a path of the cluster. It may have wildcards."""
        path = query.removeprefix(_SCHEME)
        if query.startswith(_SCHEME) and path.startswith("/") and path.strip("/"):
            if {".", ".."} & set(path.split("/")):
                why = "a file of the cluster has no . and no .. in its path"
                return StorageQueryValidationResult(query, False, why)
            return StorageQueryValidationResult(query, True)
        return StorageQueryValidationResult(
            query, False, "a file of the cluster is eyas:///PATH, with three slashes"
        )

    def postprocess_query(self, query: str) -> str:
        """Return the query with one slash between names."""
        if not query.startswith(f"{_SCHEME}/"):
            return query
        return f"{_SCHEME}/" + "/".join(
            part for part in query.removeprefix(_SCHEME).split("/") if part
        )


class StorageObject(StorageObjectRead, StorageObjectWrite, StorageObjectGlob, StorageObjectTouch):
    """A file or folder of the cluster."""

    def __post_init__(self) -> None:
        """Find the path."""
        self.path = self.query.removeprefix(_SCHEME)
        self.files = self.provider.files

    def local_suffix(self) -> str:
        """Return the path below the folder of local copies."""
        suffix: str = self.path.lstrip("/")
        return suffix

    def get_inventory_parent(self) -> Optional[str]:
        """Return the folder that is listed at once."""
        return str(self.cache_key(os.path.dirname(self.local_suffix())))

    async def inventory(self, cache: IOCacheStorageInterface) -> None:
        """List the folder of the file, and keep what the list says about all files in it."""
        key = self.cache_key()
        if key in cache.exists_in_storage:
            return
        for entry in await asyncio.to_thread(self._siblings):
            if entry["type"] == "file":
                known = self.cache_key(entry["name"].lstrip("/"))
                cache.exists_in_storage[known] = True
                cache.mtime[known] = Mtime(storage=entry["mtime"])
                cache.size[known] = entry["size"]
        if key not in cache.exists_in_storage:
            cache.exists_in_storage[key] = self.exists()

    def _siblings(self) -> list[dict[str, Any]]:
        try:
            entries: list[dict[str, Any]] = self.files.ls(os.path.dirname(self.path))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return entries

    def cleanup(self) -> None:
        """Nothing stays."""

    def exists(self) -> bool:
        """Whether there is such a file or folder."""
        return bool(self.files.exists(self.path))

    def is_file(self) -> bool:
        """Whether it is a file."""
        return bool(self.files.isfile(self.path))

    def _below(self) -> dict[str, dict[str, Any]]:
        """Return the file, or the files in the folder."""
        below: dict[str, dict[str, Any]] = self.files.find(self.path, detail=True)
        return below

    def mtime(self) -> float:
        """Return the time of the last write; of a folder, in all of its files."""
        info = self.files.info(self.path)
        if info["type"] != "directory":
            return float(info["mtime"])
        return max(
            (float(entry["mtime"]) for entry in self._below().values()),
            default=float(info.get("mtime", 0)),
        )

    def size(self) -> int:
        """Return the size of a file; zero for a folder."""
        info = self.files.info(self.path)
        return 0 if info["type"] == "directory" else int(info["size"])

    def local_footprint(self) -> int:
        """Return the bytes that a local copy needs."""
        return sum(entry["size"] for entry in self._below().values())

    def retrieve_object(self) -> None:
        """Make a local copy: of the file that the node has, or from the nodes that have it."""
        local = self.local_path()
        local.parent.mkdir(parents=True, exist_ok=True)
        if (copy := copies.get(self.query)) is not None:
            _replace(copy, local)
        elif self.is_file():
            self.files.get_file(self.path, str(local))
        else:
            local.mkdir(exist_ok=True)
            for name in self._below():
                below = local / os.path.relpath(name, self.path)
                below.parent.mkdir(parents=True, exist_ok=True)
                self.files.get_file(name, str(below))

    def store_object(self) -> None:
        """Store the local file or folder. A file appears as a whole."""
        local = self.local_path()
        if not local.is_dir():
            self.files.put_file(str(local), self.path)
            return
        # The old folder stays until the new one is whole.
        mark = os.urandom(4).hex()
        new, old = f"{self.path}.new-{mark}", f"{self.path}.old-{mark}"
        try:
            self._store_below(local, new)
        except BaseException:
            with contextlib.suppress(OSError):
                self._remove(new)
            raise
        has_old = self.exists()
        if has_old:
            self.files.mv(self.path, old)
        try:
            self.files.mv(new, self.path)
        except BaseException:
            if has_old:
                with contextlib.suppress(OSError):
                    self.files.mv(old, self.path)
            raise
        if has_old:
            self._remove(old)

    def _store_below(self, local: Path, path: str, above: tuple[str, ...] = ()) -> None:
        """Store a local folder. Links are followed."""
        real = os.path.realpath(local)
        if real in above:
            raise WorkflowError(
                f"{local} leads back to {real}, in which it is: a folder with such a link has no "
                "end"
            )
        self.files.makedirs(path, exist_ok=True)
        for entry in sorted(local.iterdir()):
            if entry.is_dir():
                self._store_below(entry, f"{path}/{entry.name}", (*above, real))
            else:
                self.files.put_file(str(entry), f"{path}/{entry.name}")

    def _remove(self, path: str) -> None:
        # A name that is not there would be a pattern.
        if self.files.exists(path):
            self.files.rm(path, recursive=not self.files.isfile(path))

    def remove(self) -> None:
        """Remove the file or folder."""
        self._remove(self.path)

    def touch(self) -> None:
        """Set the time of the last write; of a folder, that of its files."""
        for name in self._below():
            self.files.touch(name, truncate=False)

    def list_candidate_matches(self) -> Iterable[str]:
        """Return all files that begin as the query does before its first wildcard."""
        prefix = get_constant_prefix(self.query, strip_incomplete_parts=True).removeprefix(_SCHEME)
        try:
            return [f"{_SCHEME}{name}" for name in self.files.find(prefix)]
        except FileNotFoundError:
            return []


def _replace(copy: str, local: Path) -> None:
    """Make a file of a copy: without its bytes, where the file system allows it."""
    local.unlink(missing_ok=True)
    try:
        os.link(copy, local)
    except OSError:
        shutil.copyfile(copy, local)
