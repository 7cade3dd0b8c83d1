"""``analyze apply --fix`` and ``--precision``: what the fixed model computes, by NumPy and ONNX Runtime."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from analyzer.api import apply_plan
from analyzer.cli import run_command_line
from analyzer.errors import DisagreementError, RecordError, UsageError
from tests.judge.small_models import MODELS, export

VOCABULARY, WIDTH, TOKENS = 500, 32, 24
# On no machine but these: what is predicted is the same everywhere.
DEVICES = ("--cpu", "epyc-9654", "--gpu", "l4")


def weights(*shape: int, seed: int = 1) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(0, shape[0] ** -0.5, shape).astype(np.float32)


def saved(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    constants: dict[str, np.ndarray[Any, Any]],
) -> Path:
    stored = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "model", inputs, outputs, stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def language_model(path: Path, *, causal: bool = True) -> Path:
    """An embedding, a mixing of tokens (sums of the earlier ones, or the mean of all) and a last product."""
    mix = (
        helper.make_node("CumSum", ["embedded", "axis"], ["mixed"], name="mix")
        if causal
        else helper.make_node("ReduceMean", ["embedded", "axes"], ["mean"], name="mean", keepdims=1)
    )
    nodes = [helper.make_node("Gather", ["words", "tokens"], ["embedded"], name="embedding"), mix]
    if not causal:
        nodes.append(helper.make_node("Add", ["embedded", "mean"], ["mixed"], name="mix"))
    nodes += [
        helper.make_node("MatMul", ["mixed", "head"], ["product"], name="head"),
        helper.make_node("Add", ["product", "bias"], ["logits"], name="bias"),
    ]
    for node in nodes:
        for key, value in (("file", "lm.py"), ("line", "7"), ("code", f"{node.name}(x)")):
            node.metadata_props.add(key=f"analyzer.{key}", value=value)
    shape = [2, TOKENS, VOCABULARY]
    return saved(
        path,
        nodes,
        [helper.make_tensor_value_info("tokens", TensorProto.INT64, shape[:2])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape)],
        {
            "words": weights(VOCABULARY, WIDTH),
            "head": weights(WIDTH, VOCABULARY, seed=2),
            "bias": weights(VOCABULARY, seed=3),
            **({"axis": np.array(1)} if causal else {"axes": np.array([1], dtype=np.int64)}),
        },
    )


def perceptron(path: Path, *, huge: float = 1.0) -> Path:
    """Two products; a hidden value that the second leaves out may be huge."""
    first, second = weights(64, 48), weights(48, 16, seed=2)
    first[:, 0] *= huge
    second[0] = 0.0
    return saved(
        path,
        [
            helper.make_node("MatMul", ["x", "first"], ["hidden"], name="first"),
            helper.make_node("Relu", ["hidden"], ["kept"], name="relu"),
            helper.make_node("MatMul", ["kept", "second"], ["y"], name="second"),
        ],
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 16])],
        {"first": first, "second": second},
    )


def grid_sampler(path: Path) -> Path:
    """A convolution, a sampling whose CUDA kernel takes float32 alone, a convolution."""
    return saved(
        path,
        [
            helper.make_node("Conv", ["x", "first"], ["a"], name="first", pads=[1, 1, 1, 1]),
            helper.make_node("GridSample", ["a", "grid"], ["b"], name="sampling", align_corners=0),
            helper.make_node("Conv", ["b", "second"], ["y"], name="second"),
        ],
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16]),
            helper.make_tensor_value_info("grid", TensorProto.FLOAT, [1, 8, 8, 2]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 8, 8])],
        {"first": weights(8, 3, 3, 3), "second": weights(4, 8, 1, 1)},
    )


def apply(model: Path, out: Path, *options: str) -> int:
    return run_command_line(
        ["apply", str(model), "--output", str(out), "--no-run", "--quiet", *DEVICES, *options]
    )


def told(out: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((out / "apply.json").read_text("utf-8"))
    return content


def run(model: Path, feeds: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    result: np.ndarray[Any, Any] = session.run(None, feeds)[0]
    return result


def types_of(out: Path) -> Counter[str]:
    graph = onnx.load(str(out / "model.onnx"), load_external_data=False).graph
    return Counter(node.op_type for node in graph.node)


@pytest.fixture(scope="module")
def last_logits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a language model, ``lm.onnx``, and ``out``: the same with the last token's logits alone."""
    folder = tmp_path_factory.mktemp("logits")
    model = language_model(folder / "lm.onnx")
    with pytest.MonkeyPatch.context() as patch:
        # Its record names the model from there.
        patch.chdir(folder)
        assert apply(model, folder / "out", "--fix", "last-logits", "--plan", "cpu") == 0
    return folder


def test_logits_are_those_of_the_last_token_that_numpy_computes(last_logits: Path) -> None:
    tokens = np.random.default_rng(9).integers(0, VOCABULARY, (2, TOKENS))
    stored = onnx.load(str(last_logits / "lm.onnx")).graph.initializer
    constants = {item.name: numpy_helper.to_array(item) for item in stored}
    mixed = constants["words"][tokens].astype(np.float64).cumsum(axis=1)[:, -1:]
    expected = mixed @ constants["head"].astype(np.float64) + constants["bias"]
    got = run(last_logits / "out" / "model.onnx", {"tokens": tokens})
    assert got.shape == (2, 1, VOCABULARY)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


def test_the_record_behind_a_fix_has_fewer_flops_and_compare_reads_it(
    last_logits: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = last_logits / "out"
    before, after = (json.loads((out / name).read_text("utf-8")) for name in ("original.json", "record.json"))
    # One row of the product in place of all: 2 sequences, 2 FLOPs a multiply-accumulate.
    product = 2 * 2 * WIDTH * VOCABULARY
    heads = [next(o for o in r["operators"] if o["name"] == "head") for r in (before, after)]
    assert [head["flops"] for head in heads] == [TOKENS * product, product]
    assert Path(after["model"]["source"]).parts[-2:] == ("out", "model.onnx")
    assert run_command_line(["compare", str(out / "original.json"), str(out / "record.json")]) == 0
    assert "record is fastest" in capsys.readouterr().out


def test_the_record_of_a_fixed_model_is_applied_again(
    last_logits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(last_logits)
    out, again = last_logits / "out", tmp_path / "again"
    asked = ["--output", str(again), "--plan", "cpu", "--no-run", "--quiet"]
    assert run_command_line(["apply", str(out / "record.json"), *asked]) == 0
    assert told(again)["verified"]["numbers"] is True
    assert types_of(again) == types_of(out)


def test_a_new_node_has_a_name_of_its_own_and_the_line_of_what_it_stands_before(last_logits: Path) -> None:
    out = last_logits / "out"
    record = json.loads((out / "record.json").read_text("utf-8"))
    new = [operator for operator in record["operators"] if operator["op_type"] == "Gather"][-1]
    assert new["source"] == {"file": "lm.py", "line": 7, "code": "head(x)"}
    names = [node.name for node in onnx.load(str(out / "model.onnx"), load_external_data=False).graph.node]
    assert len(names) == len(set(names))


def test_logits_whose_rows_read_later_tokens_are_not_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, out = language_model(tmp_path / "lm.onnx", causal=False), tmp_path / "out"
    assert apply(model, out, "--fix", "last-logits", "--plan", "cpu") == 2
    assert "earlier rows of its logits read later tokens" in capsys.readouterr().err
    assert not out.exists()


def test_all_leaves_out_with_a_note_what_does_not_apply(tmp_path: Path) -> None:
    model, out = perceptron(tmp_path / "p.onnx"), tmp_path / "out"
    assert apply(model, out, "--fix", "all", "--plan", "cpu") == 0
    content = told(out)
    assert content["fixes"] == []
    assert [note.split(" was left out")[0] for note in content["notes"][:2]] == [
        "--fix fusions",
        "--fix last-logits",
    ]
    assert not (out / "original.json").exists()


@pytest.mark.parametrize("model", ["encoder"])
def test_fusions_make_fewer_groups_and_the_same_numbers(model: str, tmp_path: Path) -> None:
    path, out = tmp_path / "model.onnx", tmp_path / "out"
    onnx.save(export(MODELS[model](), 20), path)
    assert apply(path, out, "--fix", "fusions", "--plan", "gpu") == 0
    fix = told(out)["fixes"][0]
    assert fix["latency_after_s"] < fix["latency_before_s"]
    assert fix["low_after_s"] < fix["latency_after_s"] < fix["high_after_s"]
    # Two layers, each with an attention; a session by itself fuses none of those.
    assert types_of(out)["MultiHeadAttention"] == 2
    groups = [
        sum(group["session"] == "cuda" for group in json.loads((out / name).read_text("utf-8"))["groups"])
        for name in ("original.json", "record.json")
    ]
    assert groups[1] < groups[0]
    feeds = {"tokens": np.arange(32).reshape(2, 16), "mask": np.ones((2, 16), dtype=np.int64)}
    feeds["mask"][:, 10:] = 0
    np.testing.assert_allclose(run(out / "model.onnx", feeds), run(path, feeds), atol=1e-5)


def test_half_precision_keeps_the_types_of_inputs_and_outputs_and_the_blocked_operator(tmp_path: Path) -> None:
    model, out = grid_sampler(tmp_path / "g.onnx"), tmp_path / "out"
    assert apply(model, out, "--precision", "fp16", "--plan", "gpu") == 0
    content = told(out)
    blocked = content["fixes"][0]["blocked"]
    assert [(row["name"], row["op_type"]) for row in blocked] == [("sampling", "GridSample")]
    assert "no float16 kernel" in blocked[0]["why"]
    assert content["precision"] == "fp16"
    proto = onnx.load(str(out / "model.onnx"))
    assert {item.data_type for item in proto.graph.initializer} == {TensorProto.FLOAT16}
    kinds = {value.type.tensor_type.elem_type for value in (*proto.graph.input, *proto.graph.output)}
    assert kinds == {TensorProto.FLOAT}
    random = np.random.default_rng(5)
    feeds = {
        "x": random.normal(size=(1, 3, 16, 16)).astype(np.float32),
        "grid": random.uniform(-1, 1, (1, 8, 8, 2)).astype(np.float32),
    }
    expected, got = run(model, feeds), run(out / "model.onnx", feeds)
    # A few roundings to 11 bits, and no bit for bit copy of the float32 model.
    assert 0 < np.abs(got - expected).max() < 8 * 2**-11 * np.abs(expected).max()


def test_half_precision_that_overflows_on_a_gpu_is_not_written_though_the_cpu_gives_the_right_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A hidden value of some 100,000, which the second product leaves out: in float16 infinity times 0.
    model, out = perceptron(tmp_path / "p.onnx", huge=1e5), tmp_path / "out"
    first, second = weights(64, 48), weights(48, 16, seed=2)
    first[:, 0] *= 1e5
    second[0] = 0.0
    x = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        hidden = np.maximum(x @ first, 0).astype(np.float16)
        assert np.isinf(hidden).any()
        assert np.isnan(hidden @ second.astype(np.float16)).any()
    assert apply(model, out, "--precision", "fp16", "--plan", "gpu") == 1
    said = capsys.readouterr().err
    assert "first gives " in said
    assert "float16 ends at 65,504" in said
    assert not out.exists()


def test_a_mask_that_is_infinite_on_purpose_is_no_overflow(tmp_path: Path) -> None:
    model = saved(
        tmp_path / "m.onnx",
        [
            helper.make_node("MatMul", ["x", "w"], ["scores"], name="scores"),
            helper.make_node("Where", ["mask", "scores", "never"], ["masked"], name="masking"),
            helper.make_node("Softmax", ["masked"], ["y"], name="softmax"),
        ],
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 64]),
            helper.make_tensor_value_info("mask", TensorProto.BOOL, [8, 48]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 48])],
        {"w": weights(64, 48), "never": np.array(-np.inf, dtype=np.float32)},
    )
    assert apply(model, tmp_path / "out", "--precision", "fp16", "--plan", "gpu") == 0
    assert told(tmp_path / "out")["verified"]["numbers"] is True


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``home``, a perceptron whose weights lie beside it, and ``out``: the same in half."""
    folder = tmp_path_factory.mktemp("half")
    home = folder / "home"
    home.mkdir()
    proto = onnx.load(str(perceptron(folder / "p.onnx")))
    onnx.save(proto, home / "p.onnx", save_as_external_data=True, location="p.data", size_threshold=100)
    assert apply(home / "p.onnx", folder / "out", "--precision", "fp16", "--plan", "gpu") == 0
    return folder


def test_half_weights_are_the_float_ones_rounded(half: Path) -> None:
    before, after = (
        {item.name: numpy_helper.to_array(item) for item in onnx.load(str(half / path)).graph.initializer}
        for path in ("p.onnx", "out/model.onnx")
    )
    for name in ("first", "second"):
        # float16 has no smaller positive value than 2^-24, below which the converter does not round to 0.
        tiny = np.abs(before[name]) < 2**-24
        np.testing.assert_array_equal(after[name][~tiny], before[name].astype(np.float16)[~tiny])


def test_weights_beside_the_users_model_stay_as_they_are(half: Path) -> None:
    before, after = (
        {item.name: numpy_helper.to_array(item) for item in onnx.load(str(half / path)).graph.initializer}
        for path in ("p.onnx", "home/p.onnx")
    )
    assert before.keys() == after.keys()
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value)
    assert os.stat(half / "home" / "p.data").st_nlink == 1
    assert {path.stat().st_nlink for path in (half / "out").iterdir()} == {1}


@pytest.fixture(scope="module")
def quantised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a perceptron, ``p.onnx``, and ``out``: the same in integers of 8 bits."""
    folder = tmp_path_factory.mktemp("quantised")
    assert apply(perceptron(folder / "p.onnx"), folder / "out", "--precision", "int8", "--plan", "cpu") == 0
    return folder


def test_int8_is_told_with_its_signal_over_noise(quantised: Path) -> None:
    model, out = quantised / "p.onnx", quantised / "out"
    fix = told(out)["fixes"][0]
    counts = types_of(out)
    assert counts["QuantizeLinear"] > 0
    assert counts["DequantizeLinear"] > counts["QuantizeLinear"]  # weights are stored in integers
    feeds = dict(np.load(out / "inputs.npz"))
    feeds.pop("__types__", None)
    expected, got = run(model, feeds).astype(np.float64), run(out / "model.onnx", feeds).astype(np.float64)
    ratio = 10 * np.log10(np.square(expected).sum() / np.square(expected - got).sum())
    # The worst of three sets of inputs, the first of which is this one.
    assert 20 <= fix["numbers"]["outputs"][0]["sqnr_db"] <= ratio + 1e-6


def test_int8_that_drowns_the_output_in_noise_is_not_written(tmp_path: Path) -> None:
    # One scale for all hidden values: beside one of 10,000 times the others' size those are all zero.
    model, out = perceptron(tmp_path / "p.onnx", huge=1e4), tmp_path / "out"
    with pytest.raises(DisagreementError, match="20 dB are needed"):
        apply_plan(str(model), output=out, precision="int8", plan="cpu", run=False, cpu="epyc-9654")
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--fix", "fusion"), "Did you mean fusions?"),
        (("--precision", "bf16"), "ONNX Runtime ships no converter"),
        (("--precision", "int4"), "predicted, not written"),
        (("--fix", "last-logits"), "no output is logits"),
        (("--fix", "fusions"), "no rewriting that is known"),
    ],
)
def test_what_does_not_apply_is_one_error(
    options: tuple[str, ...], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, out = perceptron(tmp_path / "p.onnx"), tmp_path / "out"
    assert apply(model, out, *options, "--plan", "cpu") == 2
    assert words in capsys.readouterr().err
    assert not out.exists()


def test_a_model_that_is_in_half_already_stays_as_it_is(half: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert apply(half / "out" / "model.onnx", out, "--precision", "fp16", "--plan", "gpu") == 0
    assert told(out)["fixes"] == []
    assert types_of(out) == types_of(half / "out")


def test_a_quantised_model_is_not_converted_to_half(
    quantised: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert apply(quantised / "out" / "model.onnx", out, "--precision", "fp16", "--plan", "gpu") == 2
    assert "quantised already" in capsys.readouterr().err


def test_a_record_in_half_is_applied_with_the_conversion_that_it_predicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model, out, record = perceptron(tmp_path / "p.onnx"), tmp_path / "out", tmp_path / "p.json"
    asked = [str(model), "--no-run", "--quiet", *DEVICES, "--format", "json", "--output", str(record)]
    assert run_command_line([*asked, "--precision", "fp16"]) == 0
    assert (
        run_command_line(["apply", str(record), "--output", str(out), "--plan", "gpu", "--no-run", "--quiet"])
        == 0
    )
    content = told(out)
    assert [fix["name"] for fix in content["fixes"]] == ["fp16"]
    assert content["precision"] == "fp16"
    assert (content["cpu"], content["gpu"]) == ("epyc-9654", "l4")


ASKED = (
    "--threads",
    "1",
    "--onnxruntime",
    "1.29",
    "--utilisation",
    "0.5",
    "--runs",
    "9",
    "--time-budget",
    "2s",
)


@pytest.mark.parametrize(
    ("given", "gpu", "cpu", "threads"),
    [
        ({"gpu": "a10g"}, "a10g", "epyc-9654", 1),
        # None is what was not given; threads were counted against the record's own CPU.
        ({"gpu": None, "cpu": "xeon-platinum-8375c"}, "t4", "xeon-platinum-8375c", None),
    ],
)
def test_the_model_behind_the_fixes_of_a_record_is_asked_what_the_record_was(
    given: dict[str, Any],
    gpu: str,
    cpu: str,
    threads: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    model, record, out = perceptron(tmp_path / "p.onnx"), tmp_path / "p.json", tmp_path / "out"
    asked = [str(model), "--no-run", "--quiet", "--cpu", "epyc-9654", "--gpu", "t4", *ASKED]
    assert run_command_line([*asked, "--precision", "fp16", "--format", "json", "--output", str(record)]) == 0
    done = apply_plan(str(record), output=out, plan="gpu", run=False, **given)
    assert (done.gpu, done.cpu, done.onnxruntime) == (gpu, cpu, "1.29.0")
    for name in ("original.json", "record.json"):
        content = json.loads((out / name).read_text("utf-8"))
        kept = content["kept"]
        assert (content["devices"]["gpu"]["slug"], content["devices"]["cpu"]["slug"]) == (gpu, cpu), name
        assert (kept["threads"], kept["utilisation"], content["onnxruntime"]) == (threads, 0.5, "1.29.0"), name
    assert json.loads((out / "session.json").read_text("utf-8"))["intra_op_num_threads"] == (threads or 0)


def test_a_record_in_int8_says_that_the_model_itself_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model, record = perceptron(tmp_path / "p.onnx"), tmp_path / "p.json"
    asked = [str(model), "--no-run", "--quiet", *DEVICES, "--format", "json", "--output", str(record)]
    assert run_command_line([*asked, "--precision", "int8"]) == 0
    with pytest.raises(RecordError, match="int8"):
        apply_plan(str(record), output=tmp_path / "out", run=False)


@pytest.mark.parametrize("precision", ["bf16", "int4"])
def test_a_record_in_a_form_that_nothing_writes_is_refused(
    precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model, record = perceptron(tmp_path / "p.onnx"), tmp_path / "p.json"
    asked = [str(model), "--no-run", "--quiet", *DEVICES, "--format", "json", "--output", str(record)]
    assert run_command_line([*asked, "--precision", precision]) == 0
    with pytest.raises(UsageError, match=f"--precision {precision}"):
        apply_plan(str(record), output=tmp_path / "out", run=False)


def test_fixes_of_a_module_in_memory_give_what_pytorch_gives(tmp_path: Path) -> None:
    module, (tokens,) = MODELS["decoder"]()
    out = tmp_path / "out"
    applied = apply_plan(
        module.eval(),
        (tokens,),
        output=out,
        fix=["last-logits"],
        plan="cpu",
        run=False,
        cpu="epyc-9654",
        gpu="l4",
    )
    assert [fix.name for fix in applied.fixes] == ["last-logits"]
    with torch.no_grad():
        expected = module(tokens)[:, -1:].numpy()
    feeds = {name: array for name, array in np.load(out / "inputs.npz").items() if name != "__types__"}
    np.testing.assert_array_equal(next(iter(feeds.values())), tokens.numpy())
    np.testing.assert_allclose(run(out / "model.onnx", feeds), expected, atol=1e-4)


def test_a_fix_of_no_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--fix needs a name"):
        apply_plan(str(perceptron(tmp_path / "p.onnx")), output=tmp_path / "out", fix=",")
