#!/usr/bin/env bash
# Parsers of what others write, each with changes of the inputs that were kept for it, from another seed each time.
#
#     dev/judges/fuzz.sh [SECONDS [TARGET]]     a target is a folder of dev/fuzz/corpus; without a name, all
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${2:-}
EYAS_FUZZ_SECONDS=${1:-10} "${CARGO:-cargo}" test --quiet --locked --workspace --test inputs -- \
    --nocapture ${target:+--exact "$target"}
