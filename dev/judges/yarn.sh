#!/usr/bin/env bash
# Hadoop's own programs on a real YARN, whose file system is a cluster of two nodes (`eyas://`). Needs a JDK from 17 on,
# Maven, and a built eyas (EYAS_BIN). Words are names of checks of yarn.py; without one, all run.
set -euo pipefail
cd "$(dirname "$0")/../.."
jars=$(dev/tools/java.sh package)
# Without jars, java.sh has said why it was skipped.
[ -n "$jars" ] || exit 0
# shellcheck disable=SC2086  # Paths of two jars.
exec python3 dev/judges/yarn.py $jars "$@"
