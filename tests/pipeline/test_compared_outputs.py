"""Outputs that differ are looked at again with one thread."""

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from analyzer import analyze
from analyzer.graph import Graph
from analyzer.loading.onnx_graph.build import to_graph
from analyzer.measurement.tensor_files import save_tensors
from analyzer.pipeline.compared_outputs import agreement_rows, reducing_scatters, with_one_thread

INDICES = np.array([[0], [0], [2]])
UPDATES = np.array([[1, 2], [10, 20], [5, 6]], np.float32)
SUMS = np.array([[11, 22], [0, 0], [5, 6]], np.float32)  # of the rows that an index names, none for 1


def scattering(folder: Path, **attributes: Any) -> Graph:
    node = helper.make_node("ScatterND", ["data", "indices", "updates"], ["sums"], "scatter", **attributes)
    inputs = [
        helper.make_tensor_value_info("data", TensorProto.FLOAT, [3, 2]),
        helper.make_tensor_value_info("indices", TensorProto.INT64, [3, 1]),
        helper.make_tensor_value_info("updates", TensorProto.FLOAT, [3, 2]),
    ]
    output = helper.make_tensor_value_info("sums", TensorProto.FLOAT, [3, 2])
    graph = helper.make_graph([node], "g", inputs, [output])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(proto, folder / "model.onnx")
    save_tensors(
        folder / "feeds.npz", {"data": np.zeros((3, 2), np.float32), "indices": INDICES, "updates": UPDATES}
    )
    return to_graph(proto, bindings={})


@pytest.mark.parametrize(("expected", "agrees"), [(SUMS, True), (SUMS + 1, False)])
def test_a_run_that_lost_an_update_is_made_again_with_one_thread(
    tmp_path: Path, expected: Any, agrees: bool
) -> None:
    graph = scattering(tmp_path, reduction="add")
    lost = SUMS - np.array([[1, 2], [0, 0], [0, 0]], np.float32)
    rows = agreement_rows("PyTorch and ONNX Runtime", [expected], [("sums", lost)], session="cpu")
    assert [row["agrees"] for row in rows] == [False]
    assert with_one_thread(rows, [expected], graph, tmp_path, 1) == rows  # that was one
    (row,) = with_one_thread(rows, [expected], graph, tmp_path, 4)
    assert (row["one_thread_agrees"], row["threads"], row["reducing_scatters"]) == (agrees, 4, 1)
    assert row["max_abs_error"] == rows[0]["max_abs_error"]


def test_a_run_that_agrees_is_not_made_again(tmp_path: Path) -> None:
    graph = scattering(tmp_path, reduction="add")
    (tmp_path / "model.onnx").unlink()
    rows = agreement_rows("PyTorch and ONNX Runtime", [SUMS], [("sums", SUMS)], session="cpu")
    assert with_one_thread(rows, [SUMS], graph, tmp_path, 4) == rows


def test_a_scatter_that_replaces_has_no_updates_to_lose(tmp_path: Path) -> None:
    assert reducing_scatters(scattering(tmp_path)) == 0
    assert reducing_scatters(scattering(tmp_path, reduction="max")) == 1


def test_rows_beyond_a_table_name_the_inputs_and_what_to_write(tmp_path: Path) -> None:
    # Boxes whose ends are drawn apart: a width of less than 0 is no row of the 11.
    path = tmp_path / "boxes.py"
    path.write_text(
        textwrap.dedent("""
            import torch
            from torch import nn
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.widths = nn.Embedding(11, 4)
                def forward(self, box):
                    return self.widths(box[:, :, 1] - box[:, :, 0])
        """)
    )
    ask: dict[str, Any] = {"batch": 2, "gpu": "none", "runs": 1, "time_budget": 0.1}
    run = analyze(path, input="box=B,64,2:int64=0..10", **ask)
    (said,) = [text for text in run.environment.messages if "PyTorch could not run" in text]
    assert "its outputs were never checked" in said
    assert "A table of 11 rows was indexed with rows -" in said
    assert "The values of box are likely at fault" in said
    assert "--input box=B,64,2:int64=0)" in said
    # As it says.
    valid = analyze(path, input="box=B,64,2:int64=0", **ask)
    assert not any("PyTorch could not run" in text for text in valid.environment.messages)
    assert valid.environment.measurement["agreement"]
