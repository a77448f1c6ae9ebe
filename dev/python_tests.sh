#!/usr/bin/env bash
# Tests the Python package: builds a wheel, installs it into a fresh virtual environment, checks its types with mypy
# and pyright, and runs its tests. `--judges` runs the tests of others instead: CPython's of executors, on an
# interpreter that has them, joblib's, Parsl's, Dask's, Snakemake's and fsspec's; and those of executors in Ray and
# Spark clusters. Skipped, which is said, where there is no Python 3.11 with venv, or no package index; with CI=true,
# that is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
place=$(realpath -m "${CARGO_TARGET_DIR:-target}")/python
what=${1:-}

skip() { echo "SKIPPED: the tests of the Python package: $*" >&2; [ -z "${CI:-}" ] || exit 1; exit 0; }

if [ "$what" = --judges ]; then
    python=$(dev/python.sh test.test_concurrent_futures) || skip "no interpreter has CPython's tests"
else
    python=$(dev/python.sh) || skip "there is no Python 3.11 with venv"
fi
# The judges try what is built from the source distribution.
profile=$([ "$what" = --judges ] && echo sdist || echo dev)
wheel=$(dev/wheel.sh "$profile" | tail -n 1) || skip "the wheel cannot be built"
rm -rf "$place/fresh"
"$python" -m venv "$place/fresh"
fresh=$place/fresh/bin/python
install() { "$fresh" -m pip --disable-pip-version-check --quiet install "$@" || skip "$* cannot be installed"; }
install "$wheel"

tests=$PWD/python/tests
if [ "$what" = --judges ]; then
    # In another folder than that of the sources, so that the installed package is tested.
    cd "$place"
    echo "== CPython's tests of executors"
    "$fresh" "$tests/cpython_futures.py"
    echo "== joblib's tests of parallel calls, with the backend of eyas"
    # Parsl's tests cannot be collected by later versions of pytest.
    install 'pytest<8.4' joblib parsl
    # Excluded: loops in loops whose inner backend is `eyas` by name, as workers have not imported `eyas.joblib`.
    PYTHONPATH=$tests "$fresh" -m pytest -q -p joblib_backend -p no:cacheprovider --disable-warnings \
        --pyargs joblib.test.test_parallel -k 'eyas and not (test_nested_loop and -eyas])'
    echo "== Parsl's tests of apps, errors and staging, with the executor of eyas"
    suite=$("$fresh" -c 'import os, parsl.tests; print(os.path.dirname(parsl.tests.__file__))')
    # Excluded: files of the internet; an output that root may write; 1 MB of memory for an interpreter, which other
    # executors do not enforce; a test that reads a zip file while a thread of Parsl may still append to it.
    mkdir -p parsl
    (cd parsl && PATH=$place/fresh/bin:$PATH "$fresh" -m pytest -q -p no:cacheprovider --disable-warnings -c /dev/null \
        --rootdir . "$suite"/test_{python_apps,bash_apps,error_handling,staging} --config "$tests/parsl_config.py" \
        -m 'not (cleannet or unix_filesystem_permissions_required or issue_3620)' \
        -k 'not (test_docs_1 or staging_ftp or staging_https or test_stdout_stderr_staging_zip)')
    echo "== Dask's tests of delayed calls, with the scheduler of eyas"
    install pytest 'dask[array,dataframe,distributed]' ray pyspark
    # Excluded: an identity of objects, which no scheduler in other processes keeps; a cluster of Dask that copies its
    # configuration, with the executor in it.
    PYTHONPATH=$tests "$fresh" -m pytest -q -p dask_scheduler -p no:cacheprovider --disable-warnings \
        --pyargs dask.tests.test_delayed -k 'not (test_traverse_false or test_p2p_as_delayed)'
    echo "== executors in Ray and Spark clusters"
    "$fresh" -m pytest -q -p no:cacheprovider "$tests/test_engines.py" -k 'ray or spark'
    echo "== an executor on nodes of a real Slurm"
    "$fresh" -m pytest -q -rs -p no:cacheprovider "$tests/pool_on_slurm.py"
    echo "== Snakemake's tests of executors and of storage, with those of eyas"
    install snakemake fsspec
    PYTHONPATH=$tests "$fresh" -m pytest -q -p no:cacheprovider --disable-warnings -c /dev/null --rootdir "$tests" \
        "$tests/snakemake_judges.py"
    echo "== fsspec's tests of every file system, and pandas, pyarrow, zarr and xarray, on files of the cluster"
    install fsspec pandas pyarrow zarr xarray
    "$fresh" -m pytest -q -p no:cacheprovider --disable-warnings -c /dev/null --rootdir . \
        "$tests"/fsspec_{abstract,front_ends}.py
    exit
fi
install pytest numpy joblib 'dask[array,distributed]' mypy pyright snakemake fsspec
# What the tutorial needs.
install pandas matplotlib nbclient nbformat ipykernel
typed=(eyas snakemake_executor_plugin_eyas snakemake_storage_plugin_eyas tests/typed.py)
(cd python && "$fresh" -m mypy "${typed[@]}" && "$fresh" -m pyright --pythonpath "$fresh" "${typed[@]}")
"$fresh" -m pytest -q -c python/pyproject.toml --rootdir python python/tests
[ "$("$place/fresh/bin/eyas" --version)" = "$("$fresh" -m eyas --version)" ]
