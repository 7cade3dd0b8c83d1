"""What mixes positions: attention on a cache or on an encoder's states, and state spaces, as operators."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np

from analyzer.generation.architecture import Attention, StateSpace
from analyzer.generation.steps.step_writer import OWN_DOMAIN, StepWriter, shape_of
from analyzer.graph import DTYPES, Tensor

# The input that says where each sequence ends; of a shorter buffer its length is in the name.
SEQLENS = "seqlens_k"
_SOFTCAP = 50.0  # Gemma 2's; its value changes no count


def attended(writer: StepWriter, attention: Attention, path: str, state: Tensor, bias: Tensor | None) -> Tensor:
    """Attention of new tokens on all before them, projections and cache included.

    Args:
        writer: Takes the operators.
        attention: Its shape.
        path: Its module.
        state: What it reads.
        bias: Added to the scores of all pairs (T5's relative positions); None without.
    """
    size, heads = attention.size, attention.heads // writer.sizes.width
    kept = key_heads(attention, writer.sizes.width)
    given = _projected(writer, attention, path, state, (heads * size, kept * size, kept * size))
    sizes = writer.sizes
    # Between steps a layer with a window keeps no more than that; a prompt is seen in full.
    windowed = attention.window and sizes.tokens == 1
    length = min(sizes.context, attention.window) if windowed else sizes.context
    shape = (sizes.batch, kept, length, size)
    keys, values = (writer.state(path, name, shape, writer.types.cache_type) for name in ("key", "value"))
    # The last key's place in the buffer, which a window makes shorter.
    name = SEQLENS if length == sizes.context else f"{SEQLENS}_{length}"
    lengths = writer.given(name, (sizes.batch,), "int32")
    total = writer.literal(f"total_{length}", (), np.array(length, np.int32), "int32")
    tables: list[Tensor | None] = list(writer.tables(attention.rotary)) if attention.rotary else [None, None]
    sinks = writer.weight(f"{path}.sinks", (heads,)) if attention.sinks else None
    inputs = [*given, keys[0], values[0], lengths, total, *tables, None, bias, sinks]
    while inputs[-1] is None:
        inputs.pop()
    result = writer.microsoft(
        "GroupQueryAttention", inputs, writer.rows(heads * size), more=[keys[1], values[1]],
        **_attributes(attention, heads, kept),
    )  # fmt: skip
    return writer.linear(f"{path}.o_proj", result, writer.model.hidden, bias=attention.output_bias)


def _attributes(attention: Attention, heads: int, kept: int) -> dict[str, Any]:
    found: dict[str, Any] = {"num_heads": heads, "kv_num_heads": kept}
    if attention.rotary:
        found["do_rotary"] = 1
    if attention.window:
        found["local_window_size"] = attention.window
    if attention.softcap:
        found["softcap"] = _SOFTCAP
    return found


def key_heads(attention: Attention, width: int) -> int:
    """Heads of keys and values on each device: fewer than devices are there on several."""
    return max(1, ceil(attention.key_heads / width))


def _projected(
    writer: StepWriter, attention: Attention, path: str, state: Tensor, widths: tuple[int, int, int]
) -> list[Tensor | None]:
    """Write queries, keys and values: one product, unless norms stand between or biases or storage differ."""
    biases = (attention.query_bias, attention.key_bias, attention.value_bias)
    norms = attention.head_norms or attention.separate_norms or attention.wide_norms
    alike = {writer.storage(f"{path}.{name}_proj") for name in "qkv"}
    if not norms and len(set(biases)) == len(alike) == 1:
        name, like = f"{path}.qkv_proj", f"{path}.q_proj"
        return [writer.linear(name, state, sum(widths), bias=biases[0], like=like), None, None]
    parts = []
    for name, width, bias in zip("qkv", widths, biases, strict=True):
        part = writer.linear(f"{path}.{name}_proj", state, width, bias=bias)
        normed = norms and name != "v"
        parts.append(_normed(writer, attention, f"{path}.{name}_norm", part) if normed else part)
    return [*parts]


def _normed(writer: StepWriter, attention: Attention, name: str, part: Tensor) -> Tensor:
    """Queries or keys normed, head by head or over all heads at once."""
    if attention.wide_norms:
        return writer.normed(name, part)
    batch, tokens, width = shape_of(part)
    heads = width // attention.size
    split = writer.reshape(part, batch, tokens, heads, attention.size)
    if attention.separate_norms:
        # Without weights first, then each head's own.
        ones = writer.literal(f"ones_{attention.size}", (attention.size,), None, writer.floats.name)
        op_type = "SimplifiedLayerNormalization" if writer.model.norm == "rms" else "LayerNormalization"
        plain = writer.op(op_type, [split, ones], shape_of(split), axis=-1)
        own = writer.weight(f"{name}.weight", (heads, attention.size))
        normed = writer.op("Mul", [plain, own], shape_of(split))
    else:
        normed = writer.normed(name, split)
    return writer.reshape(normed, batch, tokens, width)


def seen(writer: StepWriter, attention: Attention, path: str, state: Tensor, bias: Tensor | None) -> Tensor:
    """Attention of an encoder: every token on all of them, nothing is kept."""
    batch, length, hidden = shape_of(state)
    heads, size = attention.heads // writer.sizes.width, attention.size
    width = heads * size
    given = _projected(writer, attention, path, state, (width, width, width))
    whole = given[0]
    assert whole is not None
    if given[1] is None:
        given = [writer.columns(whole, at * width, (at + 1) * width) for at in range(3)]
    # Position 5 is a bias for all pairs (onnxruntime/core/graph/contrib_ops/bert_defs.cc).
    inputs = [*given, *([None, None, bias] if bias is not None else [])]
    result = writer.microsoft("MultiHeadAttention", inputs, (batch, length, width), num_heads=heads)
    return writer.linear(f"{path}.o_proj", result, hidden, bias=attention.output_bias)


def crossed(
    writer: StepWriter, attention: Attention, path: str, state: Tensor, source: Tensor | None
) -> Tensor:
    """Attention on an encoder's states.

    Their keys and values are made where the source is read, and stay in a cache that nothing is added to.
    """
    sizes, size = writer.sizes, attention.size
    heads = attention.heads // sizes.width
    width = heads * size
    query = writer.linear(f"{path}.q_proj", state, width, bias=attention.query_bias)
    shape = (sizes.batch, heads, sizes.source, size)
    cached = []
    for name, bias in (("k", attention.key_bias), ("v", attention.value_bias)):
        if source is None:
            tensor = writer.given(f"cross.{path}.{name}", shape, writer.types.cache_type.name)
            writer.keep(tensor, tensor)
        else:
            made = writer.linear(f"{path}.{name}_proj", source, width, bias=bias)
            split = writer.reshape(made, sizes.batch, sizes.source, heads, size)
            tensor = writer.op("Transpose", [split], shape, perm=(0, 2, 1, 3))
            writer.output(tensor)
        cached.append(tensor)
    result = writer.microsoft("MultiHeadAttention", [query, *cached], writer.rows(width), num_heads=heads)
    return writer.linear(f"{path}.o_proj", result, writer.model.hidden, bias=attention.output_bias)


def selected(writer: StepWriter, mixer: StateSpace, path: str, state: Tensor) -> Tensor:
    """A selective state space: convolution, steps that follow from the input, and the scan."""
    inner = writer.share(mixer.inner)
    both = writer.linear(f"{path}.in_proj", state, 2 * inner, bias=mixer.bias)
    source, gate = writer.columns(both, 0, inner), writer.columns(both, inner, 2 * inner)
    mixed = _convolved(writer, mixer, path, source)
    chosen = writer.linear(f"{path}.x_proj", mixed, mixer.rank + 2 * mixer.state)
    step = writer.linear(f"{path}.dt_proj", writer.columns(chosen, 0, mixer.rank), inner, bias=True)
    step = writer.op("Softplus", [step], shape_of(step))
    scanned = _scanned(writer, mixer, path, step, chosen, mixed)
    skipped = writer.op("Mul", [mixed, writer.weight(f"{path}.D", (inner,))], shape_of(mixed))
    summed = writer.add(scanned, skipped)
    gated = writer.op("Mul", [summed, writer.activated("Silu", gate)], shape_of(summed))
    return writer.linear(f"{path}.out_proj", gated, writer.model.hidden, bias=mixer.bias)


def _convolved(writer: StepWriter, mixer: StateSpace, path: str, source: Tensor) -> Tensor:
    batch, tokens, inner = shape_of(source)
    past, present = writer.state(path, "conv", (batch, inner, mixer.taps - 1), writer.floats)
    by_channel = writer.op("Transpose", [source], (batch, inner, tokens), perm=(0, 2, 1))
    weight = writer.weight(f"{path}.conv1d.weight", (inner, 1, mixer.taps))
    bias = writer.weight(f"{path}.conv1d.bias", (inner,)) if mixer.conv_bias else None
    mixed = writer.microsoft(
        "CausalConvWithState", [by_channel, weight, bias, past], shape_of(by_channel), more=[present],
        activation="silu",
    )  # fmt: skip
    return writer.op("Transpose", [mixed], shape_of(source), perm=(0, 2, 1))


def _scanned(
    writer: StepWriter, mixer: StateSpace, path: str, step: Tensor, chosen: Tensor, source: Tensor
) -> Tensor:
    """The scan: of one token its operators; of many one pass over what it reads, as fused kernels make it.

    No operator of ONNX Runtime is Mamba's own, and a Scan of its tokens, one after the other, is what nobody
    runs.
    """
    batch, tokens, inner = shape_of(step)
    state, rank = mixer.state, mixer.rank
    kept = (batch, inner, state)
    past, present = writer.state(path, "ssm", kept, DTYPES["float32"])
    rates = writer.weight(f"{path}.A_log", (inner, state))
    into, out_of = (
        writer.columns(chosen, rank, rank + state),
        writer.columns(chosen, rank + state, rank + 2 * state),
    )
    moved = writer.op("Mul", [step, source], shape_of(step))
    if tokens > 1:
        inputs = [moved, step, into, out_of, rates, past]
        return writer.op("SelectiveScan", inputs, shape_of(step), domain=OWN_DOMAIN, more=[present])
    by_channel = writer.reshape(step, batch, inner, 1)
    decay = writer.op("Exp", [writer.op("Mul", [by_channel, rates], kept)], kept)
    added = writer.op("Mul", [writer.reshape(moved, batch, inner, 1), into], kept)
    left = writer.op("Mul", [writer.cast(decay, past.dtype), past], kept, dtype=past.dtype)
    writer.op("Add", [left, writer.cast(added, past.dtype)], None, more=[present])
    held, column = writer.cast(present, writer.floats), writer.reshape(out_of, batch, state, 1)
    return writer.reshape(writer.op("MatMul", [held, column], (batch, inner, 1)), batch, tokens, inner)
