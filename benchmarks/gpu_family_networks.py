"""Networks of a few operators, built node by node, with what is fed to them; for ``gpu_family_cases.py``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]

MICROSOFT = "com.microsoft"
_OPSET, _IR = 21, 10
_TYPES = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "uint8": TensorProto.UINT8,
    "int8": TensorProto.INT8,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
}


@dataclass(frozen=True, kw_only=True)
class Fed:
    """An input of a model.

    Attributes:
        shape, dtype: Of the tensor.
        values: What it holds; None is random.
        on_host: Whether the operator reads it in the host's memory.
    """

    shape: tuple[int, ...]
    dtype: str
    values: Array | None = None
    on_host: bool = False


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model and what it stands for.

    Attributes:
        family: Kind of operator.
        sizes: Its dimensions, in the family's words.
        model: Makes the serialized model, or writes it to a file where it is too large for that.
        fed: Inputs by name.
        shared: Outputs written over an input's memory, output to input.
        copies: How many operators of the kind one run executes.
        optimized: Whether ONNX Runtime may rewrite the graph.
        entries: Of the session's configuration.
        cuda: Options of the CUDA provider.
    """

    family: str
    sizes: Mapping[str, int | str]
    model: Callable[[], bytes | Path]
    fed: Mapping[str, Fed]
    shared: Mapping[str, str] = field(default_factory=dict)
    copies: int = 1
    optimized: bool = False
    entries: Mapping[str, str] = field(default_factory=dict)
    cuda: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Unique."""
        return " ".join((self.family, *(f"{key}={value}" for key, value in self.sizes.items())))


class Network:
    """A model while it is built."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.fed: dict[str, Fed] = {}
        self.stored: dict[str, Any] = {}
        self.results: dict[str, str] = {}
        self.shared: dict[str, str] = {}

    def feed(self, name: str, shape: Sequence[int], dtype: str, **changes: Any) -> str:
        """An input."""
        self.fed.setdefault(name, Fed(shape=tuple(shape), dtype=dtype, **changes))
        return name

    def store(self, name: str, values: Array) -> str:
        """A constant."""
        self.stored.setdefault(name, numpy_helper.from_array(values, name))
        return name

    def add(self, op_type: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: Any) -> str:
        """An operator; its first output's name, the others' end in 1, 2."""
        name = f"{op_type}_{len(self.nodes)}"
        results = [name, *(f"{name}_{number}" for number in range(1, outputs))]
        self.nodes.append(
            helper.make_node(op_type, list(inputs), results, name=f"n_{name}", domain=domain, **attributes)
        )
        return name

    def result(self, name: str, dtype: str, shared: str | None = None) -> None:
        """An output of the model; ``shared`` is the input whose memory it is written over."""
        self.results[name] = dtype
        if shared is not None:
            self.shared[name] = shared

    def model(self) -> bytes:
        """Serialized."""
        fed = [
            helper.make_tensor_value_info(name, _TYPES[each.dtype], each.shape)
            for name, each in self.fed.items()
        ]
        results = [
            helper.make_tensor_value_info(name, _TYPES[kind], None) for name, kind in self.results.items()
        ]
        graph = helper.make_graph(self.nodes, "case", fed, results, list(self.stored.values()))
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(MICROSOFT, 1)]
        return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=_IR).SerializeToString())

    def case(self, family: str, sizes: Mapping[str, int | str], copies: int, **changes: Any) -> Case:
        """What has been built, as a case."""
        return Case(
            family=family,
            sizes=dict(sizes),
            model=self.model,
            fed=dict(self.fed),
            shared=dict(self.shared),
            copies=copies,
            **changes,
        )


def pack(
    net: Network, name: str, depth: int, columns: int, bits: int, block: int, dtype: str
) -> tuple[str, str]:
    blocks = depth // block
    weights = net.feed(name, (columns, blocks, block * bits // 8), "uint8")
    return weights, net.feed(f"{name}_scales", (columns, blocks), dtype)


def packed_product(
    net: Network, x: str, packed: tuple[str, str], depth: int, columns: int, bits: int, block: int
) -> str:
    """One MatMulNBits."""
    sizes = {"K": depth, "N": columns, "bits": bits, "block_size": block}
    return net.add("MatMulNBits", x, *packed, domain=MICROSOFT, **sizes)


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Sizes of one attention.

    Attributes:
        heads: Of queries, of keys and values, and the size of each.
        batch, tokens: Sequences, and new tokens of each.
        context: Tokens that each has in its cache.
        window: Tokens that are looked at; 0 is all.
        dtype: Of everything.
    """

    heads: tuple[int, int, int]
    batch: int
    tokens: int
    context: int
    window: int = 0
    dtype: str = "float16"

    @property
    def total(self) -> int:
        """Tokens of each sequence after it."""
        return self.context + self.tokens


def group_query_attention(
    net: Network,
    name: str,
    attention: Attention,
    *,
    projected: tuple[str, str, str] | None = None,
    rotary: tuple[str, str] | None = None,
) -> str:
    """One GroupQueryAttention whose cache is written in place; ``projected`` are its query, key and value."""
    query_heads, kv_heads, size = attention.heads
    batch, tokens, total, dtype = attention.batch, attention.tokens, attention.total, attention.dtype
    query, key, value = projected or (
        net.feed("q", (batch, tokens, query_heads * size), dtype),
        net.feed("k", (batch, tokens, kv_heads * size), dtype),
        net.feed("v", (batch, tokens, kv_heads * size), dtype),
    )
    cache_shape = (batch, kv_heads, total, size)
    past = [net.feed(f"{kind}_cache_{name}", cache_shape, dtype) for kind in ("k", "v")]
    lengths = net.feed("lengths", (batch,), "int32", values=np.full(batch, total - 1, np.int32))
    whole = net.feed("total", (), "int32", values=np.array(total, np.int32), on_host=True)
    attributes: dict[str, Any] = {"num_heads": query_heads, "kv_num_heads": kv_heads}
    if attention.window:
        attributes["local_window_size"] = attention.window
    if rotary:
        attributes["do_rotary"] = 1
    inputs = (query, key, value, *past, lengths, whole, *(rotary or ()))
    result = net.add("GroupQueryAttention", *inputs, outputs=3, domain=MICROSOFT, **attributes)
    for number, each in enumerate(past, 1):
        net.result(f"{result}_{number}", dtype, shared=each)
    return result
