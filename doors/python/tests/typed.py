"""A program whose types are checked, and which is not run."""

from collections.abc import Iterator
from concurrent import futures
from typing import assert_type

import eyas


def length(text: str, *, factor: int = 1) -> int:
    """Return a length."""
    return len(text) * factor


def main() -> None:
    """Use the package."""
    with eyas.local(nodes=2, max_workers=2) as executor:
        assert_type(executor, eyas.Executor)
        assert_type(executor.submit(length, "text", factor=2), eyas.Future[int])
        assert_type(executor.submit(length, "text").result(), int)
        assert_type(executor.map(length, ["a", "b"], chunksize=2), Iterator[int])
        assert_type(executor.map(length, ["a", "b"], factor=2), Iterator[int])
        executor.with_options(memory="2GB")
        executor.catalog.register_all([{"name": "a", "places": ["/a"], "size_bytes": 1}])
        assert_type(executor.catalog, eyas.Catalog)
        anywhere: futures.Executor = executor
        anywhere.shutdown(cancel_futures=True)
    eyas.connect("cluster", retries=2, timeout=1.5, variables=["HOME"])
