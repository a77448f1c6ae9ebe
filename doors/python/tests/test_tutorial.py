"""The tutorial works, in a fresh kernel, and shows what it says."""

import pathlib
import re
import sys

import pytest

nbformat = pytest.importorskip(
    "nbformat", reason="the tutorial needs nbclient, ipykernel, pandas and matplotlib"
)
NOTEBOOK = pathlib.Path(__file__).resolve().parents[3] / "docs/tutorials/stacking.ipynb"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Run the notebook, and return the outputs of its cells: by kind, the contents."""
    from jupyter_client import KernelManager
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    # The interpreter of the tests, not one that is installed under the name.
    manager = KernelManager()
    manager.kernel_spec.argv[0] = sys.executable
    folder = str(tmp_path_factory.mktemp("tutorial"))
    client = NotebookClient(
        notebook, km=manager, timeout=120, resources={"metadata": {"path": folder}}
    )
    client.execute()
    found: dict[str, list[str]] = {}
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            assert output.output_type != "error"
            for kind, content in output.get(
                "data", {output.get("name"): output.get("text")}
            ).items():
                found.setdefault(kind, []).append(content)
    return found


def test_the_notebook_is_stored_without_outputs():
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in cells)


def test_the_source_is_seen_and_empty_sky_is_empty(outputs):
    told = dict(
        re.findall(r"^(.*): signal to noise (-?[\d.]+)$", "".join(outputs["stdout"]), re.MULTILINE)
    )
    assert set(told) == {"one region", "2,000 regions stacked", "as many random places"}
    assert float(told.pop("2,000 regions stacked")) > 5
    assert all(abs(float(value)) < 3 for value in told.values())
    assert "image/png" in outputs


def test_bars_and_reports_are_shown(outputs):
    shown = "".join(outputs["text/html"])
    assert "cutouts: 2,000 of 2,000" in shown and "empty sky: 2,000 of 2,000" in shown
    assert "4,000 succeeded" in shown
    assert outputs.get("stderr", []) == []


def test_shared_storage_gives_each_frame_once(outputs):
    assert "(40 inputs)" in re.sub(r"<[^>]*>", " ", "".join(outputs["text/html"]))
