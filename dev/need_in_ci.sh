#!/usr/bin/env bash
# In CI (`CI` is set) no test is skipped for lack of a program: installs those that some tests need. Elsewhere such a test
# says that it was skipped, and why.
set -euo pipefail
[ -n "${CI:-}" ] || exit 0
command -v blastp >/dev/null && exit 0
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ncbi-blast+
