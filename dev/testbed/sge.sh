#!/bin/bash
# sge.sh up [-n NODES] [-c CPUS] FOLDER | exec FOLDER COMMAND... | down FOLDER
#
# Starts a real Grid Engine with several nodes on this machine, without systemd, and ends it. Needs root and the
# packages gridengine-master, gridengine-exec, gridengine-client and iproute2. Each node, and the head with the queue
# master, has a host name and an address of its own: namespaces of the network, the host name and mounts, joined by a
# bridge in the namespace of the head. No packet leaves the machine. `exec` runs a command on the head, where qsub and
# the others work. Configuration, logs and state are in FOLDER.
set -euo pipefail
. "$(dirname "$0")/batch_options.sh"

BIN=/usr/lib/gridengine
NETWORK=198.18.7

usage() {
    fail "usage: sge.sh up [-n NODES] [-c CPUS] FOLDER | sge.sh exec FOLDER COMMAND... | sge.sh down FOLDER"
}

# Runs a command in the namespaces of a host.
on() {
    local folder=$1 host=$2
    shift 2
    nsenter --target "$(cat "$folder/host.$host.pid")" --net --uts --mount --wdns="$PWD" -- \
        env SGE_ROOT="$folder" SGE_CELL=default SGE_QMASTER_PORT=6444 SGE_EXECD_PORT=6445 "$@"
}

# Starts a daemon on a host.
daemon() {
    local folder=$1 host=$2 name=$3
    shift 3
    on "$folder" "$host" setsid env SGE_ND=1 "$@" >"$folder/log/$host.$name" 2>&1 </dev/null &
    echo $! >"$folder/daemon.$host.pid"
}

# Makes the namespaces of a host. They exist as long as the process that is started here.
host() {
    local folder=$1 name=$2 address=$3
    unshare --net --uts --mount --propagation private bash -c '
        hostname "$1" && ip link set lo up && mount --bind "$2" /etc/hosts && exec sleep infinity
    ' bash "$name" "$folder/hosts" >/dev/null 2>&1 </dev/null &
    local id=$!
    echo $id >"$folder/host.$name.pid"
    for _ in $(seq 100); do
        [ "$(nsenter --target $id --uts hostname 2>/dev/null)" = "$name" ] &&
            cmp -s "$folder/hosts" "/proc/$id/root/etc/hosts" && break
        sleep 0.05
    done
    if [ "$name" = head ]; then
        on "$folder" head ip link add bridge type bridge
        on "$folder" head ip address add "$address/24" dev bridge
        on "$folder" head ip link set bridge up
    else
        on "$folder" head ip link add "to-$name" type veth peer name eth0 netns "$id"
        on "$folder" head ip link set "to-$name" master bridge up
        on "$folder" "$name" ip address add "$address/24" dev eth0
        on "$folder" "$name" ip link set eth0 up
    fi
}

down() {
    local folder=$1 file id
    # Jobs are in the namespaces of the nodes: all processes there are ended.
    for file in "$folder"/host.*.pid; do
        [ -s "$file" ] || continue
        id=$(cat "$file")
        local space
        space=$(readlink "/proc/$id/ns/uts" 2>/dev/null || true)
        [ -n "$space" ] || continue
        local other
        for other in /proc/[0-9]*; do
            if [ "$(readlink "$other/ns/uts" 2>/dev/null || true)" = "$space" ]; then
                kill -KILL "${other#/proc/}" 2>/dev/null || true
            fi
        done
    done
    rm -f "$folder"/host.*.pid "$folder"/daemon.*.pid
}

queue() {
    local slots=$1
    cat <<QUEUE
qname main.q
hostlist @allhosts
seq_no 0
load_thresholds NONE
suspend_thresholds NONE
nsuspend 1
suspend_interval 00:05:00
priority 0
min_cpu_interval 00:05:00
processors UNDEFINED
qtype BATCH INTERACTIVE
ckpt_list NONE
pe_list nodes
rerun TRUE
slots $slots
tmpdir /tmp
shell /bin/sh
prolog NONE
epilog NONE
shell_start_mode unix_behavior
starter_method NONE
suspend_method NONE
resume_method NONE
terminate_method NONE
notify 00:00:05
owner_list NONE
user_lists NONE
xuser_lists NONE
subordinate_list NONE
complex_values NONE
projects NONE
xprojects NONE
calendar NONE
initial_state default
QUEUE
    local limit
    for limit in rt cpu fsize data stack core rss vmem; do
        echo "s_$limit INFINITY"
        echo "h_$limit INFINITY"
    done
}

# A parallel environment that gives one slot on each node, which requests for several nodes need.
parallel_environment() {
    cat <<PE
pe_name nodes
slots 999
user_lists NONE
xuser_lists NONE
start_proc_args /bin/true
stop_proc_args /bin/true
allocation_rule 1
control_slaves TRUE
job_is_first_task TRUE
urgency_slots min
accounting_summary FALSE
qsort_args NONE
PE
}

configure() {
    local folder=$1 nodes=$2 slots=$3 i
    on "$folder" head qconf -as head
    {
        echo "group_name @allhosts"
        echo "hostlist $(for i in $(seq "$nodes"); do printf 'n%s ' "$i"; done)"
    } >"$folder/hosts.group"
    for i in $(seq "$nodes"); do
        on "$folder" head qconf -ah "n$i"
        {
            echo "hostname n$i"
            for i in load_scaling complex_values user_lists xuser_lists projects xprojects usage_scaling \
                report_variables; do
                echo "$i NONE"
            done
        } >"$folder/host"
        on "$folder" head qconf -Ae "$folder/host"
    done
    on "$folder" head qconf -Ahgrp "$folder/hosts.group"
    parallel_environment >"$folder/pe"
    on "$folder" head qconf -Ap "$folder/pe"
    queue "$slots" >"$folder/queue"
    on "$folder" head qconf -Aq "$folder/queue"
    # The scheduler runs each second and after each submission, instead of every 15 s.
    on "$folder" head qconf -ssconf | sed 's/^schedule_interval.*/schedule_interval 0:0:1/
        s/^flush_submit_sec.*/flush_submit_sec 1/
        s/^flush_finish_sec.*/flush_finish_sec 1/
        s/^job_load_adjustments.*/job_load_adjustments NONE/
        s/^load_adjustment_decay_time.*/load_adjustment_decay_time 0:0:0/' >"$folder/scheduler"
    on "$folder" head qconf -Msconf "$folder/scheduler"
}

# Calls a command every 0.1 s until it succeeds; fails after 30 s.
wait_for() {
    local what=$1 folder=$2
    shift 2
    for _ in $(seq 300); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.1
    done
    tail -n 5 "$folder"/log/* "$folder"/spool/qmaster/messages >&2 || true
    down "$folder"
    fail "$what within 30 s"
}

has_nodes() {
    [ "$(on "$1" head qstat -f | awk '/^main.q@/ && NF == 5' | wc -l)" = "$2" ]
}

up() {
    local nodes cpus folder i
    read_options "$@"
    [ -x $BIN/sge_qmaster ] && [ -x $BIN/sge_execd ] && command -v qsub qconf >/dev/null ||
        fail "gridengine-master, gridengine-exec or gridengine-client is not installed"
    down "$folder"
    rm -rf "$folder"/{default,spool,log,bin,lib,util,utilbin}
    mkdir -p "$folder"/{default/common,spool/qmaster/job_scripts,spool/spooldb,spool/execd,log}
    for i in bin lib util utilbin; do
        ln -s "/var/lib/gridengine/$i" "$folder/$i"
    done
    sed "s#/var/spool/gridengine#$folder/spool#; s#^admin_user.*#admin_user root#" \
        /usr/share/gridengine/default-bootstrap >"$folder/default/common/bootstrap"
    echo head >"$folder/default/common/act_qmaster"
    {
        echo "127.0.0.1 localhost"
        echo "$NETWORK.1 head"
        for i in $(seq "$nodes"); do
            echo "$NETWORK.$((i + 1)) n$i"
        done
    } >"$folder/hosts"
    host "$folder" head "$NETWORK.1"
    for i in $(seq "$nodes"); do
        host "$folder" "n$i" "$NETWORK.$((i + 1))"
    done
    sed "s#^execd_spool_dir.*#execd_spool_dir $folder/spool/execd#; s#^min_uid.*#min_uid 0#; s#^min_gid.*#min_gid 0#" \
        /usr/share/gridengine/default-configuration >"$folder/configuration"
    {
        on "$folder" head $BIN/spoolinit berkeleydb libspoolb "$folder/spool/spooldb" init
        on "$folder" head $BIN/spooldefaults configuration "$folder/configuration"
        on "$folder" head $BIN/spooldefaults complexes /usr/share/gridengine/util/resources/centry
        on "$folder" head $BIN/spooldefaults usersets /usr/share/gridengine/util/resources/usersets
        on "$folder" head $BIN/spooldefaults managers root
    } >"$folder/log/init" 2>&1 || fail "the queue master cannot be set up: $(tail -n 3 "$folder/log/init")"
    daemon "$folder" head qmaster $BIN/sge_qmaster
    wait_for "the queue master did not answer" "$folder" on "$folder" head qconf -sh
    configure "$folder" "$nodes" "$cpus" >>"$folder/log/init" 2>&1 ||
        fail "the queue cannot be made: $(tail -n 3 "$folder/log/init")"
    for i in $(seq "$nodes"); do
        daemon "$folder" "n$i" execd $BIN/sge_execd
    done
    wait_for "the nodes did not come up" "$folder" has_nodes "$folder" "$nodes"
    echo "$0 exec $folder qsub ..."
}

case ${1:-},$# in
up,*) up "${@:2}" ;;
exec,[3-9] | exec,[1-9][0-9]*) on "$(cd "$2" && pwd)" head "${@:3}" ;;
down,2) down "$2" ;;
*) usage ;;
esac
