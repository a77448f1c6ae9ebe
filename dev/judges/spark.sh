#!/usr/bin/env bash
# Jobs of a real Spark on files of a cluster of two nodes: over elastic blocks they give the same bytes as over splits,
# with speculation and with executors that are killed; Spark's own sources write and read `eyas://`. Needs a JDK from
# 17 on, Maven, Python 3.11 with venv, and a built eyas (EYAS_BIN). Skipped, which is said, where one of them, Maven
# Central or the package index is missing; with CI=true, that is a failure.
#
#     dev/judges/spark.sh [CHECK...]   the checks of dev/judges/spark_jobs.py with these names; without a name, all
set -euo pipefail
cd "$(dirname "$0")/../.."
place=$(realpath -m "${CARGO_TARGET_DIR:-target}")/spark

skip() { echo "SKIPPED: jobs of Spark: $*" >&2; [ -z "${CI:-}" ] || exit 1; exit 0; }

python=$(dev/tools/python.sh) || skip "there is no Python 3.11 with venv"
# The version of Spark that the source is compiled for.
version=$(sed -n 's:.*<spark\.version>\(.*\)</spark\.version>.*:\1:p' doors/java/spark/pom.xml)
fresh=$place/pyspark-$version/bin/python
# It is large, so it stays.
if ! "$fresh" -c 'import pyspark' 2>/dev/null; then
    rm -rf "$place/pyspark-$version"
    "$python" -m venv "$place/pyspark-$version"
    "$fresh" -m pip --disable-pip-version-check --quiet install "pyspark==$version" ||
        skip "pyspark $version cannot be installed"
fi
dev/tools/java.sh spark "$fresh" dev/judges/spark_jobs.py "$@"
