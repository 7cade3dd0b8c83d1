"""Sizes that a script names itself: ``block_size = 256``, ``IMG_SIZE = 128``, ``batch_size = 64``."""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from analyzer.loading.dependencies import is_library
from analyzer.loading.python.input_spec import InputSpec
from analyzer.loading.python.layer_inputs import OpenLength, OpenSide
from analyzer.loading.python.source_lines import shown_path
from analyzer.text import listed

if TYPE_CHECKING:
    from torch.nn import Module

# By how surely the size is that of what is fed: a longest length may be one that is rarely met.
_LENGTHS = (
    (
        *("block_size", "seq_len", "seqlen", "seq_length", "sequence_length", "sequence_len"),
        *("context_length", "context_len", "context_size", "context_window", "ctx_len", "n_ctx"),
    ),
    ("max_len", "maxlen", "max_length", "max_seq_len", "max_seq_length", "max_sequence_length"),
)
_SIDES = (("img_size", "image_size", "imsize", "im_size", "crop_size", "img_dim", "image_dim"),)
_HEIGHTS = (("img_height", "image_height", "img_h"),)
_WIDTHS = (("img_width", "image_width", "img_w"),)
_BATCHES = (("batch_size", "train_batch_size", "batchsize"),)
_LONGEST, _LARGEST_SIDE, _LARGEST_BATCH = 1 << 20, 1 << 14, 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSize:
    """A size under its name in the file.

    Attributes:
        name: As the file writes it.
        sizes: One, or height and width.
    """

    name: str
    sizes: tuple[int, ...]

    @property
    def told(self) -> str:
        """As an assignment."""
        return f"{self.name} = {self.sizes[0] if len(self.sizes) == 1 else self.sizes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSizes:
    """What a file says of the sizes of its inputs.

    Attributes:
        file: As reports show it.
        length: Of a sequence; None where nothing, or more than one thing, tells it.
        side: Of an image, likewise.
    """

    file: str
    length: NamedSize | None = None
    side: NamedSize | None = None

    def in_place_of_usual(self, specs: tuple[InputSpec, ...]) -> tuple[InputSpec, ...]:
        """These inputs with the file's sizes where they have but usual ones."""
        return tuple(self._filled(spec) for spec in specs)

    def note(self, used: Collection[InputSpec]) -> str:
        """Which of these sizes come from the file; empty where none does."""
        named = [
            item.told
            for kind, item in ((OpenLength, self.length), (OpenSide, self.side))
            if item is not None
            and any(isinstance(size, kind) for spec in used for size in (*spec.shape, *(spec.values or ())))
        ]
        if not named:
            return ""
        return f"The inputs are sized by {listed(named)} of {self.file} (--input gives others)."

    def _filled(self, spec: InputSpec) -> InputSpec:
        sides = list(self.side.sizes * 2)[:2] if self.side is not None else []
        shape: list[int | None] = []
        for size in spec.shape:
            if isinstance(size, OpenLength) and self.length is not None:
                shape.append(OpenLength(self.length.sizes[0]))
            elif isinstance(size, OpenSide) and sides:
                shape.append(OpenSide(sides.pop(0)))
            else:
                shape.append(size)
        values = spec.values
        if values is not None and self.length is not None and isinstance(values[0], OpenLength):
            length = OpenLength(self.length.sizes[0])
            values = (length, length)
        return replace(spec, shape=tuple(shape), values=values)


def script_sizes(module: ModuleType, model: Module) -> ScriptSizes | None:
    """The sizes that a user's file names, or its model's configuration; None where there are none."""
    if not is_own(module):
        return None
    holders = [vars(module), *_configurations(vars(module)), *_configurations(vars(model))]
    length = _named(holders, _LENGTHS, range(2, _LONGEST))
    side = _named(holders, _SIDES, range(8, _LARGEST_SIDE), pairs=True)
    if side is None:
        height = _named(holders, _HEIGHTS, range(8, _LARGEST_SIDE))
        width = _named(holders, _WIDTHS, range(8, _LARGEST_SIDE))
        if height is not None and width is not None:
            side = NamedSize(name=f"{height.name}, {width.name}", sizes=(*height.sizes, *width.sizes))
    if length is None and side is None:
        return None
    return ScriptSizes(file=shown_path(str(module.__file__)), length=length, side=side)


def told_batch(module: ModuleType, batch: int) -> tuple[str, ...]:
    """What to say where a script names another batch to train with than this one, for which nobody asked."""
    if not is_own(module):
        return ()
    holders = [vars(module), *_configurations(vars(module))]
    named = _named(holders, _BATCHES, range(1, _LARGEST_BATCH))
    if named is None or named.sizes == (batch,):
        return ()
    file, size = shown_path(str(module.__file__)), named.sizes[0]
    return (f"The step is of batch {batch}; {file} trains with {named.told} (--batch {size}).",)


def is_own(module: ModuleType) -> bool:
    """Whether a module is a file of the user's."""
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and not is_library(os.path.abspath(file))


def _configurations(holder: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What variables hold of options by name: a parsed command line, a dataclass, a dict."""
    for value in holder.values():
        if isinstance(value, argparse.Namespace) or (
            dataclasses.is_dataclass(value) and not isinstance(value, type)
        ):
            yield getattr(value, "__dict__", {})
        elif isinstance(value, dict) and all(isinstance(key, str) for key in value):
            yield value


def _named(
    holders: Collection[Mapping[str, Any]],
    tiers: tuple[tuple[str, ...], ...],
    possible: range,
    *,
    pairs: bool = False,
) -> NamedSize | None:
    """The one size under these names, of the first names that have any; None where they differ."""
    for names in tiers:
        found = [
            NamedSize(name=name, sizes=sizes)
            for holder in holders
            for name, value in holder.items()
            if isinstance(name, str) and name.lower().lstrip("_") in names
            if (sizes := _sizes(value, possible, pairs=pairs))
        ]
        if found:
            return found[0] if len({item.sizes for item in found}) == 1 else None
    return None


def _sizes(value: object, possible: range, *, pairs: bool) -> tuple[int, ...]:
    several = value if pairs and isinstance(value, (tuple, list)) and len(value) == 2 else (value,)
    whole = tuple(item for item in several if type(item) is int and item in possible)
    if len(whole) != len(several):
        return ()
    return whole[:1] if len(set(whole)) == 1 else whole
