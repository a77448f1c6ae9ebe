#!/usr/bin/env bash
# The pages of `eyas web` in Chromium, driven by playwright-core; axe-core looks at each view. With a folder, writes
# pictures of the views there: dev/judges/web.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/../.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
tools=$target/tools/web-$(cat dev/judges/web/package-lock.json | sha256sum | cut -c 1-12)

skip() {
    printf 'SKIPPED: pages in a browser: %s\n' "$1" >&2
    [ -z "${CI:-}" ] || exit 1
    exit 0
}
for program in node npm; do
    command -v $program >/dev/null || skip "$program is missing; on Debian: apt-get install nodejs npm"
done
find_chromium() { command -v chromium || command -v chromium-browser || command -v google-chrome; }
if [ -n "${CI:-}" ] && ! find_chromium >/dev/null; then
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium
fi
chromium=$(find_chromium) ||
    skip 'chromium is missing; on Debian: apt-get install chromium'
if [ ! -d "$tools/node_modules/axe-core" ]; then
    rm -rf "$tools" && mkdir -p "$tools"
    cp dev/judges/web/package.json dev/judges/web/package-lock.json "$tools"
    npm ci --prefix "$tools" --no-audit --no-fund --ignore-scripts >&2 || {
        rm -rf "$tools"
        skip 'playwright-core and axe-core cannot be installed from npm'
    }
fi
EYAS_BIN=$target/debug/eyas EYAS_WEB_TOOLS=$tools EYAS_CHROMIUM=$chromium exec node dev/judges/web/pages.mjs "$@"
