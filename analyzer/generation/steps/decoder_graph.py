"""An architecture -> the graph of one step: operators of ONNX Runtime as its model builder joins them.

Queries, keys and values come from one product where no norm stands between; attention, its rotation and the
cache are one operator; a residual sum and the norm behind it are one. Past and present are one buffer, which is
full: the new tokens are its last rows. Only the last token of each sequence reaches the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from analyzer.errors import UsageError
from analyzer.generation.architecture import (
    Architecture,
    Attention,
    Encoder,
    Experts,
    LatentAttention,
    Layer,
    Mixer,
    Mlp,
    Recurrence,
    Storage,
    mixers_of,
)
from analyzer.generation.request import StepSizes, StepTypes
from analyzer.generation.steps import mixers
from analyzer.generation.steps.step_writer import StepWriter, shape_of
from analyzer.graph import Graph, Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGraph:
    """A step's graph.

    ``copies`` says of each operator how many of the model's it stands for: 1 where all layers are written out.
    """

    graph: Graph
    copies: tuple[int, ...]


def step_graph(
    architecture: Architecture, sizes: StepSizes, types: StepTypes, *, every_layer: bool = False
) -> StepGraph:
    """One step of a decoder, or of one device's share of it.

    With ``every_layer`` layers that are alike are all written; else one stands for all of its kind.
    """
    check_width(architecture, sizes.width)
    writer = StepWriter(architecture, sizes, types)
    source = None
    if architecture.encoder is not None and sizes.reads_source:
        source = _encoded(writer, architecture.encoder, every_layer=every_layer)
    state = _embedded(writer, sizes.tokens)
    bias = _relative(writer, "model.decoder", architecture.layers, architecture.relative_buckets, sizes.context)
    pending: Tensor | None = None
    for index, copies in _kinds(architecture.layers, every_layer=every_layer):
        writer.copies = copies
        writer.enter_layer(architecture.layers[index])
        state, pending = _layer(
            writer, architecture.layers[index], f"model.layers.{index}", state, pending, bias, source
        )
    writer.copies = 1
    writer.enter_layer(None)
    writer.enter("model.norm", "Norm")
    if architecture.final_norm:
        state, _ = writer.summed_and_normed("model.norm", state, pending)
    elif pending is not None:
        state = writer.add(state, pending)
    _head(writer, state)
    graph, every = writer.graph()
    return StepGraph(graph=graph, copies=every)


def check_width(architecture: Architecture, width: int) -> None:
    """Refuse to split heads."""
    for mixer in (mixer for layer in architecture.layers for mixer in mixers_of(layer)):
        heads = mixer.heads
        if heads % width:
            possible = [str(size) for size in range(1, 9) if heads % size == 0]
            raise UsageError(
                f"--gpus {width}: the {heads} query heads of {architecture.name} cannot be split evenly.",
                hint=f"Take --gpus {', '.join(possible)}.",
            )


def _kinds(layers: Sequence[Layer], *, every_layer: bool) -> list[tuple[int, int]]:
    """Return the first layer of each kind, and how many are like it; the first of all is a kind of its own.

    It has no residual sum before it, so that its norm is another operator.
    """
    if every_layer:
        return [(index, 1) for index in range(len(layers))]
    result: dict[Layer, list[int]] = {}
    for index, layer in enumerate(layers[1:], 1):
        result.setdefault(layer, []).append(index)
    return [(0, 1), *((indices[0], len(indices)) for indices in result.values())]


# From ids to the first state, and from the last one to logits.


def _embedded(writer: StepWriter, tokens: int) -> Tensor:
    model, batch = writer.model, writer.sizes.batch
    writer.enter("model.embed_tokens", "Embedding")
    ids = writer.given("input_ids", (batch, tokens), "int64")
    width = model.embedding_size or model.hidden
    # Rows of the embedding, which devices share; they sum what they find.
    shape, vocabulary = (batch, tokens, width), writer.share(model.vocabulary)
    storage = writer.storage("model.embed_tokens") if writer.types.own else None
    if storage is None:
        rows = writer.weight("model.embed_tokens.weight", (vocabulary, width))
        state = writer.op("Gather", [rows, ids], shape)
    else:
        packed = (vocabulary, ceil(width * storage.bits / _BYTE))
        rows = writer.weight("model.embed_tokens.weight", packed, "uint8")
        scales = writer.scales("model.embed_tokens", storage, (), vocabulary, width)
        state = writer.microsoft(
            "GatherBlockQuantized", [rows, ids, *scales], shape, bits=ceil(storage.bits), gather_axis=0,
            quantize_axis=1, block_size=storage.block or width,
        )  # fmt: skip
    if model.embedding_size:
        writer.enter("model.project_in", "Linear")
        state = writer.linear("model.project_in", state, model.hidden)
    if model.position_table:
        writer.enter("model.embed_positions", "Embedding")
        rows = writer.weight("model.embed_positions.weight", (model.position_table, model.hidden))
        state = writer.add(state, writer.op("Gather", [rows, writer.places()], shape_of(state)))
    if model.embedding_norm:
        state = writer.normed("model.embed_norm", state)
    # Tables and linear layers that stand around the layers, of which only the sizes are known.
    writer.enter("model", "Model")
    for table in model.tables:
        rows = writer.weight(f"{table.name}.weight", (table.inner, table.outer))
        ids = writer.given("input_ids", (batch, tokens), "int64")
        read = writer.op("Gather", [rows, ids], (batch, tokens, table.outer))
        state = writer.add(state, writer.fitted(read, model.hidden))
    made = writer.further("", model.products, state)
    state = state if made is None else writer.add(state, writer.fitted(made, model.hidden))
    return writer.scaled_by("model.vectors", model.vectors, state)


def _head(writer: StepWriter, state: Tensor) -> None:
    model, sizes = writer.model, writer.sizes
    writer.enter("lm_head", "Linear")
    if sizes.tokens > 1:
        last = writer.literal("last", (), np.array(-1))
        state = writer.op("Gather", [state, last], (sizes.batch, model.hidden), axis=1)
    if model.embedding_size:
        state = writer.linear("lm_head.project_out", state, model.embedding_size)
    *rows, width = shape_of(state)
    columns = writer.share(model.vocabulary)
    if model.tied and writer.types.own is not None and writer.storage("model.embed_tokens") is not None:
        logits = writer.linear("model.embed_tokens", state, columns)
    elif model.tied:
        # The embedding itself, read the other way round: what is tied is held once.
        table = writer.weight("model.embed_tokens.weight", (columns, width))
        inputs = [state, table]
        logits = writer.microsoft("FusedMatMul", inputs, (*rows, columns), transA=0, transB=1, alpha=1.0)
    elif writer.types.own is not None:
        logits = writer.linear("lm_head", state, columns)
    else:
        logits = writer.op(
            "MatMul", [state, writer.weight("lm_head.weight", (width, columns))], (*rows, columns)
        )
    if model.head_bias:
        logits = writer.add(logits, writer.weight("lm_head.bias", (columns,)))
    if model.head_softcap:
        cap = writer.literal("ones_", (), None, writer.floats.name)
        for op_type, inputs in (("Mul", [cap]), ("Tanh", []), ("Mul", [cap])):
            logits = writer.op(op_type, [logits, *inputs], shape_of(logits))
    writer.output(writer.renamed(logits, "logits"), first=True)


# Layers.


def _layer(
    writer: StepWriter,
    layer: Layer,
    path: str,
    state: Tensor,
    pending: Tensor | None,
    bias: Tensor | None,
    source: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """Add a layer whose last sum is left pending: it is the next norm's operator."""
    writer.enter(f"{path}.input_layernorm", "Norm")
    normed, state = writer.summed_and_normed(f"{path}.input_layernorm", state, pending)
    mixed = _mixed(writer, layer.mixer, path, normed, bias)
    if layer.parallel_mixer is not None:
        mixed = writer.add(mixed, _mixed(writer, layer.parallel_mixer, path, normed, bias))
    writer.enter(path, "Layer")
    made = writer.further(f"{path}.", layer.products, normed)
    mixed = mixed if made is None else writer.add(mixed, writer.fitted(made, writer.model.hidden))
    mixed = writer.scaled_by(f"{path}.vectors", layer.vectors, mixed)
    if layer.mlp is None:
        return state, mixed
    if layer.parallel:
        mlp_input = normed
        if layer.norms > 1:
            writer.enter(f"{path}.post_attention_layernorm", "Norm")
            mlp_input = writer.normed(f"{path}.post_attention_layernorm", state)
        return state, writer.add(mixed, _fed(writer, layer.mlp, f"{path}.mlp", mlp_input))
    around = layer.norms > _AROUND
    if around:
        writer.enter(f"{path}.post_attention_layernorm", "Norm")
        mixed = writer.normed(f"{path}.post_attention_layernorm", mixed)
    if layer.cross is not None:
        writer.enter(f"{path}.cross_attn_layernorm", "Norm")
        normed, state = writer.summed_and_normed(f"{path}.cross_attn_layernorm", state, mixed)
        writer.enter(f"{path}.encoder_attn", "CrossAttention")
        mixed = mixers.crossed(writer, layer.cross, f"{path}.encoder_attn", normed, source)
    writer.enter(f"{path}.pre_feedforward_layernorm", "Norm")
    normed, state = writer.summed_and_normed(f"{path}.pre_feedforward_layernorm", state, mixed)
    fed = _fed(writer, layer.mlp, f"{path}.mlp", normed)
    if around:
        writer.enter(f"{path}.post_feedforward_layernorm", "Norm")
        fed = writer.normed(f"{path}.post_feedforward_layernorm", fed)
    return state, fed


# Norms of a layer beyond which they stand around both of its parts.
_AROUND = 3


def _mixed(writer: StepWriter, mixer: Mixer, path: str, normed: Tensor, bias: Tensor | None) -> Tensor:
    if isinstance(mixer, Attention):
        writer.enter(f"{path}.self_attn", "Attention")
        return mixers.attended(writer, mixer, f"{path}.self_attn", normed, bias)
    if isinstance(mixer, LatentAttention):
        writer.enter(f"{path}.self_attn", "Attention")
        return mixers.latent_attended(writer, mixer, f"{path}.self_attn", normed)
    if isinstance(mixer, Recurrence):
        writer.enter(path, "LinearAttention")
        return mixers.recurred(writer, mixer, path, normed)
    writer.enter(f"{path}.mixer", "StateSpace")
    return mixers.selected(writer, mixer, f"{path}.mixer", normed)


def _fed(writer: StepWriter, mlp: Mlp | Experts, path: str, state: Tensor) -> Tensor:
    writer.enter(path, "Mlp")
    return _through(writer, mlp, path, state) if isinstance(mlp, Mlp) else _routed(writer, mlp, path, state)


def _through(writer: StepWriter, mlp: Mlp, path: str, state: Tensor) -> Tensor:
    inner = writer.share(mlp.inner)
    first = writer.linear(f"{path}.gate_proj" if mlp.gated else f"{path}.up_proj", state, inner, bias=mlp.bias)
    middle = writer.activated(mlp.activation, first)
    if mlp.gated:
        up = writer.linear(f"{path}.up_proj", state, inner, bias=mlp.bias)
        middle = writer.op("Mul", [middle, up], shape_of(up))
    return writer.linear(f"{path}.down_proj", middle, shape_of(state)[-1], bias=mlp.bias)


def _routed(writer: StepWriter, experts: Experts, path: str, state: Tensor) -> Tensor:
    batch, tokens, hidden = shape_of(state)
    flat = writer.reshape(state, batch * tokens, hidden)
    router = writer.weight(f"{path}.gate.weight", (hidden, experts.count))
    scores = writer.op("MatMul", [flat, router], (batch * tokens, experts.count))
    if experts.router_bias:
        scores = writer.add(scores, writer.weight(f"{path}.gate.bias", (experts.count,)))
    writer.enter(path, "Experts")
    mixed = writer.reshape(_mixture(writer, experts, f"{path}.experts", flat, scores), batch, tokens, hidden)
    if experts.shared is None:
        return mixed
    shared = _through(writer, experts.shared, f"{path}.shared_expert", state)
    if experts.shared_gate:
        gate = writer.weight(f"{path}.shared_expert_gate.weight", (hidden, 1))
        opened = writer.op("MatMul", [state, gate], (batch, tokens, 1))
        shared = writer.op(
            "Mul", [shared, writer.op("Sigmoid", [opened], (batch, tokens, 1))], shape_of(shared)
        )
    return writer.add(mixed, shared)


def _mixture(writer: StepWriter, experts: Experts, name: str, flat: Tensor, scores: Tensor) -> Tensor:
    """Return the experts' products, in one operator."""
    rows, hidden = shape_of(flat)
    count, inner = experts.count, writer.share(experts.expert.inner)
    first = inner * (2 if experts.expert.gated else 1)
    attributes: dict[str, Any] = {
        "k": experts.chosen,
        "normalize_routing_weights": 1,
        "activation_type": "swiglu" if experts.expert.gated else "gelu",
    }
    if experts.expert.gated:
        # Columns of gate and value take turns: all that the CPU's kernel can read
        # (onnxruntime/contrib_ops/cpu/moe/moe_cpu.cc).
        attributes["swiglu_fusion"] = 1
    up, down, gate = (writer.storage(f"{name}.{role}_proj") for role in ("up", "down", "gate"))
    parts = [("fc1", up, first, hidden), ("fc2", down, hidden, inner)]
    if experts.expert.gated and gate != up:
        # Gates that are stored in another way are a weight of their own.
        attributes.pop("swiglu_fusion")
        parts = [("fc1", gate, inner, hidden), parts[1], ("fc3", up, inner, hidden)]
    biases = [
        writer.weight(f"{name}.{part}.bias", (count, outer)) if experts.expert.bias else None
        for part, _, outer, _ in parts
    ]
    if all(storage is None or writer.is_narrow(storage) for _, storage, _, _ in parts):
        # [experts, in, out] (onnxruntime/core/graph/contrib_ops/contrib_defs.cc); 8-bit floats too.
        inputs: list[Tensor | None] = [flat, scores]
        for (part, storage, outer, depth), bias in zip(parts, biases, strict=True):
            storage_type = "float8e4m3fn" if storage else ""
            inputs += [writer.weight(f"{name}.{part}.weight", (count, depth, outer), storage_type), bias]
        if up is not None and up.block:
            attributes["block_size"] = up.block
        return writer.microsoft("MoE", inputs, (rows, hidden), **attributes)
    packed: list[Tensor | None] = []
    zeros: list[Tensor | None] = []
    # One width for all, as the operator has it: what stays as floats is 16 bits wide.
    whole = [storage or Storage(bits=_FLOAT_BITS, block=0, scale_bits=8) for _, storage, _, _ in parts]
    for (part, _, outer, depth), storage, bias in zip(parts, whole, biases, strict=True):
        stored = writer.weight(
            f"{name}.{part}.weight", (count, outer, ceil(depth * storage.bits / _BYTE)), "uint8"
        )
        scales = writer.scales(f"{name}.{part}", storage, (count,), outer, depth)
        packed += [stored, scales[0], bias]
        zeros.append(scales[1] if len(scales) > 1 else None)
    if any(zeros):
        packed += [*[None] * (_ZEROS_AT - len(packed)), *zeros]
    return writer.microsoft(
        "QMoE", [flat, scores, *packed], (rows, hidden), expert_weight_bits=ceil(whole[0].bits),
        block_size=whole[0].block or hidden, **attributes,
    )  # fmt: skip


_FLOAT_BITS = 16
_BYTE = 8
# Inputs of QMoE between the scores and the zero points: weights, scales and biases of three products.
_ZEROS_AT = 9


# The encoder.


def _encoded(writer: StepWriter, encoder: Encoder, *, every_layer: bool) -> Tensor:
    """Return the source's states."""
    model, sizes = writer.model, writer.sizes
    writer.enter("model.encoder", "Encoder")
    if encoder.stem_channels:
        state = _stem(writer, encoder)
    else:
        ids = writer.given("encoder_input_ids", (sizes.batch, sizes.source), "int64")
        table = writer.weight("model.embed_tokens.weight", (writer.share(model.vocabulary), model.hidden))
        state = writer.op("Gather", [table, ids], (sizes.batch, sizes.source, model.hidden))
    if encoder.position_table:
        rows = writer.weight("model.encoder.embed_positions.weight", (encoder.position_table, model.hidden))
        state = writer.op("Add", [state, rows], shape_of(state))
    bias = _relative(writer, "model.encoder", encoder.layers, encoder.relative_buckets, sizes.source)
    pending: Tensor | None = None
    for index, copies in _kinds(encoder.layers, every_layer=every_layer):
        writer.copies = copies
        layer, path = encoder.layers[index], f"model.encoder.{index}"
        writer.enter_layer(layer)
        writer.enter(path, "Encoder")
        normed, state = writer.summed_and_normed(f"{path}.input_layernorm", state, pending)
        assert isinstance(layer.mixer, Attention)
        mixed = mixers.seen(writer, layer.mixer, f"{path}.self_attn", normed, bias)
        mixed = writer.scaled_by(f"{path}.vectors", layer.vectors, mixed)
        normed, state = writer.summed_and_normed(f"{path}.final_layer_norm", state, mixed)
        assert isinstance(layer.mlp, Mlp)
        pending = _through(writer, layer.mlp, f"{path}.mlp", normed)
    writer.copies = 1
    writer.enter_layer(None)
    writer.enter("model.encoder.norm", "Norm")
    return writer.summed_and_normed("model.encoder.norm", state, pending)[0]


def _stem(writer: StepWriter, encoder: Encoder) -> Tensor:
    """Whisper's two convolutions of three taps; the second takes every other column."""
    hidden, batch, length = writer.model.hidden, writer.sizes.batch, writer.sizes.source
    channels = encoder.stem_channels
    state = writer.given("input_features", (batch, channels, 2 * length), writer.floats.name)
    for name, inner, stride in (("conv1", channels, 1), ("conv2", hidden, 2)):
        weights = [
            writer.weight(f"model.encoder.{name}.weight", (hidden, inner, 3)),
            writer.weight(f"model.encoder.{name}.bias", (hidden,)),
        ]
        shape = (batch, hidden, 2 * length // stride)
        state = writer.op(
            "Conv", [state, *weights], shape, kernel_shape=(3,), pads=(1, 1), strides=(stride,), group=1
        )
        state = writer.activated("Gelu", state)
    return writer.op("Transpose", [state], (batch, length, hidden), perm=(0, 2, 1))


def _relative(writer: StepWriter, path: str, layers: Sequence[Layer], buckets: int, keys: int) -> Tensor | None:
    """Return the bias that relative positions add to all scores, one for all layers; None without."""
    if not buckets:
        return None
    writer.enter(f"{path}.relative_attention_bias", "Embedding")
    first = layers[0].mixer
    assert isinstance(first, Attention)
    heads = writer.share(first.heads)
    queries = keys if path.endswith("encoder") else writer.sizes.tokens
    table = writer.weight(f"{path}.relative_attention_bias.weight", (buckets, heads))
    which = writer.given(f"{path}.buckets", (queries, keys), "int64")
    result = writer.op("Gather", [table, which], (queries, keys, heads))
    turned = writer.op("Transpose", [result], (heads, queries, keys), perm=(2, 0, 1))
    return writer.reshape(turned, 1, heads, queries, keys)
