"""The tutorial is a notebook: it runs from its first cell to its last, and shows what it says it shows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.ipynb"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The outputs of all code cells."""
    notebook = nbformat.read(TUTORIAL, as_version=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))))
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        patch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path_factory.mktemp("jupyter")))
        client = nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(ROOT)}})
        client.execute()
    return [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.filterwarnings("ignore")  # of the kernel's own libraries
def test_every_cell_runs_and_the_answers_are_shown(shown: list[Any]) -> None:
    assert all(output.output_type != "error" for outputs in shown for output in outputs)
    pages = [
        output.data["text/html"]
        for outputs in shown
        for output in outputs
        if "text/html" in output.get("data", {})
    ]
    answer, frame, service = pages
    assert "What takes the best plan&#39;s time" in answer
    assert ".py:15" in answer  # the line of the cell that runs them
    assert "gpu_time_s" in frame
    assert "a month" in service


def test_the_notebook_is_kept_without_outputs() -> None:
    cells = nbformat.read(TUTORIAL, as_version=4).cells
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)
