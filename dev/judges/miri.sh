#!/usr/bin/env bash
# Tests of rooms without sockets, and of the C library's handles and pointers, under Miri, which finds undefined
# behaviour.
#
#     dev/judges/miri.sh [ROOM...]     packages; without a name, those of the list below
#
# Only rooms whose tests end within about two minutes there are in the list.
# Skipped, which is said, where the nightly toolchain has no Miri; with CI=true, that is a failure.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || set -- eyas-capi eyas-reading eyas-types eyas-wire

skip() { echo "SKIPPED: tests under Miri: $*" >&2; [ -z "${CI:-}" ] || exit 1; exit 0; }

rustup run nightly cargo miri --version >/dev/null 2>&1 ||
    skip "the nightly toolchain has no Miri: rustup toolchain install nightly --component miri,rust-src"
CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}/miri")
export CARGO_TARGET_DIR
# Tests read files of the repository.
export MIRIFLAGS="${MIRIFLAGS:-} -Zmiri-disable-isolation"
for room; do
    began=$SECONDS
    rustup run nightly cargo miri test --quiet --locked --lib -p "$room"
    echo "$room: $((SECONDS - began)) s, with what was compiled for it"
done
