#!/usr/bin/env bash
# need_in_ci.sh [soak]
#
# In CI (`CI` is set) no test is skipped for lack of a program: installs those that some tests need. Elsewhere such a
# test says that it was skipped, and why.
set -euo pipefail
[ -n "${CI:-}" ] || exit 0
packages=()
if [ "${1:-}" = soak ]; then
    # For experiments that run in `make soak` alone.
    PATH=$PATH:/usr/sbin
    command -v slurmctld >/dev/null || packages+=(slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge)
fi
command -v blastp >/dev/null || packages+=(ncbi-blast+)
command -v ip >/dev/null || packages+=(iproute2)
command -v sqlite3 >/dev/null || packages+=(sqlite3)
command -v fio >/dev/null || packages+=(fio)
command -v sshfs >/dev/null || packages+=(sshfs)
[ -x /usr/lib/openssh/sftp-server ] || packages+=(openssh-sftp-server)
command -v zstd >/dev/null || packages+=(zstd)
command -v pkg-config >/dev/null || packages+=(pkg-config)
command -v c++ >/dev/null || packages+=(g++)
command -v javac >/dev/null || packages+=(openjdk-17-jdk-headless)
command -v mvn >/dev/null || packages+=(maven)
command -v mpiexec >/dev/null || packages+=(mpich libmpich-dev)
[ ${#packages[@]} -gt 0 ] || exit 0
echo "CI lacks ${packages[*]}: installing them"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}"
