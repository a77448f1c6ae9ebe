#!/usr/bin/env bash
# Checks the spelling of the whole tree with `typos`, which it installs under target/. Where it cannot be installed, the
# check is skipped, except in CI.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=1.52.0
tools=${CARGO_TARGET_DIR:-target}/tools/typos-$version
typos=$tools/bin/typos

install() {
    python3 -m venv "$tools" && "$tools/bin/pip" install --quiet --disable-pip-version-check "typos==$version"
}

if [ ! -x "$typos" ] && ! install; then
    rm -rf "$tools"
    [ -z "${CI:-}" ] || exit 1
    echo "spelling: skipped, because typos $version could not be installed from PyPI" >&2
    exit 0
fi
exec "$typos"
