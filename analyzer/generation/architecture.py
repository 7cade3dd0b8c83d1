"""A generating model's shape, whatever its family: what graphs are made from and weights are counted by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Literal, assert_never

Norm = Literal["rms", "layer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Storage of a weight matrix's elements in fewer bits, with scales.

    Attributes:
        bits: Of an element, without its share of scales; a mean where elements differ.
        is_float: Whether they are 8-bit floats, which some devices multiply as such.
        block: Inputs that share a scale; 0 for all.
        block_rows: Outputs that share a scale; 0 for all.
        scale_bits: Of a scale.
        zero_bits: Of a zero point for each scale; 0 where there is none.
        table: Values, as wide as a scale, of a codebook that elements are read from; 0 where they are numbers.
    """

    bits: float
    is_float: bool = False
    block: int = 128
    block_rows: int = 1
    scale_bits: int = 16
    zero_bits: int = 0
    table: int = 0

    @property
    def weights(self) -> Literal["fp8", "int8", "int4"]:
        """The usual name, of the next width where there is none."""
        return "fp8" if self.is_float else "int8" if self.bits > _NARROW else "int4"

    @property
    def is_usual(self) -> bool:
        """Return whether kernels are known for its width."""
        return self.bits in _KERNELS and not self.table

    @property
    def shared_by(self) -> str:
        """Return which elements share a scale, in words."""
        if self.block_rows == 1:
            return f"{self.block} of them" if self.block else "each row"
        return f"each block of {self.block_rows} x {self.block}" if self.block else "each matrix"

    def scales(self, outer: int, inner: int) -> int:
        """Return the number of scales of a matrix."""
        rows = ceil(outer / self.block_rows) if self.block_rows else 1
        return rows * (ceil(inner / self.block) if self.block else 1)


_NARROW, _KERNELS = 4, (4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Attention of one layer on its own sequence, or on an encoder's.

    Attributes:
        heads, key_heads, size: Query heads, heads of keys and values, elements of a head.
        window: Keys that a query sees at most, itself included; 0 for all.
        query_bias, key_bias, value_bias, output_bias: Whether each projection has a bias.
        head_norms: Whether queries and keys are normed head by head (Qwen 3, Gemma 3).
        separate_norms: Whether every head has weights of its own for that, without a bias (Cohere, StableLM);
            else all heads share them.
        wide_norms: Whether they are normed over all heads at once (OLMo 2).
        rotary: Elements of a head that are rotated; 0 without rotary positions.
        softcap: Whether scores are capped.
        sinks: Whether each head has a learnt sink beside its scores (gpt-oss).
        gate: Outputs of the queries' projection that gate the result (Qwen3-Next).
        has_values: Whether values have a projection of their own; else keys are values too (Gemma 4).
        has_keys: Whether it has keys and values of its own; else those of an earlier layer (Gemma 3n).
    """

    heads: int
    key_heads: int
    size: int
    window: int = 0
    query_bias: bool = False
    key_bias: bool = False
    value_bias: bool = False
    output_bias: bool = False
    head_norms: bool = False
    separate_norms: bool = False
    wide_norms: bool = False
    rotary: int = 0
    softcap: bool = False
    sinks: bool = False
    gate: int = 0
    has_values: bool = True
    has_keys: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """The indexer that chooses the keys of a query of latent attention (GLM 5's sparse attention).

    Attributes:
        heads, size: Of its own queries; its one key of that size is kept beside the latent.
    """

    heads: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek): the cache holds one latent and one rotated key for all heads.

    Attributes:
        heads: Of queries, keys and values.
        query_rank: Width of the latent that queries come from; 0 where they come from the hidden state.
        latent: Width of the latent of keys and values (``kv_lora_rank``).
        rotated: Elements of a key that carry positions (``qk_rope_head_dim``).
        plain: The others (``qk_nope_head_dim``).
        value_size: Elements of a value.
        bias: Whether the projections of the hidden state to latents and of the result have biases.
        chosen: Keys that a query looks at, at most; 0 for all.
        indexer: What chooses them; None where nothing does, or an earlier layer's.
    """

    heads: int
    query_rank: int
    latent: int
    rotated: int
    plain: int
    value_size: int
    bias: bool = False
    chosen: int = 0
    indexer: Indexer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSpace:
    """A selective state space (Mamba): a state of constant size in place of a cache.

    Attributes:
        inner: Width inside (``intermediate_size``).
        state: Elements that each channel keeps.
        taps: Of the causal convolution, which keeps as many columns.
        rank: Of the step size's projection; 0 where the input's projection makes the step size (Mamba 2).
        bias: Of the two outer projections.
        conv_bias: Of the convolution.
        heads: Of channels with one step size and one rate each (Mamba 2); 0 where every channel has its own.
        groups: Of heads that share what is written and read (Mamba 2).
    """

    inner: int
    state: int
    taps: int
    rank: int
    bias: bool = False
    conv_bias: bool = True
    heads: int = 0
    groups: int = 1

    @property
    def convolved(self) -> int:
        """Channels of the convolution: of Mamba 2 those that are written and read as well."""
        return self.inner + (2 * self.groups * self.state if self.heads else 0)

    @property
    def summed(self) -> int:
        """Elements of the state, which are sums over all tokens."""
        return self.inner * self.state

    @property
    def elements(self) -> int:
        """Elements that a sequence keeps, columns of the convolution among them."""
        return self.convolved * self.taps + self.summed


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A linear layer of a module of its own.

    ``inner`` and ``outer`` are its inputs and outputs; the name is that within the layer, or within the model.
    """

    name: str
    inner: int
    outer: int
    bias: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """Linear attention, or another mixer whose state does not grow.

    Attributes:
        products: Its projections, in order; those that read the hidden state first.
        heads, key_size, value_size: Of the state, a matrix a head; ``key_size`` is 0 for a state of
            ``value_size`` elements a head that are summed one by one (RWKV).
        convolved, taps: Channels and width of a causal convolution; 0 without.
        delta: Whether a token replaces what the state has for its key (gated delta rule).
        shifted: Elements of earlier tokens that are kept besides (RWKV).
    """

    products: tuple[Product, ...]
    heads: int = 0
    key_size: int = 0
    value_size: int = 0
    convolved: int = 0
    taps: int = 0
    delta: bool = False
    shifted: int = 0

    @property
    def summed(self) -> int:
        """Elements of the state, which are sums over all tokens."""
        return self.heads * max(1, self.key_size) * self.value_size

    @property
    def elements(self) -> int:
        """Elements that a sequence keeps, columns of the convolution among them."""
        return self.convolved * self.taps + self.summed + self.shifted


Mixer = Attention | LatentAttention | StateSpace | Recurrence


@dataclass(frozen=True, slots=True, kw_only=True)
class Mlp:
    """A feed-forward part.

    Attributes:
        inner: Its width.
        gated: Whether a second projection gates the first.
        bias: Whether projections have biases.
        activation: ONNX's operator, ``Silu``, ``Gelu``, ``Relu`` or ``QuickGelu``.
    """

    inner: int
    gated: bool = True
    bias: bool = False
    activation: str = "Silu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A mixture of experts.

    Attributes:
        count, chosen: Experts, and how many a token goes to.
        expert: One of them.
        shared: What every token goes to besides; None without.
        shared_gate: Whether the shared part is weighed by a gate of its own (Qwen 2 MoE).
        router_bias: Whether the router has a bias of one element an expert (gpt-oss; DeepSeek's correction).
    """

    count: int
    chosen: int
    expert: Mlp
    shared: Mlp | None = None
    shared_gate: bool = False
    router_bias: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer.

    Attributes:
        mixer: What mixes positions.
        mlp: What follows; None where nothing does (Mamba).
        cross: Attention on an encoder's states (T5, Whisper), between both; None without.
        norms: How many norms of the hidden state it has: 2 before mixer and mlp, or behind both (OLMo 2), 3
            with ``cross``, 4 around both (Gemma 2), 1 for both in parallel or where no mlp follows.
        parallel: Whether mixer and mlp read the same state, and both are added to it (GPT-NeoX, Falcon).
        parallel_mixer: A second mixer that reads what the first does (Falcon H1); None without.
        products: Linear layers besides, each of which every token goes through.
        vectors: Elements of weights besides that are no matrices.
        stored: How matrices are stored, by their names within the layer; those that are not there are floats.
        names: What the family calls matrices, within the layer, by the names that ``steps`` writes; empty
            where they are the usual ones.
    """

    mixer: Mixer
    mlp: Mlp | Experts | None
    cross: Attention | None = None
    norms: int = 2
    parallel: bool = False
    parallel_mixer: Mixer | None = None
    products: tuple[Product, ...] = ()
    vectors: int = 0
    stored: tuple[tuple[str, Storage], ...] = ()
    names: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """The encoder that reads the source once: a text (T5) or a sound (Whisper).

    Attributes:
        layers: Its own.
        positions: Length of the source that it is always given (Whisper: 1500); 0 where the prompt is the
            source.
        stem_channels: Of Whisper's two convolutions of three taps, the channels that come in (mel bins); 0 for
            token ids, embedded by the decoder's table.
        position_table: Rows of a learnt (or stored) table of positions; 0 without.
        relative_buckets: Buckets of relative positions shared by its layers (T5); 0 without.
        place: What its list of layers is called in files.
    """

    layers: tuple[Layer, ...]
    positions: int = 0
    stem_channels: int = 0
    position_table: int = 0
    relative_buckets: int = 0
    place: str = "model.encoder.layers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A generating model.

    Attributes:
        name: For reports: the folder's or file's name.
        family: ``model_type`` of its configuration.
        hidden, vocabulary: Width of the state between layers, rows of the embedding.
        layers: Those of the decoder, in order.
        norm: Kind of all norms; ``layer`` has a bias as well where ``norm_bias``.
        norm_bias: Whether norms of kind ``layer`` have one.
        norm_weights: Whether norms have weights, and such a bias, at all (OPT's can do without).
        embedding_norm: Whether the embedding is normed (BLOOM).
        embedding_size: Width of the embedding where it is projected to ``hidden`` (OPT 350M); 0 for ``hidden``.
        final_norm: Whether a norm stands before the head.
        tied: Whether the head is the embedding.
        head_bias: Whether the head has a bias.
        head_softcap: Whether logits are capped (Gemma 2).
        position_table: Rows of a learnt table of positions (GPT-2); 0 without.
        relative_buckets: Buckets of relative positions shared by the decoder's layers (T5); 0 without.
        longest: Positions that it was made for (``max_position_embeddings``); 0 where nothing limits them.
        dtype: ONNX's name of the type that its weights are kept in: ``bfloat16``, ``float16``, ``float32``.
        encoder: What reads a source first; None for a decoder alone.
        notes: What of the configuration is left out here, in sentences for people.
        products: Linear layers around the layers, each of which every token goes through.
        tables: Embeddings besides, of each of which a token reads a row: ``inner`` rows of ``outer``.
        vectors: Elements of weights around the layers besides that are no matrices.
        stored: How the embedding and the head are stored, where not as floats, by ``model.embed_tokens`` and
            ``lm_head``.
        place: What the decoder's list of layers is called in files; empty for the usual names.
    """

    name: str
    family: str
    hidden: int
    vocabulary: int
    layers: tuple[Layer, ...]
    norm: Norm = "rms"
    norm_bias: bool = True
    norm_weights: bool = True
    embedding_norm: bool = False
    embedding_size: int = 0
    final_norm: bool = True
    tied: bool = False
    head_bias: bool = False
    head_softcap: bool = False
    position_table: int = 0
    relative_buckets: int = 0
    longest: int = 0
    dtype: str = "bfloat16"
    encoder: Encoder | None = None
    notes: tuple[str, ...] = ()
    products: tuple[Product, ...] = ()
    tables: tuple[Product, ...] = ()
    vectors: int = 0
    stored: tuple[tuple[str, Storage], ...] = ()
    place: str = ""


def mixers_of(layer: Layer) -> tuple[Mixer, ...]:
    """Return what mixes positions in a layer: one, or two side by side."""
    return (layer.mixer,) if layer.parallel_mixer is None else (layer.mixer, layer.parallel_mixer)


def _of_attention(attention: Attention, hidden: int) -> dict[str, int]:
    queries, keys = attention.heads * attention.size, attention.key_heads * attention.size
    result = {"q_proj": hidden * (queries + attention.gate), "o_proj": queries * hidden}
    if attention.has_keys:
        result["k_proj"] = hidden * keys
    if attention.has_keys and attention.has_values:
        result["v_proj"] = hidden * keys
    return result


def _of_latent(attention: LatentAttention, hidden: int) -> dict[str, int]:
    heads, rank, latent = attention.heads, attention.query_rank, attention.latent
    queries = heads * (attention.plain + attention.rotated)
    result = {
        # Down to a latent and up to the heads; the rotated part of keys comes from the state itself.
        "q_b_proj": (rank or hidden) * queries,
        "kv_a_proj_with_mqa": hidden * (latent + attention.rotated),
        "kv_b_proj": latent * heads * (attention.plain + attention.value_size),
        "o_proj": heads * attention.value_size * hidden,
    }
    if rank:
        result["q_a_proj"] = hidden * rank
    if (indexer := attention.indexer) is not None:
        result["indexer.wq_b"] = indexer.heads * indexer.size * (rank or hidden)
        result["indexer.wk"] = hidden * indexer.size
        result["indexer.weights_proj"] = hidden * indexer.heads
    return result


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
                result = _of_attention(mixer, hidden)
            case LatentAttention():
                result = _of_latent(mixer, hidden)
            case StateSpace():
                result = _of_state_space(mixer, hidden)
            case Recurrence():
                result = {product.name: product.inner * product.outer for product in mixer.products}
            case _:
                assert_never(mixer)
        place = {StateSpace: "mixer.", Recurrence: ""}.get(type(mixer), "self_attn.")
        yield from ((f"{place}{name}", size) for name, size in result.items())
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


def cached_elements(mixer: Mixer, tokens: int, width: int = 1) -> int:
    """Return elements that a layer keeps of a sequence of so many tokens, on all devices that share it.

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
