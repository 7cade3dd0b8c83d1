"""The data that a script has ready before it trains: a loader, a dataset, or tensors of examples.

Their shapes and types are those of the model's inputs, where the model takes them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from analyzer.loading.python.input_spec import InputSpec
from analyzer.loading.python.source_lines import shown_path
from analyzer.loading.python.user_source.script_sizes import is_own
from analyzer.text import listed

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

# Variables that hold what a model is fed with, beside those that are called as its parameters are.
_EXAMPLES = (
    *("x", "inputs", "input_tensor", "example_input", "dummy_input", "sample_input", "dummy", "example"),
    *("x_train", "train_x", "train_inputs", "xb", "x_batch", "fixed_noise", "noise", "z"),
)
# Loaders and datasets to look at: one of training, one of a test, and few others.
_MOST = 4
# Different examples in a batch; beyond them the same come again.
_MOST_EXAMPLES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptData:
    """What a variable of the file gives the model.

    Attributes:
        specs: The inputs, their rows being the batch.
        rows: Examples of each, to which the batch is an axis; on the meta device where it has none.
        note: Where they are from.
    """

    specs: tuple[InputSpec, ...]
    rows: tuple[Tensor, ...]
    note: str

    def tensors(self, batch: int) -> list[Tensor]:
        """The inputs of a batch: the file's own examples, so that what is looked up in a table is in it."""
        import torch

        return [
            rows.index_select(axis, torch.arange(batch) % rows.shape[axis])
            for spec, rows in zip(self.specs, self.rows, strict=True)
            for axis in (spec.shape.index(None),)
        ]


def script_data(module: ModuleType, model: Module, names: Sequence[str], batch: int) -> Iterator[ScriptData]:
    """What a user's file holds that these inputs of ``forward`` may be, most likely first.

    Args:
        module: The executed file.
        model: Its model.
        names: The inputs that ``forward`` needs.
        batch: How many examples are wanted.
    """
    if not (names and is_own(module)):
        return
    file = shown_path(str(module.__file__))

    def data(specs: Sequence[InputSpec], rows: Sequence[Tensor], variable: str) -> ScriptData:
        note = f"The inputs have the shapes and types of {variable} of {file} (--input gives others)."
        return ScriptData(specs=tuple(specs), rows=tuple(rows), note=note)

    for variable, examples in _sources(module):
        with suppress(Exception), redirect_stdout(sys.stderr):  # user's code; what it says is no answer
            specs = _specs_of_rows(names, examples.alike(2), examples.alike(3))
            if specs is not None:
                yield data(specs, _members(names, examples.first(batch)), variable)
    # Where sequences come first on their own axis, which axis of a tensor is the batch is not told.
    if all(getattr(layer, "batch_first", True) for layer in model.modules()):
        tensors = _tensors(module, names)
        if tensors is not None:
            specs = [_spec(name, tensor, 0) for name, (_, tensor) in zip(names, tensors, strict=True)]
            variables = listed([variable for variable, _ in tensors])
            yield data(specs, [tensor.detach() for _, tensor in tensors], variables)


def _sources(module: ModuleType) -> Iterator[tuple[str, _Examples]]:
    """Loaders and datasets in variables, those of training first."""
    from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

    found = [
        (name, value)
        for name, value in vars(module).items()
        if isinstance(value, (DataLoader, Dataset)) and not name.startswith("_")
    ]
    found.sort(key=lambda item: (not isinstance(item[1], DataLoader), "train" not in item[0].lower()))
    for name, value in found[:_MOST]:
        dataset = value.dataset if isinstance(value, DataLoader) else value
        collate = (isinstance(value, DataLoader) and value.collate_fn) or default_collate
        if isinstance(dataset, IterableDataset):
            continue  # it may be a stream, of which what is taken is gone
        if isinstance(value, DataLoader) and value.batch_size is None:
            continue  # its examples are batches, of which nobody knows the axis
        yield name, _Examples(dataset, collate)


@dataclass(frozen=True, slots=True)
class _Examples:
    """A dataset and how its examples become a batch, in this process."""

    dataset: Any
    collate: Any

    def alike(self, count: int) -> Any:
        """A batch of the first example again and again.

        Raises:
            ValueError: The examples differ in shape, so that the first one's is not that of a batch.
        """
        first, second = self.dataset[0], self.dataset[1]
        if _shapes(first) != _shapes(second):
            raise ValueError("examples of several lengths")
        return self.collate([first] * count)

    def first(self, count: int) -> Any:
        """A batch of the first examples."""
        return self.collate([self.dataset[i] for i in range(min(count, len(self.dataset), _MOST_EXAMPLES))])


def _shapes(example: Any) -> Any:
    if isinstance(example, Mapping):
        return {key: _shapes(value) for key, value in example.items()}
    if isinstance(example, (tuple, list)):
        return [_shapes(value) for value in example]
    return tuple(getattr(example, "shape", ()))


def _specs_of_rows(names: Sequence[str], two: Any, three: Any) -> list[InputSpec] | None:
    """The inputs of these names in batches of two and three: the axis that grows is the batch.

    None where a batch has not all of them, and where another axis grows too.
    """
    pairs = [*zip(_members(names, two), _members(names, three), strict=False)]
    if len(pairs) < len(names):
        return None
    specs = []
    for name, (tensor, larger) in zip(names, pairs, strict=False):
        sizes = [*zip(tensor.shape, larger.shape, strict=True)]
        axes = [axis for axis, (size, grown) in enumerate(sizes) if size != grown]
        if len(axes) != 1 or sizes[axes[0]] != (2, 3):
            return None
        specs.append(_spec(name, tensor, axes[0]))
    return specs


def _members(names: Sequence[str], batch: Any) -> list[Tensor]:
    """The tensors of a batch that go to these inputs: by name, else in order."""
    import torch

    if isinstance(batch, torch.Tensor):
        batch = (batch,)
    if isinstance(batch, Mapping):
        batch = [batch.get(name) for name in names]
    if not isinstance(batch, (tuple, list)):
        return []
    taken = list(batch[: len(names)])
    return taken if all(isinstance(item, torch.Tensor) for item in taken) else []


def _tensors(module: ModuleType, names: Sequence[str]) -> list[tuple[str, Tensor]] | None:
    """The variable of each input; None where one has none, or several that differ."""
    import torch

    tensors = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter) and value.dim() > 1
    }
    found = []
    for name in names:
        wanted = (name.lower(), *_EXAMPLES) if len(names) == 1 else (name.lower(),)
        named = [item for word in wanted for item in tensors.items() if item[0].lower() == word]
        if not named:
            return None
        found.append(named[0])
    return found


def _spec(name: str, tensor: Tensor, batch_axis: int) -> InputSpec:
    shape = tuple(None if axis == batch_axis else int(size) for axis, size in enumerate(tensor.shape))
    return InputSpec(name=name, shape=shape, dtype=str(tensor.dtype).removeprefix("torch."))
