"""What a generating model keeps: its matrices by name, and elements of the cache of one sequence."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import assert_never

from analyzer.generation.architecture import (
    Architecture,
    Attention,
    Experts,
    LatentAttention,
    Layer,
    Mixer,
    Mlp,
    Recurrence,
    StateSpace,
)


def mixers_of(layer: Layer) -> tuple[Mixer, ...]:
    """Return what mixes positions in a layer: one, or two side by side."""
    return (layer.mixer,) if layer.parallel_mixer is None else (layer.mixer, layer.parallel_mixer)


def _of_attention(attention: Attention, hidden: int) -> dict[str, int]:
    queries, keys = attention.heads * attention.size, attention.key_heads * attention.size
    found = {"q_proj": hidden * (queries + attention.gate), "o_proj": queries * hidden}
    if attention.has_keys:
        found["k_proj"] = hidden * keys
    if attention.has_keys and attention.has_values:
        found["v_proj"] = hidden * keys
    return found


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
