"""Shapes of models for tests, small and published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from analyzer.generation.architecture import Architecture, Attention, Layer, Mlp
from analyzer.generation.configured_model import ConfiguredModel

LLAMA_2_7B: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 128,
    "max_position_embeddings": 4096, "tie_word_embeddings": False, "torch_dtype": "float16",
    "attention_bias": False, "mlp_bias": False, "hidden_act": "silu",
}  # fmt: skip
LLAMA_3_70B: dict[str, Any] = {
    **LLAMA_2_7B, "vocab_size": 128256, "hidden_size": 8192, "intermediate_size": 28672,
    "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
    "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
}  # fmt: skip


def folder(path: Path, config: dict[str, Any], name: str = "model") -> Path:
    """A model's folder with its configuration alone."""
    made = path / name
    made.mkdir(parents=True)
    (made / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return made


def llama(
    layers: int = 32, hidden: int = 4096, heads: int = 32, keys: int = 32, inner: int = 11008
) -> Architecture:
    """A decoder as Llama's, without a longest sequence."""
    size = hidden // heads
    layer = Layer(mixer=Attention(heads=heads, key_heads=keys, size=size, rotary=size), mlp=Mlp(inner=inner))
    return Architecture(
        name="llama", family="llama", hidden=hidden, vocabulary=32000, layers=(layer,) * layers, dtype="float16"
    )


def model(**sizes: int) -> ConfiguredModel:
    """Such a decoder, with its weights in 16 bits."""
    return ConfiguredModel(architecture=llama(**sizes), own_weights="fp16")
