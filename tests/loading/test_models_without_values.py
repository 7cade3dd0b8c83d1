"""Models that no run needs are built and called without values, or within the memory that they may take."""

from __future__ import annotations

import gc
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from analyzer import analyze
from analyzer.errors import MemoryForeseenError
from analyzer.loading.load import load
from analyzer.loading.loaded import Loaded
from analyzer.loading.model_reference import parse_reference
from analyzer.loading.python.example_inputs import ExampleInputs
from analyzer.loading.python.layers import call
from analyzer.loading.python.user_model import load_user_model
from analyzer.reading import Limits

HEAD = "import torch\nfrom torch import nn\n"
# The weights of one layer of 2048 x 2048 in float32; the limit lies between its smaller tensors and it.
LAYER_BYTES = 4 * 2048**2
LIMITS = Limits(memory=LAYER_BYTES // 2)


@pytest.fixture
def path(tmp_path: Path) -> Callable[[str], Path]:
    def write(code: str) -> Path:
        file = tmp_path / "net.py"
        file.write_text(HEAD + textwrap.dedent(code))
        return file

    return write


@pytest.fixture
def loaded(path: Callable[[str], Path]) -> Callable[[str], Loaded]:
    def read(code: str) -> Loaded:
        return load(parse_reference(str(path(code))), batch=64, limits=LIMITS, use_cache=False)

    return read


@pytest.mark.parametrize(
    "forward",
    ["self.layer(x[:, [-1], :])", "self.layer(x) * torch.tensor([1.0, 2.0]).repeat(1024)"],
    ids=["a list as index", "a tensor literal"],
)
def test_a_tensor_that_forward_writes_out_needs_no_weights(
    forward: str, loaded: Callable[[str], Loaded]
) -> None:
    found = loaded(f"""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(2048, 2048)
            def forward(self, x): return {forward}
        def example_inputs(batch): return torch.randn(batch, 8, 2048)
    """)
    assert found.exporter == "torch.export"
    assert found.parameter_bytes == LAYER_BYTES + 4 * 2048


def test_values_of_small_tensors_are_there_for_a_constructor(loaded: Callable[[str], Loaded]) -> None:
    found = loaded("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.rates = [rate.item() for rate in torch.linspace(0, 0.5, 3)]
                self.layer = nn.Linear(2048, 2048)
            def forward(self, x): return self.layer(x) * self.rates[1]
    """)
    factors = [
        constant.float_data[:] or constant for constant in found.proto.graph.initializer if not constant.dims
    ]
    # torch.linspace(0, 0.5, 3) is 0, 0.25, 0.5.
    assert [torch.frombuffer(bytearray(item.raw_data), dtype=torch.float32).item() for item in factors] == [
        0.25
    ]


def test_a_model_that_reads_its_weights_back_is_refused_before_they_exceed_the_limit(
    loaded: Callable[[str], Loaded],
) -> None:
    with pytest.raises(
        MemoryForeseenError, match=r"has to be built with its weights\..*Without weights it fails"
    ) as caught:
        loaded("""
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layer = nn.Linear(2048, 2048)
                    self.scale = float(self.layer.weight.max())
                def forward(self, x): return self.layer(x) * self.scale
        """)
    assert "--limit memory" in str(caught.value.hint)


def test_a_call_that_needs_values_is_made_on_two_rows(path: Callable[[str], Path]) -> None:
    user = load_user_model(
        parse_reference(
            str(
                path("""
        ROWS = []
        class Net(nn.Module):
            def forward(self, x):
                ROWS.append(len(x.numpy()))
                return x
    """)
            )
        ),
        weights="real",
    )
    inputs = ExampleInputs(arguments=(torch.ones(64, 4),), batch=64, batch_axes={0: (0,)}, origin="given")
    call(user, inputs)
    assert user.module.ROWS == [2]


def test_a_call_leaves_a_model_as_it_was(path: Callable[[str], Path]) -> None:
    user = load_user_model(
        parse_reference(
            str(
                path("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("seen", torch.zeros(4))
            def forward(self, x):
                self.seen = x.sum(0)
                self.last = x
                return x
    """)
            )
        ),
        weights="real",
    )
    call(user, ExampleInputs(arguments=(torch.ones(3, 4),), batch=3, batch_axes={0: (0,)}, origin="given"))
    assert user.model.seen.tolist() == [0, 0, 0, 0]
    assert not hasattr(user.model, "last")


def test_no_weights_outlive_an_analysis(path: Callable[[str], Path]) -> None:
    # It refers to itself, and its file's module to it; its constructor needs the values of its weights.
    file = path("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(517, 519)
                self.scale = float(nn.Linear(600, 600).weight.max())
                self.parts = [self]
            def forward(self, x): return self.layer(x) * self.scale
        model = Net()
    """)
    analyze(file, batch=2, run=False, gpu="none", cpu="epyc-9654", cache=False)
    left = [
        item for item in gc.get_objects() if type(item) in (torch.Tensor, nn.Parameter) and not item.is_meta
    ]
    assert (519, 517) not in [tuple(item.shape) for item in left]
