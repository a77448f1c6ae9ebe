#!/usr/bin/env bash
# Builds the documentation as a book in target/book. Builds mdbook under target/ first, which takes some minutes once;
# MDBOOK names an installed one.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo=${1:-cargo}
tools=$(realpath -m "${CARGO_TARGET_DIR:-target}/tools")
mdbook=${MDBOOK:-$tools/bin/mdbook}
[ -x "$mdbook" ] || "$cargo" install --quiet --locked --root "$tools" --target-dir "$tools/build" mdbook@0.5.4
"$mdbook" build docs
