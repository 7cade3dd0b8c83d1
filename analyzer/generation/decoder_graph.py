"""An architecture -> the graph of one step: operators of ONNX Runtime as its model builder joins them.

Queries, keys and values come from one product where no norm stands between; attention, its rotation and the cache
are one operator; a residual sum and the norm behind it are one. Past and present are one buffer, which is full:
the new tokens are its last rows. Only the last token of each sequence reaches the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, prod
from typing import Any

import numpy as np

from analyzer.errors import UsageError
from analyzer.generation.architecture import (
    Architecture,
    Attention,
    Experts,
    LatentAttention,
    Layer,
    Mlp,
    StateSpace,
)
from analyzer.generation.step_sizes import BLOCK, StepSizes, Types
from analyzer.graph import DTYPES, DType, Graph, Node, Tensor

OPSET, MICROSOFT = 21, "com.microsoft"
# Of the one operator that ONNX Runtime does not have.
OWN_DOMAIN = "analyzer.generation"
_VERSIONS = {"ai.onnx": OPSET, MICROSOFT: 1, OWN_DOMAIN: 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGraph:
    """A step's graph.

    Attributes:
        graph: Its operators.
        copies: By operator, how many of the model's it stands for: 1 where all layers are written out.
    """

    graph: Graph
    copies: tuple[int, ...]


def step_graph(
    architecture: Architecture, sizes: StepSizes, types: Types, *, every_layer: bool = False
) -> StepGraph:
    """One step of a decoder, or of one device's share of it.

    Args:
        architecture: The model.
        sizes: Of the step.
        types: What weights, cache and everything else are kept in.
        every_layer: Whether layers that are alike are all written; else one stands for all of its kind.

    Raises:
        UsageError: The width does not divide the query heads.
    """
    check_width(architecture, sizes.width)
    return _Decoder(architecture, sizes, types).step(every_layer=every_layer)


def check_width(architecture: Architecture, width: int) -> None:
    """Refuses to split heads.

    Raises:
        UsageError: The width does not divide the query heads.
    """
    for layer in architecture.layers:
        heads = getattr(layer.mixer, "heads", None)
        if heads is not None and heads % width:
            possible = [str(size) for size in (1, 2, 3, 4, 5, 6, 8, 16) if heads % size == 0]
            raise UsageError(
                f"--gpus {width}: the {heads} query heads of {architecture.name} cannot be split evenly.",
                hint=f"Take --gpus {', '.join(possible)}.",
            )


def kinds_of_layers(architecture: Architecture) -> list[tuple[int, int]]:
    """The first layer of each kind, and how many are like it; the first of all is a kind of its own.

    It has no residual sum before it, so that its norm is another operator.
    """
    found: dict[Layer, list[int]] = {}
    for index, layer in enumerate(architecture.layers[1:], 1):
        found.setdefault(layer, []).append(index)
    return [(0, 1), *((indices[0], len(indices)) for indices in found.values())]


class _Decoder:
    def __init__(self, architecture: Architecture, sizes: StepSizes, types: Types) -> None:
        self.model, self.sizes, self.types = architecture, sizes, types
        self.floats = types.float_type
        self._nodes: list[Node] = []
        self._copies: list[int] = []
        self._stored: dict[str, Tensor] = {}
        self._inputs: list[Tensor] = []
        self._outputs: list[Tensor] = []
        self._carried: dict[str, str] = {}
        self._copies_now, self._module, self._class = 1, "", ""

    # The step, from ids to logits.

    def step(self, *, every_layer: bool) -> StepGraph:
        model, sizes = self.model, self.sizes
        kinds = [(index, 1) for index in range(len(model.layers))] if every_layer else kinds_of_layers(model)
        self._in("model.embed_tokens", "Embedding")
        ids = self._input("input_ids", (sizes.batch, sizes.tokens), "int64")
        self._lengths()
        state = self._embedded(ids)
        pending: Tensor | None = None
        for index, copies in kinds:
            self._copies_now = copies
            state, pending = self._layer(model.layers[index], f"model.layers.{index}", state, pending)
        self._copies_now = 1
        self._in("model.norm", "Norm")
        if model.final_norm:
            state, _ = self._normed("model.norm", state, pending)
        elif pending is not None:
            state = self._sum("model.add", state, pending)
        self._head(state)
        graph = Graph(
            name=model.name,
            nodes=tuple(self._nodes),
            inputs=tuple(self._inputs),
            outputs=tuple(self._outputs),
            initializers=tuple(self._stored.values()),
            opsets=dict(_VERSIONS),
            ir_version=11,
            carried=self._carried,
        )
        return StepGraph(graph=graph, copies=tuple(self._copies))

    def _lengths(self) -> None:
        """What attention with a cache is told of lengths."""
        if not any(isinstance(layer.mixer, Attention) for layer in self.model.layers):
            return
        self._seqlens = self._input("seqlens_k", (self.sizes.batch,), "int32")
        total = np.array(self.sizes.context, np.int32)
        self._total = self._constant("total_sequence_length", (), "int32", total)

    def _embedded(self, ids: Tensor) -> Tensor:
        model, sizes = self.model, self.sizes
        width = model.embedding_size or model.hidden
        # Devices share the rows, and sum what they find.
        table = self._weight("model.embed_tokens.weight", (self._share(model.vocabulary), width))
        state = self._op("Gather", [table, ids], self._rows(width))
        if model.embedding_size:
            self._in("model.project_in", "Linear")
            state = self._product("model.project_in", state, model.embedding_size, model.hidden)
        if model.position_table:
            self._in("model.embed_positions", "Embedding")
            places = self._input("position_ids", (sizes.batch, sizes.tokens), "int64")
            positions = self._weight("model.embed_positions.weight", (model.position_table, model.hidden))
            found = self._op("Gather", [positions, places], self._rows(model.hidden))
            state = self._op("Add", [state, found], self._rows(model.hidden))
        if model.embedding_norm:
            state, _ = self._normed("model.embed_norm", state, None)
        return state

    def _head(self, state: Tensor) -> None:
        model, sizes = self.model, self.sizes
        self._in("lm_head", "Linear")
        if sizes.tokens > 1:
            last = self._constant("last", (), "int64", np.array(-1))
            state = self._op("Gather", [state, last], (sizes.batch, model.hidden), axis=1)
        if model.embedding_size:
            state = self._product("lm_head.project_out", state, model.hidden, model.embedding_size)
        columns = self._share(model.vocabulary)
        width = model.embedding_size or model.hidden
        # A tied head is the embedding, read the other way round.
        name = "model.embed_tokens.weight.T" if model.tied else "lm_head.weight"
        rows = tuple(state.shape or ())[:-1]
        logits = self._op("MatMul", [state, self._weight(name, (width, columns))], (*rows, columns))
        if model.head_bias:
            logits = self._op("Add", [logits, self._weight("lm_head.bias", (columns,))], (*rows, columns))
        if model.head_softcap:
            for op in ("Mul", "Tanh", "Mul"):
                cap = [self._weight("lm_head.cap", ())] if op == "Mul" else []
                logits = self._op(op, [logits, *cap], (*rows, columns))
        self._outputs.insert(0, self._renamed(logits, "logits"))

    # One layer.

    def _layer(
        self, layer: Layer, path: str, state: Tensor, pending: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """What a layer adds is left pending: the sum is the next norm's operator."""
        self._in(f"{path}.input_layernorm", "Norm")
        normed, state = self._normed(f"{path}.input_layernorm", state, pending)
        mixed = self._mixed(layer, path, normed)
        if layer.parallel:
            self._in(f"{path}.mlp", "Mlp")
            beside = normed
            if layer.norms > 1:
                beside, _ = self._normed(f"{path}.post_attention_layernorm", state, None)
            assert layer.mlp is not None
            return state, self._sum(f"{path}.add", mixed, self._fed(layer.mlp, f"{path}.mlp", beside))
        if layer.mlp is None:
            return state, mixed
        self._in(f"{path}.post_attention_layernorm", "Norm")
        if layer.norms > 3:
            mixed, _ = self._normed(f"{path}.post_attention_layernorm", mixed, None)
        if layer.cross is not None:
            normed, state = self._normed(f"{path}.cross_attn_layernorm", state, mixed)
            mixed = self._crossed(layer.cross, f"{path}.encoder_attn", normed)
        self._in(f"{path}.pre_feedforward_layernorm", "Norm")
        normed, state = self._normed(f"{path}.pre_feedforward_layernorm", state, mixed)
        fed = self._fed(layer.mlp, f"{path}.mlp", normed)
        if layer.norms > 3:
            self._in(f"{path}.post_feedforward_layernorm", "Norm")
            fed, _ = self._normed(f"{path}.post_feedforward_layernorm", fed, None)
        return state, fed

    def _mixed(self, layer: Layer, path: str, normed: Tensor) -> Tensor:
        mixer = layer.mixer
        if isinstance(mixer, StateSpace):
            self._in(f"{path}.mixer", "StateSpace")
            return self._selected(mixer, f"{path}.mixer", normed)
        self._in(f"{path}.self_attn", "Attention")
        if isinstance(mixer, LatentAttention):
            return self._latent(mixer, f"{path}.self_attn", normed)
        return self._attended(mixer, f"{path}.self_attn", normed)

    def _attended(self, attention: Attention, path: str, state: Tensor) -> Tensor:
        hidden, size = self.model.hidden, attention.size
        heads = attention.heads // self.sizes.width
        kept = self._key_heads(attention)
        widths = (heads * size, kept * size, kept * size)
        biases = (attention.query_bias, attention.key_bias, attention.value_bias)
        given: list[Tensor | None]
        if attention.head_norms or attention.wide_norms:
            given = []
            for name, width, bias in zip(("q", "k", "v"), widths, biases, strict=True):
                part = self._product(f"{path}.{name}_proj", state, hidden, width, bias=bias)
                if name != "v":
                    part = self._normed_heads(f"{path}.{name}_norm", part, attention)
                given.append(part)
        else:
            whole = self._product(f"{path}.qkv_proj", state, hidden, sum(widths))
            if any(biases):  # one sum, of the parts that have one
                width = sum(own for own, bias in zip(widths, biases, strict=True) if bias)
                bias = self._weight(f"{path}.qkv_proj.bias", (width,))
                whole = self._op("Add", [whole, self._padded(bias, sum(widths))], self._rows(sum(widths)))
            given = [whole, None, None]
        result = self._on_cache(attention, path, given, heads, kept)
        return self._product(
            f"{path}.o_proj", result, heads * size, hidden, bias=attention.output_bias, is_sum=True
        )

    def _padded(self, bias: Tensor, width: int) -> Tensor:
        """A bias beside columns without one: they are zeros of the packed bias, which hold nothing."""
        return bias if bias.shape == (width,) else replace(bias, shape=(width,))

    def _key_heads(self, attention: Attention) -> int:
        """Heads of keys and values on each device: fewer than devices are there on several."""
        return max(1, ceil(attention.key_heads / self.sizes.width))

    def _normed_heads(self, name: str, part: Tensor, attention: Attention) -> Tensor:
        shape = part.shape or ()
        length = int(shape[-1] or 0) if attention.wide_norms else attention.size
        if attention.wide_norms:
            return self._normed(name, part, None, length=length)[0]
        batch, tokens, width = self.sizes.batch, self.sizes.tokens, int(shape[-1] or 0)
        by_head = self._op("Reshape", [part, self._shape_of(-1, length)], (batch * tokens * width // length, length))
        scale = self._weight(f"{name}.weight", (length,))
        normed = self._op("SimplifiedLayerNormalization", [by_head, scale], by_head.shape, axis=-1)
        return self._op("Reshape", [normed, self._shape_of(batch, tokens, width)], (batch, tokens, width))

    def _on_cache(
        self, attention: Attention, path: str, given: list[Tensor | None], heads: int, kept: int
    ) -> Tensor:
        sizes = self.sizes
        shape = (sizes.batch, kept, sizes.context, attention.size)
        past = [self._state(path, name, shape, self.types.cache_type) for name in ("key", "value")]
        tables: list[Tensor | None] = [None, None]
        if attention.rotary:
            length = max(self.model.longest, sizes.context)
            tables = [
                self._weight(f"{table}_{attention.rotary}", (length, attention.rotary // 2))
                for table in ("cos_cache", "sin_cache")
            ]
        inputs = [*given, *[pair[0] for pair in past], self._seqlens, self._total, *tables]
        if attention.sinks:
            inputs += [None, None, self._weight(f"{path}.sinks", (heads,))]
        attributes: dict[str, Any] = {"num_heads": heads, "kv_num_heads": kept}
        if attention.rotary:
            attributes["do_rotary"] = 1
        if attention.rotary and attention.rotary < attention.size:
            attributes["rotary_embedding_dim"] = attention.rotary
        if attention.window:
            attributes["local_window_size"] = attention.window
        if attention.softcap:
            attributes["softcap"] = 50.0
        outputs = [pair[1] for pair in past]
        return self._op(
            "GroupQueryAttention", inputs, self._rows(heads * attention.size), domain=MICROSOFT, more=outputs,
            **attributes,
        )  # fmt: skip

    def _crossed(self, attention: Attention, path: str, state: Tensor) -> Tensor:
        """Attention on an encoder's states, whose keys and values lie in a cache that nothing adds to."""
        self._in(path, "CrossAttention")
        sizes, size = self.sizes, attention.size
        heads = attention.heads // sizes.width
        query = self._product(
            f"{path}.q_proj", state, self.model.hidden, heads * size, bias=attention.query_bias
        )
        shape = (sizes.batch, heads, sizes.source, size)
        cached = []
        for name in ("key", "value"):
            tensor = self._input(f"{self._numbered(path)}.encoder.{name}", shape, self.types.cache_type.name)
            self._carried[tensor.name] = tensor.name
            cached.append(tensor)
        inputs = [query, *cached]
        result = self._op(
            "MultiHeadAttention", inputs, self._rows(heads * size), domain=MICROSOFT, num_heads=heads
        )
        return self._product(
            f"{path}.out_proj", result, heads * size, self.model.hidden, bias=attention.output_bias, is_sum=True
        )

    def _latent(self, attention: LatentAttention, path: str, state: Tensor) -> Tensor:
        """Latent attention: with many new tokens keys are made from latents, with one queries go to latents."""
        sizes, hidden = self.sizes, self.model.hidden
        heads = attention.heads // sizes.width
        key = attention.plain + attention.rotated
        query = state
        rank = attention.query_rank
        if rank:
            query = self._product(f"{path}.q_a_proj", state, hidden, rank, bias=attention.bias, whole=True)
            query, _ = self._normed(f"{path}.q_a_layernorm", query, None, length=rank)
        query = self._product(f"{path}.q_b_proj", query, rank or hidden, heads * key)
        kept = attention.latent + attention.rotated
        made = self._product(
            f"{path}.kv_a_proj_with_mqa", state, hidden, kept, bias=attention.bias, whole=True
        )
        latent = self._op(
            "Slice", [made, *self._bounds(0, attention.latent)], self._rows(attention.latent)
        )
        latent, _ = self._normed(f"{path}.kv_a_layernorm", latent, None, length=attention.latent)
        rotated = self._rotated(attention, made, heads, query)
        if sizes.tokens > 1:
            result = self._expanded(attention, path, heads, latent, rotated)
        else:
            result = self._absorbed(attention, path, heads, latent, rotated)
        values = heads * attention.value_size
        return self._product(f"{path}.o_proj", result, values, hidden, bias=attention.bias, is_sum=True)

    def _rotated(self, attention: LatentAttention, made: Tensor, heads: int, query: Tensor) -> tuple[Tensor, Tensor]:
        """Queries with their positions, and the key that all heads share."""
        sizes, size = self.sizes, attention.rotated
        tables = [
            self._weight(f"{table}_{size}", (max(self.model.longest, sizes.context), size // 2))
            for table in ("cos_cache", "sin_cache")
        ]
        places = self._place_ids()
        shape = tuple(query.shape or ())
        turned = self._op(
            "RotaryEmbedding", [query, places, *tables], shape, domain=MICROSOFT,
            rotary_embedding_dim=size, num_heads=heads,
        )  # fmt: skip
        key = self._op("Slice", [made, *self._bounds(attention.latent, attention.latent + size)], self._rows(size))
        key = self._op("RotaryEmbedding", [key, places, *tables], self._rows(size), domain=MICROSOFT, num_heads=1)
        return turned, key

    def _place_ids(self) -> Tensor:
        known = next((tensor for tensor in self._inputs if tensor.name == "position_ids"), None)
        return known or self._input("position_ids", (self.sizes.batch, self.sizes.tokens), "int64")

    def _expanded(
        self, attention: LatentAttention, path: str, heads: int, latent: Tensor, rotated: tuple[Tensor, Tensor]
    ) -> Tensor:
        sizes = self.sizes
        self._appended(attention, path, latent, rotated[1])
        width = attention.plain + attention.value_size
        made = self._product(f"{path}.kv_b_proj", latent, attention.latent, heads * width)
        # Of each head's columns the first are its key's.
        keys, values = heads * attention.plain, heads * attention.value_size
        key = self._op("Slice", [made, *self._bounds(0, keys)], self._rows(keys))
        value = self._op("Slice", [made, *self._bounds(keys, keys + values)], self._rows(values))
        size = attention.plain + attention.rotated
        whole = self._op("Concat", [key, rotated[1]], self._rows(heads * size), axis=-1)
        return self._op(
            "MultiHeadAttention", [rotated[0], whole, value], (sizes.batch, sizes.tokens, values),
            domain=MICROSOFT, num_heads=heads, unidirectional=1,
        )  # fmt: skip

    def _absorbed(
        self, attention: LatentAttention, path: str, heads: int, latent: Tensor, rotated: tuple[Tensor, Tensor]
    ) -> Tensor:
        """The key's projection is taken to the query's side: all heads then read one latent as key and value.

        A product with the whole cache also sums what of it is no value (64 columns of 576), which saves a copy.
        """
        sizes, batch = self.sizes, self.sizes.batch
        size, wide = attention.plain + attention.rotated, attention.latent + attention.rotated
        cache = self._appended(attention, path, latent, rotated[1])
        if self.types.cache_type is not self.floats:
            cache = self._op("Cast", [cache], cache.shape, to=self.floats.onnx)
        by_head = self._op("Reshape", [rotated[0], self._shape_of(batch, heads, size)], (batch, heads, size))
        plain = self._op("Slice", [by_head, *self._bounds(0, attention.plain)], (batch, heads, attention.plain))
        placed = self._op(
            "Slice", [by_head, *self._bounds(attention.plain, size)], (batch, heads, attention.rotated)
        )
        taken = self._per_head(plain, f"{path}.kv_b_proj.keys", attention.plain, attention.latent)
        query = self._op("Concat", [taken, placed], (batch, heads, wide), axis=-1)
        scores = self._op(
            "FusedMatMul", [query, cache], (batch, heads, sizes.context), domain=MICROSOFT, transB=1,
            alpha=size**-0.5,
        )  # fmt: skip
        shares = self._op("Softmax", [scores], scores.shape, axis=-1)
        mixed = self._op("MatMul", [shares, cache], (batch, heads, wide))
        mixed = self._op("Slice", [mixed, *self._bounds(0, attention.latent)], (batch, heads, attention.latent))
        values = self._per_head(mixed, f"{path}.kv_b_proj.values", attention.latent, attention.value_size)
        rows = (batch, 1, heads * attention.value_size)
        return self._op("Reshape", [values, self._shape_of(*rows)], rows)

    def _per_head(self, state: Tensor, name: str, inner: int, outer: int) -> Tensor:
        """A product of its own for each head; (batch, heads, inner) to (batch, heads, outer)."""
        batch, heads = int((state.shape or ())[0] or 0), int((state.shape or ())[1] or 0)
        turned = self._op("Transpose", [state], (heads, batch, inner), perm=(1, 0, 2))
        made = self._op("MatMul", [turned, self._weight(name, (heads, inner, outer))], (heads, batch, outer))
        return self._op("Transpose", [made], (batch, heads, outer), perm=(1, 0, 2))

    def _appended(self, attention: LatentAttention, path: str, latent: Tensor, key: Tensor) -> Tensor:
        """Makes the new tokens' rows; the cache, whose last rows they are.

        Who runs the steps has bound the result into the cache: ONNX has no operator in ONNX Runtime that does.
        """
        sizes = self.sizes
        wide = attention.latent + attention.rotated
        number = path.split(".")[2]
        past = self._input(
            f"past_key_values.{number}.latent", (sizes.batch, sizes.context, wide), self.types.cache_type.name
        )
        rows = self._op("Concat", [latent, key], self._rows(wide), axis=-1)
        if self.types.cache_type is not self.floats:
            rows = self._op("Cast", [rows], rows.shape, to=self.types.cache_type.onnx, dtype=past.dtype)
        present = self._renamed(rows, f"present.{number}.latent")
        self._outputs.append(present)
        self._carried[past.name] = present.name
        return past

    def _selected(self, mixer: StateSpace, path: str, state: Tensor) -> Tensor:
        """A selective state space: convolution, steps that follow from the input, and the scan."""
        hidden = self.model.hidden
        inner = self._share(mixer.inner)
        both = self._product(f"{path}.in_proj", state, hidden, 2 * inner, bias=mixer.bias)
        source = self._op("Slice", [both, *self._bounds(0, inner)], self._rows(inner))
        gate = self._op("Slice", [both, *self._bounds(inner, 2 * inner)], self._rows(inner))
        mixed = self._convolved(mixer, path, source, inner)
        wide = mixer.rank + 2 * mixer.state
        chosen = self._product(f"{path}.x_proj", mixed, inner, wide)
        rank = self._op("Slice", [chosen, *self._bounds(0, mixer.rank)], self._rows(mixer.rank))
        step = self._product(f"{path}.dt_proj", rank, mixer.rank, inner, bias=True)
        step = self._op("Softplus", [step], self._rows(inner))
        scanned = self._scanned(mixer, path, step, chosen, mixed, inner)
        skipped = self._op("Mul", [mixed, self._weight(f"{path}.D", (inner,))], self._rows(inner))
        summed = self._op("Add", [scanned, skipped], self._rows(inner))
        opened = self._op("QuickGelu", [gate], self._rows(inner), domain=MICROSOFT, alpha=1.0)
        gated = self._op("Mul", [summed, opened], self._rows(inner))
        return self._product(f"{path}.out_proj", gated, inner, hidden, bias=mixer.bias, is_sum=True)

    def _convolved(self, mixer: StateSpace, path: str, source: Tensor, inner: int) -> Tensor:
        sizes = self.sizes
        shape = (sizes.batch, inner, mixer.taps - 1)
        past, present = self._state(path, "conv", shape, self.floats)
        by_channel = self._op("Transpose", [source], (sizes.batch, inner, sizes.tokens), perm=(0, 2, 1))
        inputs: list[Tensor | None] = [by_channel, self._weight(f"{path}.conv1d.weight", (inner, 1, mixer.taps))]
        inputs += [self._weight(f"{path}.conv1d.bias", (inner,)) if mixer.conv_bias else None, past]
        mixed = self._op(
            "CausalConvWithState", inputs, by_channel.shape, domain=MICROSOFT, more=[present], activation="silu"
        )
        return self._op("Transpose", [mixed], self._rows(inner), perm=(0, 2, 1))

    def _scanned(
        self, mixer: StateSpace, path: str, step: Tensor, chosen: Tensor, source: Tensor, inner: int
    ) -> Tensor:
        """The scan. Of one token its operators; of many one pass over what it reads, as fused kernels make it.

        No operator of ONNX Runtime is Mamba's own, and a Scan of its tokens, one after the other, is what
        nobody runs.
        """
        sizes = self.sizes
        batch, tokens, state = sizes.batch, sizes.tokens, mixer.state
        kept = (batch, inner, state)
        past, present = self._state(path, "ssm", kept, DTYPES["float32"])
        rates = self._weight(f"{path}.A_log", (inner, state))
        read = self._op("Slice", [chosen, *self._bounds(mixer.rank, mixer.rank + state)], self._rows(state))
        written = self._op(
            "Slice", [chosen, *self._bounds(mixer.rank + state, mixer.rank + 2 * state)], self._rows(state)
        )
        moved = self._op("Mul", [step, source], self._rows(inner))
        if tokens > 1:
            inputs = [moved, step, read, written, rates, past]
            return self._op("SelectiveScan", inputs, self._rows(inner), domain=OWN_DOMAIN, more=[present])
        by_channel = self._op("Reshape", [step, self._shape_of(batch, inner, 1)], (batch, inner, 1))
        decay = self._op("Exp", [self._op("Mul", [by_channel, rates], kept)], kept)
        added = self._op("Reshape", [moved, self._shape_of(batch, inner, 1)], (batch, inner, 1))
        added = self._op("Mul", [added, read], kept)
        left = self._op("Mul", [decay, past], kept, dtype=past.dtype)
        self._op("Add", [left, added], None, more=[present])
        column = self._op("Reshape", [written, self._shape_of(batch, state, 1)], (batch, state, 1))
        result = self._op("MatMul", [present, column], (batch, inner, 1))
        return self._op("Reshape", [result, self._shape_of(*self._rows(inner))], self._rows(inner))

    # What follows.

    def _fed(self, mlp: Mlp | Experts, path: str, state: Tensor) -> Tensor:
        self._in(path, "Mlp")
        if isinstance(mlp, Mlp):
            return self._through(mlp, path, state)
        return self._routed(mlp, path, state)

    def _through(self, mlp: Mlp, path: str, state: Tensor) -> Tensor:
        hidden, inner = self.model.hidden, self._share(mlp.inner)
        if mlp.gated:
            gate = self._product(f"{path}.gate_proj", state, hidden, inner, bias=mlp.bias)
            up = self._product(f"{path}.up_proj", state, hidden, inner, bias=mlp.bias)
            opened = self._activated(mlp.activation, gate)
            middle = self._op("Mul", [opened, up], self._rows(inner))
        else:
            up = self._product(f"{path}.up_proj", state, hidden, inner, bias=mlp.bias)
            middle = self._activated(mlp.activation, up)
        return self._product(f"{path}.down_proj", middle, inner, hidden, bias=mlp.bias, is_sum=True)

    def _activated(self, activation: str, state: Tensor) -> Tensor:
        if activation in ("Silu", "QuickGelu"):
            alpha = 1.0 if activation == "Silu" else 1.702
            return self._op("QuickGelu", [state], state.shape, domain=MICROSOFT, alpha=alpha)
        if activation == "Gelu":
            return self._op("Gelu", [state], state.shape, approximate="tanh")
        return self._op(activation, [state], state.shape)

    def _routed(self, experts: Experts, path: str, state: Tensor) -> Tensor:
        hidden, rows = self.model.hidden, self.sizes.rows
        flat = self._op("Reshape", [state, self._shape_of(rows, hidden)], (rows, hidden))
        router = self._weight(f"{path}.gate.weight", (hidden, experts.count))
        scores = self._op("MatMul", [flat, router], (rows, experts.count))
        if experts.router_bias:
            bias = self._weight(f"{path}.gate.bias", (experts.count,))
            scores = self._op("Add", [scores, bias], (rows, experts.count))
        self._class = "Experts"
        mixed = self._mixture(experts, path, flat, scores)
        mixed = self._op("Reshape", [mixed, self._shape_of(*self._rows(hidden))], self._rows(hidden))
        if experts.shared is None:
            return mixed
        shared = self._through(experts.shared, f"{path}.shared_expert", state)
        if experts.shared_gate:
            gate = self._weight(f"{path}.shared_expert_gate.weight", (hidden, 1))
            opened = self._op("Sigmoid", [self._op("MatMul", [state, gate], self._rows(1))], self._rows(1))
            shared = self._op("Mul", [shared, opened], self._rows(hidden))
        return self._sum(f"{path}.add", mixed, shared)

    def _mixture(self, experts: Experts, path: str, flat: Tensor, scores: Tensor) -> Tensor:
        hidden, inner, count = self.model.hidden, self._share(experts.expert.inner), experts.count
        first = inner * (2 if experts.expert.gated else 1)
        attributes: dict[str, Any] = {"k": experts.chosen, "normalize_routing_weights": 1}
        attributes["activation_type"] = "swiglu" if experts.expert.gated else "gelu"
        bias = experts.expert.bias
        name = f"{path}.experts"
        biases = [
            self._weight(f"{name}.{part}.bias", (count, width)) if bias else None
            for part, width in (("fc1", first), ("fc2", hidden))
        ]
        rows = self.sizes.rows
        # Scales of 8-bit floats go with the products: the mixture is as wide as they are.
        bits = self.types.weight_bits
        if bits >= 16:
            # Of 16 bits: [experts, in, out] (onnxruntime/core/graph/contrib_ops/contrib_defs.cc).
            weights = [
                self._weight(f"{name}.fc1.weight", (count, hidden, first)),
                self._weight(f"{name}.fc2.weight", (count, inner, hidden)),
            ]
            inputs = [flat, scores, weights[0], biases[0], weights[1], biases[1]]
            return self._op("MoE", inputs, (rows, hidden), domain=MICROSOFT, **attributes)
        per_byte = 8 // bits
        stored = [
            self._weight(f"{name}.fc1.weight", (count, first, hidden // per_byte), "uint8"),
            self._weight(f"{name}.fc2.weight", (count, hidden, ceil(inner / per_byte)), "uint8"),
        ]
        scales = [
            self._weight(f"{name}.fc1.scales", (count, first, ceil(hidden / BLOCK))),
            self._weight(f"{name}.fc2.scales", (count, hidden, ceil(inner / BLOCK))),
        ]
        inputs = [flat, scores, stored[0], scales[0], biases[0], stored[1], scales[1], biases[1]]
        return self._op(
            "QMoE", inputs, (rows, hidden), domain=MICROSOFT, expert_weight_bits=bits, block_size=BLOCK,
            **attributes,
        )  # fmt: skip

    # Operators.

    def _normed(
        self, name: str, state: Tensor, pending: Tensor | None, *, length: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """The norm of a state and what is pending on it, and their sum."""
        length = length or self.model.hidden
        rms = self.model.norm == "rms"
        weights = [self._weight(f"{name}.weight", (length,))]
        if not rms and self.model.norm_bias:
            weights.append(self._weight(f"{name}.bias", (length,)))
        if pending is None:
            op = "SimplifiedLayerNormalization" if rms else "LayerNormalization"
            return self._op(op, [state, *weights], state.shape, axis=-1), state
        summed = self._tensor(state.shape, self.floats)
        op = "SkipSimplifiedLayerNormalization" if rms else "SkipLayerNormalization"
        normed = self._op(
            op, [state, pending, *weights], state.shape, domain=MICROSOFT, more=[None, None, summed]
        )
        return normed, summed

    def _product(
        self,
        name: str,
        state: Tensor,
        inner: int,
        outer: int,
        *,
        bias: bool = False,
        is_sum: bool = False,
        whole: bool = False,
    ) -> Tensor:
        """A linear layer.

        Args:
            name: Of its module.
            state: What it reads.
            inner, outer: Its sizes on one device.
            bias: Whether it has a bias.
            is_sum: Whether devices sum their results up, so that one of them adds the bias.
            whole: Whether each device has all of it.
        """
        del is_sum, whole  # sizes are given as one device has them
        shape = (*tuple(state.shape or ())[:-1], outer)
        result = self._multiplied(name, state, inner, outer, shape)
        if bias:
            result = self._op("Add", [result, self._weight(f"{name}.bias", (outer,))], shape)
        return result

    def _multiplied(
        self, name: str, state: Tensor, inner: int, outer: int, shape: tuple[int | None, ...]
    ) -> Tensor:
        types = self.types
        if types.is_packed:
            bits = types.weight_bits
            blocks = ceil(inner / BLOCK)
            stored = self._weight(f"{name}.weight", (outer, blocks, BLOCK * bits // 8), "uint8")
            scales = self._weight(f"{name}.scales", (outer * blocks,))
            return self._op(
                "MatMulNBits", [state, stored, scales], shape, domain=MICROSOFT, N=outer, K=inner, bits=bits,
                block_size=BLOCK,
            )  # fmt: skip
        if types.weights != "fp8":
            return self._op("MatMul", [state, self._weight(f"{name}.weight", (inner, outer))], shape)
        narrow = self._narrowed(state, name)
        stored = self._weight(f"{name}.weight", (inner, outer), "float8e4m3fn")
        scales = [self._weight(f"{name}.{scale}", (1,), "float32") for scale in ("input_scale", "weight_scale")]
        flat = (prod(int(size or 0) for size in shape[:-1]), outer)
        made = self._op(
            "GemmFloat8", [narrow, stored, None, *scales], flat, domain=MICROSOFT, dtype=self.floats,
            transA=0, transB=0,
        )  # fmt: skip
        return self._op("Reshape", [made, self._shape_of(*shape)], shape)

    def _narrowed(self, state: Tensor, name: str) -> Tensor:
        """A state in 8-bit floats, once for all products that read it."""
        key = f"{state.name}_fp8"
        known = next((tensor for node in self._nodes[-8:] for tensor in node.present_outputs if tensor.name == key), None)
        if known is not None:
            return known
        shape = tuple(state.shape or ())
        flat = (prod(int(size or 0) for size in shape[:-1]), shape[-1])
        scale = self._weight(f"{name}.input_step", (1,))
        wide = self._op("Reshape", [state, self._shape_of(*flat)], flat)
        # Of the state's own type, as QuantizeLinear asks; the product's is a float32.
        return self._op("QuantizeLinear", [wide, scale], flat, dtype=DTYPES["float8e4m3fn"], name=key)

    def _sum(self, name: str, one: Tensor, other: Tensor) -> Tensor:
        return self._op("Add", [one, other], one.shape)

    def _op(
        self,
        op_type: str,
        inputs: Sequence[Tensor | None],
        shape: tuple[int | None, ...] | None,
        *,
        domain: str = "ai.onnx",
        more: Sequence[Tensor | None] = (),
        dtype: DType | None = None,
        name: str = "",
        **attributes: Any,
    ) -> Tensor:
        """Adds an operator; what it writes first."""
        index = len(self._nodes)
        result = None if shape is None else self._tensor(shape, dtype or self.floats, name)
        outputs = (*([result] if result is not None else []), *more)
        self._nodes.append(
            Node(
                index=index,
                name=f"{self._module}/{op_type}_{index}",
                op_type=op_type,
                domain=domain,
                version=_VERSIONS[domain],
                inputs=tuple(inputs),
                outputs=outputs,
                attributes=attributes,
                module=self._module,
                module_class=self._class,
            )
        )
        self._copies.append(self._copies_now)
        first = outputs[0]
        assert first is not None
        return first

    # Tensors.

    def _in(self, module: str, kind: str) -> None:
        self._module, self._class = module, kind

    def _rows(self, width: int) -> tuple[int, int, int]:
        return (self.sizes.batch, self.sizes.tokens, width)

    def _share(self, size: int) -> int:
        """Of a size that devices share, what one has."""
        return ceil(size / self.sizes.width)

    def _tensor(self, shape: tuple[int | None, ...] | None, dtype: DType, name: str = "") -> Tensor:
        return Tensor(name=name or f"{self._module}.{len(self._nodes)}", shape=shape, dtype=dtype)

    def _weight(self, name: str, shape: tuple[int, ...], dtype: str = "") -> Tensor:
        if name not in self._stored:
            self._stored[name] = Tensor(
                name=name, shape=shape, dtype=DTYPES[dtype] if dtype else self.floats, constant=True,
                initializer=True,
            )  # fmt: skip
        return self._stored[name]

    def _constant(self, name: str, shape: tuple[int, ...], dtype: str, value: Any) -> Tensor:
        if name not in self._stored:
            self._stored[name] = Tensor(
                name=name, shape=shape, dtype=DTYPES[dtype], constant=True, initializer=True, value=value
            )
        return self._stored[name]

    def _shape_of(self, *sizes: int | None) -> Tensor:
        value = np.array([size or 0 for size in sizes], np.int64)
        return self._constant("shape_" + "_".join(map(str, value.tolist())), (len(sizes),), "int64", value)

    def _bounds(self, first: int, last: int) -> list[Tensor]:
        """Starts, ends and axes of a Slice along the last axis."""
        return [self._constant(f"at_{at}", (1,), "int64", np.array([at])) for at in (first, last, -1)]

    def _input(self, name: str, shape: tuple[int, ...], dtype: str) -> Tensor:
        tensor = Tensor(name=name, shape=shape, dtype=DTYPES[dtype])
        self._inputs.append(tensor)
        return tensor

    def _numbered(self, path: str) -> str:
        return f"past_key_values.{path.split('.')[2]}"

    def _state(self, path: str, name: str, shape: tuple[int, ...], dtype: DType) -> tuple[Tensor, Tensor]:
        """Past and present of one thing that a layer keeps: one buffer."""
        past = self._input(f"{self._numbered(path)}.{name}", shape, dtype.name)
        present = Tensor(name=f"present.{path.split('.')[2]}.{name}", shape=shape, dtype=dtype)
        self._outputs.append(present)
        self._carried[past.name] = present.name
        return past, present

    def _renamed(self, tensor: Tensor, name: str) -> Tensor:
        """The last operator's result under the name that users know."""
        renamed = replace(tensor, name=name)
        last = self._nodes[-1]
        outputs = tuple(renamed if output is tensor else output for output in last.outputs)
        self._nodes[-1] = replace(last, outputs=outputs)
        return renamed
