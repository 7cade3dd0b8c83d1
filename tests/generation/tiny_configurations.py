"""Tiny configurations of every family, and the models that transformers builds from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoModelForSpeechSeq2Seq

from analyzer.generation.architecture import Architecture
from analyzer.generation.configurations.families import FAMILIES
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
EVERY: dict[str, Config] = {
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
LINEAR: Config = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
    "linear_value_head_dim": 12, "linear_conv_kernel_dim": 3,
}  # fmt: skip
MAMBA2: Config = {
    "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 6, "mamba_n_groups": 1, "mamba_d_conv": 3,
    "mamba_expand": 2,
}  # fmt: skip
KINDS = ["linear_attention", "full_attention"]
WINDOWS = ["sliding_attention", "full_attention"]
EVERY |= {
    "afmoe": tiny(
        "afmoe",
        head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=20,
        num_dense_layers=1,
        sliding_window=WINDOW,
        layer_types=WINDOWS,
        n_group=1,
        topk_group=1,
    ),
    "apertus": tiny("apertus"),
    "arcee": tiny("arcee", head_dim=8),
    "bamba": tiny(
        "bamba",
        **MAMBA2,
        attn_layer_indices=[1],
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
    ),
    "bart": {
        "model_type": "bart",
        "vocab_size": 96,
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 40,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        "forced_eos_token_id": 2,
    },
    "cohere2": tiny("cohere2", sliding_window=WINDOW, layer_types=WINDOWS, head_dim=8),
    "ernie4_5": tiny("ernie4_5", head_dim=8),
    "exaone4": tiny(
        "exaone4", sliding_window=WINDOW, sliding_window_pattern=2, layer_types=WINDOWS, head_dim=8
    ),
    "falcon_h1": tiny("falcon_h1", **MAMBA2, mamba_d_ssm=64, head_dim=8),
    "gemma3n_text": tiny(
        "gemma3n_text",
        layers=4,
        head_dim=8,
        sliding_window=WINDOW,
        num_kv_shared_layers=2,
        layer_types=WINDOWS * 2,
        vocab_size_per_layer_input=96,
        hidden_size_per_layer_input=6,
        laurel_rank=5,
        altup_num_inputs=2,
        altup_active_idx=0,
        activation_sparsity_pattern=[0.0] * 4,
    ),
    "gemma4_text": tiny(
        "gemma4_text",
        layers=4,
        head_dim=8,
        global_head_dim=16,
        sliding_window=WINDOW,
        layer_types=WINDOWS * 2,
        vocab_size_per_layer_input=96,
        hidden_size_per_layer_input=6,
        num_kv_shared_layers=0,
    ),
    "glm4": tiny("glm4", head_dim=8),
    "glm4_moe": tiny(
        "glm4_moe",
        head_dim=8,
        n_routed_experts=4,
        n_shared_experts=1,
        num_experts_per_tok=2,
        moe_intermediate_size=20,
        first_k_dense_replace=1,
        n_group=1,
        topk_group=1,
        use_qk_norm=True,
        attention_bias=True,
    ),
    "glm4_moe_lite": tiny("glm4_moe_lite", **LATENT),
    "gpt_bigcode": {"model_type": "gpt_bigcode", **GPT},
    "granitemoe": tiny("granitemoe", num_local_experts=4, num_experts_per_tok=2),
    "granitemoehybrid": tiny(
        "granitemoehybrid",
        **MAMBA2,
        num_local_experts=4,
        num_experts_per_tok=2,
        shared_intermediate_size=24,
        layer_types=["mamba", "attention"],
    ),
    "granitemoehybrid without experts": tiny(
        "granitemoehybrid",
        **MAMBA2,
        num_local_experts=0,
        shared_intermediate_size=24,
        layer_types=["mamba", "attention"],
    ),
    "jamba": tiny(
        "jamba",
        layers=4,
        num_experts=4,
        num_experts_per_tok=2,
        attn_layer_period=2,
        attn_layer_offset=1,
        expert_layer_period=2,
        expert_layer_offset=1,
        mamba_d_state=6,
        mamba_d_conv=3,
        mamba_expand=2,
        mamba_dt_rank=5,
        use_mamba_kernels=False,
    ),
    "lfm2": tiny(
        "lfm2", layer_types=["conv", "full_attention"], conv_L_cache=3, block_auto_adjust_ff_dim=False
    ),
    "mamba2": {
        "model_type": "mamba2",
        "vocab_size": 96,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "state_size": 6,
        "num_heads": 8,
        "head_dim": 8,
        "n_groups": 2,
        "conv_kernel": 3,
        "expand": 2,
    },
    "minimax": tiny("minimax", head_dim=8, num_local_experts=4, num_experts_per_tok=2, layer_types=KINDS),
    "minimax_m2": tiny("minimax_m2", head_dim=8, num_local_experts=4, num_experts_per_tok=2),
    "mpt": {
        "model_type": "mpt",
        "vocab_size": 96,
        "d_model": 32,
        "n_layers": 2,
        "n_heads": 4,
        "max_seq_len": 64,
    },
    "nemotron": tiny("nemotron", head_dim=8),
    "olmo3": tiny("olmo3", sliding_window=WINDOW, layer_types=WINDOWS),
    "olmoe": tiny("olmoe", num_experts=4, num_experts_per_tok=2),
    "qwen3_5_text": tiny("qwen3_5_text", head_dim=8, layer_types=KINDS, **LINEAR),
    "qwen3_next": tiny(
        "qwen3_next",
        head_dim=8,
        layer_types=KINDS,
        num_experts=4,
        **MIXTURE,
        shared_expert_intermediate_size=28,
        **LINEAR,
    ),
    "rwkv": {
        "model_type": "rwkv",
        "vocab_size": 96,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "attention_hidden_size": 32,
        "intermediate_size": 48,
        "context_length": 64,
    },
    "seed_oss": tiny("seed_oss", head_dim=8),
    "smollm3": tiny("smollm3"),
}
TINY = {case: raw for case, raw in EVERY.items() if raw["model_type"] in FAMILIES}
# Families that have no reader here: transformers builds them, and their modules are read.
BUILT = {case: raw for case, raw in EVERY.items() if case not in TINY}
# As Falcon 40B, for which transformers' cache holds more than there is to hold: it has a test of its own.
COPYING = {**FALCON, "num_kv_heads": 2, "new_decoder_architecture": True}
AUTO = {"bart": AutoModelForSeq2SeqLM, "t5": AutoModelForSeq2SeqLM, "whisper": AutoModelForSpeechSeq2Seq}


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
