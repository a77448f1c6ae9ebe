#!/usr/bin/env bash
# Hadoop's own suites of a FileSystem, on the files of a cluster of two nodes (`eyas://`). Needs a JDK from 17 on,
# Maven, and a built eyas (EYAS_BIN). Prints a table of verdicts. Fails on each failure and skip that
# dev/judges/hadoop_excluded.txt does not list, and on each row of that list that no test needs.
set -euo pipefail
cd "$(dirname "$0")/../.."
reports=$(realpath -m "${CARGO_TARGET_DIR:-target}")/java/eyas-contract/surefire-reports
dev/tools/java.sh contract
# Without reports, java.sh has said why it was skipped.
[ -d "$reports" ] || exit 0
python3 dev/judges/hadoop_verdicts.py "$reports" dev/judges/hadoop_excluded.txt
