#!/usr/bin/env bash
# Test suites of others for the Python package, as it is installed from the wheel for tests: CPython's of executors, on
# an interpreter that has them, loky's, joblib's, Parsl's, Dask's, Snakemake's and fsspec's; and those of executors in
# Ray and Spark clusters and on a real Slurm. Skipped, which is said, where there is no Python 3.11 with venv, or no
# package index; with CI=true, that is a failure.
#
#     dev/judges/python.sh cpython|loky|joblib|parsl|dask|engines|slurm|snakemake|fsspec
#
# Each suite has a virtual environment of its own, so that suites can run side by side.
set -euo pipefail
cd "$(dirname "$0")/../.."
suite=$1
place=$(realpath -m "${CARGO_TARGET_DIR:-target}/python")

skip() { echo "SKIPPED: the suite $suite of the Python package: $*" >&2; [ -z "${CI:-}" ] || exit 1; exit 0; }

if [ "$suite" = cpython ]; then
    python=$(dev/tools/python.sh test.test_concurrent_futures) || skip "no interpreter has CPython's tests"
else
    python=$(dev/tools/python.sh) || skip "there is no Python 3.11 with venv"
fi
wheels=("$place"/wheels/*.whl)
[ -e "${wheels[0]}" ] || skip "there is no wheel: dev/tools/wheel.sh dev"
environment=$place/judge-$suite
rm -rf "$environment"
"$python" -m venv "$environment"
fresh=$environment/bin/python
install() { "$fresh" -m pip --disable-pip-version-check --quiet install "$@" || skip "$* cannot be installed"; }
tests=$PWD/doors/python/tests
judge() { PYTHONPATH=$tests "$fresh" -m pytest -q -p no:cacheprovider --disable-warnings "$@"; }

install "${wheels[0]}"
# In another folder than that of the sources, so that the installed package is tested.
cd "$environment"
case $suite in
cpython)
    "$fresh" "$tests/cpython_futures.py"
    ;;
loky)
    # The tests are in the source distribution alone.
    install 'loky==3.7.0' pytest pytest-timeout psutil packaging numpy
    "$fresh" -m pip --disable-pip-version-check --quiet download --no-deps --no-binary :all: 'loky==3.7.0' \
        || skip "loky's source distribution cannot be downloaded"
    tar xzf loky-*.tar.gz
    "$fresh" "$tests/loky_executors.py" loky-*/ --timeout 120
    ;;
joblib)
    install pytest joblib
    # Excluded: loops in loops whose inner backend is `eyas` by name, as workers have not imported `eyas.joblib`.
    judge -p joblib_backend --pyargs joblib.test.test_parallel -k 'eyas and not (test_nested_loop and -eyas])'
    ;;
parsl)
    # Parsl's tests cannot be collected by later versions of pytest.
    install 'pytest<8.4' parsl
    theirs=$("$fresh" -c 'import os, parsl.tests; print(os.path.dirname(parsl.tests.__file__))')
    # Excluded: files of the internet; an output that root may write; 1 MB of memory for an interpreter, which other
    # executors do not enforce; a test that reads a zip file while a thread of Parsl may still append to it; a limit of
    # 10 ms for a program of 50 ms, whose end a busy machine may see first.
    excluded='test_docs_1 or staging_ftp or staging_https or test_stdout_stderr_staging_zip'
    excluded+=' or (test_walltime and not longer)'
    PATH=$environment/bin:$PATH judge -c /dev/null \
        --rootdir . "$theirs"/test_{python_apps,bash_apps,error_handling,staging} --config "$tests/parsl_config.py" \
        -m 'not (cleannet or unix_filesystem_permissions_required or issue_3620)' \
        -k "not ($excluded)"
    ;;
dask)
    install pytest 'dask[array,dataframe,distributed]'
    # Excluded: an identity of objects, which no scheduler in other processes keeps; a cluster of Dask that copies its
    # configuration, with the executor in it.
    judge -p dask_scheduler --pyargs dask.tests.test_delayed -k 'not (test_traverse_false or test_p2p_as_delayed)'
    ;;
engines)
    install pytest ray pyspark
    judge "$tests/test_engines.py" -k 'ray or spark'
    ;;
slurm)
    install pytest
    judge -rs "$tests/pool_on_slurm.py"
    ;;
snakemake)
    install pytest snakemake fsspec
    judge -c /dev/null --rootdir "$tests" "$tests/snakemake_judges.py"
    ;;
fsspec)
    # Its tests of every file system, and pandas, pyarrow, zarr and xarray on files of the cluster.
    install pytest fsspec pandas pyarrow zarr xarray
    judge -c /dev/null --rootdir . "$tests"/fsspec_{abstract,front_ends}.py
    ;;
*)
    echo "there is no suite $suite" >&2
    exit 2
    ;;
esac
