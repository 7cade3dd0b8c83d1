"""``--precision`` and the table of precisions: what is promised is what the file in that precision gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from static_quantiser import quantised

from analyzer import analyze
from analyzer.api import analyze_record
from analyzer.conversion import in_floats, without_half_kernel
from analyzer.errors import RecordError, UsageError
from analyzer.loading.onnx_graph.build import to_graph
from analyzer.pipeline import measure, precision_table
from analyzer.pipeline.measure import Measured
from analyzer.prediction.estimate import Estimate
from analyzer.record.analysis import Analysis, PrecisionResult
from analyzer.record.outcome import CostRow


def network(*, opset: int = 20, batch: int | str = 1, products: int = 0) -> onnx.ModelProto:
    """Three convolutions and a product, or products alone: over 100,000 weights."""
    random = np.random.default_rng(0)

    def stored(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array((random.normal(size=shape) * 0.05).astype(np.float32), name)

    if products:
        shape: list[Any] = [batch, 256]
        weights = [stored(f"w{number}", 256, 256) for number in range(products)]
        names = ["x", *(f"h{number}" for number in range(1, products)), "y"]
        nodes = [
            helper.make_node("MatMul", [names[at], f"w{at}"], [names[at + 1]], name=f"product_{at}")
            for at in range(products)
        ]
    else:
        shape = [batch, 16, 28, 28]
        weights = [stored("w0", 64, 16, 3, 3), stored("w1", 64, 64, 3, 3), stored("w2", 64, 64, 3, 3)]
        weights += [stored(f"b{number}", 64) for number in range(3)] + [stored("w3", 10, 64), stored("b3", 10)]
        nodes = []
        data = "x"
        for at in range(3):
            inputs = [data, f"w{at}", f"b{at}"]
            nodes.append(helper.make_node("Conv", inputs, [f"c{at}"], name=f"conv_{at}", pads=[1] * 4))
            nodes.append(helper.make_node("Relu", [f"c{at}"], [f"r{at}"], name=f"relu_{at}"))
            data = f"r{at}"
        nodes.append(helper.make_node("GlobalAveragePool", [data], ["p"], name="pool"))
        nodes.append(helper.make_node("Flatten", ["p"], ["f"], name="flat"))
        nodes.append(helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], name="gemm", transB=1))
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def halves(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its weights, inputs and outputs in float16."""
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    return model


def rows(analysis: Analysis) -> Mapping[tuple[str, str], PrecisionResult]:
    return {(row.precision, row.device): row for row in analysis.precisions}


@pytest.fixture(scope="module")
def floats() -> Analysis:
    return analyze(network(), run=False, gpu="l4", cpu="xeon-platinum-8488c")


@pytest.mark.filterwarnings("ignore")  # the quantiser's own, about NumPy
def test_int8_promises_what_the_quantised_file_gets(tmp_path: Path) -> None:
    options: Any = {"run": False, "gpu": "l4", "cpu": "xeon-platinum-8488c"}
    promised = analyze(network(), precision="int8", **options)
    real = analyze(quantised(network(), tmp_path), **options)
    for plan in ("cpu", "gpu"):
        assert promised.plan(plan).latency_s == pytest.approx(real.plan(plan).latency_s, rel=1e-6)
        assert promised.plan(plan).memory_bytes == pytest.approx(real.plan(plan).memory_bytes, rel=0.02)
    assert promised.model.parameter_bytes == pytest.approx(real.model.parameter_bytes, rel=0.01)
    assert (promised.model.precision, promised.verdict.device) == ("int8", real.verdict.device)


def test_int8_is_no_gain_on_a_gpu_that_has_no_int8_convolution(floats: Analysis) -> None:
    row = rows(floats)["int8", "gpu"]
    assert row.speedup < 1
    assert row.latency_s > floats.plan("gpu").latency_s
    assert "no int8 convolution: 4 of 4 convolutions and matrix multiplications in floats" in row.reason


def test_int8_is_a_gain_on_a_cpu_with_instructions_for_it_and_none_without() -> None:
    with_vnni = analyze(network(batch=8), run=False, gpu="none", cpu="xeon-platinum-8488c")
    without = analyze(network(batch=8), run=False, gpu="none", cpu="xeon-e5-2686-v4")
    assert rows(with_vnni)["int8", "cpu"].speedup > 1.2 * rows(without)["int8", "cpu"].speedup


def test_the_verdict_on_int8_says_what_becomes_of_its_products() -> None:
    decided = analyze(network(), run=False, gpu="l4", cpu="xeon-platinum-8488c", precision="int8")
    said = " ".join(decided.verdict.because)
    assert "ONNX Runtime's CUDA provider has no int8 convolution: 4 of 4 convolutions and matrix" in said
    assert "4 of 4 convolutions and matrix multiplications run in integer kernels on the CPU" in said
    text = decided.render("text")
    assert "no int8 convolution" in text
    assert "nothing was run in that form" in " ".join(decided.model.notes)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "int8", "int4"])
def test_a_row_is_what_asking_for_that_precision_gives(floats: Analysis, precision: str) -> None:
    asked = analyze(network(), run=False, gpu="l4", cpu="xeon-platinum-8488c", precision=precision)
    row = rows(floats)[precision, "gpu"]
    plan = asked.plan("gpu")
    assert (row.latency_s, row.low_s, row.high_s) == (plan.latency_s, plan.low_s, plan.high_s)
    assert (row.memory_bytes, row.usd_per_million) == (plan.memory_bytes, plan.usd_per_million)
    assert asked.model.precision == precision
    if precision in ("int8", "int4"):
        assert rows(floats)[precision, "cpu"].latency_s == asked.plan("cpu").latency_s


def test_the_rows_of_the_verdict_are_its_plans(floats: Analysis) -> None:
    decided = [row for row in floats.precisions if row.decided]
    assert [(row.precision, row.device) for row in decided] == [("fp32", "cpu"), ("tf32", "gpu")]
    for row in decided:
        assert row.latency_s == floats.plan(row.device).latency_s
        assert row.speedup is None


def test_what_cannot_run_has_no_figure_and_says_why(floats: Analysis) -> None:
    row = rows(floats)["bf16", "cpu"]
    assert (row.latency_s, row.memory_bytes, row.usd_per_million, row.speedup) == (None,) * 4
    assert "no bf16 kernel for Conv" in row.reason
    assert ("tf32", "cpu") not in rows(floats)
    assert ("tf32", "gpu") not in rows(analyze(network(), run=False, gpu="t4"))


def test_packed_weights_take_what_they_take() -> None:
    analysis = analyze(network(products=4), run=False, gpu="l4")
    row = rows(analysis)["int4", "gpu"]
    # Half a byte for each weight and a scale of two bytes for each block of 32.
    weights = 4 * 256 * 256
    activations = row.memory_bytes - weights // 2 - 2 * weights // 32
    assert 0 <= activations <= 2 * 2 * 256 * 4
    assert "4 of 4 convolutions and matrix multiplications read packed weights" in row.reason


def test_operators_without_a_narrow_kernel_stay_wide_between_casts() -> None:
    at_20, at_22 = (analyze(network(opset=opset), run=False, gpu="l4") for opset in (20, 22))
    # docs/OperatorKernels.md of ONNX Runtime 1.31: CUDA's Conv takes bfloat16 from opset 22 on.
    slow, fast = rows(at_20)["bf16", "gpu"], rows(at_22)["bf16", "gpu"]
    assert "no bf16 kernel for Conv" in slow.reason
    assert "Conv" not in fast.reason
    assert slow.latency_s > rows(at_20)["tf32", "gpu"].latency_s
    assert slow.latency_s > fast.latency_s


def test_a_few_doubles_are_not_what_a_quantised_model_is_computed_in() -> None:
    model = network()
    doubles = numpy_helper.from_array(np.ones((1, 64, 1, 1)), "doubles")
    last = model.graph.node[5]
    assert list(last.output) == ["r2"]
    last.output[0] = "narrow"
    model.graph.initializer.append(doubles)
    for at, (op_type, inputs, output) in enumerate(
        [("Cast", ["narrow"], "wide"), ("Mul", ["wide", "doubles"], "scaled"), ("Cast", ["scaled"], "r2")]
    ):
        node = helper.make_node(op_type, inputs, [output], name=output)
        if op_type == "Cast":
            kind = TensorProto.DOUBLE if output == "wide" else TensorProto.FLOAT
            node.attribute.append(helper.make_attribute("to", kind))
        model.graph.node.insert(6 + at, node)
    analysis = analyze(model, run=False, gpu="l4", cpu="xeon-platinum-8488c")
    plain = analyze(network(), run=False, gpu="l4", cpu="xeon-platinum-8488c")
    for device in ("cpu", "gpu"):
        assert rows(analysis)["int8", device].latency_s < 2 * rows(plain)["int8", device].latency_s


def test_another_width_of_a_model_in_halves_is_made_of_its_floats_in_full() -> None:
    half = halves(network(products=4))
    for precision in ("fp32", "bf16"):
        narrow = analyze(half, run=False, gpu="l4", precision=precision)
        full = analyze(network(products=4), run=False, gpu="l4", precision=precision)
        assert narrow.plan("gpu").latency_s == full.plan("gpu").latency_s
        assert narrow.plan("gpu").memory_bytes == full.plan("gpu").memory_bytes


def test_without_a_gpu_the_cpus_rows_are_there_alone() -> None:
    analysis = analyze(network(), run=False, gpu="none")
    assert {row.device for row in analysis.precisions} == {"cpu"}


def test_a_quantised_model_has_no_other_precisions() -> None:
    graph = analyze(network(products=2), run=False, gpu="l4", precision="int4")
    assert graph.precisions == ()


def test_a_check_asks_for_one_answer_alone() -> None:
    assert analyze(network(), run=False, gpu="l4", check=True).precisions == ()


def test_a_model_in_half_precision_is_shown_in_full_as_well() -> None:
    wide = analyze(network(products=4), run=False, gpu="l4")
    half = halves(network(products=4))
    narrow = analyze(half, run=False, gpu="l4")
    assert [row.precision for row in narrow.precisions if row.decided] == ["fp16", "fp16"]
    for precision in ("tf32", "int8", "int4"):
        assert rows(narrow)[precision, "gpu"].latency_s == rows(wide)[precision, "gpu"].latency_s
    asked = analyze(half, run=False, gpu="l4", precision="int8")
    assert asked.plan("gpu").latency_s == rows(narrow)["int8", "gpu"].latency_s
    assert asked.plan("cpu").latency_s == rows(narrow)["int8", "cpu"].latency_s


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_a_record_decided_in_an_integer_form_is_the_analysis_in_it(precision: str) -> None:
    model = network(batch="n")
    saved = analyze(model, run=False, gpu="l4", batch=4, cpu="epyc-9654")
    afresh = analyze(model, run=False, gpu="l4", batch=4, cpu="epyc-9654", precision=precision)
    again = analyze_record(saved, precision=precision)
    for one, other in zip(again.sweep, afresh.sweep, strict=True):
        assert one.plans["gpu"].latency_s == pytest.approx(other.plans["gpu"].latency_s, rel=1e-9)
        assert one.plans["cpu"].latency_s == pytest.approx(other.plans["cpu"].latency_s, rel=1e-9)
    assert [operator.name for operator in again.operators] == [operator.name for operator in afresh.operators]
    assert again.model.parameter_bytes == afresh.model.parameter_bytes
    # And once more, from what it holds itself.
    other_gpu = analyze_record(again, gpu="t4")
    expected = analyze(model, run=False, gpu="t4", batch=4, cpu="epyc-9654", precision=precision)
    assert other_gpu.plan("gpu").latency_s == pytest.approx(expected.plan("gpu").latency_s, rel=1e-9)


def test_a_record_in_an_integer_form_gives_no_floats_back() -> None:
    saved = analyze(network(), run=False, gpu="l4", precision="int8")
    with pytest.raises(RecordError, match="from which its floats cannot be had back"):
        analyze_record(saved, precision="fp16")


def test_what_has_no_such_form_is_refused_with_the_reason() -> None:
    with pytest.raises(UsageError, match="quantised already, to int4"):
        analyze(_packed(), run=False, gpu="l4", precision="int8")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", ends[:1], ends[1:])
    relu = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    with pytest.raises(UsageError, match="has stored weights of two axes to pack"):
        analyze(relu, run=False, precision="int4")
    with pytest.raises(UsageError, match="a training step is made of floats"):
        analyze("any.py", run=False, precision="int8", training=True)
    with pytest.raises(UsageError, match="quantises models from opset 11 on"):
        analyze(network(opset=10, products=2), run=False, precision="int8")


def _packed() -> onnx.ModelProto:
    stored = [
        numpy_helper.from_array(np.zeros((64, 2, 16), dtype=np.uint8), "w"),
        numpy_helper.from_array(np.ones(128, dtype=np.float32), "s"),
    ]
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=64, N=64, bits=4, block_size=32
    )
    graph = helper.make_graph(
        [node],
        "packed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 64])],
        stored,
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def test_a_graph_in_another_width_has_all_its_floats_in_it() -> None:
    graph = in_floats(to_graph(network()), "float16")
    tensors = [tensor for node in graph.nodes for tensor in (*node.present_inputs, *node.present_outputs)]
    assert {tensor.dtype.name for tensor in tensors} == {"float16"}
    assert graph.parameter_bytes * 2 == to_graph(network()).parameter_bytes
    again = in_floats(graph, "float32")
    assert again.wired_like(to_graph(network()))


def test_kernels_of_a_narrow_type_are_looked_up_for_each_operator_and_opset() -> None:
    for opset, lacking in ((20, {"Conv"}), (22, set())):
        graph = to_graph(network(opset=opset))
        found = {graph.nodes[index].op_type for index in without_half_kernel(graph, "bfloat16")}
        assert found & {"Conv", "Gemm", "Relu"} == lacking
        assert not set(without_half_kernel(graph, "float16"))


def recurrent() -> onnx.ModelProto:
    """An LSTM of 64 steps and a small product behind it: neither int4 nor int8 has kernels for the first."""
    generator = np.random.default_rng(0)
    sizes = {"w": (1, 1024, 256), "r": (1, 1024, 256), "o": (256, 64)}
    weights = [
        numpy_helper.from_array(generator.standard_normal(size).astype(np.float32) / 16, name)
        for name, size in sizes.items()
    ]
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r"], ["", "h"], name="lstm", hidden_size=256),
        helper.make_node("Squeeze", ["h"], ["s"], name="squeeze"),
        helper.make_node("MatMul", ["s", "o"], ["y"], name="product"),
    ]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 4, 256]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 64]),
    ]
    graph = helper.make_graph(nodes, "recurrent", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def measured_as(seconds: float) -> Callable[..., Measured]:
    """Stands for a run of the CPU that took so long, between half and three times as long."""

    def run(*_: Any, **__: Any) -> Measured:
        whole = Estimate(value=seconds, low=seconds / 2, high=3 * seconds, origin="measured")
        return Measured(cpu_latency=whole)

    return run


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_what_another_precision_gains_does_not_depend_on_how_busy_the_machine_was(
    factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gain is of two predictions; the time is the measured one over it."""
    predicted = rows(analyze(network(), run=False, gpu="none"))
    own = predicted["fp32", "cpu"].latency_s
    assert own is not None
    monkeypatch.setattr(measure, "measure_batch", measured_as(factor * own))
    busy = rows(analyze(network(), gpu="none"))
    assert busy["fp32", "cpu"].origin == "measured"
    for precision in ("int8", "int4", "fp16"):
        before, after = predicted[precision, "cpu"], busy[precision, "cpu"]
        for name in ("speedup", "speedup_low", "speedup_high"):
            assert getattr(after, name) == pytest.approx(getattr(before, name))
        assert after.latency_s == pytest.approx(factor * own / after.speedup)
        assert after.low_s < after.latency_s / 1.9
        assert after.high_s > after.latency_s * 2.9


def test_operators_that_a_precision_leaves_alone_are_no_part_of_its_gain_nor_of_its_doubt() -> None:
    row = rows(analyze(recurrent(), run=False, gpu="none"))["int4", "cpu"]
    assert (row.speedup, row.speedup_low, row.speedup_high) == pytest.approx((1.0, 1.0, 1.0), abs=0.02)


def test_bytes_that_read_the_same_are_not_said_to_become_each_other() -> None:
    """An embedding of 4,000,000 bytes stays; the product's 256 become some 40."""
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["e"], name="embedding"),
        helper.make_node("MatMul", ["e", "w"], ["y"], name="product"),
    ]
    weights = [
        numpy_helper.from_array(np.ones(size, np.float32), name)
        for name, size in {"table": (15625, 64), "w": (64, 1)}.items()
    ]
    ends = [
        helper.make_tensor_value_info("i", TensorProto.INT64, [4]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 1]),
    ]
    graph = helper.make_graph(nodes, "lookup", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    reason = rows(analyze(model, run=False, gpu="none"))["int4", "cpu"].reason
    assert "4.00 MB next to nothing" in reason
    assert "become" not in reason


@pytest.mark.parametrize(
    ("speedup", "dollars", "said"),
    [
        (1.2, 1.1, "dearer all the same, as aws small takes longer"),
        (0.8, 0.9, "cheaper all the same, as gcp large takes less time"),
        (1.2, 0.9, ""),
        (0.8, 1.1, ""),
    ],
)
def test_dollars_that_go_the_other_way_than_times_say_on_which_instance(
    speedup: float, dollars: float, said: str
) -> None:
    def row(provider: str, instance: str, usd: float) -> CostRow:
        return CostRow(
            provider=provider,
            instance=instance,
            gpu=None,
            usd_per_hour=1.0,
            price_date="2026-01-01",
            throughput_per_s=1.0,
            usd_per_million=usd,
            meets_slo=None,
        )

    found = precision_table._other_direction(speedup, row("aws", "small", 1.0), row("gcp", "large", dollars))
    assert found.startswith(f"; {said}" if said else "")
    assert bool(found) == bool(said)


def scaled_trees() -> onnx.ModelProto:
    """A Scaler and trees, which ONNX Runtime has for CPUs alone, behind a Concat of floats on the GPU."""
    trees: dict[str, Any] = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_values": [0.5, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights": [1.0, 2.0],
        "n_targets": 1,
    }
    ml = "ai.onnx.ml"
    nodes = [
        helper.make_node("Concat", ["a", "b"], ["both"], axis=1),
        helper.make_node("Scaler", ["both"], ["scaled"], domain=ml, offset=[0.0], scale=[2.0]),
        helper.make_node("TreeEnsembleRegressor", ["scaled"], ["y"], domain=ml, **trees),
    ]
    graph = helper.make_graph(
        nodes,
        "trees",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "ab"],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1])],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(ml, 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def test_reasons_of_floats_name_what_is_there() -> None:
    """Trees multiply nothing on a GPU, and the CPU's operators are in 32 bits in a session on CUDA too."""
    found = rows(analyze(scaled_trees(), run=False, gpu="l4"))
    stay = "2 operators (Scaler and TreeEnsembleRegressor) stay on the CPU, in fp32"
    assert found["bf16", "gpu"].reason == found["fp16", "gpu"].reason == f"half the bytes; {stay}"
    assert (
        found["tf32", "gpu"].reason == "no matrix multiplication of floats runs on the GPU: the same as in fp32"
    )
    assert found["fp32", "gpu"].reason == "the model in fp32"
    products = rows(analyze(network(products=4), run=False, gpu="l4"))
    assert products["fp16", "gpu"].reason == "half the bytes, matrix multiplications on tensor cores"
