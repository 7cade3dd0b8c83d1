"""Configurations of language models against transformers' own models and what was published of them."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_configurations import (
    AUTO,
    BUILT,
    COPYING,
    EVERY,
    SOURCE,
    TINY,
    WINDOW,
    Config,
    class_of,
    model_of,
    shape,
    usual,
)
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    DynamicCache,
    EncoderDecoderCache,
)
from transformers.cache_utils import DynamicSlidingWindowLayer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from analyzer.errors import UsageError
from analyzer.generation.architecture import (
    Architecture,
    Attention,
    Experts,
    LatentAttention,
    StateSpace,
    cached_elements,
    mixers_of,
)
from analyzer.generation.configurations.families import FAMILIES, TEXT_PARTS
from analyzer.generation.configurations.hugging_face import architecture_of
from analyzer.generation.configurations.quantisation import quantisation_of
from analyzer.generation.memory import known_by_size, layer_parameters, parameters
from analyzer.generation.sources import from_values
from analyzer.loading.model_reference import LARGEST_BYTES, PIP_LINE, read_config

DEEPSEEK = {
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
}
# What config.json of each says of its shape, and how many weights are published of it: on its page on Hugging
# Face or in its report; of DeepSeek V3 without the layer that predicts further tokens.
PUBLISHED: dict[str, tuple[Config, int]] = {
    "Llama 2 7B": (usual("llama", 32000, 4096, 11008, 32, 32, 32), 6_738_415_616),
    "Llama 3.1 8B": (usual("llama", 128256, 4096, 14336, 32, 32, 8), 8_030_261_248),
    "Llama 3.1 70B": (usual("llama", 128256, 8192, 28672, 80, 64, 8), 70_553_706_496),
    "Mistral 7B": (usual("mistral", 32000, 4096, 14336, 32, 32, 8), 7_241_732_096),
    "Mixtral 8x7B": (
        usual("mixtral", 32000, 4096, 14336, 32, 32, 8, num_local_experts=8, num_experts_per_tok=2),
        46_702_792_704,
    ),
    "Qwen2.5 0.5B": (usual("qwen2", 151936, 896, 4864, 24, 14, 2, tie_word_embeddings=True), 494_032_768),
    "Qwen2.5 7B": (usual("qwen2", 152064, 3584, 18944, 28, 28, 4), 7_615_616_512),
    "Qwen3 8B": (usual("qwen3", 151936, 4096, 12288, 36, 32, 8, head_dim=128), 8_190_735_360),
    "Qwen1.5 MoE": (
        usual("qwen2_moe", 151936, 2048, 5632, 24, 16, 16, num_experts=60, num_experts_per_tok=4,
              moe_intermediate_size=1408, shared_expert_intermediate_size=5632),
        14_315_784_192,
    ),
    "Qwen3 30B A3B": (
        usual("qwen3_moe", 151936, 2048, 6144, 48, 32, 4, head_dim=128, num_experts=128, num_experts_per_tok=8,
              moe_intermediate_size=768),
        30_532_122_624,
    ),
    "Gemma 7B": (usual("gemma", 256000, 3072, 24576, 28, 16, 16, head_dim=256), 8_537_680_896),
    "Gemma 2 2B": (
        usual("gemma2", 256000, 2304, 9216, 26, 8, 4, head_dim=256, sliding_window=4096), 2_614_341_888,
    ),
    "Gemma 3 1B": (
        usual("gemma3_text", 262144, 1152, 6912, 26, 4, 1, head_dim=256, sliding_window=512), 999_885_952,
    ),
    "Phi 2": (usual("phi", 51200, 2560, 10240, 32, 32, 32), 2_779_683_840),
    "Phi 3 mini": (usual("phi3", 32064, 3072, 8192, 32, 32, 32, sliding_window=2047), 3_821_079_552),
    "Phi 3.5 MoE": (
        usual("phimoe", 32064, 4096, 6400, 32, 32, 8, num_local_experts=16, num_experts_per_tok=2,
              attention_bias=True, lm_head_bias=True),
        41_873_153_344,
    ),
    "GPT-2": (
        {"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12,
         "n_positions": 1024},
        124_439_808,
    ),
    "GPT-J 6B": (
        {"model_type": "gptj", "vocab_size": 50400, "n_embd": 4096, "n_layer": 28, "n_head": 16,
         "n_positions": 2048},
        6_050_882_784,
    ),
    "GPT-NeoX 20B": (usual("gpt_neox", 50432, 6144, 24576, 44, 64, 64), 20_554_567_680),
    "Falcon 7B": (
        {"model_type": "falcon", "vocab_size": 65024, "hidden_size": 4544, "num_hidden_layers": 32,
         "num_attention_heads": 71, "auto_map": {"AutoConfig": "configuration_falcon.FalconConfig"}},
        6_921_720_704,
    ),
    "Falcon 40B": (
        {"model_type": "falcon", "vocab_size": 65024, "hidden_size": 8192, "num_hidden_layers": 60,
         "num_attention_heads": 128, "num_kv_heads": 8, "new_decoder_architecture": True},
        41_303_293_952,
    ),
    "DeepSeek V2 Lite": (
        usual("deepseek_v2", 102400, 2048, 10944, 27, 16, 16, **{**DEEPSEEK, "q_lora_rank": None},
              n_routed_experts=64, num_experts_per_tok=6, n_shared_experts=2, moe_intermediate_size=1408,
              first_k_dense_replace=1),
        15_706_484_224,
    ),
    "DeepSeek V3": (
        usual("deepseek_v3", 129280, 7168, 18432, 61, 128, 128, **DEEPSEEK, n_routed_experts=256,
              num_experts_per_tok=8, n_shared_experts=1, moe_intermediate_size=2048, first_k_dense_replace=3,
              num_nextn_predict_layers=1),
        671_026_419_200,
    ),
    "gpt-oss 20B": (
        usual("gpt_oss", 201088, 2880, 2880, 24, 64, 8, head_dim=64, num_local_experts=32,
              num_experts_per_tok=4,
              sliding_window=128),
        20_914_757_184,
    ),
    "gpt-oss 120B": (
        usual("gpt_oss", 201088, 2880, 2880, 36, 64, 8, head_dim=64, num_local_experts=128,
              num_experts_per_tok=4,
              sliding_window=128),
        116_829_156_672,
    ),
    "Mamba 2.8B": (
        {"model_type": "mamba", "vocab_size": 50280, "hidden_size": 2560, "num_hidden_layers": 64,
         "state_size": 16},
        2_768_345_600,
    ),
    "T5 large": (
        {"model_type": "t5", "vocab_size": 32128, "d_model": 1024, "d_kv": 64, "d_ff": 4096, "num_layers": 24,
         "num_heads": 16},
        737_668_096,
    ),
    # Of T5 1.1: its head is a table of its own.
    "Flan T5 base": (
        {"model_type": "t5", "vocab_size": 32128, "d_model": 768, "d_kv": 64, "d_ff": 2048, "num_layers": 12,
         "num_heads": 12, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        247_577_856,
    ),
    # With the encoder's sinusoids, which the files hold.
    "Whisper large v3": (
        {"model_type": "whisper", "vocab_size": 51866, "d_model": 1280, "encoder_layers": 32,
         "decoder_layers": 32,
         "encoder_attention_heads": 20, "decoder_attention_heads": 20, "encoder_ffn_dim": 5120,
         "decoder_ffn_dim": 5120, "num_mel_bins": 128, "max_source_positions": 1500,
         "max_target_positions": 448},
        1_543_490_560,
    ),
    "OPT 350M": (
        usual("opt", 50272, 1024, 0, 24, 16, 16, ffn_dim=4096, word_embed_proj_dim=512,
              do_layer_norm_before=False)
        | {"max_position_embeddings": 2048},
        331_196_416,
    ),
    "BLOOM 560M": (
        {"model_type": "bloom", "vocab_size": 250880, "n_embed": 1024, "n_layer": 24,
         "num_attention_heads": 16},
        559_214_592,
    ),
    "StarCoder2 3B": (usual("starcoder2", 49152, 3072, 12288, 30, 24, 2), 3_030_371_328),
    "StableLM 3B": (usual("stablelm", 50304, 2560, 6912, 32, 32, 32), 2_795_443_200),
    "OLMo 2 7B": (usual("olmo2", 100352, 4096, 11008, 32, 32, 32), 7_298_617_344),
    "Command R": (usual("cohere", 256000, 8192, 22528, 40, 64, 64), 34_980_831_232),
}  # fmt: skip


# Whose state transformers has elsewhere: a list of lists, or no cache but a state.
WITHOUT_CACHE = {"minimax", "rwkv"}


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where transformers is not installed."""
    monkeypatch.setitem(sys.modules, "transformers", None)


def caches(raw: Mapping[str, Any], tokens: int) -> Iterator[Any]:
    """The layers of the cache after a prompt."""
    model = model_of(raw, "cpu")
    ids = torch.arange(tokens)[None] + 3
    inputs: dict[str, Any] = {"input_ids": ids}
    if raw["model_type"] in ("t5", "bart"):
        inputs = {"input_ids": torch.arange(SOURCE)[None], "decoder_input_ids": ids}
    if raw["model_type"] == "whisper":
        inputs = {"input_features": torch.zeros(1, 10, 2 * SOURCE), "decoder_input_ids": ids}
    with torch.no_grad():
        output = model(**inputs, use_cache=True)
    cache = output.cache_params if raw["model_type"] in ("mamba", "mamba2") else output.past_key_values
    parts = (
        (cache.self_attention_cache, cache.cross_attention_cache)
        if isinstance(cache, EncoderDecoderCache)
        else (cache,)
    )
    for part in parts:
        assert isinstance(part, DynamicCache)
        yield from part.layers


def tensors(layer: Any) -> Iterator[torch.Tensor]:
    for value in vars(layer).values():
        # States are kept by number, and a tensor without dimensions is the window's width.
        many = value.values() if isinstance(value, dict) else (value,)
        yield from (one for one in many if isinstance(one, torch.Tensor) and one.ndim > 1)


def dropped(layer: Any) -> int:
    """What a full window has lost of its oldest token, which the last token still saw."""
    if not isinstance(layer, DynamicSlidingWindowLayer) or layer.cumulative_length < layer.sliding_window:
        return 0
    assert layer.keys is not None
    return 2 * layer.keys[..., 0, :].numel()


def test_every_family_has_a_tiny_model_here() -> None:
    assert {raw["model_type"] for raw in TINY.values()} == set(FAMILIES)


@pytest.mark.parametrize("case", EVERY)
def test_weights_are_those_of_the_model_that_transformers_builds(case: str) -> None:
    model = model_of(EVERY[case], "meta")
    # Tied weights are one parameter; of buffers, files hold the persistent ones.
    held = {name for name, _ in model.named_parameters()} | (
        set(model.state_dict()) & {name for name, _ in model.named_buffers()}
    )
    every = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    assert parameters(shape(EVERY[case])) == sum(every[name].numel() for name in held)


def cache_elements(architecture: Architecture, tokens: int, *, source: int = 0) -> int:
    """Elements that one sequence of so many tokens keeps for its next one.

    A layer with a window keeps as many tokens as its queries see. All of them are in memory while a token is
    computed; transformers drops the oldest right after that, and its cache holds one less between two tokens
    (``DynamicSlidingWindowLayer`` of transformers/cache_utils.py).

    Keys and values are kept once a head of theirs, though transformers keeps Falcon 40B's once a query's head.
    """
    if architecture.encoder and architecture.encoder.positions:
        source = architecture.encoder.positions
    return sum(
        sum(cached_elements(mixer, tokens) for mixer in mixers_of(layer))
        + (cached_elements(layer.cross, source) if layer.cross else 0)
        for layer in architecture.layers
    )


@pytest.mark.parametrize("tokens", [5, 11])
@pytest.mark.parametrize("case", sorted(set(EVERY) - WITHOUT_CACHE))
def test_a_cache_is_the_one_that_transformers_fills(case: str, tokens: int) -> None:
    layers = list(caches(EVERY[case], tokens))
    kept = sum(one.numel() for layer in layers for one in tensors(layer)) + sum(map(dropped, layers))
    assert cache_elements(shape(EVERY[case]), tokens, source=SOURCE) == kept


def test_keys_are_counted_once_where_transformers_copies_them_for_every_head_of_queries() -> None:
    kept = sum(one.numel() for layer in caches(COPYING, 11) for one in tensors(layer))
    # 4 heads of queries share 2 of keys.
    assert 2 * cache_elements(shape(COPYING), 11) == kept
    model = model_of(COPYING, "meta")
    assert parameters(shape(COPYING)) == sum(one.numel() for one in model.parameters())


@pytest.mark.parametrize("case", TINY)
def test_what_a_file_leaves_out_is_what_the_class_puts_there(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = shape({**class_of(TINY[case]).to_dict(), "model_type": TINY[case]["model_type"]})
    monkeypatch.setitem(sys.modules, "transformers", None)
    # DeepSeek V3's class has a layer for further tokens, of which the tiny one says nothing.
    assert shape(TINY[case]) == replace(whole, notes=())


@pytest.mark.parametrize("model", PUBLISHED)
def test_weights_of_published_models_are_as_many_as_their_files_hold(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, count = PUBLISHED[model]
    if config["model_type"] in FAMILIES:
        # A family that has a reader here needs no other package.
        monkeypatch.setitem(sys.modules, "transformers", None)
    assert parameters(architecture_of(config, name=model)) == count


@pytest.mark.usefixtures("alone")
def test_caches_of_published_models_are_as_large_as_their_reports_say() -> None:
    def cache(model: str, tokens: int) -> int:
        return cache_elements(architecture_of(PUBLISHED[model][0], name=model), tokens)

    # 2 (keys and values) * 80 layers * 8 heads * 128 elements: 320 KiB a token in 16 bits.
    assert cache("Llama 3.1 70B", 1000) == 1000 * 2 * 80 * 8 * 128
    # DeepSeek-V3's report, section 2.1.1: the latent of 512 and the rotated key of 64 alone are cached.
    assert cache("DeepSeek V3", 1000) == 1000 * 61 * (512 + 64)
    # Mistral 7B's report: no query sees more than 4,096 tokens.
    assert cache("Mistral 7B", 100_000) == cache("Mistral 7B", 4096) == 4096 * 2 * 32 * 8 * 128
    # Every other layer of gpt-oss has a window of 128.
    assert cache("gpt-oss 20B", 1000) == 2 * 8 * 64 * (12 * 128 + 12 * 1000)
    # Mamba's state: as long as the text may be, 5120 channels of 16 elements and of 4 columns.
    assert cache("Mamba 2.8B", 1) == cache("Mamba 2.8B", 10**6) == 64 * 5120 * (16 + 4)
    # The source of Whisper is 30 s, 1500 positions, whatever was said.
    assert cache("Whisper large v3", 100) == 2 * 32 * 1280 * (100 + 1500)


def test_the_scan_of_a_model_in_16_bits_leaves_states_of_32() -> None:
    raw = TINY["mamba"]
    with torch.no_grad():
        output = model_of(raw, "cpu").bfloat16()(torch.arange(6)[None], use_cache=True)
    every = [one for layer in output.cache_params.layers for one in tensors(layer)]
    wide = [one for one in every if one.dtype == torch.float32]
    assert {one.dtype for one in every} == {torch.float32, torch.bfloat16}
    # The selective scan computes in float32 and gives its last state as that
    # (`selective_scan_fn` of transformers/models/mamba/modeling_mamba.py); the last columns it does not.
    scans = [mixer for layer in shape(raw).layers for mixer in mixers_of(layer)]
    assert all(isinstance(mixer, StateSpace) for mixer in scans)
    assert sum(mixer.summed for mixer in scans if isinstance(mixer, StateSpace)) == sum(
        one.numel() for one in wide
    )


def test_layers_and_what_is_around_them_add_up() -> None:
    model = shape(TINY["llama"])
    # Embedding and head of 96 rows, one norm.
    assert parameters(model) == sum(layer_parameters(one, model) for one in model.layers) + 2 * 96 * 32 + 32


def test_windows_stand_where_the_family_puts_them() -> None:
    def windows(case: str, **more: object) -> list[int]:
        layers = shape({**EVERY[case], **more}).layers
        return [layer.mixer.window for layer in layers if isinstance(layer.mixer, Attention)]

    assert windows("gemma2") == [WINDOW, 0]
    assert windows("gemma3_text") == [WINDOW] * 5 + [0, WINDOW]
    assert windows("qwen2") == [0, 0, 0, WINDOW]
    assert windows("llama4_text") == [WINDOW] * 3 + [0]
    # Or where the file lists them.
    assert windows("gpt_oss", layer_types=["full_attention", "sliding_attention"]) == [0, WINDOW]


def test_experts_stand_where_the_family_puts_them() -> None:
    def sparse(case: str) -> list[bool]:
        return [isinstance(layer.mlp, Experts) for layer in shape(EVERY[case]).layers]

    assert sparse("deepseek_v3") == [False, True]
    assert sparse("qwen2_moe") == [False, True]
    assert sparse("qwen3_moe") == [True, False]
    assert sparse("llama4_text") == [False, True, False, True]


def test_a_layer_that_shares_an_earlier_choice_of_keys_has_no_indexer() -> None:
    mixers = [layer.mixer for layer in shape(TINY["glm_moe_dsa sharing"]).layers]
    assert [mixer.indexer is not None for mixer in mixers if isinstance(mixer, LatentAttention)] == [
        kind == "full" for kind in class_of(TINY["glm_moe_dsa sharing"]).indexer_types
    ]
    pattern = {**TINY["glm_moe_dsa sharing"], "index_topk_pattern": "FSSF"}
    mixers = [layer.mixer for layer in shape(pattern).layers]
    assert [mixer.indexer is not None for mixer in mixers if isinstance(mixer, LatentAttention)] == [
        True, False, False, True,
    ]  # fmt: skip


@pytest.mark.parametrize("kind", TEXT_PARTS)
def test_of_a_model_that_sees_the_text_part_is_taken_and_said_to_be(kind: str) -> None:
    part = TINY[TEXT_PARTS[kind]]
    unnamed = {key: value for key, value in part.items() if key != "model_type"}
    said = {"tie_word_embeddings": shape(part).tied, "vision_config": {"hidden_size": 1}}
    whole = shape({"model_type": kind, "text_config": unnamed, **said})
    assert replace(whole, notes=()) == shape(part)
    assert kind in whole.notes[0]


def test_a_text_part_is_known_by_its_own_family() -> None:
    whole = shape({"model_type": "some_eyes", "text_config": TINY["qwen3"], "dtype": "float16"})
    assert (whole.family, whole.dtype) == ("qwen3", "float16")


VISION: Config = {"hidden_size": 32, "depth": 1, "num_heads": 2, "intermediate_size": 32, "out_hidden_size": 32}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", ["qwen2_vl", "qwen2_5_vl", "mistral3"])
def test_the_model_around_a_text_part_says_whether_its_head_is_the_embedding(kind: str, tied: bool) -> None:
    part = {key: value for key, value in TINY["mistral"].items() if key != "model_type"}
    part |= {"sliding_window": None}
    part |= {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}}
    whole = {"model_type": kind, "text_config": part, "vision_config": VISION, "tie_word_embeddings": tied}
    found = shape(whole)
    assert kind in found.notes[0]
    # Queries and results of 32 x 32, keys and values of 32 x 16; three of 32 x 48; two norms.
    # Qwen's have biases.
    biases = 0 if kind == "mistral3" else 32 + 2 * 16
    layer = 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 48 + 2 * 32 + biases
    assert parameters(found) == 2 * layer + 32 + (1 if tied else 2) * 96 * 32


@pytest.mark.parametrize("kind", ["gemma3", "llava", "mistral3"])
def test_where_nothing_says_so_the_class_around_a_text_part_ties_its_head_or_not(kind: str) -> None:
    part = {key: value for key, value in TINY[TEXT_PARTS[kind]].items() if key != "tie_word_embeddings"}
    theirs = CONFIG_MAPPING[kind](text_config=part).tie_word_embeddings
    assert shape({"model_type": kind, "text_config": part}).tied == theirs


# Sizes of published configurations, and the weights that the models' pages or reports state; of those that see,
# the text part's.
FULL_SIZE: dict[str, tuple[Config, float, float]] = {
    # Qwen3-Next's page: 80B in total, 3B activated.
    "Qwen3-Next 80B": (
        usual("qwen3_next", 151936, 2048, 5120, 48, 16, 2, head_dim=256, num_experts=512,
              num_experts_per_tok=10, moe_intermediate_size=512, shared_expert_intermediate_size=512,
              full_attention_interval=4,
              linear_num_key_heads=16, linear_num_value_heads=32, linear_key_head_dim=128,
              linear_value_head_dim=128, tie_word_embeddings=False),
        79.7e9, 0.005,
    ),
    # zai-org/GLM-4-9B-0414: 9.4B.
    "GLM-4 9B": (
        usual("glm4", 151552, 4096, 13696, 40, 32, 2, head_dim=128, attention_bias=True,
              tie_word_embeddings=False),
        9.4e9, 0.005,
    ),
    # GLM-4.5-Air: 106B with the layer that predicts further tokens, which is left out (about 3 %).
    "GLM-4.5 Air": (
        usual("glm4_moe", 151552, 4096, 10944, 46, 96, 8, head_dim=128, attention_bias=True,
              n_routed_experts=128, n_shared_experts=1, num_experts_per_tok=8, moe_intermediate_size=1408,
              first_k_dense_replace=1, tie_word_embeddings=False),
        106e9, 0.04,
    ),
    # SmolLM3's page: 3.08B.
    "SmolLM3 3B": (usual("smollm3", 128256, 2048, 11008, 36, 16, 4, tie_word_embeddings=True), 3.08e9, 0.005),
    # OLMo 3's page: 7.30B, as OLMo 2 7B.
    "OLMo 3 7B": (
        usual("olmo3", 100278, 4096, 11008, 32, 32, 32, sliding_window=4096, tie_word_embeddings=False),
        7.3e9, 0.005,
    ),
    # mistralai/Mamba-Codestral-7B-v0.1: 7.29B.
    "Mamba 2 7B": (
        {"model_type": "mamba2", "vocab_size": 32768, "hidden_size": 4096, "num_hidden_layers": 64,
         "state_size": 128, "num_heads": 128, "head_dim": 64, "n_groups": 8, "expand": 2, "conv_kernel": 4,
         "tie_word_embeddings": False},
        7.29e9, 0.005,
    ),
    # AI21's Jamba v0.1: 51.6B.
    "Jamba v0.1": (
        usual("jamba", 65536, 4096, 14336, 32, 32, 8, num_experts=16, num_experts_per_tok=2,
              attn_layer_period=8, attn_layer_offset=4, expert_layer_period=2, expert_layer_offset=1,
              tie_word_embeddings=False),
        51.6e9, 0.005,
    ),
    # Bamba 9B's page: 9.78B.
    "Bamba 9B": (
        usual("bamba", 128256, 4096, 14336, 32, 32, 8, attn_layer_indices=[9, 18, 27], mamba_n_heads=128,
              mamba_d_head=64, mamba_d_state=128, mamba_n_groups=1, mamba_expand=2, mamba_d_conv=4,
              tie_word_embeddings=False),
        9.78e9, 0.005,
    ),
    # BigCode's StarCoder: 15.5B.
    "StarCoder": (
        {"model_type": "gpt_bigcode", "vocab_size": 49152, "n_embd": 6144, "n_layer": 40, "n_head": 48,
         "n_positions": 8192, "n_inner": 24576, "multi_query": True},
        15.5e9, 0.005,
    ),
    # MosaicML's MPT 7B: 6.65B.
    "MPT 7B": (
        {"model_type": "mpt", "vocab_size": 50432, "d_model": 4096, "n_layers": 32, "n_heads": 32,
         "max_seq_len": 2048, "no_bias": True},
        6.65e9, 0.005,
    ),
    # facebook/bart-large: 406M.
    "BART large": (
        {"model_type": "bart", "vocab_size": 50265, "d_model": 1024, "encoder_layers": 12, "decoder_layers": 12,
         "encoder_attention_heads": 16, "decoder_attention_heads": 16, "encoder_ffn_dim": 4096,
         "decoder_ffn_dim": 4096, "max_position_embeddings": 1024},
        406e6, 0.005,
    ),
    # RWKV-4 Pile 7B: 7.39B.
    "RWKV-4 7B": (
        {"model_type": "rwkv", "vocab_size": 50277, "hidden_size": 4096, "num_hidden_layers": 32,
         "attention_hidden_size": 4096, "intermediate_size": 16384, "context_length": 1024},
        7.39e9, 0.005,
    ),
}  # fmt: skip


@pytest.mark.parametrize("model", FULL_SIZE)
def test_models_that_transformers_builds_have_as_many_weights_as_published(model: str) -> None:
    config, count, within = FULL_SIZE[model]
    assert parameters(architecture_of(config, name=model)) == pytest.approx(count, rel=within)


# Published sizes of models whose experts stand in the layer itself, or one below the other in a matrix, and the
# weights of them that a token goes through: DBRX 36B of 132B, Gemma 4 26B A4B 3.8B of 25.2B.
READ_BY_A_TOKEN: dict[str, tuple[Config, float]] = {
    "DBRX": (
        {"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "max_seq_len": 32768,
         "vocab_size": 100352, "attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "rope_theta": 500000},
         "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
         "tie_word_embeddings": False},
        36e9,
    ),
    "Gemma 4 26B": (
        usual("gemma4_text", 262144, 2816, 2112, 30, 16, 8, head_dim=256, global_head_dim=512,
              num_global_key_value_heads=2, attention_k_eq_v=True, enable_moe_block=True, num_experts=128,
              top_k_experts=8, moe_intermediate_size=704, hidden_size_per_layer_input=0),
        3.8e9,
    ),
}  # fmt: skip


@pytest.mark.parametrize("model", READ_BY_A_TOKEN)
def test_a_token_goes_through_the_experts_that_are_chosen_alone(model: str) -> None:
    config, count = READ_BY_A_TOKEN[model]
    made = architecture_of(config, name=model)
    mixtures = [layer.mlp for layer in made.layers if isinstance(layer.mlp, Experts)]
    assert len(mixtures) == len(made.layers)
    unread = sum(3 * made.hidden * one.expert.inner * (one.count - one.chosen) for one in mixtures)
    assert parameters(made) - unread == pytest.approx(count, rel=0.02)
    assert known_by_size(made) < 0.02


def test_parts_that_are_known_by_their_sizes_alone_widen_the_interval_and_are_named() -> None:
    whole, hybrid = (from_values(EVERY[case], name="it") for case in ("smollm3", "rwkv"))
    assert (whole.model.unsure, whole.notes) == (1.0, ())
    assert hybrid.model.unsure > 1.5
    assert "only the sizes are known" in hybrid.notes[0]


def read_and_built(kind: str) -> tuple[int, int] | None:
    """Weights of a family's model in the size that its class has by itself: ours, and transformers'."""
    try:
        found = architecture_of({"model_type": kind}, name=kind)
    except UsageError as error:
        # Any other error ends the test, and so does one without a hint.
        return None if error.hint else (0, 1)
    config = CONFIG_MAPPING[kind]()
    if not config.is_encoder_decoder and config.get_text_config(decoder=True) is not config:
        # The model around a text part has its head: tests of text parts compare those.
        return None
    usual_one = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    auto = AUTO.get(kind, usual_one)
    with torch.device("meta"):
        model = auto.from_config(config)
    return parameters(found), sum(one.numel() for one in model.parameters())


def test_every_family_of_transformers_is_counted_to_the_weight_or_refused_with_a_reason() -> None:
    pairs = {kind: read_and_built(kind) for kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES}
    known = {kind: pair for kind, pair in pairs.items() if pair is not None}
    assert not {kind: pair for kind, pair in known.items() if pair[0] != pytest.approx(pair[1], rel=5e-3)}
    # The rest: text parts, encoders, default sizes that build none, and layers of which no step is known.
    assert len(known) > 2 / 3 * len(pairs)


def test_only_layers_of_attention_keep_more_for_a_longer_text() -> None:
    found = architecture_of(FULL_SIZE["Qwen3-Next 80B"][0], name="it")
    grown = cache_elements(found, 2000) - cache_elements(found, 1000)
    # Every fourth of 48 layers: keys and values of 2 heads of 256.
    assert grown == 1000 * 12 * 2 * 2 * 256
    # 36 layers: 32 heads of 128 x 128, and 4 columns of 2 x 16 x 128 + 32 x 128 channels.
    assert cache_elements(found, 0) == 36 * (32 * 128 * 128 + 4 * 8192)
    # No layer of Mamba 2 keeps more.
    state = architecture_of(FULL_SIZE["Mamba 2 7B"][0], name="it")
    assert cache_elements(state, 1) == cache_elements(state, 10**6)


@pytest.mark.parametrize("kind", ["bert", "clip", "vit", "wav2vec2", "trocr"])
def test_what_generates_no_text_by_itself_is_refused(kind: str) -> None:
    error = refused({"model_type": kind})
    assert kind in error.message
    assert "model.py" in error.hint


def test_weights_that_layers_share_are_refused_with_the_reason() -> None:
    assert "zamba" in refused({"model_type": "zamba"}).message


@pytest.mark.usefixtures("alone")
def test_without_transformers_its_own_families_name_the_pip_line() -> None:
    error = refused(BUILT["smollm3"])
    assert "smollm3" in error.message
    assert PIP_LINE in error.hint


@pytest.mark.parametrize(
    ("key", "value"), [("num_hidden_layers", 10**9), ("num_experts", 10**8), ("vocab_size", 10**12)]
)
def test_a_size_that_fills_the_memory_builds_no_model(key: str, value: int) -> None:
    assert "more than" in refused({**BUILT["qwen3_next"], key: value}).message


def test_layers_that_predict_further_tokens_are_left_out_and_said_to_be() -> None:
    (note,) = shape({**TINY["deepseek_v3"], "num_nextn_predict_layers": 1}).notes
    assert "num_nextn_predict_layers" in note


@pytest.mark.parametrize(
    ("told", "dtype"),
    [
        ({}, "bfloat16"),
        ({"torch_dtype": "float16"}, "float16"),
        ({"dtype": "float32", "torch_dtype": "float16"}, "float32"),
        ({"dtype": None, "torch_dtype": "torch.bfloat16"}, "bfloat16"),
    ],
)
def test_the_type_of_weights_is_the_one_that_the_file_says(told: Config, dtype: str) -> None:
    assert shape({**TINY["llama"], **told}).dtype == dtype


def test_t5_and_whisper_are_in_32_bits_where_their_files_say_nothing() -> None:
    assert shape(TINY["t5"]).dtype == shape(TINY["whisper"]).dtype == "float32"


def refused(config: Mapping[str, Any]) -> UsageError:
    with pytest.raises(UsageError) as caught:
        architecture_of(config, name="it")
    assert caught.value.hint
    return caught.value


def test_an_unknown_family_is_named_with_the_nearest_one() -> None:
    error = refused({"model_type": "lama"})
    assert "lama" in error.message
    assert "Did you mean llama?" in error.hint


def test_code_of_the_models_folder_is_said_never_to_be_run() -> None:
    error = refused({"model_type": "eldritch", "auto_map": {"AutoConfig": "configuration.Eldritch"}})
    assert "eldritch" in error.message
    assert "never run" in error.message


def test_a_configuration_without_a_family_is_refused() -> None:
    assert "model_type" in refused({"hidden_size": 8}).message
    assert "model_type" in refused({"model_type": ["llama"]}).message


@pytest.mark.usefixtures("alone")
def test_without_transformers_missing_sizes_are_named_and_its_pip_line_is_given() -> None:
    config = {
        key: value for key, value in TINY["llama"].items() if key not in ("vocab_size", "intermediate_size")
    }
    error = refused(config)
    assert "`vocab_size`" in error.message
    assert "`intermediate_size`" in error.message
    assert "pip install 'onnx-analyzer[transformers]'" in error.hint


def test_the_pip_line_names_this_distribution() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    assert f"'{project['name']}[transformers]'" in PIP_LINE
    assert "transformers" in project["optional-dependencies"]


def test_with_transformers_missing_sizes_are_those_of_its_class() -> None:
    # As Gemma 3 4B's file: neither heads nor their size nor the vocabulary.
    text = {
        "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024,
    }  # fmt: skip
    # Gemma 3's report, table 1: 675 M of embedding and 3,209 M besides.
    count = parameters(shape({"model_type": "gemma3", "text_config": text}))
    assert count == pytest.approx(675e6 + 3209e6, rel=1e-3)


def test_what_transformers_class_refuses_is_one_message() -> None:
    error = refused({"model_type": "llama", "rms_norm_eps": "small"})
    assert "ransformers' class for llama" in error.message
    assert "\n" not in error.message


def test_a_size_that_cannot_be_reaches_no_class() -> None:
    # Which would list a billion kinds of layers.
    assert "more than 1,000" in refused({"model_type": "gemma2", "num_hidden_layers": 10**9}).message


@pytest.mark.parametrize("key", ["to_dict", "__class__", "_attn_implementation", "model_type"])
def test_a_key_that_is_a_method_of_the_class_does_no_harm(key: str) -> None:
    config = {key: "llama", **{one: value for one, value in TINY["llama"].items() if one != "vocab_size"}}
    assert shape(config).vocabulary == 32000


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", "4096"), ("hidden_size", -4), ("hidden_size", 0), ("num_hidden_layers", True),
        ("num_hidden_layers", 10**9), ("num_hidden_layers", 1.5), ("num_attention_heads", 5),
        ("num_key_value_heads", 3), ("hidden_act", "tent"), ("hidden_act", 3), ("attention_bias", "yes"),
        ("tie_word_embeddings", 1), ("dtype", "float8_e4m3fn"), ("vocab_size", 10**30), ("head_dim", []),
        ("partial_rotary_factor", 2), ("rope_parameters", {"partial_rotary_factor": "all"}),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("alone")
def test_a_value_that_cannot_be_is_one_message_that_names_its_key(key: str, value: object) -> None:
    error = refused({**TINY["llama"], key: value})
    assert (
        key in error.message + error.hint
        or "heads" in error.message
        or "partial_rotary_factor" in error.message
    )


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("case", TINY)
def test_whatever_stands_in_a_file_ends_in_a_shape_or_one_message(case: str) -> None:
    asked = [*TINY[case], "layer_types", "rope_parameters", "tie_word_embeddings", "text_config", "dtype"]
    asked += ["num_decoder_layers", "mlp_only_layers", "indexer_types", "quantization_config", "head_dim"]
    odd: list[Any] = [None, True, -1, 0, 1.5, 10**12, float("nan"), "x", "-", [], [[]], {}, {"a": None}]
    errors = []
    for key, value in itertools.product(asked, odd):
        for read in (lambda raw: parameters(shape(raw)), quantisation_of):
            try:
                read({**TINY[case], key: value})
            except UsageError as error:
                errors.append(error)
    assert all(error.hint and "\n" not in error.message for error in errors)
    assert len(errors) > len(asked)


@pytest.mark.parametrize("case", ["falcon_h1", "qwen3_next"])
def test_whatever_stands_in_a_file_of_another_family_ends_in_a_shape_or_one_message(case: str) -> None:
    odd: list[Any] = [None, True, -1, 0, 1.5, 10**12, "x", [], {"a": None}]
    errors = []
    for key, value in itertools.product([*BUILT[case], "dtype", "text_config", "rope_parameters"], odd):
        try:
            parameters(shape({**BUILT[case], key: value}))
        except UsageError as error:
            errors.append(error)
    assert all(error.hint and "\n" not in error.message for error in errors)
    assert len(errors) > len(BUILT[case])


@pytest.mark.parametrize(
    "types", [["full_attention"], "full_attention", ["full_attention", "magic"], ["full_attention", 7]]
)
def test_kinds_of_layers_that_cannot_be_are_refused(types: object) -> None:
    assert "layer_types" in refused({**TINY["gemma2"], "layer_types": types}).message


def test_a_folder_and_its_file_say_the_same(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    # A mark of the order of bytes, and the constants that Mamba 2's files hold.
    file.write_text('\ufeff{"model_type": "llama", "limits": [0.0, Infinity]}', encoding="utf-8")
    assert read_config(tmp_path) == read_config(file) == read_config(str(file))
    assert read_config(file)["model_type"] == "llama"


def unread(path: Path) -> UsageError:
    with pytest.raises(UsageError) as caught:
        read_config(path)
    assert caught.value.hint
    return caught.value


def test_a_folder_without_a_configuration_is_said_to_be_one(tmp_path: Path) -> None:
    assert "a folder without a config.json" in unread(tmp_path).message


def test_what_is_not_there_is_said_not_to_be(tmp_path: Path) -> None:
    assert "No such file" in unread(tmp_path / "config.json").message


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"model_type": "llama",', "no valid JSON"),
        (b"", "no valid JSON"),
        (b"[1, 2]", "no JSON object"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "cannot be read"),
    ],
)
def test_a_broken_file_is_one_message(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    error = unread(file)
    assert said in error.message
    assert "\n" not in error.message


def test_a_file_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    with file.open("wb") as stream:
        stream.truncate(LARGEST_BYTES + 1)
    assert "larger than" in unread(file).message


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    assert "no file" in unread(tmp_path).message


def test_a_whole_file_needs_no_transformers() -> None:
    program = (
        "import json, sys\n"
        "from analyzer.generation.configurations.hugging_face import architecture_of\n"
        "architecture_of(json.loads(sys.argv[1]), name='it')\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program, json.dumps(TINY["gemma3_text"])], check=True)


def test_a_state_space_has_no_keys() -> None:
    (first, *_) = shape(TINY["mamba"]).layers
    assert isinstance(first.mixer, StateSpace)
    assert first.mlp is None
