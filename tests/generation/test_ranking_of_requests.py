"""One answer for a request: the cheapest device that keeps the limits, each other one with its cause."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import generation_records as records
import pytest

from analyzer.generation.ranking import rank_requests
from analyzer.record.generation import GenerationResult
from analyzer.record.outcome import Answer, RankedWay

SMALL, OWN, LARGE, CPU = "imaginary-small", "imaginary-gpu", "imaginary-large", "imaginary-cpu"


def ranked(result: GenerationResult | None = None, *named: str) -> tuple[Answer | None, dict[str, RankedWay]]:
    answer, ways = rank_requests(result or records.generation(), "Imaginary GPU 3000", named or (OWN,))
    assert answer is None or [key for key, way in enumerate(ways) if way.why_not is None] == [0]
    return answer, {way.device: way for way in ways}


def test_of_one_gpu_the_answer_is_that_one_and_the_table_says_why_not_the_others() -> None:
    """1.2 s and $4; the small one takes 3 s and $3, the large one has no price, the CPU no room."""
    answer, ways = ranked()
    assert answer is not None
    assert (answer.device, answer.gpus, answer.plan, answer.batch) == (OWN, 1, "gpu", 8)
    assert (answer.latency_s, answer.ttft_s, answer.tpot_s) == (1.2, 0.2, 0.01)
    assert (answer.usd_per_million, answer.meets) == (4.0, None)
    # Half to double the time are half to double the dollars.
    assert (answer.usd_low_per_million, answer.usd_high_per_million) == (2.0, 8.0)
    assert answer.sentence == (
        "1 x Imaginary GPU 3000, fp16 weights, fp16 cache: "
        "the first token comes after 200 ms, each further one after 10.0 ms."
    )
    causes = {device: way.why_not.reason for device, way in ways.items() if way.why_not}
    assert causes == {SMALL: "as_good", LARGE: "unknown", CPU: "memory"}


def test_of_several_gpus_the_cheapest_is_the_answer() -> None:
    answer, ways = ranked(None, OWN, SMALL)
    assert answer is not None
    assert (answer.device, answer.usd_per_million) == (SMALL, 3.0)
    # 4 over 3 dollars; both err by two independently, sqrt(2) times as far in the logarithm.
    why = ways[OWN].why_not
    assert why is not None
    assert why.sentence == "as good within the error: 1.3x (0.50x to 3.6x) the dollars"


def test_a_dearer_device_says_by_how_much() -> None:
    small = replace(records.devices()[0], usd_per_million_tokens=0.1)
    _, ways = ranked(records.generation(devices=(small, *records.devices()[1:])), OWN, SMALL)
    why = ways[OWN].why_not
    assert why is not None
    assert (why.reason, why.sentence) == ("expensive", "40.0x (15.0x to 107x) the dollars")


LIMITED: dict[str, Any] = {"ttft_limit_s": 0.15, "tpot_limit_s": 0.02}


def test_where_the_requested_device_misses_the_limits_another_one_that_keeps_them_is_the_answer() -> None:
    """The large one takes 0.1 s to the first token of 0.15 that are allowed, the others 0.2 and 0.5."""
    small, own, large, cpu = records.devices()
    devices = (
        replace(large, meets_limits=True, usd_per_million_tokens=9.0, batch=12, largest_batch=12),
        replace(small, meets_limits=False),
        replace(own, meets_limits=False),
        cpu,
    )
    result = records.generation(devices=devices, meets_limits=False, **LIMITED)
    answer, ways = ranked(result)
    assert answer is not None
    assert (answer.device, answer.gpus, answer.meets) == (LARGE, 2, True)
    assert answer.sentence.startswith(
        "2 x Imaginary GPU 9000, fp16 weights, fp16 cache, keeps the limits at batch 12: "
    )
    why = ways[OWN].why_not
    assert why is not None
    assert (why.reason, why.sentence) == ("limit", "TTFT is 1.3x its limit")


def test_where_nothing_keeps_the_limits_the_nearest_of_what_was_named_is_the_answer() -> None:
    """0.2 s of 0.01 allowed against 0.5 s; the large one, at 0.1 s, was not named."""
    late = tuple(replace(one, meets_limits=False) for one in records.devices())
    result = records.generation(devices=late, meets_limits=False, ttft_limit_s=0.01)
    answer, _ = ranked(result, SMALL, OWN)
    assert answer is not None
    assert (answer.device, answer.meets) == (OWN, False)
    assert answer.sentence.startswith(
        "Nothing keeps the limits; of what was requested, 1 x Imaginary GPU 3000, fp16 weights, fp16 cache "
    )


def test_the_dollars_of_a_rented_cpu_are_not_those_of_the_requests_own() -> None:
    """The table has the cheapest rented CPU, whose times are others."""
    *gpus, cpu = records.devices()
    priced = replace(cpu, fits=True, largest_batch=8, usd_per_million_tokens=1.0, instance="c.large")
    _, ways = ranked(records.generation(devices=(*gpus, priced)))
    assert (ways[CPU].usd_per_million, ways[CPU].instance, ways[CPU].usd_per_hour) == (None, None, None)
    assert ways[CPU].remark == "no price is known"


def test_a_model_that_fits_nowhere_has_no_answer() -> None:
    full = tuple(replace(one, fits=False) for one in records.devices())
    result = records.generation(devices=full, memory=records.memory(fits=False))
    answer, ways = ranked(result)
    assert answer is None
    assert {way.why_not.reason for way in ways.values() if way.why_not} == {"memory"}
    # 16 GB on two devices.
    assert ways[LARGE].remark == "it does not fit: it needs 8.00 GB each"


@pytest.mark.parametrize("named", [(OWN,), (OWN, SMALL, LARGE)])
def test_every_way_has_its_own_figures(named: tuple[str, ...]) -> None:
    _, ways = ranked(None, *named)
    for option in records.devices():
        way = ways[option.device]
        assert (way.latency_s, way.low_s, way.high_s) == (
            option.request_s,
            option.request_low_s,
            option.request_high_s,
        )
        assert (way.usd_per_million, way.throughput_per_s) == (
            option.usd_per_million_tokens,
            option.tokens_per_s,
        )
