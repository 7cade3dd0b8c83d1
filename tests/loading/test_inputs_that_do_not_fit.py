"""Inputs that a model cannot take are refused, with the layer that takes others and a size that fits."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyzer.errors import InputError
from analyzer.loading.load import load as load_model
from analyzer.loading.model_reference import parse_reference
from analyzer.loading.python.example_inputs import resolve_inputs
from analyzer.loading.python.input_spec import parse_input
from analyzer.loading.python.user_model import load_user_model

# A convolution halves the frequencies: of (F + 2 * 2 - 5) // 2 + 1 = 81 rows and 4 channels the LSTM takes 324,
# and 161 is the least F that gives 81.
SPEECH = """
    import torch
    from torch import nn
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 4, 5, stride=(2, 1), padding=2)
            self.rnn = nn.{kind}(4 * 81, 8)
        def forward(self, x, lengths):
            h = self.conv(x).flatten(1, 2).permute(2, 0, 1)
            packed = pack_padded_sequence(h, lengths.cpu(), enforce_sorted=False)
            return pad_packed_sequence(self.rnn(packed)[0])[0]
"""


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    def write(code: str) -> Path:
        path = tmp_path / "user_model.py"
        path.write_text(textwrap.dedent(code))
        return path

    return write


def built(path: Path) -> Any:
    return load_user_model(parse_reference(str(path)), weights="real")


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_packed_sequence_of_another_width_gets_the_size_that_fits(
    written: Callable[[str], Path], kind: str
) -> None:
    user = built(written(SPEECH.format(kind=kind)))
    found = resolve_inputs(user, [], 2)
    # Of 161 rows 81 are left, 4 channels each, 324; of 224, which is tried first, 112.
    assert tuple(found.arguments[0].shape) == (2, 1, 161, 224)
    assert found.origin == "inferred"
    # They give a graph.
    assert load_model(parse_reference(user.module.__file__), batch=2, specs=[], use_cache=False).proto


def test_given_inputs_that_pytorch_reads_beyond_the_weights_for_are_refused(
    written: Callable[[str], Path],
) -> None:
    reference = parse_reference(str(written(SPEECH.format(kind="LSTM"))))
    specs = [parse_input("x=B,1,224,224"), parse_input("lengths=B:int64=128")]
    with pytest.raises(InputError) as caught:
        load_model(reference, batch=2, specs=specs, use_cache=False)
    assert caught.value.message.endswith("rnn (LSTM) takes 324 features and gets 448.")


def test_a_size_that_several_axes_decide_is_solved_for_all_of_them(written: Callable[[str], Path]) -> None:
    # A side s gives (s - 4) * (s - 4) pixels of 6 channels: 6 * 40 * 40 = 9600 at 44, which no guess has.
    user = built(
        written("""
            from torch import nn
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.conv, self.fc = nn.Conv2d(3, 6, 5), nn.Linear(9600, 10)
                def forward(self, x):
                    return self.fc(self.conv(x).flatten(1))
        """)
    )
    found = resolve_inputs(user, [], 2)
    assert tuple(found.arguments[0].shape) == (2, 3, 44, 44)


def test_a_width_that_no_size_gives_is_reported_with_open_sizes(written: Callable[[str], Path]) -> None:
    # 6 channels never give 9601 features.
    user = built(
        written("""
            from torch import nn
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.conv, self.fc = nn.Conv2d(3, 6, 5), nn.Linear(9601, 10)
                def forward(self, x):
                    return self.fc(self.conv(x).flatten(1))
        """)
    )
    with pytest.raises(InputError, match=r"fc \(Linear\) takes 9601 features") as caught:
        resolve_inputs(user, [], 2)
    # Not a size that failed.
    assert caught.value.hint == (
        "Give the right shape: --input x=B,3,...,...:float32, with the right sizes in place of `...`."
    )


GRAPH = """
    import torch
    from torch import nn
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(16, 8)
        def forward(self, x, edge_index):
            h = self.fc(x)
            nodes = int(edge_index.max()) + 1  # read from real values: the call is made with such
            return torch.zeros(nodes, 8).index_add(0, edge_index[1], h[edge_index[0]])
"""
STATE = """
    from torch import nn
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.GRUCell(16, 8)
        def forward(self, x, state):
            h, c = state.unbind(1)
            return self.cell(x, h) + c
"""


@pytest.mark.parametrize(
    ("code", "specs", "cause", "advice"),
    [
        (
            GRAPH,
            ["x=B,16", "edge_index=2,40:int64=30"],
            "IndexError",
            ["x=1,16", "edge_index=2,40", "how many nodes there are, not B"],
        ),
        (STATE, ["x=B,16", "state=2,B,8"], "ValueError", ["x=4,16", "state=2,4,8"]),
    ],
)
def test_the_shapes_that_were_tried_stand_with_their_names(
    written: Callable[[str], Path], code: str, specs: list[str], cause: str, advice: list[str]
) -> None:
    batch = 4 if code is STATE else None
    with pytest.raises(InputError) as refused:
        load_model(
            parse_reference(str(written(code))),
            batch=batch,
            specs=[parse_input(text) for text in specs],
            use_cache=False,
        )
    assert cause in refused.value.message  # what PyTorch said last
    assert all(text in (refused.value.hint or "") for text in advice)
