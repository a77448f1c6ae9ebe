#!/usr/bin/env bash
# Pools on a real Slurm, a real Grid Engine, a Kubernetes API server and a real sshd, which run on this machine. Needs
# root, a built eyas (EYAS_BIN), and the packages that `dev/judges/judges.toml` lists. Skipped where something is
# missing; with CI=true, that is a failure.
set -euo pipefail
cd "$(dirname "$0")/../.."
PATH=$PATH:/usr/sbin
missing=()
[ "$(id -u)" = 0 ] || missing+=(root)
for program in slurmctld qconf sshd ip javac mvn; do
    command -v "$program" >/dev/null || missing+=("$program")
done
if [ ${#missing[@]} -gt 0 ]; then
    echo "SKIPPED: pools on real batch systems need ${missing[*]}" >&2
    [ -z "${CI:-}" ] || exit 1
    exit 0
fi
EYAS_BATCH_SYSTEMS=1 "${CARGO:-cargo}" test --quiet --locked --workspace --test batch_systems -- --test-threads 2
