"""One answer over devices, batches and instances: never what cannot run, and what is as good is said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.decision.contenders import cpu_contenders, gpu_contender, other_precisions
from analyzer.decision.decide import decide
from analyzer.decision.decision_input import DecisionInput, HostedRun, Pin
from analyzer.decision.plans import plan_all
from analyzer.decision.ranking import ranking
from analyzer.devices.device import Device
from analyzer.devices.instances import Instance
from analyzer.figures import Figure
from analyzer.record.outcome import PrecisionResult, RankedCandidate, RankingResult

# A megabyte in and a megabyte out over the fixtures' link.
COPIES_S = 2 * (10e-6 + 1e6 / 10e9)
# A CPU of the catalogue that is not the question's own.
RENTED_CPU = "epyc-7763"
MB = 250_000  # elements of a megabyte

Ask = Callable[..., DecisionInput]


def rented(name: str, usd: float, **given: Any) -> Instance:
    return Instance(
        provider="Cloud", name=name, region="here", usd_per_hour=usd, price_date="2026-07-20", **given
    )


A100 = rented("a100", 3.6, gpu="a100", gpu_count=1, vcpus=8)
L4 = rented("l4", 0.72, gpu="l4", gpu_count=1, vcpus=4)
PLAIN = rented("plain", 0.36, cpu=RENTED_CPU, vcpus=8)


@pytest.fixture
def ask(build: Callable[..., Any], op: type[Any], devices: Mapping[str, Device]) -> Ask:
    """A question about one operator: its time on the CPU, and on a GPU of this name with its copies."""

    def one(name: str, gpu_s: float, cpu_s: float = 1.0, **given: Any) -> DecisionInput:
        card = replace(devices["gpu"], slug=name.lower(), name=f"NVIDIA {name}", **given.pop("card", {}))
        operator = op(reads=("in",), cpu=cpu_s, gpu=gpu_s - COPIES_S, **given.pop("op", {}))
        question: DecisionInput = build(operator, gpu=card, **given)
        return question

    return one


def ranked(*questions: DecisionInput, others: tuple[RankedCandidate, ...] = ()) -> RankingResult:
    """The ranking of these questions, of which those about one batch have one CPU."""
    cpus = {
        question.batch: cpu_contenders(question, plan_all(question), "fp32") for question in reversed(questions)
    }
    found = [one for at_batch in cpus.values() for one in at_batch]
    found += [gpu_contender(each, plan_all(each), "tf32", cpus[each.batch][0]) for each in questions]
    first = questions[0]
    return ranking(found, others, objective=first.objective, limit_s=first.limit_s, batch=first.batch)


def best(result: RankingResult) -> RankedCandidate:
    assert result.best is not None
    return result.candidates[result.best]


def test_the_device_that_keeps_a_limit_is_found_wherever_it_stands(ask: Ask) -> None:
    """The first GPU misses 50 ms, the third takes 16.5 ms."""
    times = {"T4": 73e-3, "L4": 37.1e-3, "A100": 16.5e-3}
    result = ranked(*(ask(name, time, batch=32, limit_s=50e-3) for name, time in times.items()))
    assert best(result).device == "a100"
    assert result.sentence.startswith("The A100 keeps 50.0 ms: 16.5 ms (predicted, ")
    assert result.notes == ("Next is the L4 with 37.1 ms.",)
    assert [one.device for one in result.candidates] == ["a100", "l4", "t4", "here"]
    assert [one.meets for one in result.candidates] == [True, True, False, False]


def test_the_verdict_on_one_gpu_says_nothing_about_the_others(ask: Ask) -> None:
    verdict = decide(ask("T4", 73e-3, limit_s=50e-3)).verdict
    assert "of the plans for this CPU and the T4 none comes nearer" in verdict.sentence
    alone = decide(ask("L4", 37e-3, limit_s=50e-3)).verdict
    assert alone.sentence.endswith("and this CPU misses the limit of 50.0 ms.")


def test_where_nothing_keeps_the_limit_nothing_is_best_and_the_nearest_is_named(ask: Ask) -> None:
    times = {"T4": 73e-3, "L4": 37.1e-3, "A100": 16.5e-3}
    result = ranked(*(ask(name, time, limit_s=5e-3) for name, time in times.items()))
    assert (result.best, result.nearest) == (None, 0)
    assert result.candidates[0].device == "a100"
    assert result.sentence.startswith(
        "None of 3 GPUs and this CPU keeps 5.00 ms; the A100 comes nearest with 16.5 ms"
    )
    assert not result.best_by


def test_a_limit_that_only_the_middle_keeps_is_said_to_be_doubtful(ask: Ask) -> None:
    result = ranked(ask("L4", 40e-3, spread=1.5, limit_s=50e-3), ask("T4", 90e-3, spread=1.5, limit_s=50e-3))
    assert result.sentence.endswith("though the end of its interval, 59.9 ms, does not.")


def too_large(ask: Ask, room: int, gpu_s: float, name: str, **given: Any) -> DecisionInput:
    """A model of 8 MB of weights; a card with so many bytes beside CUDA's own 300 MB."""
    card = {"memory_bytes": room + 300_000_000}
    return ask(name, gpu_s, op={"weight": 2_000_000}, card=card, peak_memory_bytes=0, **given)


def test_what_does_not_fit_is_never_the_best_however_fast(ask: Ask) -> None:
    small, large = too_large(ask, 1_000_000, 1e-3, "L4"), too_large(ask, 10**9, 20e-3, "A100")
    result = ranked(small, large)
    assert best(result).device == "a100"
    lacking = next(one for one in result.candidates if one.device == "l4")
    assert (lacking.runs, lacking.fits, lacking.usd_per_million) == (False, False, None)
    assert "it needs 8.00 MB and has 301 MB" in lacking.reason
    assert "The model does not fit the L4." in result.notes


def test_a_split_over_a_small_gpu_loses_to_a_gpu_that_holds_the_model(
    build: Callable[..., Any], op: type[Any], devices: Mapping[str, Device]
) -> None:
    """Eight layers of 3 MB: four fit the small card, four at 10 ms stay on the CPU; the large one has all."""

    def on(name: str, room: int) -> DecisionInput:
        ops = [op(reads=("in",) if n == 0 else (n - 1,), cpu=1e-2, gpu=1e-4, weight=3 * MB) for n in range(8)]
        card = replace(
            devices["gpu"], slug=name.lower(), name=f"NVIDIA {name}", memory_bytes=room + 300_000_000
        )
        question: DecisionInput = build(*ops, gpu=card, peak_memory_bytes=2_000_000)
        return question

    result = ranked(on("L4", 14_000_000), on("A100", 10**9))
    assert best(result).device == "a100"
    split = next(one for one in result.candidates if one.device == "l4")
    assert (split.plan, split.runs, split.fits) == ("hybrid", True, True)
    assert split.reason.startswith("alone it has no room: it needs 26.0 MB")
    assert "The model does not fit the L4 alone." in result.notes


@pytest.mark.parametrize(
    ("hindrance", "reason"),
    [
        ({"op": {"able": False}}, "no CUDA kernels"),
        ({"card": {"runs_release_wheel": False}}, "no machine code"),
    ],
)
def test_what_the_runtime_cannot_run_there_is_never_the_best(
    ask: Ask, hindrance: dict[str, Any], reason: str
) -> None:
    result = ranked(ask("P100", 1e-3, **hindrance), ask("L4", 500e-3))
    assert best(result).device == "l4"
    barred = next(one for one in result.candidates if one.device == "p100")
    assert not barred.runs
    assert reason in barred.reason
    assert barred.instance == ""


def test_where_nothing_can_run_that_is_the_answer(ask: Ask, devices: Mapping[str, Device]) -> None:
    cpu = replace(devices["cpu"], memory_bytes=1_000_000)
    result = ranked(
        too_large(ask, 1_000_000, 1e-3, "L4", cpu=cpu), too_large(ask, 1_000_000, 1e-3, "T4", cpu=cpu)
    )
    assert (result.best, result.nearest, result.best_by) == (None, None, {})
    assert result.sentence.startswith("Nothing that was asked about can run it.")


def test_each_objective_has_its_own_winner(ask: Ask) -> None:
    """A batch of 1 in 2 ms, 500 a second; one of 10 in 10 ms, 1000 a second. The L4 costs a fifth."""
    questions = [
        ask("A100", 2e-3, batch=1, instances=(A100, L4)),
        ask("A100", 10e-3, batch=10, instances=(A100, L4)),
        ask("L4", 4e-3, batch=1, instances=(A100, L4)),
        ask("L4", 20e-3, batch=10, instances=(A100, L4)),
    ]
    result = ranked(*questions)
    winners = {name: result.candidates[at] for name, at in result.best_by.items()}
    assert (winners["latency"].device, winners["latency"].batch) == ("a100", 1)
    assert (winners["throughput"].device, winners["throughput"].batch) == ("a100", 10)
    assert (winners["cost"].device, winners["cost"].batch, winners["cost"].instance) == ("l4", 10, "l4")
    # $0.72/h at 500 a second are 40 cents a million; $3.60/h at 1000 a second a dollar.
    assert winners["cost"].usd_per_million == pytest.approx(0.4)
    assert winners["throughput"].usd_per_million == pytest.approx(1.0)
    assert result.sentence.startswith("Run it on the A100 at batch 1: 2.00 ms")
    by_cost = ranked(*(replace(question, objective="cost") for question in questions))
    assert by_cost.sentence.startswith(
        "Run it on the L4 at batch 10: $0.400 per million on Cloud l4, the least, at 20.0 ms"
    )
    assert by_cost.notes == ("Next is the L4 at batch 1 with $0.800 per million.",)


def test_dollars_stand_beside_speed_against_the_cheapest_cpu_instance(ask: Ask) -> None:
    """570 ms are 57 times 10 ms. $3.60/h at 100 a second are $10 a million, $0.36/h at 1.75 a second $57."""
    there = Figure(value=0.57, low=0.57, high=0.57, origin="predicted")
    question = ask("A100", 10e-3, instances=(A100, PLAIN), cpu_on=lambda _: there)
    result = ranked(question)
    assert result.dollars.startswith("The A100 on Cloud a100 is 57.0x (")
    assert ") faster and 5.7x (" in result.dollars
    assert result.dollars.endswith(
        ") cheaper than the cheapest CPU instance, Cloud plain: $10.0 against $57.0 per million."
    )
    assert [(row.instance, row.plan) for row in result.instances] == [("a100", "gpu"), ("plain", "cpu")]
    assert [row.usd_per_million for row in result.instances] == pytest.approx([10.0, 57.0])


def test_what_is_even_is_said_to_be_even(ask: Ask) -> None:
    """$3.60/h at 100 a second are $10 a million; so are $0.36/h at 10 a second. 10.2 ms are 10."""

    def told(cpu_s: float, usd: float) -> str:
        there = Figure(value=cpu_s, low=cpu_s, high=cpu_s, origin="predicted")
        plain = replace(PLAIN, usd_per_hour=usd)
        return ranked(ask("A100", 10e-3, instances=(A100, plain), cpu_on=lambda _: there)).dollars

    even_dollars, even_times, both = told(0.1, 0.36), told(0.0102, 0.36), told(0.01, 3.6)
    assert ") faster than the cheapest CPU instance, Cloud plain, and about as expensive (" in even_dollars
    assert "): $10.0 against $10.0 per million." in even_dollars
    assert " is about as fast as the cheapest CPU instance, Cloud plain, and 9.8x (" in even_times
    assert " is about as fast (" in both
    assert ") as the cheapest CPU instance, Cloud plain, and about as expensive (" in both


def test_a_ratio_whose_interval_holds_1_is_not_told_as_if_it_decided(ask: Ask) -> None:
    """20 ms beside 10 ms are twice as slow; from 8 to 50 ms both are possible, in time as in dollars."""
    there = Figure(value=20e-3, low=8e-3, high=50e-3, origin="predicted")
    plain = replace(PLAIN, usd_per_hour=3.6)
    told = ranked(ask("A100", 10e-3, instances=(A100, plain), cpu_on=lambda _: there)).dollars
    assert told.startswith(
        "The A100 on Cloud a100 is about as fast (0.80x to 5.0x) as the cheapest CPU instance"
    )
    # Of the same hourly price the dollars are as the times: 10 ms cost 0.2 to 1.25 of what it costs.
    assert ", and about as expensive (0.20x to 1.3x): $10.0 against $20.0 per million." in told
    assert "2.0x" not in told


@pytest.mark.parametrize("quick", [12e-3, 50e-3])
def test_a_rented_cpu_that_beats_the_gpu_in_time_and_in_dollars_is_told_as_that(ask: Ask, quick: float) -> None:
    """The cheapest CPU is slower than the GPU's instance; a dearer one takes 4 ms for a tenth of its price."""
    dear = rented("dear", 0.36, cpu=RENTED_CPU, vcpus=16)
    cheap = rented("cheap", 0.036, cpu=RENTED_CPU, vcpus=2)
    seconds = {"dear": 4e-3, "cheap": quick}

    def on_cpu(instance: Instance) -> Figure:
        time = seconds[instance.name]
        return Figure(value=time, low=time, high=time, origin="predicted")

    gpu = replace(L4, usd_per_hour=3.6)
    # Beside this CPU the GPU takes 3 ms, in the rented machine, whose core is slower, 10 ms.
    slow = Figure(value=10e-3, low=10e-3, high=10e-3, origin="predicted")
    hosted = HostedRun(plan="gpu", latency=slow, host="slow", basis="known")
    result = ranked(ask("L4", 3e-3, instances=(gpu, dear, cheap), cpu_on=on_cpu, gpu_on=lambda *_: hosted))
    assert best(result).device == "l4"
    assert result.dollars == (
        "A CPU that can be rented beats the L4 in time and in dollars: Cloud dear is 2.5x (2.5x to 2.5x) "
        "faster and 25.0x (25.0x to 25.0x) cheaper than it on Cloud l4: $0.400 against $10.0 per million."
    )


def test_the_cheapest_of_several_batches_says_at_which_batch_it_is_that(ask: Ask) -> None:
    there = Figure(value=0.57, low=0.57, high=0.57, origin="predicted")
    given: dict[str, Any] = {"instances": (A100, PLAIN), "cpu_on": lambda _: there}
    result = ranked(ask("A100", 10e-3, batch=1, **given), ask("A100", 20e-3, batch=10, **given))
    # At batch 10 it costs a tenth: the list of instances has that.
    assert "the cheapest CPU instance at batch 1, Cloud plain" in result.dollars


def test_beside_a_cpu_without_a_price_the_cheapest_cpu_instance_says_which_side_costs_less(ask: Ask) -> None:
    """The GPU at $0.72/h and 20 ms is $4.00 a million; the rented CPU at $0.36/h and 12 ms is $1.20."""
    there = Figure(value=12e-3, low=12e-3, high=12e-3, origin="predicted")

    def told(**given: Any) -> RankingResult:
        return ranked(ask("L4", 20e-3, cpu_s=10e-3, cpu_on=lambda _: there, **given))

    result = told(instances=(L4, PLAIN))
    assert (best(result).device, best(result).usd_per_million) == ("here", None)
    assert result.dollars.startswith(
        "No price of this CPU is known; the cheapest CPU instance, Cloud plain, is 1.7x ("
    )
    assert "3.3x (" in result.dollars
    assert result.dollars.endswith(
        ") cheaper than the cheapest GPU instance, Cloud l4 (L4): $1.20 against $4.00 per million."
    )
    # With no CPU to be rented, or none that keeps the limit, there is nothing to say of its side.
    assert told(instances=(L4,)).dollars.endswith("; no price of this CPU is known.")
    late = told(instances=(L4, PLAIN), limit_s=11e-3)
    assert late.dollars.endswith("which misses the limit; no price of this CPU is known.")


def test_what_comes_next_is_what_stands_next_and_then_what_was_asked_about(ask: Ask) -> None:
    """10 ms on the GPU, 100 ms on a CPU that can be rented, a second on this one."""
    there = Figure(value=0.1, low=0.1, high=0.1, origin="predicted")
    result = ranked(ask("A100", 10e-3, instances=(A100, PLAIN), cpu_on=lambda _: there))
    labels = [one.instance or one.device for one in result.candidates]
    assert labels[1:] == ["plain", "here"]
    (note,) = result.notes
    assert note.startswith("Next is Cloud plain")
    assert note.endswith("with 100 ms; of what was asked about, this CPU with 1.00 s.")


def test_a_gpu_without_a_price_says_so(ask: Ask) -> None:
    there = Figure(value=0.5, low=0.5, high=0.5, origin="predicted")
    result = ranked(ask("A100", 10e-3, instances=(PLAIN,), cpu_on=lambda _: there))
    assert result.dollars.endswith("no price of the A100 is known.")
    by_cost = ranked(ask("A100", 10e-3, cpu_s=1.0, objective="cost"))
    assert by_cost.objective == "latency"
    assert "Latency decided: no price is known." in by_cost.notes


def test_where_dollars_decide_the_gpus_without_a_price_are_named(ask: Ask) -> None:
    one = ranked(*(ask(name, 10e-3, instances=(L4,), objective="cost") for name in ("L4", "A100")))
    assert best(one).device == "l4"
    assert one.notes == ("No price of the A100 is known: dollars cannot rank it.",)
    asked = ("L4", "A100", "T4")
    two = ranked(*(ask(name, 10e-3, instances=(L4,), objective="cost") for name in asked))
    assert two.notes == ("No price of the A100 and the T4 is known: dollars cannot rank them.",)
    # What does not run has another reason, and where time decides no price is missed.
    late = [ask("L4", 1e-3, instances=(L4,), objective="cost", limit_s=5e-3)]
    late.append(ask("A100", 10e-3, instances=(L4,), objective="cost", limit_s=5e-3))
    assert not any("price" in note for note in ranked(*late).notes)
    assert not any("price" in note for note in ranked(ask("L4", 1e-3, instances=(A100,))).notes)


@pytest.mark.parametrize(("spread", "winner"), [(1.0, "plain"), (2.0, "")])
def test_a_rented_cpu_that_nobody_named_must_beat_what_was_named_by_more_than_the_error(
    ask: Ask, spread: float, winner: str
) -> None:
    there = Figure(value=9e-3, low=9e-3 / spread, high=9e-3 * spread, origin="predicted")
    result = ranked(ask("L4", 10e-3, instances=(PLAIN,), cpu_on=lambda _: there))
    assert best(result).instance == winner
    assert best(result).named == (not winner)
    if not winner:
        assert result.notes == ("As good within the intervals: Cloud plain.",)


def test_the_most_is_said_of_all_rows_or_of_the_gpus_alone(ask: Ask) -> None:
    """10 ms are 100 a second; the CPU instance takes 9 ms, give or take a half, or 20."""

    def said(names: tuple[str, ...], there_s: float) -> str:
        there = Figure(value=there_s, low=there_s / 1.5, high=there_s * 1.5, origin="predicted")
        given: dict[str, Any] = {"instances": (PLAIN,), "cpu_on": lambda _: there, "objective": "throughput"}
        result = ranked(*(ask(name, 10e-3 * (1 + at), **given) for at, name in enumerate(names)))
        assert best(result).device == "l4"
        return result.sentence

    assert said(("L4",), 20e-3).startswith("Run it on the L4: 100 /s, the most, at 10.0 ms")
    assert said(("L4",), 9e-3).startswith("Run it on the L4: 100 /s at 10.0 ms")
    assert said(("L4", "T4"), 20e-3).startswith("Run it on the L4: 100 /s, the most, at 10.0 ms")
    assert said(("L4", "T4"), 9e-3).startswith("Run it on the L4: 100 /s, the most of the GPUs, at 10.0 ms")


def test_an_instance_stands_once_at_its_best_batch(ask: Ask) -> None:
    """20 ms at batch 1 and 25 ms at batch 10: by dollars the larger batch is its best."""
    times = {1: 20e-3, 10: 25e-3}

    def at(batch: int) -> DecisionInput:
        there = Figure(value=times[batch], low=times[batch], high=times[batch], origin="predicted")
        return ask("L4", 1.0, batch=batch, instances=(PLAIN,), cpu_on=lambda _: there, objective="cost")

    result = ranked(at(1), at(10))
    (row,) = [one for one in result.candidates if one.instance == "plain"]
    # $0.36/h for 10 inferences each 25 ms: 400 a second.
    assert (row.batch, row.usd_per_million) == (10, pytest.approx(0.25))
    assert result.best == 0


def test_pins_leave_what_keeps_them(ask: Ask) -> None:
    """Pinned to the CPU, nothing is left for a GPU; pinned to the GPU, nothing for the CPU."""
    on_cpu = ranked(ask("L4", 1e-3, pins=(Pin(pattern="*", device="cpu"),)))
    assert best(on_cpu).device == "here"
    assert [one.device for one in on_cpu.candidates if not one.runs] == ["l4"]
    on_gpu = ranked(ask("L4", 2.0, instances=(PLAIN,), pins=(Pin(pattern="*", device="gpu"),)))
    assert best(on_gpu).device == "l4"
    assert [(one.device, one.runs) for one in on_gpu.candidates[1:]] == [("here", False)]


def test_the_nearest_is_what_was_named_where_a_rented_cpu_is_nearer_within_the_error(ask: Ask) -> None:
    there = Figure(value=9e-3, low=5e-3, high=15e-3, origin="predicted")
    result = ranked(ask("L4", 10e-3, instances=(PLAIN,), cpu_on=lambda _: there, limit_s=1e-3))
    assert result.nearest == 0
    assert result.candidates[0].device == "l4"


def test_a_gain_within_the_error_is_not_worth_dollars(ask: Ask) -> None:
    """$3.60/h for 100 a second are $10 a million, $0.72/h for 90.9 are $2.20: a 4.5th, of a ratio of 1.1."""
    given: dict[str, Any] = {"spread": 1.5, "instances": (A100, L4)}
    result = ranked(ask("A100", 10e-3, **given), ask("L4", 11e-3, **given))
    assert best(result).device == "l4"
    assert result.sentence.startswith("Run it on the L4: 11.0 ms")
    assert [one.device for one in result.candidates] == ["l4", "a100", "here"]
    assert result.as_good == (1,)
    first, after = result.notes
    assert first.startswith("The A100 has 10.0 ms, a gain within the intervals, and is 4.5x (")
    assert first.endswith(") more expensive: $10.0 against $2.20 per million.")
    assert after == "Next is this CPU with 1.00 s."
    # The card by latency alone is still the A100's.
    assert result.candidates[result.best_by["latency"]].device == "a100"


def test_what_is_as_good_is_named_with_the_one_that_costs_least(ask: Ask) -> None:
    """$1.08/h for 90.9 a second are $3.30, $1.98/h for 100 are $5.50: within the error either may cost less."""
    near = (replace(A100, usd_per_hour=1.98), replace(L4, usd_per_hour=1.08))
    given: dict[str, Any] = {"spread": 1.5, "instances": near}
    result = ranked(ask("A100", 10e-3, **given), ask("L4", 11e-3, **given))
    assert best(result).device == "a100"
    assert result.as_good == (1,)
    assert result.notes == (
        "As good within the intervals: the L4; of these the L4 costs least, $3.30 per million against $5.50.",
    )


def test_a_cheaper_device_that_may_miss_the_limit_does_not_take_the_place_of_one_that_keeps_it(
    ask: Ask,
) -> None:
    """Of 10 ms the interval ends at 15, of 11 ms at 16.5: at a limit of 16 ms the first alone is sure."""
    given: dict[str, Any] = {"spread": 1.5, "instances": (A100, L4)}
    for limit, device in ((16e-3, "a100"), (17e-3, "l4")):
        asked = (ask(name, time, limit_s=limit, **given) for name, time in (("A100", 10e-3), ("L4", 11e-3)))
        assert best(ranked(*asked)).device == device


def test_latencies_are_compared_at_one_batch(ask: Ask) -> None:
    """At batch 8 the L4 takes 3 ms and the T4 9 ms; at batch 1 the L4 takes 1 ms, which is no answer for 8."""
    times = {(8, "L4"): 3e-3, (1, "L4"): 1e-3, (8, "T4"): 9e-3, (1, "T4"): 8e-3}
    result = ranked(*(ask(name, time, batch=batch) for (batch, name), time in times.items()))
    assert (best(result).device, best(result).batch) == ("l4", 8)
    assert result.notes == ("Next is the T4 at batch 8 with 9.00 ms.",)
    assert [(one.batch, one.device) for one in result.candidates][:3] == [(8, "l4"), (8, "t4"), (8, "here")]


def test_latencies_are_compared_at_a_batch_at_which_something_keeps_the_limit(ask: Ask) -> None:
    times = {(8, "L4"): 30e-3, (1, "L4"): 10e-3}
    asked = (ask(name, time, batch=batch, limit_s=20e-3) for (batch, name), time in times.items())
    assert best(ranked(*asked)).batch == 1


def test_another_precision_is_listed_as_another_model_and_never_the_best(ask: Ask) -> None:
    question = ask("L4", 10e-3)
    table = (
        PrecisionResult(precision="fp16", device="gpu", reason="half the bytes", latency_s=5e-3),
        PrecisionResult(precision="tf32", device="gpu", reason="", decided=True, latency_s=10e-3),
        PrecisionResult(precision="bf16", device="cpu", reason="no kernels"),
    )
    result = ranked(question, others=tuple(other_precisions(table, question, question.gpu)))
    half, brain = result.candidates[-2:]
    assert (half.precision, half.asked, half.runs) == ("fp16", False, True)
    assert half.reason == "another model, whose accuracy must be checked: half the bytes"
    assert (brain.precision, brain.runs, brain.reason) == ("bf16", False, "no kernels")
    assert best(result).precision == "tf32"
    assert all(result.candidates[at].asked for at in result.best_by.values())


def test_another_precisions_dollars_have_their_instance_as_those_asked_for_have(ask: Ask) -> None:
    question = ask("L4", 10e-3)
    price: dict[str, Any] = {
        "usd_per_million": 1.0,
        "usd_low_per_million": 0.8,
        "usd_high_per_million": 1.3,
        "usd_origin": "predicted",
        "provider": "Cloud",
        "instance": "l4",
        "usd_per_hour": 0.72,
        "price_date": "2026-07-20",
        "pricing": "spot",
        "region": "here",
    }
    row = PrecisionResult(precision="fp16", device="gpu", reason="half the bytes", latency_s=5e-3, **price)
    (half,) = other_precisions((row,), question, question.gpu)
    assert {name: getattr(half, name) for name in price} == price
    # What has no room is rented from nobody.
    (none,) = other_precisions((replace(row, fits=False),), question, question.gpu)
    assert (none.usd_per_million, none.provider, none.instance, none.region) == (None, "", "", "")


def test_the_answer_does_not_hang_on_the_order_of_what_was_asked(ask: Ask) -> None:
    questions = [ask(name, time) for name, time in {"T4": 70e-3, "L4": 30e-3, "A100": 30e-3}.items()]
    assert ranked(*questions).candidates == ranked(*reversed(questions)).candidates


@given(
    times=st.lists(st.floats(1e-3, 1.0), min_size=1, max_size=4),
    barred=st.lists(st.booleans(), min_size=4, max_size=4),
    limit=st.none() | st.floats(1e-3, 2.0),
)
def test_the_best_runs_keeps_the_limit_and_nothing_asked_beats_it(
    build_shared: Callable[..., Any],
    op_shared: type[Any],
    times: list[float],
    barred: list[bool],
    limit: float | None,
) -> None:
    questions = []
    for at, time in enumerate(times):
        question: DecisionInput = build_shared(op_shared(reads=("in",), cpu=0.5, gpu=time), limit_s=limit)
        assert question.gpu is not None
        card = replace(question.gpu, slug=f"gpu{at}", runs_release_wheel=not barred[at])
        questions.append(replace(question, gpu=card))
    result = ranked(*questions)
    able = [one for one in result.candidates if one.runs and one.meets is not False]
    assert (result.best is None) == (not able)
    if able:
        assert best(result) in able
        assert best(result).latency_s == min(one.latency_s or 0.0 for one in able)
    else:
        late = [one.latency_s or 0.0 for one in result.candidates if one.runs]
        assert result.nearest is not None
        assert result.candidates[result.nearest].latency_s == min(late)
