"""The steps that are predicted are graphs that ONNX Runtime loads and runs, and their times can be measured."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from decoder_models import Decoder, growing, saved, shared_buffer

from analyzer import analyze_generation
from analyzer.generation.configurations.hugging_face import architecture_of
from analyzer.generation.configured_model import ConfiguredModel
from analyzer.generation.request import StepSizes, StepTypes
from analyzer.generation.sources import from_graph
from analyzer.graph import Graph
from analyzer.loading.runnable_files import RandomWeights
from analyzer.options import Weights
from analyzer.pipeline.generation_measure import in_place, step_inputs

Config = dict[str, Any]
WINDOW, SOURCE = 7, 12


def config(kind: str, **more: Any) -> Config:
    return {
        "model_type": kind,
        "vocab_size": 96,
        "hidden_size": 64,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        **more,
    }


LATENT = {
    "num_key_value_heads": 4, "q_lora_rank": 12, "kv_lora_rank": 16, "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16, "v_head_dim": 16, "n_routed_experts": 4, "n_shared_experts": 1,
    "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}  # fmt: skip
CONFIGS: dict[str, Config] = {
    "llama": config("llama"),
    "a narrow window": config("mistral", sliding_window=WINDOW),
    "norms of heads": config("qwen3", head_dim=16),
    "windows in turn, capped": config("gemma2", head_dim=16, sliding_window=WINDOW),
    "gpt2": {
        "model_type": "gpt2", "vocab_size": 96, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64,
    },
    "phi3": config("phi3"),
    "biases": config("qwen2"),
    "experts": config("mixtral", num_local_experts=4, num_experts_per_tok=2),
    "sinks": config(
        "gpt_oss", head_dim=16, sliding_window=WINDOW, num_local_experts=4, num_experts_per_tok=2
    ),
    "latents": config("deepseek_v3", **LATENT),
    "a state space": {
        "model_type": "mamba", "vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 8,
    },
    "gated and linear attention": config(
        "qwen3_next", head_dim=64, layer_types=["linear_attention", "full_attention"], num_experts=4,
        num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=32,
        linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16,
    ),
    "keys of an earlier layer": config(
        "gemma3n_text", num_hidden_layers=4, head_dim=16, sliding_window=WINDOW, num_kv_shared_layers=2,
        layer_types=["sliding_attention", "full_attention"] * 2, vocab_size_per_layer_input=96,
        hidden_size_per_layer_input=16, laurel_rank=16, altup_num_inputs=2,
        activation_sparsity_pattern=[0.0] * 4,
    ),
    "heads of a state space": {
        "model_type": "mamba2", "vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 8,
        "num_heads": 8, "head_dim": 16, "n_groups": 2, "expand": 2,
    },
    "an encoder": {
        "model_type": "whisper", "vocab_size": 96, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48, "max_source_positions": SOURCE, "max_target_positions": 64, "num_mel_bins": 8,
    },
}  # fmt: skip


def configured(name: str) -> ConfiguredModel:
    return ConfiguredModel(architecture=architecture_of(CONFIGS[name], name=name), own_weights="fp16")


def run(graph: Graph, sizes: StepSizes, folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    path = RandomWeights(folder=folder).write(graph, "step.onnx")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, step_inputs(graph, sizes)), strict=True))


# Reading a prompt by a state space is one operator of no session.
LENGTHS = [
    pytest.param(name, *lengths, id=f"{name}-{kind}")
    for name in CONFIGS
    for kind, lengths in (("prompt", (12, 12)), ("token", (1, 20)))
    if kind == "token" or not name.endswith("state space")
]


@pytest.mark.parametrize("weights", ["fp32", "int4"])
@pytest.mark.parametrize(("name", "tokens", "context"), LENGTHS)
def test_onnx_runtime_runs_the_step_and_gives_the_shapes_that_were_written(
    tmp_path: Path, name: str, weights: Weights, tokens: int, context: int
) -> None:
    model = configured(name)
    source = model.source_of(SOURCE)
    sizes = StepSizes(
        batch=2, tokens=tokens, context=context, source=source, reads_source=source > 0 and tokens > 1
    )
    graph = model.whole_step(sizes, StepTypes(weights=weights, cache="fp32", floats="fp32"))
    results = run(graph, sizes, tmp_path)
    assert {name: array.shape for name, array in results.items()} == {
        tensor.name: tensor.shape for tensor in graph.outputs
    }
    # Products whose norms are among the vectors of a layer grow with random weights.
    assert np.isfinite(results["logits"]).all() or name == "keys of an earlier layer"


@pytest.mark.parametrize("weights", ["fp16", "int4"])
@pytest.mark.parametrize(("name", "tokens", "context"), LENGTHS)
def test_types_of_16_bits_go_together(
    tmp_path: Path, name: str, weights: Weights, tokens: int, context: int
) -> None:
    """The CPU's provider lacks kernels in 16 bits, which it notices after the types of all operators."""
    model = configured(name)
    source = model.source_of(SOURCE)
    sizes = StepSizes(batch=1, tokens=tokens, context=context, source=source, reads_source=tokens > 1)
    graph = model.whole_step(sizes, StepTypes(weights=weights))
    path = RandomWeights(folder=tmp_path).write(graph, "step.onnx")
    with suppress(onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented):
        onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def test_every_tensor_of_a_step_has_a_name_of_its_own() -> None:
    for name in CONFIGS:
        graph = configured(name).whole_step(StepSizes(batch=1, tokens=1, context=9, source=SOURCE), StepTypes())
        names = [tensor.name for node in graph.nodes for tensor in node.present_outputs]
        assert len(names) == len(set(names))


def test_a_buffer_is_written_in_place_and_a_cache_that_grows_is_not(tmp_path: Path) -> None:
    sizes = StepSizes(batch=1, tokens=1, context=9)
    shared = from_graph(saved(shared_buffer(), tmp_path)).model.whole_step(sizes, StepTypes())
    assert in_place(shared) == dict(shared.carried)
    grown = from_graph(saved(growing(), tmp_path)).model.whole_step(sizes, StepTypes())
    assert grown.carried
    assert in_place(grown) == {}


@pytest.mark.parametrize("model", [growing, shared_buffer])
def test_a_graph_is_run_here_with_random_weights(tmp_path: Path, model: Any) -> None:
    path = saved(model(Decoder(key_heads=4)), tmp_path)
    asked: dict[str, Any] = {"gpu": "none", "prompt": 8, "output_tokens": 4, "runs": 5, "time_budget": 1}
    analysis = analyze_generation(path, **asked)
    answer, steps = analysis.generation, analysis.environment.measurement["steps"]
    # The prompt, and the one place that stands for three tokens.
    assert [(step["tokens"], step["context"]) for step in steps] == [(8, 8), (1, 10)]
    assert (answer.origin, answer.cpu.origin) == ("measured", "measured")
    assert (answer.ttft_s, answer.cpu.tpot_s) == (steps[0]["median_s"], steps[1]["median_s"])
    assert answer.ttft_low_s <= answer.ttft_s <= answer.ttft_high_s


def test_a_model_that_is_too_slow_here_is_predicted_and_says_so(tmp_path: Path) -> None:
    path = saved(growing(Decoder(key_heads=4)), tmp_path)
    analysis = analyze_generation(path, gpu="none", prompt=2**17, output_tokens=4)
    assert analysis.generation.cpu.origin == "predicted"
    assert any("Not run on the CPU" in message for message in analysis.environment.messages)


def llama_weights(model: Any, rows: int) -> dict[str, np.ndarray[Any, Any]]:
    """The weights of transformers' model under the names of steps: products turned, attention's in one."""
    state = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
    found = {"model.embed_tokens.weight": state["model.embed_tokens.weight"]}
    found |= {"model.norm.weight": state["model.norm.weight"], "lm_head.weight": state["lm_head.weight"].T}
    for layer in range(2):
        at = f"model.layers.{layer}"
        parts = [state[f"{at}.self_attn.{part}_proj.weight"] for part in "qkv"]
        found[f"{at}.self_attn.qkv_proj.weight"] = np.concatenate(parts).T
        found[f"{at}.self_attn.o_proj.weight"] = state[f"{at}.self_attn.o_proj.weight"].T
        found[f"{at}.input_layernorm.weight"] = state[f"{at}.input_layernorm.weight"]
        found[f"{at}.pre_feedforward_layernorm.weight"] = state[f"{at}.post_attention_layernorm.weight"]
        for part in ("gate_proj", "up_proj", "down_proj"):
            found[f"{at}.mlp.{part}.weight"] = state[f"{at}.mlp.{part}.weight"].T
    size = 16
    angles = np.outer(np.arange(rows), 10000.0 ** (-np.arange(0, size, 2) / size))
    return found | {f"cos_cache_{size}": np.cos(angles), f"sin_cache_{size}": np.sin(angles)}


def test_prompt_and_token_of_a_llama_give_the_logits_of_transformers_own(tmp_path: Path) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    # The norm of a sum has an epsilon of 1e-12 in ONNX Runtime, which changes nothing of states of size 1.
    theirs = LlamaForCausalLM(LlamaConfig(**CONFIGS["llama"], rms_norm_eps=1e-12, initializer_range=0.3)).eval()
    model, ids = configured("llama"), np.random.default_rng(0).integers(0, 96, (2, 9))
    values = llama_weights(theirs, 64)
    cache: dict[str, np.ndarray[Any, Any]] = {}
    for tokens, context in ((8, 8), (1, 9)):
        sizes = StepSizes(batch=2, tokens=tokens, context=context)
        graph = model.whole_step(sizes, StepTypes(weights="fp32", cache="fp32", floats="fp32"))
        stored = tuple(
            replace(tensor, value=values[tensor.name].astype(np.float32)) if tensor.value is None else tensor
            for tensor in graph.initializers
        )
        path = RandomWeights(folder=tmp_path).write(replace(graph, initializers=stored), "llama.onnx")
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        feeds = step_inputs(graph, sizes) | {"input_ids": ids[:, context - tokens : context]}
        for name, kept in cache.items():  # a buffer as long as the context, its last row still empty
            feeds[name] = np.concatenate([kept, np.zeros_like(kept[:, :, :1])], axis=2)
        names = [output.name for output in session.get_outputs()]
        results = dict(zip(names, session.run(names, feeds), strict=True))
        cache = {past: results[present] for past, present in graph.carried.items()}
        with torch.no_grad():
            expected = theirs(torch.from_numpy(ids[:, :context])).logits[:, -1].numpy()
        np.testing.assert_allclose(results["logits"].reshape(2, -1), expected, rtol=1e-3, atol=1e-3)
