"""Pins and memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from analyzer.decision import Pin, decide
from analyzer.decision.pins import parse as parse_pin
from analyzer.decision.plans import plan_all
from analyzer.devices.device import Device
from analyzer.errors import UsageError
from analyzer.graph import DTYPES, Tensor


def chain(op: type[Any], count: int, **given: Any) -> list[Any]:
    return [op(reads=("in",) if n == 0 else (n - 1,), **given) for n in range(count)]


@pytest.mark.parametrize("pattern", ["node1", "layer1", "layer[1]", "*1"])
def test_a_pinned_operator_stays_where_the_user_wants_it(
    build: Callable[..., Any], op: type[Any], pattern: str
) -> None:
    decision = decide(build(*chain(op, 3, cpu=1e-2), pins=(Pin(pattern=pattern, device="cpu"),)))
    assert decision.placement == ("gpu", "cpu", "gpu")
    assert decision.operators[1].reason == "pinned"
    assert decision.verdict.device == "hybrid"


def test_a_pin_can_name_a_type(build: Callable[..., Any], op: type[Any]) -> None:
    ops = [
        replace(item, op_type=kind) for item, kind in zip(chain(op, 2, cpu=1e-2), ("Conv", "Relu"), strict=True)
    ]
    assert decide(build(*ops, pins=(parse_pin("Conv=cpu"),))).placement == ("cpu", "gpu")


def test_the_last_pin_that_fits_wins(build: Callable[..., Any], op: type[Any]) -> None:
    pins = (parse_pin("*=cpu"), parse_pin("node0=gpu"))
    assert decide(build(*chain(op, 2, cpu=1e-5, gpu=1e-3), pins=pins)).placement == ("gpu", "cpu")


@pytest.mark.parametrize("text", ["conv", "conv=tpu", "=cpu", ""])
def test_a_pin_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="pins nothing"):
        parse_pin(text)


def test_a_pin_may_hold_an_equals_sign(build: Callable[..., Any]) -> None:
    assert parse_pin("a=b=cpu") == Pin(pattern="a=b", device="cpu")


def test_a_pin_that_fits_nothing_names_what_is_near(build: Callable[..., Any], op: type[Any]) -> None:
    with pytest.raises(UsageError, match="No operator fits") as caught:
        decide(build(*chain(op, 2), pins=(parse_pin("nod1=cpu"),)))
    assert "node1" in (caught.value.hint or "")


def test_an_operator_without_a_kernel_cannot_be_pinned_to_the_gpu(
    build: Callable[..., Any], op: type[Any]
) -> None:
    with pytest.raises(UsageError, match="cannot be pinned to the GPU"):
        decide(build(op(reads=("in",), able=False), pins=(parse_pin("node0=gpu"),)))


def test_two_pins_cannot_cut_a_fused_operator(build: Callable[..., Any], op: type[Any]) -> None:
    pins = (parse_pin("node0=cpu"), parse_pin("node1=gpu"))
    with pytest.raises(UsageError, match="one fused operator"):
        decide(build(*chain(op, 2), cpu_groups=[(0, 1)], pins=pins))


MB = 250_000  # elements of a megabyte


def test_weights_and_activations_are_the_memory(build: Callable[..., Any], op: type[Any]) -> None:
    decision = decide(build(*chain(op, 2, weight=3 * MB), peak_memory_bytes=2_000_000))
    assert {plan.memory_bytes for plan in decision.plans} == {8_000_000}


def test_half_precision_halves_the_memory_of_a_gpu_and_not_of_a_cpu_that_computes_in_full(
    build: Callable[..., Any], op: type[Any]
) -> None:
    decision = decide(build(*chain(op, 2, weight=3 * MB), peak_memory_bytes=2_000_000, precision="fp16"))
    needed = {plan.name: plan.memory_bytes for plan in decision.plans}
    assert needed == {"cpu": 8_000_000, "gpu": 4_000_000, "hybrid": 4_000_000}


def test_memory_is_not_known_where_activations_are_not(build: Callable[..., Any], op: type[Any]) -> None:
    assert {plan.memory_bytes for plan in decide(build(*chain(op, 1))).plans} == {None}


def small_gpu(devices: dict[str, Device], nbytes: int) -> Device:
    """One with so much room beside CUDA's own 300 MB."""
    return replace(devices["gpu"], memory_bytes=nbytes + 300_000_000)


def test_what_does_not_fit_the_gpu_is_split_so_that_it_does(
    build: Callable[..., Any], op: type[Any], devices: dict[str, Device]
) -> None:
    """Eight layers alike of 3 MB, room for 14 MB with 2 MB of activations: four layers go to the GPU."""
    ops = chain(op, 8, cpu=1e-2, gpu=1e-4, weight=3 * MB)
    decision = decide(build(*ops, gpu=small_gpu(devices, 14_000_000), peak_memory_bytes=2_000_000))
    cpu, gpu, best = decision.plans
    assert (cpu.fits, gpu.fits, best.fits) == (True, False, True)
    assert decision.placement.count("gpu") == 4
    assert decision.verdict.device == "hybrid"
    # One stretch of neighbours: in and out once each.
    assert best.transfers.count == 2
    assert best.latency_s == pytest.approx(4 * 1e-2 + 4 * 1e-4 + 2 * 110e-6)
    assert "gpu-memory" in {verdict.reason for verdict in decision.operators}
    # Half a split is no split, but the bound shares the copies out among the layers.
    assert best.why == "The GPU's memory limits the split: another one could be better, by <1 % at most."


def test_a_model_too_large_for_the_gpu_with_nothing_to_gain_stays_on_the_cpu(
    build: Callable[..., Any], op: type[Any], devices: dict[str, Device]
) -> None:
    ops = chain(op, 2, cpu=1e-4, gpu=1e-5, weight=30 * MB)
    decision = decide(build(*ops, gpu=small_gpu(devices, 10_000_000), peak_memory_bytes=0))
    assert decision.verdict.device == "cpu"
    assert "does not fit" in decision.verdict.sentence


def test_a_model_too_large_for_both_says_how_much_it_needs(
    build: Callable[..., Any], op: type[Any], devices: dict[str, Device]
) -> None:
    ops = chain(op, 1, weight=30 * MB)
    cpu = replace(devices["cpu"], memory_bytes=20_000_000)
    decision = decide(build(*ops, gpu=small_gpu(devices, 10_000_000), cpu=cpu, peak_memory_bytes=1_000_000))
    assert not any(plan.fits for plan in decision.plans)
    for figure in ("31.0 MB", "20.0 MB", "310 MB beside the 300 MB of CUDA's own"):
        assert figure in decision.verdict.sentence


def test_a_weight_that_is_transposed_when_the_session_is_made_still_needs_its_room(
    build: Callable[..., Any], op: type[Any], devices: dict[str, Device]
) -> None:
    """w0 -> Transpose (folded) -> node 1: the 30 MB stay, under another name."""
    question = build(
        op(), op(reads=("in", 0), cpu=1e-2), gpu=small_gpu(devices, 10_000_000), peak_memory_bytes=0
    )
    weight, turned = (
        Tensor(name=name, shape=(30 * MB,), dtype=DTYPES["float32"], constant=True) for name in ("w", "t0")
    )
    weight = replace(weight, initializer=True)
    fold, run = question.graph.nodes
    fold = replace(fold, op_type="Transpose", inputs=(weight,), outputs=(turned,))
    run = replace(run, inputs=(question.graph.inputs[0], turned))
    graph = replace(question.graph, nodes=(fold, run), initializers=(weight,))
    alone = {
        "cpu_groups": question.cpu_groups[1:],
        "cpu_times": question.cpu_times[1:],
        "cuda_groups": question.cuda_groups[1:],
        "cuda_times": question.cuda_times[1:],
    }
    decision = decide(replace(question, graph=graph, **alone))
    assert decision.placement == ("cpu", "cpu")
    assert {plan.name: plan.memory_bytes for plan in decision.plans}["hybrid"] == 30_000_000
    assert decision.plans[2].fits
    assert "does not fit the memory of the L4" in decision.verdict.sentence


def test_the_split_under_a_memory_limit_is_as_good_as_the_best_of_all(
    build: Callable[..., Any], op: type[Any], devices: dict[str, Device]
) -> None:
    """Six layers of different sizes and gains, room for some: compared with all 64 choices."""
    import itertools
    import random

    rng = random.Random(5)
    found = []
    for _ in range(30):
        ops = [
            op(
                reads=("in",) if n == 0 else (n - 1,),
                cpu=rng.uniform(1e-3, 1e-2),
                gpu=1e-4,
                weight=rng.randint(1, 5) * MB,
                elements=0,
            )
            for n in range(6)
        ]
        room = 8
        question = build(*ops, gpu=small_gpu(devices, room * 10**6), peak_memory_bytes=0, input_elements=0)
        decision = decide(question)
        spent = {
            sum(item.gpu if there else item.cpu for item, there in zip(ops, side, strict=True))
            for side in itertools.product((False, True), repeat=6)
            if sum(item.weight for item, there in zip(ops, side, strict=True) if there) <= room * MB
        }
        best = next(plan for plan in decision.plans if plan.name == "hybrid")
        assert best.fits
        assert best.latency_s >= min(spent) - 1e-12
        found.append(best.latency_s / min(spent))
        assert plan_all(question).cut.least <= min(spent) * (1 + 1e-6)
    # A knapsack is not solved exactly: most are, none is far off.
    assert sum(ratio < 1.001 for ratio in found) >= 20
    assert max(found) < 1.2


def test_a_model_that_only_both_together_hold_is_split(
    build: Callable[..., Any], op: type[Any], devices: dict[str, Device]
) -> None:
    ops = chain(op, 4, cpu=1e-2, gpu=1e-4, weight=3 * MB)
    cpu = replace(devices["cpu"], memory_bytes=7_000_000)
    decision = decide(build(*ops, gpu=small_gpu(devices, 7_000_000), cpu=cpu, peak_memory_bytes=0))
    assert decision.verdict.device == "hybrid"
    assert "neither alone has room for the model" in decision.verdict.sentence
    assert [plan.fits for plan in decision.plans] == [False, False, True]
    assert decision.verdict.because[1].startswith("2 operators on the L4 and 2 on this CPU take 20.4 ms")


def test_a_model_without_any_cuda_kernel_belongs_on_the_cpu(build: Callable[..., Any], op: type[Any]) -> None:
    trees = op(reads=("in",), cpu=1e-3, gpu=1e-3, able=False, op_type="TreeEnsembleRegressor")
    decision = decide(build(trees))
    assert decision.verdict.device == "cpu"
    assert "no CUDA kernel for TreeEnsembleRegressor" in decision.verdict.reason
    assert set(decision.placement) == {"cpu"}
