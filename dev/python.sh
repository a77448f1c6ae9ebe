#!/usr/bin/env bash
# Prints the path of a Python interpreter, 3.11 or later. With the name of a module, of one that has it.
set -euo pipefail
module=${1:-venv}
for found in python3 python3.{11..14} ~/.pyenv/versions/*/bin/python3; do
    path=$(command -v "$found") || continue
    "$path" - "$module" 2>/dev/null <<'PYTHON' || continue
import importlib.util, sys
sys.exit(sys.version_info < (3, 11) or importlib.util.find_spec(sys.argv[1]) is None)
PYTHON
    echo "$path"
    exit 0
done
echo "no Python 3.11 or later with the module $module was found" >&2
exit 1
