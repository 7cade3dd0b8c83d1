"""What the files of strangers do: small modules with what made whole families of models fail."""

import textwrap

import pytest

from analyzer.loading.load import load
from analyzer.loading.reference import parse_reference
from analyzer.loading.weights import materialise

HEAD = """
import torch
from torch import nn
"""


@pytest.fixture
def loaded(tmp_path):
    def build(code, **options):
        path = tmp_path / "stranger.py"
        path.write_text(HEAD + textwrap.dedent(code))
        return load(parse_reference(str(path)), use_cache=False, **options)

    return build


def test_a_dict_that_is_the_only_argument_stays_whole(loaded):
    found = loaded("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(8, 4)
            def forward(self, batch):
                return self.a(batch["x"]) + batch["y"]
        def example_inputs(batch):
            return {"x": torch.randn(batch, 8), "y": torch.randn(batch, 4)}
    """)
    assert found.symbol == "batch"
    assert [tensor.shape for tensor in found.graph(3).inputs] == [(3, 8), (3, 4)]


def test_a_list_for_the_only_argument_stays_whole(loaded):
    found = loaded("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(8, 4)
            def forward(self, images):
                return [self.a(image) for image in images]
        def example_inputs(batch):
            return [torch.randn(batch, 8), torch.randn(batch, 8)]
    """)
    assert len(found.graph().inputs) == len(found.graph().outputs) == 2


def test_a_mapping_that_is_no_dict_gives_keywords(loaded):
    found = loaded("""
        from collections import UserDict
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(8, 4)
            def forward(self, x, shift=None):
                return self.a(x) + shift
        example_inputs = UserDict(shift=torch.randn(2, 4), x=torch.randn(2, 8))
    """)
    assert {tensor.name: tensor.shape for tensor in found.graph(5).inputs} == {"x": (5, 8), "shift": (5, 4)}


def test_torchscript_takes_keywords_and_gives_records(loaded, tmp_path):
    found = loaded("""
        from dataclasses import dataclass
        @dataclass
        class Out:
            y: torch.Tensor
            path: str
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(8, 4)
            def forward(self, x, mask=None, *, scale=1.0, extra=None):
                if x.sum() > 0:
                    return Out(self.a(x) * scale + extra["e"], "up")
                return Out(x, "down")
        def example_inputs(batch):
            return {"x": torch.ones(batch, 8), "scale": 3.0, "extra": {"e": torch.full((batch, 4), 2.0)}}
    """)
    assert found.exporter == "torchscript"
    assert found.notes[0].count("..") == 0
    assert [node.op_type for node in found.graph().nodes] == ["Gemm", "Mul", "Add"]
    folder = tmp_path / "run"
    folder.mkdir()
    runnable = materialise(found, found.batch, folder)
    assert {name: array.shape for name, array in runnable.feeds.items()} == {"x": (1, 8), "extra_e": (1, 4)}
    assert runnable.feeds["extra_e"].tolist() == [[2.0] * 4]
    import onnxruntime

    session = onnxruntime.InferenceSession(str(runnable.model_path), providers=["CPUExecutionProvider"])
    assert session.run(None, runnable.feeds)[0] == pytest.approx(runnable.eager()[0], rel=1e-5)


def test_operators_of_a_class_that_the_analysis_builds_show_its_forward(loaded):
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
    assert shift.source.code == "def forward(self, x):"
