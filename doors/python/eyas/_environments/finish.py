"""Finishes an unpacked environment: `finish.py FOLDER FINAL`, where FINAL is the path that FOLDER
gets then.

It is packed with each environment and run on nodes, by the interpreter of the environment, so it
needs the standard library alone. Paths of the client become those of the node in the files that
`prefixes.json` lists.
"""

from __future__ import annotations

import json
import os
import re
import sys


def replaced_in_text(content: bytes, old: bytes, new: bytes) -> bytes:
    """Return the text with another prefix."""
    return content.replace(old, new)


def replaced_in_binary(content: bytes, old: bytes, new: bytes, spare_bytes: int) -> bytes:
    """Return the bytes with another prefix in strings that end with a NUL byte, at the same places.

    conda has left ``spare_bytes`` for each prefix in a string, as NUL bytes after the string.
    """

    def replace(found: re.Match[bytes]) -> bytes:
        text, padding = found.group(1), found.group(2)
        spare = min(text.count(old) * spare_bytes, len(padding) - 1)
        changed = text.replace(old, new)
        missing = len(text) + spare - len(changed)
        if missing < 0:
            raise ValueError
        return changed + bytes(missing) + padding[spare:]

    return re.sub(b"(" + re.escape(old) + b"[^\0]*)(\0+)", replace, content)


def rewrite(folder: str, final: str) -> None:
    """Replace the prefix in all files that have it."""
    with open(os.path.join(folder, ".eyas", "prefixes.json"), encoding="utf-8") as file:
        prefixes = json.load(file)
    old, new = os.fsencode(prefixes["prefix"]), os.fsencode(final)
    for name, spare_bytes in prefixes["files"].items():
        path = os.path.join(folder, name)
        with open(path, "rb") as file:
            content = file.read()
        if spare_bytes is None:
            content = replaced_in_text(content, old, new)
        else:
            try:
                content = replaced_in_binary(content, old, new, spare_bytes)
            except ValueError:
                sys.exit(
                    f"{name} has its path {prefixes['prefix']} in binary code, where {final} is "
                    "too long: give the executor a folder with a shorter path"
                )
        mode = os.stat(path).st_mode
        os.chmod(path, mode | 0o200)
        with open(path, "wb") as file:
            file.write(content)
        os.chmod(path, mode)


def lead_to_interpreter(folder: str) -> None:
    """Have a virtual environment use the interpreter that runs this."""
    path = os.path.join(folder, "pyvenv.cfg")
    own = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    with open(path, encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file]
    kept = [
        line
        for line in lines
        if line.partition("=")[0].strip() not in ("home", "executable", "command")
    ]
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join([f"home = {os.path.dirname(own)}", *kept, ""]))
    for name in ("python", "python3", "python%d.%d" % sys.version_info[:2]):
        os.symlink(own, os.path.join(folder, "bin", name))


def main() -> None:
    """Finish the environment that the arguments name."""
    folder, final = sys.argv[1:]
    rewrite(folder, final)
    if os.path.exists(os.path.join(folder, "pyvenv.cfg")):
        lead_to_interpreter(folder)


if __name__ == "__main__":
    main()
