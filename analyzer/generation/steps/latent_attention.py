"""Multi-head latent attention as operators: keys from latents for many tokens, queries to latents for one."""

from __future__ import annotations

import numpy as np

from analyzer.generation.architecture import Indexer, LatentAttention
from analyzer.generation.steps.step_writer import StepWriter, number, shape_of
from analyzer.graph import DTYPES, Tensor


def attended(writer: StepWriter, attention: LatentAttention, path: str, state: Tensor) -> Tensor:
    """Attention of new tokens on all before them, projections and cache included.

    Args:
        writer: Takes the operators.
        attention: Its shape.
        path: Its module.
        state: What it reads.
    """
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
    cache = _appended(writer, attention, path, latent, key)
    made = (_expanded if writer.sizes.tokens > 1 else _absorbed)(
        writer, attention, path, heads, query, latent, key, cache
    )
    return writer.linear(f"{path}.o_proj", made, writer.model.hidden, bias=attention.bias)


def _expanded(
    writer: StepWriter,
    attention: LatentAttention,
    path: str,
    heads: int,
    query: Tensor,
    latent: Tensor,
    key: Tensor,
    _cache: Tensor,
) -> Tensor:
    """Keys and values of every head from the latents of the new tokens, which are all that there are."""
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
    _latent: Tensor,
    _key: Tensor,
    cache: Tensor,
) -> Tensor:
    """The key's projection is taken to the query's side: all heads then read one latent as key and value.

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
    """A product of its own for each head; (batch, heads, inner) to (batch, heads, outer)."""
    batch, heads, inner = shape_of(state)
    turned = writer.op("Transpose", [state], (heads, batch, inner), perm=(1, 0, 2))
    made = writer.op("MatMul", [turned, writer.weight(name, (heads, inner, outer))], (heads, batch, outer))
    return writer.op("Transpose", [made], (batch, heads, outer), perm=(1, 0, 2))


def _appended(writer: StepWriter, attention: LatentAttention, path: str, latent: Tensor, key: Tensor) -> Tensor:
    """Makes the new tokens' rows; the cache of latents, whose last rows they are.

    Who runs the steps has bound the result into the cache: no operator of ONNX Runtime writes rows in place.
    Where a query looks at some keys alone, the cache is those.
    """
    sizes, kept = writer.sizes, writer.types.cache_type
    wide = attention.latent + attention.rotated
    context = min(sizes.context, attention.chosen) if attention.chosen else sizes.context
    past = writer.given(f"past_key_values.{number(path)}.latent", (sizes.batch, context, wide), kept.name)
    rows = writer.op("Concat", [latent, key], writer.rows(wide), axis=-1)
    rows = writer.cast(rows, kept)
    writer.keep(past, writer.renamed(rows, f"present.{number(path)}.latent"))
    return past


def _indexed(writer: StepWriter, indexer: Indexer, path: str, state: Tensor, source: Tensor) -> None:
    """Chooses the keys that a query looks at: scores of small heads on all of them."""
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
