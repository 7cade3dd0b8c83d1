"""What a step is given where it is run: ids, places, an open mask, a full cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from analyzer.generation.steps.mixers import SEQLENS
from analyzer.generation.steps.step_sizes import StepSizes
from analyzer.graph import Graph
from analyzer.loading.drawn_inputs import random_feeds

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


def step_inputs(graph: Graph, sizes: StepSizes) -> dict[str, Array]:
    """Inputs by name.

    Args:
        graph: Of a step.
        sizes: Its sizes.

    Raises:
        InputError: No values can be made for an input.
    """
    import numpy as np

    feeds = random_feeds(graph)
    places = np.arange(sizes.context - sizes.tokens, sizes.context)
    for name, array in feeds.items():
        shape, kind = array.shape, array.dtype
        if name.startswith(SEQLENS):
            length = name.removeprefix(SEQLENS).strip("_") or str(sizes.context)
            feeds[name] = np.full(shape, int(length) - 1, kind)
        elif "mask" in name.lower():
            feeds[name] = np.ones(shape, kind)
        elif "position" in name.lower() and shape:
            feeds[name] = np.broadcast_to(places, shape).astype(kind)
        elif name.startswith("total_sequence"):
            feeds[name] = np.full(shape, sizes.context, kind)
    return feeds


def in_place(graph: Graph) -> Mapping[str, str]:
    """Caches whose next value is written into their own memory: those that do not grow."""
    inputs = {tensor.name: tensor.shape for tensor in graph.inputs}
    outputs = {tensor.name: tensor.shape for tensor in graph.outputs}
    return {
        past: present
        for past, present in graph.carried.items()
        if past != present and inputs.get(past) == outputs.get(present)
    }


def token_inputs(graph: Graph) -> tuple[str, ...]:
    """What the host gives anew in each step: ids and places of tokens, lengths; neither state nor floats."""
    return tuple(
        tensor.name for tensor in graph.inputs if tensor.name not in graph.carried and not tensor.dtype.is_float
    )
