#!/usr/bin/env bash
# Tests the Python package: builds a wheel, installs it into a fresh virtual environment, checks its types with mypy and
# pyright, and runs its tests. `--judges` runs CPython's own tests of executors instead, on an interpreter that has
# them.
# Skipped, which is said, where there is no Python 3.11 with venv, or no package index; with CI=true, that is a failure.
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
wheel=$(dev/wheel.sh dev | tail -n 1) || skip "the wheel cannot be built"
rm -rf "$place/fresh"
"$python" -m venv "$place/fresh"
fresh=$place/fresh/bin/python
install() { "$fresh" -m pip --disable-pip-version-check --quiet install "$@" || skip "$* cannot be installed"; }
install "$wheel"

cd python/tests
if [ "$what" = --judges ]; then
    "$fresh" cpython_futures.py
    exit
fi
install pytest mypy pyright
# The types of the package as it is installed, and of a program that uses it.
package=$("$fresh" -c 'import eyas, os; print(os.path.dirname(eyas.__file__))')
"$fresh" -m mypy --config-file ../pyproject.toml "$package" typed.py
"$fresh" -m pyright --project ../pyproject.toml --pythonpath "$fresh" "$package" typed.py
"$fresh" -m pytest -q
[ "$("$place/fresh/bin/eyas" --version)" = "$("$fresh" -m eyas --version)" ]
