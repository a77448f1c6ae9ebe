#!/usr/bin/env bash
# Builds the Python wheel into target/python/wheels. `dev/wheel.sh release` builds one for clusters: with zig's linker,
# it needs glibc 2.17 (2012) or later. `dev/wheel.sh dev` builds one for tests, on this machine alone. `dev/wheel.sh
# sdist` makes the source distribution, and builds a wheel for tests from it as pip does. What it needs comes from PyPI,
# into target/python/tools.
set -euo pipefail
cd "$(dirname "$0")/.."
profile=${1:-release}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
place=$target/python
python=$(dev/python.sh)
[ -x "$place/tools/bin/python" ] || "$python" -m venv "$place/tools"
pip() { "$place/tools/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }
pip install 'maturin>=1.16,<2'
export CARGO_TARGET_DIR=$target PATH=$place/tools/bin:$PATH
rm -rf "$place/wheels"
if [ "$profile" = release ]; then
    pip install cargo-zigbuild ziglang auditwheel abi3audit check-wheel-contents
    maturin build --locked --release --zig --compatibility manylinux2014 --manifest-path python/Cargo.toml \
        --out "$place/wheels"
    auditwheel show "$place"/wheels/*.whl
    abi3audit --strict --report "$place"/wheels/*.whl
    # The extension is not in a package of its own: that is how maturin lays mixed packages out.
    check-wheel-contents --config python/pyproject.toml "$place"/wheels/*.whl
    pip install twine
    twine check --strict "$place"/wheels/*
elif [ "$profile" = sdist ]; then
    pip install twine
    maturin sdist --manifest-path python/Cargo.toml --out "$place/wheels"
    twine check --strict "$place"/wheels/*
    # Unpacked where there is nothing else of this repository, with new times, as cargo goes by them.
    rm -rf "$place/sdist" && mkdir "$place/sdist"
    tar xzmf "$place"/wheels/eyas-*.tar.gz -C "$place/sdist"
    MATURIN_PEP517_ARGS='--profile dev' pip wheel --no-deps --wheel-dir "$place/wheels" "$place"/sdist/eyas-*
else
    maturin build --locked --profile dev --compatibility linux --manifest-path python/Cargo.toml \
        --out "$place/wheels"
fi
echo "$place"/wheels/*.whl
