#!/usr/bin/env bash
# Compressed images against the pixels that cfitsio and astropy read: all kinds of compression, and a new seed each day.
# Skipped, which is said, where there is no Python with venv, or no package index; with CI=true, that is a failure.
#
#     dev/judges/tiles.sh [SEED]
set -euo pipefail
cd "$(dirname "$0")/../.."
seed=${1:-$(date +%Y%m%d)}
place=$(realpath -m "${CARGO_TARGET_DIR:-target}/tiles")

skip() { echo "SKIPPED: compressed images against cfitsio: $*" >&2; [ -z "${CI:-}" ] || exit 1; exit 0; }

python=$(dev/tools/python.sh) || skip "there is no Python 3.11 with venv"
if [ ! -x "$place/bin/python" ]; then
    "$python" -m venv "$place"
fi
"$place/bin/python" -m pip --disable-pip-version-check --quiet install astropy fitsio ||
    skip "astropy and fitsio cannot be installed"
echo "images of seed $seed"
rm -rf "$place/files"
"$place/bin/python" dev/judges/tiles.py "$place/files" "$seed"
EYAS_TILES=$place/files "${CARGO:-cargo}" test --quiet --locked --workspace --test tiles
