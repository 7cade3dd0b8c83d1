"""From a user's model to a weight-free graph, against ONNX Runtime and PyTorch themselves."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from analyzer.costs import count
from analyzer.errors import ExportError, InputError, ModelError, UsageError
from analyzer.loading.load import load
from analyzer.loading.loaded import Loaded
from analyzer.loading.model_reference import parse_reference
from analyzer.loading.weights import materialise

HEAD = """
import torch
from torch import nn
"""

NET = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(
                nn.Conv2d(3, 4, 3, padding=1),
                nn.BatchNorm2d(4),
            )
            self.head = nn.Linear(4, 5)
            self.register_buffer("scale", torch.linspace(1, 2, 100))

        def forward(self, x):
            y = torch.relu(self.stem(x))
            return self.head(y.mean((2, 3))) * self.scale[0]

    def example_inputs(batch=2):
        return torch.randn(batch, 3, 8, 8)
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Any]:
    def to_file(code: Any, name: str = "user_model.py") -> Any:
        path = tmp_path / name
        path.write_text(HEAD + textwrap.dedent(code))
        return str(path)

    return to_file


def loaded(path: str, **options: Any) -> Loaded:
    return load(parse_reference(path), use_cache=False, **options)


def run(found: Loaded, batch: int, folder: Path) -> tuple[list[NDArray[Any]], ...]:
    """Runs what was exported under ONNX Runtime, and the user's model under PyTorch."""
    import onnxruntime

    runnable = materialise(found, batch, folder)
    session = onnxruntime.InferenceSession(str(runnable.model_path), providers=["CPUExecutionProvider"])
    assert runnable.eager is not None
    return session.run(None, dict(runnable.feeds)), runnable.eager()


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_one_export_is_right_for_every_batch(write: Callable[..., Any], tmp_path: Path, batch: int) -> None:
    found = loaded(write(NET))
    assert found.symbol == "batch"
    graph = found.graph(batch)
    assert graph.inputs[0].shape == (batch, 3, 8, 8)
    assert graph.outputs[0].shape == (batch, 5)
    outputs, expected = run(found, batch, tmp_path)
    np.testing.assert_allclose(outputs[0], expected[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer", ["nn.GRU(3, 4, 2, bidirectional=True)", "nn.GRU(3, 4)", "nn.LSTM(3, 4)"])
def test_shapes_of_a_recurrence_do_not_take_all_its_steps(
    write: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layer: str
) -> None:
    from torch._decomp import decompositions

    steps: list[str] = []

    def counted(name: str) -> Callable[..., Any]:
        cell = getattr(decompositions, name)

        def step(*given: object, **named: object) -> Any:
            steps.append(name)
            return cell(*given, **named)

        return step

    for name in ("gru_cell", "lstm_cell"):
        monkeypatch.setattr(decompositions, name, counted(name))
    path = write(f"""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = {layer}

            def forward(self, x):
                return self.layer(x)[0]

        def example_inputs(batch=2):
            return torch.randn(60, batch, 3)
    """)
    found = loaded(path)
    assert len(steps) < 60
    for ours, theirs in zip(*run(found, 5, tmp_path), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_a_slice_that_takes_all_is_no_operator(write: Callable[..., Any], tmp_path: Path) -> None:
    # With a symbolic batch PyTorch traces `x[:, 0]` as a slice of the first axis and a select.
    path = write("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 4)

            def forward(self, x):
                y = x[:, 1:].clone()
                y[:, 0] = 0.5
                return self.layer(x[:, 0]) + y[:, 0], x[:]

        def example_inputs(batch=2):
            return torch.randn(batch, 3, 4)
    """)
    found = loaded(path)
    inner = [node.op_type for node in found.graph(2).nodes if node.outputs[0].shape == (2, 3, 4)]
    assert inner in ([], ["Slice"], ["Identity"])  # the output x[:] alone
    for ours, theirs in zip(*run(found, 5, tmp_path), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("function", ["torch.cumprod(x, 1)", "torch.special.erfinv(x)", "torch.special.i0(x)"])
def test_an_operator_of_whose_parts_one_has_no_translation_stays_whole(
    write: Callable[..., Any], function: str
) -> None:
    # PyTorch decomposes them into prims.prod, prims.erf_inv and prims.bessel_i0, which it does not translate.
    found = loaded(
        write(f"""
        def model(x):
            return {function}

        def example_inputs(batch=2):
            return torch.randn(batch, 3)
        """)
    )
    name = function.removeprefix("torch.").removeprefix("special.").partition("(")[0]
    assert [node.op_type for node in found.graph(2).nodes] == [name]
    assert [note.partition(" ")[0] for note in found.notes] == [f"aten.{name}"]


def test_an_lstm_whose_output_is_projected_is_exported_with_its_projection(
    write: Callable[..., Any], tmp_path: Path
) -> None:
    # PyTorch 2.13 translates it to an LSTM without one, whose weights have other sizes.
    path = write("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.LSTM(16, 64, proj_size=8, batch_first=True)

            def forward(self, x):
                return self.layer(x)[0]

        def example_inputs(batch=2):
            return torch.randn(batch, 10, 16)
    """)
    found = loaded(path)
    for ours, theirs in zip(*run(found, 4, tmp_path), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    # Each of 4 x 10 steps: four gates of 64 from 16 inputs and 64 cells to 8 outputs; all but the first, whose
    # state is a constant: the gates from 8 outputs.
    table = count(found.graph(4))
    products = [
        cost.flops or 0
        for node, cost in zip(table.graph.nodes, table.costs, strict=True)
        if node.op_type in ("MatMul", "Gemm")
    ]
    assert sum(products) == 2 * 4 * (10 * (4 * 64 * 16 + 64 * 8) + 9 * 4 * 64 * 8)


def test_no_weight_is_kept_in_the_graph(write: Callable[..., Any]) -> None:
    found = loaded(write(NET))
    held = {item.name for item in found.proto.graph.initializer if item.raw_data or item.float_data}
    assert not {"stem.0.weight", "scale"} & held


def test_every_operator_says_its_module_and_the_users_own_line(write: Callable[..., Any]) -> None:
    graph = loaded(write(NET)).graph()
    by_type = {node.op_type: node for node in graph.nodes}
    assert by_type["Conv"].module == "stem.0"
    assert by_type["Conv"].module_class == "Conv2d"
    # Inside a Sequential the line that constructed the layer is the one to show.
    assert by_type["Conv"].source.code == "nn.Conv2d(3, 4, 3, padding=1),"
    assert by_type["BatchNormalization"].module_class == "BatchNorm2d"
    assert by_type["Relu"].source.code == "y = torch.relu(self.stem(x))"
    assert all(node.source is not None for node in graph.nodes)


def test_a_batch_that_the_code_fixes_is_exported_as_asked(write: Callable[..., Any]) -> None:
    path = write("""
        class Net(nn.Module):
            def forward(self, x):
                return x.reshape(6, 2) + 1
        def example_inputs(batch): return torch.randn(batch, 12 // batch)
    """)
    found = loaded(path, batch=3)
    assert (found.symbol, found.static_batch) == ("", 3)
    assert found.graph().inputs[0].shape == (3, 4)
    assert not found.supports(4)


def test_a_model_that_reads_weights_while_it_is_built_is_built_for_real(
    write: Callable[..., Any], tmp_path: Path
) -> None:
    found = loaded(
        write("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                table = torch.rand(40, 3)
                self.best = int(table.sum(1).argmax())
                self.layer = nn.Linear(3, 3)
            def forward(self, x): return self.layer(x) + self.best
        def example_inputs(batch=2): return torch.randn(batch, 3)
    """)
    )
    outputs, expected = run(found, 2, tmp_path)
    np.testing.assert_allclose(outputs[0], expected[0], rtol=1e-4, atol=1e-5)


def test_a_large_constant_made_in_forward_keeps_its_values(write: Callable[..., Any], tmp_path: Path) -> None:
    found = loaded(
        write("""
        import numpy
        TABLE = torch.from_numpy(numpy.arange(300, dtype="float32"))
        class Net(nn.Module):
            def forward(self, x): return x * TABLE
        def example_inputs(batch=2): return torch.randn(batch, 300)
    """)
    )
    outputs, expected = run(found, 2, tmp_path)
    np.testing.assert_allclose(outputs[0], expected[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("code", "transposes"),
    [
        ("torch.zeros_like(x).index_add_(0, places, x)", 0),  # two of the translation's own, the last returned
        ("torch.zeros_like(x).index_add_(0, places, x).relu() @ x.permute(1, 0)", 1),
    ],
)
def test_a_transpose_that_leaves_all_axes_is_no_operator(
    write: Callable[..., Any], tmp_path: Path, code: str, transposes: int
) -> None:
    """PyTorch's own export with its optimiser has none either."""
    found = loaded(
        write(f"""
        class Net(nn.Module):
            def forward(self, x, places): return {code}
        def example_inputs(batch=4): return torch.randn(4, 3), torch.tensor([1, 0, 3, 1])
    """)
    )
    assert [node.op_type for node in found.graph(4).nodes].count("Transpose") == transposes
    outputs, expected = run(found, 4, tmp_path)
    np.testing.assert_allclose(outputs[0], expected[0], rtol=1e-5)


def test_control_flow_on_values_falls_back_to_torchscript_and_says_so(
    write: Callable[..., Any], tmp_path: Path
) -> None:
    found = loaded(
        write("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 4)
            def forward(self, x):
                y = self.layer(x)
                if y.sum() > 1e9:
                    y = y * 2
                return y
        def example_inputs(batch=2): return torch.randn(batch, 4)
    """)
    )
    assert found.exporter == "torchscript"
    assert "TorchScript" in found.notes[0]
    assert found.graph().nodes[0].module == "layer"
    outputs, expected = run(found, 2, tmp_path)
    np.testing.assert_allclose(outputs[0], expected[0], rtol=1e-4, atol=1e-5)


def test_a_module_that_is_called_twice_is_the_same_module_both_times(write: Callable[..., Any]) -> None:
    """TorchScript names the second call of ``tower.lin`` "tower/lin_1"; ``lin_2`` is a module of its own."""
    found = loaded(
        write("""
        class Tower(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(4, 4)
                self.lin_2 = nn.Linear(4, 4)
            def forward(self, x):
                y = self.lin_2(self.lin(x))
                return y * 2 if y.sum() > -1e9 else y
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.tower = Tower()
            def forward(self, one, two):
                return self.tower(one) - self.tower(two)
        def example_inputs(batch=2): return torch.randn(batch, 4), torch.randn(batch, 4)
    """)
    )
    assert found.exporter == "torchscript"
    nodes = found.graph().nodes
    assert [node.module for node in nodes if node.op_type == "Gemm"] == ["tower.lin", "tower.lin_2"] * 2
    assert [node.module for node in nodes if node.op_type == "Mul"] == ["tower"] * 2
    difference = next(node for node in nodes if node.op_type == "Sub")
    assert difference.module == ""
    # Of the line that begins `forward`, which computes nothing, the place is told and no text.
    assert (difference.source.line > 0, difference.source.code) == (True, "")


def test_an_operator_without_a_translation_stays_with_known_shapes(write: Callable[..., Any]) -> None:
    found = loaded(
        write("""
        class Net(nn.Module):
            def forward(self, x): return torch.linalg.inv(x) + 1
        def example_inputs(batch=2): return torch.randn(batch, 4, 4)
    """)
    )
    graph = found.graph()
    opaque = [node for node in graph.nodes if node.domain == "pytorch.aten"]
    assert len(opaque) == 1
    assert opaque[0].outputs[0].shape == (2, 4, 4)
    assert any("no ONNX translation" in note for note in found.notes)


def test_inputs_that_do_not_fit_show_their_shapes(write: Callable[..., Any]) -> None:
    path = write("""
        model = nn.Linear(4, 4)
        example_inputs = torch.randn(2, 5)
    """)
    with pytest.raises(InputError, match=r"\[2, 5\] float32"):
        loaded(path)


def test_an_export_that_fails_names_the_users_line(write: Callable[..., Any]) -> None:
    path = write("""
        class Net(nn.Module):
            def forward(self, x):
                if x.sum() > 0:
                    return torch.tensor(x.tolist()) * 2  # a constant to TorchScript too
                return torch.zeros(2)
        example_inputs = torch.ones(2, 5)
    """)
    with pytest.raises(ExportError, match=r"user_model.py:\d+: if x.sum\(\) > 0:"):
        loaded(path)


def test_an_opset_that_nobody_knows_is_refused(write: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match="--opset 99"):
        loaded(write(NET), opset=99)


def test_a_function_of_tensors_is_exported(write: Callable[..., Any]) -> None:
    found = loaded(
        write("""
        def mix(q, k): return torch.softmax(q @ k.transpose(-1, -2), -1)
        def example_inputs(batch=2): return torch.randn(batch, 3, 4), torch.randn(batch, 3, 4)
    """)
    )
    assert {"MatMul", "Softmax"} <= {node.op_type for node in found.graph().nodes}


def test_a_saved_program_keeps_its_symbolic_batch(tmp_path: Path) -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
    program = torch.export.export(
        model, (torch.randn(3, 4),), dynamic_shapes=({0: torch.export.Dim("rows", min=1, max=64)},)
    )
    path = tmp_path / "saved.pt2"
    torch.export.save(program, path)
    found = loaded(str(path))
    assert found.batch == 3
    assert found.graph(9).outputs[0].shape == (9, 4)


def test_a_damaged_program_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "damaged.pt2"
    path.write_bytes(b"not a program")
    with pytest.raises(ModelError, match="no exported program"):
        loaded(str(path))


def test_no_gpu_of_the_catalogue_holds_what_is_exported_at_one_batch_alone() -> None:
    from analyzer.devices import catalogue
    from analyzer.loading.load import NO_GPU_HOLDS_BYTES

    assert max(gpu.memory_bytes or 0 for gpu in catalogue.gpus()) < NO_GPU_HOLDS_BYTES


def test_a_model_that_no_gpu_holds_is_exported_at_the_batch_asked_for(write: Callable[..., Any]) -> None:
    path = write("""
        def build_model(): return nn.Sequential(nn.Linear(300_000, 300_000), nn.Linear(300_000, 4))
        def example_inputs(batch=1): return torch.zeros(batch, 300_000)
    """)
    found = loaded(path, batch=3)
    assert (found.symbol, found.static_batch) == ("", 3)
    assert found.graph().outputs[0].shape == (3, 4)
    assert any("no GPU holds its 360 GB" in note for note in found.notes)
