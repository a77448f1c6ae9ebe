#!/bin/bash
# slurm.sh up [-n NODES] [-c CPUS] FOLDER | down FOLDER
#
# Starts a real Slurm with several nodes on this machine, without systemd, and ends it. Needs root and the packages
# slurmctld, slurmd, slurm-client, slurm-wlm-basic-plugins and munge. Keys, configuration, logs and state are in FOLDER.
# Ports are free ones, so several clusters can run at the same time.
#
# up prints the line that selects the cluster:  export SLURM_CONF=FOLDER/slurm.conf
# SLURM_SCHEDULER can have a further scheduler parameter, such as batch_sched_delay=0.
# All nodes run on this machine and share its processors: CPUS is what each node claims to have.
set -euo pipefail
. "$(dirname "$0")/batch_options.sh"

usage() {
    fail "usage: slurm.sh up [-n NODES] [-c CPUS] FOLDER | slurm.sh down FOLDER"
}

# Ends the process whose id is in a file, and waits for it.
end() {
    local file=$1 id
    [ -s "$file" ] || return 0
    id=$(cat "$file")
    kill "$id" 2>/dev/null || true
    for _ in $(seq 100); do
        [ -e "/proc/$id/stat" ] && ! grep -q ') Z' "/proc/$id/stat" || break
        sleep 0.1
    done
    kill -KILL "$id" 2>/dev/null || true
    rm -f "$file"
}

down() {
    local folder=$1
    if [ -f "$folder/slurmctld.pid" ]; then
        SLURM_CONF=$folder/slurm.conf timeout 10 scancel --user=root --full 2>/dev/null || true
    fi
    # All get the signal first, because each takes a while to end.
    local file
    for file in "$folder"/*.pid; do
        [ -s "$file" ] && kill "$(cat "$file")" 2>/dev/null || true
    done
    for file in "$folder"/slurmd.*.pid "$folder/slurmctld.pid" "$folder/munged.pid"; do
        end "$file"
    done
}

# Prints COUNT free ports.
free_ports() {
    python3 - "$1" <<'PYTHON'
import socket
import sys

sockets = [socket.socket() for _ in range(int(sys.argv[1]))]
for one in sockets:
    one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in sockets))
PYTHON
}

configuration() {
    local folder=$1 nodes=$2 cpus=$3 ports host
    read -ra ports <<<"$(free_ports $((nodes + 1)))"
    host=$(hostname)
    cat <<CONF
ClusterName=testbed
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$folder/munge.socket
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
SlurmctldPidFile=$folder/slurmctld.own.pid
SlurmdPidFile=$folder/slurmd.%n.own.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd.%n.log
# The nodes share the processors of this machine: no cgroups, no binding, and the sizes that are written here.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=5,sched_min_interval=20000${SLURM_SCHEDULER:+,$SLURM_SCHEDULER}
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=30
InactiveLimit=0
KillWait=2
MinJobAge=300
MaxJobCount=20000
MaxArraySize=10001
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2
PartitionName=short Nodes=ALL MaxTime=1 State=UP PriorityTier=1
PartitionName=long Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1
CONF
    local node
    for node in $(seq "$nodes"); do
        echo "NodeName=n$node NodeHostname=$host NodeAddr=127.0.0.1 Port=${ports[node]} CPUs=$cpus RealMemory=2000"
    done
}

up() {
    local nodes cpus folder command
    read_options "$@"
    for command in slurmctld slurmd sbatch munged python3; do
        [ -x "$(PATH=$PATH:/usr/sbin command -v "$command" || true)" ] || fail "$command is not installed"
    done
    PATH=$PATH:/usr/sbin
    down "$folder"
    rm -rf "$folder"/{state,spool}
    mkdir -p "$folder"/{state,spool,log}
    head -c 1024 /dev/urandom >"$folder/munge.key"
    chmod 400 "$folder/munge.key"
    configuration "$folder" "$nodes" "$cpus" >"$folder/slurm.conf"
    export SLURM_CONF=$folder/slurm.conf
    # The folder may belong to another user, or others may write to a folder above it, as in /tmp: --force allows that.
    munged --foreground --force --num-threads=2 --socket="$folder/munge.socket" --key-file="$folder/munge.key" \
        --pid-file="$folder/munged.own.pid" --log-file="$folder/log/munged.log" --seed-file="$folder/munge.seed" \
        >"$folder/log/munged.out" 2>&1 </dev/null &
    echo $! >"$folder/munged.pid"
    local i
    for i in $(seq 100); do
        munge --socket="$folder/munge.socket" --no-input >/dev/null 2>&1 && break
        sleep 0.1
    done
    setsid slurmctld -D -i >"$folder/log/slurmctld.out" 2>&1 </dev/null &
    echo $! >"$folder/slurmctld.pid"
    for i in $(seq "$nodes"); do
        setsid slurmd -D -N "n$i" >"$folder/log/slurmd.n$i.out" 2>&1 </dev/null &
        echo $! >"$folder/slurmd.n$i.pid"
    done
    local idle
    for i in $(seq 300); do
        idle=$(sinfo --noheader --partition=main --states=idle --format=%D 2>/dev/null || true)
        if [ "${idle:-0}" = "$nodes" ]; then
            echo "export SLURM_CONF=$SLURM_CONF"
            return
        fi
        sleep 0.1
    done
    sinfo --Node >&2 || true
    tail -n 3 "$folder"/log/* >&2
    down "$folder"
    fail "the nodes did not become idle within 30 s"
}

case ${1:-} in
up) up "${@:2}" ;;
down) [ $# = 2 ] && down "$2" || usage ;;
*) usage ;;
esac
