#!/usr/bin/env bash
# Judges of the mount that others have written: pjdfstest, fsx, fio, git, sqlite3 and stress-ng on a mounted file system
# of three nodes. docs/internals/mount.md lists what is excluded, and why. Needs root, /dev/fuse, and a built eyas
# (EYAS_BIN). Installs pjdfstest and fsx under target/ the first time, and stress-ng, if root can. `--quick` takes a
# minute.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
tools=$(realpath -m "${CARGO_TARGET_DIR:-target}/tools")
eyas=$(realpath "${EYAS_BIN:-target/debug/eyas}")
quick=${1:-}
operations=$([ -n "$quick" ] && echo 500 || echo 5000)

skip() { echo "SKIPPED: $*" >&2; [ -z "${CI:-}" ] || exit 1; }

if [ "$(id -u)" != 0 ] || [ ! -e /dev/fuse ]; then
    skip "the judges of the mount need root and /dev/fuse"
    exit 0
fi
"$cargo" install --quiet --locked --root "$tools" --target-dir "$tools/build" pjdfstest@0.2.2 fsx@0.3.2
if ! command -v stress-ng >/dev/null; then
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends stress-ng; } \
        >/dev/null 2>&1 || skip "stress-ng cannot be installed"
fi

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
grep -vE '^(#|$)' "$OLDPWD/dev/judges_excluded.txt" > "$place/excluded"
grep FAILED "$place/judged" | awk '{ print $1 }' | grep -vEf "$place/excluded" > "$place/wrong" || true
if [ -s "$place/wrong" ]; then
    echo 'pjdfstest: these failures are not excluded:'
    cat "$place/wrong"
    exit 1
fi

echo '== fsx'
for seed in 1 2; do
    (cd "$place" && "$tools/bin/fsx" -q -N $operations -S $seed -P "$place" "$place/mnt/fsx-$seed")
done

echo '== fio --verify'
fio --name=verify --directory=. --size=16m --rw=randrw --bs=4k --verify=crc32c --end_fsync=1 --minimal >/dev/null

echo '== git'
git init -q repository
git -C repository -c user.email=a@b -c user.name=a commit -q --allow-empty -m one
cp -r "$OLDPWD/docs" repository/docs
git -C repository add . && git -C repository -c user.email=a@b -c user.name=a commit -q -m two
git -C repository fsck --strict && git -C repository gc -q && git clone -q repository copy
diff -r repository/docs copy/docs

echo '== sqlite3'
sqlite3 data.db 'create table t(a integer primary key, b text)'
for number in $(seq 20); do sqlite3 data.db "insert into t(b) values(hex(randomblob($number * 100)))"; done
[ "$(sqlite3 data.db 'pragma integrity_check; select count(*) from t')" = $'ok\n20' ]

if command -v stress-ng >/dev/null; then
    echo '== stress-ng'
    seconds=$([ -n "$quick" ] && echo 2 || echo 10)
    for stressor in dentry dir rename symlink utime chmod flock lockf fallocate seek; do
        stress-ng --temp-path . --$stressor 2 --timeout $seconds --verify --quiet
    done
fi
cd "$OLDPWD"
echo 'judges: all of them passed'
