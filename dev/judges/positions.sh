#!/usr/bin/env bash
# Positions in frames against those of WCSLIB, as astropy has it: random headers of many kinds, and a new seed each day.
# Skipped, which is said, where there is no Python with venv, or no package index; with CI=true, that is a failure.
#
#     dev/judges/positions.sh [HEADERS] [SEED]
set -euo pipefail
cd "$(dirname "$0")/../.."
headers=${1:-3000}
seed=${2:-$(date +%Y%m%d)}
place=$(realpath -m "${CARGO_TARGET_DIR:-target}/positions")

skip() { echo "SKIPPED: positions against WCSLIB: $*" >&2; [ -z "${CI:-}" ] || exit 1; exit 0; }

python=$(dev/tools/python.sh) || skip "there is no Python 3.11 with venv"
if [ ! -x "$place/bin/python" ]; then
    "$python" -m venv "$place"
fi
"$place/bin/python" -m pip --disable-pip-version-check --quiet install astropy || skip "astropy cannot be installed"
echo "$headers random headers of seed $seed"
"$place/bin/python" dev/judges/positions.py "$headers" "$seed" >"$place/cases.txt"
EYAS_POSITIONS=$place/cases.txt "${CARGO:-cargo}" test --quiet --locked --workspace --test positions -- --nocapture
