#!/usr/bin/env bash
# Checks the dependencies: their licences, sources and duplicates (`deny.toml`), and that none is unused. With
# ADVISORIES=1 also whether one has a known vulnerability, for which the database of RustSec is downloaded. Builds the
# two tools for it under target/, which takes some minutes the first time.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo=${1:-cargo}
tools=$(realpath -m "${CARGO_TARGET_DIR:-target}/tools")

"$cargo" install --quiet --locked --root "$tools" --target-dir "$tools/build" cargo-deny@0.20.2 cargo-machete@0.9.2
"$tools/bin/cargo-deny" --locked check bans licenses sources
[ -z "${ADVISORIES:-}" ] || "$tools/bin/cargo-deny" --locked check advisories
"$tools/bin/cargo-machete" .
