"""Large constants that leave a graph while it is folded, and come back to it and to no other."""

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyzer.loading.model_reference import parse_reference
from analyzer.loading.python.example_inputs import ExampleInputs, resolve_inputs
from analyzer.loading.python.user_model import UserModel, load_user_model
from analyzer.loading.torch_export import export
from analyzer.loading.torch_export.export import Exported

# The table is no parameter and no buffer: nobody but the graph can give its values back.
CODE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.arange(100.0) + START

    def forward(self, x):
        return x * self.table

def example_inputs(batch=2):
    return (torch.randn(batch, 100),)
"""


@pytest.fixture
def built(tmp_path: Path) -> Callable[[int], tuple[UserModel, ExampleInputs]]:
    def build(start: int) -> tuple[UserModel, ExampleInputs]:
        path = tmp_path / f"model_{start}.py"
        path.write_text(CODE.replace("START", str(start)))
        user = load_user_model(parse_reference(str(path)), weights="real")
        return user, resolve_inputs(user, (), None)

    return build


def stored_values(exported: Exported) -> Any:
    from onnx import numpy_helper

    (held,) = (item for item in exported.proto.graph.initializer if 100 in item.dims)
    return numpy_helper.to_array(held).ravel().tolist()


def test_two_exports_at_once_keep_their_own_constants(
    built: Callable[[int], tuple[UserModel, ExampleInputs]], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = built(0), built(1000)
    attach = export.attach_origins
    inner: list[Any] = []

    def attach_after_another_export(model: Any, lines: Any) -> None:
        if not inner:
            inner.append(None)
            inner[0] = export.export_model(*second, 20)
        attach(model, lines)

    monkeypatch.setattr(export, "attach_origins", attach_after_another_export)
    outer = export.export_model(*first, 20)
    assert outer.needs_values == ()
    assert stored_values(outer) == [float(value) for value in range(100)]
    assert stored_values(inner[0]) == [float(value) for value in range(1000, 1100)]


def test_an_export_that_fails_keeps_no_constant_for_the_next_one(
    built: Callable[[int], tuple[UserModel, ExampleInputs]], monkeypatch: pytest.MonkeyPatch
) -> None:
    user, inputs = built(0)
    held: list[weakref.ref[Any]] = []

    def fail(model: Any, _lines: Any) -> None:
        raise ValueError("in the middle")

    lighten = export.lighten

    def watched(model: Any) -> Any:
        held.extend(weakref.ref(value.const_value) for value in model.graph.initializers.values())
        return lighten(model)

    monkeypatch.setattr(export, "attach_origins", fail)
    monkeypatch.setattr(export, "lighten", watched)
    with pytest.raises(ValueError, match="in the middle") as caught:
        export.export_model(user, inputs, 20)
    del caught  # the traceback holds the model
    gc.collect()
    assert held
    assert [ref() for ref in held] == [None] * len(held)
