"""Operators that mix positions: attention on a cache or an encoder's states, and state spaces."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np

from analyzer.generation.architecture import Attention, Indexer, LatentAttention, Recurrence, StateSpace
from analyzer.generation.steps.step_writer import OWN_DOMAIN, StepWriter, number, shape_of
from analyzer.graph import DTYPES, Tensor

# The input that says where each sequence ends; of a shorter buffer its length is in the name.
SEQLENS = "seqlens_k"
_SOFTCAP = 50.0  # Gemma 2's; its value changes no count


def attended(writer: StepWriter, attention: Attention, path: str, state: Tensor, bias: Tensor | None) -> Tensor:
    """Return attention of new tokens on all before them, projections and cache included.

    ``bias`` is added to the scores of all pairs (T5's relative positions).
    """
    size, heads = attention.size, attention.heads // writer.sizes.width
    num_kv_heads = key_heads(attention, writer.sizes.width)
    gate = writer.share(attention.gate)
    given = _projected(
        writer, attention, path, state, (heads * size + gate, num_kv_heads * size, num_kv_heads * size)
    )
    opened = None
    if gate:
        query = given[0]
        assert query is not None
        given[0] = writer.columns(query, 0, heads * size)
        opened = writer.fitted(writer.columns(query, heads * size, heads * size + gate), heads * size)
    sizes = writer.sizes
    # Between steps a layer with a window keeps no more than that; a prompt is seen in full.
    windowed = attention.window and sizes.tokens == 1
    length = min(sizes.context, attention.window) if windowed else sizes.context
    shape = (sizes.batch, num_kv_heads, length, size)
    if attention.has_keys:
        keys, values = (writer.state(path, name, shape, writer.types.cache_type) for name in ("key", "value"))
    else:  # those of an earlier layer: read here, and written there
        pasts = [
            writer.given(f"past_key_values.{number(path)}.{name}", shape, writer.types.cache_type.name)
            for name in ("key", "value")
        ]
        keys, values = ((past, writer.keep(past, past)) for past in pasts)
    # The last key's place in the buffer, which a window makes shorter.
    name = SEQLENS if length == sizes.context else f"{SEQLENS}_{length}"
    lengths = writer.given(name, (sizes.batch,), "int32")
    total = writer.literal(f"total_{length}", (), np.array(length, np.int32), "int32")
    tables: list[Tensor | None] = list(writer.tables(attention.rotary)) if attention.rotary else [None, None]
    sinks = writer.weight(f"{path}.sinks", (heads,)) if attention.sinks else None
    inputs = [*given, keys[0], values[0], lengths, total, *tables, None, bias, sinks]
    presents = [keys[1], values[1]] if attention.has_keys else []
    while inputs[-1] is None:
        inputs.pop()
    attributes: dict[str, Any] = {"num_heads": heads, "kv_num_heads": num_kv_heads}
    if attention.rotary:
        attributes["do_rotary"] = 1
    if attention.window:
        attributes["local_window_size"] = attention.window
    if attention.softcap:
        attributes["softcap"] = _SOFTCAP
    rows = writer.rows(heads * size)
    result = writer.microsoft("GroupQueryAttention", inputs, rows, more=presents, **attributes)
    if opened is not None:
        result = writer.op("Mul", [result, writer.op("Sigmoid", [opened], shape_of(opened))], shape_of(result))
    return writer.linear(f"{path}.o_proj", result, writer.model.hidden, bias=attention.output_bias)


def key_heads(attention: Attention, width: int) -> int:
    """Return heads of keys and values on each device: fewer than devices are there on several."""
    return max(1, ceil(attention.key_heads / width))


def _projected(
    writer: StepWriter, attention: Attention, path: str, state: Tensor, widths: tuple[int, int, int]
) -> list[Tensor | None]:
    """Write queries, keys and values: one product, unless norms stand between or biases or storage differ."""
    biases = (attention.query_bias, attention.key_bias, attention.value_bias)
    norms = attention.head_norms or attention.separate_norms or attention.wide_norms
    alike = {writer.storage(f"{path}.{name}_proj") for name in "qkv"}
    complete = attention.has_keys and attention.has_values and not attention.gate
    # Each matrix has a codebook of its own.
    codebooks = any(storage.table for storage in alike if storage is not None)
    if not norms and complete and not codebooks and len(set(biases)) == len(alike) == 1:
        name, like = f"{path}.qkv_proj", f"{path}.q_proj"
        return [writer.linear(name, state, sum(widths), bias=biases[0], like=like), None, None]
    parts: list[Tensor | None] = []
    for name, width, bias in zip("qkv", widths, biases, strict=True):
        if name != "q" and not (attention.has_keys and (attention.has_values or name == "k")):
            # Another layer's are in the cache already; keys may be values too.
            earlier = parts[-1] if attention.has_keys else parts[0]
            assert earlier is not None
            parts.append(writer.fitted(earlier, width))
            continue
        part = writer.linear(f"{path}.{name}_proj", state, width, bias=bias)
        normed = norms and name != "v"
        parts.append(_normed(writer, attention, f"{path}.{name}_norm", part) if normed else part)
    return parts


def _normed(writer: StepWriter, attention: Attention, name: str, part: Tensor) -> Tensor:
    """Return queries or keys normed, head by head or over all heads at once."""
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
    """Return attention of an encoder: every token on all of them, nothing is kept."""
    batch, length, hidden = shape_of(state)
    heads, size = attention.heads // writer.sizes.width, attention.size
    width, kv_width = heads * size, key_heads(attention, writer.sizes.width) * size
    given = _projected(writer, attention, path, state, (width, kv_width, kv_width))
    whole, keys, values = given
    assert whole is not None
    if keys is None or values is None:
        ends = (0, width, width + kv_width, width + 2 * kv_width)
        whole, keys, values = (writer.columns(whole, ends[at], ends[at + 1]) for at in range(3))
    # The operator takes a key for each head of queries.
    given = [whole, writer.fitted(keys, width), writer.fitted(values, width)]
    # Position 5 is a bias for all pairs (onnxruntime/core/graph/contrib_ops/bert_defs.cc).
    inputs = [*given, *([None, None, bias] if bias is not None else [])]
    result = writer.microsoft("MultiHeadAttention", inputs, (batch, length, width), num_heads=heads)
    return writer.linear(f"{path}.o_proj", result, hidden, bias=attention.output_bias)


def crossed(
    writer: StepWriter, attention: Attention, path: str, state: Tensor, source: Tensor | None
) -> Tensor:
    """Return attention on an encoder's states.

    Their keys and values are made where the source is read, and stay in a cache that nothing is added to.
    """
    sizes, size = writer.sizes, attention.size
    heads = attention.heads // sizes.width
    width = heads * size
    query = writer.linear(f"{path}.q_proj", state, width, bias=attention.query_bias)
    num_kv_heads = key_heads(attention, sizes.width)
    shape = (sizes.batch, num_kv_heads, sizes.source, size)
    cached = []
    for name, bias in (("k", attention.key_bias), ("v", attention.value_bias)):
        if source is None:
            tensor = writer.given(f"cross.{path}.{name}", shape, writer.types.cache_type.name)
            writer.keep(tensor, tensor)
        else:
            made = writer.linear(f"{path}.{name}_proj", source, num_kv_heads * size, bias=bias)
            split = writer.reshape(made, sizes.batch, sizes.source, num_kv_heads, size)
            tensor = writer.op("Transpose", [split], shape, perm=(0, 2, 1, 3))
            writer.output(tensor)
        copies = heads // num_kv_heads
        whole = (sizes.batch, heads, sizes.source, size)
        cached.append(
            tensor if copies == 1 else writer.op("Concat", [tensor] * copies, whole, axis=1, dtype=tensor.dtype)
        )
    result = writer.microsoft("MultiHeadAttention", [query, *cached], writer.rows(width), num_heads=heads)
    return writer.linear(f"{path}.o_proj", result, writer.model.hidden, bias=attention.output_bias)


def selected(writer: StepWriter, mixer: StateSpace, path: str, state: Tensor) -> Tensor:
    """Return a selective state space: convolution, steps that follow from the input, and the scan."""
    inner, size = writer.share(mixer.inner), mixer.state
    if mixer.heads:
        # Mamba 2: gate, columns and steps from one product; what is written and read is convolved too.
        heads, convolved = writer.share(mixer.heads), inner + 2 * mixer.groups * size
        both = writer.linear(f"{path}.in_proj", state, inner + convolved + heads, bias=mixer.bias)
        gate = writer.columns(both, 0, inner)
        mixed = _filtered(
            writer, path, writer.columns(both, inner, inner + convolved), mixer.taps, bias=mixer.conv_bias
        )
        written = writer.columns(mixed, inner, inner + size)
        read = writer.columns(mixed, inner + mixer.groups * size, inner + (mixer.groups + 1) * size)
        mixed = writer.columns(mixed, 0, inner)
        step = writer.columns(both, inner + convolved, inner + convolved + heads)
        step = writer.add(step, writer.weight(f"{path}.dt_bias", (heads,)))
        step = writer.fitted(writer.op("Softplus", [step], shape_of(step)), inner)
        rates, skip = writer.weight(f"{path}.A_log", (heads, 1)), writer.weight(f"{path}.D", (heads,))
        repeats = writer.fitted(writer.reshape(skip, 1, heads), inner)
    else:
        both = writer.linear(f"{path}.in_proj", state, 2 * inner, bias=mixer.bias)
        mixed = _filtered(writer, path, writer.columns(both, 0, inner), mixer.taps, bias=mixer.conv_bias)
        gate = writer.columns(both, inner, 2 * inner)
        chosen = writer.linear(f"{path}.x_proj", mixed, mixer.rank + 2 * size)
        step = writer.linear(f"{path}.dt_proj", writer.columns(chosen, 0, mixer.rank), inner, bias=True)
        step = writer.op("Softplus", [step], shape_of(step))
        written = writer.columns(chosen, mixer.rank, mixer.rank + size)
        read = writer.columns(chosen, mixer.rank + size, mixer.rank + 2 * size)
        rates, repeats = writer.weight(f"{path}.A_log", (inner, size)), writer.weight(f"{path}.D", (inner,))
    scanned = _scanned(writer, path, step, (written, read), rates, mixed)
    skipped = writer.op("Mul", [mixed, repeats], shape_of(mixed))
    summed = writer.add(scanned, skipped)
    gated = writer.op("Mul", [summed, writer.activated("Silu", gate)], shape_of(summed))
    return writer.linear(f"{path}.out_proj", gated, writer.model.hidden, bias=mixer.bias)


def recurred(writer: StepWriter, mixer: Recurrence, path: str, state: Tensor) -> Tensor:
    """Linear attention and its like: projections, a convolution, a state that is updated and read."""
    place, hidden = f"{path}.", writer.model.hidden
    into = [product for product in mixer.products if product.inner == hidden and product.outer != hidden]
    read = writer.further(place, into, state)
    first = state if read is None else read
    if mixer.taps:
        channels = writer.share(mixer.convolved)
        first = _filtered(writer, path, writer.fitted(first, channels), mixer.taps, bias=False, stored=False)
    if mixer.summed:
        first = _remembered(writer, mixer, path, first)
    # What reads the state as wide as it is comes first, as gates do; the last makes the layer's result.
    rest = [product for product in mixer.products if product not in into]
    made = writer.further(place, rest, writer.fitted(first, hidden))
    return writer.fitted(first if made is None else made, hidden)


def _remembered(writer: StepWriter, mixer: Recurrence, path: str, source: Tensor) -> Tensor:
    batch, heads = writer.sizes.batch, writer.share(mixer.heads)
    key, value = max(1, mixer.key_size), mixer.value_size
    past, present = writer.state(path, "recurrent", (batch, heads, key, value), DTYPES["float32"])
    query, keys = (writer.fitted(source, heads * key) for _ in range(2))
    values = writer.fitted(source, heads * value)
    by_head = writer.fitted(source, heads)
    decay = writer.op("Neg", [writer.op("Softplus", [by_head], shape_of(by_head))], shape_of(by_head))
    share = [writer.op("Sigmoid", [by_head], shape_of(by_head))] if mixer.delta else []
    return writer.microsoft(
        "LinearAttention", [query, keys, values, past, decay, *share], shape_of(values), more=[present],
        q_num_heads=heads, kv_num_heads=heads, update_rule="gated_delta" if mixer.delta else "gated",
    )  # fmt: skip


def _filtered(
    writer: StepWriter, path: str, source: Tensor, taps: int, *, bias: bool, stored: bool = True
) -> Tensor:
    """Return a causal convolution of each channel, which keeps its last columns.

    ``stored`` says whether its weights count here.
    """
    batch, tokens, channels = shape_of(source)
    past, present = writer.state(path, "conv", (batch, channels, taps - 1), writer.floats)
    by_channel = writer.op("Transpose", [source], (batch, channels, tokens), perm=(0, 2, 1))
    shape = (channels, 1, taps)
    weight = (
        writer.weight(f"{path}.conv1d.weight", shape)
        if stored
        else writer.literal(f"ones_{channels}_{taps}", shape, None, writer.floats.name)
    )
    offset = writer.weight(f"{path}.conv1d.bias", (channels,)) if bias else None
    mixed = writer.microsoft(
        "CausalConvWithState", [by_channel, weight, offset, past], shape_of(by_channel), more=[present],
        activation="silu",
    )  # fmt: skip
    return writer.op("Transpose", [mixed], shape_of(source), perm=(0, 2, 1))


def _scanned(
    writer: StepWriter, path: str, step: Tensor, moves: tuple[Tensor, Tensor], rates: Tensor, source: Tensor
) -> Tensor:
    """Return scan: of one token its operators; of many one pass over what it reads, as fused kernels make it.

    ``step`` holds the step sizes of each channel, ``moves`` what is written to the state and what is read of
    it, ``rates`` the decay of each channel and element, or of each head.

    No operator of ONNX Runtime is Mamba's own, and a Scan of its tokens, one after the other, is what nobody
    runs.
    """
    into, out_of = moves
    batch, tokens, inner = shape_of(step)
    state = shape_of(into)[-1]
    state_shape = (batch, inner, state)
    past, present = writer.state(path, "ssm", state_shape, DTYPES["float32"])
    moved = writer.op("Mul", [step, source], shape_of(step))
    if tokens > 1:
        inputs = [moved, step, into, out_of, rates, past]
        return writer.op("SelectiveScan", inputs, shape_of(step), domain=OWN_DOMAIN, more=[present])
    by_channel = writer.reshape(step, batch, inner, 1)
    if shape_of(rates)[0] != inner:
        decayed = (batch, inner, 1)
        rates = writer.reshape(writer.fitted(writer.reshape(rates, 1, shape_of(rates)[0]), inner), inner, 1)
    else:
        decayed = state_shape
    decay = writer.op("Exp", [writer.op("Mul", [by_channel, rates], decayed)], decayed)
    added = writer.op("Mul", [writer.reshape(moved, batch, inner, 1), into], state_shape)
    left = writer.op("Mul", [writer.cast(decay, past.dtype), past], state_shape, dtype=past.dtype)
    writer.op("Add", [left, writer.cast(added, past.dtype)], None, more=[present])
    held, column = writer.cast(present, writer.floats), writer.reshape(out_of, batch, state, 1)
    return writer.reshape(writer.op("MatMul", [held, column], (batch, inner, 1)), batch, tokens, inner)


def latent_attended(writer: StepWriter, attention: LatentAttention, path: str, state: Tensor) -> Tensor:
    """Return attention of new tokens on all before them, projections and cache included."""
    heads = attention.heads // writer.sizes.width
    rank, latent_width = attention.query_rank, attention.latent
    source = state
    if rank:
        source = writer.linear(f"{path}.q_a_proj", state, rank, bias=attention.bias)
        source = writer.normed(f"{path}.q_a_layernorm", source, rms=True, bias=False)
    query = writer.linear(f"{path}.q_b_proj", source, heads * (attention.plain + attention.rotated))
    both = writer.linear(
        f"{path}.kv_a_proj_with_mqa", state, latent_width + attention.rotated, bias=attention.bias
    )
    latent = writer.columns(both, 0, latent_width)
    latent = writer.normed(f"{path}.kv_a_layernorm", latent, rms=True, bias=False)
    tables, places = writer.tables(attention.rotated), writer.places()
    query = writer.microsoft(
        "RotaryEmbedding", [query, places, *tables], shape_of(query), num_heads=heads,
        rotary_embedding_dim=attention.rotated,
    )  # fmt: skip
    key = writer.columns(both, latent_width, latent_width + attention.rotated)
    key = writer.microsoft("RotaryEmbedding", [key, places, *tables], shape_of(key), num_heads=1)
    if attention.indexer is not None:
        _indexed(writer, attention.indexer, f"{path}.indexer", state, source)
    # The cache of latents, whose last rows the new tokens' are. Who runs the steps has bound the result into
    # the cache: no operator of ONNX Runtime writes rows in place. Where a query looks at some keys alone, it is
    # those.
    sizes, cache_type = writer.sizes, writer.types.cache_type
    wide = attention.latent + attention.rotated
    context = min(sizes.context, attention.chosen) if attention.chosen else sizes.context
    cache = writer.given(
        f"past_key_values.{number(path)}.latent", (sizes.batch, context, wide), cache_type.name
    )
    rows = writer.cast(writer.op("Concat", [latent, key], writer.rows(wide), axis=-1), cache_type)
    writer.keep(cache, writer.renamed(rows, f"present.{number(path)}.latent"))
    if writer.sizes.tokens > 1:
        made = _expanded(writer, attention, path, heads, query, latent, key)
    else:
        made = _absorbed(writer, attention, path, heads, query, cache)
    return writer.linear(f"{path}.o_proj", made, writer.model.hidden, bias=attention.bias)


def _expanded(
    writer: StepWriter,
    attention: LatentAttention,
    path: str,
    heads: int,
    query: Tensor,
    latent: Tensor,
    key: Tensor,
) -> Tensor:
    """Return keys and values of every head from the latents of the new tokens, which are all that there are."""
    keys, values = heads * attention.plain, heads * attention.value_size
    made = writer.linear(f"{path}.kv_b_proj", latent, keys + values)
    # Of each head's columns the first are its key's; the rotated part of a key is one for all heads.
    whole = writer.op(
        "Concat", [writer.columns(made, 0, keys), *[key] * heads],
        writer.rows(keys + heads * attention.rotated), axis=-1,
    )  # fmt: skip
    value = writer.columns(made, keys, keys + values)
    return writer.microsoft(
        "MultiHeadAttention", [query, whole, value], writer.rows(values), num_heads=heads, unidirectional=1
    )


def _absorbed(
    writer: StepWriter,
    attention: LatentAttention,
    path: str,
    heads: int,
    query: Tensor,
    cache: Tensor,
) -> Tensor:
    """Move the key's projection to the query's side: all heads then read one latent as key and value.

    A product with the whole cache also sums what of it is no value (64 columns of 576), which saves a copy.
    """
    batch, context, wide = shape_of(cache)
    plain, rotated = attention.plain, attention.rotated
    cache = writer.cast(cache, writer.floats)
    by_head = writer.reshape(query, batch, heads, plain + rotated)
    taken = _per_head(writer, writer.columns(by_head, 0, plain), f"{path}.kv_b_proj.keys", attention.latent)
    placed = writer.columns(by_head, plain, plain + rotated)
    both = writer.op("Concat", [taken, placed], (batch, heads, wide), axis=-1)
    scores = writer.microsoft(
        "FusedMatMul", [both, cache], (batch, heads, context), transB=1, alpha=(plain + rotated) ** -0.5
    )
    shares = writer.op("Softmax", [scores], shape_of(scores), axis=-1)
    mixed = writer.op("MatMul", [shares, cache], (batch, heads, wide))
    mixed = writer.columns(mixed, 0, attention.latent)
    values = _per_head(writer, mixed, f"{path}.kv_b_proj.values", attention.value_size)
    return writer.reshape(values, batch, 1, heads * attention.value_size)


def _per_head(writer: StepWriter, state: Tensor, name: str, outer: int) -> Tensor:
    """Return a product of its own for each head; (batch, heads, inner) to (batch, heads, outer)."""
    batch, heads, inner = shape_of(state)
    turned = writer.op("Transpose", [state], (heads, batch, inner), perm=(1, 0, 2))
    made = writer.op("MatMul", [turned, writer.weight(name, (heads, inner, outer))], (heads, batch, outer))
    return writer.op("Transpose", [made], (batch, heads, outer), perm=(1, 0, 2))


def _indexed(writer: StepWriter, indexer: Indexer, path: str, state: Tensor, source: Tensor) -> None:
    """Choose the keys that a query looks at: scores of small heads on all of them."""
    sizes = writer.sizes
    batch, tokens = sizes.batch, sizes.tokens
    query = writer.linear(f"{path}.wq_b", source, indexer.heads * indexer.size)
    key = writer.linear(f"{path}.wk", state, indexer.size)
    rows = writer.normed(f"{path}.k_norm", key, rms=False, bias=True)
    cache = writer.given(
        f"past_key_values.{number(path)}.index", (batch, sizes.context, indexer.size), writer.floats.name
    )
    writer.keep(cache, writer.renamed(rows, f"present.{number(path)}.index"))
    weights = writer.linear(f"{path}.weights_proj", state, indexer.heads)
    flat = writer.reshape(query, batch, tokens * indexer.heads, indexer.size)
    scores = writer.microsoft(
        "FusedMatMul", [flat, cache], (batch, tokens * indexer.heads, sizes.context), transB=1, alpha=1.0
    )
    opened = writer.op("Relu", [scores], shape_of(scores))
    by_head = writer.reshape(opened, batch, tokens, indexer.heads, sizes.context)
    side = writer.reshape(weights, batch, tokens, 1, indexer.heads)
    total = writer.op("MatMul", [side, by_head], (batch, tokens, 1, sizes.context))
    most = writer.literal("at_most", (1,), np.array([sizes.context]))
    writer.op("TopK", [total, most], shape_of(total), more=[writer.tensor(shape_of(total), DTYPES["int64"])])
