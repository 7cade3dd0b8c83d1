"""Sizes of weights that a configuration says are stored in fewer bits, against sums by hand."""

from __future__ import annotations

import copy
import itertools
import time
from contextlib import suppress
from typing import Any

import pytest
from tiny_configurations import usual

from analyzer.devices import catalogue
from analyzer.errors import UsageError
from analyzer.generation.configurations.quantisation import names_of, quantisation_of
from analyzer.generation.configured_model import ConfiguredModel
from analyzer.generation.memory import weight_bytes
from analyzer.generation.request import Request, Setting, StepSizes
from analyzer.generation.sources import OpenedModel, from_values
from analyzer.generation.times import Runner, timed

Config = dict[str, Any]
H100, A100 = catalogue.device("h100-sxm5"), catalogue.device("a100-sxm4-80gb")

# Layers of 8 query and 2 key heads of 128: elements of the matrices of one.
HIDDEN, INNER, LAYERS, KEYS, ROWS = 1024, 2816, 4, 256, 8000
Q, K, V, O = HIDDEN * HIDDEN, HIDDEN * KEYS, HIDDEN * KEYS, HIDDEN * HIDDEN  # noqa: E741
ATTENTION, MLP = Q + K + V + O, 3 * HIDDEN * INNER
TABLE = ROWS * HIDDEN
DENSE = usual("llama", ROWS, HIDDEN, INNER, LAYERS, 8, 2, torch_dtype="bfloat16")
# 16 experts of 512, of which 2 are chosen.
EXPERTS = 16 * 3 * HIDDEN * 512
MIXTURE = usual(
    "qwen3_moe", ROWS, HIDDEN, INNER, LAYERS, 8, 2, head_dim=128, num_experts=16, num_experts_per_tok=2,
    moe_intermediate_size=512, torch_dtype="bfloat16",
)  # fmt: skip


def opened(told: Any, base: Config = DENSE) -> OpenedModel:
    return from_values({**base, "quantization_config": told}, name="it")


def size_of(told: Any, base: Config = DENSE) -> int:
    """Bytes of all weights on a card that multiplies 8-bit floats."""
    model = opened(told, base).model
    types = model.types_on(H100, Setting(weights=model.own_weights, cache="bf16"))
    assert types is not None
    return weight_bytes(model.step(StepSizes(batch=1, tokens=8, context=8), types, "gpu").graph)


def whole(base: Config = DENSE) -> int:
    """Elements of all weights."""
    return from_values(base, name="it").model.parameters


def by_hand(*parts: tuple[float, float], base: Config = DENSE) -> float:
    """Bytes where so many elements take so many bits, and all others 16."""
    packed = sum(elements for elements, _ in parts)
    return sum(elements * bits for elements, bits in parts) / 8 + 2 * (whole(base) - packed)


def group(bits: int, size: int | None, targets: Any = ("Linear",), **more: Any) -> Config:
    weights = {
        "num_bits": bits,
        "type": "int",
        "group_size": size,
        "symmetric": True,
        "strategy": "group",
        **more,
    }
    return {"targets": list(targets), "weights": weights}


def compressed(*groups: Config, ignore: Any = ("lm_head",), **more: Any) -> Config:
    table = {f"group_{at}": one for at, one in enumerate(groups)}
    packed = {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": list(ignore)}
    return {**packed, "config_groups": table, **more}


FP8 = {"num_bits": 8, "type": "float", "symmetric": True}
ALL = LAYERS * (ATTENTION + MLP)
# Rows of the seven matrices of a layer.
OUTPUTS = HIDDEN + 2 * KEYS + HIDDEN + 2 * INNER + HIDDEN
OF_EXPERTS = LAYERS * EXPERTS
AWQ = {"quant_method": "awq", "bits": 4}
SIDE = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
TORCHAO = {"quant_method": "torchao"}
INT4_OF_TORCHAO = {"default": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 64}}}

# What is said, elements with their bits (scales and zero points among them).
CASES: dict[str, tuple[Any, list[tuple[float, float]]]] = {
    # 4 bits, a scale of 16 and a zero point of 4 for each group.
    "awq 128": ({**AWQ, "group_size": 128, "zero_point": True}, [(ALL, 4 + 20 / 128)]),
    "awq 32": ({"quant_method": "awq", "bits": 4, "group_size": 32}, [(ALL, 4 + 20 / 32)]),
    "awq but the MLPs' last": (
        {"quant_method": "awq", "bits": 4, "group_size": 64, "modules_to_not_convert": ["down_proj"]},
        [(ALL - LAYERS * MLP / 3, 4 + 20 / 64)],
    ),
    "awq but a layer": (
        {"quant_method": "awq", "bits": 4, "group_size": 64, "modules_to_not_convert": ["model.layers.1"]},
        [(ALL * 3 / 4, 4 + 20 / 64)],
    ),
    "gptq 128": ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, [(ALL, 4 + 20 / 128)]),
    "gptq of rows": ({"quant_method": "gptq", "bits": 8, "group_size": -1}, [(ALL, 8 + 24 / HIDDEN)]),
    "gptq and its head": (
        {"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": True},
        [(ALL + TABLE, 4 + 20 / 128)],
    ),
    "gptq of some modules": (
        {"quant_method": "gptq", "bits": 4, "group_size": 128,
         "modules_in_block_to_quantize": [["self_attn.q_proj", "self_attn.k_proj"], ["mlp.up_proj"]]},
        [(LAYERS * (Q + K + MLP / 3), 4 + 20 / 128)],
    ),
    "gptqmodel, some in 8 bits and some in none": (
        {"quant_method": "gptq", "bits": 4, "group_size": 128,
         "dynamic": {r"+:.*\.down_proj": {"bits": 8, "group_size": 32}, r"-:.*self_attn.*": {}}},
        [(LAYERS * MLP / 3 * 2, 4 + 20 / 128), (LAYERS * MLP / 3, 8 + 24 / 32)],
    ),
    "auto-round with others": (
        {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True, "data_type": "int",
         "extra_config": {"model.layers.0.self_attn.q_proj": {"bits": 8},
                          "model.layers.1.self_attn.q_proj": {"bits": 16}}},
        [(ALL - 2 * Q, 4 + 20 / 128), (Q, 8 + 24 / 128)],
    ),
    "compressed int4": (compressed(group(4, 32)), [(ALL, 4 + 16 / 32)]),
    "compressed int4 with zero points": (compressed(group(4, 64, symmetric=False)), [(ALL, 4 + 20 / 64)]),
    "compressed int8 of rows": (compressed(group(8, None, strategy="channel")), [(ALL, 8 + 16 / HIDDEN)]),
    "compressed, the head too": (compressed(group(4, 128), ignore=()), [(ALL + TABLE, 4 + 16 / 128)]),
    "compressed, by pattern": (
        compressed(group(4, 32), ignore=["lm_head", "re:.*self_attn.*", r"re:model\.layers\.[01]\..*"]),
        [(2 * MLP, 4 + 16 / 32)],
    ),
    "compressed, by names": (
        compressed(group(4, 32), ignore=["lm_head", *(f"model.layers.{at}.mlp.up_proj" for at in (0, 2))]),
        [(ALL - 2 * MLP / 3, 4 + 16 / 32)],
    ),
    "compressed, two groups": (
        compressed(
            group(8, None, [r"re:.*self_attn\..*"], **FP8 | {"strategy": "channel"}),
            group(4, 32, [r"re:.*mlp\..*"]),
        ),
        [(LAYERS * ATTENTION, 8 + 16 / HIDDEN), (LAYERS * MLP, 4 + 16 / 32)],
    ),
    "compressed, all and some": (
        compressed(group(4, 128), group(8, 128, ["re:.*down_proj"])),
        [(LAYERS * (ATTENTION + MLP * 2 / 3), 4 + 16 / 128), (LAYERS * MLP / 3, 8 + 16 / 128)],
    ),
    "compressed fp8": (compressed(group(8, None, **FP8 | {"strategy": "tensor"})), [(ALL, 8)]),
    "compressed fp8 in blocks": (
        compressed(group(8, None, **FP8 | {"strategy": "block", "block_structure": [128, 128]})),
        [(ALL, 8 + 16 / 128**2)],
    ),
    "compressed NVFP4": (
        compressed(
            group(4, 16, **FP8 | {"num_bits": 4, "strategy": "tensor_group"}), format="nvfp4-pack-quantized"
        ),
        [(ALL, 4 + 8 / 16)],
    ),
    "compressed MXFP4": (
        compressed(group(4, 32, **FP8 | {"num_bits": 4}), format="mxfp4-pack-quantized"), [(ALL, 4 + 8 / 32)],
    ),
    "fp8 in blocks": (
        {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "activation_scheme": "dynamic"},
        [(ALL, 8 + 32 / 128**2)],
    ),
    "fp8 of the MLPs": (
        {"quant_method": "fp8", "modules_to_not_convert": ["self_attn", "lm_head"]}, [(LAYERS * MLP, 8)],
    ),
    "fp8 but some layers": (
        {"quant_method": "fp8", "ignored_layers": [f"model.layers.{at}.mlp.gate_proj" for at in (0, 3)]},
        [(ALL - 2 * MLP / 3, 8)],
    ),
    "fbgemm": (
        {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0,
         "modules_to_not_convert": ["model.layers.0", "model.layers.3", "lm_head", "self_attn"]},
        [(2 * MLP, 8 + 32 / HIDDEN)],
    ),
    # Absolute maxima of 64 elements, in 32 bits or again in 8.
    "nf4": ({"quant_method": "bitsandbytes", "load_in_4bit": True}, [(ALL, 4 + 32 / 64)]),
    "nf4 twice": (
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True,
         "llm_int8_skip_modules": ["lm_head", "model.layers.2.mlp"]},
        [(ALL - MLP, 4 + 8 / 64)],
    ),
    "llm.int8": (
        {"quant_method": "bitsandbytes", "load_in_8bit": True, "llm_int8_skip_modules": ["o_proj"]},
        [(ALL - LAYERS * O, 8 + 32 / HIDDEN)],
    ),
    "modelopt fp8": (
        {"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["lm_head", "*self_attn*"]},
        [(LAYERS * MLP, 8)],
    ),
    "modelopt nvfp4": ({**SIDE, "exclude_modules": ["lm_head"], "group_size": 16}, [(ALL, 4 + 8 / 16)]),
    "modelopt nvfp4 but some": (
        {**SIDE, "ignore": ["lm_head", "model.layers.0*", "model.layers.*.self_attn.o_proj"]},
        [(3 * (ATTENTION - O + MLP), 4 + 8 / 16)],
    ),
    "modelopt, nested": (
        {"quant_method": "modelopt", "producer": {"name": "modelopt"},
         "quantization": {"quant_algo": "W4A16_AWQ", "group_size": 128, "exclude_modules": ["lm_head"]}},
        [(ALL, 4 + 16 / 128)],
    ),
    "modelopt, mixed": (
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "exclude_modules": ["lm_head"],
         "quantized_layers": {
             **{f"model.layers.{at}.self_attn.q_proj": {"quant_algo": "FP8"} for at in range(4)},
             **{f"model.layers.{at}.mlp.{name}_proj": {"quant_algo": "NVFP4", "group_size": 16}
                for at in range(4) for name in ("gate", "up", "down")}}},
        [(LAYERS * Q, 8), (LAYERS * MLP, 4 + 8 / 16)],
    ),
    "hqq": (
        {"quant_method": "hqq", "skip_modules": ["lm_head"], "quant_config": {"weight_quant_params": {
            "nbits": 4, "group_size": 64, "axis": 1}}},
        [(ALL, 4 + 32 / 64)],
    ),
    "hqq of some": (
        {"quant_method": "hqq", "dynamic_config": {
            "self_attn.q_proj": {"nbits": 4, "group_size": 64},
            "mlp.down_proj": {"nbits": 8, "group_size": 128}}},
        [(LAYERS * Q, 4 + 32 / 64), (LAYERS * MLP / 3, 8 + 32 / 128)],
    ),
    "quanto int4": ({"quant_method": "quanto", "weights": "int4"}, [(ALL, 4 + 32 / 128)]),
    "quanto int8": (
        {"quant_method": "quanto", "weights": "int8", "modules_to_not_convert": ["mlp"]},
        [(LAYERS * ATTENTION, 8 + 16 / HIDDEN)],
    ),
    "eetq": ({"quant_method": "eetq", "weights": "int8"}, [(ALL, 8 + 16 / HIDDEN)]),
    "torchao int4": ({**TORCHAO, "quant_type": INT4_OF_TORCHAO}, [(ALL, 4 + 32 / 64)]),
    "torchao int8": ({**TORCHAO, "quant_type": "int8_weight_only"}, [(ALL, 8 + 16 / HIDDEN)]),
    "torchao with tables": (
        {**TORCHAO, "quant_type": {"default": {"_type": "Int8WeightOnlyConfig", "_data": {"group_size": None}}},
         "include_input_output_embeddings": True},
        [(ALL + 2 * TABLE, 8 + 16 / HIDDEN)],
    ),
    "torchao by name": (
        {**TORCHAO, "quant_type": {"default": {"_type": "ModuleFqnToConfig", "_data": {"module_fqn_to_config": {
            "_default": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 32}},
            "model.layers.0.mlp.up_proj": None}}}}},
        [(ALL - MLP / 3, 4 + 32 / 32)],
    ),
    "quark fp8": (
        {"quant_method": "quark", "exclude": ["lm_head", "*self_attn*"], "layer_quant_config": {},
         "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "symmetric": True}}},
        [(LAYERS * MLP, 8)],
    ),
    "quark fp4": (
        {"quant_method": "quark", "exclude": ["lm_head"], "layer_quant_config": {"*down_proj": {"weight": {
            "dtype": "fp8_e4m3", "qscheme": "per_tensor"}}},
         "global_quant_config": {"weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32}}},
        [(LAYERS * (ATTENTION + MLP * 2 / 3), 4 + 8 / 32), (LAYERS * MLP / 3, 8)],
    ),
    # MLX: scale and bias of 16 bits each; tables too, and modules by name.
    "mlx": ({"bits": 4, "group_size": 64}, [(ALL + 2 * TABLE, 4 + 32 / 64)]),
    "mlx by name": (
        {"bits": 4, "group_size": 64, "lm_head": {"bits": 8, "group_size": 64}, "model.embed_tokens": False},
        [(ALL, 4 + 32 / 64), (TABLE, 8 + 32 / 64)],
    ),
    "gptq of 3 bits": ({"quant_method": "gptq", "bits": 3, "group_size": 64}, [(ALL, 3 + 19 / 64)]),
    "exllama, a mean": (
        {"quant_method": "exl2", "bits": 4.5, "head_bits": 6}, [(ALL, 4.5), (TABLE, 6)],
    ),
    # Sums of two of 256 vectors of 8, whose tables each matrix has; a scale for each row.
    "aqlm": (
        {"quant_method": "aqlm", "num_codebooks": 2, "nbits_per_codebook": 8, "in_group_size": 8},
        [(ALL, 2 + LAYERS * (OUTPUTS + 7 * 2 * 256 * 8) * 16 / ALL)],
    ),
    "vptq of a matrix": (
        {"quant_method": "vptq", "config_for_layers": {
            f"model.layers.{layer}.mlp.down_proj": {
                "vector_lens": [-1, 8], "num_centroids": [-1, 4096], "num_res_centroids": [-1, 256],
                "group_num": 1}
            for layer in range(LAYERS)}},
        [(LAYERS * MLP / 3, (12 + 8) / 8 + (4096 + 256) * 8 * 16 / (MLP / 3))],
    ),
    "bitnet": ({"quant_method": "bitnet"}, [(ALL, 2)]),
    "bitnet before it is packed": ({"quant_method": "bitnet", "quantization_mode": "online"}, [(ALL, 16)]),
    "higgs": ({"quant_method": "higgs", "bits": 4, "p": 2, "group_size": 256}, [(ALL, 4 + 16 / 256)]),
    "w8a8": ({"quant_method": "w8a8_int8"}, [(ALL, 8 + LAYERS * OUTPUTS * 32 / ALL)]),
    "mxfp8": ({"quant_method": "mxfp8"}, [(ALL, 8 + 8 / 32)]),
    "as an engine calls it": (
        {"quant_method": "gptq_marlin", "bits": 4, "group_size": 64}, [(ALL, 4 + 20 / 64)],
    ),
    "awq by its own keys": (
        {"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "zero_point": True, "version": "GEMV"},
        [(ALL, 4 + 20 / 64)],
    ),
}  # fmt: skip

OF_MIXTURES: dict[str, tuple[Any, list[tuple[float, float]]]] = {
    "experts in rows of 8 bits": (
        {"quant_method": "experts_int8"},
        [(OF_EXPERTS, 8 + LAYERS * 16 * (2 * 512 + HIDDEN) * 32 / OF_EXPERTS)],
    ),
    # Gates that are stored in another way than what they gate.
    "two parts of three": (
        compressed(group(4, 32, [r"re:.*experts\..*\.(up|down)_proj$"])), [(OF_EXPERTS * 2 / 3, 4 + 16 / 32)],
    ),
    "all but routers": (
        compressed(group(4, 32), ignore=["lm_head", "re:.*mlp.gate$"]),
        [(LAYERS * (EXPERTS + ATTENTION), 4 + 16 / 32)],
    ),
    "experts alone": (
        compressed(group(4, 128), ignore=["lm_head", "re:.*self_attn.*", "re:.*mlp.gate$"]),
        [(OF_EXPERTS, 4 + 16 / 128)],
    ),
    "all but experts": (
        compressed(group(8, None, **FP8 | {"strategy": "channel"}), ignore=["lm_head", r"re:.*mlp\.experts.*"]),
        [(LAYERS * ATTENTION, 8 + 16 / HIDDEN)],
    ),
    "experts in 4 bits, the others in 8": (
        compressed(
            group(4, 32, [r"re:.*mlp\.experts\.\d+\.(gate|up|down)_proj$"]),
            group(8, None, [r"re:.*self_attn\.(q|k|v|o)_proj$"], **FP8 | {"strategy": "channel"}),
        ),
        [(OF_EXPERTS, 4 + 16 / 32), (LAYERS * ATTENTION, 8 + 16 / HIDDEN)],
    ),
    "experts' last matrices in 8 bits": (
        {"quant_method": "gptq", "bits": 4, "group_size": 128,
         "dynamic": {r"+:.*experts.*down_proj": {"bits": 8}, r"-:.*self_attn.*": {}}},
        [(OF_EXPERTS * 2 / 3, 4 + 20 / 128), (OF_EXPERTS / 3, 8 + 24 / 128)],
    ),
    "mxfp4": (
        {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]},
        [(OF_EXPERTS, 4 + 8 / 32)],
    ),
    "fp8 in blocks": (
        {"quant_method": "fp8", "weight_block_size": [128, 128],
         "modules_to_not_convert": ["lm_head", *(f"model.layers.{at}.mlp.gate" for at in range(4))]},
        [(LAYERS * (EXPERTS + ATTENTION), 8)],
    ),
    "fp8 with experts in 4 bits": (
        {"quant_method": "fp8", "weight_block_size": [128, 128], "expert_dtype": "fp4"},
        [(LAYERS * ATTENTION, 8), (OF_EXPERTS, 4 + 8 / 32)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_bytes_of_weights_are_those_of_their_bits_scales_and_exceptions(case: str) -> None:
    told, parts = CASES[case]
    assert size_of(told) == pytest.approx(by_hand(*parts), rel=2e-3)


@pytest.mark.parametrize("case", OF_MIXTURES)
def test_bytes_of_experts_are_those_of_their_bits_scales_and_exceptions(case: str) -> None:
    told, parts = OF_MIXTURES[case]
    assert size_of(told, MIXTURE) == pytest.approx(by_hand(*parts, base=MIXTURE), rel=2e-3)


def test_files_of_less_than_4_bits_are_as_large_as_published() -> None:
    # ISTA-DASLab/Llama-2-7b-AQLM-2Bit-1x16-hf: 2.38 GB, with 65,536 x 8 values for each matrix.
    llama2 = usual("llama", 32000, 4096, 11008, 32, 32, 32, torch_dtype="bfloat16")
    aqlm = {
        "quant_method": "aqlm", "in_group_size": 8, "out_group_size": 1, "num_codebooks": 1,
        "nbits_per_codebook": 16, "linear_weights_not_to_quantize": ["lm_head.weight"],
    }  # fmt: skip
    assert size_of(aqlm, llama2) == pytest.approx(2.38e9, rel=5e-3)
    # microsoft/bitnet-b1.58-2B-4T: 1.18 GB.
    bitnet = usual("bitnet", 128256, 2560, 6912, 30, 20, 5, torch_dtype="bfloat16", tie_word_embeddings=True)
    assert size_of({"quant_method": "bitnet", "linear_class": "autobitlinear"}, bitnet) == pytest.approx(
        1.18e9, rel=5e-3
    )
    # mlx-community/Llama-3.2-1B-Instruct-4bit: 695 MB, the table that is the head too in 4 bits.
    small = usual("llama", 128256, 2048, 8192, 16, 32, 8, torch_dtype="bfloat16", tie_word_embeddings=True)
    assert size_of({"group_size": 64, "bits": 4}, small) == pytest.approx(695e6, rel=5e-3)


def test_widths_without_a_kernel_are_named_and_widen_the_interval() -> None:
    usual_width, narrow = ({"quant_method": "gptq", "bits": bits, "group_size": 128} for bits in (4, 3))
    assert not opened(usual_width).notes
    found = opened(narrow)
    assert any("of 3 bits" in note for note in found.notes)
    assert isinstance(found.model, ConfiguredModel)
    assert found.model.unsure > 1


# A family that names its modules in its own way, what is left out of the matrices that are stored in 8
# bits, and how many elements that is.
OWN_NAMES: dict[str, tuple[Config, str, int]] = {
    # All of a layer of Nemotron H is its `mixer`.
    "feed-forward of Nemotron H": (
        {"model_type": "nemotron_h", "vocab_size": 1000, "hidden_size": 512, "intermediate_size": 1024,
         "num_hidden_layers": 4, "hybrid_override_pattern": "M-M*", "num_attention_heads": 8,
         "num_key_value_heads": 2, "head_dim": 64, "mamba_num_heads": 16, "mamba_head_dim": 64,
         "ssm_state_size": 64, "n_groups": 1, "tie_word_embeddings": False, "torch_dtype": "bfloat16"},
        r"re:backbone\.layers\.\d+\.mixer\.up_proj", 512 * 1024,
    ),
    "attention of MPT": (
        {"model_type": "mpt", "vocab_size": 1000, "d_model": 512, "n_layers": 3, "n_heads": 8,
         "max_seq_len": 64, "torch_dtype": "bfloat16"},
        r"re:transformer\.blocks\.\d+\.attn\.Wqkv$", 3 * 512 * 3 * 512,
    ),
    "decoder of BART": (
        {"model_type": "bart", "vocab_size": 1000, "d_model": 512, "encoder_layers": 2, "decoder_layers": 3,
         "encoder_attention_heads": 8, "decoder_attention_heads": 8, "encoder_ffn_dim": 1024,
         "decoder_ffn_dim": 1024, "max_position_embeddings": 64, "torch_dtype": "bfloat16"},
        r"re:model\.decoder\.layers\.\d+\.fc1", 3 * 512 * 1024,
    ),
    "one part of the experts": (
        usual("qwen3_moe", 1000, 512, 1024, 2, 8, 2, head_dim=64, num_experts=4, num_experts_per_tok=2,
              moe_intermediate_size=256, torch_dtype="bfloat16"),
        r"re:.*experts\.\d+\.gate_proj", 2 * 4 * 256 * 512,
    ),
    # A feed-forward part and the experts side by side, each in a module of the layer (Gemma 4 26B A4B).
    "experts of Gemma 4": (
        usual("gemma4_text", 1000, 512, 256, 2, 8, 2, head_dim=64, global_head_dim=64, enable_moe_block=True,
              num_experts=4, top_k_experts=2, moe_intermediate_size=128, hidden_size_per_layer_input=0,
              vocab_size_per_layer_input=1000, num_kv_shared_layers=0, torch_dtype="bfloat16"),
        r"re:.*layers\.\d+\.experts\..*", 2 * 4 * 3 * 512 * 128,
    ),
    "feed-forward beside the experts of Gemma 4": (
        usual("gemma4_text", 1000, 512, 256, 2, 8, 2, head_dim=64, global_head_dim=64, enable_moe_block=True,
              num_experts=4, top_k_experts=2, moe_intermediate_size=128, hidden_size_per_layer_input=0,
              vocab_size_per_layer_input=1000, num_kv_shared_layers=0, torch_dtype="bfloat16"),
        r"re:.*layers\.\d+\.mlp\..*", 2 * 3 * 512 * 256,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OWN_NAMES)
def test_patterns_are_of_the_names_that_the_family_has(case: str) -> None:
    base, pattern, elements = OWN_NAMES[case]
    rows = group(8, None, strategy="channel")
    left_out = compressed(rows, ignore=("lm_head", pattern))
    # A byte more of each element that stays as it is, less the scales.
    assert size_of(left_out, base) - size_of(compressed(rows), base) == pytest.approx(elements, rel=0.02)


def test_a_rule_for_every_module_is_read_in_time() -> None:
    # AutoRound writes one for each: half a minute before names were taken apart once for all rules.
    names = [f"model.layers.{layer}.self_attn.{one}_proj" for layer in range(48) for one in "qkvo"]
    names += [f"model.layers.{layer}.mlp.{one}_proj" for layer in range(48) for one in ("gate", "up", "down")]
    own = {name: {"bits": 8, "group_size": 64} for name in names}
    found = quantisation_of({"quantization_config": {"quant_method": "auto-round", "extra_config": own}})
    assert found is not None
    begun = time.process_time()
    for layer in range(48):
        storage = found.storage(names_of("mlp.down_proj", layer))
        assert storage is not None
        assert storage.bits == 8
    assert time.process_time() - begun < 2


def test_a_file_that_quantises_the_cache_alone_has_whole_weights() -> None:
    told = {"quant_method": "compressed-tensors", "config_groups": {}, "kv_cache_scheme": {"num_bits": 8}}
    assert size_of(told) == 2 * whole()


def test_published_files_are_as_large_as_they_are() -> None:
    llama = usual("llama", 128256, 4096, 14336, 32, 32, 8, torch_dtype="bfloat16")
    # hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4: 5.73 GB of safetensors.
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
    assert size_of(awq, llama) == pytest.approx(5.73e9, rel=5e-3)
    # RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8: 9.08 GB.
    fp8 = compressed(group(8, None, **FP8 | {"strategy": "tensor"}))
    assert size_of(fp8, llama) == pytest.approx(9.08e9, rel=5e-3)
    # openai/gpt-oss-20b: 13.76 GB.
    gpt_oss = usual(
        "gpt_oss", 201088, 2880, 2880, 24, 64, 8, head_dim=64, num_local_experts=32, num_experts_per_tok=4,
        sliding_window=128,
    )  # fmt: skip
    left_out = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    mxfp4 = {"quant_method": "mxfp4", "modules_to_not_convert": left_out}
    assert size_of(mxfp4, gpt_oss) == pytest.approx(13.76e9, rel=5e-3)


@pytest.mark.parametrize("case", ["awq 32", "fp8 of the MLPs", "compressed, two groups", "modelopt nvfp4"])
def test_a_card_without_8_bit_floats_holds_as_many_bytes(case: str) -> None:
    told, parts = CASES[case]
    model = opened(told).model
    types = model.types_on(A100, Setting(weights=model.own_weights, cache="bf16"))
    assert types is not None
    step = model.step(StepSizes(batch=1, tokens=8, context=8), types, "gpu")
    assert weight_bytes(step.graph) == pytest.approx(by_hand(*parts), rel=2e-3)


def test_weights_of_another_type_are_all_stored_alike() -> None:
    told = CASES["compressed, two groups"][0]
    model = opened(told).model
    types = model.types_on(H100, Setting(weights="int8", cache="bf16"))
    assert types is not None
    plain = from_values(DENSE, name="it").model
    sizes = StepSizes(batch=1, tokens=1, context=8)
    assert weight_bytes(model.step(sizes, types, "gpu").graph) == weight_bytes(
        plain.step(sizes, types, "gpu").graph
    )


def test_layers_that_are_stored_in_other_ways_are_each_counted() -> None:
    told = {
        "quant_method": "awq",
        "bits": 4,
        "group_size": 64,
        "modules_to_not_convert": ["model.layers.2.mlp"],
    }
    model = opened(told).model
    types = model.types_on(H100, Setting(weights="int4", cache="bf16"))
    assert types is not None
    sizes = StepSizes(batch=1, tokens=1, context=8)
    every = model.whole_step(sizes, types)
    assert sum(tensor.nbytes or 0 for tensor in every.initializers if "mlp" in tensor.name) == pytest.approx(
        3 * MLP * (4 + 20 / 64) / 8 + 2 * MLP, rel=1e-3
    )


def test_a_key_that_is_not_understood_is_named_and_widens_the_interval() -> None:
    told = {"quant_method": "awq", "bits": 4, "group_size": 128}
    sure, unsure = opened(told).model, opened({**told, "outlier_columns": 16}).model
    assert any("`outlier_columns`" in note for note in unsure.notes)
    assert not sure.notes
    setting, requests = Setting(weights="int4", cache="fp16"), [Request(batch=1, prompt=64, output=8)]
    (narrow,), (wide,) = (timed(model, H100, setting, requests, Runner()) for model in (sure, unsure))
    assert wide.other.value == narrow.other.value
    assert wide.other.low < narrow.other.low
    assert narrow.other.high < wide.other.high


@pytest.mark.parametrize(
    "told",
    [
        {"quant_method": "gptq", "bits": 9},
        {"quant_method": "spqr", "bits": 3},
        {"quant_method": "aqlm", "nbits_per_codebook": 64},
        {"quant_method": "vptq", "config_for_layers": {}},
        "awq",
        {"quant_method": "compressed-tensors"},
        {},
        {"quant_method": "awq", "bits": 4, "group_size": "all"},
        {"quant_method": "awq", "bits": "four"},
        {"quant_method": "awq", "bits": 4, "modules_to_not_convert": 7},
        {"quant_method": "fp8", "weight_block_size": "wide"},
        {"quant_method": "fp8", "modules_to_not_convert": ["re:("]},
        # Takes exponential time to match.
        {"quant_method": "fp8", "modules_to_not_convert": ["re:(a+)+$"]},
        {"quant_method": "modelopt", "quant_algo": "W3"},
        {"quant_method": "torchao", "quant_type": "uintx_weight_only"},
        {"quant_method": "quanto", "weights": "int3"},
        compressed({"targets": ["Linear"], "weights": {"num_bits": 4, "type": "complex"}}),
        compressed({"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "strategy": "spiral"}}),
    ],
)
def test_weights_stored_in_another_way_are_refused(told: object) -> None:
    with pytest.raises(UsageError) as refused:
        quantisation_of({"quantization_config": told})
    assert refused.value.hint


@pytest.mark.parametrize(
    "told",
    [
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": True},
        {"quant_method": "awq", "bits": 4, "w_bit": 8, "group_size": 128},
    ],
)
def test_keys_that_contradict_each_other_are_both_named(told: Config) -> None:
    with pytest.raises(UsageError, match="contradict each other"):
        quantisation_of({"quantization_config": told})


def test_the_text_part_of_a_model_that_sees_is_read() -> None:
    told = CASES["awq 32"][0]
    part = {**DENSE, "quantization_config": told}
    model = from_values({"model_type": "llava", "text_config": part}, name="it").model
    assert isinstance(model, ConfiguredModel)
    assert model.own_weights == "int4"
    assert model.storage is not None


ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    1.5,
    10**12,
    float("nan"),
    "x",
    "-",
    "re:*",
    [],
    [[]],
    ["x", 3],
    {},
    {"a": None},
]


@pytest.mark.parametrize("case", [*CASES, *OF_MIXTURES])
def test_any_value_ends_in_a_size_or_one_message(case: str) -> None:
    told = (CASES | OF_MIXTURES)[case][0]
    nested: list[tuple[str, ...]] = [(key,) for key in told]
    inner = [(key, one, value[one]) for key, value in told.items() if isinstance(value, dict) for one in value]
    nested += [(key, one) for key, one, _ in inner]
    nested += [(key, one, last) for key, one, value in inner if isinstance(value, dict) for last in value]
    for path, value in itertools.product(nested, ODD):
        changed = copy.deepcopy(told)
        place = changed
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        # Any other error ends the test.
        with suppress(UsageError):
            found = quantisation_of({"quantization_config": changed})
            assert found is None or found.storage(names_of("mlp.down_proj", 1)) is not changed
