"""A plugin of pytest for Dask's own tests: what names no scheduler runs on an executor."""

import dask
import eyas
import eyas.dask
import pytest


@pytest.fixture(autouse=True, scope="session")
def eyas_scheduler():
    with eyas.local(max_workers=2) as executor:
        with dask.config.set({"scheduler": eyas.dask.get, "eyas.executor": executor}):
            yield
