#!/usr/bin/env bash
# Pools on a real Slurm, a real Grid Engine, a Kubernetes API server and a real sshd, which run on this machine. Needs
# root and a built eyas (EYAS_BIN); installs missing programs with apt-get. Skipped where that is not possible; with
# CI=true, that is a failure.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo=${CARGO:-cargo}

# Whether there is a program; otherwise installs the packages of Debian that have it.
have() {
    local program=$1
    shift
    [ -x "$(PATH=$PATH:/usr/sbin command -v "$program" || true)" ] && return
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; } \
        >/dev/null 2>&1
}

if [ "$(id -u)" = 0 ] && have slurmctld slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge &&
    have qconf gridengine-master gridengine-exec gridengine-client && have sshd openssh-server && have ip iproute2 &&
    have javac openjdk-17-jdk-headless && have mvn maven; then
    EYAS_BATCH_SYSTEMS=1 "$cargo" test --quiet --locked --workspace --test batch_systems -- --test-threads 2
else
    echo "SKIPPED: pools on real batch systems need root, Slurm, Grid Engine, sshd, a JDK and Maven" >&2
    [ -z "${CI:-}" ] || exit 1
fi
