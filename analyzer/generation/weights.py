"""What a generating model keeps: elements of its weights, and of the cache of one sequence."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import assert_never

from analyzer.generation.architecture import (
    Architecture,
    Attention,
    Encoder,
    Experts,
    LatentAttention,
    Layer,
    Mixer,
    Mlp,
    Product,
    Recurrence,
    StateSpace,
)

# Of each of the two convolutions before Whisper's encoder (transformers/models/whisper/modeling_whisper.py).
_STEM_TAPS = 3


def parameters(architecture: Architecture) -> int:
    """Elements of all weights, a tied head once.

    What a checkpoint holds beside its parameters counts as well: the correction of DeepSeek V3's router is a
    buffer.
    """
    hidden, rows = architecture.hidden, architecture.vocabulary
    width = architecture.embedding_size or hidden
    norm = _norm(hidden, architecture)
    # From the embedding's width to the state's, and back before the head.
    projected = 2 * width * hidden if architecture.embedding_size else 0
    return (
        rows * width * (1 if architecture.tied else 2)
        + projected
        + rows * architecture.head_bias
        + norm * (architecture.embedding_norm + architecture.final_norm)
        + architecture.position_table * hidden
        + _relative(architecture.relative_buckets, architecture.layers)
        + sum(layer_parameters(layer, architecture) for layer in architecture.layers)
        + sum(map(_product, architecture.products))
        + sum(table.inner * table.outer for table in architecture.tables)
        + architecture.vectors
        + (_encoder(architecture.encoder, architecture) if architecture.encoder else 0)
    )


def layer_parameters(layer: Layer, architecture: Architecture) -> int:
    """Elements of the weights of one layer, of the decoder or of the encoder."""
    return (
        layer.norms * _norm(architecture.hidden, architecture)
        + _mixer(layer.mixer, architecture)
        + (_attention(layer.cross, architecture) if layer.cross else 0)
        + (_mixer(layer.parallel_mixer, architecture) if layer.parallel_mixer else 0)
        + _mlp(layer.mlp, architecture.hidden)
        + sum(map(_product, layer.products))
        + layer.vectors
    )


def known_by_size(architecture: Architecture) -> float:
    """Return the share of a token's weights that stand in parts of which only the sizes are known."""
    alone = sum(map(_product, architecture.products)) + architecture.vectors
    read = alone
    for layer in architecture.layers:
        recurrent = (mixer for mixer in mixers_of(layer) if isinstance(mixer, Recurrence))
        alone += layer.vectors + sum(map(_product, layer.products))
        alone += sum(_product(product) for mixer in recurrent for product in mixer.products)
        mlp = layer.mlp
        unread = (
            (mlp.count - mlp.chosen) * _mlp(mlp.expert, architecture.hidden) if isinstance(mlp, Experts) else 0
        )
        read += layer_parameters(layer, architecture) - unread
    return alone / max(1, read)


def mixers_of(layer: Layer) -> tuple[Mixer, ...]:
    """Return what mixes positions in a layer: one, or two side by side."""
    return (layer.mixer,) if layer.parallel_mixer is None else (layer.mixer, layer.parallel_mixer)


def _norm(width: int, architecture: Architecture) -> int:
    if not architecture.norm_weights:
        return 0
    return width * (2 if architecture.norm == "layer" and architecture.norm_bias else 1)


def _relative(buckets: int, layers: tuple[Layer, ...]) -> int:
    first = layers[0].mixer
    # The first layer's table serves all (T5Stack of transformers/models/t5/modeling_t5.py).
    return buckets * first.heads if isinstance(first, Attention) else 0


def _encoder(encoder: Encoder, architecture: Architecture) -> int:
    hidden = architecture.hidden
    channels = encoder.stem_channels
    # Two convolutions with biases: to the state's width, and within it.
    stem = _STEM_TAPS * hidden * (channels + hidden) + 2 * hidden if channels else 0
    return (
        stem
        + encoder.position_table * hidden
        + _relative(encoder.relative_buckets, encoder.layers)
        + sum(layer_parameters(layer, architecture) for layer in encoder.layers)
        + _norm(hidden, architecture)
    )


def _product(product: Product) -> int:
    return product.inner * product.outer + product.outer * product.bias


def _mixer(mixer: Mixer, architecture: Architecture) -> int:
    match mixer:
        case Attention():
            return _attention(mixer, architecture)
        case LatentAttention():
            return _latent(mixer, architecture.hidden)
        case StateSpace():
            return _state_space(mixer, architecture.hidden)
        case Recurrence():
            # What else it has is among the layer's vectors, the convolution too.
            return sum(map(_product, mixer.products))
        case _:
            assert_never(mixer)


def _attention(attention: Attention, architecture: Architecture) -> int:
    queries, keys = attention.heads * attention.size, attention.key_heads * attention.size
    of_keys = attention.key_bias * attention.has_keys
    of_values = attention.value_bias * attention.has_keys * attention.has_values
    biases = (queries + attention.gate) * attention.query_bias + keys * (of_keys + of_values)
    norms = 0
    if attention.wide_norms:
        norms = _norm(queries, architecture) + _norm(keys, architecture)
    elif attention.separate_norms:
        norms = queries + keys
    elif attention.head_norms:
        norms = (1 + attention.has_keys) * _norm(attention.size, architecture)
    return (
        sum(_of_attention(attention, architecture.hidden).values())
        + biases
        + architecture.hidden * attention.output_bias
        + norms
        + attention.heads * attention.sinks
    )


def _of_attention(attention: Attention, hidden: int) -> dict[str, int]:
    queries, keys = attention.heads * attention.size, attention.key_heads * attention.size
    found = {"q_proj": hidden * (queries + attention.gate), "o_proj": queries * hidden}
    if attention.has_keys:
        found["k_proj"] = hidden * keys
    if attention.has_keys and attention.has_values:
        found["v_proj"] = hidden * keys
    return found


def _latent(attention: LatentAttention, hidden: int) -> int:
    rank, latent = attention.query_rank, attention.latent
    # A norm of each latent; an indexer's key has one of both weight and bias.
    norms = rank + latent + (2 * attention.indexer.size if attention.indexer else 0)
    biases = (rank + latent + attention.rotated + hidden) * attention.bias
    return sum(_of_latent(attention, hidden).values()) + norms + biases


def _of_latent(attention: LatentAttention, hidden: int) -> dict[str, int]:
    heads, rank, latent = attention.heads, attention.query_rank, attention.latent
    queries = heads * (attention.plain + attention.rotated)
    found = {
        # Down to a latent and up to the heads; the rotated part of keys comes from the state itself.
        "q_b_proj": (rank or hidden) * queries,
        "kv_a_proj_with_mqa": hidden * (latent + attention.rotated),
        "kv_b_proj": latent * heads * (attention.plain + attention.value_size),
        "o_proj": heads * attention.value_size * hidden,
    }
    if rank:
        found["q_a_proj"] = hidden * rank
    if (indexer := attention.indexer) is not None:
        found["indexer.wq_b"] = indexer.heads * indexer.size * (rank or hidden)
        found["indexer.wk"] = hidden * indexer.size
        found["indexer.weights_proj"] = hidden * indexer.heads
    return found


def _state_space(mixer: StateSpace, hidden: int) -> int:
    inner, heads = mixer.inner, mixer.heads
    made = _of_state_space(mixer, hidden)
    biases = (made["in_proj"] // hidden + hidden) * mixer.bias + (heads or inner)
    convolution = mixer.convolved * (mixer.taps + mixer.conv_bias)
    # A and D.
    rates = 2 * heads if heads else inner * mixer.state + inner
    return sum(made.values()) + biases + convolution + rates


def _of_state_space(mixer: StateSpace, hidden: int) -> dict[str, int]:
    inner, rank = mixer.inner, mixer.rank
    if mixer.heads:
        return {"in_proj": hidden * (inner + mixer.convolved + mixer.heads), "out_proj": inner * hidden}
    return {
        "in_proj": 2 * hidden * inner,
        # Step size, B and C from the columns; the step size back to all of them.
        "x_proj": inner * (rank + 2 * mixer.state),
        "dt_proj": rank * inner,
        "out_proj": inner * hidden,
    }


def _mlp(mlp: Mlp | Experts | None, hidden: int) -> int:
    match mlp:
        case None:
            return 0
        case Mlp():
            ups = 2 if mlp.gated else 1
            return sum(_of_mlp(mlp, hidden).values()) + (ups * mlp.inner + hidden) * mlp.bias
        case Experts():
            router = mlp.count * hidden + mlp.count * mlp.router_bias
            shared = _mlp(mlp.shared, hidden) + hidden * mlp.shared_gate
            return router + mlp.count * _mlp(mlp.expert, hidden) + shared
        case _:
            assert_never(mlp)


def _of_mlp(mlp: Mlp, hidden: int) -> dict[str, int]:
    size = hidden * mlp.inner
    return {**({"gate_proj": size} if mlp.gated else {}), "up_proj": size, "down_proj": size}


def products(layer: Layer, architecture: Architecture) -> Iterator[tuple[str, int]]:
    """Yield each matrix of a layer that formats of fewer bits are made for, by its name, with its elements.

    Names are those within the layer that ``steps`` writes; routers of experts stay floats and are left out.
    """
    hidden, mlp = architecture.hidden, layer.mlp
    for mixer in mixers_of(layer):
        match mixer:
            case Attention():
                found = _of_attention(mixer, hidden)
            case LatentAttention():
                found = _of_latent(mixer, hidden)
            case StateSpace():
                found = _of_state_space(mixer, hidden)
            case Recurrence():
                found = {product.name: product.inner * product.outer for product in mixer.products}
            case _:
                assert_never(mixer)
        place = {StateSpace: "mixer.", Recurrence: ""}.get(type(mixer), "self_attn.")
        yield from ((f"{place}{name}", size) for name, size in found.items())
    yield from ((product.name, product.inner * product.outer) for product in layer.products)
    if layer.cross is not None:
        yield from ((f"encoder_attn.{name}", size) for name, size in _of_attention(layer.cross, hidden).items())
    if isinstance(mlp, Mlp):
        yield from ((f"mlp.{name}", size) for name, size in _of_mlp(mlp, hidden).items())
    elif isinstance(mlp, Experts):
        of_one = _of_mlp(mlp.expert, hidden)
        yield from ((f"mlp.experts.{name}", mlp.count * size) for name, size in of_one.items())
        if mlp.shared is not None:
            shared = _of_mlp(mlp.shared, hidden)
            yield from ((f"mlp.shared_expert.{name}", size) for name, size in shared.items())


def kept_elements(mixer: Mixer, tokens: int, width: int = 1) -> int:
    """Elements that a layer keeps of a sequence of so many tokens, on all devices that share it.

    Heads of keys and values that are fewer than devices are there on several, and every device has all latents.
    """
    match mixer:
        case Attention():
            if not mixer.has_keys:
                return 0
            seen = min(tokens, mixer.window) if mixer.window else tokens
            return 2 * max(1, ceil(mixer.key_heads / width)) * width * mixer.size * seen
        case LatentAttention():
            indexed = mixer.indexer.size if mixer.indexer else 0
            return (mixer.latent + mixer.rotated + indexed) * tokens * width
        case StateSpace():
            return mixer.elements
        case Recurrence():
            return mixer.elements
        case _:
            assert_never(mixer)
