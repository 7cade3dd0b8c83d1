"""Families of generating models: what shape each one's configuration says it has.

Each family mirrors transformers/models/FAMILY/configuration_FAMILY.py and modeling_FAMILY.py of release 5.23.
Keys of sizes stand in ``families.toml``. Defaults that are written here are the class's, of keys that published
files leave out. Sizes have none.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyzer.generation.architecture import (
    Architecture,
    Attention,
    Encoder,
    Experts,
    Indexer,
    LatentAttention,
    Layer,
    Mlp,
    StateSpace,
)
from analyzer.generation.configurations.values import Values, refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The reading of a family's configurations.

    Attributes:
        build: Makes the shape of the values; name, family, type and notes are the caller's.
        names: The key of each size that there must be, by our word for it.
        aliases: Keys of older files, and what they are called now.
        defaults_of: The ``model_type`` whose class of transformers knows the defaults.
        dtype: Type of the weights where the configuration says none.
    """

    build: Callable[[Values], Architecture]
    names: Mapping[str, str]
    aliases: Mapping[str, str]
    defaults_of: str
    dtype: str


_WINDOWED = {"sliding_attention": True, "chunked_attention": True, "full_attention": False}
# What ONNX calls each; the approximations of one function are one kernel's worth of work.
_ACTIVATIONS = {
    "silu": "Silu",
    "swish": "Silu",
    "relu": "Relu",
    "quick_gelu": "QuickGelu",
    "gelu": "Gelu",
    "gelu_new": "Gelu",
    "gelu_fast": "Gelu",
    "gelu_python": "Gelu",
    "gelu_pytorch_tanh": "Gelu",
}


def _activation(values: Values, key: str, default: str) -> str:
    word = values.word(key, default)
    if word not in _ACTIVATIONS:
        raise refusal(
            f"`{key}` of the configuration names an activation that is not known: {word}",
            hint=f"known are {', '.join(_ACTIVATIONS)}",
        )
    return _ACTIVATIONS[word]


def _head_size(values: Values) -> int:
    if values.given.get("head_dim") is not None:
        return values.count("head_dim")
    hidden, heads = values["hidden"], values["heads"]
    if hidden % heads:
        raise refusal(
            f"{heads} heads do not divide a width of {hidden} of the configuration",
            hint="such a model says its `head_dim`",
        )
    return hidden // heads


def _attention(
    values: Values, *, key_heads: int | None = None, bias: bool = False, rotated: float = 1.0, **more: Any
) -> Attention:
    """Attention with usual keys; ``bias`` is that of all three inputs."""
    heads, size = values["heads"], _head_size(values)
    keys = values.count("num_key_value_heads", heads) if key_heads is None else key_heads
    if heads % keys:
        raise refusal(
            f"{heads} heads of queries cannot share {keys} of keys and values",
            hint="the configuration needs a divisor of the one as the other",
        )
    biases = {"query_bias": bias, "key_bias": bias, "value_bias": bias}
    rotary = int(size * values.share("partial_rotary_factor", rotated)) if rotated else 0
    return Attention(heads=heads, key_heads=keys, size=size, rotary=rotary, **{**biases, **more})


def _windows(
    values: Values,
    windowed: Callable[[int], bool] = lambda _layer: True,
    *,
    key: str = "sliding_window",
    default: int = 0,
) -> list[int]:
    """Each layer's window: as the configuration lists them, else by the family's rule."""
    window = values.count_or_none(key, default)
    listed = values.kinds("layer_types", tuple(_WINDOWED))
    kinds = [_WINDOWED[kind] for kind in listed] if listed else [windowed(at) for at in range(values["layers"])]
    return [window if kind else 0 for kind in kinds]


def _mlp(
    values: Values,
    *,
    inner: int | None = None,
    gated: bool = True,
    bias: bool = False,
    key: str = "hidden_act",
    default: str = "silu",
) -> Mlp:
    width = values["inner"] if inner is None else inner
    return Mlp(inner=width, gated=gated, bias=bias, activation=_activation(values, key, default))


def _decoder(values: Values, layers: list[Layer], *, tied: bool = False, **more: Any) -> Architecture:
    """Return the model around its layers; ``tied`` where the configuration does not say."""
    known = {
        "hidden": values["hidden"],
        "longest": values["longest"] if "longest" in values.names else 0,
        "tied": values.flag("tie_word_embeddings", tied),
    }
    return Architecture(
        name="", family="", vocabulary=values["vocabulary"], layers=tuple(layers), **(known | more)
    )


def _layers(
    values: Values,
    windows: list[int] | None = None,
    mlps: list[Mlp | Experts] | None = None,
    *,
    biased: bool | None = None,
    norms: int = 2,
    **attention: Any,
) -> list[Layer]:
    """Return layers that differ in their windows and in what follows attention.

    ``biased`` says whether all four projections have a bias where the configuration does not; None asks it
    nothing.
    """
    if biased is not None:
        has_bias = values.flag("attention_bias", biased)
        attention |= {"bias": has_bias, "output_bias": has_bias}
    count = values["layers"]
    pairs = zip(windows or [0] * count, mlps or [_mlp(values)] * count, strict=True)
    return [
        Layer(mixer=_attention(values, window=window, **attention), mlp=mlp, norms=norms)
        for window, mlp in pairs
    ]


def _llama(values: Values) -> Architecture:
    mlp = _mlp(values, bias=values.flag("mlp_bias", False))
    return _decoder(values, _layers(values, mlps=[mlp] * values["layers"], biased=False))


def _qwen_windows(values: Values, *, upper: bool = True) -> list[int]:
    # The size of a window stands in files that use none.
    if not values.flag("use_sliding_window", False):
        return [0] * values["layers"]
    first = values.count_or_none("max_window_layers", 28) if upper else 0
    return _windows(values, lambda layer: layer >= first, default=4096)


def _qwen3_moe(values: Values) -> Architecture:
    expert = _mlp(values, inner=values["expert"])
    experts = Experts(count=values["experts"], chosen=values["chosen"], expert=expert)
    # Experts in every so many-th layer, but for those that are named.
    step, plain = values.count("decoder_sparse_step", 1), values.numbers("mlp_only_layers")
    mlps = [
        experts if (at + 1) % step == 0 and at not in plain else _mlp(values) for at in range(values["layers"])
    ]
    windows = _qwen_windows(values, upper=False)
    return _decoder(values, _layers(values, windows, mlps, biased=False, head_norms=True))


def _gemma(values: Values) -> Architecture:
    # "gelu" in the key of the first files means the approximation as well.
    mlps: list[Mlp | Experts] = [_mlp(values, default="gelu_pytorch_tanh")] * values["layers"]
    return _decoder(values, _layers(values, mlps=mlps, biased=False), tied=True)


def _later_gemma(values: Values, windows: list[int], *, softcap: bool, head_norms: bool) -> Architecture:
    capped, head = (
        values.given.get(key, usual if softcap else None) is not None
        for key, usual in (("attn_logit_softcapping", 50.0), ("final_logit_softcapping", 30.0))
    )
    mlp = _mlp(values, key="hidden_activation", default="gelu_pytorch_tanh")
    layers = _layers(
        values, windows, [mlp] * len(windows), biased=False, norms=4, softcap=capped, head_norms=head_norms
    )
    return _decoder(values, layers, tied=True, head_softcap=head)


def _gemma3(values: Values) -> Architecture:
    # One layer of so many sees everything; written with the line below it when a configuration is saved again.
    pattern = values.count("sliding_window_pattern", values.count("_sliding_window_pattern", 6))
    windows = _windows(values, lambda layer: (layer + 1) % pattern != 0)
    return _later_gemma(values, windows, softcap=False, head_norms=True)


def _gpt2(values: Values) -> Architecture:
    inner = values.count("n_inner", 4 * values["hidden"])
    mlp = _mlp(values, inner=inner, gated=False, bias=True, key="activation_function", default="gelu_new")
    known: dict[str, Any] = {"key_heads": values["heads"], "bias": True, "output_bias": True, "rotated": 0.0}
    layers = _layers(values, mlps=[mlp] * values["layers"], **known)
    return _decoder(values, layers, tied=True, norm="layer", position_table=values["longest"])


def _mixtral(values: Values) -> Architecture:
    experts = Experts(count=values["experts"], chosen=values["chosen"], expert=_mlp(values))
    return _decoder(values, _layers(values, _windows(values), [experts] * values["layers"]))


def _latent(values: Values, *, chosen: int = 0, indexer: Indexer | None = None) -> LatentAttention:
    return LatentAttention(
        heads=values["heads"],
        # No key of its own in `names`: null means that queries come from the hidden state (DeepSeek V2 Lite).
        query_rank=values.count_or_none("q_lora_rank", 1536),
        latent=values["latent"],
        rotated=values["rotated"],
        plain=values["plain"],
        value_size=values["value_size"],
        bias=values.flag("attention_bias", False),
        chosen=chosen,
        indexer=indexer,
    )


def _deepseek_mlps(
    values: Values, *, dense: int, shared: int, corrected: bool, bias: bool = False
) -> list[Mlp | Experts]:
    """Dense layers first, then experts beside some that every token goes to; how many where nothing is said."""
    shared = values.count_or_none("n_shared_experts", shared)
    experts = Experts(
        count=values["experts"],
        chosen=values["chosen"],
        expert=_mlp(values, inner=values["expert"]),
        # One of their common width.
        shared=_mlp(values, inner=shared * values["expert"], bias=bias) if shared else None,
        router_bias=corrected,
    )
    dense = values.count_or_none("first_k_dense_replace", dense)
    kinds = values.kinds("mlp_layer_types", ("dense", "sparse"))
    sparse = [kind == "sparse" for kind in kinds] if kinds else [at >= dense for at in range(values["layers"])]
    return [experts if one else _mlp(values, bias=bias) for one in sparse]


def _deepseek(values: Values, mlps: list[Mlp | Experts]) -> Architecture:
    return _decoder(values, [Layer(mixer=_latent(values), mlp=mlp) for mlp in mlps])


def _deepseek_v2(values: Values) -> Architecture:
    bias = values.flag("mlp_bias", False)
    return _deepseek(values, _deepseek_mlps(values, dense=0, shared=2, corrected=False, bias=bias))


def _deepseek_v3(values: Values) -> Architecture:
    return _deepseek(values, _deepseek_mlps(values, dense=3, shared=1, corrected=True))


def _sparse_deepseek(values: Values) -> Architecture:
    """Latent attention that looks at some keys, which an indexer of the layer or of an earlier one chooses."""
    indexer, chosen = Indexer(heads=values["index_heads"], size=values["index_size"]), values["index_chosen"]
    mlps = _deepseek_mlps(values, dense=3, shared=1, corrected=True)
    # As GlmMoeDsaConfig works it out.
    count, kinds = values["layers"], values.kinds("indexer_types", ("full", "shared"))
    pattern = "" if kinds else values.word("index_topk_pattern", "")
    if kinds:
        owns = [kind == "full" for kind in kinds]
    elif pattern:
        owns = [letter == "F" for letter in pattern.ljust(count, "F")[:count]]
    else:
        every, offset = values.count("index_topk_freq", 1), values.count("index_skip_topk_offset", 2)
        owns = [max(at - offset + 1, 0) % every == 0 for at in range(count)]
    layers = [
        Layer(mixer=_latent(values, chosen=chosen, indexer=indexer if own else None), mlp=mlp)
        for own, mlp in zip(owns, mlps, strict=True)
    ]
    return _decoder(values, layers)


def _gpt_oss(values: Values) -> Architecture:
    experts = Experts(
        count=values["experts"], chosen=values["chosen"], expert=_mlp(values, bias=True), router_bias=True
    )
    windows = _windows(values, lambda layer: layer % 2 == 0)
    return _decoder(values, _layers(values, windows, [experts] * len(windows), biased=True, sinks=True))


def _llama4(values: Values) -> Architecture:
    # A query sees the keys of its own chunk: at most so many.
    count, every = values["layers"], values.count("no_rope_layer_interval", 4)
    windows = _windows(values, lambda layer: (layer + 1) % every != 0, key="attention_chunk_size", default=8192)
    step = values.count("interleave_moe_layer_step", 1)
    sparse = values.numbers("moe_layers") or frozenset(range(step - 1, count, step))
    bias, one = values.flag("attention_bias", False), _mlp(values)
    experts = Experts(count=values["experts"], chosen=values["chosen"], expert=one, shared=one)
    dense = _mlp(values, inner=values["dense"])
    layers = [
        Layer(
            mixer=_attention(
                values, window=window, bias=bias, output_bias=bias, rotated=1.0 if window else 0.0
            ),
            mlp=experts if at in sparse else dense,
        )
        for at, window in enumerate(windows)
    ]
    return _decoder(values, layers)


def _mamba(values: Values) -> Architecture:
    hidden, rank = values["hidden"], values.given.get("time_step_rank")
    mixer = StateSpace(
        inner=values.count("expand", 2) * hidden,
        state=values["state"],
        taps=values.count("conv_kernel", 4),
        rank=math.ceil(hidden / 16) if rank in (None, "auto") else values.count("time_step_rank"),
        bias=values.flag("use_bias", False),
        conv_bias=values.flag("use_conv_bias", True),
    )
    layer = Layer(mixer=mixer, mlp=None, norms=1)
    return _decoder(values, [layer] * values["layers"], tied=True)


def _t5(values: Values) -> Architecture:
    heads = values["heads"]
    attention = Attention(heads=heads, key_heads=heads, size=values["size"])
    gate, _, word = values.word("feed_forward_proj", "relu").rpartition("-")
    if gate not in ("", "gated") or word not in _ACTIVATIONS:
        raise refusal(
            f"`feed_forward_proj` of the configuration is not known: {values.word('feed_forward_proj', '')}",
            hint='it is like "relu" or "gated-gelu"',
        )
    mlp = Mlp(inner=values["inner"], gated=bool(gate), activation=_ACTIVATIONS[word])
    below, buckets = values["layers"], values.count("relative_attention_num_buckets", 32)
    decoder = [Layer(mixer=attention, mlp=mlp, cross=attention, norms=3)]
    encoder = Encoder(layers=(Layer(mixer=attention, mlp=mlp),) * below, relative_buckets=buckets)
    above = values.count("num_decoder_layers", below)
    # Files of T5 1.1 say that the head is a table of its own, which transformers' class no longer reads.
    return _decoder(values, decoder * above, tied=True, relative_buckets=buckets, encoder=encoder)


def _whisper(values: Values) -> Architecture:
    def layer(heads: int, inner: int, *, cross: bool) -> Layer:
        if values["hidden"] % heads:
            raise refusal(
                f"{heads} heads do not divide a width of {values['hidden']} of the configuration",
                hint="`d_model` is a multiple of the heads of encoder and decoder",
            )
        # Keys alone have no bias.
        attention = Attention(
            heads=heads,
            key_heads=heads,
            size=values["hidden"] // heads,
            query_bias=True,
            value_bias=True,
            output_bias=True,
        )
        mlp = _mlp(values, inner=inner, gated=False, bias=True, key="activation_function", default="gelu")
        return Layer(mixer=attention, mlp=mlp, cross=attention if cross else None, norms=3 if cross else 2)

    positions = values["source"]
    below = layer(values["encoder_heads"], values["encoder_inner"], cross=False)
    above = layer(values["heads"], values["inner"], cross=True)
    encoder = Encoder(
        layers=(below,) * values["encoder_layers"],
        positions=positions,
        stem_channels=values["channels"],
        position_table=positions,
    )
    return _decoder(
        values,
        [above] * values["layers"],
        tied=True,
        norm="layer",
        position_table=values["longest"],
        encoder=encoder,
    )


_BUILDERS: Mapping[str, Callable[[Values], Architecture]] = {
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
    "deepseek_v32": _sparse_deepseek,
    "gemma": _gemma,
    "gemma2": lambda values: _later_gemma(
        values, _windows(values, lambda layer: layer % 2 == 0), softcap=True, head_norms=False
    ),
    "gemma3_text": _gemma3,
    "glm_moe_dsa": _sparse_deepseek,
    "gpt2": _gpt2,
    "gpt_oss": _gpt_oss,
    "kimi_k2": _deepseek_v3,
    "llama": _llama,
    "llama4_text": _llama4,
    "mamba": _mamba,
    "mistral": lambda values: _decoder(values, _layers(values, _windows(values, default=4096))),
    "mixtral": _mixtral,
    "phi3": lambda values: _decoder(values, _layers(values, _windows(values))),
    "qwen2": lambda values: _decoder(values, _layers(values, _qwen_windows(values), bias=True)),
    "qwen3": lambda values: _decoder(
        values, _layers(values, _qwen_windows(values), biased=False, head_norms=True)
    ),
    "qwen3_moe": _qwen3_moe,
    "t5": _t5,
    "whisper": _whisper,
}
_DATA = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def _sizes(name: str) -> dict[str, str]:
    table = _DATA[name]
    return {**(_sizes(table["like"]) if "like" in table else {}), **table.get("sizes", {})}


FAMILIES: Mapping[str, Family] = {
    name: Family(
        build=build,
        names=_sizes(name),
        aliases=_DATA[name].get("aliases", {}),
        defaults_of=_DATA[name].get("defaults_of", name),
        # Language models are published in 16 bits, or served in them where they were not.
        dtype=_DATA[name].get("dtype", "bfloat16"),
    )
    for name, build in _BUILDERS.items()
}
# Families that see or hear as well: what their text part is where it does not say.
TEXT_PARTS: Mapping[str, str] = {
    "gemma3": "gemma3_text",
    "kimi_k25": "deepseek_v3",
    "llama4": "llama4_text",
    "llava": "llama",
    "mistral3": "mistral",
}
