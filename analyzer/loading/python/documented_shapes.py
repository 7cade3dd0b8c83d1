"""What docstrings say of the shapes of inputs: ``x: images, [B, 3, 32, 32]``, ``pos: [num_atoms, 3]``."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Literal
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from torch.nn import Module

# One size as it stands in a docstring; None is one that the words do not tell.
Dimension = int | Literal["batch", "nodes", "edges", "steps", "side"] | None
Dimensions = tuple[Dimension, ...]

_WORDS: Mapping[str, Dimension] = {
    **dict.fromkeys(("b", "bs", "bsz", "batch", "batch_size", "batchsize", "n_batch", "num_batch"), "batch"),
    **dict.fromkeys(("num_nodes", "n_nodes", "nodes", "num_atoms", "n_atoms", "atoms"), "nodes"),
    **dict.fromkeys(("e", "num_edges", "n_edges", "edges", "num_bonds", "n_bonds"), "edges"),
    **dict.fromkeys(
        (
            "seq",
            "seq_len",
            "seqlen",
            "seq_length",
            "sequence_length",
            "tokens",
            "num_tokens",
            "time",
            "frames",
            "l",
        ),
        "steps",
    ),
    **dict.fromkeys(("s", "t", "length", "max_len", "max_length"), "steps"),
    **dict.fromkeys(("h", "w", "height", "width"), "side"),
    **dict.fromkeys(
        ("c", "d", "f", "channels", "in_channels", "dim", "d_model", "features", "num_features"), None
    ),
    **dict.fromkeys(("hidden", "hidden_size", "embed_dim", "in_features", "freq", "k", "num_classes"), None),
}
_GROUP = re.compile(r"\[([^\[\]()]{1,60})\]|\(([^\[\]()]{1,60})\)")
# What begins the words on a parameter: ``x: ``, ``x (Tensor): ``, ``:param x: ``, a name in double backquotes;
# several may stand in one line, ``x: (B, T); lengths: (B,)``.
_ENTRY = r"(?:^|\n|[.;]\s)\s*(?:[-*]\s*|:param\s+)?`{{0,2}}{name}`{{0,2}}\s*(?:\([^)\n]*\)\s*)?:|``{name}``"
_ANY_ENTRY = re.compile(r"(?:\n|[.;]\s)\s*(?:[-*]\s*|:param\s+)?`{0,2}\w+`{0,2}\s*(?:\([^)\n]*\)\s*)?:|\n\s*\n")
_SIDE = re.compile(r"(?<![\w.])(\d{2,4}) ?[x×] ?\1(?![\w.])")
# What models call the side of the images that they are built for.
_SIDES = ("img_size", "image_size", "input_size", "resolution", "input_resolution")


# Whole numbers that models were built with, by parameter.
_BUILT_WITH: WeakKeyDictionary[object, Mapping[str, int]] = WeakKeyDictionary()


def remember_sizes(model: object, sizes: Mapping[str, int]) -> None:
    """Keeps the whole numbers that a model was built with, by which its docstrings may name sizes."""
    with suppress(TypeError):  # what nothing can refer to weakly is no model
        _BUILT_WITH[model] = sizes


def documented_shapes(model: Module, names: Iterable[str]) -> dict[str, Dimensions]:
    """The shapes that the docstrings of ``forward`` and of the class tell, by name.

    Sizes that they name are those that the model was built with, as far as these are known.
    """
    found: dict[str, Dimensions] = {}
    sizes = {name.lower(): size for name, size in _BUILT_WITH.get(model, {}).items()}
    for name in names:
        for text in _docstrings(model)[:2]:
            dimensions = _in_text(text, name, sizes)
            if dimensions is not None:
                found[name] = dimensions
                break
    return found


def image_side(model: Module) -> int | None:
    """The side of its images that a model is built for, by its own attribute or its docstrings."""
    for name in _SIDES:
        side = vars(model).get(name)
        side = side[0] if isinstance(side, (tuple, list)) and len(side) == 2 and side[0] == side[1] else side
        if isinstance(side, int) and not isinstance(side, bool) and 8 <= side <= 4096:
            return side
    for text in _docstrings(model):
        match = _SIDE.search(text)
        if match:
            return int(match[1])
    return None


def _docstrings(model: Module) -> list[str]:
    """Of ``forward``, of the class and of its file; only those that stand there themselves."""
    kind = type(model)
    texts = [getattr(model.forward, "__doc__", None), vars(kind).get("__doc__")]
    if not kind.__module__.startswith(("torch.", "transformers.", "timm.", "torchvision.")):
        texts.append(getattr(sys.modules.get(kind.__module__), "__doc__", None))
    return [inspect.cleandoc(text) if isinstance(text, str) else "" for text in texts]


def _in_text(text: str, name: str, sizes: Mapping[str, int]) -> Dimensions | None:
    entry = re.search(_ENTRY.format(name=re.escape(name)), text)
    if entry is None:
        return None
    rest = text[entry.end() :]
    end = _ANY_ENTRY.search(rest)
    for match in _GROUP.finditer(rest[: end.start()] if end else rest):
        dimensions = _dimensions(match[1] or match[2], sizes)
        if dimensions is not None:
            return dimensions
    return None


def _dimensions(text: str, sizes: Mapping[str, int]) -> Dimensions | None:
    """Sizes of a group such as ``B, 3, H, W``; None where a part is no size."""
    parts = [part.strip().lower() for part in text.rstrip(",").split(",")]
    found: list[Dimension] = []
    for position, part in enumerate(parts):
        if part.isdigit():
            found.append(int(part))
        elif part == "n":  # examples or nodes: who asks knows
            found.append("batch" if position == 0 else None)
        elif part in sizes:
            found.append(sizes[part])
        elif part in _WORDS:
            found.append(_WORDS[part])
        elif found[:1] == ["batch"] and part.isidentifier():
            found.append(None)
        else:
            return None
    # `(3)` is no shape, nor is `[0, 1]`, a range.
    return tuple(found) if any(isinstance(item, str) for item in found) or 2 in found[:1] else None
