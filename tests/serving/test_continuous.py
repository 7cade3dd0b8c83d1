"""Continuous batching, held against a loop that makes one step after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from queue_models import simulate_generation

from analyzer.arrays import Floats
from analyzer.errors import UsageError
from analyzer.serving.continuous import (
    Conversations,
    GenerationScenario,
    GenerationServer,
    highest_throughput_per_s,
    simulated_generation,
)
from analyzer.serving.queue import single_requests

SERVER = GenerationServer(
    prefill=((128, 0.02), (1024, 0.08), (4096, 0.35)),
    decode=((1, 0.012, 1e-7), (8, 0.013, 6e-7), (64, 0.020, 5e-6)),
    cache_tokens=100_000,
    max_batch=48,
)
RNG = np.random.default_rng(0)
MIXED = Conversations(prompts=RNG.integers(100, 3000, 500), outputs=RNG.integers(1, 300, 500))
EQUAL = Conversations(prompts=np.array([1024]), outputs=np.array([64]))


def by_steps(
    server: GenerationServer, rate: float, asked: Conversations, requests: int
) -> tuple[Floats, Floats, float]:
    """Times to the first token and of each further one, and how many ran on average."""
    rng = np.random.default_rng(42)
    arrivals = np.cumsum(rng.exponential(1 / rate, requests))
    which = rng.integers(0, len(asked.prompts), requests)
    prompts, outputs = asked.prompts[which], asked.outputs[which]
    prefill, table = server.prefill_s(prompts.astype(np.float64)), server.decode_table()
    now, head, kept, area = 0.0, 0, 0, 0.0
    running: list[list[int]] = []  # request, tokens left, tokens cached
    first, last = np.zeros(requests), np.zeros(requests)
    while head < requests or running:
        if not running and head < requests:
            now = max(now, arrivals[head])
        need = prompts[head] + outputs[head] if head < requests else 0
        waits = head < requests and arrivals[head] <= now
        if waits and len(running) < server.max_batch and kept + need <= server.cache_tokens:
            area += len(running) * prefill[head]
            now += prefill[head]
            first[head] = last[head] = now
            if outputs[head] > 1:
                running.append([head, outputs[head] - 1, prompts[head] + 1])
                kept += need
            head += 1
            continue
        context = sum(one[2] for one in running) / len(running)
        step = table[0, len(running)] + table[1, len(running)] * context
        area += len(running) * step
        now += step
        for one in running:
            one[1] -= 1
            one[2] += 1
            if not one[1]:
                last[one[0]] = now
                kept -= prompts[one[0]] + outputs[one[0]]
        running = [one for one in running if one[1]]
    counted = slice(requests // 5, None)
    steps = (outputs - 1)[counted]
    further = (last - first)[counted][steps > 0] / steps[steps > 0]
    return (first - arrivals)[counted], further, area / now


@pytest.mark.parametrize("asked", [MIXED, EQUAL], ids=["mixed", "equal"])
@pytest.mark.parametrize("share", [0.1, 0.4, 0.7])
def test_first_and_further_tokens_come_as_a_step_after_the_other_has_them(
    asked: Conversations, share: float
) -> None:
    rate = share * highest_throughput_per_s(SERVER, asked)
    ttft, tpot, running = by_steps(SERVER, rate, asked, 8000)
    seen = simulate_generation(SERVER, rate, asked, requests=20_000)
    assert seen.mean_s == pytest.approx(ttft.mean(), rel=0.07)
    assert seen.p50_s == pytest.approx(np.percentile(ttft, 50), rel=0.05)
    assert seen.p95_s == pytest.approx(np.percentile(ttft, 95), rel=0.12)
    assert seen.tpot_p50_s == pytest.approx(np.percentile(tpot, 50), rel=0.05)
    assert seen.tpot_p99_s == pytest.approx(np.percentile(tpot, 99), rel=0.12)
    assert seen.mean_batch == pytest.approx(running, rel=0.1)


@pytest.mark.parametrize("output", [1000, 3000])
def test_answers_so_long_that_the_cache_slows_their_steps_let_others_in_when_they_come(output: int) -> None:
    slowing = GenerationServer(
        prefill=((1000, 0.1),), decode=((1, 0.033, 2e-6), (8, 0.034, 8e-6)), cache_tokens=10**6, max_batch=8
    )
    asked = Conversations(prompts=np.array([1000]), outputs=np.array([output]))
    rate = 0.05 * highest_throughput_per_s(slowing, asked)
    ttft, tpot, _ = by_steps(slowing, rate, asked, 300)
    seen = simulate_generation(slowing, rate, asked, requests=2000)
    assert seen.p95_s == pytest.approx(np.percentile(ttft, 95), rel=0.1)
    assert seen.tpot_p50_s == pytest.approx(np.percentile(tpot, 50), rel=0.03)


def test_a_request_alone_takes_its_prompt_and_then_its_steps() -> None:
    asked = Conversations(prompts=np.array([1024]), outputs=np.array([11]))
    seen = simulate_generation(SERVER, 1e-4, asked, requests=50)
    # Ten steps behind 1,025 to 1,034 cached tokens.
    step = 0.012 + 1e-7 * (1025 + 4.5)
    assert seen.p99_s == pytest.approx(0.08)
    assert seen.tpot_p99_s == pytest.approx(step)


def test_one_token_is_made_by_the_prompt_alone() -> None:
    asked = Conversations(prompts=np.array([128]), outputs=np.array([1]))
    seen = simulate_generation(SERVER, 10.0, asked, requests=2000)
    # M/D/1 with the prompt's time as its service.
    load = 10 * 0.02
    assert seen.mean_s == pytest.approx(0.02 * (1 + load / (2 * (1 - load))), rel=0.02)


def test_a_cache_with_room_for_one_request_serves_one_after_the_other() -> None:
    small = GenerationServer(prefill=SERVER.prefill, decode=SERVER.decode, cache_tokens=1100, max_batch=48)
    seen = simulate_generation(small, 0.1, EQUAL, requests=500)
    assert seen.mean_batch <= 1
    whole = 0.08 + 63 * (0.012 + 1e-7 * 1056)
    assert highest_throughput_per_s(small, EQUAL) == pytest.approx(1 / whole, rel=0.01)


def test_what_comes_faster_than_it_can_be_finished_has_no_times() -> None:
    seen = simulate_generation(SERVER, 1.01 * highest_throughput_per_s(SERVER, EQUAL), EQUAL)
    assert seen.saturated
    assert seen.p99_s is seen.tpot_p99_s is seen.mean_batch is None


def test_a_request_without_room_is_never_served() -> None:
    small = GenerationServer(prefill=SERVER.prefill, decode=SERVER.decode, cache_tokens=1000, max_batch=4)
    assert highest_throughput_per_s(small, EQUAL) == 0.0
    assert simulate_generation(small, 0.001, EQUAL).saturated


@pytest.mark.parametrize("changes", [{"prefill": ()}, {"decode": ()}, {"max_batch": 65}, {"max_batch": 0}])
def test_a_server_that_is_none_is_an_error(changes: dict[str, Any]) -> None:
    given = {"prefill": SERVER.prefill, "decode": SERVER.decode, "cache_tokens": 100, "max_batch": 4}
    with pytest.raises(UsageError):
        GenerationServer(**{**given, **changes})


@pytest.mark.parametrize(("prompts", "outputs"), [([], []), ([1], [0]), ([0], [1]), ([1, 2], [1])])
def test_requests_without_tokens_are_an_error(prompts: list[int], outputs: list[int]) -> None:
    with pytest.raises(UsageError):
        Conversations(prompts=np.array(prompts, dtype=np.int64), outputs=np.array(outputs, dtype=np.int64))


@pytest.mark.parametrize("load", [0.8, 0.9, 0.95])
def test_near_the_highest_rate_a_lane_counts_once_its_queue_is_as_long_as_it_stays(load: float) -> None:
    # One token each: prompts of one length are read one after the other, which is M/D/1.
    one = Conversations(prompts=np.array([1000]), outputs=np.array([1]))
    server = GenerationServer(prefill=((1000, 0.1),), decode=((1, 1e-9, 0.0),), cache_tokens=2000, max_batch=1)
    solved = single_requests(load / 0.1, 0.1)
    scenario = GenerationScenario(
        server=server, rate_per_s=load / 0.1, conversations=one, lanes=200, requests=250
    )
    seen = simulated_generation([scenario])[0]
    # Lanes so short that a queue which began empty would be seen too short.
    assert seen.mean_s == pytest.approx(solved.mean_s, rel=0.1)
    assert seen.p99_s == pytest.approx(solved.percentile_s(99), rel=0.15)
