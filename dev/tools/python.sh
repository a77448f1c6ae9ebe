#!/usr/bin/env bash
# Prints the path of a Python interpreter, 3.11 or later: the first one that has a module, by default `venv`.
#
#     dev/tools/python.sh [MODULE]   the first one
#     dev/tools/python.sh ends       the oldest and the newest final version of CPython, a path a line
set -euo pipefail
module=${1:-venv} ends=
if [ "$module" = ends ]; then
    module=venv ends=yes
fi

# Prints the version, unless the interpreter does not suit.
version_of() {
    "$1" - "$module" "$ends" 2>/dev/null <<'PYTHON'
import importlib.util, sys
if sys.version_info < (3, 11) or importlib.util.find_spec(sys.argv[1]) is None:
    sys.exit(1)
is_wanted = sys.implementation.name == "cpython" and sys.version_info.releaselevel == "final"
if sys.argv[2] and (not is_wanted or "t" in getattr(sys, "abiflags", "")):
    sys.exit(1)
print(".".join(map(str, sys.version_info[:3])))
PYTHON
}

known=()
for found in python3 python3.{11..30} ~/.pyenv/versions/*/bin/python3; do
    path=$(command -v "$found") || continue
    version=$(version_of "$path") || continue
    if [ -z "$ends" ]; then
        echo "$path"
        exit 0
    fi
    known+=("$version $path")
done
if [ ${#known[@]} = 0 ]; then
    echo "no Python 3.11 or later with the module $module was found" >&2
    exit 1
fi
printf '%s\n' "${known[@]}" | sort --version-sort --key=1,1 --unique | sed -n '1p; $p' | uniq | cut -d' ' -f2-
