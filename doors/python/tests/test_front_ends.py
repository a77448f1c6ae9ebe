"""Front ends of other projects, on an executor."""

import os

import eyas
import pytest
from programs import script

joblib = pytest.importorskip("joblib")


@pytest.fixture(scope="module")
def executor():
    with eyas.local(max_workers=2) as executor:
        yield executor


def test_joblib(executor):
    import eyas.joblib

    with eyas.joblib.backend(executor):
        parallel = joblib.Parallel(verbose=0)
        assert parallel(joblib.delayed(pow)(number, 2) for number in range(1000)) == [
            n * n for n in range(1000)
        ]
        assert parallel.n_jobs == -1 or parallel.n_jobs is None
        assert os.getpid() not in joblib.Parallel(n_jobs=2)(
            joblib.delayed(os.getpid)() for _ in range(4)
        )
        with pytest.raises(ZeroDivisionError):
            joblib.Parallel(n_jobs=2)(
                joblib.delayed(divmod)(1, number % 5) for number in range(100)
            )
        lazy = joblib.Parallel(n_jobs=2, return_as="generator")
        assert sum(lazy(joblib.delayed(abs)(-number) for number in range(100))) == 4950
    assert joblib.Parallel(n_jobs=2, backend="eyas")(joblib.delayed(abs)(-1) for _ in range(2)) == [
        1,
        1,
    ]


def test_dask(executor):
    array = pytest.importorskip("dask.array")
    numbers = array.arange(10_000, chunks=1000)
    assert (numbers**2).sum().compute(scheduler=executor) == sum(n * n for n in range(10_000))


@pytest.mark.parametrize(
    ("package", "use", "install"),
    [
        ("fsspec", "with eyas.local(max_workers=1) as executor: executor.files", "eyas[fsspec]"),
        ("dask", "import eyas.dask", "eyas[dask]"),
        ("joblib", "import eyas.joblib", "eyas[joblib]"),
        ("parsl", "import eyas.parsl", "eyas[parsl]"),
        ("ray", "eyas.on_ray()", "ray"),
    ],
)
def test_an_error_names_the_package_that_is_missing_and_how_to_install_it(package, use, install):
    done = script(f"import sys; sys.modules[{package!r}] = None; import eyas\n{use}")
    last = done.stderr.strip().splitlines()[-1]
    assert f"the package {package}, which is not installed: pip install '{install}'" in last, (
        done.stderr
    )
