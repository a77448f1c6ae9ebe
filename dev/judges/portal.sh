#!/usr/bin/env bash
# AstroPortal before judges that others wrote: OpenCADC's suite of UWS, pyvo as a client, stilts for VOTable and
# DataLink, astropy for the image, axe-core and Chromium for the pages. A judge that cannot be got is skipped, which is
# said; with CI=true, that is a failure. With a folder, writes pictures of the pages there: dev/judges/portal.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/../.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
place=$target/portal-judge
mkdir -p "$place"

skip() { echo "SKIPPED: AstroPortal: $*" >&2; [ -z "${CI:-}" ] || exit 1; }

python=$(dev/tools/python.sh) || { skip "there is no Python 3.11 with venv"; exit 0; }
[ -x "$place/venv/bin/python" ] || "$python" -m venv "$place/venv"
"$place/venv/bin/python" -m pip --disable-pip-version-check --quiet install pyvo==1.9.1 ||
    { skip "pyvo cannot be installed"; exit 0; }

jars=$place/jars
if ! command -v mvn >/dev/null || ! command -v java >/dev/null; then
    jars= && skip "there is no Java or Maven: install openjdk-17-jdk-headless and maven"
elif [ ! -e "$jars/complete" ]; then
    rm -rf "$jars"
    if mvn -q -B --no-transfer-progress -f dev/judges/portal/pom.xml dependency:copy-dependencies \
        -DoutputDirectory="$jars" >"$place/maven.log" 2>&1; then
        touch "$jars/complete"
    else
        jars= && skip "Maven cannot get cadc-test-uws: $place/maven.log says why"
    fi
fi

tools=$target/tools/web-$(sha256sum <dev/judges/web/package-lock.json | cut -c 1-12)
find_chromium() { command -v chromium || command -v chromium-browser || command -v google-chrome; }
chromium=$(find_chromium) || { chromium= && skip "chromium is missing; on Debian: apt-get install chromium"; }
if [ ! -d "$tools/node_modules/axe-core" ]; then
    mkdir -p "$tools"
    cp dev/judges/web/package.json dev/judges/web/package-lock.json "$tools"
    npm ci --prefix "$tools" --no-audit --no-fund --ignore-scripts >&2 ||
        { rm -rf "$tools" && chromium= && skip "playwright-core and axe-core cannot be installed from npm"; }
fi
EYAS_BIN=${EYAS_BIN:-$target/debug/eyas} PORTAL_PROGRAMS=$target/debug PORTAL_JARS=$jars \
    EYAS_WEB_TOOLS=$tools EYAS_CHROMIUM=$chromium exec "$place/venv/bin/python" dev/judges/portal.py "$@"
