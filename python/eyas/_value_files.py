"""Files of shared values and of large arguments."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Iterable

from ._shared import store, store_content, store_parts

#: Bytes of files of arguments that stay when no call needs them: a later call may have the same argument.
_SPARE_BYTES = 1 << 30


class ValueFiles:
    """Files of one executor in a folder that nodes see. They are removed when it ends."""

    def __init__(self, folder: str) -> None:
        """Make the folder, and remove what executors of this host have left there whose process was killed."""
        self._folder = folder
        # Other executors have files in the folder, too.
        self._token = f"{os.uname().nodename}-{os.getpid()}-{os.urandom(4).hex()}"
        self._number = itertools.count()
        self.lock = threading.Lock()
        self._shared: list[str] = []
        #: The file of each content, by its digest, and the other way round.
        self._of: dict[bytes, str] = {}
        self._digests: dict[str, bytes] = {}
        #: How many calls need each file.
        self._uses: dict[str, int] = {}
        #: Sizes of files that no call needs, the one that was needed last at the end.
        self._spare: dict[str, int] = {}
        os.makedirs(folder, exist_ok=True)
        # Imported late, because few programs have such files.
        import re

        abandoned = re.compile(rf"(?:argument|value)-{re.escape(os.uname().nodename)}-(\d+)-")
        for name in os.listdir(folder):
            if (found := abandoned.match(name)) and not os.path.exists(f"/proc/{found[1]}"):
                _unlink(os.path.join(folder, name))

    def _path(self, kind: str) -> str:
        # No name is used twice: nodes take a file for what it was before.
        return os.path.join(self._folder, f"{kind}-{self._token}-{next(self._number)}")

    def share(self, value: object) -> str:
        """Write a value to a file that stays, and return its path."""
        path = self._path("value")
        store(value, path)
        self._shared.append(path)
        return path

    def keep(self, content: memoryview) -> str:
        """Return the path of a file with this content, for one more call."""
        # Imported late, because few calls need it.
        import hashlib

        digest = hashlib.blake2b(content, digest_size=16).digest()
        return self._keep(digest, lambda path: store_content(content, path))

    def keep_parts(self, parts: list[memoryview]) -> str:
        """Write a pickled value to a file, for one call, and return its path."""
        return self._keep(os.urandom(16), lambda path: store_parts(parts, path))

    def _keep(self, digest: bytes, write: Callable[[str], None]) -> str:
        with self.lock:
            path = self._of.get(digest)
            if path is None:
                path = self._path("argument")
                write(path)
                self._of[digest], self._digests[path] = path, digest
            self._spare.pop(path, None)
            self._uses[path] = self._uses.get(path, 0) + 1
        return path

    def release(self, paths: Iterable[str]) -> None:
        """A call no longer needs files."""
        with self.lock:
            for path in paths:
                self._uses[path] -= 1
                if self._uses[path] == 0:
                    del self._uses[path]
                    with contextlib.suppress(OSError):
                        self._spare[path] = os.path.getsize(path)
            excess = sum(self._spare.values()) - _SPARE_BYTES
            while excess > 0:
                path = next(iter(self._spare))
                excess -= self._spare.pop(path)
                del self._of[self._digests.pop(path)]
                _unlink(path)

    def remove(self) -> None:
        """Remove all files."""
        for path in [*self._shared, *self._digests]:
            _unlink(path)


def _unlink(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
