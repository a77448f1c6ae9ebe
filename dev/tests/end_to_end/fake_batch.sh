#!/bin/sh
# Answers as PBS, Grid Engine, Slurm and HTCondor do, under the names of their programs; jobs are processes on this
# machine. A job is a folder in $FAKE_BATCH with the id of its process and its name. Jobs are granted at once.
set -eu

# Starts a script as the next job, with the name in $name. Prints its number.
start() {
    number=1
    until mkdir "$FAKE_BATCH/$number" 2>/dev/null; do number=$((number + 1)); done
    echo "$name" >"$FAKE_BATCH/$number/name"
    PBS_JOBID=$number.head EYAS_NODE=${4:-0} setsid /bin/sh "$1" >>"$2" 2>>"$3" </dev/null &
    echo $! >"$FAKE_BATCH/$number/process"
    echo "$number"
}

# Prints what a submission answers. After the job has begun, the file $FAKE_BATCH.fault says what goes wrong: `banner`
# is a line after the answer, `lost` is a lost connection, and with `hang` there is no answer while the file is there.
answer() {
    case $(cat "$FAKE_BATCH.fault" 2>/dev/null) in
    banner) echo "$1" && echo 'This cluster is closed on Monday.' ;;
    lost) echo 'Socket timed out on send/recv operation' >&2 && exit 1 ;;
    hang) while [ -e "$FAKE_BATCH.fault" ]; do sleep 0.02; done && echo "$1" ;;
    *) echo "$1" ;;
    esac
}

# The numbers of the jobs that live, and those with a name.
living() {
    for folder in "$FAKE_BATCH"/*/; do
        id=$(basename "$folder")
        if lives "$id" && [ "${1:-$(cat "$folder/name")}" = "$(cat "$folder/name")" ]; then echo "$id"; fi
    done
}

lives() {
    [ -s "$FAKE_BATCH/$1/process" ] && grep -qv ') [ZX] ' "/proc/$(cat "$FAKE_BATCH/$1/process")/stat" 2>/dev/null
}

end() {
    lives "$1" && kill -TERM "-$(cat "$FAKE_BATCH/$1/process")" || true
}

# The value of a key in a submit description.
described() {
    sed -n "s/^$1 = //p" "$2" | tail -n 1
}

echo "$(basename "$0") $*" >>"$FAKE_BATCH.log"
case $(basename "$0") in
qsub)
    output=/dev/null error=/dev/null script='' name='' of=.head
    while [ $# -gt 0 ]; do
        case $1 in
        -o) output=$2 && shift ;;
        -e) error=$2 && shift ;;
        -N) name=$2 && shift ;;
        -wd) shift ;;
        -terse) of='' ;;
        -w) exit 0 ;;
        -q) [ "$2" != nowhere ] || { echo "qsub: Unknown queue" >&2; exit 170; } && shift ;;
        *) script=$1 ;;
        esac
        shift
    done
    [ -z "$of" ] || grep -q '^#PBS -l walltime=' "$script"
    answer "$(start "$script" "$output" "$error")$of"
    ;;
qselect)
    living "$2" | sed 's/$/.head/'
    ;;
qacct)
    ! lives "$2" && printf 'failed 0\nexit_status 0\n'
    ;;
sbatch)
    for word in "$@"; do
        case $word in
        --test-only) exit 0 ;;
        --output=*) output=${word#*=} ;;
        --error=*) error=${word#*=} ;;
        --job-name=*) name=${word#*=} ;;
        *) script=$word ;;
        esac
    done
    answer "$(start "$script" "$output" "$error")"
    ;;
squeue)
    for word in "$@"; do
        case $word in
        --name=*) living "${word#*=}" ;;
        --jobs=*)
            for id in $(echo "${word#*=}" | tr , ' '); do
                if lives "$id"; then echo "$id|RUNNING|here|None"; else echo "$id|COMPLETED|here|None"; fi
            done
            ;;
        esac
    done
    ;;
scancel)
    for id in "$@"; do end "$id"; done
    ;;
qstat)
    if [ "${1:-}" = -xml ]; then
        echo '<job_info><queue_info>'
        for id in $(living); do
            echo "<job_list state=\"running\"><JB_job_number>$id</JB_job_number>"
            echo "<JB_name>$(cat "$FAKE_BATCH/$id/name")</JB_name><state>r</state></job_list>"
        done
        echo '</queue_info></job_info>'
        exit 0
    fi
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
    name=$(described batch_name "$description")
    script=$(described arguments "$description" | tr -d "\"'")
    count=$(sed -n 's/^queue //p' "$description")
    for number in $(seq 0 $((count - 1))); do
        id=$(start "$script" "$(described output "$description")" "$(described error "$description")" "$number")
        [ "$number" != 0 ] || cluster=$id
        echo "$cluster" >"$FAKE_BATCH/$id/cluster"
    done
    answer "$cluster.0 - $cluster.$((count - 1))"
    ;;
condor_q | condor_history | condor_rm)
    separator='[' found=
    for folder in "$FAKE_BATCH"/*/; do
        id=$(basename "$folder")
        cluster=$(cat "$folder/cluster" 2>/dev/null) || continue
        case " $* " in *" $cluster "* | *"\"$(cat "$folder/name")\""*) ;; *) continue ;; esac
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
