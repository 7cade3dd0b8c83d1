"""`apply_plan()`: a folder that runs the plan, errors that leave nothing, records whose model is another."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from analyzer.api import analyze, apply_plan
from analyzer.errors import AnalyzerError, MeasurementError, ModelError, OutputError, RecordError, UsageError
from analyzer.loading import reading_process, runnable_files
from analyzer.loading.runnable_files import write_file
from analyzer.measurement.applied_session import SessionSide, verify
from analyzer.ort.annotations import KEY, ON_CPU, annotate
from analyzer.pipeline.apply import verification
from analyzer.pipeline.apply.folder import folder_to_be
from analyzer.pipeline.apply.opsets import OpsetCost, fastest
from analyzer.pipeline.apply.result import Applied
from analyzer.pipeline.apply.words import summary
from analyzer.record import to_json

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


def annotated_nodes(path: Path) -> set[str]:
    return {
        node.name
        for node in onnx.load(path).graph.node
        if any(entry.key == KEY and entry.value == ON_CPU for entry in node.metadata_props)
    }


def test_a_pinned_operator_is_annotated_and_copied_to_and_from_the_cpu(model: Path, tmp_path: Path) -> None:
    done = applied(model, tmp_path / "out", pin=SPLIT)
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES
    assert annotated_nodes(tmp_path / "out" / "model.onnx") == {"sine"}
    # Conv writes on the GPU what Sin reads, Sin on the CPU what Cos reads: one copy each way.
    assert (done.plan, done.copies, done.annotated) == ("hybrid", 2, 1)
    assert dict(done.nodes) == {"conv": "CUDA", "sine": "CPU", "cosine": "CUDA", "product": "CUDA"}
    said = json.loads((tmp_path / "out" / "apply.json").read_text())
    assert said["nodes"] == dict(done.nodes)
    assert said["low_s"] <= said["latency_s"] <= said["high_s"]
    session = json.loads((tmp_path / "out" / "session.json").read_text())
    assert session["providers"] == ["CUDAExecutionProvider", "CPUExecutionProvider"]
    assert session["session_config"] == {"session.layer_assignment_settings": f"cpu(={ON_CPU})"}
    assert len(session["provider_options"]) == 2


def test_numbers_are_compared_though_nothing_is_timed_and_what_is_not_verified_says_why(
    model: Path, tmp_path: Path
) -> None:
    verified = applied(model, tmp_path / "out", pin=SPLIT).verified
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
    program = (tmp_path / "out" / "run.py").read_text()
    assert len(program.splitlines()) < 60
    assert "analyzer" not in program


def said_by_program(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-P", str(folder / "run.py"), "--runs", "2", "--verify", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_program_of_a_plan_of_the_cpu_verifies_its_placement_without_cuda(
    model: Path, tmp_path: Path
) -> None:
    applied(model, tmp_path / "out", plan="cpu")
    assert "placement: 0 of 4 nodes are not where the plan has them" in said_by_program(tmp_path / "out")


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


def test_a_plan_of_the_cpu_alone_needs_no_annotation_and_no_cuda(model: Path, tmp_path: Path) -> None:
    done = applied(model, tmp_path / "out", plan="cpu")
    assert set(done.nodes.values()) == {"CPU"}
    assert (done.copies, done.annotated, done.gpu) == (0, 0, None)
    assert json.loads((tmp_path / "out" / "session.json").read_text())["providers"] == ["CPUExecutionProvider"]
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
        ({"plan": "hybird"}, "no such plan"),
        ({"plan": 3}, "no such plan"),
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


def test_a_record_whose_model_is_gone_or_changed_or_at_another_opset_is_refused(
    model: Path, tmp_path: Path
) -> None:
    (tmp_path / "net.json").write_text(to_json(analyze(model, gpu="l4", run=False)))
    with pytest.raises(UsageError, match="opset 20, not for 21"):
        applied(tmp_path / "net.json", tmp_path / "out", opset=21)
    with pytest.raises(UsageError, match="opset 20, not for auto"):
        applied(tmp_path / "net.json", tmp_path / "out", opset="auto")
    with pytest.raises(UsageError, match="--onnxruntime"):
        applied(tmp_path / "net.json", tmp_path / "out", onnxruntime="1.27")
    with pytest.raises(UsageError, match="not for 5"):
        applied(tmp_path / "net.json", tmp_path / "out", batch=5)
    changed = network()
    changed.graph.node[1].op_type = "Tan"
    onnx.save(changed, model)
    with pytest.raises(RecordError, match="has changed"):
        applied(tmp_path / "net.json", tmp_path / "out")
    model.unlink()
    with pytest.raises(RecordError, match="is not here"):
        applied(tmp_path / "net.json", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"onnxruntime": "1.27"}, "--onnxruntime: the record's plan is made already"),
        ({"threads": 1}, "--threads: the record's plan is made already"),
        ({"state": ["x=y"]}, "--state: the record's plan is made already"),
        ({"state": False}, "--no-state: the record's plan is made already"),
        ({"opset": "auto"}, "opset 20, not for auto"),
        ({"inputs": np.zeros((2, 3, 8, 8), np.float32)}, "inputs of its model"),
    ],
)
def test_what_would_make_another_plan_of_a_record_is_refused_rather_than_left_out(
    model: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    (tmp_path / "net.json").write_text(to_json(analyze(model, gpu="l4", run=False)))
    with pytest.raises(UsageError, match=message):
        applied(tmp_path / "net.json", tmp_path / "out", **options)
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
    assert (costs[22].latency_s or 0) > (costs[20].latency_s or 0)
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


KILLED = """
import sys, time
from pathlib import Path
from analyzer.pipeline.apply.folder import folder_to_be
with folder_to_be(Path(sys.argv[1])) as aside:
    (aside / "weights.bin").write_bytes(bytes(1000))
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(os.name == "nt", reason="no such signal there")
@pytest.mark.parametrize("there", [False, True], ids=["a new folder", "a folder that is there"])
def test_what_a_killed_run_was_writing_goes_with_the_next_and_what_another_writes_stays(
    model: Path, tmp_path: Path, there: bool
) -> None:
    place = tmp_path / "parent" / "out"
    (place if there else place.parent).mkdir(parents=True)
    command = [sys.executable, "-c", KILLED, str(place)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.readline()
        running.kill()
    left = next(place.parent.rglob("weights.bin")).parent
    assert left.name.startswith(".onnx-analyzer-")
    with folder_to_be(place.parent / "other") as aside:
        applied(model, place, plan="cpu")
        assert aside.exists()
    assert not left.exists()
    assert {path.name for path in place.iterdir()} == FILES
    assert {path.name for path in place.parent.iterdir()} == {"out", "other"}


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
        write_file(model, None, {}, tmp_path / "aside")


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
    def fail(path: Path, *_: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(runnable_files, "write_file", fail)
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


@pytest.mark.parametrize("in_place", [{}, {"past": "present"}], ids=["host to host", "state stays"])
def test_a_session_is_timed_with_its_state_where_it_lies(
    tmp_path: Path, in_place: dict[str, str], monkeypatch: pytest.MonkeyPatch
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
        "applied": SessionSide(model=tmp_path / "step.onnx").as_json(),
        "feeds": str(tmp_path / "feeds.npz"),
        "in_place": in_place,
        "budget_s": 0.05,
    }
    found = verify([task])["time"]
    assert found.keys() == {"median_s"}
    assert 0 < found["median_s"] < 1
