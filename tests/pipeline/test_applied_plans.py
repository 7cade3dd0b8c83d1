"""`apply_plan()`: a folder that runs the plan, errors that leave nothing, records whose model is another."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from analyzer.api import analyze, apply_plan
from analyzer.errors import (
    AnalyzerError,
    InputError,
    MeasurementError,
    ModelError,
    OutputError,
    RecordError,
    UsageError,
)
from analyzer.loading import reading_process
from analyzer.loading.runnable_files import write_bound
from analyzer.measurement.applied_child import verify
from analyzer.measurement.request import to_message
from analyzer.measurement.session import SessionSide
from analyzer.ort.execution import KEY, ON_CPU, annotate
from analyzer.pipeline.apply import verification
from analyzer.pipeline.apply.request import OpsetCost, fastest
from analyzer.pipeline.apply.result import Applied, folder_to_be, summary
from analyzer.record import load_report, to_json
from analyzer.units import seconds

# The network is so small that the CPU takes it whole where nothing holds it.
SPLIT = ["*=gpu", "sine=cpu"]
FILES = {"model.onnx", "session.json", "run.py", "apply.json", "record.json", "inputs.npz"}


def network(opset: int = 20, *, pooled: bool = False) -> onnx.ModelProto:
    """A convolution, perhaps a pooling, a product that nothing merges with the activations beside it."""
    generator = np.random.default_rng(3)
    weights = [
        numpy_helper.from_array(generator.standard_normal((8, 3, 3, 3), dtype=np.float32), "k"),
        numpy_helper.from_array(generator.standard_normal((8, 8), dtype=np.float32), "w"),
    ]
    pool = helper.make_node("MaxPool", ["c"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2])
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        *([pool] if pooled else []),
        helper.make_node("Sin", ["p" if pooled else "c"], ["s"], name="sine"),
        helper.make_node("Cos", ["s"], ["o"], name="cosine"),
        helper.make_node("MatMul", ["o", "w"], ["y"], name="product"),
    ]
    side = 16 if pooled else 8
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, side, 8 * side // 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 8, 8, 8])
    graph = helper.make_graph(nodes, "network", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    onnx.save(network(), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def applied(model: Any, folder: Path, **options: Any) -> Applied:
    return apply_plan(model, output=folder, **{"gpu": "l4", "run": False, **options})


@pytest.fixture(scope="module")
def of_cpu(tmp_path_factory: pytest.TempPathFactory) -> tuple[Applied, Path]:
    """The network's plan of the CPU alone, with one thread."""
    folder = tmp_path_factory.mktemp("cpu")
    onnx.save(network(), folder / "net.onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANALYZER_CACHE_DIR", str(folder / "cache"))
        patch.chdir(folder)
        return applied(folder / "net.onnx", folder / "out", plan="cpu", threads=1), folder / "out"


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> tuple[Applied, Path]:
    """The network with one operator on the CPU."""
    folder = tmp_path_factory.mktemp("split")
    onnx.save(network(), folder / "net.onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANALYZER_CACHE_DIR", str(folder / "cache"))
        patch.chdir(folder)
        return applied(folder / "net.onnx", folder / "out", pin=SPLIT), folder / "out"


def annotated_nodes(path: Path) -> set[str]:
    return {
        node.name
        for node in onnx.load(path).graph.node
        if any(entry.key == KEY and entry.value == ON_CPU for entry in node.metadata_props)
    }


def test_a_pinned_operator_is_annotated_and_copied_to_and_from_the_cpu(split: tuple[Applied, Path]) -> None:
    done, out = split
    assert {path.name for path in out.iterdir()} == FILES
    assert annotated_nodes(out / "model.onnx") == {"sine"}
    # Conv writes on the GPU what Sin reads, Sin on the CPU what Cos reads: one copy each way.
    assert (done.plan, done.copies, done.annotated) == ("hybrid", 2, 1)
    assert dict(done.nodes) == {"conv": "CUDA", "sine": "CPU", "cosine": "CUDA", "product": "CUDA"}
    said = json.loads((out / "apply.json").read_text())
    assert said["nodes"] == dict(done.nodes)
    assert said["low_s"] <= said["latency_s"] <= said["high_s"]
    session = json.loads((out / "session.json").read_text())
    assert session["providers"] == ["CUDAExecutionProvider", "CPUExecutionProvider"]
    assert session["session_config"] == {"session.layer_assignment_settings": f"cpu(={ON_CPU})"}
    assert len(session["provider_options"]) == 2


def test_each_node_tells_a_viewer_its_device_its_time_and_the_reason(
    split: tuple[Applied, Path], of_cpu: tuple[Applied, Path]
) -> None:
    for done, out in (split, of_cpu):
        record = load_report(out / "record.json")
        for node, operator in zip(onnx.load(out / "model.onnx").graph.node, record.operators, strict=True):
            shown = {entry.key: entry.value for entry in node.metadata_props}
            device = shown["analyzer.plan.device"]
            assert device == done.nodes[node.name]
            timed = operator.gpu if device == "CUDA" else operator.cpu
            assert shown["analyzer.plan.time"] == f"{seconds(timed.time_s)}, predicted"
            assert shown["analyzer.plan.reason"] == operator.verdict.explanation


def test_outputs_without_a_shape_get_that_of_the_batch_and_the_file_is_valid(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]>
    network (float[N, 8] x) => (float y, float total, int64 places)
    <float[8, 4] w = {%s}> { y = MatMul (x, w)  total = ReduceSum <keepdims = 0> (y)  places = NonZero (y) }"""
    model = onnx.parser.parse_model(text % ", ".join(["1.5"] * 32))
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    with pytest.raises(onnx.checker.ValidationError, match="shape"):
        onnx.checker.check_model(model)
    applied(model, tmp_path / "out", batch=3)
    written = onnx.load(tmp_path / "out/model.onnx")
    onnx.checker.check_model(written, full_check=True)
    shapes = {output.name: output.type.tensor_type.shape.dim for output in written.graph.output}
    assert {name: [dim.dim_value for dim in dims] for name, dims in shapes.items()} == {
        "y": [3, 4],
        "total": [],
        "places": [2, 0],
    }
    assert not shapes["places"][1].HasField("value")  # how many are not zero, only the values say


def test_numbers_are_compared_though_nothing_is_timed_and_what_is_not_verified_says_why(
    split: tuple[Applied, Path],
) -> None:
    verified = split[0].verified
    assert verified.numbers is True
    assert verified.placement is None or verified.placement is True
    assert verified.time is None
    assert set(verified.reasons) >= {"time"}


@pytest.mark.parametrize("plan", ["cpu", "gpu", "hybrid"])
def test_the_program_runs_from_an_empty_folder_with_onnxruntime_and_numpy_alone(
    model: Path, tmp_path: Path, plan: str
) -> None:
    applied(model, tmp_path / "out", plan=plan)
    empty = tmp_path / "empty"
    empty.mkdir()
    # -P and no path of ours: nothing of the analyzer can be imported by chance.
    command = [sys.executable, "-P", str(tmp_path / "out" / "run.py"), "--runs", "2", "--verify"]
    done = subprocess.run(command, cwd=empty, capture_output=True, text=True, check=True)
    assert "the last of 2 runs took" in done.stdout
    assert "numbers: y is off by 0" in done.stdout
    assert not any(empty.iterdir())
    text = (tmp_path / "out" / "run.py").read_text()
    assert len(text.splitlines()) < 60
    assert "analyzer" not in text


def test_a_count_may_differ_from_run_to_run(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("RandomUniformLike", ["x"], ["r"], seed=1.0),
        helper.make_node("Greater", ["r", "x"], ["b"]),
        helper.make_node("NonZero", ["b"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1000])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, [1, "count"])
    graph = helper.make_graph(nodes, "draws", [x], [y])
    draws = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    applied(draws, tmp_path / "out", plan="cpu")
    command = [sys.executable, "-P", str(tmp_path / "out" / "run.py"), "--runs", "5"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def program(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", str(folder / "run.py"), "--runs", "2", "--verify", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def said_by_program(folder: Path, *arguments: str) -> str:
    done = program(folder, *arguments)
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0)
    return done.stdout


def told(folder: Path, **changes: Any) -> dict[str, Any]:
    """What ``apply.json`` says, after changes."""
    said: dict[str, Any] = json.loads((folder / "apply.json").read_text()) | changes
    (folder / "apply.json").write_text(json.dumps(said))
    return said


def of_nodes(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, list[int]]],
    outputs: Mapping[str, tuple[int, list[int]]],
    constants: tuple[onnx.TensorProto, ...] = (),
) -> Path:
    taken, given = (
        [helper.make_tensor_value_info(name, *of) for name, of in side.items()] for side in (inputs, outputs)
    )
    graph = helper.make_graph(nodes, "small", taken, given, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def test_the_program_ends_with_1_where_a_node_is_elsewhere_than_planned(
    of_cpu: tuple[Applied, Path], tmp_path: Path
) -> None:
    shutil.copytree(of_cpu[1], tmp_path / "out")
    nodes = told(tmp_path / "out")["nodes"]
    told(tmp_path / "out", nodes={**nodes, "sine": "CUDA"})
    done = program(tmp_path / "out")
    assert done.returncode == 1
    assert "1 of 4 nodes are not as planned: ['sine']" in done.stdout


def test_random_numbers_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path / "cache"))
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["r"], name="noise"),
        helper.make_node("Sin", ["r"], ["y"], name="sine"),
    ]
    kind = (TensorProto.FLOAT, [4, 4])
    drawn = of_nodes(tmp_path / "drawn.onnx", nodes, {"x": kind}, {"y": kind})
    done = applied(drawn, tmp_path / "out", plan="cpu")
    # Drawn anew by each session: what is said of them is that they are not compared.
    assert done.tolerances == {}
    assert any("draws random" in note for note in done.notes)
    said_by_program(tmp_path / "out")


def test_the_program_ends_with_1_where_numbers_are_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that takes an approximation of Gelu beside one that does not."""
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path / "cache"))
    kind = (TensorProto.FLOAT, [4, 4])
    nodes = [helper.make_node("Gelu", ["x"], ["y"], name="gelu", domain="com.microsoft")]
    applied(of_nodes(tmp_path / "gelu.onnx", nodes, {"x": kind}, {"y": kind}), tmp_path / "out", plan="cpu")
    told(tmp_path / "out", tolerances={"y": [1e-6, 0.0]})
    assert program(tmp_path / "out").returncode == 0
    path = tmp_path / "out" / "session.json"
    session = json.loads(path.read_text())
    path.write_text(json.dumps({**session, "session_config": {"optimization.enable_gelu_approximation": "1"}}))
    assert program(tmp_path / "out").returncode == 1


def test_the_program_compares_each_type_by_its_own_tolerance_and_no_number_with_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path / "cache"))
    nodes = [
        # Below 0 a logarithm is not a number, of 0 it is infinite.
        helper.make_node("Relu", ["x"], ["positive"], name="relu"),
        helper.make_node("Log", ["positive"], ["infinite"], name="log"),
        helper.make_node("Log", ["x"], ["none"], name="none"),
        helper.make_node("ArgMax", ["x"], ["best"], name="best", axis=1),
        helper.make_node("Cast", ["x"], ["half"], name="half", to=TensorProto.FLOAT16),
        helper.make_node("Less", ["x", "positive"], ["below"], name="below"),
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["eighth"], name="eighth"),
    ]
    zero = helper.make_tensor("zero", TensorProto.INT8, [], [0])
    scale = helper.make_tensor("scale", TensorProto.FLOAT, [], [0.1])
    outputs = {
        "infinite": (TensorProto.FLOAT, [4, 4]),
        "none": (TensorProto.FLOAT, [4, 4]),
        "best": (TensorProto.INT64, [4, 1]),
        "half": (TensorProto.FLOAT16, [4, 4]),
        "below": (TensorProto.BOOL, [4, 4]),
        "eighth": (TensorProto.INT8, [4, 4]),
    }
    path = of_nodes(tmp_path / "m.onnx", nodes, {"x": (TensorProto.FLOAT, [4, 4])}, outputs, (zero, scale))
    done = applied(path, tmp_path / "out", plan="cpu", precision="fp32")
    # Of whole numbers none may differ, of those in 8 bits by one: a rounding may fall to the other side.
    assert {name: tuple(allowed) for name, allowed in done.tolerances.items()} == {
        "infinite": (1e-3, 0.0),
        "none": (1e-3, 0.0),
        "best": (0.0, 0.0),
        "half": (5e-2, 0.0),
        "below": (0.0, 0.0),
        "eighth": (0.0, 1.0),
    }
    assert said_by_program(tmp_path / "out").count("numbers: ") == len(outputs)


@pytest.mark.parametrize(("precision", "share"), [("fp32", 1e-3), (None, 2e-2)])
def test_numbers_of_a_gpu_that_rounds_to_tf32_may_be_off_by_what_tf32_is(
    model: Path, tmp_path: Path, precision: str | None, share: float
) -> None:
    done = applied(model, tmp_path / "out", plan="gpu", precision=precision)
    assert {name: tuple(allowed) for name, allowed in done.tolerances.items()} == {"y": (share, 0.0)}


@pytest.mark.parametrize("kind", [TensorProto.FLOAT8E4M3FN, TensorProto.INT4], ids=["fp8", "int4"])
def test_outputs_that_numpy_has_no_type_for_are_compared_here_and_named_as_not_compared_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path / "cache"))
    nodes = [
        helper.make_node("Sin", ["x"], ["s"], name="sine"),
        helper.make_node("QuantizeLinear", ["s", "scale", "zero"], ["y"], name="narrow"),
    ]
    constants = (
        helper.make_tensor("zero", kind, [], [0]),
        helper.make_tensor("scale", TensorProto.FLOAT, [], [0.1]),
    )
    both = {"s": (TensorProto.FLOAT, [3, 5]), "y": (kind, [3, 5])}
    path = of_nodes(tmp_path / "m.onnx", nodes, {"x": (TensorProto.FLOAT, [3, 5])}, both, constants)
    done = applied(path, tmp_path / "out", plan="cpu")
    assert done.verified.numbers is True
    assert [row["output"] for row in done.differences] == ["s", "y"]
    assert [note for note in done.notes if "does not compare y (" in note]
    assert "numbers: s is off by 0" in (said := said_by_program(tmp_path / "out"))
    assert "numbers: y" not in said


def test_inputs_of_less_than_8_bits_are_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path / "cache"))
    scale = helper.make_tensor("scale", TensorProto.FLOAT, [], [0.1])
    nodes = [helper.make_node("DequantizeLinear", ["x", "scale"], ["y"], name="widen")]
    inputs, outputs = {"x": (TensorProto.INT4, [4, 4])}, {"y": (TensorProto.FLOAT, [4, 4])}
    path = of_nodes(tmp_path / "m.onnx", nodes, inputs, outputs, (scale,))
    with pytest.raises(InputError, match="The input x is int4"):
        applied(path, tmp_path / "out", plan="cpu")
    assert not (tmp_path / "out").exists()


def grown_step(path: Path) -> Path:
    """A step that appends to its past, beside a state of one size."""
    nodes = [
        helper.make_node("Concat", ["past_key", "x"], ["present_key"], name="append", axis=1),
        helper.make_node("Add", ["past_h", "x"], ["present_h"], name="add"),
        helper.make_node("ReduceSum", ["present_key"], ["y"], name="sum"),
    ]
    row, kind = [2, 1, 64], TensorProto.FLOAT
    return of_nodes(
        path,
        nodes,
        {"x": (kind, row), "past_key": (kind, [2, 7, 64]), "past_h": (kind, row)},
        {"y": (kind, [1, 1, 1]), "present_key": (kind, [2, 8, 64]), "present_h": (kind, row)},
    )


def test_a_cache_that_grows_is_left_out_of_the_state_with_a_word(model: Path, tmp_path: Path) -> None:
    done = applied(grown_step(model), tmp_path / "out", plan="cpu")
    assert dict(done.state) == {"past_h": "present_h"}
    note = next(note for note in told(tmp_path / "out")["notes"] if "`state`" in note)
    # 2 x 7 x 64 float32.
    assert "past_key [2, 7, 64], next present_key [2, 8, 64]." in note
    assert "3.58 kB" in note
    assert f"note: {note}" in list(summary(done))
    said_by_program(tmp_path / "out")


def test_a_step_whose_state_stays_gets_no_word(model: Path, tmp_path: Path) -> None:
    kind = (TensorProto.FLOAT, [2, 8])
    nodes = [
        helper.make_node("Add", ["past_h", "x"], ["present_h"], name="add"),
        helper.make_node("Tanh", ["present_h"], ["y"], name="tanh"),
    ]
    of_nodes(model, nodes, {"x": kind, "past_h": kind}, {"y": kind, "present_h": kind})
    done = applied(model, tmp_path / "out", plan="cpu")
    assert dict(done.state) == {"past_h": "present_h"}
    assert not done.notes


@pytest.mark.parametrize(("threads", "cpu", "here"), [(None, None, 0), (1, None, 1), (3, "epyc-9654", 0)])
def test_the_number_of_threads_is_the_sessions_and_that_of_another_cpu_no_matter_here(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    threads: int | None,
    cpu: str | None,
    here: int,
) -> None:
    asked: list[int] = []

    def noted(tasks: list[dict[str, Any]], *arguments: Any) -> Any:
        asked.extend(task["applied"]["threads"] for task in tasks)
        return verify(tasks, *arguments)

    monkeypatch.setattr(verification, "verify", noted)
    applied(model, tmp_path / "out", plan="cpu", threads=threads, cpu=cpu)
    session = json.loads((tmp_path / "out" / "session.json").read_text())
    assert session["intra_op_num_threads"] == (threads or 0)
    assert set(asked) == {here}


def test_the_program_makes_its_sessions_with_the_threads_that_the_plan_was_made_for(
    of_cpu: tuple[Applied, Path], tmp_path: Path
) -> None:
    # What ONNX Runtime is told, by a stand-in for it that the program imports first.
    (tmp_path / "onnxruntime.py").write_text(
        "class SessionOptions:\n"
        "    def __setattr__(self, name, value):\n"
        "        print(name, value)\n"
        "        raise SystemExit\n"
        "def get_available_providers():\n"
        "    return ['CPUExecutionProvider']\n"
    )
    done = subprocess.run(
        [sys.executable, str(of_cpu[1] / "run.py")],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["intra_op_num_threads", "1"]


def test_the_threads_of_a_record_are_those_of_its_session(model: Path, tmp_path: Path) -> None:
    (tmp_path / "net.json").write_text(to_json(analyze(model, gpu="l4", run=False, threads=1)))
    applied(tmp_path / "net.json", tmp_path / "out", plan="cpu", gpu=None)
    assert json.loads((tmp_path / "out" / "session.json").read_text())["intra_op_num_threads"] == 1


def test_the_program_of_a_plan_of_the_cpu_verifies_its_placement_without_cuda(
    of_cpu: tuple[Applied, Path],
) -> None:
    assert "placement: 0 of 4 nodes are not as planned" in said_by_program(of_cpu[1])


@pytest.mark.parametrize("kept", [TensorProto.FLOAT, TensorProto.BFLOAT16])
def test_the_program_feeds_types_that_numpy_lacks_and_compares_what_numpy_has(
    model: Path, tmp_path: Path, kept: int
) -> None:
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.BFLOAT16, [4, 4]),
        helper.make_tensor_value_info("scale", TensorProto.FLOAT, []),
        helper.make_tensor_value_info("mask", TensorProto.BOOL, [4, 1]),
    ]
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], name="widen", to=TensorProto.FLOAT),
        helper.make_node("Where", ["mask", "wide", "scale"], ["chosen"], name="choice"),
        helper.make_node("Cast", ["chosen"], ["y"], name="narrow", to=kept),
    ]
    outputs = [helper.make_tensor_value_info("y", kept, [4, 4])]
    graph = helper.make_graph(nodes, "mixed", inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), model)
    applied(model, tmp_path / "out", plan="gpu")
    compared = "numbers: y is off by 0" in said_by_program(tmp_path / "out")
    assert compared is (kept == TensorProto.FLOAT)
    # Arrays of somebody's own may lie in memory column by column.
    given = dict(np.load(tmp_path / "out" / "inputs.npz"))
    np.savez(tmp_path / "mine.npz", **{**given, "x": np.asfortranarray(given["x"])})
    said_by_program(tmp_path / "out", "--inputs", str(tmp_path / "mine.npz"))


@pytest.mark.parametrize(("drawn", "verdict"), [(True, None), (False, False)], ids=["drawn", "given"])
def test_other_numbers_are_no_fault_of_a_plan_whose_model_draws_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: bool, verdict: bool | None
) -> None:
    kind = "RandomNormalLike" if drawn else "Neg"
    nodes = [
        helper.make_node(kind, ["x"], ["r"], name="noise"),
        helper.make_node("Sin", ["r"], ["y"], name="sine"),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4]) for name in "xy")
    noisy = helper.make_model(
        helper.make_graph(nodes, "noisy", [x], [y]), opset_imports=[helper.make_opsetid("", 20)], ir_version=10
    )
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path / "cache"))
    off = {"name": "y", "max_absolute": 2.0, "max_relative": 1.0, "tolerance": 1e-3, "sqnr_db": None}
    found = {
        "numbers": {"outputs": [{**off, "agrees": False, "why": "off by 1.0e+00"}]},
        "placement": {"trouble": "no driver"},
    }
    monkeypatch.setattr(verification, "verify", lambda _tasks: found)
    verified = applied(noisy, tmp_path / "out", plan="gpu").verified
    assert verified.numbers is verdict
    assert "y: off by 1.0e+00" in verified.reasons["numbers"]


def test_a_model_that_is_folded_whole_has_no_nodes_and_says_so_plainly(model: Path, tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.ones((8, 8), np.float32), "w")
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 8])
    graph = helper.make_graph([helper.make_node("Sin", ["w"], ["y"], name="sine")], "folded", [], [y], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), model)
    lines = list(summary(applied(model, tmp_path / "out", plan="gpu")))
    assert "0 nodes, 0 copies" in lines[0]


def test_a_plan_of_the_cpu_alone_needs_no_annotation_and_no_cuda(of_cpu: tuple[Applied, Path]) -> None:
    done, out = of_cpu
    assert set(done.nodes.values()) == {"CPU"}
    assert (done.copies, done.annotated, done.gpu) == (0, 0, None)
    assert json.loads((out / "session.json").read_text())["providers"] == ["CPUExecutionProvider"]
    assert done.verified.placement is True


def test_without_a_plan_that_of_the_verdict_is_applied(model: Path, tmp_path: Path) -> None:
    verdict = analyze(model, gpu="l4", run=False).verdict.device
    done = applied(model, tmp_path / "out")
    assert done.plan == verdict or (verdict == "either" and done.plan in ("cpu", "gpu"))


def test_a_folder_that_is_not_empty_is_left_alone_unless_it_is_forced(model: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="not empty"):
        applied(model, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["notes.txt"]
    applied(model, tmp_path / "out", force=True)
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*FILES, "notes.txt"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"plan": "hybird"}, "no such value"),
        ({"plan": 3}, "no such value"),
        ({"plan": "gpu", "pin": "sine=cpu"}, "keeps no pin"),
        ({"pin": ["conv=gpu", "pool=cpu"]}, "No operator fits"),
        ({"gpu": "l4,t4"}, "one session is for one gpu"),
        ({"gpu": "all"}, "one session is for one gpu"),
        ({"batch": "1,8"}, "one session is for one batch"),
        ({"gpu": "none", "plan": "gpu"}, "no plan gpu"),
        ({"pin": "nothing=cpu"}, "No operator fits"),
        ({"opset": "newest"}, "whole number"),
    ],
)
def test_what_cannot_be_applied_is_one_error_and_leaves_nothing(
    model: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        applied(model, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))


def test_a_record_is_applied_with_the_model_that_it_names(model: Path, tmp_path: Path) -> None:
    (tmp_path / "net.json").write_text(to_json(analyze(model, gpu="l4", run=False)))
    done = applied(tmp_path / "net.json", tmp_path / "out", pin=SPLIT, gpu=None)
    assert done.nodes["sine"] == "CPU"
    assert done.gpu == "l4"


def test_a_record_whose_model_is_gone_or_changed_or_that_is_asked_for_another_plan_is_refused(
    model: Path, tmp_path: Path
) -> None:
    (tmp_path / "net.json").write_text(to_json(analyze(model, gpu="l4", run=False)))
    refused: list[tuple[dict[str, Any], str]] = [
        ({"opset": 21}, "opset 20, not for 21"),
        ({"opset": "auto"}, "opset 20, not for auto"),
        ({"batch": 5}, "not for 5"),
        ({"onnxruntime": "1.29"}, "--onnxruntime: the record's plan is made already"),
        ({"threads": 1}, "--threads: the record's plan is made already"),
        ({"state": ["x=y"]}, "--state: the record's plan is made already"),
        ({"state": False}, "--no-state: the record's plan is made already"),
        ({"inputs": np.zeros((2, 3, 8, 8), np.float32)}, "inputs of its model"),
    ]
    for options, message in refused:
        with pytest.raises(UsageError, match=message):
            applied(tmp_path / "net.json", tmp_path / "out", **options)
    changed = network()
    changed.graph.node[1].op_type = "Tan"
    onnx.save(changed, model)
    with pytest.raises(RecordError, match="has changed"):
        applied(tmp_path / "net.json", tmp_path / "out")
    model.unlink()
    with pytest.raises(RecordError, match="is not here"):
        applied(tmp_path / "net.json", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_configuration_of_a_model_that_generates_is_no_model_to_apply(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')
    with pytest.raises(UsageError, match="no weights"):
        applied(tmp_path / "config.json", tmp_path / "out")


def test_weights_beside_the_model_are_copied_not_shared(tmp_path: Path, model: Path) -> None:
    external = tmp_path / "big" / "net.onnx"
    external.parent.mkdir()
    onnx.save(network(), external, save_as_external_data=True, size_threshold=0, location="weights.dat")
    applied(external, tmp_path / "out", plan="cpu")
    before = (external.parent / "weights.dat").read_bytes()
    for path in (tmp_path / "out").glob("weights*"):
        path.write_bytes(b"\0" * path.stat().st_size)
    assert list((tmp_path / "out").glob("weights*"))
    assert (external.parent / "weights.dat").read_bytes() == before


def test_the_fastest_opset_is_chosen_and_what_another_loses_is_told(tmp_path: Path, model: Path) -> None:
    onnx.save(network(pooled=True), model)
    done = applied(model, tmp_path / "out", plan="gpu", opset="auto")
    costs = {cost.opset: cost for cost in done.opsets}
    # CUDA's MaxPool stops at the schema before opset 22 (ONNX Runtime 1.31); the CPU's does not.
    assert done.opset < 22
    assert dict(costs[22].without_kernel) == {"MaxPool": 1}
    assert costs[22].copies == 2
    assert costs[22].latency.value > costs[20].latency.value
    assert "MaxPool" in costs[22].why
    assert onnx.load(tmp_path / "out" / "model.onnx").opset_import[0].version == done.opset


def test_of_equally_fast_opsets_the_usual_one_is_chosen() -> None:
    costs = [OpsetCost(opset=opset, latency_s=seconds) for opset, seconds in ((18, 2.0), (19, 1.0), (20, 1.0))]
    assert fastest(costs) == costs[2]
    assert fastest([*costs, OpsetCost(opset=21, latency_s=0.5)]).opset == 21
    assert fastest([OpsetCost(opset=18, why="no")]) is None


def test_annotations_of_an_earlier_plan_are_replaced() -> None:
    proto = network()
    assert annotate(proto, {"conv", "sine"}) == 2
    assert annotate(proto, {"cosine"}) == 1
    marked = [node.name for node in proto.graph.node for entry in node.metadata_props if entry.key == KEY]
    assert marked == ["cosine"]


def test_what_a_viewer_shows_of_an_earlier_plan_is_replaced_and_what_others_wrote_stays() -> None:
    proto = network()
    proto.graph.node[0].metadata_props.add(key="pkg.torch.onnx.name", value="mine")
    name = proto.graph.node[0].name
    annotate(proto, (), {name: {"device": "CUDA", "time": "1 ms"}})
    annotate(proto, {name}, {name: {"device": "CPU"}})
    entries = {entry.key: entry.value for entry in proto.graph.node[0].metadata_props}
    assert entries == {"pkg.torch.onnx.name": "mine", "analyzer.plan.device": "CPU", KEY: "to_cpu"}


def test_a_folder_that_cannot_be_finished_leaves_no_trace(tmp_path: Path) -> None:
    def fail() -> None:
        with folder_to_be(tmp_path / "out") as aside:
            (aside / "half").write_text("x")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []


def written(place: Path, **files: str) -> None:
    with folder_to_be(place) as aside:
        for name, text in files.items():
            (aside / f"{name}.json").write_text(text)


def test_a_folder_that_is_forced_is_as_it_was_where_one_file_cannot_be_replaced(tmp_path: Path) -> None:
    place = tmp_path / "out"
    (place / "session.json").mkdir(parents=True)
    (place / "apply.json").write_text("old")
    with pytest.raises(OutputError, match=r"session\.json is a folder"):
        written(place, apply="new", record="new", session="new")
    assert {path.name for path in place.iterdir()} == {"session.json", "apply.json"}
    assert (place / "apply.json").read_text() == "old"


def test_of_two_that_write_one_folder_at_once_the_second_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "out"

    def both() -> None:
        with folder_to_be(place) as aside:
            (aside / "late").write_text("x")
            written(place, apply="first")

    with pytest.raises(OutputError, match="not empty"):
        both()
    assert [path.name for path in place.iterdir()] == ["apply.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_that_is_there_is_written_from_inside_since_it_may_be_a_mount(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "link").symlink_to("volume")
    with folder_to_be(tmp_path / "link") as aside:
        assert aside.parent.resolve() == tmp_path / "volume"
        (aside / "run.py").write_text("x")
    assert [path.name for path in (tmp_path / "volume").iterdir()] == ["run.py"]
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize(
    ("number", "named", "error", "message"),
    [
        (errno.EACCES, "theirs.data", ModelError, r"theirs\.data cannot be read: "),
        (errno.ENOENT, "theirs.data", ModelError, r"theirs\.data cannot be read: "),
        # Of a copy the system names the source, though it is the target that has no room.
        (errno.ENOSPC, "theirs.data", OutputError, r"out cannot be written: "),
        (errno.EACCES, None, OutputError, r"out cannot be written: "),
        (errno.EACCES, "aside", OutputError, r"out cannot be written: "),
    ],
)
def test_an_error_of_the_system_names_the_file_that_it_is_about(
    tmp_path: Path, number: int, named: str | None, error: type[AnalyzerError], message: str
) -> None:
    def fail() -> None:
        with folder_to_be(tmp_path / "out") as aside:
            path = aside / "weights.bin" if named == "aside" else named and tmp_path / named
            raise OSError(number, os.strerror(number), *([str(path)] if path else []))

    with pytest.raises(error, match=message):
        fail()
    assert not list(tmp_path.iterdir())


def test_weights_that_cannot_be_read_are_named_and_not_the_folder_that_is_written(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx.save(network(), model, save_as_external_data=True, size_threshold=0, location="net.data")

    # Tests run as root, too, whom no file's rights hold up.
    def refused(*paths: object, **_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), *map(str, paths[:1]))

    monkeypatch.setattr(os, "link", refused)
    monkeypatch.setattr(shutil, "copyfile", refused)
    with pytest.raises(MeasurementError, match=r"net\.data cannot be read: Permission denied"):
        write_bound(onnx.load(model, load_external_data=False), None, {}, tmp_path / "aside", home=model)


@pytest.mark.parametrize(
    ("number", "named", "error", "message"),
    [
        (errno.ENOSPC, "net.onnx", OutputError, "aside cannot be written: No space left"),
        (errno.EACCES, "net.onnx", ModelError, "net.onnx cannot be read: Permission denied"),
    ],
)
def test_the_process_that_writes_the_model_says_which_side_failed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    named: str,
    error: type[AnalyzerError],
    message: str,
) -> None:
    def fail(path: Path, **_: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(onnx, "load", fail)
    write = reading_process.HANDLERS["write_file"]
    with pytest.raises(error, match=message):
        write(os.fsencode(tmp_path / named), None, {}, os.fsencode(tmp_path / "aside"))


def test_what_an_earlier_plan_left_goes_and_what_is_not_its_own_stays(model: Path, tmp_path: Path) -> None:
    place = tmp_path / "out"
    named = ["apply.json", "original.json", "weights.bin", "notes.txt", "../net.onnx"]
    written(place, apply=json.dumps({"files": named}), original="{}")
    for name in ("weights.bin", "weights-3.bin", "notes.txt"):
        (place / name).write_text("x")
    applied(model, place, plan="cpu", force=True)
    # weights-3.bin is not among what apply.json says to have written.
    assert {path.name for path in place.iterdir()} == {*FILES, "weights-3.bin", "notes.txt"}
    assert model.exists()
    assert set(json.loads((place / "apply.json").read_text())["files"]) == FILES


@pytest.mark.parametrize(
    "in_place", [None, {}, {"past": "present"}], ids=["host to host", "state grows", "state stays"]
)
def test_a_session_is_timed_with_its_state_where_it_lies(
    tmp_path: Path, in_place: dict[str, str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shape = [1, 8]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "past")]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("y", "present")]
    nodes = [helper.make_node("Add", ["past", "x"], ["present"]), helper.make_node("Tanh", ["present"], ["y"])]
    graph = helper.make_graph(nodes, "step", inputs, outputs)
    step = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(step, "step.onnx")
    np.savez("feeds.npz", x=np.ones(shape, np.float32), past=np.zeros(shape, np.float32))
    task = {
        "kind": "time",
        "applied": to_message(SessionSide(model=tmp_path / "step.onnx")),
        "feeds": str(tmp_path / "feeds.npz"),
        "in_place": in_place,
        "budget_s": 0.05,
    }
    found = verify([task])["time"]
    assert found.keys() == {"median_s"}
    assert 0 < found["median_s"] < 1
