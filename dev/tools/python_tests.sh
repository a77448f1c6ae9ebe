#!/usr/bin/env bash
# Tests the Python package with the oldest and the newest CPython of this machine, from 3.11 on; once, which is said, if
# there is only one. Each gets the wheel for tests in a fresh virtual environment. With the oldest one, mypy and pyright
# check the types, and ruff the format of all Python of the tree. Skipped, which is said, where there is no Python 3.11
# with venv, or no package index; with CI=true, that is a failure.
set -euo pipefail
cd "$(dirname "$0")/../.."
place=$(realpath -m "${CARGO_TARGET_DIR:-target}")/python

skip() { echo "SKIPPED: the tests of the Python package: $*" >&2; [ -z "${CI:-}" ] || exit 1; exit 0; }

listed=$(dev/tools/python.sh ends) || skip "there is no Python 3.11 with venv"
mapfile -t pythons <<<"$listed"
[ ${#pythons[@]} -gt 1 ] || echo "there is one CPython from 3.11 on, ${pythons[0]}: the tests run on no newer one" >&2
dev/tools/wheel.sh sources || skip "maturin cannot make the source distribution"
"${pythons[0]}" dev/tools/check_sdist.py "$place"/sdist/eyas-*
wheel=$(dev/tools/wheel.sh dev | tail -n 1) || skip "the wheel cannot be packed"

install() { "$fresh" -m pip --disable-pip-version-check --quiet install "$@" || skip "$* cannot be installed"; }
# Runs the tests, beside those of the other interpreter (-s) or alone (-x).
run_tests() {
    local project=(-c doors/python/pyproject.toml --rootdir doors/python) how=$1
    shift
    flock "$how" "$place/alone.lock" "$fresh" -m pytest -q -o cache_dir="$cache" "${project[@]}" "$@" doors/python/tests
}

# Tests the package with an interpreter.
test_with() {
    local folder=$place/fresh-$2 fresh=$place/fresh-$2/bin/python cache=$place/pytest-$2 code=0 failed
    echo "the tests of the Python package run on $("$1" --version), $1"
    rm -rf "$folder" "$cache"
    "$1" -m venv "$folder"
    install "$wheel"
    install pytest numpy joblib 'dask[array,distributed]' mypy pyright "ruff==$ruff" snakemake fsspec
    # What the tutorial and the benchmarks need.
    install pandas pyarrow matplotlib nbclient nbformat ipykernel
    if [ "$2" = 0 ]; then
        "$fresh" -m ruff format --check --no-cache --config doors/python/pyproject.toml .
        (cd doors/python && "$fresh" -m mypy "${typed[@]}" && "$fresh" -m pyright --pythonpath "$fresh" "${typed[@]}")
    fi
    run_tests -s || code=$?
    if [ $code != 0 ]; then
        # Exit code 1 is that of tests that failed. In CI, they run once more, alone; `dev/tools/unstable.py` refuses
        # too many.
        [ -n "${CI:-}" ] && [ $code = 1 ] || exit $code
        mapfile -t failed < <("$fresh" -c 'import json, sys; print("\n".join(json.load(open(sys.argv[1]))))' \
            "$cache/v/cache/lastfailed")
        [ ${#failed[@]} -ge 1 ] && [ ${#failed[@]} -le 2 ] || exit 1
        run_tests -x --last-failed || exit 1
        "$fresh" dev/tools/unstable.py note "${failed[@]}" || exit 1
    fi
    [ "$("$folder/bin/eyas" --version)" = "$("$fresh" -m eyas --version)" ]
}

ruff=0.17.6
typed=(eyas snakemake_executor_plugin_eyas snakemake_storage_plugin_eyas tests/typed.py)
# Both at a time. What the newest one prints comes after the other.
code=0
test_with "${pythons[0]}" 0 &
running=($!)
if [ ${#pythons[@]} -gt 1 ]; then
    test_with "${pythons[1]}" 1 >"$place/tests-1.log" 2>&1 &
    running+=($!)
fi
for test in "${running[@]}"; do
    wait "$test" || code=$?
done
[ ${#pythons[@]} = 1 ] || cat "$place/tests-1.log"
exit $code
