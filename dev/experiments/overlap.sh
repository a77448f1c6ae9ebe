#!/usr/bin/env bash
# The overlap experiment of the replica-coupled scheduling paper (its figures 7 and 8) on an emulated cluster: on 8
# nodes with one slot each, 40 tasks that stage a database of their own and compute, then 8 that only compute. Staging
# takes 8 minutes there, a database task computes for 9.6, the others for 23, so that one after the other takes 111
# minutes a node; with overlap the paper came to 88. What can overlap entirely takes 71: the computing alone. Without
# overlap it takes less than 111 here: a node that stages while others compute gets more of the storage's bandwidth.
#
# Runs without overlap (as in figure 7), with overlap, and with database tasks of higher priority, for which tasks that
# only compute are suspended. Prints times, utilisation of slots, and the gain.
#
#   dev/experiments/overlap.sh [SECONDS]     SECONDS stand for a minute of the paper (0.2: about a minute in all)
#   dev/experiments/overlap.sh --tiny        quick test; the figures mean nothing
#
# EYAS_BIN names the binary (target/release/eyas), NODES and DATABASES another size of the experiment. Computing is
# sleeping, so that the machine's processors do not matter; in steps, because a sleep ends in time also while it is
# suspended.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ "${1:-}" = --tiny ]; then
    set -- 0.02
    NODES=2 DATABASES=4
fi
unit=${1:-0.2}
nodes=${NODES:-8}
databases=${DATABASES:-40}
eyas=$(realpath "${EYAS_BIN:-${CARGO_TARGET_DIR:-target}/release/eyas}")
bytes=1000000

folder=$(mktemp -d)
export EYAS_HOME=$folder/home EYAS_CLUSTER=overlap
trap '"$eyas" stop >/dev/null 2>&1 || true; rm -rf "$folder"' EXIT
times() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.3f", a * b }'; }
# Nodes that stage at once share this.
rate=$(awk -v n="$nodes" -v s="$bytes" -v u="$unit" 'BEGIN { printf "%d", n * s / (8 * u) }')

mkdir "$folder/databases"
for number in $(seq "$databases"); do
    head -c $bytes /dev/urandom >"$folder/databases/$number"
done
write_job() { # PRIORITY-OF-DATABASE-TASKS
    cat >"$folder/job.toml" <<JOB
[[task]]
command = ["sh", "-c", "sleep $(times 9.6 "$unit")"]
array = "1-$databases"
inputs = ["$folder/databases/{}"]
priority = $1

[[task]]
command = ["sh", "-c", "for step in \$(seq 23); do sleep $unit; done"]
array = "1-$nodes"
JOB
}
number_of() { grep -oE "\"$1\": ?[0-9]+" "$2" | grep -oE '[0-9]+$' | head -n 1; }

without=
count=0
printf '%-34s %9s %12s %8s\n' "$databases database, $nodes compute-only tasks" 'minutes' 'utilisation' 'gain'
run() { # NAME PRIORITY WORDS…
    write_job "$2"
    "$eyas" start local --detach --nodes "$nodes" --slots 1 --data-intensive "$((bytes / 2))B" \
        --emulate "storage=${rate}B/s" "${@:3}" 2>/dev/null
    "$eyas" submit --wait "$folder/job.toml" >"$folder/out" 2>&1 || { cat "$folder/out" >&2; exit 1; }
    "$eyas" report 1 -o "$folder/report.json" >/dev/null 2>&1
    "$eyas" stop >/dev/null 2>&1
    # Its processes end by themselves; the next run is not disturbed by their output.
    EYAS_HOME=$folder/home-$((count += 1))
    elapsed=$(number_of elapsed_us "$folder/report.json")
    serial=$(number_of serial_us "$folder/report.json")
    without=${without:-$elapsed}
    awk -v name="$1" -v e="$elapsed" -v s="$serial" -v n="$nodes" -v u="$unit" -v w="$without" \
        'BEGIN { printf "%-34s %9.1f %10.1f %% %6.1f %%\n", name, e / 1e6 / u, 100 * s / (e * n), 100 * (1 - e / w) }'
}
run 'without overlap' 0 --no-overlap
run 'overlap' 0
run 'overlap, databases go first' 1
printf '%-34s %9s %12s %6.1f %%\n' 'the paper, without and with' '111, 88' '' 20.7
