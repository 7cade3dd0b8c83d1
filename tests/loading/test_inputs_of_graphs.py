"""Which inputs a line for a model of graphs names, and how large they are."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyzer.errors import InputError
from analyzer.loading.model_reference import parse_reference
from analyzer.loading.python.example_inputs import resolve_inputs
from analyzer.loading.python.input_spec import is_one_graph, parse_input
from analyzer.loading.python.user_model import load_user_model

# Read in a loop over layers and norms; `edge_attr` by a layer that is there with `edge_dim` alone.
ATTENTION = """
    import torch
    from torch import nn

    class Layer(nn.Module):
        def __init__(self, width, edge_dim=None):
            super().__init__()
            self.lin = nn.Linear(width, 8)
            self.lin_edge = nn.Linear(edge_dim, 8) if edge_dim else None

        def forward(self, x, edge_index, edge_attr=None):
            h = self.lin(x)
            sent = h[edge_index[0]]
            if self.lin_edge is not None and edge_attr is not None:
                sent = sent + self.lin_edge(edge_attr)
            return torch.zeros_like(h).index_add_(0, edge_index[1], sent)

    class Net(nn.Module):
        def __init__(self, width, edge_dim=None):
            super().__init__()
            self.layers, self.norms = nn.ModuleList(), nn.ModuleList()
            for _ in range(2):
                self.layers.append(Layer(width, edge_dim=edge_dim))
                self.norms.append(nn.BatchNorm1d(8))
                width = 8

        def forward(self, x, edge_index, batch=None, edge_attr=None):
            for layer, norm in zip(self.layers, self.norms):
                x = norm(layer(x, edge_index, edge_attr))
            batch = edge_index.new_zeros(x.size(0)) if batch is None else batch
            return x.new_zeros(4, 8).index_add_(0, batch, x)
"""


@pytest.fixture
def load(tmp_path: Path) -> Callable[[str], Any]:
    """Builds the class as the reference says, such as ``Net(16)``."""

    def build(built: str) -> Any:
        path = tmp_path / "net.py"
        path.write_text(textwrap.dedent(ATTENTION))
        return load_user_model(parse_reference(f"{path}:{built}"), weights="real")

    return build


def test_a_graph_model_is_offered_its_nodes_and_edges_and_the_line_works(load: Any) -> None:
    user = load("Net(16)")
    with pytest.raises(InputError, match="are nodes and edges, and how many") as caught:
        resolve_inputs(user, [], None)
    # Features are what the linear layer takes, floats; each number of a pair is one of the nodes.
    line = "--input x=100,16:float32 --input edge_index=2,400:int64=0..99"
    assert caught.value.hint == f"Add example_inputs(batch) to the file, or give {line}."
    specs = [parse_input(item.strip()) for item in line.split("--input ")[1:]]
    inputs = resolve_inputs(user, specs, None)
    assert user.model(*inputs.arguments, **inputs.keywords).shape == (4, 8)


def test_edges_that_are_missing_join_the_nodes_that_are_given(load: Any) -> None:
    with pytest.raises(InputError, match="also needs edge_index") as caught:
        resolve_inputs(load("Net(16)"), [parse_input("x=50,16")], None)
    assert caught.value.hint == "Add --input edge_index=2,400:int64=0..49."


@pytest.mark.parametrize(("inputs", "one"), [
    # Nodes and pairs of nodes, in either order, of given sizes or of open ones.
    ([("x", (100, 16), "float32"), ("pairs", (2, 400), "int64")], True),
    ([("pairs", (2, 400), "int64"), ("x", (100, 16), "float32")], True),
    ([("x", (None, 16), "float16"), ("pairs", (2, None), "int32")], True),
    # Atoms are whole numbers: the name of the edges tells.
    ([("z", (100,), "int64"), ("edge_index", (2, 400), "int64")], True),
    ([("z", (100,), "int64"), ("pairs", (2, 400), "int64")], False),
    # Two sentences with a weight for each word; two rows of a mask; two nodes joined, or no pairs at all.
    ([("ids", (2, 128), "int64"), ("weights", (2, 128), "float32")], False),
    ([("x", (100, 16), "float32"), ("mask", (2, 400), "bool")], False),
    ([("x", (100, 16), "float32"), ("square", (2, 2), "int64")], False),
    ([("x", (100, 16), "float32")], False),
    ([("x", (), "float32"), ("pairs", (2, 400), "int64")], False),
])  # fmt: skip
def test_inputs_are_one_graph_by_rows_of_nodes_and_pairs_of_them(
    inputs: list[tuple[str, tuple[int | None, ...], str]], one: bool
) -> None:
    assert is_one_graph(inputs) == one
