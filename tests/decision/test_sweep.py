from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from analyzer.decision import BATCHES, decide, sweep
from analyzer.decision.decision_input import DecisionInput
from analyzer.decision.sweep import throughput
from analyzer.devices.device import Device


def family(
    build: Callable[..., Any],
    op: type[Any],
    gpu: Callable[[int], float],
    cpu: Callable[[int], float],
    **given: Any,
) -> Callable[..., Any]:
    """Questions whose operators take a given time at each batch; nothing is copied."""

    def at(batch: int) -> Any:
        ops = [op(reads=("in",), cpu=cpu(batch), gpu=gpu(batch), elements=0, weight=given.get("weight", 0))]
        rest = {name: given[key] for name, key in (("gpu", "device"), ("spread", "spread")) if key in given}
        peak = given["peak"](batch) if "peak" in given else 0
        return build(*ops, batch=batch, input_elements=0, peak_memory_bytes=peak, **rest)

    return at


def asked(at: Callable[..., Any], batches: Any = BATCHES) -> dict[int, DecisionInput]:
    return {batch: at(batch) for batch in batches}


def test_batches_go_from_1_to_4096_in_powers_of_two() -> None:
    assert BATCHES == (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


def linear(build: Callable[..., Any], op: type[Any]) -> Callable[..., Any]:
    """CPU 1 ms an inference, GPU 10.5 ms fixed and 0.1 ms an inference: equal at 11.67."""
    return family(build, op, gpu=lambda b: 1.05e-2 + 1e-4 * b, cpu=lambda b: 1e-3 * b)


def test_the_crossover_is_the_first_batch_from_which_the_gpu_wins(
    build: Callable[..., Any], op: type[Any]
) -> None:
    found = sweep(asked(linear(build, op)))
    assert found.crossover_batch == 16
    assert found.crossovers == (16,)
    assert found.note == (
        "This CPU wins up to batch 8, either may win from 9 to 15 and the L4 wins from batch 16 on."
    )


def test_the_crossover_is_exact_where_any_batch_can_be_asked_about(
    build: Callable[..., Any], op: type[Any]
) -> None:
    at = linear(build, op)
    assert sweep(asked(at), at=at).crossover_batch == 12


# Of both times: the logarithms of independent errors add in squares, so that their ratio is known within 2.
SPREAD = 2 ** (1 / math.sqrt(2))


def doubtful(build: Callable[..., Any], op: type[Any]) -> Callable[..., Any]:
    """CPU 1 ms an inference, GPU 10.2 ms: equal at 10.2, and at 5.1 and 20.4 at the ends of the interval."""
    return family(build, op, gpu=lambda _: 1.02e-2, cpu=lambda b: 1e-3 * b, spread=SPREAD)


def test_the_crossover_is_as_uncertain_as_the_times_are(build: Callable[..., Any], op: type[Any]) -> None:
    """The ratio holds 1 from the first batch above 5.1 to the last below 20.4."""
    at = doubtful(build, op)
    found = sweep(asked(at), at=at)
    assert [(one.first, one.last, one.device) for one in found.ranges] == [
        (1, 5, "cpu"),
        (6, 20, "either"),
        (21, 4096, "gpu"),
    ]
    assert found.crossover_batch == 11
    assert found.note == (
        "This CPU wins up to batch 5, either may win from 6 to 20 (even odds at 11) and the L4 wins from batch "
        "21 on."
    )


def test_at_every_batch_the_ranges_say_what_the_verdict_says(build: Callable[..., Any], op: type[Any]) -> None:
    at = doubtful(build, op)
    found = sweep(asked(at), at=at)
    for batch in range(1, 30):
        (one,) = (one for one in found.ranges if one.first <= batch <= one.last)
        assert one.device == decide(at(batch), found).verdict.device


def test_batches_that_were_not_looked_at_belong_to_neither(build: Callable[..., Any], op: type[Any]) -> None:
    """Of 1, 8 and 64 the CPU is certain at 1, the GPU at 64: of those between 8 alone was asked about."""
    at = doubtful(build, op)
    found = sweep(asked(at, (1, 8, 64)))
    assert [(one.first, one.last, one.device) for one in found.ranges] == [
        (1, 1, "cpu"),
        (2, 63, "either"),
        (64, 64, "gpu"),
    ]


def test_what_would_change_names_the_doubtful_batches_before_the_certain_ones(
    build: Callable[..., Any], op: type[Any]
) -> None:
    at = doubtful(build, op)
    found = sweep(asked(at), at=at)
    small, between, large = (decide(at(batch), found).verdict.would_change for batch in (2, 12, 64))
    assert "From batch 6 either may be faster, from 21 the L4 is faster." in small
    assert {"From batch 21 the L4 is faster.", "Up to batch 5 this CPU is faster."} <= set(between)
    assert "Up to batch 20 either may be faster, up to 5 this CPU is faster." in large


def test_batches_at_which_nothing_keeps_the_limit_would_change_nothing(
    build: Callable[..., Any], op: type[Any]
) -> None:
    """From batch 6 on the CPU takes 6 ms or more, the GPU 10.2 ms at each."""
    at = doubtful(build, op)
    found = sweep(asked(at), at=at)
    late, kept = (
        decide(replace(at(2), limit_s=limit_s), found).verdict.would_change for limit_s in (5e-3, 15e-3)
    )
    assert not any(text.startswith("From batch") for text in late)
    assert "From batch 6 either may be faster, from 21 the L4 is faster." in kept


def test_where_no_batch_is_certain_the_expected_winner_is_named(
    build: Callable[..., Any], op: type[Any]
) -> None:
    at = family(build, op, gpu=lambda _: 1e-2, cpu=lambda b: 9e-3 if b < 8 else 11e-3, spread=SPREAD)
    assert sweep(asked(at), at=at).note == (
        "Either may win at every batch from 1 to 4096; the L4 is expected to from batch 8 on."
    )


def test_every_batch_has_a_row_with_every_plan(build: Callable[..., Any], op: type[Any]) -> None:
    rows = sweep(asked(linear(build, op))).rows
    assert [row.batch for row in rows] == list(BATCHES)
    assert {name for row in rows for name in row.plans} == {"cpu", "gpu", "hybrid"}
    assert rows[6].plans["cpu"].latency_s == pytest.approx(64e-3)
    assert rows[6].plans["gpu"].throughput_per_s == pytest.approx(64 / (1.05e-2 + 64e-4))


def test_several_crossovers_are_all_told(build: Callable[..., Any], op: type[Any]) -> None:
    """The GPU wins up to 4, loses from 8 to 64, and wins from 128."""
    at = family(build, op, gpu=lambda _: 1e-3, cpu=lambda b: 5e-4 if 8 <= b <= 64 else 2e-3)
    found = sweep(asked(at))
    assert found.crossovers == (8, 128)
    assert found.crossover_batch == 128
    assert [(one.first, one.last) for one in found.ranges if one.device == "gpu"] == [(1, 4), (128, 4096)]


def test_a_gpu_that_always_wins_crosses_at_the_first_batch(build: Callable[..., Any], op: type[Any]) -> None:
    found = sweep(asked(family(build, op, gpu=lambda _: 1e-3, cpu=lambda _: 2e-3)))
    assert (found.crossover_batch, found.crossovers) == (1, ())
    assert found.note == "The L4 wins at every batch from 1 to 4096."


def test_a_gpu_that_never_wins_has_no_crossover_and_the_reason_says_so(
    build: Callable[..., Any], op: type[Any]
) -> None:
    at = family(build, op, gpu=lambda _: 2e-3, cpu=lambda _: 1e-3)
    found = sweep(asked(at))
    assert found.crossover_batch is None
    verdict = decide(at(1), found).verdict
    assert verdict.crossover_batch is None
    assert "The L4 wins at no batch from 1 to 4096." in verdict.reason


def test_a_gpu_that_wins_only_at_small_batches_has_no_crossover(
    build: Callable[..., Any], op: type[Any]
) -> None:
    found = sweep(asked(family(build, op, gpu=lambda b: 1e-3 * b, cpu=lambda _: 5e-3)))
    assert found.crossover_batch is None
    assert found.crossovers == (8,)
    assert "this CPU wins from batch 8 on" in found.note


def test_one_batch_alone_says_that_the_crossover_is_not_known(build: Callable[..., Any], op: type[Any]) -> None:
    verdict = decide(linear(build, op)(64)).verdict
    assert verdict.crossover_batch is None
    assert "The crossover batch is not known: only batch 64 was looked at." in verdict.reason


def test_the_gpu_saturates_where_nine_tenths_of_its_throughput_are_reached(
    build: Callable[..., Any], op: type[Any]
) -> None:
    """b / (10 ms + 0.1 ms b): the limit is 10 000/s; at 512 it is 84 %, at 1024 91 % and at 4096 97.6 %.

    Nine tenths of the best seen, 9762/s, are 8786/s: first passed at 1024 with 9110/s.
    """
    at = family(build, op, gpu=lambda b: 1e-2 + 1e-4 * b, cpu=lambda _: 1.0)
    assert sweep(asked(at)).saturation_batch == 1024


def test_a_throughput_that_still_grows_has_no_saturation(build: Callable[..., Any], op: type[Any]) -> None:
    assert sweep(asked(family(build, op, gpu=lambda _: 1.0, cpu=lambda _: 1.0))).saturation_batch is None


def test_the_largest_batch_that_fits_is_found(
    build: Callable[..., DecisionInput], op: type[Any], devices: Mapping[str, Device]
) -> None:
    """24 GB less CUDA's 300 MB; 4 GB of weights and 100 MB an inference: 197 inferences."""
    at = family(
        build,
        op,
        gpu=lambda b: 1e-3 * b,
        cpu=lambda b: 1e-2 * b,
        weight=10**9,
        peak=lambda b: 10**8 * b,
    )
    found = sweep(asked(at))
    assert found.largest_batch == 128
    assert sweep(asked(at), at=at).largest_batch == 197
    assert not found.rows[-1].plans["gpu"].fits
    assert found.note == (
        "The L4 wins at every batch from 1 to 128. Batch 128 is the largest that fits of those looked at."
    )
    verdict = decide(at(256), found).verdict
    assert verdict.device in ("cpu", "hybrid")
    assert "Up to batch 128 it fits the L4." in verdict.would_change


def test_the_largest_batch_is_not_known_where_memory_is_not(build: Callable[..., Any], op: type[Any]) -> None:
    questions = {b: build(op(reads=("in",)), batch=b) for b in (1, 2)}
    assert sweep(questions).largest_batch is None


def test_the_verdict_carries_the_sweep(build: Callable[..., Any], op: type[Any]) -> None:
    at = linear(build, op)
    found = sweep(asked(at), at=at)
    verdict = decide(at(1), found).verdict
    assert verdict.device == "cpu"
    assert (verdict.crossover_batch, verdict.crossovers) == (12, (12,))
    assert verdict.would_change[0] == "From batch 12 the L4 is faster."
    large = decide(at(64), found).verdict
    assert large.device == "gpu"
    assert large.would_change[0] == "Up to batch 11 this CPU is faster."


def test_a_sweep_without_a_gpu_holds_the_cpu(build: Callable[..., Any], op: type[Any]) -> None:
    found = sweep({b: build(op(reads=("in",)), gpu=None, batch=b) for b in (1, 2)})
    assert [set(row.plans) for row in found.rows] == [{"cpu"}, {"cpu"}]
    assert found.crossover_batch is None
    assert found.note == "Only the CPU was looked at."


def test_a_run_that_takes_no_time_has_no_throughput(build: Callable[..., Any], op: type[Any]) -> None:
    question = build(op(reads=("in",), cpu=0.0), gpu=None)
    from analyzer.decision.plans import plan_all

    assert throughput(question, plan_all(question).cpu) == 0.0


def test_no_batch_is_promised_for_a_gpu_that_cannot_be_used(
    build: Callable[..., Any], op: type[Any], devices: dict[str, Device]
) -> None:
    gpu = replace(devices["gpu"], runs_release_wheel=False)
    at = family(build, op, gpu=lambda b: 1e-4 * b, cpu=lambda b: 1e-3 * b, device=gpu)
    found = sweep(asked(at))
    assert decide(at(1), found).verdict.would_change == ()


def test_a_gpu_that_would_run_nothing_wins_at_no_batch(build: Callable[..., Any], op: type[Any]) -> None:
    """Either session runs the same operators on the same CPU, in the same time."""

    def at(batch: int) -> Any:
        times = {"cpu": 1e-5 * batch, "gpu": 1e-5 * batch, "able": False}
        return build(op(reads=("in",), elements=0, **times), batch=batch, input_elements=0, peak_memory_bytes=0)

    found = sweep(asked(at), at=at)
    assert [(one.first, one.last, one.device) for one in found.ranges] == [(1, 4096, "cpu")]
    assert found.note == "The L4 wins at no batch from 1 to 4096."


def measured_at_64(build: Callable[..., Any], op: type[Any]) -> Callable[..., Any]:
    """The CPU 1.5 times as fast at every batch, known within 2; at 64, which was run, within 1 %."""

    def at(batch: int) -> Any:
        times = op(reads=("in",), cpu=1e-5 * batch, gpu=1.5e-5 * batch, elements=0)
        spread = 1.01 if batch == 64 else 2.0
        return build(times, batch=batch, input_elements=0, peak_memory_bytes=0, spread=spread)

    return at


def test_one_batch_that_is_known_better_is_no_crossover(build: Callable[..., Any], op: type[Any]) -> None:
    at = measured_at_64(build, op)
    found = sweep(asked(at), at=at)
    # The ranges stay what the verdict says at each batch.
    assert [(one.first, one.last, one.device) for one in found.ranges] == [
        (1, 63, "either"),
        (64, 64, "cpu"),
        (65, 4096, "either"),
    ]
    assert found.note == (
        "Either may win at every batch from 1 to 4096; this CPU is expected to; at 64, which is known more "
        "closely, this CPU wins."
    )
    assert decide(at(64), found).verdict.device == "cpu"
    assert not [text for text in decide(at(64), found).verdict.would_change if "may be faster" in text]
