#!/usr/bin/env bash
# Tests the Python package: installs the wheel for tests into a fresh virtual environment, checks its types with mypy
# and pyright, and runs its tests. Skipped, which is said, where there is no Python 3.11 with venv, or no package
# index; with CI=true, that is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
place=$(realpath -m "${CARGO_TARGET_DIR:-target}")/python

skip() { echo "SKIPPED: the tests of the Python package: $*" >&2; [ -z "${CI:-}" ] || exit 1; exit 0; }

python=$(dev/python.sh) || skip "there is no Python 3.11 with venv"
wheel=$(dev/wheel.sh dev | tail -n 1) || skip "the wheel cannot be built"
rm -rf "$place/fresh"
"$python" -m venv "$place/fresh"
fresh=$place/fresh/bin/python
install() { "$fresh" -m pip --disable-pip-version-check --quiet install "$@" || skip "$* cannot be installed"; }
install "$wheel"
install pytest pytest-xdist numpy joblib 'dask[array,distributed]' mypy pyright snakemake fsspec
# What the tutorial and the benchmarks need.
install pandas pyarrow matplotlib nbclient nbformat ipykernel
typed=(eyas snakemake_executor_plugin_eyas snakemake_storage_plugin_eyas tests/typed.py)
(cd python && "$fresh" -m mypy "${typed[@]}" && "$fresh" -m pyright --pythonpath "$fresh" "${typed[@]}")
cache=$place/pytest
run_tests() { "$fresh" -m pytest -q -o cache_dir="$cache" -c python/pyproject.toml --rootdir python "$@" python/tests; }
rm -rf "$cache"
if ! run_tests -n 4; then
    [ -n "${CI:-}" ] || exit 1
    # Once more, alone; `dev/unstable.py` refuses too many.
    mapfile -t failed < <("$fresh" -c 'import json, sys; print(*json.load(open(sys.argv[1])), sep="\n")' \
        "$cache/v/cache/lastfailed")
    [ ${#failed[@]} -le 2 ] && run_tests --last-failed && "$fresh" dev/unstable.py note "${failed[@]}"
fi
[ "$("$place/fresh/bin/eyas" --version)" = "$("$fresh" -m eyas --version)" ]
