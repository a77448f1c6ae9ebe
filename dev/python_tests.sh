#!/usr/bin/env bash
# Tests the Python package: installs the wheel for tests into a fresh virtual environment, checks its types with mypy
# and pyright, and runs its tests. Skipped, which is said, where there is no Python 3.11 with venv, or no package
# index; with CI=true, that is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
place=$(realpath -m "${CARGO_TARGET_DIR:-target}")/python

skip() { echo "SKIPPED: the tests of the Python package: $*" >&2; [ -z "${CI:-}" ] || exit 1; exit 0; }

python=$(dev/python.sh) || skip "there is no Python 3.11 with venv"
rm -rf "$place/fresh"
"$python" -m venv "$place/fresh"
fresh=$place/fresh/bin/python
install() { "$fresh" -m pip --disable-pip-version-check --quiet install "$@" || skip "$* cannot be installed"; }
dev/wheel.sh sources || skip "maturin cannot make the source distribution"
"$python" dev/check_sdist.py "$place"/sdist/eyas-*
wheel=$(dev/wheel.sh dev | tail -n 1) || skip "the wheel cannot be packed"
install "$wheel"
install pytest numpy joblib 'dask[array,distributed]' mypy pyright snakemake fsspec
# What the tutorial and the benchmarks need.
install pandas pyarrow matplotlib nbclient nbformat ipykernel
typed=(eyas snakemake_executor_plugin_eyas snakemake_storage_plugin_eyas tests/typed.py)
(cd python && "$fresh" -m mypy "${typed[@]}" && "$fresh" -m pyright --pythonpath "$fresh" "${typed[@]}")
cache=$place/pytest
run_tests() { "$fresh" -m pytest -q -o cache_dir="$cache" -c python/pyproject.toml --rootdir python "$@" python/tests; }
rm -rf "$cache"
code=0
run_tests || code=$?
if [ $code != 0 ]; then
    # Exit code 1 is that of tests that failed. In CI, they run once more, alone; `dev/unstable.py` refuses too many.
    [ -n "${CI:-}" ] && [ $code = 1 ] || exit $code
    mapfile -t failed < <("$fresh" -c 'import json, sys; print("\n".join(json.load(open(sys.argv[1]))))' \
        "$cache/v/cache/lastfailed")
    [ ${#failed[@]} -ge 1 ] && [ ${#failed[@]} -le 2 ] || exit 1
    run_tests --last-failed || exit 1
    "$fresh" dev/unstable.py note "${failed[@]}" || exit 1
fi
[ "$("$place/fresh/bin/eyas" --version)" = "$("$fresh" -m eyas --version)" ]
