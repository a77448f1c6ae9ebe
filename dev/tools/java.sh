#!/usr/bin/env bash
# Tests the Java packages on a cluster of two nodes that it starts, or builds their jars.
#
#     java.sh test [MAVEN ARGUMENT...]    the packages' own tests
#     java.sh contract                    Hadoop's suites; dev/judges/hadoop.sh judges the results
#     java.sh spark COMMAND...            a command on the cluster, with the jars for Spark in EYAS_JARS
#     java.sh package                     jars with the native part of EYAS_BIN's build; prints their paths
#     java.sh jar                         eyas.jar, eyas-hadoop.jar and eyas-spark.jar in target/java, from a
#                                         release build
#
# Needs a JDK from 17 on, Maven, and the packages that Maven gets. Where one is missing, the tests are skipped, which is
# said; with CI=true, that is a failure.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
eyas=$(realpath -m "${EYAS_BIN:-$target/debug/eyas}")

skip() { echo "SKIPPED: the Java packages: $*" >&2; [ -z "${CI:-}" ] && [ "$what" != jar ] || exit 1; exit 0; }

what=${1:-}

command -v javac >/dev/null || skip "there is no JDK: install openjdk-17-jdk-headless"
command -v mvn >/dev/null || skip "there is no Maven: install maven"
version=$(javac -version 2>&1 | sed 's/^javac \([0-9]*\).*/\1/')
[ "$version" -ge 17 ] || skip "Java is $version, and has to be 17 or later"

# Runs Maven. If it cannot get a package, that is no failure of a test.
maven() {
    mkdir -p "$target/java"
    local log=$target/java/maven.log code=0
    mvn -q -B --no-transfer-progress -f doors/java/pom.xml "-Deyas.target=$target" "$@" 2>&1 | tee "$log" || code=$?
    if [ $code != 0 ] && grep -qE 'Could not (resolve|transfer)|Non-resolvable' "$log"; then
        skip "Maven cannot get a package: $log says which"
    fi
    return $code
}

native() {
    doors/java/native.sh "$1" "$target/java/native/io/eyas/native/linux-x86-64/libeyas_jni.so"
}

# A cluster for tests, and the native part from the same build.
cluster() {
    place=$(mktemp -d)
    export EYAS_HOME=$place/home TMPDIR=$place
    unset EYAS_CLUSTER EYAS_ACCESS
    trap '"$eyas" stop >/dev/null 2>&1 || true; rm -rf "$place"' EXIT
    native "$(dirname "$eyas")/libeyas_capi.a"
    "$eyas" start local --nodes 2 --dfs --detach --cluster default
}

# The jars, which are copied from the modules.
jars() {
    maven package -Pspark -DskipTests
    for package in eyas eyas-hadoop eyas-spark; do
        cp "$target/java/$package/$package"-[0-9]*.jar "$target/java/$package.jar"
        echo "$target/java/$package.jar"
    done
}

case $what in
test)
    shift
    cluster
    maven verify "-DargLine=-Xcheck:jni -Djava.io.tmpdir=$place" "$@"
    ;;
contract)
    rm -rf "$target/java/eyas-contract/surefire-reports"
    cluster
    maven verify -Pjudge '-Dtest=io/eyas/contract/*Test' -Dsurefire.failIfNoSpecifiedTests=false \
        -Dmaven.test.failure.ignore=true "-DargLine=-Djava.io.tmpdir=$place" >/dev/null ||
        { tail -n 30 "$target/java/maven.log"; exit 1; }
    ;;
spark)
    shift
    cluster
    jars
    java=$target/java
    EYAS_BIN=$eyas EYAS_JARS=$java/eyas.jar,$java/eyas-hadoop.jar,$java/eyas-spark.jar "$@"
    ;;
package)
    # `contract` may run at the same time.
    target=$target/packaged
    native "$(dirname "$eyas")/libeyas_capi.a"
    maven package -DskipTests >/dev/null || { tail -n 30 "$target/java/maven.log" >&2; exit 1; }
    ls "$target"/java/eyas/eyas-[0-9]*.jar "$target"/java/eyas-hadoop/eyas-hadoop-[0-9]*.jar
    ;;
jar)
    "${CARGO:-cargo}" build --locked --release -p eyas-capi
    native "$target/release/libeyas_capi.a"
    jars
    ;;
*)
    sed -n '4,9s/^# *//p' "$0" >&2
    exit 2
    ;;
esac
