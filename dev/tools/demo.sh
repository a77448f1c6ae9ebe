#!/usr/bin/env bash
# The stacking application of "Accelerating Large-scale Data Exploration through Data Diffusion" (section 6), small: a
# made-up sky survey is stacked with one task for each object, at two data localities, first-available (FA) against
# good-cache-compute (GCC), on an emulated cluster of four nodes with slow shared storage.
#
# Usage: dev/tools/demo.sh [FOLDER]     (default: demo-out, which is replaced)
#
# Every printed figure is computed from the files of this run. The exit code is 0 only if all tasks succeeded, both
# policies gave the same image to the last bit, the source that no frame shows is seen, and empty sky stays empty.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/../.."

root=$PWD
out=${1:-demo-out}
cluster=(--nodes 4 --slots 1 --emulate storage=400Mbit/s,storage-latency=2ms,link=1Gbit/s)
# Rows of the paper's table 3 (objects for each file), and the divisor of both of their numbers.
localities=(1.38 30)
scales=(1200 60)
# A source with this signal to noise counts as seen; chance alone reaches it once in 3.5 million images.
seen=5

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
fail() { printf 'demo: %s\n' "$*" >&2; exit 1; }
# A field of a line of tab-separated key=value.
field() { tr '\t' '\n' | sed -n "s/^$1=//p"; }
is() { awk -v a="$1" -v b="$3" "BEGIN { exit !(a $2 b) }" || return 1; }

began=$SECONDS
say "1/4  Building eyas and the stacking application (for development: faster to build, slower to run than a release)"
cargo build --locked -p eyas-cli -p eyas-stacking
bin=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)/debug
built=$((SECONDS - began))

mkdir -p "$out"
out=$(cd "$out" && pwd)
# Only files of an earlier demo are removed, whatever the folder is.
rm -rf "$out"/survey-* "$out"/partials-* "$out"/report-* "$out"/{single,stacked}*.{fits,png}
rm -rf "$out"/table.txt "$out"/home
export EYAS_HOME=$out/home

say "2/4  Making two small surveys of SDSS-sized frames (2048 x 1489 pixels, 16 bits, gzip)"
for place in "${!localities[@]}"; do
    locality=${localities[place]}
    "$bin/survey" --out "$out/survey-$locality" --locality "$locality" --scale "${scales[place]}" | tr '\t' ' '
done

say "3/4  Stacking: one task for each object, 4 nodes, shared storage of 400 Mbit/s"
for locality in "${localities[@]}"; do
    for policy in fa gcc; do
        name=$locality-$policy
        cd "$out/survey-$locality"
        (
            [ "$locality-$policy" != "${localities[0]}-fa" ] || { PS4='$ '; set -x; }
            "$bin/eyas" run --each-line tasks.csv --colsep , --input '{1}' \
                --output "partial.fits=$out/partials-$name/{#}.fits" \
                --policy "$policy" "${cluster[@]}" --name "stack-$name" \
                --report "$out/report-$name.html" --report "$out/report-$name.csv" \
                -- "$bin/stack" --object '{2},{3}' '{1}' --out partial.fits >"$out/partials-$name.log"
        )
        cd "$root"
    done
done

say "4/4  Summing the partial images"
# Elapsed seconds, tasks, and megabytes and inputs from local stores, peers and persistent storage.
figures() {
    awk -F , 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        { for (name in at) sum[name] += $at[name]; elapsed = $at["at_us"] / 1e6 }
        END { print elapsed, sum["ended_tasks"],
            sum["local_bytes"] / 1e6, sum["peer_bytes"] / 1e6, sum["persistent_bytes"] / 1e6,
            sum["local_inputs"], sum["peer_inputs"], sum["persistent_inputs"] }' "$1"
}
troubles=0
trouble() { printf 'demo: %s\n' "$*" >&2; troubles=$((troubles + 1)); }
{
    printf '%8s %6s | %7s %7s %7s | %6s %6s %6s | %7s %7s %7s | %6s %7s | %s\n' locality policy time tasks/s speedup \
        local peer storage local peer storage ideal reached S/N
    printf '%8s %6s | %7s %7s %7s | %6s %6s %6s | %7s %7s %7s | %6s %7s |\n' '' '' s '' '' 'hits %' 'hits %' 'reads%' \
        MB MB MB 'hits %' '%'
} >"$out/table.txt"
for locality in "${localities[@]}"; do
    survey=$out/survey-$locality
    frames=$(find "$survey/frames" -type f | wc -l)
    for policy in fa gcc; do
        name=$locality-$policy
        sum=$("$bin/stack" --sum "$out/partials-$name" --out "$out/stacked-$name.fits" --png "$out/stacked-$name.png")
        noise=$(field signal_to_noise <<<"$sum")
        read -r time tasks mb_local mb_peer mb_storage local peer storage < <(figures "$out/report-$name.csv")
        [ "$policy" != fa ] || fa_time=$time
        awk -v locality="$locality" -v policy="$policy" -v time="$time" -v tasks="$tasks" -v base="$fa_time" \
            -v frames="$frames" -v l="$local" -v p="$peer" -v s="$storage" -v ml="$mb_local" -v mp="$mb_peer" \
            -v ms="$mb_storage" -v noise="$noise" 'BEGIN {
                reads = l + p + s; ideal = 1 - frames / tasks
                reached = policy == "fa" ? "-" : sprintf("%.1f", 100 * (l + p) / reads / ideal)
                printf "%8s %6s | %7.2f %7.1f %7.2f | %6.1f %6.1f %6.1f | %7.1f %7.1f %7.1f | %6.1f %7s | %.1f\n",
                    locality, toupper(policy), time, tasks / time, base / time, 100 * l / reads, 100 * p / reads,
                    100 * s / reads, ml, mp, ms, 100 * ideal, reached, noise
            }' >>"$out/table.txt"
        is "$noise" '>=' "$seen" || trouble "locality $locality under $policy: the source is not seen (S/N $noise)"
        expected=$(wc -l <"$survey/tasks.csv")
        [ "$(field stacked <<<"$sum")" = "$expected" ] ||
            trouble "locality $locality under $policy: not all are stacked"
    done
    cmp "$out/stacked-$locality-fa.fits" "$out/stacked-$locality-gcc.fits" ||
        trouble "locality $locality: the policies gave different images"
done

last=${localities[-1]}
# The first object alone, for comparison, and the same number of places without an object.
IFS=, read -r frame ra dec <"$out/survey-$last/tasks.csv"
"$bin/stack" --object "$ra,$dec" "$out/survey-$last/$frame" --out "$out/single.fits" >"$out/partials-single.log"
single=$("$bin/stack" --sum "$out/single.fits" --out "$out/single-mean.fits" --png "$out/single.png" |
    field signal_to_noise)
"$bin/stack" --list "$out/survey-$last/control.csv" "$out/survey-$last"/frames/* --out "$out/stacked-control.fits" \
    >"$out/partials-control.log"
empty=$("$bin/stack" --sum "$out/stacked-control.fits" --out "$out/stacked-control-mean.fits" \
    --png "$out/stacked-control.png" | field signal_to_noise)
is "$empty" '<' "$seen" || trouble "empty sky has a source (S/N $empty)"
cp "$out/stacked-$last-gcc.png" "$out/stacked.png"
rm -rf "$out/home"

echo
cat "$out/table.txt"
cat <<END

hits: reads that did not go to shared storage. FA caches nothing and always reads there; GCC should read each frame
from there once, so that the ideal is 1 - frames / tasks, and "reached" is how much of it local and peer hits make up.
speedup: against FA at the same locality. S/N: of the stacked source; of one frame alone it is $single, of empty
sky $empty.

Images:   $out/stacked.png (and one frame alone: $out/single.png)
Reports:  $out/report-*.html (open in a browser; the same as .csv beside them)
Table:    $out/table.txt
Time:     $((SECONDS - began)) s, $built s of them for building
END
[ "$troubles" = 0 ] || fail "$troubles of its checks failed"
echo 'demo: both policies gave the same images, bit for bit; the source is seen, empty sky is empty'
