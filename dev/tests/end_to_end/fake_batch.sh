#!/bin/sh
# Answers as PBS and HTCondor do, under the names of their programs; jobs are processes on this machine. A job is a
# folder in $FAKE_BATCH with the id of its process. Jobs are granted at once, at most $FAKE_BATCH_NODES at a time.
set -eu

# Starts a script as the next job. Prints its number.
start() {
    number=1
    until mkdir "$FAKE_BATCH/$number" 2>/dev/null; do number=$((number + 1)); done
    PBS_JOBID=$number.head EYAS_NODE=${4:-0} setsid /bin/sh "$1" >>"$2" 2>>"$3" </dev/null &
    echo $! >"$FAKE_BATCH/$number/process"
    echo "$number"
}

lives() {
    [ -s "$FAKE_BATCH/$1/process" ] && grep -qv ') [ZX] ' "/proc/$(cat "$FAKE_BATCH/$1/process")/stat" 2>/dev/null
}

end() {
    lives "$1" && kill -TERM -- "-$(cat "$FAKE_BATCH/$1/process")" || true
}

# The value of a key in a submit description.
described() {
    sed -n "s/^$1 = //p" "$2" | tail -n 1
}

echo "$(basename "$0") $*" >>"$FAKE_BATCH.log"
case $(basename "$0") in
qsub)
    output=/dev/null error=/dev/null script=
    while [ $# -gt 0 ]; do
        case $1 in
        -o) output=$2 && shift ;;
        -e) error=$2 && shift ;;
        -q) [ "$2" != nowhere ] || { echo "qsub: Unknown queue" >&2; exit 170; } && shift ;;
        *) script=$1 ;;
        esac
        shift
    done
    grep -q '^#PBS -l walltime=' "$script"
    echo "$(start "$script" "$output" "$error").head"
    ;;
qstat)
    [ "${1:-}" != -Q ] || exit 0
    [ -z "${FAKE_BATCH_TEXT:-}" ] || [ "$1" != -x ] || { echo "qstat: invalid option -- 'x'" >&2; exit 2; }
    separator='' text=''
    for id in "$@"; do
        number=${id%.head}
        [ "$id" != "$number" ] || continue
        if lives "$number"; then state=R; else state=F; fi
        text="$text${separator}\"$id\": {\"job_state\": \"$state\", \"Exit_status\": 0}"
        separator=', '
        [ -z "${FAKE_BATCH_TEXT:-}" ] || printf 'Job Id: %s\n    job_state = %s\n\n' "$id" "$(echo $state | tr F C)"
    done
    [ -n "${FAKE_BATCH_TEXT:-}" ] || echo "{\"timestamp\": 1, \"pbs_version\": \"23.06.06\", \"Jobs\": {$text}}"
    ;;
qdel)
    for id in "$@"; do end "${id%.head}"; done
    ;;
condor_submit)
    [ "$1" != -dry-run ] || exit 0
    description=$2
    ! grep -q '^nonsense' "$description" || { echo "ERROR: nonsense" >&2; exit 1; }
    script=$(described arguments "$description" | tr -d "\"'")
    count=$(sed -n 's/^queue //p' "$description")
    for number in $(seq 0 $((count - 1))); do
        id=$(start "$script" "$(described output "$description")" "$(described error "$description")" "$number")
        [ "$number" != 0 ] || cluster=$id
        echo "$cluster" >"$FAKE_BATCH/$id/cluster"
    done
    echo "$cluster.0 - $cluster.$((count - 1))"
    ;;
condor_q | condor_history | condor_rm)
    separator='[' found=
    for folder in "$FAKE_BATCH"/*/; do
        id=$(basename "$folder")
        cluster=$(cat "$folder/cluster")
        case " $* " in *" $cluster "*) ;; *) continue ;; esac
        case $(basename "$0") in
        condor_rm) end "$id" && continue ;;
        condor_q) lives "$id" && status=2 || continue ;;
        *) ! lives "$id" && status=4 || continue ;;
        esac
        printf '%s{"ClusterId": %s, "ProcId": 0, "JobStatus": %s, "ExitCode": 0}' "$separator" "$cluster" "$status"
        separator=', ' found=1
    done
    [ -z "$found" ] || echo ']'
    ;;
esac
