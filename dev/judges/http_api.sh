#!/usr/bin/env bash
# Requests that schemathesis makes up from the OpenAPI document of `eyas web`, also against its rules: no answer is an
# error of the server, and each is as the document says, in its status, type and content.
# Needs Python with venv, and a built eyas (EYAS_BIN). Installs schemathesis under target/; without a network the judge
# is skipped, which is said, and with CI=true that is a failure. `--quick` takes half a minute.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=4.32.5
eyas=$(realpath "${EYAS_BIN:-target/debug/eyas}")
tools=$(realpath -m "${CARGO_TARGET_DIR:-target}/tools/schemathesis-$version")
[ "${1:-}" = --quick ] && { examples=5 seconds=20; } || { examples=40 seconds=90; }

python=$(dev/tools/python.sh)
if [ ! -x "$tools/bin/schemathesis" ]; then
    "$python" -m venv "$tools"
    if ! "$tools/bin/pip" install --quiet "schemathesis==$version"; then
        rm -rf "$tools"
        echo "SKIPPED: schemathesis $version cannot be installed" >&2
        [ -z "${CI:-}" ] || exit 1
        exit 0
    fi
fi

place=$(mktemp -d)
export EYAS_HOME=$place/home
end() {
    [ -z "${web:-}" ] || { kill "$web"; wait "$web"; } 2>/dev/null || true
    "$eyas" stop --cluster judged >/dev/null 2>&1 || true
    rm -rf "$place"
}
trap end EXIT
cd "$place"
"$eyas" start local --nodes 2 --detach --cluster judged
"$eyas" run --cluster judged --array 1-20 -- sh -c 'echo {}; exit $(( {} % 7 == 0 ))' >/dev/null 2>&1 || true
"$eyas" web --cluster judged >url &
web=$!
for _ in $(seq 100); do grep -q token= url && break; sleep 0.1; done
url=$(grep -o 'http://[^ ]*' url)
address=${url%%/\?*}

# Whether a job or a push is accepted depends on files and executors, which no schema knows. Streams do not end.
judge() {
    "$tools/bin/schemathesis" run "$address/api/v1/openapi.json" --url "$address" \
        --header "Authorization: Bearer ${url##*token=}" --checks all --phases examples,coverage,fuzzing \
        --max-examples "$examples" --max-time "$seconds" --seed 1 --continue-on-failure --no-color "$@"
}
judge --exclude-path-regex 'events$' --exclude-path /api/v1/jobs --exclude-path /api/v1/push
judge --include-path /api/v1/jobs --include-path /api/v1/push --exclude-checks positive_data_acceptance
