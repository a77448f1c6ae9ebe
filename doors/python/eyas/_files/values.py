"""Files of shared values and of large arguments."""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import threading
from collections.abc import Iterable

from .._worker.shared import laid_out, parts_of
from .folders import Folder

#: Bytes of files of arguments that stay when no call needs them: a later call may have the same
#: argument.
_SPARE_BYTES = 1 << 30
#: What to do if there is no folder for them.
NO_FOLDER = (
    "name a folder that all nodes see, objects=FOLDER, or a folder in the files of the cluster, "
    "objects='eyas:///PATH'; on an engine, files=True is enough"
)


def _place() -> str:
    """Name the numbers of processes that this one sees: the host's since it was started, or a
    container's.
    """
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    return f"{os.uname().nodename}-{boot}-{os.stat('/proc/self/ns/pid').st_ino}"


class ValueFiles:
    """Files of one executor in a folder that nodes see. They are removed when it ends."""

    def __init__(self, folder: Folder) -> None:
        """Remove what executors of this host have left in the folder whose process was killed."""
        self._folder = folder
        # Other executors have files in the folder, too.
        place = _place()
        self._token = f"{place}-{os.getpid()}-{os.urandom(4).hex()}"
        self._number = itertools.count()
        # Of the same thread, too: a collection of garbage may cancel calls anywhere.
        self.lock = threading.RLock()
        #: The names of files, by their paths.
        self._names: dict[str, str] = {}
        #: The file of each content, by its digest, and the other way round.
        self._of: dict[bytes, str] = {}
        self._digests: dict[str, bytes] = {}
        self._sizes: dict[str, int] = {}
        #: Whether the cluster removes the files when it ends.
        self.end_with_cluster = folder.ends_with_cluster
        #: How many calls need each file.
        self._uses: dict[str, int] = {}
        #: Sizes of files that no call needs, the one that was needed last at the end.
        self._spare: dict[str, int] = {}
        # Imported late, because few programs have such files.
        import re

        abandoned = re.compile(rf"(?:argument|value)-{re.escape(place)}-(\d+)-")
        for name in folder.names():
            if (found := abandoned.match(name)) and not os.path.exists(f"/proc/{found[1]}"):
                # It may be another user's.
                with contextlib.suppress(OSError):
                    folder.remove(name)

    def _write(self, kind: str, pieces: Iterable[bytes | memoryview]) -> str:
        # No name is used twice: nodes take a file for what it was before.
        name = f"{kind}-{self._token}-{next(self._number)}"
        path = self._folder.write(name, pieces)
        self._names[path] = name
        return path

    def has(self, path: str) -> bool:
        """Whether it has written the file with this path."""
        return path in self._names

    def share(self, value: object) -> str:
        """Write a value to a file that stays, and return its path."""
        return self._write("value", laid_out(parts_of(value)))

    def keep(self, content: memoryview) -> str:
        """Return the path of a file with this content, for one more call."""
        # Imported late, because few calls need it.
        import hashlib

        digest = hashlib.blake2b(content, digest_size=16).digest()
        return self._keep(digest, content.nbytes, [content])

    def keep_parts(self, parts: list[memoryview]) -> str:
        """Write a pickled value to a file, for one call, and return its path."""
        return self._keep(os.urandom(16), sum(part.nbytes for part in parts), laid_out(parts))

    def keep_value(self, parts: list[memoryview]) -> str:
        """Return the path of a file with this pickled value, for one more use."""
        import hashlib

        digest = hashlib.blake2b(digest_size=16)
        for part in parts:
            digest.update(part.nbytes.to_bytes(8, "little"))
            digest.update(part)
        return self._keep(digest.digest(), sum(part.nbytes for part in parts), laid_out(parts))

    def _keep(self, digest: bytes, size: int, pieces: Iterable[bytes | memoryview]) -> str:
        if (path := self._used(digest)) is not None:
            return path
        # Results are received meanwhile, which needs the lock.
        written = self._write("argument", pieces)
        with self.lock:
            path = self._used(digest)
            if path is None:
                self._of[digest], self._digests[written], self._sizes[written] = (
                    written,
                    digest,
                    size,
                )
                self._uses[written] = 1
                return written
            name = self._names.pop(written)
        # Another thread was faster.
        self._remove([name])
        return path

    def _used(self, digest: bytes) -> str | None:
        """Return the path of the file with some content, for one more call, if there is one."""
        with self.lock:
            path = self._of.get(digest)
            if path is not None:
                self._spare.pop(path, None)
                self._uses[path] = self._uses.get(path, 0) + 1
            return path

    def release(self, paths: Iterable[str]) -> None:
        """A call no longer needs files."""
        unneeded = []
        with self.lock:
            for path in paths:
                self._uses[path] -= 1
                if self._uses[path] == 0:
                    del self._uses[path]
                    self._spare[path] = self._sizes[path]
            excess = sum(self._spare.values()) - _SPARE_BYTES
            while excess > 0:
                path = next(iter(self._spare))
                excess -= self._spare.pop(path)
                del self._of[self._digests.pop(path)], self._sizes[path]
                unneeded.append(self._names.pop(path))
        self._remove(unneeded)

    def remove(self) -> None:
        """Remove all files."""
        self._remove(list(self._names.values()))

    def _remove(self, names: list[str]) -> None:
        """Remove files. If one cannot be removed, nor can the others: nodes may have gone away."""
        with contextlib.suppress(OSError):
            for name in names:
                self._folder.remove(name)
