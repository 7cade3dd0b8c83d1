"""What the inputs and outputs of a training step are, written into its ONNX model and read back from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx

# In the model's own properties, so that it lives as long as the model: in the cache of exports too.
STEP_KEY = "analyzer.step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What the inputs and outputs of a step are.

    Attributes:
        carried: By input that lives from step to step, the output that is its next value; a frozen parameter
            is its own.
        weights: Inputs that are parameters or buffers.
        states: Inputs that are the optimizer's.
        gradients: By trained parameter, its gradient's tensor.
        fed: What each step is given anew, inputs then targets.
        random: Whether the step draws random numbers.
        optimizer: Its name.
    """

    carried: Mapping[str, str]
    weights: tuple[str, ...]
    states: tuple[str, ...]
    gradients: Mapping[str, str]
    fed: tuple[str, ...]
    random: bool
    optimizer: str
    options: Mapping[str, Any] = field(default_factory=dict)


def step_of(proto: onnx.ModelProto) -> Step | None:
    """What a model of a training step says of itself; None for any other model.

    Raises:
        ValueError: It says what is no step, as a forged entry of the cache may.
    """
    import msgspec

    text = next((entry.value for entry in proto.metadata_props if entry.key == STEP_KEY), None)
    if text is None:
        return None
    try:
        return msgspec.convert(json.loads(text), Step)
    except RecursionError as error:
        raise ValueError("the step is nested too deeply") from error
