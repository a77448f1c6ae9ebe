#!/bin/bash
# kubernetes.sh build | up [-c CPUS] FOLDER | api FOLDER METHOD PATH | down FOLDER
#
# Starts a Kubernetes API server whose Pods are processes of this machine, and ends it: the mock server of the fabric8
# project with a small controller (kubernetes/). Needs a JDK 17 and Maven. The kubeconfig, logs and files of Pods are in
# FOLDER. The port is a free one, so several servers can run at the same time.
#
# up prints the line that selects the server:  export KUBECONFIG=FOLDER/kubeconfig
# api asks the server as an administrator, and prints the answer.
# The server has one node with CPUS processors, which no image limits: every image has the programs of this machine.
set -euo pipefail
here=$(cd "$(dirname "$0")/kubernetes" && pwd)
classes=${CARGO_TARGET_DIR:-$here/../../../target}/testbed/kubernetes

fail() {
    echo "kubernetes.sh: $*" >&2
    exit 1
}

usage() {
    fail "usage: kubernetes.sh build | up [-c CPUS] FOLDER | api FOLDER METHOD PATH | down FOLDER"
}

# Compiles the server, and fetches what it needs from Maven Central, if that was not done for this source.
build() {
    local stamp
    for command in java javac mvn; do
        command -v "$command" >/dev/null || fail "$command is not installed"
    done
    stamp=$(cat "$here/pom.xml" "$here"/src/main/java/*.java | sha256sum)
    mkdir -p "$classes"
    exec 9>"$classes/lock"
    flock 9
    if [ "$(cat "$classes/stamp" 2>/dev/null || true)" != "$stamp" ]; then
        mvn --quiet --batch-mode -f "$here/pom.xml" -DbuildDirectory="$(cd "$classes" && pwd)/build" \
            compile dependency:build-classpath -Dmdep.outputFile="$classes/classpath" >&2
        echo "$stamp" >"$classes/stamp"
    fi
    exec 9>&-
}

down() {
    local folder=$1 id
    [ -s "$folder/server.pid" ] || return 0
    id=$(cat "$folder/server.pid")
    kill "$id" 2>/dev/null || true
    for _ in $(seq 150); do
        [ -e "/proc/$id/stat" ] && ! grep -q ') Z' "/proc/$id/stat" || break
        sleep 0.1
    done
    kill -KILL "$id" 2>/dev/null || true
    rm -f "$folder/server.pid"
}

up() {
    local cpus=4 option folder
    OPTIND=1
    while getopts c: option; do
        case $option in
        c) cpus=$OPTARG ;;
        *) usage ;;
        esac
    done
    shift $((OPTIND - 1))
    [ $# = 1 ] || usage
    build
    mkdir -p "$1"
    folder=$(cd "$1" && pwd)
    down "$folder"
    rm -rf "$folder"/{kubeconfig,pods,tmp}
    mkdir -p "$folder"/{pods,tmp}
    setsid java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.io.tmpdir="$folder/tmp" \
        -cp "$classes/build/classes:$(cat "$classes/classpath")" KubernetesTestbed "$folder" "$cpus" \
        >"$folder/server.log" 2>&1 </dev/null &
    echo $! >"$folder/server.pid"
    for _ in $(seq 600); do
        if [ -s "$folder/kubeconfig" ]; then
            echo "export KUBECONFIG=$folder/kubeconfig"
            return
        fi
        sleep 0.1
    done
    tail -n 20 "$folder/server.log" >&2
    down "$folder"
    fail "the server was not ready within 60 s"
}

api() {
    python3 - "$@" <<'PYTHON'
import base64
import re
import ssl
import sys
import urllib.request

folder, method, path = sys.argv[1:]
with open(folder + "/kubeconfig") as file:
    kubeconfig = file.read()
server = re.search("server: (.*)", kubeconfig)[1]
authority = base64.b64decode(re.search("authority-data: (.*)", kubeconfig)[1]).decode()
request = urllib.request.Request(server + path, method=method)
with urllib.request.urlopen(request, context=ssl.create_default_context(cadata=authority)) as answer:
    sys.stdout.write(answer.read().decode())
PYTHON
}

case ${1:-} in
build) build ;;
up) up "${@:2}" ;;
api) [ $# = 4 ] && api "${@:2}" || usage ;;
down) [ $# = 2 ] && down "$2" || usage ;;
*) usage ;;
esac
