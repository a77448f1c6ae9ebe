#!/usr/bin/env bash
# Checks for the programs that building needs, and says how to get missing ones. Installs only the toolchain's own
# formatter and linter, if rustup can.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo=${1:-cargo}

missing() { printf '%s\n' "$@" >&2; exit 1; }

command -v "$cargo" >/dev/null || missing \
    "cargo is missing. It comes with Rust:" \
    "    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh" \
    "then open a new shell, or do: . \"\$HOME/.cargo/env\""
command -v cc >/dev/null || missing \
    "a C compiler (cc) is missing; Rust links with it. On Debian and Ubuntu: apt-get install gcc libc6-dev"

needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
found=$("$cargo" --version | cut -d ' ' -f 2)
[ "$(printf '%s\n' "$needed" "$found" | sort -V | head -n 1)" = "$needed" ] || missing \
    "cargo is $found, eyas needs $needed or later. With rustup: rustup update stable"

for part in clippy fmt; do
    "$cargo" "$part" --version >/dev/null 2>&1 && continue
    name=${part/#fmt/rustfmt}
    { command -v rustup >/dev/null && rustup component add "$name"; } || missing \
        "cargo $part is missing. With rustup: rustup component add $name"
done
