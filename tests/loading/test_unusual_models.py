"""Models that people really write: what they return, how they are wrapped, and what their files do."""

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

from analyzer.errors import ExportError, InputError, MeasurementError, ModelError
from analyzer.loading.from_onnx import batch_dimension, from_proto
from analyzer.loading.load import load, load_live
from analyzer.loading.model_reference import parse_reference
from analyzer.loading.python.input_spec import parse_input
from analyzer.loading.python.source_lines import source_line
from analyzer.loading.python.user_model import load_user_model
from analyzer.loading.torch_export.failures import without_untranslatable
from analyzer.loading.weights import materialise

HEAD = """
import torch
from torch import nn
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Any]:
    def build(code: Any) -> Any:
        path = tmp_path / "user_model.py"
        path.write_text(HEAD + textwrap.dedent(code))
        return parse_reference(str(path))

    return build


@pytest.fixture
def loaded(write: Callable[..., Any]) -> Callable[..., Any]:
    def build(code: Any, **options: Any) -> Any:
        return load(write(code), use_cache=False, **options)

    return build


@pytest.mark.parametrize(
    "kind",
    [
        "@dataclasses.dataclass\nclass Out:\n    a: object\n    b: object",
        "class Out(collections.OrderedDict): pass",
        "class Out:\n    def __init__(self, a, b): self.a, self.b = a, b",
    ],
)
def test_outputs_of_a_type_of_ones_own_are_taken_apart(loaded: Callable[..., Any], kind: str) -> None:
    found = loaded(
        f"import collections, dataclasses\n{kind}\n"
        + textwrap.dedent("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(8, 4)
            def forward(self, x):
                h = self.a(x)
                return Out(a=h.relu(), b=h)
        """)
    )
    assert found.exporter == "torch.export"
    assert len(found.proto.graph.output) == 2
    assert found.symbol == "batch"


def test_inputs_that_follow_the_batch_in_another_way_fix_it(loaded: Callable[..., Any]) -> None:
    code = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.e = nn.Embedding(10, 4)
            def forward(self, ids, rows):
                return self.e(ids).sum() + rows.sum()
        def example_inputs(batch):
            return torch.zeros(batch * 5, dtype=torch.long), torch.zeros(batch)
    """
    for batch in (2, 3):
        found = loaded(code, batch=batch)
        assert found.symbol == ""
        assert found.graph().inputs[0].shape == (5 * batch,)


def test_a_script_that_parses_its_command_line_sees_none_of_ours(
    write: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["analyze", "user_model.py", "--no-run"])
    reference = write("""
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--width", type=int, default=6)
        model = nn.Linear(parser.parse_args().width, 2)
    """)
    assert load_user_model(reference, weights="meta").model.in_features == 6
    assert sys.argv[0] == "analyze"


def test_a_script_that_exits_is_one_clear_error(write: Callable[..., Any]) -> None:
    with pytest.raises(ModelError, match="SystemExit") as caught:
        load_user_model(write("import sys\nmodel = nn.Linear(1, 1)\nsys.exit(0)"), weights="meta")
    assert "__main__" in caught.value.hint
    with pytest.raises(ModelError, match="SystemExit"):
        load_user_model(write("def build_model(): raise SystemExit(1)"), weights="meta")


def test_wrappers_for_several_devices_and_compilation_come_off(write: Callable[..., Any]) -> None:
    user = load_user_model(
        write("def build_model(): return torch.compile(nn.DataParallel(nn.Sequential(nn.Linear(4, 4))))"),
        weights="meta",
    )
    assert [name for name, _ in user.model.named_parameters()] == ["0.weight", "0.bias"]


def test_a_missing_checkpoint_says_where_paths_start(
    write: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=r"best\.pt") as caught:
        load_user_model(write("def build_model(): return torch.load('best.pt')"), weights="meta")
    assert str(tmp_path) in caught.value.hint


def test_a_checkpoint_copied_into_a_model_without_weights_warns_of_nothing(
    write: Callable[..., Any], recwarn: pytest.WarningsRecorder
) -> None:
    load_user_model(
        write("""
        def build_model():
            with torch.device("cpu"):
                state = nn.Linear(2, 2).state_dict()
            model = nn.Linear(2, 2)
            model.load_state_dict(state)
            return model
        """),
        weights="meta",
    )
    assert not recwarn.list


def test_autocast_regions_keep_their_casts_modules_and_lines(loaded: Callable[..., Any]) -> None:
    found = loaded("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(8, 4)
                self.b = nn.Linear(4, 4)
            def forward(self, x):
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    y = self.a(x)
                return self.b(y.float())
    """)
    graph = found.graph()
    products = {node.module: node for node in graph.nodes if node.op_type == "Gemm"}
    assert products["a"].outputs[0].dtype.name == "bfloat16"
    assert products["b"].outputs[0].dtype.name == "float32"
    assert "self.a(x)" in products["a"].source.code


def test_what_torchscript_records_as_a_constant_is_no_model(loaded: Callable[..., Any]) -> None:
    with pytest.raises(ExportError, match="numpy"):
        loaded("""
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.a = nn.Linear(8, 4)
                def forward(self, x):
                    data = x.detach().numpy().tobytes()  # Dynamo follows NumPy, and no bytes
                    return self.a(torch.frombuffer(bytearray(data), dtype=x.dtype).view(x.shape))
            def example_inputs(batch): return torch.ones(batch, 8)
        """)


def test_torchscript_keeps_the_names_of_the_inputs_and_prints_nothing(
    loaded: Callable[..., Any], capfd: pytest.CaptureFixture[str]
) -> None:
    found = loaded("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(8, 4)
            def forward(self, pixels):
                return self.a(pixels) if pixels.sum() > 0 else pixels
        def example_inputs(batch): return torch.ones(batch, 8)
    """)
    assert found.exporter == "torchscript"
    assert [value.name for value in found.proto.graph.input] == ["pixels"]
    assert capfd.readouterr() == ("", "")


def test_what_is_computed_with_numpy_is_followed(loaded: Callable[..., Any]) -> None:
    found = loaded("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(8, 4)
            def forward(self, x):
                return self.a(torch.from_numpy(x.detach().numpy() + 1))
        def example_inputs(batch): return torch.ones(batch, 8)
    """)
    assert (found.exporter, found.symbol) == ("torch.export", "batch")
    assert [node.op_type for node in found.graph(3).nodes] == ["Add", "Gemm"]


def test_a_size_that_the_data_decide_may_be_read_with_int(loaded: Callable[..., Any]) -> None:
    found = loaded("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(8, 4)
            def forward(self, x, group):
                sums = torch.zeros(int(group.max()) + 1, 8)
                return self.a(sums.index_add(0, group, x))
        def example_inputs(): return torch.ones(6, 8), torch.tensor([0, 0, 1, 1, 2, 2])
    """)
    assert found.exporter == "torch.export"
    products = [node for node in found.graph().nodes if node.op_type in ("Gemm", "MatMul")]
    assert [node.module for node in products] == ["a"]


def test_a_module_that_is_given_may_read_such_a_size_too() -> None:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor, group: torch.Tensor) -> torch.Tensor:
            return torch.zeros(int(group.max()) + 1, 8).index_add(0, group, x)

    inputs = torch.ones(3, 8), torch.tensor([0, 1, 1])
    found = load_live(Net(), inputs=lambda: inputs, batch=None, specs=(), opset=None, progress=lambda _: None)
    assert [tensor.shape for tensor in found.graph().inputs] == [(3, 8), (3,)]


def test_what_torchscript_prints_where_it_fails_reaches_no_stream(tmp_path: Path) -> None:
    # In a process of its own: C++ writes what it has kept back when that ends.
    path = tmp_path / "net.py"
    path.write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        if x.sum() > 0: return torch.special.i1e(x)\n"
        "        return x\n"
        "def example_inputs(batch=2): return torch.ones(batch, 8)\n"
    )
    command = [sys.executable, "-m", "analyzer", str(path), "--no-run", "--no-cache", "--output", "-"]
    done = subprocess.run([*command, "--format", "text"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 2


def test_a_number_of_the_data_that_no_exporter_follows_says_what_to_write(loaded: Callable[..., Any]) -> None:
    with pytest.raises(ExportError) as caught:
        loaded("""
            import gc
            class Net(nn.Module):
                def forward(self, x):
                    gc.get_count()  # which Dynamo does not follow
                    return torch.special.i1e(torch.zeros(int(x.max())))
            def example_inputs(batch=2): return torch.ones(batch, 8, dtype=torch.long)
        """)
    assert ".item()" in (caught.value.hint or "")


def test_modules_quantised_by_pytorch_say_what_to_analyse_instead(loaded: Callable[..., Any]) -> None:
    with pytest.raises(ExportError) as caught:
        loaded("""
            import warnings
            def build_model():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(8, 4)), {nn.Linear})
            def example_inputs(batch): return torch.ones(batch, 8)
        """)
    assert "--precision int8" in caught.value.hint


def test_frames_of_the_caller_are_no_source_of_an_operator(tmp_path: Path) -> None:
    from analyzer.loading import load as own

    trace = f'File "{tmp_path}/train.py", line 3, in <module>\nFile "{own.__file__}", line 9, in load\n'
    assert source_line(trace, "", {}) is None
    model = f'File "{tmp_path}/net.py", line 7, in forward\n'
    assert source_line(trace + model, "", {}) == (f"{tmp_path}/net.py", 7)


def test_a_size_of_minus_one_is_an_open_dimension(make_onnx: Callable[..., Any]) -> None:
    proto = make_onnx([helper.make_node("Relu", ["x"], ["y"])], {"x": [-1, 4]}, ["y"])
    found = from_proto(proto, name="m", source="m", batch=3)
    assert found.graph().inputs[0].shape == (3, 4)


def test_a_size_of_zero_is_no_batch(make_onnx: Callable[..., Any]) -> None:
    proto = make_onnx([helper.make_node("Relu", ["x"], ["y"])], {"x": [0, 4]}, ["y"])
    assert batch_dimension(proto) == ("", None)


def _graph_network(make_onnx: Callable[..., Any]) -> onnx.ModelProto:
    """Sums the rows of neighbours, as graph networks do; both the nodes and the edges are an open number."""
    nodes = [
        helper.make_node("Split", ["edge_index"], ["ends", "starts"], axis=0, num_outputs=2),
        helper.make_node("Squeeze", ["starts", "zero"], ["rows"]),
        helper.make_node("Gather", ["x", "rows"], ["messages"]),
        helper.make_node("Squeeze", ["ends", "zero"], ["places"]),
        helper.make_node("Unsqueeze", ["places", "one"], ["where"]),
        helper.make_node("ScatterND", ["x", "where", "messages"], ["y"], reduction="add"),
    ]
    edges = helper.make_tensor_value_info("edge_index", TensorProto.INT64, [2, "edges"])
    return make_onnx(nodes, {"x": ["nodes", 16], "edge_index": edges}, ["y"], {"zero": [0], "one": [1]})


def test_nodes_of_a_graph_network_are_no_batch(make_onnx: Callable[..., Any]) -> None:
    proto = _graph_network(make_onnx)
    specs = [parse_input("x=1000,16"), parse_input("edge_index=2,5000:int64")]
    found = from_proto(proto, name="m", source="m", batch=None, specs=specs)
    assert (found.symbol, found.batch) == ("", 1)
    assert [tensor.shape for tensor in found.graph().inputs] == [(1000, 16), (2, 5000)]
    assert not found.supports(2)


def test_nodes_of_a_graph_network_are_a_batch_where_one_is_asked_for(make_onnx: Callable[..., Any]) -> None:
    found = from_proto(_graph_network(make_onnx), name="m", source="m", batch=7)
    assert (found.symbol, found.graph().inputs[0].shape) == ("nodes", (7, 16))


@pytest.mark.parametrize("place", ["../weights.bin", "/etc/hostname"])
def test_weights_outside_the_models_folder_are_not_touched(tmp_path: Path, place: str) -> None:
    home, folder = tmp_path / "home", tmp_path / "a" / "work"
    home.mkdir()
    folder.mkdir(parents=True)
    (tmp_path / "weights.bin").write_bytes(b"\0" * 64)
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4, 4])
    weights.data_location = TensorProto.EXTERNAL
    weights.external_data.add(key="location", value=place)
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [info[0]], [info[1]], [weights]
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    (home / "m.onnx").write_bytes(proto.SerializeToString())
    found = load(parse_reference(str(home / "m.onnx")))
    with pytest.raises(MeasurementError, match="outside"):
        materialise(found, 1, folder)
    assert not (tmp_path / "a" / "weights.bin").exists()


def test_a_batch_axis_that_the_code_fixes_is_a_number_in_the_graph(loaded: Callable[..., Any]) -> None:
    found = loaded(
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.l = nn.Linear(8, 8)
            def forward(self, x): return self.l(x.view(4, -1, 8))
        def example_inputs(batch): return torch.randn(batch, 8)
        """,
        batch=4,
    )
    assert [dim.dim_value for dim in found.proto.graph.input[0].type.tensor_type.shape.dim] == [4, 8]


def test_complex_inputs_are_fed_as_their_two_parts(loaded: Callable[..., Any], tmp_path: Path) -> None:
    found = loaded("""
        class Net(nn.Module):
            def forward(self, x): return (x * x.conj()).real
        def example_inputs(batch): return torch.full((batch, 3), 3 + 4j)
    """)
    (tmp_path / "run").mkdir()
    runnable = materialise(found, 2, tmp_path / "run")
    import onnxruntime

    session = onnxruntime.InferenceSession(str(runnable.model_path), providers=["CPUExecutionProvider"])
    (output,) = session.run(None, dict(runnable.feeds))
    assert output.shape == (2, 3)
    assert (output == 25).all()


def test_inputs_that_torchscript_turned_into_constants_are_left_out(
    loaded: Callable[..., Any], tmp_path: Path
) -> None:
    found = loaded("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.l = nn.Linear(4, 4)
            def forward(self, steps, x):
                for _ in range(int(steps.item())): x = x + 1
                return self.l(x)
        def example_inputs(batch): return torch.tensor(3), torch.randn(batch, 4)
    """)
    assert found.exporter == "torchscript"
    (tmp_path / "run").mkdir()
    assert {name: value.shape for name, value in materialise(found, 1, tmp_path / "run").feeds.items()} == {
        "x": (1, 4)
    }


def test_a_file_with_relative_imports_is_a_module_of_its_package(tmp_path: Path) -> None:
    folder = tmp_path / "outer" / "inner_of_a_package"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "blocks.py").write_text(HEAD + "Block = nn.Linear")
    (folder / "net.py").write_text("from .blocks import Block\nmodel = Block(4, 2)")
    user = load_user_model(parse_reference(str(folder / "net.py")), weights="meta")
    assert user.model.in_features == 4
    assert user.module.__name__ == "inner_of_a_package.net"


def test_a_relative_import_that_fails_is_one_clear_error(write: Callable[..., Any]) -> None:
    with pytest.raises(ModelError, match="No module named"):
        load_user_model(write("from .other import Net"), weights="meta")


def test_a_saved_program_counts_its_parameters_alone_and_keeps_to_its_batches(tmp_path: Path) -> None:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 3)
            self.register_buffer("table", torch.ones(3))

        def forward(self, x: Any) -> Any:
            return self.layer(x) + self.table

    path = tmp_path / "net.pt2"
    batch = torch.export.Dim("batch", min=4, max=16)
    torch.export.save(torch.export.export(Net(), (torch.ones(5, 4),), dynamic_shapes=({0: batch},)), path)
    found = load(parse_reference(str(path)), batch=16)
    assert (found.parameters, found.parameter_bytes) == (15, 60)
    with pytest.raises(InputError, match="from 4 to 16"):
        load(parse_reference(str(path)), batch=2)


def test_a_model_of_the_caller_stays_as_it_is_when_it_is_run(
    make_onnx: Callable[..., Any], tmp_path: Path
) -> None:
    proto = make_onnx([helper.make_node("Relu", ["x"], ["y"])], {"x": ["N", 4]}, ["y"])
    before = proto.SerializeToString()
    found = load_live(proto, inputs=None, batch=2, specs=(), opset=None, progress=lambda _: None)
    materialise(found, 2, tmp_path)
    assert proto.SerializeToString() == before


def test_bfloat16_inputs_are_made_as_raw_bits(make_onnx: Callable[..., Any], tmp_path: Path) -> None:
    value = helper.make_tensor_value_info("x", TensorProto.BFLOAT16, ["N", 4])
    result = helper.make_tensor_value_info("y", TensorProto.BFLOAT16, ["N", 4])
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [value], [result])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    found = load_live(proto, inputs=None, batch=2, specs=(), opset=None, progress=lambda _: None)
    runnable = materialise(found, 2, tmp_path)
    assert runnable.feed_types == {"x": "bfloat16"}
    assert runnable.feeds["x"].dtype == "uint16"


def test_a_module_without_weights_is_exported_and_not_run(tmp_path: Path) -> None:
    import torch

    module = torch.nn.Linear(4, 3, device="meta")
    found = load_live(
        module, inputs=torch.ones(2, 4), batch=None, specs=(), opset=None, progress=lambda _: None
    )
    assert found.graph().inputs[0].shape == (2, 4)
    with pytest.raises(MeasurementError, match="meta device"):
        materialise(found, 2, tmp_path)


@pytest.mark.parametrize("given", [onnx.ModelProto(), dict])
def test_what_is_no_model_is_refused(given: onnx.ModelProto | type[Any]) -> None:
    with pytest.raises(ModelError):
        load_live(given, inputs=None, batch=None, specs=(), opset=None, progress=lambda _: None)


def test_texts_and_numbers_among_the_outputs_are_left_out(loaded: Callable[..., Any]) -> None:
    found = loaded("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.l = nn.Linear(8, 4)
            def forward(self, x): return {"name": "net", "y": self.l(x), "classes": 4}
    """)
    assert found.exporter == "torch.export"
    assert len(found.proto.graph.output) == 1


def test_lazy_layers_get_their_sizes_from_the_inputs(loaded: Callable[..., Any]) -> None:
    found = loaded("""
        model = nn.Sequential(nn.LazyLinear(5), nn.ReLU(), nn.LazyLinear(2))
        example_inputs = torch.ones(3, 7)
    """)
    assert found.parameters == 7 * 5 + 5 + 5 * 2 + 2


def test_a_model_that_is_set_to_none_is_no_candidate(write: Callable[..., Any]) -> None:
    user = load_user_model(
        write("""
        model = None
        class Net(nn.Linear):
            def __init__(self): super().__init__(2, 2)
        """),
        weights="meta",
    )
    assert user.name == "Net"


def test_inputs_that_are_no_tensors_say_what_they_are(loaded: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match="ndarray"):
        loaded("import numpy\nmodel = nn.Linear(2, 2)\nexample_inputs = numpy.ones((1, 2))")


@pytest.mark.parametrize(
    "own",
    [
        "def eval(self): raise RuntimeError('this one trains only')",
        "def eval(self, dataset): return dataset",
        "def eval(self): return 0.9",
        "def train(self, mode=True): raise NotImplementedError",
        "def train(self, mode=True): super().train(mode)",
    ],
    ids=["raises", "takes data", "is a score", "train raises", "train returns nothing"],
)
def test_a_dropout_is_off_whatever_a_class_calls_eval(loaded: Callable[..., Any], own: str) -> None:
    found = loaded(f"""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.drop = nn.Linear(4, 4), nn.Dropout()
            def forward(self, x): return self.drop(self.layer(x))
            {own}
    """)
    assert [node.op_type for node in found.proto.graph.node] == ["Gemm"]


@pytest.mark.parametrize(
    "form", ["{}", "{}.module()", "torch.export.unflatten({})"], ids=["program", "its module", "unflattened"]
)
@pytest.mark.parametrize("given", ["model = ", "def build_model(): return "], ids=["variable", "function"])
def test_an_exported_program_is_a_model(loaded: Callable[..., Any], given: str, form: str) -> None:
    found = loaded(
        given + form.format("torch.export.export(nn.Linear(8, 4).eval(), (torch.ones(2, 8),))"),
        specs=(parse_input("input=2,8"),),
    )
    assert found.parameters == 8 * 4 + 4


def test_a_model_in_memory_has_the_modes_of_all_its_modules_afterwards() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    model[1].eval()  # frozen while the rest trains
    load_live(model, inputs=(torch.ones(2, 4),), batch=None, specs=(), opset=None, progress=lambda _: None)
    assert [module.training for module in model] == [True, False]


def test_a_gradient_in_forward_is_named_with_its_line(loaded: Callable[..., Any]) -> None:
    code = """
        class Forces(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Linear(3, 1)
            def forward(self, pos):
                pos = pos.requires_grad_(True)
                return torch.autograd.grad(self.net(pos).sum(), pos)[0]
    """
    for specs in ((), (parse_input("pos=B,3"),)):
        with pytest.raises(
            ExportError, match=r"takes a gradient in forward \(.*: return torch\.autograd"
        ) as caught:
            loaded(code, specs=specs)
        assert "inputs" not in str(caught.value.hint)


# What PyTorch 2.13's kernels on the CPU say of each: "must have the same dtype", "not implemented for 'Long'".
@pytest.mark.parametrize(
    ("layer", "spec", "types"),
    [
        ("nn.Linear(8, 4)", "x=B,8:float16", "linear does not take float16 and float32"),
        ("nn.Linear(8, 4)", "x=B,8:int64", "linear does not take int64 and float32"),
        (
            "nn.ConvTranspose2d(3, 4, 3)",
            "x=B,3,8,8:float16",
            "conv_transpose2d does not take float16 and float32",
        ),
        ("nn.GRUCell(8, 4)", "x=B,8:float16", "gru_cell does not take float16 and float32"),
        ("nn.Softmax(-1)", "x=B,8:int64", "softmax does not take int64"),
        ("nn.GELU()", "x=B,8:int64", "gelu does not take int64"),
    ],
)
def test_inputs_of_a_type_that_a_layer_does_not_take_are_refused_without_a_run(
    loaded: Callable[..., Any], layer: str, spec: str, types: str
) -> None:
    code = f"""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = {layer}
            def forward(self, x): return self.layer(x)
    """
    with pytest.raises(InputError, match=types):
        loaded(code, specs=(parse_input(spec),))


def test_types_that_are_converted_are_no_error(loaded: Callable[..., Any]) -> None:
    found = loaded(
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(8, 4)
            def forward(self, x):
                with torch.autocast("cpu", torch.bfloat16):
                    y = self.layer(x.half())
                heads = x.reshape(-1, 2, 2, 2)
                heads = nn.functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=heads > 0)
                return torch.softmax(x.long(), -1, dtype=torch.float32), y, heads
    """,
        specs=(parse_input("x=B,8"),),
    )
    assert found.proto.graph.node


# What PyTorch 2.13 says of `pad_sequence`, which later releases translate; with its colours and its advice.
REFUSED = """\
Failed to decompose the FX graph for ONNX compatibility. \x1b[96mThis is step 2/3\x1b[0m of exporting.

## Exception summary

<class 'torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode'>: \
\x1b[1mCould not guard on data-dependent expression u3 > u1\x1b[0m (unhinted: u3 > u1).

Original traceback:
File "/home/user/model.py", line 7, in forward
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)

(Refer to the full stack trace above for more information.)"""


def test_a_failed_translation_is_told_without_colours_and_with_its_cause_and_line(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("\n" * 6 + "return nn.utils.rnn.pad_sequence(rows, batch_first=True)\n")

    def refuse(_: object) -> None:
        raise RuntimeError(REFUSED.replace("/home/user", str(tmp_path)))

    program = torch.export.export(nn.ReLU(), (torch.ones(2),))
    with pytest.raises(ExportError) as caught:
        without_untranslatable(program, refuse, [])
    message = caught.value.message
    assert message.isprintable()
    assert "data-dependent expression u3 > u1" in message
    assert "model.py:7: return nn.utils.rnn.pad_sequence(rows, batch_first=True)" in message
    assert "tensor values" in str(caught.value.hint)


def test_an_operator_without_translation_on_sizes_that_values_decide_stays_whole(
    loaded: Callable[..., Any],
) -> None:
    found = loaded(
        """
        class Net(nn.Module):
            def forward(self, x, lengths):
                longest = lengths.max().item()
                torch._check(longest >= 2)
                torch._check(longest <= 6)
                rows = x[:, :longest]
                return torch.cdist(rows, rows)
    """,
        specs=(parse_input("x=2,6,8"), parse_input("lengths=2:int64=4")),
    )
    assert [node.op_type for node in found.proto.graph.node if node.domain == "pytorch.aten"] == [
        "_cdist_forward"
    ]
