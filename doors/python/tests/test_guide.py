"""The programs in documents work as shown."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]


def programs(page):
    """The blocks of a page that are programs. One whose first line is the name of a file (`# a.py`)
    is a file for the page's commands, which the end-to-end tests run.
    """
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [block for block in blocks if not re.match(r"# \S+\n", block)]


PAGES = [page for page in ROOT.glob("**/*.md") if "target" not in page.parts and programs(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_programs_of_a_page_work(page, tmp_path):
    for number, block in enumerate(programs(page)):
        program = tmp_path / f"program{number}.py"
        program.write_text(block)
        done = subprocess.run(
            [sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, ""), f"{block}\n{done.stdout}{done.stderr}"
        assert done.stdout


def test_there_are_pages_with_programs():
    assert {"docs/guides/python.md", "doors/python/README.md"} <= {
        str(page.relative_to(ROOT)) for page in PAGES
    }
