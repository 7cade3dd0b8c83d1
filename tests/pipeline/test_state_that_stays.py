"""A step of a model that generates: its cache lies where it is used, and only tokens and logits cross."""

from dataclasses import replace
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from analyzer import analyze
from analyzer.api import analyze_record
from analyzer.devices import catalogue
from analyzer.errors import UsageError
from analyzer.graph import Graph
from analyzer.loading.load import load_live
from analyzer.measurement.request import Latency, Measurement
from analyzer.memory.fit import peak_memory_bytes
from analyzer.memory.session_plan import SessionPlan
from analyzer.ort.fusion import predicted_groups
from analyzer.pipeline import measure
from analyzer.pipeline.options import make_options
from analyzer.record import from_dict
from analyzer.record.analysis import Analysis, Opportunity

HALF = 2  # bytes of a float16
CONTEXT, VOCABULARY = 2048, 32_000
# Numbers of tokens are int64, lengths of sequences int32: seqlens_k and total_sequence_length of the operator.
LENGTHS = 4 + 4


def decode_step(
    *,
    layers: int = 2,
    hidden: int = 512,
    heads: int = 8,
    rows: int = 1,
    grown: bool = False,
    vocabulary: int = 0,
) -> onnx.ModelProto:
    """Layers of attention over a cache and a perceptron, as ONNX Runtime GenAI exports them."""
    vocabulary = vocabulary or VOCABULARY
    weights: list[onnx.TensorProto] = []

    def weight(name: str, *shape: int) -> str:
        stored = TensorProto(name=name, data_type=TensorProto.FLOAT16, dims=shape)
        stored.data_location = TensorProto.EXTERNAL
        stored.external_data.add(key="location", value="weights.bin")
        weights.append(stored)
        return name

    def value(name: str, shape: list[str | int], kind: int = TensorProto.FLOAT16) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    inputs = [
        value("input_ids", ["batch", rows], TensorProto.INT64),
        value("seqlens_k", ["batch"], TensorProto.INT32),
    ]
    inputs.append(value("total", [1], TensorProto.INT32))
    outputs = [value("logits", ["batch", rows, vocabulary])]
    nodes = [
        helper.make_node("Gather", [weight("embedding", vocabulary, hidden), "input_ids"], ["x0"], name="embed")
    ]
    for i in range(layers):
        for kind in ("key", "value"):
            size = hidden // heads
            inputs.append(value(f"past_key_values.{i}.{kind}", ["batch", heads, CONTEXT, size]))
            outputs.append(value(f"present.{i}.{kind}", ["batch", heads, CONTEXT + rows * grown, size]))
        past, present = ([f"{at}.{i}.key", f"{at}.{i}.value"] for at in ("past_key_values", "present"))
        nodes += [
            helper.make_node("MatMul", [f"x{i}", weight(f"w{part}{i}", hidden, hidden)], [f"{part}{i}"])
            for part in "qkv"
        ]
        nodes.append(
            helper.make_node(
                "GroupQueryAttention",
                [f"q{i}", f"k{i}", f"v{i}", *past, "seqlens_k", "total"],
                [f"a{i}", *present],
                name=f"attention_{i}",
                domain="com.microsoft",
                num_heads=heads,
                kv_num_heads=heads,
            )
        )
        nodes.append(helper.make_node("MatMul", [f"a{i}", weight(f"wo{i}", hidden, hidden)], [f"o{i}"]))
        nodes.append(helper.make_node("MatMul", [f"o{i}", weight(f"up{i}", hidden, 4 * hidden)], [f"u{i}"]))
        nodes.append(helper.make_node("Relu", [f"u{i}"], [f"r{i}"]))
        nodes.append(
            helper.make_node("MatMul", [f"r{i}", weight(f"down{i}", 4 * hidden, hidden)], [f"x{i + 1}"])
        )
    nodes.append(
        helper.make_node("MatMul", [f"x{layers}", weight("head", hidden, vocabulary)], ["logits"], name="head")
    )
    for number, node in enumerate(nodes):
        node.name = node.name or f"{node.op_type}_{number}"
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "decode", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def analysed(model: onnx.ModelProto, **options: object) -> Analysis:
    chosen: dict[str, object] = {"batch": 1, "gpu": "a100-80gb", "cpu": "epyc-9654", "run": False, **options}
    return analyze(model, **chosen)  # type: ignore[arg-type]


def graph_of(model: onnx.ModelProto) -> Graph:
    return load_live(model, inputs=None, batch=1, specs=(), opset=None, progress=lambda _: None).graph()


def crossing(analysis: Analysis, plan: str = "gpu") -> dict[str, int]:
    return {item.tensor: item.bytes for item in analysis.plan(plan).transfers.items}


@pytest.fixture(scope="module")
def step() -> Analysis:
    return analysed(decode_step())


def test_of_a_decode_step_tokens_and_logits_alone_cross(step: Analysis) -> None:
    assert crossing(step) == {
        "input_ids": 8,
        "seqlens_k": 4,
        "total": 4,
        "logits": VOCABULARY * HALF,
    }
    assert step.plan("gpu").transfers.bytes == 8 + LENGTHS + VOCABULARY * HALF


def test_a_decode_step_at_context_2048_reads_its_cache_on_the_gpu_and_moves_no_attention_to_the_cpu() -> None:
    # It was told to take forty times as long, nearly all of it copies of the cache, and to attend on the CPU.
    layers, hidden = 4, 4096
    analysis = analysed(decode_step(layers=layers, hidden=hidden, heads=32))
    # Weights of 12 squares of the width a layer (4 of attention, 8 of the perceptron) and the head; of the
    # embedding one row; keys and values of the context.
    weights = layers * 12 * hidden**2 + hidden * VOCABULARY
    cache = layers * 2 * CONTEXT * hidden
    least = (weights + cache) * HALF / catalogue.device("a100-80gb").bandwidth_bytes_per_s
    assert least < analysis.plan("gpu").latency_s < 3 * least
    attention = [operator for operator in analysis.operators if operator.op_type == "GroupQueryAttention"]
    assert len(attention) == layers
    assert all(operator.placement == "gpu" for operator in attention)
    assert analysis.verdict.device == "gpu"


def test_without_state_the_cache_crosses_both_ways(step: Analysis) -> None:
    analysis = analysed(decode_step(), state=False)
    # Two layers of keys and values, there and back.
    caches = 2 * 2 * CONTEXT * 512 * HALF
    assert analysis.plan("gpu").transfers.bytes == step.plan("gpu").transfers.bytes + 2 * caches
    assert analysis.model.state == ()
    assert analysis.plan("gpu").latency_s > step.plan("gpu").latency_s
    assert "no-state" in analysis.invocation.options
    assert "no-state" not in step.invocation.options


def test_a_given_pair_is_state_as_one_that_was_found() -> None:
    model = decode_step(grown=True)
    for name in [value.name for value in model.graph.input if value.name.startswith("past")]:
        other = name.replace("past_key_values.", "kept_")
        for node in model.graph.node:
            node.input[:] = [other if each == name else each for each in node.input]
    for value in model.graph.input:
        value.name = value.name.replace("past_key_values.", "kept_")
    for node in model.graph.node:
        # An operator that nobody knows between the cache and the result hides what the result is.
        node.output[:] = [each.replace("present.0.key", "hidden.0") for each in node.output]
    model.graph.node.append(helper.make_node("Neg", ["hidden.0"], ["present.0.key"], name="neg"))
    found = {pair.input for pair in analysed(model).model.state}
    assert found == {"kept_0.value", "kept_1.key", "kept_1.value"}
    given = analysed(model, state="kept_0.key=present.0.key")
    assert {pair.input for pair in given.model.state} == {*found, "kept_0.key"}
    assert given.invocation.options["state"] == ("kept_0.key=present.0.key",)
    assert "kept_0.key" not in crossing(given)


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("past_key_values.0.kye=present.0.key", "past_key_values.0.key"),
        ("past_key_values.0.key=present.0.kye", "present.0.key"),
    ],
)
def test_a_name_that_the_model_lacks_is_refused_with_the_nearest(given: str, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        analysed(decode_step(layers=1), state=[given])
    assert hint in error.value.hint


def test_a_pair_is_written_with_one_sign_and_goes_with_no_training() -> None:
    for text in ("past", "=present", "past="):
        with pytest.raises(UsageError, match="IN=OUT"):
            make_options(state=text)
    with pytest.raises(UsageError, match="training"):
        make_options(state="a=b", training=True)
    assert make_options(state=True) == make_options()
    assert make_options(state=False).state is None


def test_the_record_names_the_state_and_decides_alike_without_the_model(step: Analysis) -> None:
    assert [(pair.input, pair.output) for pair in step.model.state] == [
        (f"past_key_values.{i}.{kind}", f"present.{i}.{kind}") for i in range(2) for kind in ("key", "value")
    ]
    assert step.model.state[0].shape == (1, 8, CONTEXT, 64)
    saved = from_dict(step.to_dict())
    again = analyze_record(saved, gpu="a100-80gb")
    assert crossing(again) == crossing(step)
    assert [plan.latency_s for plan in again.plans] == [plan.latency_s for plan in step.plans]
    elsewhere = analyze_record(saved, gpu="h100")
    assert crossing(elsewhere) == crossing(analysed(decode_step(), gpu="h100"))


def test_every_report_says_what_was_taken_for_state_and_how_to_count_it(step: Analysis) -> None:
    said = "4 inputs (past_key_values.0.key to past_key_values.1.value) are state: they stay on the device"
    for name in ("text", "markdown", "html"):
        plain = " ".join(step.render(name).replace("\\", "").replace("<wbr>", "").split())
        assert said in plain, name
        assert "(--no-state counts their copies)" in plain, name
    assert "are state" not in analysed(decode_step(), state=False).render("text")


def test_a_past_and_a_present_of_one_shape_are_one_buffer_and_grown_ones_are_two() -> None:
    shared, grown = graph_of(decode_step()), graph_of(decode_step(grown=True))
    rows = 2 * 2 * 512 * HALF  # a token's keys and values in both layers
    caches = CONTEXT * rows
    for graph, held in ((shared, caches), (grown, 2 * caches + rows)):
        for provider in ("cpu", "cuda"):
            plan = SessionPlan.of(graph, predicted_groups(graph, provider)).peak_bytes(provider)
            # Beside the caches the logits, a few rows and what is fed: far less than one cache.
            assert held < plan < held + caches // 4
        assert held < peak_memory_bytes(graph) < held + caches // 4
    assert sum(shared.tensors[name].nbytes or 0 for name in shared.shared_outputs) == caches


def test_a_model_with_state_is_no_training_step(step: Analysis) -> None:
    # Of halves with GroupQueryAttention no other form is told: made whole, it would leave the GPU.
    assert step.precisions == ()
    graph = graph_of(decode_step())
    assert graph.carried
    assert not graph.is_training_step


def test_in_another_precision_the_cache_still_stays(step: Analysis) -> None:
    for precision in ("int8", "int4"):
        analysis = analysed(decode_step(), precision=precision)
        assert set(crossing(analysis)).isdisjoint(pair.input for pair in step.model.state), precision
        assert len(analysis.model.state) == 4


def test_the_last_row_of_many_logits_is_offered_with_what_the_others_take(step: Analysis) -> None:
    def cut(found: Analysis) -> list[Opportunity]:
        return [one for one in found.opportunities if one.code == "last-logits"]

    prompt = analysed(decode_step(rows=64, grown=True))
    (offered,) = cut(prompt)
    assert "of the last of 64 tokens alone (logits_to_keep=1)" in offered.title
    assert "head" in {prompt.operators[index].name for index in offered.operators}
    plan = prompt.plan("gpu")
    assert plan is not None
    (copied,) = [item for item in plan.transfers.items if item.tensor == "logits"]
    assert copied.bytes == 64 * VOCABULARY * HALF
    # At least what 63 of 64 rows take to cross: their bytes at the link's rate.
    assert offered.gain_s > 63 / 64 * copied.bytes / 32e9
    assert cut(step) == []
    # Without a past nobody goes on from these logits: all of them may be wanted.
    assert cut(analysed(decode_step(rows=64, grown=True), state=False)) == []


def test_a_model_with_state_is_measured_on_the_cpu_with_its_state_as_inputs() -> None:
    x, h, y, new = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 8])
        for name in ("x", "h", "y", "new_h")
    )
    nodes = [helper.make_node("Add", ["x", "h"], ["s"]), helper.make_node("Tanh", ["s"], ["new_h"])]
    nodes.append(helper.make_node("Neg", ["new_h"], ["y"]))
    opsets = [helper.make_opsetid("", 20)]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x, h], [y, new]), opset_imports=opsets, ir_version=9
    )
    analysis = analyze(model, batch=4, gpu="t4", runs=3, time_budget=1)
    assert [(pair.input, pair.output) for pair in analysis.model.state] == [("h", "new_h")]
    assert analysis.plan("cpu").origin == "measured"
    assert set(crossing(analysis)) == {"x", "y"}


def test_a_run_on_cuda_counts_what_it_takes_with_the_state_on_the_gpu() -> None:
    def timed(seconds: float, origin: str) -> Latency:
        times: dict[str, Any] = dict.fromkeys(("value", "p10_s", "p90_s", "min_s", "low", "high"), seconds)
        return Latency(**times, runs=3, warmup_runs=1, method=origin)

    copies, resident = timed(5e-3, "copies"), timed(1e-3, "resident")
    ran = Measurement(provider="cuda", latency=copies, ways={"copies": copies, "resident": resident})
    graph = graph_of(decode_step())
    assert measure._joined(measure.Measured(), graph, ran, "cuda").cuda_latency.value == 1e-3
    # Nothing else of a run tells what it takes without the copies of its state.
    unknown = replace(ran, ways={"copies": copies})
    assert measure._joined(measure.Measured(), graph, unknown, "cuda").cuda_latency is None
    without = replace(graph, carried={})
    assert measure._joined(measure.Measured(), without, ran, "cuda").cuda_latency.value == 5e-3
