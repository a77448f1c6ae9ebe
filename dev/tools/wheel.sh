#!/usr/bin/env bash
# Makes the Python package, in target/python/wheels, and prints the path of the wheel last:
#
#     dev/tools/wheel.sh release   a wheel for clusters: with zig's linker, it needs glibc 2.17 (2012) or later
#     dev/tools/wheel.sh sdist     the source distribution, and a wheel that is built from it as pip does, from scratch
#     dev/tools/wheel.sh sources   the source distribution alone, unpacked in target/python/sdist
#     dev/tools/wheel.sh dev       a wheel for tests on this machine, packed from what cargo has built for tests
#
# What this needs comes from PyPI, into target/python/tools.
set -euo pipefail
cd "$(dirname "$0")/../.."
profile=${1:-release}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
place=$target/python
python=$(dev/tools/python.sh)
[ -x "$place/tools/bin/python" ] || "$python" -m venv "$place/tools"
# Only what is missing is asked for: pip takes a second even if nothing is.
pip() { "$place/tools/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }
need() { (cd "$place/tools/bin" && ls "$1" >/dev/null 2>&1) || pip install "${@:2}"; }
case $profile in release | sdist | sources | dev) rm -rf "$place/wheels" ;; esac

pack() {
    [ -d "$place/tools/packing" ] || pip install --target "$place/tools/packing" 'pyproject-metadata>=0.9' 'wheel>=0.45'
    PYTHONPATH=$place/tools/packing "$python" dev/tools/pack_wheel.py "$@"
}

# Before PATH changes: pyo3 would be built again, as it looks for interpreters there.
if [ "$profile" = dev ]; then
    cargo build --locked --workspace --all-targets
    pack "$target/debug/lib_eyas.so" "$place/wheels"
    exit
fi
export CARGO_TARGET_DIR=$target PATH=$place/tools/bin:$PATH

# Unpacked with new times, as cargo goes by them.
unpack_sdist() {
    need maturin 'maturin>=1.16,<2'
    maturin sdist --manifest-path doors/python/Cargo.toml --out "$place/wheels"
    rm -rf "$1" && mkdir "$1"
    tar xzmf "$place"/wheels/eyas-*.tar.gz -C "$1"
}

case $profile in
release)
    pip install cargo-zigbuild ziglang auditwheel abi3audit check-wheel-contents twine
    machine=$(uname -m)
    # The program with it: `dev/tools/dist.sh` packs both, of one build.
    cargo zigbuild --locked --release -p eyas-python -p eyas-cli --target "$machine-unknown-linux-gnu.2.17"
    pack "$target/$machine-unknown-linux-gnu/release/lib_eyas.so" "$place/wheels" "manylinux_2_17_$machine"
    auditwheel show "$place"/wheels/*.whl
    abi3audit --strict --report "$place"/wheels/*.whl
    # The extension is not in a package of its own: that is how maturin lays mixed packages out.
    check-wheel-contents --config doors/python/pyproject.toml "$place"/wheels/*.whl
    twine check --strict "$place"/wheels/*
    ;;
sdist)
    # Where there is nothing else of this repository.
    elsewhere=$(mktemp -d)
    trap 'rm -rf "$elsewhere"' EXIT
    unpack_sdist "$elsewhere/sdist"
    pip install twine
    twine check --strict "$place"/wheels/*
    MATURIN_PEP517_ARGS='--profile dev' pip wheel --no-deps --wheel-dir "$place/wheels" "$elsewhere"/sdist/eyas-*
    ;;
sources)
    unpack_sdist "$place/sdist"
    exit
    ;;
*)
    echo "dev/tools/wheel.sh knows no $profile: release, sdist, sources or dev" >&2
    exit 2
    ;;
esac
echo "$place"/wheels/*.whl
