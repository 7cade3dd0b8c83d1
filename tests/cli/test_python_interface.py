"""``from analyzer import analyze``."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import analyzer
from analyzer import AnalyzerError, analyze, load_report
from analyzer.api import analyze_record


@pytest.fixture
def proto() -> onnx.ModelProto:
    weight = onnx.numpy_helper.from_array(np.ones((64, 16), dtype=np.float32), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 16])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    graph = helper.make_graph(nodes, "tiny", [x], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_a_model_proto_is_analysed_and_left_as_it_was(proto: onnx.ModelProto) -> None:
    before = proto.SerializeToString(deterministic=True)
    analysis = analyze(proto, batch=8, run=False)
    assert analysis.totals.macs == 8 * 64 * 16
    assert proto.SerializeToString(deterministic=True) == before


def test_a_model_proto_is_run(proto: onnx.ModelProto) -> None:
    analysis = analyze(proto, batch=8, runs=3)
    assert analysis.plan("cpu").origin == "measured"


def test_a_path_is_from_the_folder_of_now_not_of_an_earlier_question(
    proto: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        onnx.save(proto, tmp_path / name / f"{name}.onnx")
        monkeypatch.chdir(tmp_path / name)
        assert analyze(f"{name}.onnx", run=False).model.source == f"{name}.onnx"


def test_a_module_is_analysed_with_its_inputs() -> None:
    import torch

    module = torch.nn.Linear(32, 8)
    module.train()
    analysis = analyze(module, inputs=torch.randn(4, 32), run=False)
    assert analysis.totals.macs == 4 * 32 * 8
    assert module.training


def test_an_analysis_saves_and_loads(proto: onnx.ModelProto, tmp_path: Path) -> None:
    analysis = analyze(proto, batch=8, run=False)
    paths = analysis.save(tmp_path)
    assert {path.suffix for path in paths} == {".html", ".json"}
    again = load_report(tmp_path / "tiny.json")
    assert again.to_dict() == analysis.to_dict()
    assert again.render("markdown") == analysis.render("markdown")


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"bacth": 3}, "Did you mean batch"),
        ({"Batch": 3}, "Did you mean batch"),
        ({"time-budget": 3}, "Did you mean time_budget"),
        ({"no_run": True}, "Write run=False"),
        ({"no_cache": True}, "Write cache=False"),
        ({"xyzzy": 3}, "It takes arg, batch, cache, check, cpu"),
    ],
)
def test_an_unknown_option_is_a_type_error_that_names_the_nearest(
    proto: onnx.ModelProto, given: dict[str, Any], hint: str
) -> None:
    with pytest.raises(TypeError, match=f"analyze.*{next(iter(given))}.*{hint}"):
        analyze(proto, **given)


def test_an_unknown_option_for_a_record_is_a_type_error_that_names_the_nearest(proto: onnx.ModelProto) -> None:
    analysis = analyze(proto, batch=8, run=False)
    with pytest.raises(TypeError, match=r"analyze_record.*presicion.*Did you mean precision"):
        analyze_record(analysis, presicion="fp16")
    with pytest.raises(TypeError, match=r"analyze_record.*'batch'"):
        analyze_record(analysis, batch=3)


def test_an_object_that_is_no_model_is_refused() -> None:
    with pytest.raises(AnalyzerError, match="no model"):
        analyze(3.5, run=False)  # type: ignore[arg-type]


def test_a_notebook_is_offered_the_public_names_and_no_others() -> None:
    """None is imported before it is used: without a ``__dir__`` of the package a notebook would offer none."""
    assert {name for name in dir(analyzer) if not name.startswith("_")} == {
        name for name in analyzer.__all__ if not name.startswith("_")
    }
