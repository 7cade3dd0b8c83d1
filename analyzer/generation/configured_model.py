"""A generating model of known architecture: each kind of step is written once, whatever device asks."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from analyzer.devices.device import Device, DeviceKind
from analyzer.generation.architecture import (
    Architecture,
    Attention,
    Recurrence,
    StateSpace,
    Storage,
    cached_elements,
    mixers_of,
)
from analyzer.generation.memory import (
    Footprint,
    activation_bytes,
    cache_bytes,
    parameters,
    weight_bytes,
)
from analyzer.generation.request import (
    DEFAULT_PROMPT,
    NO_LONGEST,
    Request,
    Setting,
    StepSizes,
    StepTypes,
    float_precision,
)
from analyzer.generation.steps.decoder_graph import check_width, step_graph
from analyzer.generation.steps.step_times import Exchange, GenerationStep, prepared_step, step_groups
from analyzer.generation.steps.step_writer import TABLES
from analyzer.graph import Graph
from analyzer.options import Cache, Weights
from analyzer.ort.execution import Group

# Tokens of the prefill that a token's activations are told from.
_LOOKED_AT = 512
# Whisper's: start, language, task, no times (transformers/models/whisper/generation_whisper.py).
_TASK_TOKENS = 4


# No slots: cached_property writes into the instance's __dict__.
@dataclass(frozen=True, kw_only=True, eq=False)
class ConfiguredModel:
    """A decoder of known shape.

    ``storage`` is how most of its weights are stored that are no floats, None where all are. Times may be
    ``unsure`` times as long, or as short, for what is not understood of that.
    """

    architecture: Architecture
    own_weights: Weights
    storage: Storage | None = None
    unsure: float = 1.0
    _steps: dict[tuple[StepSizes, StepTypes, bool], GenerationStep] = field(default_factory=dict)
    _footprints: dict[tuple[StepTypes, int, int, int], Footprint] = field(default_factory=dict)
    _groups: dict[tuple[StepTypes, bool, bool, bool, int], tuple[Group, ...]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The folder's or file's."""
        return self.architecture.name

    @property
    def exporter(self) -> str:
        """Steps are written from a configuration."""
        return "config"

    @property
    def notes(self) -> tuple[str, ...]:
        """Parts of the configuration that are left out."""
        return self.architecture.notes

    @cached_property
    def parameters(self) -> int:
        """Elements of all weights."""
        return parameters(self.architecture)

    @cached_property
    def runs_as_stored(self) -> bool:
        """MatMulNBits and QMoE read integers in blocks of a power of two, with scales of floats."""
        # (onnxruntime/contrib_ops/cpu/quantization/matmul_nbits.cc)
        parts = (self.architecture.stored, *(layer.stored for layer in self.architecture.layers))
        return all(
            storage.bits in _INTEGERS
            and not storage.is_float
            and storage.block >= _LEAST_BLOCK
            and storage.block & (storage.block - 1) == 0
            and (storage.block_rows, storage.scale_bits) == (1, _HALF)
            for part in parts
            for _, storage in part
        )

    @property
    def positions(self) -> int | None:
        """Tokens that it was made for; None where nothing limits them."""
        return self.architecture.longest or None

    @property
    def longest(self) -> int:
        """Tokens that a sequence may have."""
        return self.architecture.longest or NO_LONGEST

    @cached_property
    def exchange(self) -> Exchange:
        """Sums of the hidden state and the gathered logits."""
        return Exchange(
            hidden=self.architecture.hidden,
            vocabulary=self.architecture.vocabulary,
            # For the embedding, and twice a layer: once where mixer and what follows are parallel, or where
            # nothing follows.
            sums=1
            + sum(
                1
                if layer.parallel or layer.mlp is None or isinstance(layer.mixer, StateSpace | Recurrence)
                else 2
                for layer in self.architecture.layers
            ),
        )

    def decoder_prompt(self, prompt: int) -> int:
        """Return tokens that the decoder is given: where an encoder reads the prompt, the one that begins."""
        encoder = self.architecture.encoder
        return 1 if encoder is not None and not encoder.positions else prompt

    @property
    def usual_prompt(self) -> int:
        """A page of text; of a sound, which is the source, the few tokens that say what to do with it."""
        encoder = self.architecture.encoder
        return _TASK_TOKENS if encoder is not None and encoder.positions else DEFAULT_PROMPT

    def source_of(self, prompt: int) -> int:
        """Return tokens or frames that an encoder reads beside a prompt of so many tokens; 0 without one."""
        encoder = self.architecture.encoder
        return 0 if encoder is None else encoder.positions or prompt

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Numbers of devices that can share it: powers of two up to a machine's, that divide its heads."""
        mixers = [mixer for layer in self.architecture.layers for mixer in mixers_of(layer)]
        return tuple(width for width in (1, 2, 4, 8) if all(mixer.heads % width == 0 for mixer in mixers))

    def check(self, width: int) -> None:
        """Refuse a width that does not divide the query heads."""
        check_width(self.architecture, width)

    def stored_in(self, weights: Weights | None, cache: Cache | None) -> tuple[Weights, Cache]:
        """Return the types asked for; else its own weights, and a cache of 16 bits."""
        return weights or self.own_weights, cache or ("bf16" if self.own_weights == "bf16" else "fp16")

    def floats_of(self, weights: Weights) -> str:
        """Of 32 or 16 bits as the weights are; 16 where they are packed."""
        return weights if weights in ("fp32", "bf16") else "fp16"

    def types_on(self, device: Device, setting: Setting) -> StepTypes | None:
        """Return the types in which a device runs a setting; None where ONNX Runtime has no way there.

        A CPU computes in 32 bits: weights of 16 bits become as wide, packed ones are unpacked on the way.
        """
        own = self.storage if setting.weights == self.own_weights else None
        if device.kind == "gpu":
            # Both types of 16 bits make the same steps, and one of each is enough for all devices.
            return StepTypes(
                weights="fp16" if setting.weights == "bf16" else setting.weights,
                cache="fp16" if setting.cache == "bf16" else setting.cache,
                floats="fp32" if setting.weights == "fp32" else "fp16",
                multiplies_narrow=setting.weights != "fp8" or "fp8" in device.peak_flops_per_s,
                own=own,
            )
        if setting.weights == "fp8":
            return None
        packed = setting.weights in ("int8", "int4")
        return StepTypes(
            weights=setting.weights if packed else "fp32",
            cache="fp32",
            floats="fp32",
            multiplies_narrow=False,
            own=own,
        )

    def precision_on(self, device: Device, setting: Setting) -> str:
        """Return the precision of the floats on a device, as predictions take it."""
        return float_precision(device, setting.weights)

    def step(self, sizes: StepSizes, types: StepTypes, kind: DeviceKind) -> GenerationStep:
        """Return a step, ready to be timed on any device of a kind."""
        key = (sizes, types, kind == "gpu")
        if key not in self._steps:
            made = step_graph(self.architecture, sizes, types)
            # What a session executes: steps of one phase have the same operators, whatever their sizes. On
            # several devices widths may have to be fitted to each other, by one operator more or fewer.
            width = sizes.width if self._fits_widths else 1
            alike = (types, sizes.tokens > 1, sizes.reads_source, kind == "gpu", width)
            if alike not in self._groups:
                self._groups[alike] = step_groups(made, cuda=kind == "gpu")
            self._steps[key] = prepared_step(made, sizes, cuda=kind == "gpu", groups=self._groups[alike])
        return self._steps[key]

    @cached_property
    def _fits_widths(self) -> bool:
        """Return whether some parts are known by their sizes alone."""
        model = self.architecture
        mixers = [mixer for layer in model.layers for mixer in mixers_of(layer)]
        return (
            bool(model.products or model.tables)
            or any(layer.products or layer.cross is not None for layer in model.layers)
            or any(
                isinstance(mixer, Recurrence)
                or (isinstance(mixer, StateSpace) and mixer.heads > 0)
                or (isinstance(mixer, Attention) and (mixer.gate > 0 or not mixer.has_keys))
                for mixer in mixers
            )
        )

    def whole_step(self, sizes: StepSizes, types: StepTypes) -> Graph:
        """Return a step with every layer written out."""
        return step_graph(self.architecture, sizes, types, every_layer=True).graph

    def footprint(self, request: Request, types: StepTypes, width: int, kind: DeviceKind) -> Footprint:
        """Return bytes on each device; activations grow with tokens, from two sizes of each phase."""
        source, architecture = request.source, self.architecture
        key = (types, width, source, request.prompt if source else 0)
        if key in self._footprints:
            return self._footprints[key]
        # What an encoder holds follows its source: of such a model the prefill that was asked for.
        tokens = request.prompt if source else _LOOKED_AT
        reading = StepSizes(
            batch=1, tokens=tokens, context=tokens, width=width, source=source, reads_source=source > 0
        )
        writing = StepSizes(batch=1, tokens=1, context=request.context, width=width, source=source)
        prefill, decode = (self.step(sizes, types, kind) for sizes in (reading, writing))
        cached = (types.cache_type.bits or 0) // 8
        crossed = [layer.cross for layer in architecture.layers if layer.cross is not None]
        of_source = sum(cached_elements(cross, source, width) * cached for cross in crossed)
        held = activation_bytes(prefill.graph.graph)
        self._footprints[key] = Footprint(
            # A prefill has the encoder's as well.
            weights=weight_bytes(prefill.graph),
            # Of rotations, which no checkpoint holds.
            tables=sum(
                tensor.nbytes or 0
                for tensor in decode.graph.graph.initializers
                if tensor.name.startswith(TABLES)
            ),
            prefill_row=0.0 if source else held / tokens,
            prefill_sequence=float(held) if source else 0.0,
            decode_row=activation_bytes(decode.graph.graph),
            cache=lambda length: cache_bytes(architecture, length, types, width) + of_source,
            width=width,
        )
        return self._footprints[key]

    @property
    def has_state_alone(self) -> bool:
        """Return whether nothing grows with the context."""
        return all(
            isinstance(mixer, StateSpace | Recurrence)
            for layer in self.architecture.layers
            for mixer in mixers_of(layer)
        )


_LEAST_BLOCK, _INTEGERS, _HALF = 16, (4, 8), 16
