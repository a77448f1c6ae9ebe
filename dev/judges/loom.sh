#!/usr/bin/env bash
# Models of the board that programs share with their agent: each is tried in every order of its threads, by loom.
#
#     dev/judges/loom.sh [WORD]     only models whose names have this word
set -euo pipefail
cd "$(dirname "$0")/../.."
CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}/loom")
export CARGO_TARGET_DIR
# From its own folder: it is no member of the workspace.
cd dev/loom
"${CARGO:-cargo}" test --quiet --locked -- "$@"
