# Starts a worker in an environment: unpacks the archive if no worker of this node has, and becomes the worker.
# Arguments: the kind of the environment, its key, the build of Python that it needs (`cpython-311
# x86_64-linux-gnu`; empty if it has its own), an interpreter that may fit, the origin of the environment for messages,
# the folder of the client, and the path of the archive. Needs `tar`, `gzip` and `flock`.
#
# Standard input is the socket of the worker, which other programs must not read. Descriptor 9 stays open in the worker:
# its lock keeps others from removing the unpacked environment. Descriptor 8 is that of the worker that unpacks.
set -u
kind=$1 key=$2 build=$3 interpreter=$4 origin=$5 folder=$6 archive=$7
node=$(uname -n) here=$EYAS_NODE_FOLDER/environments
place=$here/$key made=

# Environments that a node keeps. The oldest ones that no worker uses go.
max_kept=8

fail() {
    [ -z "$made" ] || rm -rf "$made"
    printf 'eyas: environment: the environment %s cannot be used on %s: %s\n' "$origin" "$node" "$*" >&2
    exit 1
}

build_of() {
    code='import sys; print(sys.implementation.cache_tag + sys.abiflags, sys.implementation._multiarch)'
    "$1" -I -c "$code" </dev/null 2>/dev/null
}

# Sets `interpreter` to one that a virtual environment of the client can use.
find_interpreter() {
    version=${build#*-} version=${version%% *}
    minor=${version#?}
    found=
    for name in "$interpreter" "python${version%"$minor"}.$minor" python3 python /usr/bin/python3; do
        path=$(command -v "$name") || continue
        have=$(build_of "$path") || continue
        if [ "$have" = "$build" ]; then
            interpreter=$path
            return
        fi
        case $found in *"$have at $path"*) ;; *) found="$found${found:+, }$have at $path" ;; esac
    done
    fail "it is for $build, and the node has ${found:-no Python}: install that Python there (PATH of the executor is" \
        "$PATH), or use a conda prefix or an image, which have their own"
}

remove_old() {
    ls -t "$here" | grep '\.lock$' | tail -n "+$((max_kept + 1))" | while read -r lock; do
        # One that is killed meanwhile leaves no half of an environment under its name.
        flock -n "$here/$lock" sh -c 'mv "$1" "$1.old" && rm -rf "$1.old"' sh "$here/${lock%.lock}" 2>/dev/null
    done
}

unpack() {
    [ "$kind" != venv ] || find_interpreter
    # One that was killed may have left its part.
    rm -rf "$place.new" "$place.old"
    made=$place.new
    mkdir "$made" || fail "cannot make a folder in $here"
    why=$(tar -xf "$archive" -C "$place.new" 2>&1 </dev/null) ||
        fail "cannot unpack $archive: $(printf '%s' "$why" | head -n 3 | tr '\n' ' ')"
    [ "$kind" != conda ] || interpreter=$place.new/bin/python
    if [ "$kind" != image ]; then
        why=$("$interpreter" -I "$place.new/.eyas/finish.py" "$place.new" "$place" 2>&1 </dev/null) ||
            fail "cannot finish it: $(printf '%s' "$why" | tail -n 1)"
    fi
    mv "$made" "$place" || fail "cannot rename $made"
    made=
    remove_old
}

for tool in tar gzip flock; do
    command -v "$tool" >/dev/null || fail "there is no $tool: install it"
done
mkdir -p "$here" || fail "cannot make $here"
exec 9>>"$place.lock" || fail "cannot write to $here"
touch "$place.lock"
flock -s 9
if [ ! -d "$place" ]; then
    exec 8>>"$place.unpacking"
    flock 8
    # Another worker may have unpacked it meanwhile.
    [ -d "$place" ] || unpack
    exec 8>&-
fi

code="import sys; sys.path.insert(0, sys.argv.pop(1)); from eyas._worker.worker import main; main()"
library=$place/.eyas/lib
[ "$kind" = image ] || exec "$place/bin/python" -c "$code" "$library"

root=$place/root
[ -d "$folder" ] || folder=/
if [ -f "$place/image.sif" ]; then
    root=$place/image.sif
fi
for runner in apptainer singularity; do
    if command -v "$runner" >/dev/null; then
        exec "$runner" exec --bind "$EYAS_NODE_FOLDER" "$root" python3 -c "$code" "$library"
    fi
done
[ -d "$root" ] || fail "it is a SIF image, and there is neither apptainer nor singularity: install one of them"
command -v bwrap >/dev/null || fail "there is no apptainer, no singularity and no bwrap: install one of them"
set -- --bind "$root" / --proc /proc --dev-bind /dev /dev --bind /tmp /tmp
set -- "$@" --bind "$EYAS_NODE_FOLDER" "$EYAS_NODE_FOLDER"
[ "$folder" = / ] || set -- "$@" --bind "$folder" "$folder"
[ ! -f /etc/resolv.conf ] || [ ! -f "$root/etc/resolv.conf" ] || set -- "$@" --ro-bind /etc/resolv.conf /etc/resolv.conf
exec bwrap --die-with-parent "$@" --chdir / \
    --setenv PATH /usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin python3 -c "$code" "$library"
