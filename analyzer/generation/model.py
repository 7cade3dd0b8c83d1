"""What a generating model is asked, whatever it was made from; and the types in which devices run it."""

from __future__ import annotations

from typing import Protocol

from analyzer.devices.device import Device, DeviceKind
from analyzer.generation.memory import Footprint
from analyzer.generation.request import Request, Setting, StepSizes, StepTypes
from analyzer.generation.steps.step_times import Exchange, GenerationStep
from analyzer.graph import Graph
from analyzer.options import Cache, Weights

# The most tokens that sequences of a model without a longest one are looked at with.
NO_LONGEST = 2**20


class GeneratingModel(Protocol):
    """A decoder whose steps can be had at any sizes: of a known architecture, or a graph."""

    @property
    def name(self) -> str:
        """What errors call it."""

    @property
    def exporter(self) -> str:
        """Where its steps come from, as the record says it."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What it leaves out or rests on, in sentences for people."""

    @property
    def parameters(self) -> int:
        """Elements of all weights, a tied head once."""

    @property
    def own_weights(self) -> Weights:
        """The type in which its weights are kept."""

    @property
    def unsure(self) -> float:
        """Factor by which times may be off besides, for what is not understood of the model; 1 for none."""

    @property
    def runs_as_stored(self) -> bool:
        """Whether ONNX Runtime has operators for its weights as they are stored."""

    @property
    def positions(self) -> int | None:
        """Tokens that it was made for; None where nothing limits them."""

    @property
    def longest(self) -> int:
        """Tokens that a sequence may have."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Numbers of devices that can share it."""

    @property
    def exchange(self) -> Exchange | None:
        """What devices that share it sum and gather; None where one alone runs it."""

    @property
    def has_state_alone(self) -> bool:
        """Whether nothing grows with the context."""

    def decoder_prompt(self, prompt: int) -> int:
        """Tokens that the decoder is given of a prompt."""

    @property
    def usual_prompt(self) -> int:
        """Tokens of a prompt where nobody says how many."""

    def source_of(self, prompt: int) -> int:
        """Tokens or frames that an encoder reads beside a prompt of so many tokens; 0 without one."""

    def check(self, width: int) -> None:
        """Refuses a number of devices that cannot share it.

        Raises:
            UsageError: They cannot.
        """

    def kept_in(self, weights: Weights | None, cache: Cache | None) -> tuple[Weights, Cache]:
        """The types asked for, or its own.

        Raises:
            UsageError: It cannot be had in them.
        """

    def floats_of(self, weights: Weights) -> str:
        """The precision of its floats beside weights of a type, as the record says it."""

    def types_on(self, device: Device, setting: Setting) -> StepTypes | None:
        """The types in which a device runs a setting; None where it cannot."""

    def precision_on(self, device: Device, setting: Setting) -> str:
        """The precision of the floats on a device, as predictions take it."""

    def step(self, sizes: StepSizes, types: StepTypes, kind: DeviceKind) -> GenerationStep:
        """A step, ready to be timed on any device of a kind."""

    def whole_step(self, sizes: StepSizes, types: StepTypes) -> Graph:
        """A step with all of its layers, on one device."""

    def footprint(self, request: Request, types: StepTypes, width: int, kind: DeviceKind) -> Footprint:
        """What each device holds."""


def float_precision(device: Device, floats: Weights) -> str:
    """Return the precision in which a device computes with these floats; a CPU widens them."""
    if device.kind == "cpu":
        return "fp32"
    if floats == "fp32":
        return "tf32" if "tf32" in device.peak_flops_per_s else "fp32"
    return "bf16" if floats == "bf16" and "bf16" in device.peak_flops_per_s else "fp16"
