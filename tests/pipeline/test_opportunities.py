"""What would make the answer faster: a gain is the difference of two records, of a model and of another."""

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

from analyzer import Analysis, analyze
from analyzer.api import analyze_record, apply_plan
from analyzer.cli import command_line
from analyzer.errors import UsageError
from analyzer.record.analysis import Opportunity

CPU = "epyc-9654"
EXACT = 1e-9


def model(
    nodes: Sequence[onnx.NodeProto], x: Sequence[Any], y: Sequence[Any], opset: int = 20, **stored: Any
) -> onnx.ModelProto:
    """A graph from x to y with stored tensors: a shape for weights, an array for values."""
    arrays = {
        name: value if isinstance(value, np.ndarray) else np.zeros(value, dtype=np.float32)
        for name, value in stored.items()
    }
    graph = helper.make_graph(
        nodes,
        "toy",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def node(kind: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    names = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(kind, names, [output], name=f"{output}_of_{kind}", **attributes)


def integers(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, dtype=np.int64)


def analysed(found: Any, **options: Any) -> Analysis:
    return analyze(found, **{"run": False, "gpu": "none", "cpu": CPU, **options})


def offered(analysis: Analysis, code: str) -> Opportunity:
    return next(one for one in analysis.opportunities if one.code == code)


def codes(analysis: Analysis) -> set[str]:
    return {one.code for one in analysis.opportunities}


def latency(analysis: Analysis) -> float:
    assert analysis.answer is not None
    assert analysis.answer.latency_s is not None
    return analysis.answer.latency_s


# Each model, and the same function by other operators.
FOLD = (
    model(
        [node("Col2Im", "x image block", "y", pads=[1, 1, 1, 1])],
        [8, 288, 3136],
        [8, 32, 56, 56],
        image=integers(56, 56),
        block=integers(3, 3),
    ),
    model(
        [
            node("Reshape", "x blocks", "b"),
            node("ConvTranspose", "b w", "y", group=32, pads=[1, 1, 1, 1]),
        ],
        [8, 288, 3136],
        [8, 32, 56, 56],
        blocks=integers(8, 288, 56, 56),
        w=(288, 1, 3, 3),
    ),
)
BICUBIC = (
    model(
        [node("Resize", "x - scales", "y", mode="cubic")],
        [8, 32, 28, 28],
        [8, 32, 56, 56],
        scales=np.array([1, 1, 2, 2], dtype=np.float32),
    ),
    model(
        [node("MatMul", "x columns", "h"), node("MatMul", "rows h", "y")],
        [8, 32, 28, 28],
        [8, 32, 56, 56],
        columns=(28, 56),
        rows=(56, 28),
    ),
)
DFT = (
    model([node("DFT", "x - axis", "y", onesided=1)], [64, 1024, 1], [64, 513, 2], axis=np.array(1)),
    model(
        [node("Reshape", "x flat", "s"), node("MatMul", "s basis", "p"), node("Reshape", "p out", "y")],
        [64, 1024, 1],
        [64, 513, 2],
        flat=integers(64, 1024),
        basis=(1024, 1026),
        out=integers(64, 513, 2),
    ),
)
STFT = (
    model(
        [node("STFT", "x step window", "y", onesided=1)],
        [2, 16400, 1],
        [2, 101, 201, 2],
        step=np.array(160),
        window=(400,),
    ),
    model(
        [
            node("Reshape", "x signal", "s"),
            node("Conv", "s basis", "p", strides=[160]),
            node("Reshape", "p apart", "a"),
            node("Transpose", "a", "y", perm=[0, 3, 2, 1]),
        ],
        [2, 16400, 1],
        [2, 101, 201, 2],
        signal=integers(2, 1, 16400),
        basis=(402, 1, 400),
        apart=integers(2, 2, 201, 101),
    ),
)
NORM = (
    model(
        [
            node("Mul", "x x", "q"),
            node("ReduceMean", "q axes", "m"),
            node("Add", "m eps", "e"),
            node("Sqrt", "e", "r"),
            node("Reciprocal", "r", "i"),
            node("Mul", "x i", "n"),
            node("Mul", "n w", "y"),
        ],
        [8, 128, 512],
        [8, 128, 512],
        axes=integers(-1),
        eps=np.array(1e-5, dtype=np.float32),
        w=(512,),
    ),
    model([node("RMSNormalization", "x w", "y")], [8, 128, 512], [8, 128, 512], 23, w=(512,)),
)


@pytest.mark.parametrize(
    ("code", "pair"),
    [("fold", FOLD), ("resampling", BICUBIC), ("dft", DFT), ("stft", STFT), ("fused-rmsnorm", NORM)],
    ids=["fold", "bicubic", "dft", "stft", "rmsnorm"],
)
def test_a_gain_is_the_time_of_the_model_less_that_of_the_changed_one(
    code: str, pair: tuple[onnx.ModelProto, onnx.ModelProto]
) -> None:
    before, after = map(analysed, pair)
    found = offered(before, code)
    assert found.gain_s == pytest.approx(latency(before) - latency(after), rel=1e-6)
    assert 0 < found.gain_low_s < found.gain_s < found.gain_high_s
    assert sorted(found.operators) == list(range(len(before.operators)))
    # The slowest comes first.
    times = [before.operators[at].cpu.time_s or 0.0 for at in found.operators]
    assert times == sorted(times, reverse=True)


BAG = """
import torch
from torch import nn

class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(5000, 64, mode="sum")
        self.out = nn.Linear(64, 10)

    def forward(self, ids):
        pooled = self.bag(ids)
        return self.out(pooled)

class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = nn.Embedding(5000, 64)
        self.out = nn.Linear(64, 10)

    def forward(self, ids):
        return self.out(self.rows(ids).sum(1))

class Steps(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(64, 128)

    def forward(self, ids):
        x, h, found = nn.functional.one_hot(ids % 64, 64).float(), torch.zeros(len(ids), 128), []
        for t in range(20):
            h = self.cell(x[:, t], h)
            found.append(h)
        return torch.stack(found, 1)

def example_inputs(batch=64):
    return (torch.zeros(batch, 20, dtype=torch.int64),)
"""


@pytest.fixture(scope="module")
def bags(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bags") / "bag.py"
    path.write_text(BAG)
    return path


def test_an_embedding_bag_is_offered_as_the_sum_of_an_embedding(bags: Path) -> None:
    before, after = analysed(f"{bags}:Bag"), analysed(f"{bags}:Rows")
    found = before.opportunities[0]
    assert found.code == "embedding-bag"
    assert found.title == "Write nn.EmbeddingBag as nn.Embedding and .sum(1): the exporter makes a Loop of it"
    assert found.gain_s == pytest.approx(latency(before) - latency(after), rel=1e-6)
    # The code must change: no command does it, and it is the user's line.
    assert (found.command, found.source and found.source.code) == ("", "pooled = self.bag(ids)")
    assert "Loop" in {before.operators[index].op_type for index in found.operators}
    assert "Gemm" not in {before.operators[index].op_type for index in found.operators}


def test_a_cell_in_a_loop_is_offered_as_one_recurrence(bags: Path) -> None:
    found = offered(analysed(f"{bags}:Steps"), "recurrent-loop")
    assert found.title == "Call nn.GRU once instead of nn.GRUCell 20 times in a loop"
    # Of 20 steps each has at least the products of both weights, an addition of gates, and the new state.
    assert len(found.operators) > 20 * 4


OTHERS = """
import torch
from torch import nn

class Unequal(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(5000, 64, mode="sum")
        self.register_buffer("offsets", torch.arange(8))

    def forward(self, ids):
        return self.bag(ids.reshape(-1), self.offsets)

class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(64, 128)

    def forward(self, ids):
        rows, keep = ids[:, :, None].float().expand(-1, -1, 64), ids.float()
        h, found = torch.zeros(ids.shape[0], 128), []
        for step in range(20):
            h = self.cell(rows[:, step], h)
            found.append(h)
            h = h * keep[:, step, None]
        return torch.stack(found, 1)

def example_inputs(batch=8):
    return (torch.zeros(batch, 20, dtype=torch.int64),)
"""


@pytest.mark.parametrize("name", ["Unequal", "Masked"])
def test_what_computes_something_else_is_not_offered(name: str, tmp_path: Path) -> None:
    """Bags of one row and one of all others; a state that is masked between two steps."""
    (tmp_path / "others.py").write_text(OTHERS)
    codes = {one.code for one in analysed(f"{tmp_path}/others.py:{name}").opportunities}
    assert codes.isdisjoint({"embedding-bag", "recurrent-loop"})


def test_a_pin_holds_whatever_a_rewrite_would_remove(bags: Path) -> None:
    pinned = analyze(f"{bags}:Bag", run=False, gpu="l4", cpu="epyc-9654", pin=["Loop=cpu"])
    assert pinned.answer is not None
    assert {one.code for one in pinned.opportunities}.isdisjoint({"embedding-bag"})


def convolutions() -> onnx.ModelProto:
    nodes = [node("Conv", f"{chr(96 + at)} w{at}", chr(97 + at), pads=[1, 1, 1, 1]) for at in range(1, 6)]
    nodes[0].input[0], nodes[-1].output[0] = "x", "y"
    stored: dict[str, Any] = {f"w{at}": (64, 64, 3, 3) for at in range(1, 6)}
    return model(nodes, ["batch", 64, 56, 56], ["batch", 64, 56, 56], **stored)


def chain(middle: str = "Tanh") -> onnx.ModelProto:
    """200 small operators, one of which may be of another type."""
    nodes = [node("Relu" if at % 2 else "Tanh", f"t{at}", f"t{at + 1}") for at in range(200)]
    nodes[0].input[0], nodes[-1].output[0], nodes[100].op_type = "x", "y", middle
    return model(nodes, [64, 1024], [64, 1024])


@pytest.fixture(scope="module")
def convolved() -> Analysis:
    return analysed(convolutions(), batch=1, gpu="l4")


def test_another_precision_gains_what_its_row_takes_less() -> None:
    products = model(
        [node("MatMul", "x v", "h"), node("MatMul", "h w", "y")],
        [512, 4096],
        [512, 4096],
        v=(4096, 4096),
        w=(4096, 4096),
    )
    found_in = analysed(products, gpu="t4")
    found = offered(found_in, "precision")
    (row,) = [one for one in found_in.precisions if f" {one.precision}:" in found.title and one.device == "gpu"]
    assert row.latency_s is not None
    assert found.gain_s == pytest.approx(latency(found_in) - row.latency_s, rel=EXACT)
    assert "accuracy must be checked" in found.title
    # Whoever names a precision has chosen it.
    assert "precision" not in codes(analysed(products, gpu="t4", precision="fp32"))


def test_images_that_turn_no_more_gain_what_turning_them_takes_less_what_the_host_hides(
    convolved: Analysis,
) -> None:
    found = offered(convolved, "channels-last")
    overheads = [op.gpu.overhead for op in convolved.operators if op.gpu and op.gpu.overhead]
    saved = sum(one.layout_s - one.surplus_s for one in overheads)
    assert found.gain_s == pytest.approx(saved, rel=1e-6)
    assert len(found.operators) == sum(one.layout_s > 0 for one in overheads)


def test_a_larger_batch_gains_time_of_as_many_inferences(tiny_model: onnx.ModelProto) -> None:
    found_in = analysed(tiny_model, batch=8)
    found = offered(found_in, "batch")
    (batch,) = [row.batch for row in found_in.sweep if f"batch {row.batch:,}:" in found.title]
    (row,) = [row for row in found_in.sweep if row.batch == batch]
    assert found.gain_s == pytest.approx(latency(found_in) - 8 / batch * row.plans["cpu"].latency_s, rel=1e-6)
    # Where several batches were asked for, the ranking says which.
    assert "batch" not in codes(analysed(tiny_model, batch="8,64"))


def test_a_cuda_graph_is_offered_where_nothing_is_left_on_the_cpu() -> None:
    assert "cuda-graph" in codes(analysed(chain(), gpu="l4"))
    # Celu has no CUDA kernel: a graph with it cannot be captured.
    assert "cuda-graph" not in codes(analysed(chain("Celu"), gpu="l4"))


def test_an_opset_that_brings_an_operator_back_to_the_gpu_is_offered_with_its_gain() -> None:
    def pooled(opset: int) -> onnx.ModelProto:
        built = convolutions()
        built.graph.node[2].input[0] = "p"
        pool = helper.make_node("MaxPool", ["c"], ["p"], name="pool", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        built.graph.node.insert(2, pool)
        built.opset_import[0].version = opset
        return built

    new, old = (analysed(pooled(opset), batch=8, gpu="h100") for opset in (23, 21))
    found = offered(new, "opset")
    assert found.title == "Export at opset 21, where MaxPool has CUDA kernels"
    assert found.gain_s == pytest.approx(latency(new) - latency(old), rel=1e-6)
    assert [new.operators[index].op_type for index in found.operators] == ["MaxPool"]
    assert "opset" not in codes(old)


def test_every_gain_is_certain_and_the_largest_comes_first(convolved: Analysis) -> None:
    found = convolved.opportunities
    assert len(found) > 1
    gains = [one.gain_s or 0.0 for one in found]
    assert gains == sorted(gains, reverse=True)
    for one in found:
        assert None not in (one.gain_low_s, one.gain_s, one.gain_high_s)
        assert 0 < (one.gain_low_s or 0.0) <= (one.gain_s or 0.0) <= (one.gain_high_s or 0.0)
        # All rented hours are paid: dollars go with the time.
        assert convolved.answer is not None
        usd = convolved.answer.usd_per_million
        assert usd is not None
        assert one.gain_usd_per_million == pytest.approx(usd * one.gain_s / latency(convolved), rel=EXACT)


def attended(tokens: int) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Attention as products with a softmax between them, and as one operator."""
    shape = [8, 12, tokens, 64]
    nodes = [
        node("Transpose", "x", "k", perm=[0, 1, 3, 2]),
        node("MatMul", "x k", "s"),
        node("Softmax", "s", "p", axis=-1),
        node("MatMul", "p x", "y"),
    ]
    return model(nodes, shape, shape), model([node("Attention", "x x x", "y")], shape, shape, 23)


def test_attention_over_many_tokens_is_offered_as_one_operator() -> None:
    before, after = (analysed(one, gpu="l4") for one in attended(512))
    assert offered(before, "fused-attention").gain_s == pytest.approx(
        latency(before) - latency(after), rel=1e-6
    )


def test_a_gain_that_may_be_none_is_not_offered() -> None:
    """On this CPU one operator takes less than the four, but by less than it may err."""
    before, after = map(analysed, attended(128))
    assert latency(after) < 0.9 * latency(before)
    assert "fused-attention" not in codes(before)


def test_of_several_gpus_changes_are_of_the_answers_own() -> None:
    several, alone = (analysed(chain(), gpu=gpu) for gpu in ("t4,l4", "l4"))
    assert several.answer is not None
    assert several.answer.device == "l4"
    assert offered(several, "cuda-graph").gain_s == offered(alone, "cuda-graph").gain_s


def test_a_record_decided_anew_offers_what_the_model_would(convolved: Analysis) -> None:
    again = analyze_record(convolved, gpu="t4")
    assert again.opportunities == analysed(convolutions(), batch=1, gpu="t4").opportunities
    assert again.opportunities != convolved.opportunities


def test_a_file_is_offered_commands_that_apply_a_change(tmp_path: Path) -> None:
    path = tmp_path / "norms.onnx"
    onnx.save(NORM[0], path)
    line = offered(analysed(path), "fused-rmsnorm").command
    assert line.startswith("analyze apply ")
    assert " --fix fusions " in line


@pytest.mark.parametrize(
    ("code", "option", "checked"),
    [("cuda-graph", "enable_cuda_graph", 200), ("channels-last", "prefer_nhwc", 0)],
)
def test_the_command_of_a_provider_option_writes_a_session_of_the_offered_time(
    code: str, option: str, checked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = chain() if code == "cuda-graph" else convolutions()
    onnx.save(graph, "net.onnx")
    before = analysed("net.onnx", gpu="l4", **({} if code == "cuda-graph" else {"batch": 1}))
    found = offered(before, code)
    done = CliRunner().invoke(command_line, [*shlex.split(found.command)[1:], "--no-run"])
    assert done.exit_code == 0, done.output
    (folder,) = Path("deployed").iterdir()
    plan, session = (json.loads((folder / name).read_text()) for name in ("apply.json", "session.json"))
    assert session["provider_options"] == [{option: "1"}, {}]
    assert found.gain_s is not None
    assert plan["latency_s"] == pytest.approx(latency(before) - found.gain_s, rel=1e-6)
    # Convolutions get names of ONNX Runtime's own where they change places.
    assert len(plan["nodes"]) == checked
    ran = subprocess.run([sys.executable, folder / "run.py", "--verify"], capture_output=True, text=True)
    assert (ran.returncode, "numbers: y is off by 0," in ran.stdout) == (0, True), ran.stderr


@pytest.mark.parametrize(
    ("op_type", "options", "message"),
    [
        ("Relu", {"plan": "cpu"}, "the plan is cpu, not gpu"),
        ("Celu", {"plan": "gpu"}, "the session runs 1 operator on the CPU"),
        ("Relu", {"plan": "gpu", "provider_option": "enable_cuda_graf"}, "enable_cuda_graf"),
    ],
)
def test_a_session_that_a_provider_option_cannot_run_is_refused(
    op_type: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    given = {"gpu": "l4", "cpu": CPU, "run": False, "provider_option": "enable_cuda_graph", **options}
    with pytest.raises(UsageError, match=message):
        apply_plan(chain(op_type), output=tmp_path / "out", **given)
    assert not (tmp_path / "out").exists()


def test_a_cuda_graph_holds_no_size_that_data_decide(tmp_path: Path) -> None:
    found = model([node("NonZero", "x", "i"), node("Cast", "i", "y", to=1)], [8, 8], [2, "count"])
    with pytest.raises(UsageError, match="sizes that data decide"):
        apply_plan(
            found, output=tmp_path / "out", gpu="l4", plan="gpu", run=False, provider_option="enable_cuda_graph"
        )
