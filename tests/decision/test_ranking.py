"""One answer over devices, batches and instances: never what cannot run, and what is as good is said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.decision.contenders import cpu_contenders, gpu_contender, other_precisions
from analyzer.decision.decide import decide
from analyzer.decision.decision_input import DecisionInput, Pin
from analyzer.decision.plans import plan_all
from analyzer.decision.ranking import instances, rank_ways
from analyzer.devices.device import Device, Instance
from analyzer.figures import Figure, seen_as
from analyzer.record.outcome import Answer, CostRow, PrecisionResult, RankedWay

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


class Ranked(NamedTuple):
    """The answer, all ways to run, and the instances of the price list."""

    answer: Answer | None
    ways: tuple[RankedWay, ...]
    instances: tuple[CostRow, ...]

    def of(self, device: str, batch: int | None = None) -> RankedWay:
        """Return the way of a device, or of an instance; of several batches at this one."""
        return next(
            one
            for one in self.ways
            if device in (one.instance if not one.named else one.device,) and batch in (None, one.batch)
        )

    def why(self, device: str, batch: int | None = None) -> tuple[str, str]:
        """Return the slug and the sentence of why a device is not the answer."""
        why = self.of(device, batch).why_not
        assert why is not None
        return why.reason, why.sentence


def ranked(*questions: DecisionInput, others: tuple[RankedWay, ...] = ()) -> Ranked:
    """The ranking of these questions, of which those about one batch have one CPU."""
    cpus = {
        question.batch: cpu_contenders(question, plan_all(question), "fp32") for question in reversed(questions)
    }
    found = [one for at_batch in cpus.values() for one in at_batch]
    found += [gpu_contender(each, plan_all(each), "tf32", cpus[each.batch]) for each in questions]
    first = questions[0]
    answer, ways = rank_ways(found, others, objective=first.objective, limit_s=first.limit_s, batch=first.batch)
    return Ranked(answer, ways, tuple(instances(found)))


def best(result: Ranked) -> Answer:
    """The answer, which is the first of the ranking and keeps the limit."""
    assert result.answer is not None
    assert seen_as(RankedWay, result.answer) == result.ways[0]
    assert result.answer.meets is not False
    assert result.answer.why_not is None
    return result.answer


def test_the_device_that_keeps_a_limit_is_found_wherever_it_stands(ask: Ask) -> None:
    """The first GPU misses 50 ms, the third takes 16.5 ms."""
    times = {"T4": 73e-3, "L4": 37.1e-3, "A100": 16.5e-3}
    result = ranked(*(ask(name, time, batch=32, limit_s=50e-3) for name, time in times.items()))
    assert best(result).device == "a100"
    assert best(result).sentence.startswith("The A100 keeps 50.0 ms: 16.5 ms (predicted, ")
    assert [one.device for one in result.ways] == ["a100", "l4", "t4", "here"]
    assert [one.meets for one in result.ways] == [True, True, False, False]
    # 37.1 over 16.5 ms, and 73 over 50.
    assert result.why("l4")[0] == "slower"
    assert result.why("l4")[1].startswith("2.2x (")
    assert result.why("t4") == ("limit", "1.5x the limit of 50.0 ms")


def test_the_verdict_on_one_gpu_says_nothing_about_the_others(ask: Ask) -> None:
    verdict = decide(ask("T4", 73e-3, limit_s=50e-3)).verdict
    assert "of the plans for this CPU and the T4 none comes nearer" in verdict.sentence
    alone = decide(ask("L4", 37e-3, limit_s=50e-3)).verdict
    assert alone.sentence.endswith("and this CPU misses the limit of 50.0 ms.")


def test_where_nothing_keeps_the_limit_nothing_is_best_and_the_nearest_is_named(ask: Ask) -> None:
    times = {"T4": 73e-3, "L4": 37.1e-3, "A100": 16.5e-3}
    result = ranked(*(ask(name, time, limit_s=5e-3) for name, time in times.items()))
    assert result.answer is not None
    assert (result.answer.device, result.answer.meets) == ("a100", False)
    assert result.answer.sentence.startswith(
        "None of 3 GPUs and this CPU keeps 5.00 ms; the A100 comes nearest with 16.5 ms"
    )
    one = ranked(ask("T4", 73e-3, limit_s=5e-3)).answer
    assert one is not None
    assert one.sentence.startswith("None of the T4 and this CPU keeps 5.00 ms; the T4 comes nearest")


def test_a_limit_that_only_the_middle_keeps_is_said_to_be_doubtful(ask: Ask) -> None:
    result = ranked(ask("L4", 40e-3, spread=1.5, limit_s=50e-3), ask("T4", 90e-3, spread=1.5, limit_s=50e-3))
    assert best(result).sentence.endswith("though the end of its interval, 59.9 ms, does not.")


def too_large(ask: Ask, room: int, gpu_s: float, name: str, **given: Any) -> DecisionInput:
    """A model of 8 MB of weights; a card with so many bytes beside CUDA's own 300 MB."""
    card = {"memory_bytes": room + 300_000_000}
    return ask(name, gpu_s, op={"weight": 2_000_000}, card=card, peak_memory_bytes=0, **given)


def test_what_does_not_fit_is_never_the_best_however_fast(ask: Ask) -> None:
    small, large = too_large(ask, 1_000_000, 1e-3, "L4"), too_large(ask, 10**9, 20e-3, "A100")
    result = ranked(small, large)
    assert best(result).device == "a100"
    lacking = result.of("l4")
    assert (lacking.runs, lacking.fits, lacking.usd_per_million) == (False, False, None)
    reason, sentence = result.why("l4")
    assert reason == "memory"
    assert "it needs 8.00 MB and has 301 MB" in sentence


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
    split = result.of("l4")
    assert (split.plan, split.runs, split.fits) == ("hybrid", True, True)
    assert split.note.startswith("alone it has no room: it needs 26.0 MB")
    reason, sentence = result.why("l4")
    assert (reason, sentence[:11]) == ("memory", "as a split ")


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
    barred = result.of("p100")
    assert not barred.runs
    assert reason in result.why("p100")[1]
    assert barred.instance is None


def test_an_instance_stands_once_at_its_best_batch(ask: Ask) -> None:
    """20 ms at batch 1 and 25 ms at batch 10: by dollars the larger batch is its best."""
    times = {1: 20e-3, 10: 25e-3}

    def at(batch: int) -> DecisionInput:
        there = Figure(value=times[batch], low=times[batch], high=times[batch], origin="predicted")
        return ask("L4", 1.0, batch=batch, instances=(PLAIN,), cpu_on=lambda _: there, objective="cost")

    result = ranked(at(1), at(10))
    (row,) = [one for one in result.ways if one.instance == "plain"]
    # $0.36/h for 10 inferences each 25 ms: 400 a second.
    assert (row.batch, row.usd_per_million) == (10, pytest.approx(0.25))
    assert best(result).instance == "plain"


def test_pins_leave_what_keeps_them(ask: Ask) -> None:
    """Pinned to the CPU, nothing is left for a GPU; pinned to the GPU, nothing for the CPU."""
    on_cpu = ranked(ask("L4", 1e-3, pins=(Pin(pattern="*", device="cpu"),)))
    assert best(on_cpu).device == "here"
    assert [one.device for one in on_cpu.ways if not one.runs] == ["l4"]
    on_gpu = ranked(ask("L4", 2.0, instances=(PLAIN,), pins=(Pin(pattern="*", device="gpu"),)))
    assert best(on_gpu).device == "l4"
    assert [(one.device, one.runs) for one in on_gpu.ways[1:]] == [("here", False)]


def test_a_cheaper_device_that_may_miss_the_limit_does_not_take_the_place_of_one_that_keeps_it(
    ask: Ask,
) -> None:
    """Of 10 ms the interval ends at 15, of 11 ms at 16.5: at a limit of 16 ms the first alone is sure."""
    given: dict[str, Any] = {"spread": 1.5, "instances": (A100, L4)}
    for limit, device in ((16e-3, "a100"), (17e-3, "l4")):
        asked = (ask(name, time, limit_s=limit, **given) for name, time in (("A100", 10e-3), ("L4", 11e-3)))
        assert best(ranked(*asked)).device == device


def test_latencies_are_compared_at_a_batch_at_which_something_keeps_the_limit(ask: Ask) -> None:
    times = {(8, "L4"): 30e-3, (1, "L4"): 10e-3}
    asked = (ask(name, time, batch=batch, limit_s=20e-3) for (batch, name), time in times.items())
    assert best(ranked(*asked)).batch == 1


def test_the_answer_does_not_hang_on_the_order_of_what_was_asked(ask: Ask) -> None:
    questions = [ask(name, time) for name, time in {"T4": 70e-3, "L4": 30e-3, "A100": 30e-3}.items()]
    assert ranked(*questions).ways == ranked(*reversed(questions)).ways


def test_where_nothing_can_run_there_is_no_answer(ask: Ask, devices: Mapping[str, Device]) -> None:
    cpu = replace(devices["cpu"], memory_bytes=1_000_000)
    result = ranked(
        too_large(ask, 1_000_000, 1e-3, "L4", cpu=cpu), too_large(ask, 1_000_000, 1e-3, "T4", cpu=cpu)
    )
    assert result.answer is None
    assert {result.why(device)[0] for device in ("l4", "t4", "here")} == {"memory"}


def test_each_objective_has_its_own_answer(ask: Ask) -> None:
    """A batch of 1 in 2 ms, 500 a second; one of 10 in 10 ms, 1000 a second. The L4 costs a fifth."""
    questions = [
        ask("A100", 2e-3, batch=1, instances=(A100, L4)),
        ask("A100", 10e-3, batch=10, instances=(A100, L4)),
        ask("L4", 4e-3, batch=1, instances=(A100, L4)),
        ask("L4", 20e-3, batch=10, instances=(A100, L4)),
    ]

    def by(objective: str) -> Answer:
        return best(ranked(*(replace(question, objective=objective) for question in questions)))  # type: ignore[arg-type]

    latency, throughput, cost = by("latency"), by("throughput"), by("cost")
    assert (latency.device, latency.batch) == ("a100", 1)
    assert (throughput.device, throughput.batch) == ("a100", 10)
    assert (cost.device, cost.batch, cost.instance) == ("l4", 10, "l4")
    # $0.72/h at 500 a second are 40 cents a million; $3.60/h at 1000 a second a dollar.
    assert cost.usd_per_million == pytest.approx(0.4)
    assert throughput.usd_per_million == pytest.approx(1.0)
    assert latency.sentence.startswith("Run it on the A100 at batch 1: 2.00 ms")
    assert throughput.sentence.startswith("Run it on the A100 at batch 10: 1.00 k/s at 10.0 ms")
    assert cost.sentence.startswith("Run it on the L4 at batch 10: $0.400 per million on Cloud l4 at 20.0 ms")
    by_cost = ranked(*(replace(question, objective="cost") for question in questions))
    assert by_cost.why("l4", 1)[0] == "expensive"
    assert by_cost.why("l4", 1)[1].startswith("2.0x (")


def test_instances_stand_once_by_dollars(ask: Ask) -> None:
    """$3.60/h at 100 a second are $10 a million, $0.36/h at 1.75 a second $57."""
    there = Figure(value=0.57, low=0.57, high=0.57, origin="predicted")
    result = ranked(ask("A100", 10e-3, instances=(A100, PLAIN), cpu_on=lambda _: there))
    assert [(row.instance, row.plan) for row in result.instances] == [("a100", "gpu"), ("plain", "cpu")]
    assert [row.usd_per_million for row in result.instances] == pytest.approx([10.0, 57.0])


@pytest.mark.parametrize("spread", [1.0, 2.0])
def test_a_rented_cpu_that_nobody_named_is_the_answer_where_dollars_decide_alone(
    ask: Ask, spread: float
) -> None:
    """9 ms against 10: $0.36/h for 111 a second are $0.90 a million, $0.72/h for 100 are $2."""
    there = Figure(value=9e-3, low=9e-3 / spread, high=9e-3 * spread, origin="predicted")
    question = ask("L4", 10e-3, instances=(PLAIN, L4), cpu_on=lambda _: there)
    result = ranked(question)
    assert best(result).device == "l4"
    reason, sentence = result.why("plain")
    assert "0.90x (" in sentence
    if spread == 1:
        assert reason == "not_requested"
        assert sentence.endswith(") the time, on a device that was not requested")
    else:
        # 0.90 over 2.00 dollars.
        assert reason == "as_good"
        assert ", at 0.45x (" in sentence
        assert sentence.endswith(") the dollars")
    assert best(ranked(replace(question, objective="cost"))).instance == "plain"


def test_a_rented_cpu_is_the_answer_where_nothing_that_was_named_keeps_the_limit(ask: Ask) -> None:
    there = Figure(value=9e-3, low=9e-3, high=9e-3, origin="predicted")
    result = ranked(ask("L4", 20e-3, instances=(PLAIN,), cpu_on=lambda _: there, limit_s=10e-3))
    assert (best(result).instance, best(result).named) == ("plain", False)
    assert best(result).sentence.startswith("Cloud plain keeps 10.0 ms: 9.00 ms")


def test_without_a_price_latency_decides_and_says_so(ask: Ask) -> None:
    by_cost = ranked(ask("A100", 10e-3, cpu_s=1.0, objective="cost"))
    assert best(by_cost).objective == "latency"
    assert best(by_cost).sentence.endswith(" Latency decides: no price is known.")


def test_where_dollars_decide_a_gpu_without_a_price_says_so(ask: Ask) -> None:
    result = ranked(*(ask(name, 10e-3, instances=(L4,), objective="cost") for name in ("L4", "A100")))
    assert best(result).device == "l4"
    assert result.why("a100") == ("unknown", "no price is known")


def test_the_largest_burden_of_a_gpu_is_why_it_is_not_the_answer(ask: Ask) -> None:
    """Its copies take 0.22 ms of 0.32, which is 3.2 times the CPU's 0.1."""
    result = ranked(ask("L4", 0.1e-3 + COPIES_S, cpu_s=0.1e-3))
    assert best(result).device == "here"
    reason, sentence = result.why("l4")
    assert reason == "copies"
    assert sentence.startswith("3.2x (")
    assert sentence.endswith(") the time: copies take 220 µs, 69 % of it")


def test_a_gain_within_the_error_is_not_worth_dollars(ask: Ask) -> None:
    """$3.60/h for 100 a second are $10 a million, $0.72/h for 90.9 are $2.20: a 4.5th, of a ratio of 1.1."""
    given: dict[str, Any] = {"spread": 1.5, "instances": (A100, L4)}
    result = ranked(ask("A100", 10e-3, **given), ask("L4", 11e-3, **given))
    assert best(result).device == "l4"
    assert best(result).sentence.startswith("Run it on the L4: 11.0 ms")
    assert [one.device for one in result.ways] == ["l4", "a100", "here"]
    reason, sentence = result.why("a100")
    assert reason == "as_good"
    assert sentence.startswith("as good within the error: 0.91x (")
    assert ", at 4.5x (" in sentence
    assert sentence.endswith(") the dollars")


def test_what_is_as_good_and_not_surely_cheaper_is_not_the_answer(ask: Ask) -> None:
    """$1.08/h for 90.9 a second are $3.30, $1.98/h for 100 are $5.50: within the error either may cost less."""
    near = (replace(A100, usd_per_hour=1.98), replace(L4, usd_per_hour=1.08))
    given: dict[str, Any] = {"spread": 1.5, "instances": near}
    result = ranked(ask("A100", 10e-3, **given), ask("L4", 11e-3, **given))
    assert best(result).device == "a100"
    reason, sentence = result.why("l4")
    assert reason == "as_good"
    assert "the time, at 0.60x (" in sentence
    assert sentence.endswith(") the dollars")


def test_latencies_are_compared_at_one_batch(ask: Ask) -> None:
    """At batch 8 the L4 takes 3 ms and the T4 9 ms; at batch 1 the L4 takes 1 ms, which is no answer for 8."""
    times = {(8, "L4"): 3e-3, (1, "L4"): 1e-3, (8, "T4"): 9e-3, (1, "T4"): 8e-3}
    result = ranked(*(ask(name, time, batch=batch) for (batch, name), time in times.items()))
    assert (best(result).device, best(result).batch) == ("l4", 8)
    assert [(one.batch, one.device) for one in result.ways][:3] == [(8, "l4"), (8, "t4"), (8, "here")]
    assert result.why("l4", 1) == ("batch", "latencies are compared at batch 8")


def test_another_precision_is_listed_as_another_model_and_never_the_answer(ask: Ask) -> None:
    question = ask("L4", 10e-3)
    table = (
        PrecisionResult(precision="fp16", device="gpu", reason="half the bytes", latency_s=5e-3),
        PrecisionResult(precision="tf32", device="gpu", reason="", decided=True, latency_s=10e-3),
        PrecisionResult(precision="bf16", device="cpu", reason="no kernels"),
    )
    result = ranked(question, others=tuple(other_precisions(table, question, question.gpu)))
    half, brain = result.ways[-2:]
    assert (half.precision, half.requested, half.runs) == ("fp16", False, True)
    assert half.remark == "another model, whose accuracy must be checked: half the bytes"
    assert (brain.precision, brain.runs, brain.remark) == ("bf16", False, "no kernels")
    assert best(result).precision == "tf32"


def test_where_nothing_keeps_the_limit_the_widest_other_precision_that_does_is_named(ask: Ask) -> None:
    question = ask("L4", 10e-3, limit_s=6e-3)
    table = (
        PrecisionResult(precision="int4", device="gpu", reason="", latency_s=2e-3),
        PrecisionResult(precision="fp16", device="gpu", reason="", latency_s=5e-3),
    )
    answer = ranked(question, others=tuple(other_precisions(table, question, question.gpu))).answer
    assert answer is not None
    assert answer.sentence.endswith(
        " In fp16, another model whose accuracy must be checked, the L4 would keep 6.00 ms: 5.00 ms."
    )


def test_another_precision_on_a_gpu_without_machine_code_neither_runs_nor_has_dollars(ask: Ask) -> None:
    question = ask("L4", 10e-3, card={"runs_release_wheel": False})
    row = PrecisionResult(
        precision="fp16", device="gpu", reason="", latency_s=5e-3, usd_per_million=0.1, instance="g6.xlarge"
    )
    (half,) = other_precisions((row,), question, question.gpu)
    assert (half.runs, half.usd_per_million, half.instance) == (False, None, None)
    assert half.why_not is not None
    assert half.why_not.reason == "no-machine-code"


def test_another_precisions_dollars_have_their_instance_as_those_requested_have(ask: Ask) -> None:
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
    assert (none.usd_per_million, none.provider, none.instance, none.region) == (None, None, None, "")


def test_where_nothing_keeps_the_limit_the_time_decides_whatever_the_objective(ask: Ask) -> None:
    """The A100 takes 10 ms for $10 a million, the L4 20 ms for $4."""
    given: dict[str, Any] = {"instances": (A100, L4), "objective": "cost", "limit_s": 1e-3}
    result = ranked(ask("A100", 10e-3, **given), ask("L4", 20e-3, **given))
    assert result.answer is not None
    assert (result.answer.device, result.answer.objective, result.answer.meets) == ("a100", "latency", False)
    assert result.why("l4") == ("slower", "2.0x the time")
    assert "price" not in result.answer.sentence


def test_what_comes_nearest_is_said_of_what_was_requested_where_a_rented_cpu_is_nearer(ask: Ask) -> None:
    there = Figure(value=5e-3, low=5e-3, high=5e-3, origin="predicted")
    result = ranked(ask("L4", 10e-3, instances=(PLAIN,), cpu_on=lambda _: there, limit_s=1e-3))
    assert result.answer is not None
    assert result.answer.device == "l4"
    assert "; of what was requested, the L4 comes nearest with 10.0 ms" in result.answer.sentence


@given(
    times=st.lists(st.floats(1e-3, 1.0), min_size=1, max_size=4),
    barred=st.lists(st.booleans(), min_size=4, max_size=4),
    limit=st.none() | st.floats(1e-3, 2.0),
)
def test_the_answer_runs_keeps_the_limit_and_nothing_requested_beats_it(
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
    able = [one.latency_s or 0.0 for one in result.ways if one.is_usable]
    late = [one.latency_s or 0.0 for one in result.ways if one.runs and not one.is_usable]
    assert result.answer is not None
    assert result.answer.latency_s == min(able or late)
    assert (result.answer.meets is False) == (not able)
    assert all(one.why_not is not None for one in result.ways[1:])
