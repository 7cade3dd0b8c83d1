"""What ``analyze generate`` answers: times beside bounds, memory, limits, what is refused."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil
import pytest
from tiny_configurations import EVERY, TINY
from tiny_models import LLAMA_2_7B, LLAMA_3_70B, folder, model

from analyzer import analyze_generation
from analyzer.devices import catalogue
from analyzer.errors import UsageError
from analyzer.generation.request import Request, Setting
from analyzer.generation.sources import from_values
from analyzer.generation.times import Correction, GeneratingModel, RequestPhases, Runner, timed
from analyzer.options import Weights
from analyzer.record import load_report
from analyzer.record.analysis import Analysis, PlanResult
from analyzer.record.generation import GenerationOption, GenerationResult

WEIGHTS_7B = 2 * 6_738_415_616
# Where the number of layers is not the matter: a step of 32 takes ten times as long to predict.
TWO_LAYERS: dict[str, Any] = {**LLAMA_2_7B, "num_hidden_layers": 2}
EIGHT_LAYERS: dict[str, Any] = {**LLAMA_2_7B, "num_hidden_layers": 8}
# As many weights as Llama 3 70B has in 80 layers: what one card cannot hold.
SEVENTY_BILLION: dict[str, Any] = {**LLAMA_3_70B, "num_hidden_layers": 8, "intermediate_size": 12 * 28672}
EIGHT_WIDE_LAYERS: dict[str, Any] = {**LLAMA_3_70B, "num_hidden_layers": 8}


def asked(path: Path, config: dict[str, Any], **options: Any) -> Analysis:
    return analyze_generation(folder(path, config), run=False, **{"cpu": "epyc-9654", **options})


def generation(path: Path, config: dict[str, Any], **options: Any) -> GenerationResult:
    found = asked(path, config, **options).generation
    assert found is not None
    return found


def test_a_decode_step_reads_weights_and_cache_once_and_copies_neither(tmp_path: Path) -> None:
    """Llama 2 7B at context 2048 on an A100: not 413 ms, most of them copies of the cache, but 9.4 and some."""
    analysis = asked(tmp_path, LLAMA_2_7B, gpu="a100", prompt=1920, output_tokens=256)
    found, card = analysis.generation, catalogue.device("a100-80gb-sxm")
    assert found is not None
    bound = (WEIGHTS_7B + 2048 * 2 * 32 * 4096 * 2) / card.bandwidth_bytes_per_s
    assert bound < found.tpot_s < 1.5 * bound
    assert found.tpot_low_s < found.tpot_s < found.tpot_high_s
    # The decode step as any model is decided: ids and lengths in, one row of logits out.
    gpu = analysis.plan("gpu")
    assert gpu is not None
    assert gpu.transfers.bytes == 8 + 4 + 32000 * 2
    assert gpu.latency_s == pytest.approx(found.tpot_s, rel=0.1)
    attention = [one for one in analysis.operators if one.op_type == "GroupQueryAttention"]
    assert len(attention) == 32
    assert {one.placement for one in attention} == {"gpu"}


@pytest.mark.parametrize(
    ("device", "weights", "time", "low"),
    [
        ("h100-80gb-sxm", "fp16", 1.5, 1.0),
        # Other weights have other kernels: their time stays, and is as uncertain as the others' turned out.
        ("h100-80gb-sxm", "int4", 1.0, 1.0),
        ("epyc-9654", "fp16", 1.5, 1.5),
        ("epyc-9654", "int4", 1.5, 1.5),
    ],
)
def test_what_was_seen_of_a_request_moves_what_is_predicted_of_others(
    device: str, weights: Weights, time: float, low: float
) -> None:
    """A CPU was slow for all it runs. A GPU's run may have been bound by its host, and another not: both are
    held."""
    card, request = catalogue.device(device), Request(batch=8, prompt=64, output=16)
    run, asked = (Setting(weights=each, cache="fp16") for each in ("fp16", weights))
    found = Correction(first=1.0, other=1.5, types=model().types_on(card, run))
    runners = Runner(), Runner(corrections={device: found})
    plain, seen = (timed(model(), card, asked, [request], runner)[0] for runner in runners)
    assert seen.first == plain.first
    assert seen.other.value == pytest.approx(time * plain.other.value)
    assert seen.other.high == pytest.approx(1.5 * plain.other.high)
    assert seen.other.low == pytest.approx(low * plain.other.low)


@pytest.mark.parametrize(
    ("gpu", "gpus", "weights", "packed", "sums"),
    [
        ("l40s", 2, "int4", True, True),
        ("l40s", 1, "fp16", False, False),
        ("h100-80gb-sxm", 2, "int4", True, False),
        ("jetson-agx-orin-64gb", 2, "fp16", False, False),
        ("none", None, "int4", False, False),
    ],
)
def test_notes_say_whose_kernels_packed_weights_have_and_that_sums_over_pcie_depend_on_the_machine(
    tmp_path: Path, gpu: str, gpus: int | None, weights: str, packed: bool, sums: bool
) -> None:
    given = {"gpu": gpu, "weights": weights, "prompt": 64, "output_tokens": 16}
    notes = generation(tmp_path, TWO_LAYERS, **given, **({"gpus": gpus} if gpus else {})).notes
    assert any("ep.cuda.fpa_intb_gemm" in note for note in notes) is packed
    assert any("topo -p2p" in note for note in notes) is sums


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> GenerationResult:
    """Four requests of 2,048 tokens, each of which gets 100."""
    path = tmp_path_factory.mktemp("usual")
    return generation(path, LLAMA_2_7B, gpu="a100", prompt=2048, output_tokens=100, batch=4)


def test_past_and_present_are_one_buffer_in_memory(usual: GenerationResult) -> None:
    assert usual.memory.weights_bytes == WEIGHTS_7B
    assert usual.kv_bytes_per_token == 2 * 32 * 4096 * 2
    assert usual.memory.kv_bytes == 4 * 2148 * usual.kv_bytes_per_token
    assert usual.memory.total_bytes == (
        usual.memory.weights_bytes + usual.memory.kv_bytes + usual.memory.activation_bytes
    )


def test_a_prefill_takes_what_its_products_take(usual: GenerationResult) -> None:
    products = 2 * 4 * 2048 * (6_738_415_616 - 2 * 32000 * 4096)
    peak = catalogue.device("a100-80gb-sxm").peak_flops_per_s["fp16"]
    assert products / peak < usual.ttft_s < 2 * products / peak


def test_a_request_is_its_first_token_and_all_others(usual: GenerationResult) -> None:
    assert usual.request_s == pytest.approx(usual.ttft_s + 99 * usual.tpot_s)
    assert usual.tokens_per_s == pytest.approx(4 * 100 / usual.request_s)


def phases(device: str, request: Request, of: GeneratingModel | None = None, **setting: Any) -> RequestPhases:
    chosen = Setting(**{"weights": "fp16", "cache": "fp16", **setting})
    return timed(of or model(), catalogue.device(device), chosen, [request], Runner())[0]


def test_tokens_take_longer_the_more_there_are_before_them() -> None:
    near, far = (phases("a100", Request(batch=8, prompt=prompt, output=16)) for prompt in (512, 3500))
    assert far.other.value > near.other.value
    more = 8 * (3500 - 512) * 2 * 32 * 4096 * 2 / catalogue.device("a100").bandwidth_bytes_per_s
    assert far.other.value - near.other.value == pytest.approx(more, rel=0.5)


def test_narrow_weights_speed_a_token_up_and_hardly_a_prompt() -> None:
    request = Request(batch=1, prompt=2048, output=16)
    whole, packed = phases("l40s", request), phases("l40s", request, weights="int4")
    assert 2.5 < whole.other.value / packed.other.value < 4
    assert whole.first.value / packed.first.value == pytest.approx(1.0, abs=0.15)


def test_prompts_of_seconds_may_take_longer_on_cards_that_do_not_keep_their_rate() -> None:
    """An RTX 6000 Ada took 2.45 times what products of milliseconds foretell; prompts of 0.1 s are as sure."""
    long, brief = (Request(batch=batch, prompt=256, output=8) for batch in (256, 2))
    above = {
        (card, request): first.high / first.value
        for card in ("rtx-6000-ada", "rtx-a6000")
        for request in (long, brief)
        for first in [phases(card, request, launch="graph").first]
    }
    assert phases("rtx-6000-ada", long).first.value > 3
    assert above["rtx-6000-ada", long] == pytest.approx(2.5)
    assert max(above["rtx-a6000", long], above["rtx-6000-ada", brief]) < 1.6


def test_a_replayed_graph_spares_the_host() -> None:
    request = Request(batch=1, prompt=64, output=8)
    small = model(layers=24, hidden=1024, heads=16, keys=16, inner=2816)
    times = [
        phases("h100-80gb-sxm", request, small, launch=launch).other.value for launch in ("session", "graph")
    ]
    assert times[0] > 1.5 * times[1]


def test_more_devices_take_less_but_not_their_share() -> None:
    request = Request(batch=1, prompt=512, output=16)
    one, eight = phases("h100-80gb-sxm", request), phases("h100-80gb-sxm", request, width=8)
    assert one.other.value / 8 < eight.other.value < one.other.value


def test_a_model_that_one_card_cannot_hold_gets_as_many_as_hold_it(tmp_path: Path) -> None:
    found = generation(tmp_path, SEVENTY_BILLION, gpu="h100")
    # Of a layer two square products, two an eighth as wide and three of its inner width; the tables of both
    # ends: 142 GB of weights, 80 GB a card.
    layer = 2 * 8192**2 + 2 * 8192 * 1024 + 3 * 8192 * 12 * 28672
    assert found.gpus == 2
    assert found.memory.fits
    assert found.memory.weights_bytes == pytest.approx(2 * (8 * layer + 2 * 128256 * 8192), rel=1e-5)


def test_what_does_not_fit_is_told_with_times_as_if_it_did(tmp_path: Path) -> None:
    found = generation(tmp_path, SEVENTY_BILLION, gpu="h100", gpus=1)
    assert not found.memory.fits
    assert found.tpot_s > 0
    assert found.largest_batch == 0
    assert found.usd_per_million_tokens is None
    assert any("does not fit" in note for note in found.notes)


def test_the_largest_batch_and_the_longest_context_just_fit(tmp_path: Path) -> None:
    path = folder(tmp_path, EIGHT_LAYERS)
    common: dict[str, Any] = {"run": False, "gpu": "a100", "cpu": "epyc-9654", "gpus": 1}
    found = analyze_generation(path, prompt=1000, output_tokens=24, **common).generation
    assert found is not None
    for batch, fits in ((found.largest_batch, True), (found.largest_batch + 1, False)):
        one = analyze_generation(path, prompt=1000, output_tokens=24, batch=batch, **common).generation
        assert one is not None
        assert one.memory.fits is fits
    assert found.longest_context == 4096  # the model's own


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> GenerationResult:
    path = tmp_path_factory.mktemp("limited")
    return generation(path, EIGHT_LAYERS, gpu="a100", ttft="100ms", tpot="4ms", gpus=1)


def test_limits_bound_the_batch_and_name_the_cheapest_that_keeps_them(
    limited: GenerationResult, tmp_path: Path
) -> None:
    found = limited
    assert found.meets_limits is True
    path = folder(tmp_path, EIGHT_LAYERS, "again")
    times = [
        analyze_generation(path, run=False, gpu="a100", cpu="epyc-9654", gpus=1, batch=batch).generation
        for batch in (found.largest_batch, found.largest_batch + 1)
    ]
    kept = [one is not None and one.ttft_s <= 0.1 and one.tpot_s <= 0.004 for one in times]
    assert kept == [True, False]
    assert found.cheapest is not None
    best = found.devices[found.cheapest]
    dollars = [row.usd_per_million_tokens for row in found.devices if row.usd_per_million_tokens is not None]
    assert best.usd_per_million_tokens == min(dollars)


def test_one_way_to_run_has_one_price_and_one_largest_batch_in_every_table(limited: GenerationResult) -> None:
    found = limited
    own = (found.device, found.gpus, found.weights, found.kv)
    rows = [
        row
        for row in (*found.devices, *found.types, *found.widths)
        if (row.device, row.gpus, row.weights, row.kv) == own
    ]
    assert len(rows) == 3
    assert {row.largest_batch for row in rows} == {found.largest_batch}
    assert {row.usd_per_million_tokens for row in rows} == {found.usd_per_million_tokens}


@pytest.mark.parametrize("batch", [None, 2])
def test_with_limits_all_figures_are_of_one_batch_searched_where_none_is_given(
    batch: int | None, tmp_path: Path
) -> None:
    given = {"ttft": "100ms", "tpot": "4ms"} | ({} if batch is None else {"batch": batch})
    analysis = asked(tmp_path, EIGHT_LAYERS, gpu="a100,l4", **given)
    found, answer = analysis.generation, analysis.answer
    assert found is not None
    assert answer is not None
    assert found.largest_batch > 2
    assert (found.batch, answer.batch) == ((batch or found.largest_batch,) * 2)
    for row in (found, *found.devices):
        if row.usd_per_hour is not None and row.gpus:
            # Dollars an hour over the tokens of an hour, of as many models as its GPUs hold.
            dollars = row.usd_per_hour / (row.gpu_count // row.gpus * row.tokens_per_s * 3600) * 1e6
            assert row.usd_per_million_tokens == pytest.approx(dollars)
            assert row.tokens_per_s == pytest.approx(row.batch * found.output_tokens / row.request_s)
    assert (answer.latency_s, answer.usd_per_million) == (found.request_s, found.usd_per_million_tokens)


def test_limits_that_nothing_keeps_name_nothing(tmp_path: Path) -> None:
    found = generation(tmp_path, TWO_LAYERS, gpu="t4", tpot="1us")
    assert found.meets_limits is False
    assert found.largest_batch == 0
    assert found.cheapest is None


def test_without_a_gpu_the_answer_is_the_cpus(tmp_path: Path) -> None:
    analysis = asked(tmp_path, LLAMA_2_7B, gpu="none")
    found = analysis.generation
    assert found is not None
    assert (found.device, found.gpus) == ("epyc-9654", 0)
    assert found.cpu is not None
    assert found.cpu.tpot_s == found.tpot_s
    # The CPU computes in 32 bits: twice the bytes of weights.
    assert found.memory.weights_bytes == 2 * WEIGHTS_7B
    assert (found.weights, found.kv) == (found.cpu.weights, found.cpu.kv) == ("fp32", "fp32")
    assert analysis.model.precision == "fp32"
    assert analysis.devices.gpu is None


def kept(rows: Iterable[GenerationOption]) -> list[tuple[str, str]]:
    return [(row.weights, row.kv) for row in rows]


def test_types_that_a_cpu_runs_alike_are_listed_once(tmp_path: Path) -> None:
    on_cpu = generation(tmp_path, TWO_LAYERS, gpu="none")
    # A CPU has the cache in 32 bits alone; floats of 8 bits it does not multiply.
    assert kept(on_cpu.types) == [("fp32", "fp32"), ("int8", "fp32"), ("int4", "fp32")]
    assert kept(on_cpu.devices) == [("fp32", "fp32")]
    narrow = generation(tmp_path / "narrow", TWO_LAYERS, gpu="none", weights="int8", kv="fp8")
    assert kept(narrow.types) == [("int8", "fp32"), ("fp32", "fp32"), ("int4", "fp32")]
    on_gpu = generation(tmp_path / "gpu", TWO_LAYERS, gpu="h100")
    assert kept(on_gpu.types) == [
        (weights, cache) for weights in ("fp16", "fp8", "int8", "int4") for cache in ("fp16", "fp8", "int8")
    ]


def plan(analysis: Analysis, name: str) -> PlanResult:
    return next(found for found in analysis.plans if found.name == name)


@pytest.mark.parametrize(
    "types", [{}, {"weights": "int4", "kv": "fp8"}], ids=["16 bits", "packed with a narrow cache"]
)
def test_the_plan_of_the_cpu_is_of_what_the_cpu_runs(tmp_path: Path, types: dict[str, str]) -> None:
    # So many tokens behind the prompt that the mean over the answer is the step in its middle.
    asked_of = {"prompt": 512, "output_tokens": 3, "batch": 4, **types}
    beside = asked(tmp_path, EIGHT_LAYERS, gpu="h100", **asked_of)
    alone = asked(tmp_path / "alone", EIGHT_LAYERS, gpu="none", **asked_of)
    told = beside.generation
    assert told is not None
    assert told.cpu is not None
    assert plan(beside, "cpu").latency_s == pytest.approx(told.cpu.tpot_s, rel=1e-6)
    assert beside.phases is not None
    assert beside.phases.prefill is not None
    prefill = next(found for found in beside.phases.prefill.plans if found.name == "cpu")
    assert prefill.latency_s == pytest.approx(told.cpu.ttft_s, rel=1e-6)
    # The graph that is decided about without a GPU is the CPU's own: another one beside it changes nothing.
    assert plan(beside, "cpu").latency_s == pytest.approx(plan(alone, "cpu").latency_s)
    needed, own = plan(beside, "cpu").memory_bytes, plan(alone, "cpu").memory_bytes
    assert needed is not None
    assert own is not None
    assert needed == pytest.approx(own, rel=1e-6)
    # 8 layers keep 4096 keys and as many values of each of 4 * 514 tokens, in 32 bits.
    cache = 8 * 2 * 4096 * 4 * 514 * 4
    assert needed == pytest.approx(alone.generation.memory.weights_bytes + cache, rel=0.01)
    assert [operator.cpu.time_s for operator in beside.operators] == [
        operator.cpu.time_s for operator in alone.operators
    ]


@pytest.mark.parametrize("case", sorted(TINY))
def test_a_step_has_the_same_operators_on_a_cpu_but_for_casts(case: str) -> None:
    model = from_values(TINY[case], name=case).model
    gpu, cpu = catalogue.device("h100"), catalogue.device("epyc-9654")
    request = Request(batch=2, prompt=model.decoder_prompt(8), output=4, source=model.source_of(8))
    for setting in (
        Setting(weights="fp16", cache="fp16"),
        Setting(weights="fp16", cache="fp8"),
        Setting(weights="int8", cache="fp16"),
        Setting(weights="int4", cache="int8"),
    ):
        both = [model.types_on(device, setting) for device in (gpu, cpu)]
        for sizes in (request.prefill(1), request.decode(request.middle, 1)):
            wide, own = (
                [node.op_type for node in model.whole_step(sizes, types).nodes if node.op_type != "Cast"]
                for types in both
                if types is not None
            )
            assert wide == own


def test_a_cast_of_a_narrow_cache_costs_the_cpu_nothing(tmp_path: Path) -> None:
    sizes = {"prompt": 8, "output_tokens": 3}
    narrow = asked(tmp_path, TINY["deepseek_v3"], gpu="h100", kv="fp8", **sizes)
    alone = asked(tmp_path / "alone", TINY["deepseek_v3"], gpu="none", **sizes)
    casts = [operator.cpu.time_s for operator in narrow.operators if operator.op_type == "Cast"]
    assert casts[-2:] == [None, None]  # a layer has one, and the CPU's cache is no narrower than its floats
    assert [operator.cpu.time_s for operator in narrow.operators if operator.cpu.time_s is not None] == [
        operator.cpu.time_s for operator in alone.operators if operator.cpu.time_s is not None
    ]
    assert plan(narrow, "cpu").latency_s == pytest.approx(plan(alone, "cpu").latency_s)


def test_a_tied_head_is_held_once(tmp_path: Path) -> None:
    tied = {**TWO_LAYERS, "tie_word_embeddings": True}
    analysis = asked(tmp_path, tied, gpu="a100")
    told = analysis.generation
    assert told is not None
    # Embedding, which is the head; of each layer four square products, three of 11008 and two norms; a norm.
    elements = 32000 * 4096 + 2 * (4 * 4096 * 4096 + 3 * 4096 * 11008 + 2 * 4096) + 4096
    assert analysis.model.parameters == elements
    assert told.memory.weights_bytes == 2 * elements
    # The graph has tables of rotations besides: cosines and sines of 64 angles for 4096 places.
    assert analysis.model.parameter_bytes == pytest.approx(2 * (elements + 2 * 4096 * 64), rel=1e-6)


def test_parts_of_a_step_add_up_to_it(tmp_path: Path) -> None:
    found = generation(tmp_path, EIGHT_WIDE_LAYERS, gpu="h100", gpus=4)
    assert sum(times["prefill"] for times in found.parts.values()) == pytest.approx(found.ttft_s)
    assert sum(times["decode"] for times in found.parts.values()) == pytest.approx(found.tpot_s, rel=0.02)
    assert found.parts["Between devices"]["decode"] > 0


def test_one_token_of_context_more_or_less_changes_next_to_nothing() -> None:
    """Engines keep caches in pages: products with them are aligned whatever the context."""
    wide = {
        "hidden_size": 2048, "num_attention_heads": 16, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "max_position_embeddings": 8192,
    }  # fmt: skip
    deepseek = from_values({**TINY["deepseek_v3"], **wide}, name="wide").model
    requests = (Request(batch=64, prompt=prompt, output=2) for prompt in (4095, 4096))
    even, odd = (phases("h100", request, deepseek).other.value for request in requests)
    assert odd == pytest.approx(even, rel=0.01)


def test_every_card_of_the_catalogue_stands_in_the_table(usual: GenerationResult) -> None:
    assert {row.device for row in usual.devices} == {*(gpu.slug for gpu in catalogue.gpus()), "epyc-9654"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"prompt": 0}, "--prompt 0"),
        ({"output_tokens": -1}, "--output-tokens -1"),
        ({"gpus": 3}, "cannot be split"),
        ({"weights": "int3"}, "--weights int3"),
        ({"kv": "int4"}, "--kv int4"),
        ({"launch": "graphs"}, "--launch graphs"),
        ({"prompt": 4000}, "4,256 tokens"),
        ({"tpot": "0ms"}, "--tpot"),
    ],
)
def test_what_cannot_be_is_one_message_with_a_way_out(
    tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError) as refused:
        asked(tmp_path, LLAMA_2_7B, gpu="a100", **options)
    assert said in str(refused.value)


def test_an_option_that_there_is_not_is_a_type_error(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="Did you mean prompt"):
        asked(tmp_path, LLAMA_2_7B, promt=3)


def test_a_prompt_on_the_gpu_and_tokens_on_the_cpu_pay_where_tokens_are_quicker_there(tmp_path: Path) -> None:
    tiny = {
        **LLAMA_2_7B, "vocab_size": 512, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 12,
        "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 32,
    }  # fmt: skip
    # On a T4 launches alone take longer than the CPU's arithmetic; the prompt of many sequences does not.
    found = generation(tmp_path, tiny, gpu="t4", prompt=1024, output_tokens=64)
    assert found.split is not None
    assert found.cpu is not None
    assert found.split.handover_bytes == 1024 * found.kv_bytes_per_token
    assert found.split.request_s == pytest.approx(
        found.ttft_s + found.split.handover_s + 63 * found.cpu.tpot_s, rel=1e-6
    )
    quickest = min(found.request_s, found.cpu.request_s)
    assert found.split.pays == (found.split.request_s < quickest)
    assert found.split.pays


def test_where_nobody_says_how_many_tokens_there_are_as_many_as_the_model_takes(tmp_path: Path) -> None:
    short = {**TWO_LAYERS, "max_position_embeddings": 1024}
    found = generation(tmp_path, short, gpu="a100")
    assert (found.prompt_tokens, found.output_tokens) == (768, 256)
    tiny = folder(tmp_path, {**short, "max_position_embeddings": 64}, "tiny")
    least = analyze_generation(tiny, run=False, gpu="a100", cpu="epyc-9654").generation
    assert least is not None
    assert (least.prompt_tokens, least.output_tokens) == (32, 32)


def test_weights_that_a_cpu_cannot_multiply_need_a_gpu(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no way with weights of fp8"):
        asked(tmp_path, TWO_LAYERS, gpu="none", weights="fp8")
    beside = analyze_generation(tmp_path / "model", run=False, cpu="epyc-9654", gpu="h100", weights="fp8")
    assert beside.generation is not None
    assert beside.generation.cpu is None
    # What it would take is told, and that it cannot be had.
    assert "GemmFloat8" in plan(beside, "cpu").why
    assert beside.verdict.device == "gpu"
    assert "no kernel for GemmFloat8" in beside.verdict.sentence


@pytest.mark.parametrize("blocks", [None, [128, 128]])
def test_weights_with_a_scale_for_each_block_make_experts_take_longer(
    tmp_path: Path, blocks: list[int] | None
) -> None:
    """Published kernels of a B200's chip take 1.1 to 2.1 times as long by blocks, 1.4 at the median."""
    mixtral = {**TINY["mixtral"], "hidden_size": 2048, "intermediate_size": 4096}
    told = {"quant_method": "fp8", "fmt": "e4m3"} | ({"weight_block_size": blocks} if blocks else {})
    plain = generation(tmp_path / "plain", mixtral, gpu="b200", weights="fp8", launch="graph")
    stored = {**mixtral, "quantization_config": told}
    found = generation(tmp_path / "stored", stored, gpu="b200", launch="graph")
    assert found.weights == "fp8"
    ratio = found.tpot_s / plain.tpot_s
    assert 1.05 < ratio < 1.4 if blocks else ratio == pytest.approx(1.0)
    assert any("each block of 128 x 128" in note for note in found.notes) == bool(blocks)


WELL_KNOWN = (
    "llama", "gemma3_text", "gpt2", "falcon", "mixtral", "deepseek_v3", "gpt_oss", "mamba", "t5", "whisper",
    "qwen3_next", "gemma3n_text", "falcon_h1", "bart",
)  # fmt: skip


@pytest.mark.parametrize("case", WELL_KNOWN)
def test_every_family_has_an_answer_in_every_format(case: str, tmp_path: Path) -> None:
    found = asked(tmp_path, EVERY[case], gpu="l4", output_tokens=5, prompt=5, batch=2, weights="int8")
    assert found.generation is not None
    assert 0 < found.generation.tpot_low_s < found.generation.tpot_s < found.generation.tpot_high_s
    # A page takes as long as all else: those of a cache, of a state and of a source.
    pages = ("html", "csv") if case in ("llama", "mamba", "t5") else ()
    for format_name in ("text", "markdown", *pages):
        assert found.render(format_name)
    place = tmp_path / "record.json"
    place.write_text(found.render("json"), encoding="utf-8")
    assert load_report(place).to_dict() == found.to_dict()


# T5 large with 4 of its 24 layers.
T5: dict[str, Any] = {
    "model_type": "t5", "vocab_size": 32128, "d_model": 1024, "d_kv": 64, "d_ff": 4096, "num_layers": 4,
    "num_decoder_layers": 4, "num_heads": 16, "decoder_start_token_id": 0, "feed_forward_proj": "relu",
}  # fmt: skip


def test_what_an_encoder_holds_follows_its_source(tmp_path: Path) -> None:
    path = folder(tmp_path, T5)
    common: dict[str, Any] = {"run": False, "gpu": "h100", "cpu": "epyc-9654", "output_tokens": 16}
    short, long, many = (
        analyze_generation(path, prompt=prompt, batch=batch, **common).generation
        for prompt, batch in ((512, 1), (2048, 1), (512, 64))
    )
    assert short is not None
    assert long is not None
    assert many is not None
    assert short.prompt_tokens == 512
    # A state of each token of the source, at least two of them at once.
    for found, rows in ((short, 512), (long, 2048), (many, 64 * 512)):
        assert found.memory.activation_bytes > 2 * rows * 1024 * 2
    assert many.memory.activation_bytes > 50 * short.memory.activation_bytes
    assert long.ttft_s > short.ttft_s
    # Each layer of the decoder keeps keys and values of the source.
    assert long.state_bytes == 4 * 2 * 16 * 64 * 2048 * 2
    times = {point.context: point.ttft_s for point in short.sweep if point.batch == 1}
    assert times[16384] > 4 * times[1024]


def test_gpus_are_not_asked_for_where_there_are_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no GPU to share"):
        asked(tmp_path, LLAMA_2_7B, gpu="none", gpus=2)


def test_graphs_take_no_longer_than_launches_one_by_one(tmp_path: Path) -> None:
    path = folder(tmp_path, EIGHT_WIDE_LAYERS)
    one_by_one, replayed = (
        analyze_generation(path, run=False, gpu="a100", gpus=4, cpu="epyc-9654", launch=launch).generation
        for launch in ("session", "graph")
    )
    assert one_by_one is not None
    assert replayed is not None
    assert replayed.ttft_s <= one_by_one.ttft_s
    assert replayed.tpot_s < one_by_one.tpot_s


def test_all_gpus_are_compared_without_being_named(tmp_path: Path) -> None:
    found = generation(tmp_path, TWO_LAYERS, gpu="all")
    assert {row.device for row in found.devices} == {*(gpu.slug for gpu in catalogue.gpus()), "epyc-9654"}


def test_with_limits_batches_are_searched_where_the_request_ran_too(tmp_path: Path) -> None:
    path = folder(tmp_path, TINY["gpt2"])
    analysis = analyze_generation(path, run=True, runs=3, gpu="none", prompt=8, output_tokens=16, tpot="10s")
    assert analysis.environment.measurement is not None
    assert analysis.generation is not None
    assert analysis.answer is not None
    # A limit that no batch misses leaves memory: far more than one sequence.
    assert analysis.answer.batch == analysis.generation.batch == analysis.generation.largest_batch > 1
    assert analysis.answer.meets is True


def test_a_step_that_was_run_is_the_plan_of_the_cpu(tmp_path: Path) -> None:
    path = folder(tmp_path, TINY["gpt2"])
    found = analyze_generation(path, run=True, runs=3, gpu="l4", prompt=8, output_tokens=16)
    told, measurement = found.generation, found.environment.measurement
    assert told is not None
    assert told.cpu is not None
    assert measurement is not None
    prompt, _, middle, _ = measurement["steps"]
    assert (prompt["tokens"], middle["context"]) == (8, 16)
    cpu = plan(found, "cpu")
    assert (cpu.latency_s, cpu.origin) == (middle["median_s"], "measured")
    assert found.phases is not None
    assert found.phases.prefill is not None
    prefill = next(one for one in found.phases.prefill.plans if one.name == "cpu")
    assert prefill.latency_s == told.cpu.ttft_s == prompt["median_s"]


def test_tokens_of_a_state_space_are_run_and_its_prompt_is_predicted(tmp_path: Path) -> None:
    path = folder(tmp_path, TINY["mamba"])
    asked_of: dict[str, Any] = {"gpu": "none", "prompt": 8, "output_tokens": 16}
    run, predicted = (analyze_generation(path, run=wanted, runs=3, **asked_of) for wanted in (True, False))
    told, measurement = run.generation, run.environment.measurement
    assert told is not None
    assert predicted.generation is not None
    assert measurement is not None
    assert [(step["tokens"], step["context"]) for step in measurement["steps"]] == [(1, 9), (1, 16), (1, 23)]
    assert "ONNX Runtime has no SelectiveScan" in run.environment.messages[0]
    assert told.ttft_s == predicted.generation.ttft_s
    # Simpson's rule over the first, the middle and the last token.
    times = [step["median_s"] for step in measurement["steps"]]
    assert told.tpot_s == pytest.approx((times[0] + 4 * times[1] + times[2]) / 6)
    assert told.origin == "mixed"


@pytest.mark.parametrize("lacking", ["memory", "room"])
def test_what_this_machine_cannot_hold_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    """Its weights are 0.3 MB, three times over in memory and once in a file."""
    path = folder(tmp_path, TINY["gpt2"])
    if lacking == "memory":
        memory = psutil.virtual_memory()._replace(available=100_000)
        monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    else:
        disk = shutil.disk_usage(tmp_path)._replace(free=100_000)
        monkeypatch.setattr(shutil, "disk_usage", lambda _folder: disk)
    found = analyze_generation(path, run=True, runs=3, gpu="none", prompt=8, output_tokens=16)
    assert found.generation is not None
    assert found.generation.origin == "predicted"
    said = " ".join(found.environment.messages)
    assert "Not run on the CPU, predicted instead" in said
    assert f"lacks the {lacking}" in said


def test_a_device_is_rented_as_it_is_asked_for(tmp_path: Path) -> None:
    asked_for: dict[str, Any] = {"gpu": "a100-40gb-pcie,l4", "prompt": 128, "output_tokens": 8}
    (tmp_path / "spot").mkdir()
    usual = generation(tmp_path, TWO_LAYERS, **asked_for)
    spot = generation(tmp_path / "spot", TWO_LAYERS, **asked_for, pricing="spot", region="asia")
    before, after = (next(row for row in found.devices if row.device == "l4") for found in (usual, spot))
    # g2-standard-4 is the cheapest with an L4: 0.70683 in Iowa, 0.52327 as a spot machine in Singapore.
    assert (before.pricing, before.region, before.usd_per_hour) == ("on-demand", "us-central1", 0.70683)
    assert (after.pricing, after.region, after.usd_per_hour) == ("spot", "asia-southeast1", 0.52327)
    assert after.price_date == "2026-08-03"
    assert before.usd_per_million_tokens is not None
    assert after.usd_per_million_tokens == pytest.approx(before.usd_per_million_tokens * 0.52327 / 0.70683)


def test_of_several_gpus_the_record_is_about_the_one_that_keeps_the_limits(tmp_path: Path) -> None:
    """Eight layers and a head are 3.8 GB: an L4 reads them in 12 ms, an A100 in 2."""
    given: dict[str, Any] = {"prompt": 512, "output_tokens": 64, "tpot": "8ms"}
    analysis, other = (
        asked(tmp_path / names, EIGHT_LAYERS, gpu=names, **given) for names in ("l4,a100", "a100,l4")
    )
    result = analysis.generation
    # Wherever it stands.
    assert analysis.answer == other.answer
    assert result is not None
    assert analysis.answer is not None
    assert analysis.devices.gpu is not None
    assert {analysis.answer.device, result.device, analysis.devices.gpu.slug} == {"a100-80gb-sxm"}
    assert (analysis.answer.meets, result.meets_limits) == (True, True)
    assert analysis.answer.usd_per_million == result.usd_per_million_tokens
    assert [one.device.slug for one in analysis.alternatives] == ["l4"]
    (l4,) = [way for way in analysis.ranking if way.device == "l4"]
    assert l4.why_not is not None
    # One misses the limit; several keep it and cost more.
    assert (l4.gpus > 1, l4.why_not.reason) == (True, "expensive")
