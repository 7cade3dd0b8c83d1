"""Small decoders as ONNX files, as exporters write them: a cache that grows, and a buffer that is shared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

MICROSOFT = "com.microsoft"


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """Sizes of a decoder of the family of GPT, one product for queries, keys and values."""

    layers: int = 2
    heads: int = 4
    key_heads: int = 2
    size: int = 16
    inner: int = 64
    vocabulary: int = 96
    positions: int = 128

    @property
    def hidden(self) -> int:
        return self.heads * self.size

    @property
    def row_macs(self) -> int:
        """Multiplications of a token with weights, the head's included."""
        joined = (self.heads + 2 * self.key_heads) * self.size
        layer = self.hidden * joined + self.hidden**2 + 2 * self.hidden * self.inner
        return self.layers * layer + self.hidden * self.vocabulary

    @property
    def weights(self) -> int:
        """Elements of the embedding, of all products and of all norms."""
        return self.row_macs + self.vocabulary * self.hidden + (2 * self.layers + 1) * self.hidden


@dataclass(kw_only=True)
class _Writer:
    decoder: Decoder
    kind: int = TensorProto.FLOAT
    nodes: list[Any] = field(default_factory=list)
    stored: list[Any] = field(default_factory=list)

    def op(self, op_type: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> str:
        name = f"{outputs[0]}/{op_type}"
        self.nodes.append(helper.make_node(op_type, inputs, outputs, name=name, **attributes))
        return outputs[0]

    def weight(self, name: str, *shape: int) -> str:
        values = np.random.default_rng(len(self.stored)).standard_normal(shape) * 0.05
        kind = helper.tensor_dtype_to_np_dtype(self.kind)
        self.stored.append(onnx.numpy_helper.from_array(values.astype(kind), name))
        return name

    def integers(self, name: str, values: Any) -> str:
        if all(tensor.name != name for tensor in self.stored):
            self.stored.append(onnx.numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def number(self, name: str, value: float) -> str:
        kind = helper.tensor_dtype_to_np_dtype(self.kind)
        self.stored.append(onnx.numpy_helper.from_array(np.array(value, kind), name))
        return name

    def embedded(self) -> str:
        table = self.weight("embedding", self.decoder.vocabulary, self.decoder.hidden)
        return self.op("Gather", [table, "input_ids"], ["state"])

    def normed(self, state: str, name: str) -> str:
        scale = self.weight(f"{name}.weight", self.decoder.hidden)
        return self.op("SimplifiedLayerNormalization", [state, scale], [name], axis=-1, epsilon=1e-5)

    def joined(self, state: str, at: str) -> str:
        """Queries, keys and values of a layer, side by side."""
        decoder = self.decoder
        columns = (decoder.heads + 2 * decoder.key_heads) * decoder.size
        normed = self.normed(state, f"{at}.norm1")
        return self.op("MatMul", [normed, self.weight(f"{at}.qkv", decoder.hidden, columns)], [f"{at}.joined"])

    def finished_layer(self, state: str, attended: str, at: str) -> str:
        hidden, inner = self.decoder.hidden, self.decoder.inner
        out = self.op("MatMul", [attended, self.weight(f"{at}.o", hidden, hidden)], [f"{at}.out"])
        state = self.op("Add", [state, out], [f"{at}.middle"])
        normed = self.normed(state, f"{at}.norm2")
        up = self.op("MatMul", [normed, self.weight(f"{at}.up", hidden, inner)], [f"{at}.wide"])
        active = self.op("Relu", [up], [f"{at}.active"])
        down = self.op("MatMul", [active, self.weight(f"{at}.down", inner, hidden)], [f"{at}.narrow"])
        return self.op("Add", [state, down], [f"{at}.state"])

    def head(self, state: str) -> None:
        decoder = self.decoder
        normed = self.normed(state, "norm")
        self.op("MatMul", [normed, self.weight("head", decoder.hidden, decoder.vocabulary)], ["logits"])

    def model(self, inputs: Sequence[Any], outputs: Sequence[Any], name: str) -> onnx.ModelProto:
        logits: list[int | str] = ["batch_size", "sequence_length", self.decoder.vocabulary]
        graph = helper.make_graph(
            self.nodes, name, inputs, [value("logits", logits, self.kind), *outputs], self.stored
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def value(name: str, shape: Sequence[int | str], kind: int = TensorProto.INT64) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def caches(decoder: Decoder, word: str, length: int | str, kind: int) -> list[onnx.ValueInfoProto]:
    shape: list[int | str] = ["batch_size", decoder.key_heads, length, decoder.size]
    return [
        value(f"{word}.{layer}.{part}", shape, kind)
        for layer in range(decoder.layers)
        for part in ("key", "value")
    ]


def shared_buffer(decoder: Decoder = Decoder(), kind: int = TensorProto.FLOAT16) -> onnx.ModelProto:
    """As ONNX Runtime GenAI's builder writes it: GroupQueryAttention, whose past and present are one buffer."""
    writer = _Writer(decoder=decoder, kind=kind)
    state = writer.embedded()
    last = writer.op("ReduceSum", ["attention_mask", writer.integers("last_axis", [1])], ["lengths"])
    before = writer.op("Sub", [last, writer.integers("one", [1])], ["before"])
    writer.op("Cast", [before], ["seqlens_k"], to=TensorProto.INT32)
    shape = writer.op("Shape", ["attention_mask"], ["mask_shape"])
    total = writer.op("Gather", [shape, writer.integers("second", 1)], ["total_int64"])
    writer.op("Cast", [total], ["total"], to=TensorProto.INT32)
    tables = [writer.weight(name, decoder.positions, decoder.size // 2) for name in ("cos_cache", "sin_cache")]
    for layer in range(decoder.layers):
        at = f"layer{layer}"
        past, present = (
            [f"{word}.{layer}.{part}" for part in ("key", "value")] for word in ("past_key_values", "present")
        )
        attended = writer.op(
            "GroupQueryAttention",
            [writer.joined(state, at), "", "", *past, "seqlens_k", "total", *tables],
            [f"{at}.attended", *present],
            domain=MICROSOFT, num_heads=decoder.heads, kv_num_heads=decoder.key_heads, do_rotary=1,
        )  # fmt: skip
        state = writer.finished_layer(state, attended, at)
    writer.head(state)
    inputs = [
        value("input_ids", ["batch_size", "sequence_length"]),
        value("attention_mask", ["batch_size", "total_sequence_length"]),
        *caches(decoder, "past_key_values", "past_sequence_length", kind),
    ]
    return writer.model(inputs, caches(decoder, "present", "total_sequence_length", kind), "shared")


def growing(
    decoder: Decoder = Decoder(key_heads=4),
    kind: int = TensorProto.FLOAT,
    *,
    past: int | str = "past_sequence_length",
    leave_out: str = "",
    cached: bool = True,
) -> onnx.ModelProto:
    """As Optimum and transformers write it: what is new is joined to the past.

    Args:
        decoder: Its sizes; as many heads of keys as of queries.
        kind: Of its floats.
        past: Length of the cache: a name, or a number.
        leave_out: An output that is forgotten.
        cached: Whether there is a cache at all.
    """
    writer = _Writer(decoder=decoder, kind=kind)
    state = writer.embedded()
    heads, size = decoder.heads, decoder.size
    mask = writer.op("Cast", ["attention_mask"], ["mask_float"], to=kind)
    mask = writer.op("Sub", [mask, writer.number("whole", 1.0)], ["mask_less"])
    mask = writer.op("Mul", [mask, writer.number("much", 1e4)], ["mask_low"])
    mask = writer.op("Unsqueeze", [mask, writer.integers("middle", [1, 2])], ["mask_wide"])
    scale = writer.number("scale", size**-0.5)
    for layer in range(decoder.layers):
        at = f"layer{layer}"
        writer.op("Split", [writer.joined(state, at)], [f"{at}.{name}" for name in "qkv"], axis=-1)
        for name in "qkv":
            shape = writer.integers("by_head", [0, 0, heads, size])
            split = writer.op("Reshape", [f"{at}.{name}", shape], [f"{at}.{name}.split"])
            writer.op("Transpose", [split], [f"{at}.{name}.heads"], perm=[0, 2, 1, 3])
        if cached:
            keys, values = (
                writer.op(
                    "Concat",
                    [f"past_key_values.{layer}.{part}", f"{at}.{name}.heads"],
                    [f"present.{layer}.{part}"],
                    axis=2,
                )
                for part, name in (("key", "k"), ("value", "v"))
            )
        else:
            keys, values = f"{at}.k.heads", f"{at}.v.heads"
        turned = writer.op("Transpose", [keys], [f"{at}.turned"], perm=[0, 1, 3, 2])
        scores = writer.op("MatMul", [f"{at}.q.heads", turned], [f"{at}.scores"])
        scaled = writer.op("Mul", [scores, scale], [f"{at}.scaled"])
        masked = writer.op("Add", [scaled, mask], [f"{at}.masked"])
        shares = writer.op("Softmax", [masked], [f"{at}.shares"], axis=-1)
        mixed = writer.op("MatMul", [shares, values], [f"{at}.mixed"])
        back = writer.op("Transpose", [mixed], [f"{at}.back"], perm=[0, 2, 1, 3])
        shape = writer.integers("by_row", [0, 0, heads * size])
        state = writer.finished_layer(state, writer.op("Reshape", [back, shape], [f"{at}.flat"]), at)
    writer.head(state)
    new = "past_sequence_length + sequence_length" if cached else "sequence_length"
    total = past + 1 if isinstance(past, int) else new
    tokens = 1 if isinstance(past, int) else "sequence_length"
    inputs = [value("input_ids", ["batch_size", tokens]), value("attention_mask", ["batch_size", total])]
    presents = caches(decoder, "present", total, kind)
    if cached:
        inputs += caches(decoder, "past_key_values", past, kind)
    outputs = [each for each in presents if each.name != leave_out] if cached else []
    return writer.model(inputs, outputs, "growing")


def saved(model: onnx.ModelProto, folder: Path, name: str = "model.onnx") -> Path:
    path = folder / name
    onnx.save(model, path)
    return path


def genai_config(decoder: Decoder, *, shared: bool = True) -> dict[str, Any]:
    """As ``onnxruntime_genai.models.builder`` writes ``genai_config.json``."""
    return {
        "model": {
            "bos_token_id": 1,
            "context_length": decoder.positions,
            "decoder": {
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
                "filename": "model.onnx",
                "head_size": decoder.size,
                "hidden_size": decoder.hidden,
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
                "num_attention_heads": decoder.heads,
                "num_hidden_layers": decoder.layers,
                "num_key_value_heads": decoder.key_heads,
            },
            "type": "llama",
            "vocab_size": decoder.vocabulary,
        },
        "search": {"max_length": decoder.positions, "past_present_share_buffer": shared},
    }
