"""A step's graph: weights and products against transformers' models and PyTorch's counter, by family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import tiny_configurations as tiny
import torch
from tiny_models import llama
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from analyzer.costs import count
from analyzer.devices import catalogue
from analyzer.errors import UsageError
from analyzer.generation.architecture import Architecture, LatentAttention, Layer, Mlp
from analyzer.generation.configured_model import ConfiguredModel
from analyzer.generation.memory import cache_bytes, parameters, weight_bytes
from analyzer.generation.request import Request, Setting, StepSizes, StepTypes
from analyzer.generation.steps.decoder_graph import StepGraph, step_graph
from analyzer.generation.times import Runner, timed
from analyzer.options import Weights

BATCH, PROMPT = 2, 11
TRANSLATING = ("t5", "whisper", "bart")
# transformers computes every expert for every token there, or multiplies what it does not need.
WASTEFUL = {"llama4_text"}
# Its several streams go through the same projections, which are counted once (altup).
STREAMS = {"gemma3n_text"}
# transformers computes prompts in chunks as long as 256 tokens, and multiplies what lies beside their diagonal.
RECURRENT = {
    "bamba", "falcon_h1", "granitemoehybrid", "granitemoehybrid without experts", "jamba", "lfm2", "mamba",
    "mamba with biases", "mamba2", "minimax", "qwen3_5_text", "qwen3_next", "rwkv",
}  # fmt: skip


def state_of(output: Mapping[str, Any]) -> dict[str, Any]:
    """What a step hands to the next, by the name that it is given under: `cache` from transformers 5.24 on."""
    given = set(output)  # by its own keys: `in` knows the older names too
    return {name: output[name] for name in {"cache", "cache_params", "past_key_values"} & given}


def sizes_of(architecture: Architecture, tokens: int, context: int) -> StepSizes:
    source = tiny.SOURCE if architecture.encoder else 0
    return StepSizes(
        batch=BATCH, tokens=tokens, context=context, source=source, reads_source=source > 0 and tokens > 1
    )


def flops(step: StepGraph) -> int:
    """Those of products, each operator as often as it stands for."""
    costs = count(step.graph).costs
    return 2 * sum((cost.macs or 0) * copies for cost, copies in zip(costs, step.copies, strict=True))


def prefill_of(architecture: Architecture, *, every_layer: bool = True) -> StepGraph:
    return step_graph(
        architecture, sizes_of(architecture, PROMPT, PROMPT), StepTypes(), every_layer=every_layer
    )


def decode_of(architecture: Architecture, *, every_layer: bool = True) -> StepGraph:
    return step_graph(architecture, sizes_of(architecture, 1, PROMPT + 1), StepTypes(), every_layer=every_layer)


@pytest.mark.parametrize("case", tiny.EVERY)
def test_a_step_holds_every_weight_of_the_model(case: str) -> None:
    architecture = tiny.shape(tiny.EVERY[case])
    assert weight_bytes(prefill_of(architecture)) == 2 * parameters(architecture)


@pytest.mark.parametrize("case", tiny.EVERY)
def test_one_layer_of_each_kind_counts_as_all_do(case: str) -> None:
    architecture = tiny.shape(tiny.EVERY[case])
    for step in (prefill_of, decode_of):
        whole, short = step(architecture), step(architecture, every_layer=False)
        assert flops(short) == flops(whole)
        assert weight_bytes(short) == weight_bytes(whole)


@pytest.mark.parametrize("case", tiny.EVERY)
def test_nothing_of_a_step_is_left_uncounted(case: str) -> None:
    architecture = tiny.shape(tiny.EVERY[case])
    for step in (prefill_of(architecture), decode_of(architecture)):
        unknown = [
            node.op_type
            for node, cost in zip(step.graph.nodes, count(step.graph).costs, strict=True)
            if cost.basis == "unknown"
        ]
        assert not unknown


def inputs_of(raw: Mapping[str, Any]) -> dict[str, Any]:
    ids = torch.arange(BATCH * PROMPT).reshape(BATCH, PROMPT) % 90 + 3
    if raw["model_type"] in ("t5", "bart"):
        source = torch.arange(BATCH * tiny.SOURCE).reshape(BATCH, tiny.SOURCE) + 1
        return {"input_ids": source, "decoder_input_ids": ids}
    if raw["model_type"] == "whisper":
        return {"input_features": torch.zeros(BATCH, 10, 2 * tiny.SOURCE), "decoder_input_ids": ids}
    return {"input_ids": ids, "logits_to_keep": 1}


def counted(model: Any, inputs: Mapping[str, Any]) -> tuple[int, Any]:
    # Attention as plain products, which the counter knows; so are experts one by one.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        output = model(**inputs, use_cache=True)
    return counter.get_total_flops(), output


def eager(raw: Mapping[str, Any]) -> Any:
    model = tiny.model_of(raw, "cpu")
    # Grouped products are not counted by PyTorch's counter.
    model.config._experts_implementation = "eager"
    return model


def padding(architecture: Architecture) -> int:
    found = 0
    for layer in architecture.layers:
        mixer = layer.mixer
        found += 2 * BATCH * mixer.inner * mixer.taps * (mixer.taps - 1)
    return found


LATENT = {case for case, raw in tiny.EVERY.items() if "kv_lora_rank" in raw}


@pytest.mark.parametrize("case", sorted(set(tiny.EVERY) - WASTEFUL - STREAMS - RECURRENT | {"mamba"}))
def test_a_prompt_and_a_step_behind_it_multiply_as_often_as_pytorch_counts(case: str) -> None:
    raw, architecture = tiny.EVERY[case], tiny.shape(tiny.EVERY[case])
    model, given, translates = eager(raw), inputs_of(raw), raw["model_type"] in TRANSLATING
    theirs, output = counted(model, given)
    if translates:
        # transformers takes every token to the head, we the last.
        theirs -= 2 * BATCH * (PROMPT - 1) * architecture.hidden * architecture.vocabulary
    if architecture.embedding_size:
        theirs -= 2 * BATCH * (PROMPT - 1) * architecture.hidden * architecture.embedding_size
    if case == "mamba":
        # transformers pads the convolution's input: taps - 1 columns more.
        theirs -= padding(architecture)
    assert flops(prefill_of(architecture)) == theirs
    if case in LATENT | {"mamba"}:
        return
    ids = given["decoder_input_ids" if translates else "input_ids"][:, :1]
    step = state_of(output) | (
        {"decoder_input_ids": ids, "encoder_outputs": (output.encoder_last_hidden_state,)}
        if translates
        else {"input_ids": ids}
    )
    theirs, _ = counted(model, step)
    assert flops(decode_of(architecture)) == theirs


@pytest.mark.parametrize("case", sorted(RECURRENT - {"mamba", "mamba with biases", "rwkv"} | STREAMS))
def test_a_step_with_a_state_multiplies_about_as_often_as_pytorch_counts(case: str) -> None:
    """PyTorch's counter leaves out what transformers multiplies element by element."""
    raw = tiny.EVERY[case]
    model, given = eager(raw), inputs_of(raw)
    _, output = counted(model, given)
    theirs, _ = counted(model, {"input_ids": given["input_ids"][:, :1]} | state_of(output))
    assert flops(decode_of(tiny.shape(raw))) == pytest.approx(theirs, rel=0.05)


def test_a_token_of_rwkv_goes_once_through_every_matrix() -> None:
    shape = tiny.shape(tiny.BUILT["rwkv"])
    # Four of 32 x 32 and three of what follows, of two layers; the head of 96 rows.
    matrices = 2 * (4 * 32 * 32 + 2 * 32 * 48 + 32 * 32) + 96 * 32
    # Beside them the state of three times 32 elements a layer.
    assert flops(decode_of(shape)) == pytest.approx(2 * BATCH * matrices, rel=0.02)


def deepseek() -> Architecture:
    """DeepSeek V3's attention (arXiv 2412.19437, section 4.2)."""
    mixer = LatentAttention(heads=128, query_rank=1536, latent=512, rotated=64, plain=128, value_size=128)
    layer = Layer(mixer=mixer, mlp=Mlp(inner=18432))
    return replace(llama(layers=1, hidden=7168, heads=56, keys=56), layers=(layer,) * 61)


def test_a_latent_is_multiplied_with_queries_and_not_unfolded_for_every_key() -> None:
    """DeepSeek V3 at 4096 tokens: 128 heads on 576 columns twice, not 512 x 128 x 256 for each token."""
    architecture = deepseek()
    near, far = (
        flops(step_graph(architecture, StepSizes(batch=1, tokens=1, context=context), StepTypes()))
        for context in (4096, 8192)
    )
    assert far - near == 2 * 2 * 61 * 128 * 576 * 4096


def test_packed_weights_are_as_long_as_their_bits_and_scales() -> None:
    architecture = llama(layers=2)
    sizes = StepSizes(batch=1, tokens=1, context=8)
    # A layer's products: four of attention, three of what follows.
    products = 2 * (4 * 4096**2 + 3 * 4096 * 11008)
    rest = parameters(architecture) - products
    packed: tuple[tuple[Weights, int], ...] = (("int4", 4), ("int8", 8))
    for name, bits in packed:
        step = step_graph(architecture, sizes, StepTypes(weights=name))
        assert weight_bytes(step) == products * bits / 8 + products / 128 * 2 + rest * 2


def test_devices_share_heads_and_columns_and_copy_heads_of_keys_that_are_too_few() -> None:
    architecture = llama(layers=2, heads=32, keys=4)
    alone = weight_bytes(step_graph(architecture, StepSizes(batch=1, tokens=1, context=8), StepTypes()))
    shared = weight_bytes(
        step_graph(architecture, StepSizes(batch=1, tokens=1, context=8, width=4), StepTypes())
    )
    norms = 5 * 4096 * 2
    assert (shared - norms) * 4 == alone - norms
    # Eight devices for four heads: each head lies on two.
    assert cache_bytes(architecture, 100, StepTypes(), 8) == 2 * cache_bytes(architecture, 100, StepTypes(), 4)
    assert cache_bytes(architecture, 100, StepTypes(), 4) == cache_bytes(architecture, 100, StepTypes())


@pytest.mark.parametrize("case", ["falcon_h1", "gemma3n_text", "granitemoehybrid", "qwen3_next", "rwkv", "t5"])
def test_parts_that_are_known_by_their_sizes_are_timed_on_any_number_of_devices(case: str) -> None:
    model = ConfiguredModel(architecture=tiny.shape(tiny.EVERY[case]), own_weights="bf16")
    source = tiny.SOURCE if model.architecture.encoder else 0
    request = Request(batch=1, prompt=8, output=4, source=source)
    for width in (4, 1, 2):
        setting = Setting(weights="bf16", cache="bf16", width=width)
        (phases,) = timed(model, catalogue.device("h100-sxm5"), setting, [request], Runner())
        assert phases.other.value > 0


def test_heads_that_devices_cannot_share_are_refused() -> None:
    with pytest.raises(UsageError, match="32 query heads") as refused:
        step_graph(llama(), StepSizes(batch=1, tokens=1, context=8, width=3), StepTypes())
    assert "1, 2, 4, 8" in str(refused.value.hint)


def test_all_that_is_kept_is_handed_on() -> None:
    for raw in tiny.EVERY.values():
        graph = decode_of(tiny.shape(raw)).graph
        pasts = {tensor.name for tensor in graph.inputs if tensor.name.startswith(("past_key_values", "cross"))}
        assert set(graph.carried) == pasts
        assert pasts


def test_a_window_keeps_no_more_than_it_shows() -> None:
    architecture = llama(layers=2)
    first = architecture.layers[0]
    windowed = replace(first, mixer=replace(first.mixer, window=7))
    both = replace(architecture, layers=(first, windowed))
    whole, half = cache_bytes(architecture, 100, StepTypes()), cache_bytes(both, 100, StepTypes())
    assert half == whole // 2 + whole // 2 * 7 // 100
