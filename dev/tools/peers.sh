#!/bin/sh
# Installs what `dev/experiments/noop_tasks.py` compares eyas with, into target/peers, and further packages that are
# named, such as pyspark for `dev/experiments/stragglers.py` and kazoo for `dev/experiments/zookeeper_claims.py`: what
# the package registries have. What they do not have is left out, and the benchmark says so. Nothing outside target/ is
# changed.
set -eu
cd "$(dirname "$0")/../.."
folder=target/peers
[ -x "$folder/bin/python" ] || python3 -m venv "$folder"
for package in 'dask[distributed]' parsl hyperqueue ndcctools "$@"; do
    "$folder/bin/pip" install --quiet --disable-pip-version-check "$package" ||
        echo "peers: $package is not available" >&2
done
# GNU parallel is one Perl script in its package; it is unpacked, not installed.
if ! command -v parallel >/dev/null && [ ! -x "$folder/bin/parallel" ] && command -v apt-get >/dev/null; then
    unpacked=$(mktemp -d)
    if (cd "$unpacked" && apt-get download --quiet parallel >/dev/null && dpkg-deb -x ./*.deb .); then
        cp "$unpacked/usr/bin/parallel" "$folder/bin/"
    else
        echo "peers: GNU parallel is not available" >&2
    fi
    rm -rf "$unpacked"
fi
ls "$folder/bin" | grep -E '^(dask|parsl|hq|parallel|work_queue|vine)' || true
