"""Models that no session runs, and runs that fail: no device is recommended and nothing has a price."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from analyzer import Analysis, analyze, plan_capacity
from analyzer.api import analyze_record
from analyzer.cli import command_line
from analyzer.errors import AnalyzerError
from analyzer.record import from_json, to_json
from analyzer.report.compare import document, sentences
from analyzer.report.compare.build import compare

Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    def write(
        nodes: Sequence[onnx.NodeProto],
        kind: int,
        shape: Sequence[Any],
        stored: Sequence[Any] = (),
        opset: int = 13,
    ) -> Path:
        graph = helper.make_graph(
            nodes,
            "net",
            [helper.make_tensor_value_info("x", kind, shape)],
            [helper.make_empty_tensor_value_info("y")],
            stored,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        onnx.save(model, tmp_path / "net.onnx")
        return tmp_path / "net.onnx"

    return write


def stored(**arrays: Any) -> list[onnx.TensorProto]:
    return [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]


# ONNX Runtime 1.31 answers each with NOT_IMPLEMENTED ("Could not find an implementation for ...").
NOWHERE: dict[str, Callable[[Save], Path]] = {
    "OneHot of int32": lambda save: save(
        [helper.make_node("OneHot", ["x", "d", "v"], ["y"], name="hot")],
        T.INT32,
        ["b", 10],
        stored(d=np.array(500), v=np.array([0, 1], np.float32)),
    ),
    "Reciprocal of bfloat16": lambda save: save(
        [helper.make_node("Reciprocal", ["x"], ["y"])], T.BFLOAT16, [4]
    ),
    "MaxPool of bfloat16": lambda save: save(
        [helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2])], T.BFLOAT16, ["b", 3, 8, 8], opset=22
    ),
    "Gemm of int64": lambda save: save(
        [helper.make_node("Gemm", ["x", "w"], ["y"])],
        T.INT64,
        ["b", 8],
        stored(w=np.ones((8, 4), np.int64)),
    ),
}


@pytest.mark.parametrize("gpu", ["l4", "none"])
@pytest.mark.parametrize("model", NOWHERE.values(), ids=NOWHERE)
def test_what_no_provider_runs_has_no_verdict_and_no_price(
    model: Callable[[Save], Path], gpu: str, save: Save
) -> None:
    analysis = analyze(model(save), run=False, gpu=gpu, cpu="epyc-9654")
    assert analysis.verdict.device is None
    assert "ONNX Runtime cannot run this model" in analysis.verdict.sentence
    assert without_prices(analysis)
    (finding,) = [one for one in analysis.findings if one.severity == "error"]
    assert finding.code == "A104"
    assert from_json(to_json(analysis)) == analysis
    for kind in ("text", "markdown", "html"):
        assert "ONNX Runtime cannot run this model" in " ".join(str(analysis.render(kind)).split())


def without_prices(analysis: Analysis) -> bool:
    return (
        analysis.answer is None
        and not any(one.runs for one in analysis.ranking if one.requested)
        and not analysis.costs
        and all(plan.usd_per_million is None for plan in analysis.plans)
    )


def test_a_comparison_takes_it_for_no_contender(save: Save) -> None:
    nowhere = analyze(NOWHERE["OneHot of int32"](save), run=False, gpu="l4", cpu="epyc-9654")
    runs = save([helper.make_node("Relu", ["x"], ["y"])], T.FLOAT, ["b", 8])
    pair = compare([("a", nowhere), ("b", analyze(runs, run=False, gpu="l4", cpu="epyc-9654"))])
    assert sentences.headline(pair)[0].startswith("There is nothing to compare in time")
    assert "No answer" in document.render(pair)


def test_a_capacity_plan_prices_nothing_of_it(save: Save) -> None:
    path = NOWHERE["OneHot of int32"](save)
    with pytest.raises(AnalyzerError, match="cannot run the model"):
        plan_capacity(path, rate=100, p99="50ms", run=False, gpu="l4")


def test_the_types_that_the_nearest_kernel_takes_are_named(save: Save) -> None:
    sentence = analyze(NOWHERE["Gemm of int64"](save), run=False, gpu="l4").verdict.sentence
    # core/providers/cpu/math/gemm.cc of ONNX Runtime 1.31: float, double and MLFloat16.
    assert "nearest takes" in sentence
    assert "in place of int64" in sentence
    assert "float" in sentence


def test_a_kernel_on_the_gpu_alone_leaves_the_gpu(save: Save) -> None:
    # A MatMul of bfloat16 has a CUDA kernel and none on the CPU.
    path = save([helper.make_node("MatMul", ["x", "x"], ["y"])], T.BFLOAT16, [64, 64])
    analysis = analyze(path, run=False, gpu="l4", cpu="epyc-9654")
    assert analysis.verdict.device == "gpu"
    assert analysis.verdict.speedup is None
    assert "the CPU provider has no kernel for MatMul with bfloat16" in analysis.verdict.sentence
    assert analysis.plan("cpu").usd_per_million is None
    assert {one.device for one in analysis.verdict.ranges} <= {"gpu"}
    assert {one.kind for one in analysis.ranking if one.requested and one.runs} == {"gpu"}
    assert "A203" not in {one.code for one in analysis.findings}  # faster on the CPU
    assert analyze(path, run=False, gpu="none").verdict.device is None
    plan = plan_capacity(path, rate=100, p99="50ms", run=False, gpu="l4")
    assert plan.capacity is not None
    assert {one.device for one in plan.capacity.options if one.feasible} == {"l4"}


def test_the_best_split_leaves_on_the_gpu_what_the_cpu_has_no_kernel_for(save: Save) -> None:
    # Softplus of float64 has a CUDA kernel alone; all copies would cost more than computing on the CPU.
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Softplus", ["a"], ["b"]),
        helper.make_node("Neg", ["b"], ["y"]),
    ]
    analysis = analyze(save(nodes, T.DOUBLE, [8]), run=False, gpu="l4", cpu="epyc-9654")
    assert analysis.verdict.device in ("gpu", "hybrid")
    assert analysis.operators[1].placement == "gpu"


def test_where_the_gpu_has_no_room_either_there_is_no_answer(save: Save) -> None:
    weights = stored(w=np.zeros((1, 1), np.float32))
    path = save(
        [helper.make_node("Softplus", ["x"], ["y"])], T.DOUBLE, [2**33], weights
    )  # 64 GiB, 24 on the L4
    analysis = analyze(path, run=False, gpu="l4", cpu="epyc-9654")
    assert analysis.verdict.device is None
    assert without_prices(analysis)


def test_a_definition_has_the_attributes_that_a_call_leaves_to_its_schema(save: Save) -> None:
    # Swish is Mul and Sigmoid, with alpha = 1; of bfloat16 both have CUDA kernels alone.
    path = save([helper.make_node("Swish", ["x"], ["y"])], T.BFLOAT16, [2, 4], opset=24)
    assert analyze(path, run=False, gpu="l4").verdict.device == "gpu"


def test_what_nothing_is_known_of_has_no_verdict(save: Save) -> None:
    path = save([helper.make_node("Warp", ["x"], ["y"], domain="com.example")], T.FLOAT, [2, 4])
    analysis = analyze(path, run=False, gpu="l4", cpu="epyc-9654")
    assert analysis.verdict.device is None
    assert without_prices(analysis)
    assert all(row.latency_s is None for row in analysis.precisions)
    assert "a session with the library that has it can" in analysis.verdict.sentence


@pytest.mark.parametrize(
    "refused",
    ["ir_version", "opset"],
)
def test_what_no_session_loads_has_no_verdict_and_no_price(refused: str, save: Save) -> None:
    # onnx 1.23 writes IR version 14 and opset 28, and ONNX Runtime 1.31 loads 13 and 26 at most.
    path = save([helper.make_node("Relu", ["x"], ["y"])], T.FLOAT, ["b", 8])
    model = onnx.load(path)
    if refused == "ir_version":
        model.ir_version = onnx.IR_VERSION
    else:
        model.opset_import[0].version = onnx.defs.onnx_opset_version()
    onnx.save(model, path)
    analysis = analyze(path, run=False, gpu="l4", cpu="epyc-9654")
    assert analysis.verdict.device is None
    assert without_prices(analysis)
    assert {one.code for one in analysis.findings if one.severity == "error"} <= {"A701", "A704"}
    assert analyze_record(analysis, gpu="a100").verdict.device is None


def test_what_a_session_runs_by_its_definition_needs_kernels_for_that(save: Save) -> None:
    # Softmax of bfloat16 has a CUDA kernel; on the CPU it is Exp, ReduceSum and more, which have none.
    path = save([helper.make_node("Softmax", ["x"], ["y"])], T.BFLOAT16, [2, 4])
    assert analyze(path, run=False, gpu="none").verdict.device is None
    # Of float32, a Mish is Softplus, Tanh and Mul.
    path = save([helper.make_node("Mish", ["x"], ["y"])], T.FLOAT, [2, 4], opset=18)
    assert analyze(path, run=False, gpu="none").verdict.device == "cpu"


def test_a_gate_fails_without_a_gpu_too(save: Save) -> None:
    path = str(NOWHERE["OneHot of int32"](save))
    assert CliRunner().invoke(command_line, ["check", path, "--gpu", "none"]).exit_code == 1


@pytest.fixture
def fails(save: Save) -> Path:
    # core/providers/cpu/tensor/grid_sample.cc checks the mode of a GridSample of volumes when it runs.
    node = helper.make_node("GridSample", ["x", "g"], ["y"], mode="cubic", domain="")
    grid = stored(g=np.zeros((1, 4, 4, 4, 3), np.float32))
    return save([node], T.FLOAT, [1, 2, 4, 4, 4], grid, opset=20)


def test_a_run_that_failed_is_the_headline_and_status_2(fails: Path, tmp_path: Path) -> None:
    arguments = [
        "run",
        str(fails),
        "--gpu",
        "l4",
        "--time-budget",
        "1",
        "--format",
        "html,json,markdown,csv,text",
    ]
    result = CliRunner().invoke(command_line, [*arguments, "--output", f"{tmp_path}/out/"])
    assert result.exit_code == 2
    analysis = from_json((tmp_path / "out" / "net.json").read_text())
    assert analysis.verdict.device is None
    assert "Cubic" in analysis.run_fails
    assert without_prices(analysis)
    for ending in ("html", "md", "txt"):
        assert "The run failed, and nothing was measured" in (tmp_path / "out" / f"net.{ending}").read_text()
    # Decided anew for another GPU it still failed.
    assert analyze_record(analysis, gpu="a100").verdict.device is None


def test_a_prediction_of_a_model_whose_run_would_fail_is_one(fails: Path) -> None:
    assert analyze(fails, run=False, gpu="l4", cpu="epyc-9654").run_fails == ""
