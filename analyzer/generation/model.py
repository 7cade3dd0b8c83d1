"""A generating model as its steps are asked for: each kind of step is prepared once, whatever device asks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from analyzer.devices.device import Device
from analyzer.generation.architecture import Architecture, StateSpace
from analyzer.generation.decoder_graph import check_width
from analyzer.generation.memory import Footprint, cache_bytes, source_bytes, table_bytes, weight_bytes
from analyzer.generation.request import Request, Setting
from analyzer.generation.step_sizes import StepSizes, Types, Weights
from analyzer.generation.step_times import Step, prepared_step
from analyzer.memory.session_plan import SessionPlan
from analyzer.ort.fusion import predicted_groups

# The most tokens that sequences of a model without a longest one are looked at with.
NO_LONGEST = 2**20
Kind = Literal["cpu", "gpu"]


# No slots: cached_property writes into the instance's __dict__.
@dataclass(frozen=True, kw_only=True, eq=False)
class GeneratingModel:
    """A decoder of known shape.

    Attributes:
        architecture: Its shape.
        own_weights: The type in which its weights are kept.
    """

    architecture: Architecture
    own_weights: Weights
    _steps: dict[tuple[StepSizes, Types, bool], Step] = field(default_factory=dict)
    _footprints: dict[tuple[Types, int, int], Footprint] = field(default_factory=dict)

    @property
    def longest(self) -> int:
        """Tokens that a sequence may have."""
        return self.architecture.longest or NO_LONGEST

    def decoder_prompt(self, prompt: int) -> int:
        """Tokens that the decoder is given: where an encoder reads the prompt, the one that begins."""
        encoder = self.architecture.encoder
        return 1 if encoder is not None and not encoder.positions else prompt

    def source_of(self, prompt: int) -> int:
        """Tokens or frames that an encoder reads beside a prompt of so many tokens; 0 without one."""
        encoder = self.architecture.encoder
        return 0 if encoder is None else encoder.positions or prompt

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Numbers of devices that can share it: powers of two up to a machine's, that divide its heads."""
        return tuple(width for width in (1, 2, 4, 8) if self._divides(width))

    def _divides(self, width: int) -> bool:
        heads = [getattr(layer.mixer, "heads", None) for layer in self.architecture.layers]
        return all(count is None or count % width == 0 for count in heads)

    def check(self, width: int) -> None:
        """Refuses a width that does not divide the query heads.

        Raises:
            UsageError: It does not.
        """
        check_width(self.architecture, width)

    def step(self, sizes: StepSizes, types: Types, kind: Kind) -> Step:
        """A step, ready to be timed on any device of a kind."""
        key = (sizes, types, kind == "gpu")
        if key not in self._steps:
            self._steps[key] = prepared_step(self.architecture, sizes, types, cuda=kind == "gpu")
        return self._steps[key]

    def footprint(self, request: Request, types: Types, width: int, kind: Kind) -> Footprint:
        """What each device holds; activations grow with tokens, from two sizes of each phase."""
        key = (types, width, request.source)
        if key not in self._footprints:
            self._footprints[key] = self._measured(request, types, width, kind)
        return self._footprints[key]

    def _measured(self, request: Request, types: Types, width: int, kind: Kind) -> Footprint:
        tokens = 512
        source = request.source
        prefill = self.step(
            StepSizes(
                batch=1, tokens=tokens, context=tokens, width=width, source=source, reads_source=source > 0
            ),
            types,
            kind,
        )
        decode = self.step(
            StepSizes(batch=1, tokens=1, context=request.context, width=width, source=source),
            types,
            kind,
        )
        architecture = self.architecture
        of_source = source_bytes(architecture, source, types, width)

        def cache(length: int) -> int:
            return cache_bytes(architecture, length, types, width) + of_source

        return Footprint(
            # A prefill has the encoder's as well.
            weights=weight_bytes(prefill.graph),
            tables=table_bytes(decode.graph),
            prefill_row=activation_bytes(prefill) / tokens,
            decode_row=activation_bytes(decode),
            cache=cache,
            width=width,
        )

    @property
    def has_state_alone(self) -> bool:
        """Whether nothing grows with the context."""
        return all(isinstance(layer.mixer, StateSpace) for layer in self.architecture.layers)


def activation_bytes(step: Step) -> int:
    """Activations that a session holds at most, without its state: past and present are one buffer."""
    graph = step.graph.graph
    kept = set(graph.carried.values())
    nodes = tuple(
        replace(
            node,
            outputs=tuple(
                None if tensor is not None and tensor.name in kept else tensor for tensor in node.outputs
            ),
        )
        for node in graph.nodes
    )
    inputs = tuple(tensor for tensor in graph.inputs if tensor.name not in graph.carried)
    outputs = tuple(tensor for tensor in graph.outputs if tensor.name not in kept)
    alone = replace(graph, nodes=nodes, inputs=inputs, outputs=outputs, carried={})
    # On either device all operators run on it: the plan of a session with one provider.
    return SessionPlan.of(alone, predicted_groups(alone, "cpu")).peak_bytes("cpu") or 0


def types_on(device: Device, setting: Setting) -> Types | None:
    """The types in which a device runs a setting; None where ONNX Runtime has no way there.

    A CPU computes in 32 bits: weights of 16 bits become as wide, packed ones are unpacked on the way.
    """
    if device.kind == "gpu":
        return Types(
            weights=setting.weights,
            cache=setting.cache,
            floats="fp32" if setting.weights == "fp32" else "fp16",
            multiplies_narrow="fp8" in device.peak_flops_per_s,
        )
    if setting.weights == "fp8":
        return None
    packed = setting.weights in ("int8", "int4")
    return Types(weights=setting.weights if packed else "fp32", cache="fp32", floats="fp32")


def precision_on(device: Device, setting: Setting) -> str:
    """The precision of the floats on a device, as predictions take it."""
    if device.kind == "cpu":
        return "fp32"
    if setting.weights == "fp32":
        return "tf32" if "tf32" in device.peak_flops_per_s else "fp32"
    return "bf16" if setting.weights == "bf16" and "bf16" in device.peak_flops_per_s else "fp16"
