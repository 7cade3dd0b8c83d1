"""The model that transformers builds of a configuration, without weights -> :class:`Architecture`.

Of a family that has no reader here, names and shapes of its modules say which parts it has and how large they
are. Weights are exact for any of them. What is no known part is a linear layer that every token goes through,
or a vector.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

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
    Product,
    Recurrence,
    StateSpace,
)
from analyzer.generation.configurations.values import check_sizes, refusal
from analyzer.generation.memory import layer_parameters, parameters
from analyzer.loading.model_reference import PIP_LINE, transformers_silent
from analyzer.loading.python.model_weights import built_with
from analyzer.loading.torch_private import require_torch
from analyzer.text import did_you_mean, printable

# Of PyTorch's classes names alone are read: this room imports no torch.
TorchModule = Any
TorchTensor = Any
_PUBLISHED = "compare it with the config.json that the model was published with"
# What has a class of transformers look further than at the values.
_LEFT_OUT = frozenset(
    {"architectures", "auto_map", "dtype", "model_type", "quantization_config", "torch_dtype"}
    | {"transformers_version", "attn_implementation", "compression_config"}
)


def known_families() -> tuple[str, ...] | None:
    """Return the ``model_type`` of every configuration of transformers; None where it is not installed."""
    try:
        from transformers import CONFIG_MAPPING
    except ImportError:
        return None
    return tuple(CONFIG_MAPPING)


def builds_generator(kind: str) -> bool:
    """Return whether transformers is here and has a class of this ``model_type`` that generates text."""
    try:
        from transformers.models.auto import modeling_auto as names
    except ImportError:
        return False
    generating = {
        *names.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        *names.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        *names.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    }
    # Encoders are in the first of them too.
    encoders = set(names.MODEL_FOR_MASKED_LM_MAPPING_NAMES) - set(
        names.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
    )
    return kind in generating - encoders


def tied_around(values: Mapping[str, Any], kind: str) -> bool | None:
    """Return whether the class of a model around a text part ties its head; None where nothing says so.

    ``values`` are the whole configuration, ``kind`` its ``model_type``.
    """
    if kind not in (known_families() or ()):
        return None
    try:
        check_sizes(values)
        with _refusing(kind):
            tied = getattr(_configuration(values, kind), "tie_word_embeddings", None)
    except UsageError:  # said where it is read for good
        return None
    return tied if isinstance(tied, bool) else None


def built_model(values: Mapping[str, Any], kind: str) -> Architecture:
    """Return the shape of the text model that transformers builds of a configuration, on the meta device.

    Raises:
        UsageError: transformers is not installed or does not know it, a value cannot be, or a part of the model
            is of a kind that no step is known of.
    """
    families = known_families()
    if families is None:
        raise refusal(
            f"the model is of a family that transformers alone knows: {printable(kind)}",
            hint=f"transformers builds it without weights: {PIP_LINE}",
        )
    if kind not in families:
        runs = " (code of its folder, which `auto_map` names, is never run)" if "auto_map" in values else ""
        raise refusal(
            f"the family of the model is not known to transformers: {printable(kind)}{runs}",
            hint=did_you_mean(kind, families, "A newer release of transformers may know it."),
        )
    check_sizes(values)
    require_torch()
    with _refusing(kind):
        config = _configuration(values, kind)
        translates = bool(getattr(config, "is_encoder_decoder", False))
        text = config if translates else config.get_text_config(decoder=True)
        if text is not config:
            # The model around it has the head, and says whether that is the embedding.
            own = getattr(text, "tie_word_embeddings", True)
            text.tie_word_embeddings = getattr(config, "tie_word_embeddings", own)
        model = _built(text, kind, translates=translates)
    reader = _BuiltModelReader(
        model=model, config=text.get_text_config(decoder=True), kind=kind, translates=translates
    )
    try:
        return replace(reader.architecture(), family=text.model_type)
    except UsageError:
        raise
    except Exception as error:  # names and shapes that no reader foresaw
        raise reader.unknown("a part") from error


def defaults_of(values: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """Return what transformers' class makes of some values; None where it is not installed.

    Raises:
        UsageError: It does not take them.
    """
    if known_families() is None:
        return None
    with _refusing(kind):
        made: Mapping[str, Any] = _configuration(values, kind).to_dict()
    return made


@contextmanager
def _refusing(kind: str) -> Iterator[None]:
    try:
        with transformers_silent():
            yield
    except UsageError:
        raise
    except Exception as error:  # whatever a class says of values that it does not take
        reason = re.sub(r"\s+", " ", printable(str(error))).strip()[:200]
        raise refusal(
            f"transformers' class for {printable(kind)} does not take the configuration: {reason}",
            hint=_PUBLISHED,
        ) from error


def _configuration(values: Mapping[str, Any], kind: str) -> Any:
    from transformers import CONFIG_MAPPING

    made = CONFIG_MAPPING[kind]
    # Any other key becomes an attribute of the object: none may hide one of its methods.
    plain = {
        key: value
        for key, value in values.items()
        if not key.startswith("_") and key not in _LEFT_OUT and not callable(getattr(made, key, None))
    }
    return made(**plain)


def _built(config: Any, kind: str, *, translates: bool) -> TorchModule:
    from transformers import AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM
    from transformers.models.auto import modeling_auto as names

    if translates:
        autos: tuple[Any, ...] = (AutoModelForSeq2SeqLM,)
    elif kind in names.MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False):
        autos = ()
    else:
        # The text part of a model that sees or hears has no head of its own in transformers.
        around = {
            *names.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
            *names.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
        }
        autos = (AutoModelForCausalLM, *([AutoModel] if kind.removesuffix("_text") in around else []))
    for auto in autos:
        if type(config) in auto._model_mapping:  # noqa: SLF001
            with built_with("meta"):
                return auto.from_config(config)
    raise refusal(
        f"transformers has no model for {printable(kind)} that generates text by itself",
        hint="give the model as model.py, whose steps are exported",
    )


# Parts, by the names that transformers' modules have.
_OUT = frozenset("o_proj out_proj dense c_proj wo output output_linear proj_out o dense_4h_to_h fc_out".split())  # noqa: SIM905
_FUSED = frozenset("qkv_proj query_key_value c_attn Wqkv qkv att_proj qkv_linear".split())  # noqa: SIM905
_QUERY = frozenset({"q_proj", "query", "q", "wq"})
_KEY = frozenset({"k_proj", "key", "k", "wk"})
_VALUE = frozenset({"v_proj", "value", "v", "wv"})
_DOWN = frozenset(
    "down_proj proj_down c_proj fc2 w2 dense_4h_to_h output_linear fc_out wo ff_out lin2 value".split()  # noqa: SIM905
)
_CHOSEN = (
    "num_experts_per_tok num_experts_per_token moe_topk moe_k top_k_experts top_k moe_top_k".split()  # noqa: SIM905
)
# Of two projections of a feed-forward part, the one that gates.
_GATE = re.compile(r"gate[^.]*$|w1$|wi_0$|linear_1$")
_COUNTED = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_ACTIVATIONS = {"silu": "Silu", "swish": "Silu", "relu": "Relu", "relu2": "Relu", "quick_gelu": "QuickGelu"}


@dataclass(slots=True, kw_only=True)
class _ModulePart:
    """A module with parameters.

    ``linears`` are those that were not read yet, by name within it; ``roles`` those that were, by what steps
    call what they do.
    """

    name: str
    module: TorchModule
    linears: dict[str, Product] = field(default_factory=dict)
    roles: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def call(self, role: str, *names: str | None) -> None:
        """Note which linear layers do what a step's layer of this name does."""
        known = (*self.roles.get(role, ()), *filter(None, names))
        if known:
            self.roles[role] = known

    def take(self, *names: str) -> None:
        """Mark linear layers as read."""
        for name in names:
            self.linears.pop(name, None)

    def named(self, words: frozenset[str]) -> str | None:
        """Return the name of the first linear layer that is called one of these words, else None."""
        return next((name for name in self.linears if name.rpartition(".")[2] in words), None)

    def number(self, *names: str) -> int:
        """Return the first whole number above zero that the module has under one of these names, else 0."""
        for name in names:
            value = getattr(self.module, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
        return 0

    def number_within(self, *names: str) -> int:
        """Return the same of a module within, where it has none itself."""
        within = (_ModulePart(name=self.name, module=one).number(*names) for one in self.module.modules())
        return next((value for value in within if value), 0)

    @property
    def weights(self) -> dict[str, tuple[int, ...]]:
        """Shapes of its parameters, by name."""
        return {name: tuple(one.shape) for name, one in self.module.named_parameters()}


def _linears(module: TorchModule, prefix: str = "") -> dict[str, Product]:
    """Linear layers of a module by name, also those of the classes of families: a matrix that is no table."""
    result = {}
    for name, one in module.named_modules():
        weight = getattr(one, "weight", None)
        is_other = "Embedding" in type(one).__name__ or "Norm" in type(one).__name__
        if is_other or weight is None or weight.ndim != _MATRIX:
            continue
        # GPT-2's Conv1D has its inputs first.
        outer, inner = weight.shape if type(one).__name__ != "Conv1D" else reversed(tuple(weight.shape))
        has_bias = getattr(one, "bias", None) is not None
        full = f"{prefix}{name}" if name else prefix.rstrip(".")
        result[full] = Product(name=full, inner=int(inner), outer=int(outer), bias=has_bias)
    return result


@dataclass(slots=True, kw_only=True)
class _LayerParts:
    """Parts of one layer, by what they are."""

    mixers: list[Mixer] = field(default_factory=list)
    cross: Attention | None = None
    mixtures: list[Experts] = field(default_factory=list)
    mlps: list[tuple[Mlp, list[Product], Mapping[str, tuple[str, ...]]]] = field(default_factory=list)
    norms: int = 0
    products: list[Product] = field(default_factory=list)
    roles: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class _BuiltModelReader:
    """Reads one model."""

    model: TorchModule
    config: Any
    kind: str
    translates: bool
    windows: list[int] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)
    hidden: int = 0
    norms: dict[str, Any] = field(default_factory=dict)

    def value(self, *keys: str, default: Any = None) -> Any:
        """Return the first of the configuration's values that is there."""
        for key in keys:
            result = getattr(self.config, key, None)
            if result is not None:
                return result
        return default

    def architecture(self) -> Architecture:
        """Return the whole shape."""
        from transformers import DynamicCache

        # 0 for none: as transformers' own cache is made.
        cached = DynamicCache(config=self.config).layers
        self.windows = [int(getattr(layer, "sliding_window", 0) or 0) for layer in cached]
        modules = self._layers()
        embedding = self.model.get_input_embeddings().weight
        rows, width = (int(size) for size in embedding.shape)
        self.hidden = int(self.value("hidden_size", "d_model", "n_embd", default=width))
        self._read_norms(modules)
        seen: set[int] = set()
        layers = [self._layer(at, module, seen) for at, module in enumerate(modules)]
        encoder = None
        if self.translates:
            self.windows = []
            below = [
                self._layer(at, module, seen, most_norms=2) for at, module in enumerate(self._layers("encoder"))
            ]
            # Attention and a feed-forward part, which is all that an encoder's step has.
            for layer in below:
                if not isinstance(layer.mixer, Attention) or not isinstance(layer.mlp, Mlp) or layer.products:
                    raise self.unknown("its encoder")
            encoder = Encoder(layers=tuple(below), place=self.places["encoder"])
        return self._around(layers, encoder, embedding, rows, seen)

    def _layers(self, side: str = "") -> list[TorchModule]:
        side = side or ("decoder" if self.translates else "")
        lists = {
            name: list(module)
            for name, module in self.model.named_modules()
            if type(module).__name__ == "ModuleList"
            and not re.search(r"\.\d+\.|vision|visual|audio", name)
            and (side in name.split(".")) == bool(side)
        }
        if not lists:
            raise self.unknown("it has no list of layers, and so")

        def size(name: str) -> int:
            return sum(weight.numel() for module in lists[name] for weight in module.parameters())

        place = max(lists, key=size)
        self.places[side] = place
        return lists[place]

    def unknown(self, what: str) -> UsageError:
        """Return the error for a model one of whose parts no step is known of."""
        return refusal(
            f"of {printable(self.kind)}, {what} is of a kind that no step is known of",
            hint="give the model as model.py, whose steps are exported",
        )

    def _read_norms(self, modules: Sequence[TorchModule]) -> None:
        for module in modules[0].modules():
            named, has_bias = type(module).__name__, getattr(module, "bias", None) is not None
            if "Norm" in named and any(True for _ in module.parameters(recurse=False)):
                is_layer = ("RMS" not in named and has_bias) or named in ("LayerNorm", "CohereLayerNorm")
                self.norms = {"norm": "layer" if is_layer else "rms", "norm_bias": has_bias}
                return
        self.norms = {"norm_weights": False}

    # Layers.

    def _layer(self, at: int, module: TorchModule, seen: set[int], *, most_norms: int = 4) -> Layer:
        total = 0
        for weight in _stored(module):
            if id(weight) in seen:
                raise self.unknown("a layer, which shares weights with another,")
            seen.add(id(weight))
            total += weight.numel()
        parts = _LayerParts()
        for part in self._parts(module):
            self._sort(part, at, parts)
        if parts.cross is not None and not self.translates:
            raise self.unknown("its attention on what an encoder reads")
        mlp, products = self._mlp_of(parts)
        mlp = mlp or self._loose_mlp(products, parts)
        norms = min(parts.norms, most_norms)
        flag = self.value("use_parallel_residual", "parallel_attn", default=False)
        parallel = mlp is not None and parts.cross is None and (flag is True or norms == 1)
        number = 1 if mlp is None else 3 if parts.cross is not None else 4 if norms > _AROUND else 2
        # A layer of feed-forward alone (Nemotron H) keeps nothing.
        mixers = parts.mixers or [Recurrence(products=())]
        layer = Layer(
            mixer=mixers[0],
            parallel_mixer=mixers[1] if len(mixers) > 1 else None,
            mlp=mlp,
            cross=parts.cross,
            norms=max(1, min(2, norms)) if parallel else number,
            parallel=parallel,
            products=tuple(products),
        )
        # What its known parts leave of its weights.
        around = Architecture(name="", family="", hidden=self.hidden, vocabulary=0, layers=(), **self.norms)
        left = total - layer_parameters(layer, around)
        if left < -total * _SLACK:
            raise self.unknown("a layer")
        return replace(layer, vectors=max(0, left), names=tuple(sorted(parts.roles.items())))

    def _mlp_of(self, parts: _LayerParts) -> tuple[Mlp | Experts | None, list[Product]]:
        """Return experts, with what every token goes to besides where a part of its own; what is left."""
        experts = parts.mixtures[0] if parts.mixtures else None
        largest = max(parts.mlps, key=lambda one: one[0].inner, default=None)
        if experts is not None and experts.shared is not None:
            largest = None
        left = [*parts.products, *(one for mlp in parts.mlps if mlp is not largest for one in mlp[1])]
        if largest is not None:
            place = "mlp" if experts is None else "mlp.shared_expert"
            parts.roles |= {role.replace("mlp", place, 1): names for role, names in largest[2].items()}
        if experts is not None:
            # A router that is no part of what it leads to (Gemma 4).
            routers = [one for one in left if (one.inner, one.outer) == (self.hidden, experts.count)]
            left = [one for one in left if one not in routers[:1]]
        own = largest[0] if largest else None
        return (own if experts is None else replace(experts, shared=experts.shared or own)), left

    def _sort(self, part: _ModulePart, at: int, parts: _LayerParts) -> None:
        """Put a part to its like."""
        kind = self._kind_of(part)
        if kind == "norm":
            parts.norms += 1
        elif kind == "experts":
            parts.mixtures += filter(None, [self._experts(part)])
            parts.roles |= part.roles
        elif kind == "mixer":
            mixer = self._mixer(part, at)
            if isinstance(mixer, Attention) and re.search(r"cross|encoder_attn|EncDec", part.name):
                parts.cross = mixer
                parts.roles |= {
                    role.replace("self_attn", "encoder_attn"): names for role, names in part.roles.items()
                }
            else:
                parts.mixers.append(mixer)
                parts.roles |= part.roles
        elif kind == "mlp":
            every = list(part.linears.values())
            mlp = self._mlp(part)
            if mlp is not None:
                read = [one for one in every if one.name not in part.linears]
                parts.mlps.append((mlp, read, part.roles))
        parts.products += part.linears.values()

    def _parts(self, module: TorchModule) -> Iterator[_ModulePart]:
        for name, child in module.named_children():
            if not any(True for _ in child.parameters()):
                continue
            named = type(child).__name__
            if named == "ModuleList" or re.search(r"Layer(Self|Cross|FF)", named):
                # A list, and what only wraps a part and its norm, is looked into (T5).
                yield from (_renamed(part, f"{name}.") for part in self._parts(child))
            else:
                yield _ModulePart(name=name, module=child, linears=_linears(child, f"{name}."))

    def _kind_of(self, part: _ModulePart) -> str:
        weights, named = part.weights, type(part.module).__name__
        if part.name in part.linears:
            return "linear"
        if all(len(shape) == 1 for shape in weights.values()) and not part.linears:
            return "norm" if "orm" in named or "ln" in part.name else "vectors"
        if not re.search("shared", part.name) and (
            part.name == "experts"
            or any("experts" in name for name in weights)
            or any("Expert" in type(one).__name__ for one in part.module.modules())
        ):
            return "experts"
        names = {name.rpartition(".")[2] for name in part.linears}
        is_mixer = (
            names & _FUSED
            or "kv_b_proj" in names
            or (names & _QUERY and names & _OUT)
            or any(re.search(r"conv|A_log|time_decay|lru|recurrent", name) for name in weights)
            or re.search(r"Attention|Attn|Mixer|DeltaNet", named)
        )
        return "mixer" if is_mixer else "mlp"

    def _mixer(self, part: _ModulePart, at: int) -> Mixer:
        weights = part.weights
        names = {name.rpartition(".")[2] for name in part.linears}
        rates = [shape for name, shape in weights.items() if name.endswith("A_log")]
        is_first = any(len(shape) > 1 for shape in rates) and "x_proj" in names
        if is_first or (rates and any(name.endswith(".D") or name == "D" for name in weights)):
            return self._mamba(part)
        if any(name.endswith("kv_b_proj.weight") for name in weights):
            return self._latent(part)
        is_linear = re.search(r"conv|A_log|time_decay|lru|recurrent", " ".join(weights)) or re.search(
            r"Lightning|Linear|Delta|Recurrent", type(part.module).__name__
        )
        return self._recurrence(part) if is_linear else self._attention(part, at) or self._recurrence(part)

    def _attention(self, part: _ModulePart, at: int) -> Attention | None:
        out = part.named(_OUT) or next((n for n, one in part.linears.items() if one.outer == self.hidden), None)
        if out is None:
            return None
        width, output = part.linears[out].inner, part.linears[out]
        heads = int(
            self.value("num_attention_heads", "n_head", "n_heads", "decoder_attention_heads", default=1)
        )
        size = part.number("head_dim", "head_size") or int(self.value("head_dim", default=0)) or width // heads
        if width % size:
            size = width // heads
        heads = width // size
        fused, query, key, value = (part.named(words) for words in (_FUSED, _QUERY, _KEY, _VALUE))
        # The last layers may read what earlier ones keep: transformers' cache has nothing of them.
        keeps = at < len(self.windows) or not self.value("num_kv_shared_layers")
        window = self.windows[at] if at < len(self.windows) else 0
        known: dict[str, Any] = {"has_keys": keeps}
        if fused is not None:
            one = part.linears[fused]
            keys = max(1, (one.outer - width) // (2 * size))
            known |= dict.fromkeys(("query_bias", "key_bias", "value_bias"), one.bias)
            query = key = value = fused
            part.take(fused)
        elif query is not None:
            query_linear = part.linears[query]
            if query_linear.outer < width:
                return None
            keys = (
                part.linears[key].outer // size
                if key
                else int(self.value("num_key_value_heads", default=heads))
            )
            known |= {
                "query_bias": query_linear.bias,
                "key_bias": key is not None and part.linears[key].bias,
                "value_bias": value is not None and part.linears[value].bias,
                "has_values": value is not None or key is None,
                "has_keys": key is not None and keeps,
                "gate": max(0, query_linear.outer - width),
            }
            if key is not None and not keeps:
                # Projections that are there and are not used: transformers builds them, files hold them.
                part.take(*filter(None, (key, value)))
            part.take(*filter(None, (query, key, value)))
        else:
            return None
        part.take(out)
        for role, name in (("q_proj", query), ("k_proj", key), ("v_proj", value), ("o_proj", out)):
            part.call(f"self_attn.{role}", name)
        return Attention(
            heads=heads,
            key_heads=keys,
            size=size,
            window=window,
            output_bias=output.bias,
            rotary=self._rotary(size),
            softcap=self.value("attn_logit_softcapping") is not None,
            sinks=any(name.endswith("sinks") for name in part.weights),
            **self._head_norms(part, heads, keys, size),
            **known,
        )

    def _head_norms(self, part: _ModulePart, heads: int, keys: int, size: int) -> dict[str, bool]:
        for name, shape in part.weights.items():
            if re.search(r"(q|query|k|key)_?(layer)?norm.*weight$|norm_q.*weight$", name):
                if shape in ((heads, size), (keys, size)):
                    return {"separate_norms": True}
                elements = shape[-1] if len(shape) == 1 else 0
                if elements == size:
                    return {"head_norms": True}
                return {"wide_norms": elements in (heads * size, keys * size)}
        return {}

    def _rotary(self, size: int) -> int:
        table = self.value("rope_parameters", "rope_scaling")
        theta = self.value("rope_theta", "rotary_emb_base", "rotary_dim")
        if (table is None and theta is None) or self.value("alibi") is True:
            return 0
        share = self.value("partial_rotary_factor", "rotary_pct", default=1.0)
        if isinstance(table, Mapping):
            share = table.get("partial_rotary_factor", share)
        return max(2, int(size * float(share)) // 2 * 2)

    def _latent(self, part: _ModulePart) -> LatentAttention:
        query = part.named(frozenset({"q_b_proj", "q_proj"}))
        rank = next((one.outer for name, one in part.linears.items() if name.endswith("q_a_proj")), 0)
        up = next(one for name, one in part.linears.items() if name.endswith("kv_b_proj"))
        down = next(one for name, one in part.linears.items() if re.search(r"kv_a_proj", name))
        out = part.named(_OUT)
        heads = int(self.value("num_attention_heads"))
        if query is None or out is None:
            raise self.unknown("its latent attention")
        rotated, each = down.outer - up.inner, part.linears[query].outer // heads
        value = part.linears[out].inner // heads
        bias = part.linears[out].bias
        read = [name for name in part.linears if re.search(r"(q_a|q_b|q|kv_a|kv_b|o|out)_proj", name)]
        part.call("self_attn.q_b_proj", query)
        part.call("self_attn.o_proj", out)
        for role, word in (("q_a_proj", "q_a_"), ("kv_a_proj_with_mqa", "kv_a_"), ("kv_b_proj", "kv_b_")):
            part.call(f"self_attn.{role}", *[name for name in read if word in name])
        part.take(*read)
        return LatentAttention(
            heads=heads,
            query_rank=rank,
            latent=up.inner,
            rotated=rotated,
            plain=each - rotated,
            value_size=value,
            bias=bias,
        )

    def _mamba(self, part: _ModulePart) -> StateSpace:
        weights = part.weights
        channels, _, taps = weights["conv1d.weight"]
        known: dict[str, Any] = {
            "taps": taps,
            "bias": "in_proj.bias" in weights,
            "conv_bias": "conv1d.bias" in weights,
        }
        for name in [name for name in part.linears if re.search(r"\.(in|x|dt|out)_proj$", name)]:
            part.call(f"mixer.{name.rpartition('.')[2]}", name)
            part.take(name)
        if len(weights["A_log"]) > 1:
            inner, state = weights["A_log"]
            return StateSpace(inner=inner, state=state, rank=weights["dt_proj.weight"][-1], **known)
        inner, heads = weights["out_proj.weight"][-1], weights["A_log"][0]
        groups = part.number("n_groups", "num_groups") or int(
            self.value("n_groups", "mamba_n_groups", default=1)
        )
        state = (channels - inner) // (2 * groups)
        return StateSpace(inner=inner, state=state, rank=0, heads=heads, groups=groups, **known)

    def _recurrence(self, part: _ModulePart) -> Recurrence:
        weights = part.weights
        convolved = [shape for name, shape in weights.items() if "conv" in name and len(shape) == _STACK]
        channels = sum(shape[0] for shape in convolved)
        heads = part.number("num_v_heads", "num_heads", "num_attention_heads", "n_heads")
        key = part.number("head_k_dim", "qk_head_dim", "head_dim")
        value = part.number("head_v_dim", "v_head_dim", "head_dim")
        products = tuple(part.linears.values())
        part.linears.clear()
        known: dict[str, Any] = {}
        if any("time_decay" in name for name in weights):
            # Numerator, denominator and greatest exponent, and the last token of both parts
            # (transformers/models/rwkv/modeling_rwkv.py).
            width = next(shape[-1] for name, shape in weights.items() if name.endswith("time_decay"))
            known = {"heads": width, "value_size": 3, "shifted": 2 * self.hidden}
        elif any("lru" in name for name in weights):
            known = {"heads": channels, "value_size": 1}
        elif heads and key and value:
            known = {"heads": heads, "key_size": key, "value_size": value}
        return Recurrence(
            products=products,
            convolved=channels,
            taps=convolved[0][-1] if convolved else 0,
            delta=any("A_log" in name for name in weights),
            **known,
        )

    # What follows a mixer.

    def _mlp(self, part: _ModulePart, role: str = "mlp") -> Mlp | None:
        down = part.named(_DOWN) or next(
            (n for n, one in part.linears.items() if one.outer == self.hidden), None
        )
        if down is None or part.linears[down].outer != self.hidden:
            return None
        inner = part.linears[down].inner
        ups = [name for name, one in part.linears.items() if one.inner == self.hidden and name != down]
        width = sum(part.linears[name].outer for name in ups)
        if width not in (inner, 2 * inner):
            return None
        bias = part.linears[down].bias
        gates = ups if len(ups) == 1 else [name for name in ups if _GATE.search(name)] or ups[:1]
        if width == 2 * inner:
            part.call(f"{role}.gate_proj", *gates)
        part.call(f"{role}.up_proj", *([name for name in ups if name not in gates] or ups))
        part.call(f"{role}.down_proj", down)
        part.take(down, *ups)
        return Mlp(inner=inner, gated=width == 2 * inner, bias=bias, activation=self._activation())

    def _activation(self) -> str:
        word = self.value(
            "hidden_act", "hidden_activation", "activation_function", "activation", default="silu"
        )
        return _ACTIVATIONS.get(str(word), "Gelu")

    def _loose_mlp(self, loose: list[Product], parts: _LayerParts) -> Mlp | None:
        """Return a feed-forward part whose two layers stand in the layer itself (OPT, BART)."""
        up = next((one for one in loose if one.name in ("fc1", "lin1")), None)
        down = next((one for one in loose if one.name in ("fc2", "lin2")), None)
        if up is None or down is None:
            return None
        loose.remove(up)
        loose.remove(down)
        parts.roles |= {"mlp.up_proj": (up.name,), "mlp.down_proj": (down.name,)}
        return Mlp(inner=down.inner, gated=False, bias=down.bias, activation=self._activation())

    def _experts(self, part: _ModulePart) -> Experts | None:
        weights = part.weights
        stacked = self._stacks(part)
        chosen = next((int(n) for n in (self.value(key) for key in _CHOSEN) if isinstance(n, int) and n > 0), 0)
        chosen = chosen or part.number_within(*_CHOSEN) or 1
        activation = self._activation()
        bias = any(re.search(r"experts\..*bias$", name) for name in weights)
        shared: Mlp | None = None
        if stacked:
            routed = {name: shape for name, shape in stacked.items() if "shared" not in name}
            own = _stacked(routed, self.hidden)
            if own is None:
                return None
            count, inner, gated = own
            base = next(iter(routed)).rpartition(".")[0]
            expert = Mlp(inner=inner, gated=gated, bias=bias, activation=activation)
            always = _stacked({name: stacked[name] for name in stacked if "shared" in name}, self.hidden)
            if always is not None:
                shared = Mlp(inner=always[0] * always[1], gated=always[2], activation=activation)
        else:
            lists = [one for one in part.module.modules() if type(one).__name__ in ("ModuleList", "ModuleDict")]
            largest = max(lists, key=len, default=())
            if not largest:
                return None
            members = list(largest.values()) if hasattr(largest, "values") else list(largest)
            count = len(members)
            paths = part.module.named_modules(prefix=part.name)
            base = next(path for path, one in paths if one is largest)
            one = self._mlp(
                _ModulePart(name="expert", module=members[0], linears=_linears(members[0], "expert."))
            )
            if one is None:
                return None
            expert = one
        for role in ("gate_proj", "up_proj", "down_proj"):
            part.call(f"mlp.experts.{role}", base)
        part.take(*[name for name in part.linears if re.search(r"\.experts?\.", name)])
        # A router may choose among some that do nothing besides (LongCat).
        read = {name: one for name, one in part.linears.items() if one.inner == self.hidden}
        routers = [
            name
            for name, one in read.items()
            if one.outer == count or (count < one.outer <= 2 * count and "gate" in name.rpartition(".")[2])
        ][:1]
        gates = [name for name, one in read.items() if one.outer == 1 and name not in routers][:1]
        part.take(*routers, *gates)
        shared = shared or (self._mlp(part, "mlp.shared_expert") if part.linears else None)
        return Experts(
            count=count,
            chosen=chosen,
            expert=expert,
            shared=shared,
            shared_gate=bool(gates),
            router_bias=any(read[name].bias for name in routers),
        )

    def _stacks(self, part: _ModulePart) -> dict[str, tuple[int, ...]]:
        """Return shapes of weights that all experts have in one, ``[experts, rows, columns]``, by name."""
        result: dict[str, tuple[int, ...]] = {}
        count = next((int(n) for n in map(self.value, _COUNTED) if isinstance(n, int) and n > 0), 0)
        count = count or part.number_within(*_COUNTED)
        for path, module in part.module.named_modules(prefix=part.name):
            is_expert = "xpert" in path or "Expert" in type(module).__name__
            for name, weight in module.named_parameters(recurse=False):
                shape = tuple(weight.shape)
                if len(shape) == _STACK and is_expert:
                    result[f"{path}.{name}"] = shape
                elif len(shape) == _MATRIX and is_expert and name not in ("weight", "bias") and count:
                    # One below the other (DBRX); a bias of each is narrower than the state.
                    rows, rest = divmod(shape[0], count)
                    if not rest and rows > 1 and shape[1] == self.hidden:
                        result[f"{path}.{name}"] = (count, rows, shape[1])
        return result

    # Around the layers.

    def _around(
        self, layers: list[Layer], encoder: Encoder | None, embedding: TorchTensor, rows: int, seen: set[int]
    ) -> Architecture:
        head = getattr(self.model, "get_output_embeddings", lambda: None)()
        weight = getattr(head, "weight", None)
        tied = weight is embedding or (weight is None and bool(self.value("tie_word_embeddings", default=True)))
        known = {id(embedding), id(weight)}
        width = int(embedding.shape[1])
        tables, products, positions = list[Product](), list[Product](), 0
        for path, module in self.model.named_modules():
            own = getattr(module, "weight", None)
            if own is None or id(own) in known | seen or own.ndim != _MATRIX:
                continue
            known.add(id(own))
            if (
                "Embedding" in type(module).__name__
                and own.shape[1] == self.hidden
                and re.search(r"pos|wpe", path)
            ):
                positions += int(own.shape[0])
            elif "Embedding" in type(module).__name__:
                tables.append(Product(name=path, inner=int(own.shape[0]), outer=int(own.shape[1])))
            else:
                products += _linears(module, f"{path}.").values()
        if width != self.hidden:
            # From the embedding's width and back to it (OPT 350M), which the shape has already.
            products = [one for one in products if {one.inner, one.outer} != {width, self.hidden}]
        every = sum({id(one): one.numel() for one in _stored(self.model)}.values())
        if weight is None and not tied:
            # A model that has no head of its own here.
            every += rows * width
        longest = self.value(
            "max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "context_length", default=0
        )
        # A norm behind the layers; where none has weights, as usual.
        norms = [module for module in self.model.modules() if "Norm" in type(module).__name__]
        behind = [one for one in norms if not any(id(own) in seen for own in one.parameters())]
        made = Architecture(
            name="",
            family="",
            hidden=self.hidden,
            vocabulary=rows,
            layers=tuple(layers),
            **self.norms,
            final_norm="norm_weights" in self.norms or any(True for one in behind for _ in one.parameters()),
            tied=tied,
            head_bias=getattr(head, "bias", None) is not None,
            head_softcap=self.value("final_logit_softcapping") is not None,
            position_table=positions,
            longest=longest if isinstance(longest, int) and longest > 0 else 0,
            embedding_size=width if width != self.hidden else 0,
            tables=tuple(tables),
            products=tuple(products),
            encoder=encoder,
            place=self.places["decoder" if self.translates else ""],
        )
        left = every - parameters(made)
        if abs(left) > _SLACK * every and left < 0:
            raise self.unknown("what stands around its layers")
        return replace(made, vectors=max(0, left))


def _stacked(stacks: Mapping[str, tuple[int, ...]], hidden: int) -> tuple[int, int, bool] | None:
    """Return how many experts some stacks are of, the width of one, and whether a projection gates it."""
    downs = [shape for name, shape in stacks.items() if re.search(r"down|w2|output", name)]
    ups = [shape for name, shape in stacks.items() if not re.search(r"down|w2|output", name)]
    if not downs or not ups:
        return None
    count, *sides = downs[0]
    inner = sides[0] if sides[1] == hidden else sides[1]
    # Stacks of ups and downs differ in length where some experts do nothing (LongCat).
    return count, inner, sum(shape[1] * shape[2] for shape in ups) == 2 * inner * hidden


# Axes of a matrix, of a stack of experts, and of a causal convolution.
_MATRIX, _STACK = 2, 3
# Norms of a layer beyond which they stand around both of its parts.
_AROUND = 3
# Of a layer's weights, what a part that was taken for another may miss.
_SLACK = 0.002


def _renamed(part: _ModulePart, prefix: str) -> _ModulePart:
    """Return a part under its name one level up."""
    linears = {
        f"{prefix}{name}": replace(one, name=f"{prefix}{one.name}") for name, one in part.linears.items()
    }
    return _ModulePart(name=f"{prefix}{part.name}", module=part.module, linears=linears)


def _stored(module: TorchModule) -> Iterator[TorchTensor]:
    """Yield tensors of a file: parameters, and buffers that are saved with them."""
    held = set(module.state_dict(keep_vars=True))
    yield from module.parameters()
    yield from (one for name, one in module.named_buffers() if name in held)
