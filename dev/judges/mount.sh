#!/usr/bin/env bash
# Test suites of others on a mounted file system of three nodes: pjdfstest, fsx, fio, git, sqlite3 and stress-ng.
# docs/internals/mount.md lists what is excluded, and why. Needs root, /dev/fuse, a built eyas (EYAS_BIN), and the
# packages that `dev/judges/judges.toml` lists. Installs pjdfstest and fsx under target/. A suite that is missing is
# skipped; with CI=true, that is a failure. `--quick` takes a minute.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo=${CARGO:-cargo}
tools=$(realpath -m "${CARGO_TARGET_DIR:-target}/tools")
eyas=$(realpath "${EYAS_BIN:-target/debug/eyas}")
docs=$PWD/docs excluded=$PWD/dev/judges/excluded.txt
quick=${1:-}
operations=$([ -n "$quick" ] && echo 500 || echo 5000)
seconds=$([ -n "$quick" ] && echo 2 || echo 10)

skip() { echo "SKIPPED: $*" >&2; [ -z "${CI:-}" ] || exit 1; }

if [ "$(id -u)" != 0 ] || [ ! -e /dev/fuse ]; then
    skip "the judges of the mount need root and /dev/fuse"
    exit 0
fi

# Whether a program is there.
can_use() {
    command -v "$1" >/dev/null && return
    skip "$1 is missing"
    return 1
}

# Whether the program of a crate is there or can be installed.
can_build() {
    "$cargo" install --quiet --locked --root "$tools" --target-dir "$tools/build" "$1@$2" && return
    skip "$1 $2 cannot be installed"
    return 1
}

place=$(mktemp -d)
export EYAS_HOME=$place/home
end() {
    cd /
    umount "$place/mnt" 2>/dev/null || true
    "$eyas" stop >/dev/null 2>&1 || true
    rm -rf "$place"
}
trap end EXIT
mkdir "$place/mnt"
"$eyas" start local --nodes 3 --dfs --detach --cluster default
"$eyas" mount "$place/mnt" --detach --cluster default
mountpoint -q "$place/mnt"
chmod 755 "$place"
cd "$place/mnt"

if can_build pjdfstest 0.2.2; then
    echo '== pjdfstest'
    cat > "$place/pjdfstest.toml" <<'END'
[features]
posix_fallocate = {}
utime_now = {}
utimensat = {}
[settings]
# The kernel's clock for files is coarser than the clock of the mount.
naptime = 0.05
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"], ["bin", "bin"]]
END
    mkdir pjdfstest
    "$tools/bin/pjdfstest" -c "$place/pjdfstest.toml" -p "$place/mnt/pjdfstest" > "$place/judged" 2>&1 || true
    grep Summary "$place/judged"
    grep -vE '^(#|$)' "$excluded" > "$place/excluded"
    awk '$NF == "FAILED" { print $1 }' "$place/judged" | grep -vEf "$place/excluded" > "$place/wrong" || true
    if [ -s "$place/wrong" ]; then
        echo 'pjdfstest: these failures are not excluded:'
        grep -A3 -Ff "$place/wrong" "$place/judged"
        exit 1
    fi
fi

if can_build fsx 0.3.2; then
    echo '== fsx'
    for seed in 1 2; do
        (cd "$place" && "$tools/bin/fsx" -q -N $operations -S $seed -P "$place" "$place/mnt/fsx-$seed")
    done
fi

if can_use fio; then
    echo '== fio --verify'
    fio --name=verify --directory=. --size=16m --rw=randrw --bs=4k --verify=crc32c --end_fsync=1 --minimal >/dev/null
fi

if can_use git; then
    echo '== git'
    export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
    git init -q repository
    git -C repository commit -q --allow-empty -m one
    cp -r "$docs" repository/docs
    git -C repository add . && git -C repository commit -q -m two
    git -C repository fsck --strict && git -C repository gc -q && git clone -q repository copy
    diff -r repository/docs copy/docs
fi

if can_use sqlite3; then
    echo '== sqlite3'
    sqlite3 data.db 'create table t(a integer primary key, b text)'
    for number in $(seq 20); do sqlite3 data.db "insert into t(b) values(hex(randomblob($number * 100)))"; done
    [ "$(sqlite3 data.db 'pragma integrity_check; select count(*) from t')" = $'ok\n20' ]
fi

if can_use stress-ng; then
    echo '== stress-ng'
    for stressor in dentry dir rename symlink utime chmod flock lockf fallocate seek; do
        stress-ng --temp-path . --$stressor 2 --timeout $seconds --verify --quiet
    done
fi
