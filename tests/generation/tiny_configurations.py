"""Tiny configurations of every family, and the models that transformers builds from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoModelForSpeechSeq2Seq

from analyzer.generation.architecture import Architecture
from analyzer.generation.configurations.hugging_face import architecture_of

Config = dict[str, Any]

WINDOW = 7
SOURCE = 9


def usual(
    kind: str, vocabulary: int, hidden: int, inner: int, layers: int, heads: int, keys: int, **more: Any
) -> Config:
    return {
        "model_type": kind,
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": keys,
        "max_position_embeddings": 4096,
        **more,
    }


def tiny(kind: str, *, keys: int = 2, layers: int = 2, **more: Any) -> Config:
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return usual(kind, 96, 32, 48, layers, 4, keys, **tokens, **more)


MIXTURE: Config = {"num_experts_per_tok": 2, "moe_intermediate_size": 20}
LATENT: Config = {
    "keys": 4,
    "q_lora_rank": 12,
    "kv_lora_rank": 10,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 6,
    "v_head_dim": 8,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    **MIXTURE,
}
INDEXED = {**LATENT, "index_head_dim": 16, "index_n_heads": 4, "index_topk": 8}
GPT = {
    "vocab_size": 96, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
FALCON = {
    "model_type": "falcon",
    "vocab_size": 96,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
T5 = {
    "model_type": "t5", "vocab_size": 96, "d_model": 32, "d_kv": 6, "d_ff": 48, "num_layers": 2, "num_heads": 4,
    "num_decoder_layers": 3, "decoder_start_token_id": 0,
}  # fmt: skip
TINY: dict[str, Config] = {
    "bloom": {"model_type": "bloom", "vocab_size": 96, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "cohere": tiny("cohere", use_qk_norm=True),
    "deepseek_v2": tiny("deepseek_v2", **LATENT),
    "deepseek_v2 lite": tiny("deepseek_v2", **{**LATENT, "q_lora_rank": None}),
    "deepseek_v3": tiny("deepseek_v3", **LATENT),
    "deepseek_v3 with biases": tiny("deepseek_v3", **LATENT, attention_bias=True),
    "deepseek_v32": tiny("deepseek_v32", **INDEXED),
    "falcon": FALCON,
    "falcon with ALiBi": {**FALCON, "multi_query": False, "parallel_attn": False, "alibi": True, "bias": True},
    "gemma": tiny("gemma", head_dim=12),
    "gemma2": tiny("gemma2", head_dim=12, sliding_window=WINDOW),
    "gemma3_text": tiny("gemma3_text", head_dim=12, sliding_window=WINDOW, layers=7),
    "glm_moe_dsa": tiny("glm_moe_dsa", **INDEXED),
    "glm_moe_dsa sharing": tiny("glm_moe_dsa", **INDEXED, layers=4, index_topk_freq=2),
    "gpt2": {"model_type": "gpt2", **GPT},
    "gpt_neox": tiny("gpt_neox"),
    "gpt_oss": tiny("gpt_oss", head_dim=12, sliding_window=WINDOW, num_local_experts=4, num_experts_per_tok=2),
    "gptj": {"model_type": "gptj", **GPT, "rotary_dim": 4},
    "granite": tiny("granite", attention_bias=True, mlp_bias=True),
    "kimi_k2": tiny("kimi_k2", **LATENT),
    "llama": tiny("llama"),
    "llama with biases": tiny("llama", head_dim=12, attention_bias=True, mlp_bias=True),
    "llama tied": tiny("llama", tie_word_embeddings=True),
    "llama4_text": tiny(
        "llama4_text", layers=4, head_dim=12, intermediate_size_mlp=56, num_local_experts=4,
        num_experts_per_tok=1,
        interleave_moe_layer_step=2, attention_chunk_size=WINDOW,
    ),
    "mamba": {"model_type": "mamba", "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2,
              "state_size": 8},
    "mamba with biases": {
        "model_type": "mamba", "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8,
        "use_bias": True, "use_conv_bias": False, "expand": 3, "conv_kernel": 3, "time_step_rank": 5,
    },
    "mistral": tiny("mistral", sliding_window=WINDOW),
    "mistral without windows": tiny("mistral", sliding_window=None),
    "mixtral": tiny("mixtral", num_local_experts=4, num_experts_per_tok=2),
    "olmo2": tiny("olmo2"),
    "opt": tiny("opt", ffn_dim=48),
    "opt projected": tiny("opt", ffn_dim=40, word_embed_proj_dim=16, do_layer_norm_before=False),
    "opt without weights of norms": tiny("opt", ffn_dim=48, layer_norm_elementwise_affine=False,
                                         enable_bias=False),
    "phi": tiny("phi", qk_layernorm=True),
    "phi3": tiny("phi3", sliding_window=WINDOW),
    "phimoe": tiny("phimoe", num_local_experts=4, num_experts_per_tok=2, lm_head_bias=True,
                   attention_bias=True),
    "qwen2": tiny("qwen2", layers=4, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=3),
    "qwen2_moe": tiny("qwen2_moe", num_experts=4, **MIXTURE, shared_expert_intermediate_size=28,
                      decoder_sparse_step=2),
    "qwen3": tiny("qwen3", head_dim=12),
    "qwen3_moe": tiny("qwen3_moe", head_dim=12, num_experts=4, **MIXTURE, mlp_only_layers=[1]),
    "stablelm": tiny("stablelm", qk_layernorm=True, use_qkv_bias=True),
    "stablelm in parallel": tiny("stablelm", use_parallel_residual=True),
    "starcoder2": tiny("starcoder2", sliding_window=WINDOW),
    "t5": T5,
    "t5 1.1": {**T5, "feed_forward_proj": "gated-gelu"},
    "whisper": {
        "model_type": "whisper", "vocab_size": 96, "d_model": 32, "encoder_layers": 2, "decoder_layers": 3,
        "encoder_attention_heads": 4, "decoder_attention_heads": 8, "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 40,
        "max_source_positions": SOURCE, "max_target_positions": 16, "num_mel_bins": 10, "pad_token_id": 0,
        "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3,
    },
}  # fmt: skip
# As Falcon 40B, for which transformers' cache holds more than there is to hold: it has a test of its own.
COPYING = {**FALCON, "num_kv_heads": 2, "new_decoder_architecture": True}
AUTO = {"t5": AutoModelForSeq2SeqLM, "whisper": AutoModelForSpeechSeq2Seq}


def class_of(raw: Mapping[str, Any]) -> Any:
    # kimi_k2 is a name that transformers has no class for (Kimi_K25Config reads it as deepseek_v3).
    kind = {"kimi_k2": "deepseek_v3"}.get(raw["model_type"], raw["model_type"])
    return CONFIG_MAPPING[kind](**{key: value for key, value in raw.items() if key != "model_type"})


def model_of(raw: Mapping[str, Any], device: str) -> Any:
    config = class_of(raw)
    with torch.device(device):
        model: Any = AUTO.get(config.model_type, AutoModelForCausalLM)
        return model.from_config(config).eval()


def shape(raw: Mapping[str, Any]) -> Architecture:
    return architecture_of(raw, name="tiny")
