from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from analyzer.decision import decide
from analyzer.decision.decision_input import Decision, DecisionInput
from analyzer.decision.energy import power, watts
from analyzer.decision.money import usd_per_million
from analyzer.devices.catalogue import gpus, instances
from analyzer.devices.device import Device, Instance
from analyzer.errors import UsageError
from analyzer.figures import Figure
from analyzer.record.outcome import PlanResult

COPY_S = 10e-6 + 1e6 / 10e9


def rented(name: str, usd: float, **given: Any) -> Instance:
    return Instance(
        provider="Cloud", name=name, region="here", usd_per_hour=usd, price_date="2026-07-20", **given
    )


GPU_1 = rented("one", 0.72, gpu="l4", gpu_count=1, vcpus=4)
GPU_4 = rented("four", 2.16, gpu="l4", gpu_count=4, vcpus=48)
SLICE = rented("slice", 0.01, gpu="l4", gpu_count=0.25, vcpus=4)
OTHER = rented("other", 0.01, gpu="t4", gpu_count=1, vcpus=4)
CPU_8 = rented("plain", 0.36, cpu="here", vcpus=8)
CPU_32 = rented("large", 1.08, cpu="here", vcpus=32)


def plan(decision: Decision, name: str) -> PlanResult:
    return next(item for item in decision.plans if item.name == name)


def fast(build: Callable[..., Any], op: type[Any], **given: Any) -> DecisionInput:
    """1 ms on the GPU for a batch of 10: 10 000 inferences a second; 10 ms on the CPU: 1000 a second."""
    return build(op(reads=("in",), cpu=1e-2, gpu=1e-3 - 2 * COPY_S), batch=10, **given)


def test_a_dollar_an_hour_at_a_thousand_a_second_is_28_cents_a_million() -> None:
    assert usd_per_million(1.0, 1000.0) == pytest.approx(1 / 3.6)


def test_half_used_costs_double() -> None:
    assert usd_per_million(1.0, 1000.0, 0.5) == pytest.approx(2 / 3.6)


@pytest.mark.parametrize("share", [0, -1, 1.01])
def test_an_impossible_utilisation_is_refused(share: float) -> None:
    with pytest.raises(UsageError, match="utilisation"):
        usd_per_million(1.0, 1000.0, share)


def test_all_whole_gpus_of_the_kind_are_ranked_with_replicas(build: Callable[..., Any], op: type[Any]) -> None:
    """$0.72/h at 10 000/s: 2 cents a million. Four GPUs at $2.16/h: 40 000/s, 1.5 cents."""
    decision = decide(fast(build, op, instances=(GPU_1, SLICE, OTHER, GPU_4, CPU_8)))
    rows = decision.costs
    assert [row.instance for row in rows] == ["four", "one"]
    assert [row.usd_per_million for row in rows] == pytest.approx([0.015, 0.02])
    assert [row.throughput_per_s for row in rows] == pytest.approx([40_000, 10_000])
    assert rows[0].latency_s == rows[1].latency_s == pytest.approx(1e-3)
    assert plan(decision, "gpu").instance == "four"
    assert plan(decision, "gpu").usd_per_million == pytest.approx(0.015)


def test_the_cpu_plan_is_priced_on_the_same_cpu_with_replicas(build: Callable[..., Any], op: type[Any]) -> None:
    """8 threads: 1000/s for $0.36/h, 10 cents a million. 32 threads: four of them for $1.08/h, 7.5 cents."""
    decision = decide(fast(build, op, instances=(GPU_1, CPU_8, CPU_32)))
    assert plan(decision, "cpu").usd_per_million == pytest.approx(0.075)
    assert plan(decision, "cpu").instance == "large"


def test_a_cpu_that_nobody_rents_out_has_no_price(build: Callable[..., Any], op: type[Any]) -> None:
    decision = decide(fast(build, op, instances=(GPU_1, rented("else", 0.1, cpu="there", vcpus=8))))
    assert plan(decision, "cpu").usd_per_million is None
    assert plan(decision, "cpu").instance == ""


def measured_here(
    build: Callable[..., DecisionInput], op: type[Any], instances: tuple[Instance, ...], **given: Any
) -> DecisionInput:
    """A CPU plan measured at 10 ms to within 2 %, with 8 hardware threads; elsewhere 20 ms or so."""
    whole = Figure(value=1e-2, low=0.98e-2, high=1.02e-2, origin="measured")
    there = Figure(value=2e-2, low=1e-2, high=4e-2, origin="predicted")
    return fast(build, op, instances=instances, cpu_latency=whole, cpu_on=lambda _: there, **given)


def test_what_was_measured_is_priced_as_measured_on_that_very_machine(
    build: Callable[..., DecisionInput], op: type[Any]
) -> None:
    """1000 a second for $0.36 an hour: 10 cents a million, by the measurement's own interval."""
    found = plan(decide(measured_here(build, op, (CPU_8,))), "cpu")
    assert found.usd_per_million == pytest.approx(0.1)
    assert (found.usd_low_per_million, found.usd_high_per_million) == pytest.approx((0.098, 0.102))
    assert (found.origin, found.usd_origin) == ("measured", "measured")


def test_what_was_measured_here_is_priced_elsewhere_by_the_prediction_and_says_so(
    build: Callable[..., DecisionInput], op: type[Any]
) -> None:
    """20 ms for 10 at $0.36 an hour: 20 cents a million, 10 to 40 by the prediction's interval."""
    there = rented("else", 0.36, cpu="there", vcpus=8)
    decision = decide(measured_here(build, op, (there,), gpu=None))
    found, row = plan(decision, "cpu"), decision.costs[0]
    # Those dollars are of another machine's time, not of the plan's.
    assert (found.origin, found.usd_per_million, row.origin) == ("measured", None, "predicted")
    assert row.usd_per_million == pytest.approx(0.2)
    assert (row.usd_low_per_million, row.usd_high_per_million) == pytest.approx((0.1, 0.4))
    assert (row.low_s, row.latency_s, row.high_s) == pytest.approx((1e-2, 2e-2, 4e-2))


def test_copies_beside_each_other_on_a_larger_machine_were_not_measured(
    build: Callable[..., DecisionInput], op: type[Any]
) -> None:
    """32 threads at $1.08 an hour: not four times what was measured on 8, but 10 inferences in 20 ms."""
    decision = decide(measured_here(build, op, (CPU_32,), gpu=None))
    assert plan(decision, "cpu").usd_per_million is None
    assert decision.costs[0].usd_origin == "predicted"
    assert decision.costs[0].usd_per_million == pytest.approx(1.08 / 3600 / 500 * 1e6)


def test_a_calibrated_machine_is_known_by_its_name(
    build: Callable[..., DecisionInput], op: type[Any], devices: Mapping[str, Device]
) -> None:
    """A calibration calls it this CPU; the processor says Xeon Platinum 8259CL, of 2 cores with 4 threads."""
    name = "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz"
    here = replace(devices["cpu"], slug="this-cpu", name=name, units=2, threads=4)
    same = rented("same", 0.36, cpu="xeon-platinum-8259cl", vcpus=4)
    found = plan(decide(measured_here(build, op, (same,), cpu=here)), "cpu")
    assert (found.usd_origin, found.usd_per_million) == ("measured", pytest.approx(0.1))
    nearest = replace(same, cpu_nearest=True)
    assert plan(decide(measured_here(build, op, (nearest,), cpu=here)), "cpu").usd_per_million is None


def test_by_dollars_a_prediction_elsewhere_is_as_uncertain_as_it_is(
    build: Callable[..., DecisionInput], op: type[Any]
) -> None:
    """The GPU at 4 cents a million, the CPU elsewhere at 20, 10 to 40: twice to ten times, however well the CPU
    here was measured, and a little more for predicted copies. At 8 cents the intervals of the two meet 1, and
    neither can be preferred."""
    there = rented("else", 0.36, cpu="there", vcpus=8)
    found = []
    for usd in (1.44, 6.0):
        decision = decide(
            measured_here(
                build,
                op,
                (replace(GPU_1, usd_per_hour=usd), there),
                objective="cost",
                origins={"gpu": "measured"},
            )
        )
        found.append(decision.verdict)
    assert found[0].device == "gpu"
    # The time is that of the machine that is compared, 20 ms.
    assert (
        "5.0x (2.5x to 10.1x) fewer dollars than Cloud else alone and takes 1.00 ms (mixed) against 20.0 ms"
        in found[0].sentence
    )
    assert found[1].device == "either"
    assert "1.2x (0.59x to 2.4x) fewer dollars than Cloud else, which" in found[1].sentence


def test_a_cpu_that_is_rented_is_compared_by_its_own_dollars(
    build: Callable[..., DecisionInput], op: type[Any]
) -> None:
    """The GPU at 2 cents a million, this CPU at 10, another CPU at 1: that one is no plan of this machine."""
    cheap = Figure(value=2e-2, low=1e-2, high=4e-2, origin="predicted")
    machines = (GPU_1, CPU_8, rented("else", 0.018, cpu="there", vcpus=8))
    decision = decide(fast(build, op, instances=machines, objective="cost", cpu_on=lambda _: cheap))
    assert decision.verdict.device == "gpu"
    assert "5.0x (" in decision.verdict.sentence
    assert plan(decision, "cpu").usd_per_million == pytest.approx(0.1)


def test_joules_are_never_called_measured_for_nobody_measured_the_power(
    build: Callable[..., DecisionInput], op: type[Any]
) -> None:
    """100 W for 9.8 to 10.2 ms over 10 inferences."""
    found = plan(decide(measured_here(build, op, (CPU_8,))), "cpu")
    assert (found.origin, found.energy_origin) == ("measured", "mixed")
    assert (found.energy_low_j, found.energy_high_j) == pytest.approx((0.098, 0.102))
    assert plan(decide(fast(build, op)), "cpu").energy_origin == "predicted"


def test_the_interval_of_joules_weighs_each_part_by_its_own_power(
    build: Callable[..., DecisionInput], op: type[Any]
) -> None:
    """Kernels twice as long or half: 153 W + the host for them, copies at 0.11 x 72 W do not move."""
    found = plan(decide(fast(build, op, spread=2.0)), "gpu")
    idle = 100 * 0.64 / 3.97
    host = idle + (100 - idle) / 8
    kernels = 1e-3 - 2 * COPY_S
    assert found.energy_high_j - found.energy_j >= (1.02 * 72 + host) * kernels / 10 * (1 - 1e-9)
    assert found.energy_high_j / found.energy_j > found.high_s / found.latency_s


def test_the_objective_of_cost_can_overrule_speed(build: Callable[..., DecisionInput], op: type[Any]) -> None:
    """The GPU is 10 times as fast and its machine 100 times as dear."""
    dear = replace(GPU_1, usd_per_hour=36.0)
    decision = decide(fast(build, op, instances=(dear, CPU_8), objective="cost"))
    assert decision.verdict.device == "cpu"
    assert "10.0x (" in decision.verdict.sentence
    assert "fewer dollars" in decision.verdict.sentence
    assert decision.verdict.speedup == pytest.approx(10)
    assert [row.instance for row in decision.costs] == ["plain"]


def test_without_a_price_latency_decides_and_says_so(build: Callable[..., Any], op: type[Any]) -> None:
    decision = decide(fast(build, op, instances=(GPU_1,), objective="cost"))
    assert decision.verdict.device == "gpu"
    assert any("price is not known" in text for text in decision.verdict.because)


def test_the_slo_is_told_for_each_instance(build: Callable[..., Any], op: type[Any]) -> None:
    assert {row.meets_slo for row in decide(fast(build, op, instances=(GPU_1,))).costs} == {None}
    assert {row.meets_slo for row in decide(fast(build, op, instances=(GPU_1,), limit_s=2e-3)).costs} == {True}
    assert {row.meets_slo for row in decide(fast(build, op, instances=(GPU_1,), limit_s=5e-4)).costs} == {False}


def test_where_no_instance_meets_the_slo_the_nearest_leads(build: Callable[..., Any], op: type[Any]) -> None:
    cheap, quick = (rented(name, usd, cpu="x", vcpus=8) for name, usd in (("cheap", 0.1), ("quick", 9.0)))

    def predicted(instance: Any) -> Any:
        seconds = {"cheap": 5e-2, "quick": 2e-2}[instance.name]
        return Figure(value=seconds, low=seconds, high=seconds, origin="predicted")

    question = build(
        op(reads=("in",), cpu=1e-2, gpu=1.0), instances=(cheap, quick), cpu_on=predicted, limit_s=1e-3
    )
    assert [row.instance for row in decide(question).costs] == ["quick", "cheap"]
    relaxed = replace(question, limit_s=1.0)
    assert [row.instance for row in decide(relaxed).costs] == ["cheap", "quick"]
    # The cheap one misses a limit that the quick one keeps.
    assert [row.instance for row in decide(replace(question, limit_s=3e-2)).costs] == ["quick", "cheap"]


def test_every_l4_of_the_catalogue_is_in_the_table(build: Callable[..., Any], op: type[Any]) -> None:
    """Counted in the file itself: single and multiple L4s of AWS and GCP."""
    import tomllib
    from pathlib import Path

    import analyzer.devices

    file = Path(analyzer.devices.__file__).parent / "instances.toml"
    listed = tomllib.loads(file.read_text())["instances"]
    expected = {(item["provider"], item["name"]) for item in listed if item.get("gpu") == "l4"}
    decision = decide(fast(build, op, instances=instances()))
    assert {(row.provider, row.instance) for row in decision.costs} == expected
    assert len(expected) >= 10


def test_the_idle_and_full_power_of_a_t4_are_as_published() -> None:
    """Cloud Carbon Footprint: 8 W idle, 71 W at full use, of 70 W TDP."""
    t4 = next(gpu for gpu in gpus() if gpu.slug == "t4")
    found = power(t4)
    assert found.idle == pytest.approx(8, abs=0.5)
    assert found.full == pytest.approx(71, abs=0.7)


def test_joules_are_power_times_time_over_the_batch(
    build: Callable[..., Any], op: type[Any], devices: dict[str, Device]
) -> None:
    """CPU of 100 W for 10 ms over 10 inferences: 0.1 J; without a batch a run is one inference."""
    for batch, inferences in ((10, 10), (None, 1)):
        decision = decide(replace(fast(build, op), batch=batch))
        assert plan(decision, "cpu").energy_j == pytest.approx(100 * 1e-2 / inferences)


def test_the_gpu_plan_counts_the_card_and_the_waiting_host(build: Callable[..., Any], op: type[Any]) -> None:
    """0.78 ms at 1.02 x 72 W, 0.22 ms of copies at 0.11 x 72 W; one of the host's 8 threads spins."""
    idle = 100 * 0.64 / 3.97
    host = idle + (100 - idle) / 8
    expected = (1.02 * 72 * 0.78e-3 + 0.11 * 72 * 0.22e-3 + host * 1e-3) / 10
    assert plan(decide(fast(build, op)), "gpu").energy_j == pytest.approx(expected)


def test_every_plan_says_whose_watts_its_joules_are(
    build: Callable[..., Any], op: type[Any], devices: dict[str, Device]
) -> None:
    """The card idles at 11 % and works at 102 % of 72 W; the CPU idles at 16 % (0.64 of 3.97) of 100 W."""
    decision = decide(fast(build, op))
    assert plan(decision, "cpu").energy_of == "Here (16 to 100 W)"
    assert plan(decision, "gpu").energy_of == "Here (16 to 100 W) and NVIDIA L4 (7.9 to 73 W)"
    share = replace(devices["cpu"], tdp_w=None, architecture="Zen 3", threads=4)
    decision = decide(fast(build, op, cpu=share))
    assert plan(decision, "cpu").energy_of == "4 threads of Here (1.8 to 8.1 W)"
    unknown = decide(fast(build, op, gpu=replace(devices["gpu"], tdp_w=None)))
    assert plan(unknown, "gpu").energy_of == ""


def test_energy_is_not_known_without_the_power_of_the_card(
    build: Callable[..., Any], op: type[Any], devices: dict[str, Device]
) -> None:
    gpu = replace(devices["gpu"], tdp_w=None)
    decision = decide(fast(build, op, gpu=gpu, objective="energy"))
    assert plan(decision, "gpu").energy_j is None
    assert plan(decision, "cpu").energy_j is not None
    assert any("power is not known" in text for text in decision.verdict.because)


def test_the_best_plan_by_energy_is_the_placement_of_least_joules(
    build: Callable[..., Any], op: type[Any], devices: dict[str, Device]
) -> None:
    """9.22 ms instead of 10, but at 153 W for the card and 27 W for the waiting host against the CPU's 100."""
    gpu = replace(devices["gpu"], tdp_w=150.0)
    question = build(op(reads=("in",), cpu=1e-2, gpu=9e-3), gpu=gpu)
    assert decide(question).placement == ("gpu",)
    assert decide(replace(question, objective="energy")).placement == ("cpu",)


def test_a_cpu_without_a_tdp_counts_by_hardware_thread(devices: dict[str, Device]) -> None:
    """8 threads of Cascade Lake: 0.64 to 3.97 W each; of no known family the mean of six."""
    for architecture, idle, full in (("Cascade Lake", 0.64, 3.97), ("unknown", 3.39 / 6, 17.32 / 6)):
        found = power(replace(devices["cpu"], tdp_w=None, architecture=architecture, name="A"))
        assert (found.idle, found.full) == pytest.approx((8 * idle, 8 * full))


def test_one_thread_spins_while_the_card_works(devices: dict[str, Device]) -> None:
    # 16 W idle (0.64 of 3.97) to 100 W, eight threads; the card 0.11 to 1.02 times 72 W.
    idle = 100 * 0.64 / 3.97
    spinning, low, high = idle + (100 - idle) / 8, 0.11 * 72, 1.02 * 72
    alone = {"cpu": 100.0, **dict.fromkeys(("gpu", "launch", "link"), spinning)}
    assert watts(devices["cpu"], None) == pytest.approx(alone)
    both = {"cpu": 100 + low, "gpu": spinning + high, "launch": spinning + low, "link": spinning + low}
    assert watts(devices["cpu"], devices["gpu"]) == pytest.approx(both)


def test_the_best_plan_on_the_cpu_alone_costs_what_the_cpu_plan_does(
    build: Callable[..., Any], op: type[Any]
) -> None:
    decision = decide(build(op(reads=("in",), cpu=1e-5, gpu=1e-2), instances=(GPU_1, CPU_8)))
    cpu, best = plan(decision, "cpu"), plan(decision, "hybrid")
    assert (best.energy_j, best.usd_per_million, best.instance) == (cpu.energy_j, cpu.usd_per_million, "plain")


def test_a_plan_that_does_not_fit_has_no_price_and_no_energy(
    build: Callable[..., Any], op: type[Any], devices: dict[str, Device]
) -> None:
    small = replace(devices["gpu"], memory_bytes=1000)
    decision = decide(fast(build, op, instances=(GPU_1, CPU_8), gpu=small, peak_memory_bytes=2000))
    found = plan(decision, "gpu")
    assert (found.fits, found.usd_per_million, found.energy_j) == (False, None, None)
    assert [row.instance for row in decision.costs] == ["plain"]


def test_a_machine_without_room_for_the_model_is_not_offered(build: Callable[..., Any], op: type[Any]) -> None:
    narrow, wide = replace(CPU_8, memory_bytes=1000), replace(CPU_32, memory_bytes=10**9)
    decision = decide(build(op(reads=("in",)), gpu=None, instances=(narrow, wide), peak_memory_bytes=2000))
    assert [row.instance for row in decision.costs] == ["large"]
