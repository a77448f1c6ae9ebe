"""What pip and the interpreter see of the package, and how its modules hang together."""

import ast
import graphlib
import pathlib
import re
import subprocess
import sys

import pytest

PACKAGE = pathlib.Path(__file__).resolve().parents[1]
REFUSAL = "eyas does not run on free-threaded builds of CPython.*standard build"


def test_an_import_on_a_free_threaded_build_is_refused():
    """This interpreter says that it is such a build."""
    program = "import sys; sys.abiflags += 't'; import eyas"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert re.search(f"^ImportError: {REFUSAL}", done.stderr, re.MULTILINE), done.stderr


def test_a_build_on_a_free_threaded_build_is_refused_at_once(tmp_path):
    """Pip builds from sources where no wheel fits; here, the interpreter says that it is a
    free-threaded build.
    """
    (tmp_path / "sitecustomize.py").write_text(
        "import sysconfig\nsysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1\n"
    )
    words = [
        "wheel",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
        "--wheel-dir",
        str(tmp_path / "wheels"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words, str(PACKAGE)],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 1
    assert re.search(REFUSAL, done.stdout + done.stderr), done.stdout + done.stderr
    assert not (tmp_path / "wheels").exists() or not list((tmp_path / "wheels").iterdir())


def modules():
    """Return the modules of the packages: their names, and their files."""
    files = [
        file
        for top in ("eyas", *PACKAGE.glob("snakemake_*"))
        for file in (PACKAGE / top).rglob("*.py")
    ]
    return {
        ".".join(file.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): file
        for file in files
    }


def imports(name, file, known):
    """Return the modules that one imports anywhere: also in functions, and for the types alone."""
    package = name.split(".") if file.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{origin}.{alias.name}"
                yield inner if inner in known or inner == "eyas._eyas" else origin


def the_module(name):
    return name


def the_package(name):
    """Return the package below the top that a module is in, or the module itself if it is
    in none.
    """
    return ".".join(name.split(".")[:2])


@pytest.mark.parametrize("of", [the_module, the_package])
def test_imports_make_no_circle(of):
    known = modules()
    graph = {of(name): set() for name in known}
    for name, file in known.items():
        graph[of(name)] |= {of(other) for other in imports(name, file, known) if other in known} - {
            of(name)
        }
    assert "eyas._eyas" not in graph and len(graph["eyas"]) > 3, "the graph is that of the packages"
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        raise AssertionError(
            f"each of these imports the one before it: {', '.join(error.args[1])}"
        ) from None


def test_workers_import_nothing_that_environments_lack():
    known = modules()
    needed = [name for name in known if the_package(name) == "eyas._worker"]
    assert len(needed) > 5
    others = {
        other
        for name in needed
        for other in imports(name, known[name], known)
        if other.startswith("eyas")
    }
    assert others <= {*needed}
