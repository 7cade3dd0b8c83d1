"""``analyze capacity`` of a model that generates: beside its own answer, caches, what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from tiny_models import LLAMA_2_7B, LLAMA_3_70B, folder

from analyzer import analyze_generation, plan_capacity
from analyzer.devices.device import Device
from analyzer.errors import RecordError, UsageError
from analyzer.generation.memory import Footprint, sequences_held
from analyzer.generation.request import Request
from analyzer.record import from_dict, to_dict
from analyzer.record.capacity import CapacityOption, CapacityResult

# A GPU that is here would stand beside those that are named. Of this CPU there is one instance.
USUAL: dict[str, Any] = {
    "run": False,
    "cpu": "altra-q64-30",
    "prompt": 512,
    "output_tokens": 64,
    "launch": "graph",
}
# Where neither memory nor seconds are the matter: a step of 32 layers takes ten times as long to predict.
TWO_LAYERS: dict[str, Any] = {**LLAMA_2_7B, "num_hidden_layers": 2}


def planned(path: Path, config: dict[str, Any], **options: Any) -> CapacityResult:
    found = plan_capacity(folder(path, config), **{**USUAL, **options}).capacity
    assert found is not None
    return found


def on(found: CapacityResult, device: str, *, width: int = 1) -> CapacityOption:
    return next(one for one in found.options if one.device == device and one.width == width)


def test_at_a_light_load_a_request_takes_what_it_takes_alone(tmp_path: Path) -> None:
    found = planned(tmp_path, LLAMA_2_7B, gpu="rtx-a6000", rate=0.01, ttft="2s")
    alone = analyze_generation(tmp_path / "model", gpu="rtx-a6000", **USUAL).generation
    assert alone is not None
    option = on(found, "rtx-a6000")
    assert option.p50_s == pytest.approx(alone.ttft_s, rel=0.02)
    assert option.tpot_p50_s == pytest.approx(alone.tpot_s, rel=0.02)
    # Sequences that run, by Little: so many come, and each stays for its tokens.
    assert option.mean_batch == pytest.approx(0.01 / option.count * 63 * alone.tpot_s, rel=0.15)


def test_the_cache_limits_how_many_run_at_once(tmp_path: Path) -> None:
    found = planned(tmp_path, LLAMA_2_7B, gpu="l4", rate=1, ttft="60s", prompt=3072, output_tokens=1024)
    option = on(found, "l4")
    # 24 GB less CUDA's 0.3 and 13.5 of weights hold four caches of 4,096 tokens of 0.5 MB each at the most.
    assert 1 <= option.max_batch <= 4
    assert option.mean_batch <= option.max_batch


def test_a_gpu_that_nobody_rents_out_is_named_beside_dollars(tmp_path: Path) -> None:
    found = planned(tmp_path, TWO_LAYERS, gpu="h200,rtx-4090", rate=0.1, ttft="5s")
    assert on(found, "rtx-4090").feasible
    assert any(note.startswith("No price of") and "4090 is known" in note for note in found.notes)


def holder(memory_bytes: int) -> Device:
    """A processor whose memory counts whole."""
    return Device(slug="here", name="Here", kind="cpu", bandwidth_bytes_per_s=1e11, memory_bytes=memory_bytes)


@pytest.mark.parametrize("sequences", [1, 2, 100, 256])
@pytest.mark.parametrize("width", [1, 2])
def test_room_is_kept_for_the_sequences_that_are_held_and_for_no_more(sequences: int, width: int) -> None:
    # 1 GB of weights, 4 MB of activations for a sequence of a step, caches of 100 MB over all devices.
    footprint = Footprint(
        weights=10**9,
        tables=0,
        prefill_row=1000.0,
        decode_row=4e6,
        cache=lambda tokens: 100_000 * tokens,
        width=width,
    )
    request = Request(batch=1, prompt=900, output=100, source=0)
    needed = 10**9 + sequences * (4 * 10**6 + 100_000_000 // width)
    held = sequences_held(footprint, request, 1000, holder(needed), 256)
    assert held is not None
    assert held == (sequences, 1000 * sequences)
    less = sequences_held(footprint, request, 1000, holder(needed - 10_000), 256)
    if sequences == 1:
        assert less is None
    else:
        assert less is not None
        assert less[0] == sequences - 1


def test_a_cache_that_is_written_anew_has_room_twice_and_a_long_request_beside_short_ones() -> None:
    footprint = Footprint(
        weights=0,
        tables=0,
        prefill_row=0.0,
        decode_row=0.0,
        cache=lambda tokens: 1000 * tokens,
        width=1,
        grows=True,
    )
    request = Request(batch=1, prompt=900, output=100, source=0)
    held = sequences_held(footprint, request, 250, holder(2_000_000), 256)
    # Past and present of 1,000 tokens: the long one alone, or four of usual length.
    assert held is not None
    assert held == (4, 1000)
    assert sequences_held(footprint, request, 250, holder(1_999_000), 256) is None


def test_options_are_in_the_order_of_dollars_and_say_what_they_rest_on(tmp_path: Path) -> None:
    found = planned(
        tmp_path,
        LLAMA_2_7B,
        gpu="l4,l40s,h100-80gb-sxm",
        rate=20,
        ttft="1s",
        tpot="50ms",
        headroom="20%",
        growth=1.5,
        spare=1,
    )
    able = [one for one in found.options if one.feasible]
    assert (found.requests, found.best, found.tpot_limit_s) == ("generation", 0, 0.05)
    dollars = [one.usd_per_month or 0.0 for one in able]
    assert dollars == sorted(dollars)
    assert [one.feasible for one in found.options] == sorted(
        (one.feasible for one in found.options), reverse=True
    )
    for one in able:
        assert one.count == math.ceil(20 * 1.5 * 1.2 / one.highest_rate_per_s - 1e-9) + 1
        assert one.usd_per_month == pytest.approx(one.count * one.usd_per_hour * 730)
        assert one.p99_s <= 1.1
        assert one.tpot_p99_s <= 0.055
        assert one.tokens_per_s == pytest.approx(20 * 1.5 * 64)
        # A request gives 64 of them.
        assert one.usd_per_million_tokens == pytest.approx(one.usd_per_million / 64)
    for one in found.options:
        if not one.feasible:
            assert one.reason
            assert (one.count, one.highest_rate_per_s, one.usd_per_month, one.p99_s) == (None,) * 4


def test_a_model_too_large_for_one_card_is_shared_by_those_of_an_instance(tmp_path: Path) -> None:
    found = planned(tmp_path, LLAMA_3_70B, gpu="h100-80gb-sxm,l4", rate=1, ttft="5s")
    able = [one for one in found.options if one.feasible]
    # 141 GB of weights lie on no single card of 80, and on two only without a cache.
    assert {one.width for one in able if one.device == "h100-80gb-sxm"} <= {2, 4, 8}
    assert all(one.width * one.replicas <= 8 for one in able)
    alone = next(one for one in found.options if one.instance == "p5.4xlarge")
    assert not alone.feasible
    assert "No room" in alone.reason


def test_the_record_can_be_written_and_read(tmp_path: Path) -> None:
    model = folder(tmp_path, TWO_LAYERS)
    analysis = plan_capacity(model, gpu="h200", rate=1, ttft="2s", **USUAL)
    assert from_dict(to_dict(analysis)) == analysis
    assert plan_capacity(model, gpu="h200", rate=1, ttft="2s", **USUAL).capacity == analysis.capacity
    with pytest.raises(RecordError, match="generates"):
        plan_capacity(analysis, rate=1, ttft="2s")


def test_lengths_come_from_a_trace(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens\n0,100,10\n1,300,30\n2,200,20\n4,0,5\n")
    found = planned(tmp_path / "model", TWO_LAYERS, gpu="h200", ttft="2s", arrivals=trace, prompt=None)
    # Three intervals in four seconds; what has no prompt is no request that takes time.
    assert found.rate_per_s == pytest.approx(3 / 4)
    assert (found.prompt_tokens, found.output_tokens) == (200, 20)
    assert any("bursts" in note for note in found.notes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 1, "p99": "50ms", "ttft": "1s"}, "--p99 is of single inferences"),
        ({"rate": 1, "tpot": "50ms"}, "time to the first token is missing"),
        ({"ttft": "1s"}, "--rate is missing"),
        ({"rate": 0, "ttft": "1s"}, "--rate 0"),
        ({"rate": 1, "ttft": "1"}, "needs a unit"),
        ({"rate": 1, "ttft": "1us"}, "quickest first token"),
        ({"rate": 1, "ttft": "1s", "spare": 1000}, "--spare 1000"),
    ],
)
def test_what_cannot_be_asked_is_one_error(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        planned(tmp_path, TWO_LAYERS, gpu="h200", **options)


def test_traffic_that_cannot_be_right_is_refused_before_the_model_is_looked_at(tmp_path: Path) -> None:
    stages: list[str] = []
    with pytest.raises(UsageError, match="--rate is missing"):
        plan_capacity(
            folder(tmp_path, TWO_LAYERS),
            gpu="h200",
            ttft="1s",
            progress=lambda stage, _share: stages.append(stage),
            **USUAL,
        )
    assert stages == []


@pytest.mark.parametrize("rows", ["0,1\n1,2\n", "0,a,b\n1,2,3\n", "0,1,0\n1,2,0\n"])
def test_a_trace_without_tokens_is_an_error(tmp_path: Path, rows: str) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(rows)
    with pytest.raises(UsageError, match="tokens"):
        planned(tmp_path / "model", TWO_LAYERS, gpu="h200", ttft="2s", arrivals=trace)
