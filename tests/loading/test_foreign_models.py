"""What the files of strangers do: small modules with what made whole families of models fail."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyzer.costs.table import count
from analyzer.errors import ExportError, InputError, ModelError
from analyzer.loading.weights import materialise


def test_operators_of_a_class_that_the_analysis_builds_show_its_forward(loaded: Callable[..., Any]) -> None:
    found = loaded("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(8, 8)
            def forward(self, x):
                if x.sum() > 0:
                    return self.a(x) + 1
                return x
        def example_inputs(batch):
            return torch.ones(batch, 8)
    """)
    product, shift = found.graph().nodes
    assert product.source is not None
    assert product.source.code == "self.a = nn.Linear(8, 8)"
    assert shift.source is not None
    # Its line is known, and says nothing: it only begins a definition.
    assert shift.source.code == ""
    assert shift.source.line == product.source.line + 1


def test_complex_products_that_cannot_be_translated_say_what_to_write(loaded: Callable[..., Any]) -> None:
    with pytest.raises(ExportError, match=r"complex numbers .*aten\.\w+") as caught:
        loaded("""
            class Spectral(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.weight = nn.Parameter(torch.randn(4, 4, 33, dtype=torch.cfloat))
                def forward(self, x):
                    return torch.fft.irfft(torch.einsum("bix,iox->box", torch.fft.rfft(x), self.weight), n=64)
            def example_inputs(batch):
                return torch.randn(batch, 4, 64)
        """)
    assert "view_as_real" in caught.value.hint


@pytest.mark.parametrize("shape", ["batch, 10, 16", "batch, 2, 3, 10, 16"])
def test_attention_over_any_number_of_axes_is_exported_with_its_origin(
    loaded: Callable[..., Any], shape: str
) -> None:
    found = loaded(f"""
        class Block(nn.Module):
            def forward(self, x):
                return nn.functional.scaled_dot_product_attention(x, x + 1, x + 2, is_causal=True)
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.block = Block()
            def forward(self, x):
                return self.block(x)
        def build_model():
            return Net()
        def example_inputs(batch):
            return torch.randn({shape})
    """)
    assert (found.exporter, found.symbol) == ("torch.export", "batch")
    products = [node for node in found.graph(3).nodes if node.op_type == "MatMul"]
    assert [node.module for node in products] == ["block", "block"]
    assert all("scaled_dot_product_attention" in node.source.code for node in products)


def test_a_graph_that_the_folder_trips_over_is_kept_as_it_is(
    monkeypatch: pytest.MonkeyPatch, loaded: Callable[..., Any]
) -> None:
    from onnxscript.optimizer import _constant_folding

    original = _constant_folding.FoldConstantsPass.process_node

    def trip(self: Any, node: Any, is_function: Any) -> Any:
        if node.op_type == "Relu":
            raise RuntimeError("Error during constant folding")
        return original(self, node, is_function)

    monkeypatch.setattr(_constant_folding.FoldConstantsPass, "process_node", trip)
    found = loaded("model = nn.Sequential(nn.Linear(8, 4), nn.ReLU())")
    assert [node.op_type for node in found.graph().nodes] == ["Gemm", "Relu"]


@pytest.mark.parametrize("device", ['"cuda"', 'torch.device("cuda", 0)'])
def test_code_for_a_gpu_is_analysed_where_there_is_none(loaded: Callable[..., Any], device: str) -> None:
    found = loaded(f"""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(8, 8).cuda()
                self.scale = torch.ones(8, device={device}, dtype=torch.float64)
            def forward(self, x):
                steps = torch.arange(8, device={device})
                y = self.a(x.to({device}, non_blocking=True))
                return y * self.scale.to({device}, torch.float32) + steps
        def build_model():
            return Net().to({device}).half().float()
        def example_inputs(batch):
            return torch.randn(batch, 8, device={device})
    """)
    assert (found.exporter, found.symbol) == ("torch.export", "batch")
    assert [node.op_type for node in found.graph(3).nodes if node.op_type == "Gemm"] == ["Gemm"]


@pytest.mark.parametrize("how", ["torch.jit.script(Net())", "torch.jit.trace(Net(), torch.ones(2, 8))"])
def test_a_scripted_model_is_exported_as_it_was_written(loaded: Callable[..., Any], how: str) -> None:
    found = loaded(f"""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = torch.jit.script(nn.Linear(8, 4))
            def forward(self, x):
                return self.inner(x)
        model = {how}
        def example_inputs(batch):
            return torch.ones(batch, 8)
    """)
    assert (found.exporter, found.symbol) == ("torch.export", "batch")
    assert found.graph().nodes[0].module == "inner"


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_a_saved_torchscript_model_is_called_by_its_schema(loaded: Callable[..., Any], tmp_path: Path) -> None:
    import torch

    module = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())
    traced = torch.jit.trace(module, torch.ones(2, 8))  # type: ignore[no-untyped-call]
    traced.save(tmp_path / "compiled.pt")
    build = f"model = torch.jit.load({str(tmp_path / 'compiled.pt')!r})"
    found = loaded(build + "\nexample_inputs = {'input': torch.ones(3, 8)}")
    assert (found.exporter, found.batch) == ("torchscript", 3)
    assert [node.op_type for node in found.graph().nodes] == ["Gemm", "Relu"]
    with pytest.raises(InputError) as refused:
        loaded(build)
    assert refused.value.hint is not None
    assert "--input input=B,..." in refused.value.hint


def test_masks_of_a_transformer_leave_the_batch_open(loaded: Callable[..., Any]) -> None:
    found = loaded("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.t = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
            def forward(self, src, tgt, padding):
                mask = nn.Transformer.generate_square_subsequent_mask(tgt.size(1))
                return self.t(src, tgt, tgt_mask=mask, src_key_padding_mask=padding)
        def example_inputs(batch):
            padding = torch.zeros(batch, 6, dtype=torch.bool)
            return torch.randn(batch, 6, 16), torch.randn(batch, 4, 16), padding
    """)
    assert (found.exporter, found.symbol) == ("torch.export", "batch")
    assert found.graph(3).outputs[0].shape == (3, 4, 16)


def test_a_model_of_another_name_is_told(loaded: Callable[..., Any]) -> None:
    found = loaded("import math\nnet = nn.Linear(8, 4)")
    assert any("variable net of" in note and "stranger.py" in note for note in found.notes), found.notes


def test_products_of_experts_are_counted_and_run(loaded: Callable[..., Any], tmp_path: Path) -> None:
    import onnxruntime

    found = loaded("""
        @torch.library.custom_op("transformers::grouped_mm_fallback", mutates_args=())
        def grouped(rows: torch.Tensor, matrices: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
            parts = rows.tensor_split(ends.tolist()[:-1])
            return torch.cat([part @ matrix for part, matrix in zip(parts, matrices)])
        @grouped.register_fake
        def _(rows, matrices, ends):
            return rows.new_empty(rows.shape[0], matrices.shape[2])
        class Experts(nn.Module):
            def __init__(self):
                super().__init__()
                self.up = nn.Parameter(torch.randn(4, 16, 32))
            def forward(self, rows, ends):
                return grouped(rows, self.up, ends)
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.experts = Experts()
            def forward(self, rows, ends):
                return self.experts(rows, ends)
        def build_model():
            return Net()
        def example_inputs(batch):
            return torch.randn(12, 16), torch.tensor([3, 3, 10, 12], dtype=torch.int32)
    """)
    graph = found.graph()
    products = [node for node in graph.nodes if node.op_type == "MatMul"]
    assert [node.module for node in products] == ["experts"] * 4
    # Each row meets one matrix, whatever the ends are.
    assert count(graph).total.macs == 12 * 16 * 32
    folder = tmp_path / "run"
    folder.mkdir()
    runnable = materialise(found, found.batch, folder)
    session = onnxruntime.InferenceSession(str(runnable.model_path), providers=["CPUExecutionProvider"])
    assert runnable.eager is not None
    assert session.run(None, runnable.feeds)[0] == pytest.approx(runnable.eager()[0], rel=1e-4, abs=1e-5)


def test_packed_sequences_say_what_to_give_instead(loaded: Callable[..., Any]) -> None:
    with pytest.raises(ExportError) as caught:
        loaded("""
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.lstm = nn.LSTM(8, 4, batch_first=True)
                def forward(self, x, lengths):
                    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, True, enforce_sorted=False)
                    return self.lstm(packed)[1][0]
            def example_inputs(batch):
                return torch.randn(batch, 6, 8), torch.full((batch,), 6)
        """)
    assert "pack_padded_sequence" in caught.value.hint
    # What PyTorch raises inside its own layers speaks of its fake tensors.
    assert caught.value.message.endswith("): it packs sequences (pack_padded_sequence)")
    assert "FakeTensor" not in caught.value.message


@pytest.mark.parametrize(
    "failure",
    [
        "import urllib.error\n    raise urllib.error.URLError('no route')",
        "raise OSError(\"We couldn't connect to 'https://example.com' to load the files\")",
    ],
)
def test_weights_that_cannot_be_downloaded_are_said_not_to_be_needed(
    loaded: Callable[..., Any], failure: str
) -> None:
    with pytest.raises(ModelError) as caught:
        loaded(f"def build_model():\n    {failure}")
    assert "not needed" in caught.value.hint


def test_a_bound_on_what_the_data_decide_is_no_bound_of_the_batch(loaded: Callable[..., Any]) -> None:
    found = loaded("""
        class Net(nn.Module):
            def forward(self, x, number):
                rows = number.item()
                torch._check(rows >= 3)
                torch._check(rows <= 7)
                return x.sum(), torch.zeros(rows)
        def example_inputs(batch):
            return torch.randn(batch, 8), torch.tensor(5)
    """)
    assert (found.exporter, found.symbol, found.batch_range) == ("torch.export", "batch", (1, None))


def test_a_number_read_from_a_tensor_of_floats_has_no_bounds_of_the_batch(loaded: Callable[..., Any]) -> None:
    found = loaded("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.scales = nn.Linear(4, 4), torch.tensor([3.0, 2.0])
            def forward(self, x): return self.layer(x) * self.scales[0].item()
        def example_inputs(batch): return torch.randn(batch, 4)
    """)
    assert (found.symbol, found.batch_range) == ("batch", (1, None))


def test_a_script_with_required_arguments_has_the_way_to_give_them_in_its_hint(
    loaded: Callable[..., Any],
) -> None:
    with pytest.raises(ModelError, match="SystemExit") as caught:
        loaded("""
            import argparse
            parser = argparse.ArgumentParser()
            parser.add_argument("--data", required=True)
            model = nn.Linear(len(parser.parse_args().data), 2)
        """)
    assert "after --, as in `analyze train.py -- --epochs 1`" in caught.value.hint
