#!/usr/bin/env bash
# Parsers of what others write under libFuzzer: changes of inputs that reach code that no input has reached before.
#
#     dev/judges/fuzz_guided.sh [SECONDS [TARGET]]     a target is a folder of dev/fuzz/corpus; without a name, all
#
# Inputs that reach something new are kept in the build folder, and are where the next run begins; the kept inputs of
# dev/fuzz/corpus are only read. An input that breaks a target is left in a file, which is named.
# Skipped, which is said, where there is no C++ compiler; with CI=true, that is a failure.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-60}
root=$PWD
place=$(realpath -m "${CARGO_TARGET_DIR:-target}/fuzz-guided")

skip() { echo "SKIPPED: parsers under libFuzzer: $*" >&2; [ -z "${CI:-}" ] || exit 1; exit 0; }

# These would replace the flags that add the counters.
unset RUSTFLAGS
command -v c++ >/dev/null || skip "there is no C++ compiler"
# From its own folder: it is no member of the workspace, and has flags of its own.
(cd dev/fuzz/guided && CARGO_TARGET_DIR=$place "${CARGO:-cargo}" build --quiet --locked)
machine=$(rustc -vV | sed -n 's/^host: //p')

failed=
for target in ${2:-$(ls dev/fuzz/corpus)}; do
    [ -d "dev/fuzz/corpus/$target" ] || { echo "there is no target $target" >&2; exit 2; }
    mkdir -p "$place/found" "$place/inputs/$target"
    output=$place/$target.txt
    # The same bounds as in dev/fuzz/tests/inputs.rs.
    if (cd "$place" && EYAS_FUZZ_TARGET=$target "$machine/debug/eyas-fuzz-guided" \
        -max_total_time="$seconds" -max_len=16384 -timeout=60 -rss_limit_mb=4096 -print_final_stats=1 \
        -artifact_prefix="$place/found/$target-" "inputs/$target" "$root/dev/fuzz/corpus/$target") >"$output" 2>&1; then
        tried=$(sed -n 's/^stat::number_of_executed_units: *//p' "$output")
        found=$(sed -n 's/^stat::new_units_added: *//p' "$output")
        echo "$target: $tried inputs in $seconds s; $found of them reached something new"
    else
        tail -n 30 "$output"
        echo "$target has failed: the input is in the file above, and belongs to dev/fuzz/corpus/$target" >&2
        failed="$failed $target"
    fi
done
[ -z "$failed" ] || { echo "targets that have failed:$failed" >&2; exit 1; }
