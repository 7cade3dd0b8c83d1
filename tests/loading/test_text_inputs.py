"""Inputs of strings are filled with texts that the graph knows or the user gives, and the model is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from analyzer import analyze, apply_plan
from analyzer.errors import InputError, UsageError
from analyzer.loading.load import load
from analyzer.loading.loaded import Loaded
from analyzer.loading.model_reference import parse_reference
from analyzer.loading.python.input_spec import parse_input
from analyzer.loading.weights import materialise

ML = "ai.onnx.ml"
SEXES, PORTS = ["f", "m"], ["C", "Q", "S"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """As exporters of classical models write it: a column each, rows without a name, the answer as maps."""
    nodes = [
        helper.make_node("Reshape", ["sex", "shape"], ["same"]),
        helper.make_node("OneHotEncoder", ["same"], ["a"], domain=ML, cats_strings=SEXES, zeros=1),
        helper.make_node(
            "LabelEncoder", ["port"], ["b"], domain=ML, keys_strings=PORTS, values_floats=[1.0, 2.0, 3.0]
        ),
        helper.make_node("Identity", ["remark"], ["remarked"]),
        helper.make_node("Reshape", ["a", "wide"], ["flat"]),
        helper.make_node("Concat", ["flat", "b", "age"], ["features"], axis=1),
        helper.make_node("Softmax", ["features"], ["probabilities"]),
        helper.make_node("ZipMap", ["probabilities"], ["answer"], domain=ML, classlabels_int64s=list(range(4))),
    ]
    kinds = {"age": TensorProto.FLOAT, "sex": TensorProto.STRING, "port": TensorProto.STRING}
    kinds["remark"] = TensorProto.STRING
    inputs = [helper.make_tensor_value_info(name, kind, [None, 1]) for name, kind in kinds.items()]
    maps = onnx.ValueInfoProto(name="answer")
    maps.type.sequence_type.elem_type.map_type.key_type = TensorProto.INT64
    maps.type.sequence_type.elem_type.map_type.value_type.tensor_type.elem_type = TensorProto.FLOAT
    outputs = [maps, helper.make_tensor_value_info("remarked", TensorProto.STRING, [None, 1])]
    shapes = [
        helper.make_tensor("shape", TensorProto.INT64, [2], [-1, 1]),
        helper.make_tensor("wide", TensorProto.INT64, [2], [-1, 2]),
    ]
    graph = helper.make_graph(nodes, "table", inputs, outputs, shapes)
    opsets = [helper.make_opsetid("", 15), helper.make_opsetid(ML, 3)]
    path = tmp_path / "table.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def fed(path: Path, folder: Path, *texts: str) -> dict[str, Any]:
    found: Loaded = load(parse_reference(str(path)), batch=40, specs=[parse_input(text) for text in texts])
    folder.mkdir()
    return dict(materialise(found, 40, folder).feeds)


def test_strings_are_those_that_their_readers_know_the_same_each_time(table: Path, tmp_path: Path) -> None:
    feeds = fed(table, tmp_path / "one")
    assert {str(text) for text in feeds["sex"].flat} == set(SEXES)
    assert {str(text) for text in feeds["port"].flat} == set(PORTS)
    assert [feeds[name].shape for name in ("age", "sex", "port", "remark")] == [(40, 1)] * 4
    assert all(feeds["remark"].flat)  # nothing knows them: some words
    again = fed(table, tmp_path / "two")
    assert all(np.array_equal(feeds[name], again[name]) for name in feeds)


def test_a_text_that_is_given_fills_the_input(table: Path, tmp_path: Path) -> None:
    feeds = fed(table, tmp_path / "run", "sex=B,1:string=male, 1st class")
    assert feeds["sex"].shape == (40, 1)
    assert set(feeds["sex"].flat) == {"male, 1st class"}
    assert parse_input("sex=B,1:string=male").text == "sex=B,1:string=male"
    assert parse_input("sex=B,1:string").word is None


def test_a_model_of_strings_is_run_at_its_batch_and_a_note_says_what_it_was_fed(table: Path) -> None:
    run = analyze(table, batch=40, gpu="none", runs=4, time_budget=0.2)
    assert {plan.origin for plan in run.plans} == {"measured"}
    assert {operator.cpu.origin for operator in run.operators} == {"measured"}
    assert [text for text in run.environment.messages if "of strings" in text] == [
        "Inputs sex and port of strings were filled with texts that the model knows "
        "(--input sex=B,1:string=TEXT says another).",
        "Input remark of strings was filled with short words (--input remark=B,1:string=TEXT says another).",
    ]


def test_texts_cannot_be_bound_so_that_apply_refuses_and_no_report_offers_it(
    table: Path, tmp_path: Path
) -> None:
    analysis = analyze(table, batch=4, gpu="none", run=False)
    for form in ("text", "markdown", "html"):
        assert "analyze apply" not in analysis.render(form).replace("\\", "")
    with pytest.raises(InputError, match="The input sex is text"):
        apply_plan(table, output=tmp_path / "out", batch=4, gpu="none", run=False)
    assert not (tmp_path / "out").exists()


def test_the_batch_of_an_input_that_is_given_with_b_is_that_of_the_others(table: Path) -> None:
    given = load(parse_reference(str(table)), batch=40, specs=[parse_input("sex=B,1:string=m")])
    assert [tensor.shape for tensor in given.graph().inputs] == [(40, 1)] * 4


def test_texts_and_numbers_are_not_taken_for_each_other(table: Path) -> None:
    for text, told in (
        ("age=B,1:string=old", "age as float32, and a text cannot be given for it"),
        ("sex=B,1=3", "sex as string, and numbers cannot be given for it"),
    ):
        with pytest.raises(InputError, match=told):
            load(parse_reference(str(table)), specs=[parse_input(text)])


def test_a_type_that_is_none_is_told_with_the_nearest_and_the_usual_ones() -> None:
    with pytest.raises(UsageError, match="no such type as flaot32") as caught:
        parse_input("x=B,3:flaot32")
    hint = caught.value.hint or ""
    assert hint.startswith("Did you mean float32? Usual ones are float32, ")
    assert len(hint) < 120
