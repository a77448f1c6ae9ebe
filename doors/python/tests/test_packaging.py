"""What pip and the interpreter see of the package."""

import pathlib
import re
import subprocess
import sys

PACKAGE = pathlib.Path(__file__).resolve().parents[1]
REFUSAL = "eyas does not run on free-threaded builds of CPython.*standard build"


def test_an_import_on_a_free_threaded_build_is_refused():
    """This interpreter says that it is such a build."""
    program = "import sys; sys.abiflags += 't'; import eyas"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert re.search(f"^ImportError: {REFUSAL}", done.stderr, re.MULTILINE), done.stderr


def test_a_build_on_a_free_threaded_build_is_refused_at_once(tmp_path):
    """Pip builds from sources where no wheel fits; here, the interpreter says that it is a free-threaded build."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sysconfig\nsysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1\n"
    )
    words = ["wheel", "--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", str(tmp_path / "wheels")]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words, str(PACKAGE)],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 1
    assert re.search(REFUSAL, done.stdout + done.stderr), done.stdout + done.stderr
    assert not (tmp_path / "wheels").exists() or not list((tmp_path / "wheels").iterdir())
