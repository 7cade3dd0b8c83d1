"""Memory of a generating model: weights by type, caches by context, activations of the larger phase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, floor

from analyzer.devices.device import Device
from analyzer.generation.architecture import (
    Architecture,
    Encoder,
    Experts,
    Layer,
    Product,
    Recurrence,
    StateSpace,
    cached_elements,
    mixers_of,
    products,
)
from analyzer.generation.request import Request, StepSizes, StepTypes
from analyzer.generation.steps.decoder_graph import StepGraph, step_graph
from analyzer.generation.steps.step_writer import LITERALS, TABLES
from analyzer.graph import Graph, Tensor
from analyzer.memory.fit import largest_between, room
from analyzer.memory.session_plan import SessionPlan
from analyzer.ort.fusion import predicted_groups

_FLOAT_BYTES = 4
_NO_WEIGHTS = (*TABLES, *LITERALS)


def cache_bytes(architecture: Architecture, tokens: int, types: StepTypes, width: int = 1) -> int:
    """Bytes that one sequence of so many tokens keeps, on all devices together; an encoder's states apart."""
    cached, floats = (types.cache_type.bits or 0) // 8, (types.float_type.bits or 0) // 8
    total = 0
    for mixer in (mixer for layer in architecture.layers for mixer in mixers_of(layer)):
        elements = cached_elements(mixer, tokens, width)
        if isinstance(mixer, StateSpace | Recurrence):
            # The state is summed up over all tokens, in 32 bits; the convolution's columns are floats.
            total += mixer.summed * _FLOAT_BYTES + (elements - mixer.summed) * floats
        else:
            total += elements * cached
    return total


def weight_bytes(step: StepGraph) -> int:
    """Return bytes of all weights of the device's share, layers that are alike counted each."""
    copies: dict[str, int] = {}
    for node, count in zip(step.graph.nodes, step.copies, strict=True):
        for tensor in node.present_inputs:
            if tensor.initializer:
                copies.setdefault(tensor.name, count)
    return sum(
        (tensor.nbytes or 0) * copies.get(tensor.name, 1)
        for tensor in step.graph.initializers
        if not tensor.name.startswith(_NO_WEIGHTS)
    )


def parameters(architecture: Architecture) -> int:
    """Return the elements of all weights, a tied head once: of what a step that reads a prompt is written with.

    What a checkpoint holds beside its parameters counts as well: the correction of DeepSeek V3's router is a
    buffer.
    """
    encoder = architecture.encoder
    source = 0 if encoder is None else encoder.positions or _TOKENS
    return weight_bytes(_read(architecture, source)) // _HALF_BYTES


@lru_cache(maxsize=256)  # most layers of a model are alike
def layer_parameters(layer: Layer, architecture: Architecture) -> int:
    """Return the elements of the weights of one layer, of the decoder or of the encoder."""
    crosses = layer.cross is not None
    # Keys and values of an encoder's states are made where the source is read.
    encoder = Encoder(layers=(replace(layer, cross=None),)) if crosses else None
    alone = replace(architecture, layers=(layer,), encoder=encoder, relative_buckets=0)
    stored = _read(alone, _TOKENS if crosses else 0).graph.initializers
    return sum(tensor.elements or 0 for tensor in stored if tensor.name.startswith("model.layers.0."))


# As many tokens as tell a prompt from a further one.
_TOKENS = 2
_HALF_BYTES = 2


def _read(architecture: Architecture, source: int) -> StepGraph:
    """Return the step that reads a prompt, all weights as halves."""
    sizes = StepSizes(batch=1, tokens=_TOKENS, context=_TOKENS, source=source, reads_source=source > 0)
    return step_graph(architecture, sizes, StepTypes())


def known_by_size(architecture: Architecture) -> float:
    """Return the share of a token's weights that stand in parts of which only the sizes are known."""

    def elements(parts: Iterable[Product]) -> int:
        return sum(part.inner * part.outer + part.outer * part.bias for part in parts)

    alone = read = elements(architecture.products) + architecture.vectors
    width = replace(architecture, layers=(), encoder=None)
    for layer, number in Counter(architecture.layers).items():
        recurrent = (mixer for mixer in mixers_of(layer) if isinstance(mixer, Recurrence))
        by_size = (*layer.products, *(product for mixer in recurrent for product in mixer.products))
        alone += number * (layer.vectors + elements(by_size))
        mlp, unread = layer.mlp, 0
        if isinstance(mlp, Experts):
            experts = sum(size for name, size in products(layer, width) if name.startswith("mlp.experts."))
            unread = experts // mlp.count * (mlp.count - mlp.chosen)
        read += number * (layer_parameters(layer, width) - unread)
    return alone / max(1, read)


def activation_bytes(graph: Graph) -> int:
    """Return activations that a session holds at most, without its state, past and present."""
    carried = {*graph.carried, *graph.carried.values()}

    def others(tensors: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
        return tuple(None if tensor is None or tensor.name in carried else tensor for tensor in tensors)

    alone = replace(
        graph,
        nodes=tuple(
            replace(node, inputs=others(node.inputs), outputs=others(node.outputs)) for node in graph.nodes
        ),
        inputs=tuple(tensor for tensor in graph.inputs if tensor.name not in carried),
        outputs=tuple(tensor for tensor in graph.outputs if tensor.name not in carried),
        carried={},
    )
    # On either device all operators run on it: the plan of a session with one provider.
    return SessionPlan.of(alone, predicted_groups(graph, "cpu")).peak_bytes("cpu") or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Bytes on each of ``width`` equal devices.

    Attributes:
        weights: Bytes of one device's weights.
        tables: Of its tables of positions.
        prefill_row, decode_row: Activations for a token of a prefill, and for a sequence of a decode step.
        prefill_sequence: Activations for a sequence of a prefill besides, where an encoder reads its source.
        cache: Bytes of all devices for a sequence of so many tokens, source included.
        width: Devices.
        grows: Whether a step writes its cache anew, one token longer, so that it holds past and present.
    """

    weights: int
    tables: int
    prefill_row: float
    decode_row: float
    cache: Callable[[int], int]
    width: int
    grows: bool = False
    prefill_sequence: float = 0.0

    def activations(self, request: Request) -> int:
        """Of one device, in the larger phase; a cache's present beside its past among them."""
        rows = max(request.prompt * self.prefill_row + self.prefill_sequence, self.decode_row)
        extra = self._share(request) if self.grows else 0
        return self.tables + ceil(request.batch * rows) + extra

    def _share(self, request: Request) -> int:
        """One device's part of all caches."""
        return ceil(request.batch * self.cache(request.context) / self.width)

    def device_bytes(self, request: Request) -> int:
        """Return bytes on one device at the end of a request whose prompts are read all at once."""
        return self.weights + self._share(request) + self.activations(request)

    def fits(self, request: Request, device: Device) -> bool:
        """Return whether a device holds its share; so it is where its memory is not known."""
        available = room(device)
        return available is None or self.device_bytes(request) <= available

    def largest_batch(self, request: Request, device: Device) -> int:
        """Return the largest batch of such requests that fits; 0 where none does."""

        def held(batch: int) -> bool:
            return self.fits(replace(request, batch=batch), device)

        return largest_between(held, 0, _MOST_SEQUENCES) if held(1) else 0

    def longest_context(self, request: Request, device: Device, most: int) -> int:
        """Return the longest sequences of this batch that fit, up to ``most`` tokens; 0 where none do."""

        def held(context: int) -> bool:
            # A prompt is what fills a context; the output's share stays as it is.
            prompt = max(1, context - request.output)
            return self.fits(replace(request, prompt=prompt, output=context - prompt), device)

        if not held(1):
            return 0
        return most if held(most) else largest_between(held, 1, most)


def sequences_held(
    footprint: Footprint, longest: Request, mean_context: int, device: Device, most: int
) -> tuple[int, int] | None:
    """Return how many sequences run at once under continuous batching, and the tokens that all of them hold.

    One prompt is read at a time, and the longest request has room beside the activations of all; None where it
    does not fit alone. ``footprint`` is that of each ``device``, ``mean_context`` the tokens of a sequence of
    usual length, ``most`` the sequences at once that nobody goes beyond.
    """
    if not footprint.fits(longest, device):
        return None
    available = room(device)
    unlimited = most * longest.context
    each = footprint.cache(mean_context) / mean_context
    if available is None or each <= 0:
        return most, unlimited
    # What a step writes anew is held beside what it reads: the cache's share below has both.
    share = 2 if footprint.grows else 1
    caches = footprint.cache(longest.context) if footprint.grows else 0
    left = available - footprint.weights - footprint.activations(longest) + ceil(caches / footprint.width)

    def tokens(sequences: int) -> int:
        steps = ceil((sequences - 1) * footprint.decode_row)
        # Less than a millionth of a token is the rounding of bytes to a whole number on each device.
        return max(0, floor((left - steps) * footprint.width / (share * each) + 1e-6))

    def held(sequences: int) -> bool:
        return tokens(sequences) >= max(sequences * mean_context, longest.context)

    if not held(1):
        # A long sequence may keep less for each token than one of usual length.
        return 1, longest.context
    number = most if held(most) else largest_between(held, 1, most)
    return number, min(tokens(number), unlimited)


_MOST_SEQUENCES = 65536
