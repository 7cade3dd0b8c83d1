from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from analyzer.costs.cost import Cost
from analyzer.decision import decide
from analyzer.decision.decide import REASONS
from analyzer.devices.device import Device
from analyzer.ort.execution import NodePlacement

COPY_S = 10e-6 + 1e6 / 10e9  # 110 us; two of them for the input and the output


def test_a_device_that_is_faster_beyond_the_error_wins(build: Callable[..., Any], op: type[Any]) -> None:
    """CPU 10 ms; GPU 0.78 ms and 0.22 ms of copies: exactly 10 times."""
    verdict = decide(build(op(reads=("in",), cpu=1e-2, gpu=1e-3 - 2 * COPY_S))).verdict
    assert verdict.device == "gpu"
    assert verdict.speedup == pytest.approx(10)
    assert verdict.low < 10 < verdict.high


def test_the_copies_can_turn_the_verdict(
    build: Callable[..., Any], op: type[Any], devices: dict[str, Device]
) -> None:
    """The kernel is twice as fast, yet in and out take 220 us of the CPU's 100."""
    decision = decide(build(op(reads=("in",), cpu=1e-4, gpu=5e-5)))
    assert decision.verdict.device == "cpu"
    assert decision.verdict.speedup == pytest.approx(1e-4 / (5e-5 + 2 * COPY_S))
    assert "Copying 2.00 MB" in decision.verdict.because[0]
    assert decision.operators[0].device == "cpu"
    assert decision.operators[0].reason == "transfer-bound"
    assert decision.operators[0].explanation.endswith("the copies would add 220 µs.")
    # Pageable memory at half the rate takes 210 us either way; what stays inside lies in pinned memory.
    link = devices["gpu"].link
    assert link is not None
    slow = replace(devices["gpu"], link=replace(link, pageable_bytes_per_s=5e9))
    operators = decide(
        build(op(reads=("in",), cpu=1e-4, gpu=5e-5), op(reads=(0,), cpu=1e-4, gpu=5e-5), gpu=slow)
    ).operators
    assert [one.explanation.split(" would ")[1] for one in operators] == ["add 320 µs.", "add 420 µs."]


@pytest.mark.parametrize(("spread", "device"), [(1.05, "gpu"), (1.5, "either")])
def test_a_difference_inside_the_error_is_no_difference(
    build: Callable[..., Any], op: type[Any], spread: float, device: str
) -> None:
    """1.3 times as fast: either, where each side may be half as much again."""
    ops = [op(reads=("in",), cpu=1.3e-2, gpu=1e-2 - 2 * COPY_S)]
    verdict = decide(build(*ops, spread=spread)).verdict
    assert verdict.device == device
    assert (verdict.low <= 1 <= verdict.high) == (device == "either")


@pytest.mark.parametrize(
    ("groups", "told"),
    [
        ([(0, 1), (2,)], "Conv, with what ONNX Runtime fuses into it, takes 90 % of this CPU's time"),
        ([(0,), (1,), (2,)], "Conv takes 82 % of this CPU's time"),
    ],
)
def test_the_time_of_a_fused_operator_is_told_as_what_it_is(
    build: Callable[..., Any], op: type[Any], groups: list[tuple[int, ...]], told: str
) -> None:
    """A chart of operators shows 9 of 11 ms for Conv alone; as executed it is 9 of 10, the Relu being in it."""
    types = [op(reads=("in",), op_type="Conv", cpu=9e-3, gpu=1e-5), op(reads=(0,), gpu=1e-5)]
    types.append(op(reads=(1,), op_type="Softmax", gpu=1e-5))
    assert decide(build(*types, cpu_groups=groups)).verdict.because[0].startswith(told)


def test_a_product_that_onnx_runtime_renames_keeps_the_name_of_the_tables(
    build: Callable[..., Any], op: type[Any]
) -> None:
    """A MatMul with its bias runs as Gemm (core/optimizer/matmul_add_fusion.cc); the Add has fewer FLOPs."""
    product = op(reads=("in",), op_type="MatMul", cpu=9e-3, gpu=1e-5, elements=1000)
    bias = op(reads=(0,), op_type="Add", cpu=1e-3, gpu=1e-5, elements=10)
    question = build(product, bias, cpu_groups=[(0, 1)])
    renamed = replace(question, cpu_groups=tuple(replace(one, op_type="Gemm") for one in question.cpu_groups))
    assert (
        decide(renamed)
        .verdict.because[0]
        .startswith("MatMul, with what ONNX Runtime fuses into it, takes 100 %")
    )


@pytest.mark.parametrize(
    ("kind", "macs", "bound", "told"),
    [
        ("MatMul", 10**9, "compute", ">99 % of that time is limited by arithmetic, of which the L4 has more."),
        (
            "Erf",
            0,
            "compute",
            ">99 % of that time is limited by instructions, not by memory, and the L4 runs more",
        ),
        ("Erf", 0, "memory", ">99 % of that time is limited by memory bandwidth, of which the L4 has more."),
        # Small kernels in a row: neither side's arithmetic is what they wait for.
        (
            "LSTM",
            10**9,
            "compute",
            ">99 % of that time is spent on steps that wait for each other, which take the L4",
        ),
    ],
)
def test_what_limits_the_cpus_time_is_named_for_what_it_is(
    build: Callable[..., Any], op: type[Any], kind: str, macs: int, bound: str, told: str
) -> None:
    question = build(op(reads=("in",), op_type=kind, cpu=1e-1, gpu=3e-3, cpu_bound=bound))
    (cost,) = question.table.costs
    counted = replace(question.table, costs=(replace(cost, macs=macs),))
    first = decide(replace(question, table=counted)).verdict.because[0]
    assert told in first.replace("100 %", ">99 %")
    assert ("3.00 ms" in first) == (kind == "LSTM")


def test_a_tie_names_the_faster_one_first(build: Callable[..., Any], op: type[Any]) -> None:
    ops = [op(reads=("in",), cpu=1e-2, gpu=1.2e-2 - 2 * COPY_S)]
    verdict = decide(build(*ops, spread=2.0)).verdict
    low, high = 1 / verdict.high, 1 / verdict.low  # the other way round
    assert low < 1.2 < high
    assert verdict.sentence == (
        f"Either: this CPU is 1.2x ({low:.2g}x to {high:.2g}x) as fast as the L4, which is within the error."
    )


# What is given besides one operator of 10 ms on the CPU, and of 0.1 ms and two copies of 110 us on the GPU: the
# device, a part of the sentence and the reason.
SMALL, ROOMLESS = {"memory_bytes": 310 * 10**6}, {"memory_bytes": 10**6}
NEEDS = {"op": {"weight": 5_000_000}, "peak_memory_bytes": 10**6}
RELU = "Relu takes 100 % of this CPU's time."
OF_THE_L4 = "The L4 has 310 MB of memory, weights and activations need 21.0 MB beside the 300 MB of CUDA's own."
ENERGY = "it needs 56.8x (43.9x to 68.5x) fewer joules than this CPU alone and takes 320 µs"
SAID: list[tuple[dict[str, Any], str | None, str, str]] = [
    ({"run_fails": "it ended."}, None, "failed, and nothing was measured: it ended.", "The run failed."),
    ({"load_fails": "its opset is 99"}, None,
     "ONNX Runtime cannot run this model: its opset is 99. Save it again", "There is no session to compare."),
    ({"gpu": None}, "cpu", "Only the CPU was looked at: this CPU takes 10.0 ms (predicted).",
     "No GPU was requested."),
    ({"placement_fails": "Relu has no kernel."}, "cpu", "cannot run this model on a GPU, Relu has no kernel.",
     "There is no plan for the GPU to compare."),
    ({**NEEDS, "l4": SMALL}, "cpu", "10.0 ms (predicted), and the model does not fit the memory of the L4.",
     OF_THE_L4),
    ({**NEEDS, "l4": SMALL, "here": ROOMLESS}, "cpu", "Neither has room: the model needs 21.0 MB, this CPU has "
     "1.00 MB and the L4 310 MB beside the 300 MB of CUDA's own.", OF_THE_L4),
    ({**NEEDS, "here": ROOMLESS}, "gpu", "and the model does not fit the memory of this CPU.",
     RELU),
    ({"limit_s": 1e-3}, "gpu", "it takes 320 µs (predicted), and this CPU misses the limit of 1.00 ms.", RELU),
    ({"op": {"cpu": 1e-5}, "limit_s": 1e-4}, "cpu", "and the L4 misses the limit of 100 µs.",
     "Copying 2.00 MB to and from the L4 takes 220 µs of the GPU plan's 320 µs."),
    ({"cpu_lacks": ("Relu",)}, "gpu", "and ONNX Runtime has no kernel for Relu on this CPU.", RELU),
    ({"cpu_fails": "no kernel takes mode=odd"}, "gpu", "320 µs (predicted), and no kernel takes mode=odd.",
     "Only the L4 has kernels for all operators."),
    ({"op": {"able": False}}, "cpu", "ONNX Runtime would run every operator on the CPU next to the L4 as well.",
     "ONNX Runtime has no CUDA kernel for Relu."),
    ({"op": {"gpu": 0.1, "gpu_bound": "overhead"}}, "cpu", "10.0x faster than the L4",
     "The operators are small: starting them on the L4 takes 100 ms of the GPU plan's 100 ms."),
    ({"op": {"gpu": 0.1}}, "cpu", "faster than the L4, 10.0 ms (predicted) against 100 ms (predicted).",
     "The L4's kernels take 100 ms, more than this CPU for everything (10.0 ms)."),
    ({"objective": "energy"}, "gpu", ENERGY, RELU),
    ({"op": {"cpu": 3e-4}, "objective": "energy", "spread": 2.0}, "either",
     "Either: the L4 needs 1.7x (0.72x to 3.8x) fewer joules than this CPU, which is within the error.",
     "Copying 2.00 MB to and from the L4 takes 220 µs of the GPU plan's 320 µs."),
]  # fmt: skip


@pytest.mark.parametrize(("given", "device", "sentence", "reason"), SAID)
def test_a_verdict_says_what_decided(
    build: Callable[..., Any],
    op: type[Any],
    devices: dict[str, Device],
    given: dict[str, Any],
    device: str | None,
    sentence: str,
    reason: str,
) -> None:
    rest = {name: value for name, value in given.items() if name not in ("op", "l4", "here", "placement_fails")}
    rest |= {"gpu": replace(devices["gpu"], **given["l4"])} if "l4" in given else {}
    rest |= {"cpu": replace(devices["cpu"], **given["here"])} if "here" in given else {}
    question = build(op(**{"reads": ("in",), "cpu": 1e-2, **given.get("op", {})}), **rest)
    if "placement_fails" in given:
        question = replace(question, placement=replace(question.placement, fails=given["placement_fails"]))
    verdict = decide(question).verdict
    assert verdict.device == device
    assert sentence in verdict.sentence
    assert verdict.because[0] == reason


@pytest.mark.parametrize(("lacks", "device"), [((), "gpu"), (("Relu",), "cpu")])
def test_a_cpu_whose_session_fails_is_not_the_answer_however_fast(
    build: Callable[..., Any], op: type[Any], lacks: tuple[str, ...], device: str
) -> None:
    # Where no provider has a kernel for an operator it runs nowhere, and its time on either device is compared.
    question = build(op(reads=("in",), cpu=1e-6, gpu=1.0), cpu_fails="no kernel takes mode=odd", lacks=lacks)
    assert decide(question).verdict.device == device


def test_work_is_told_by_what_is_known_of_it(build: Callable[..., Any], op: type[Any]) -> None:
    question = build(op(reads=("in",)))
    for cost, work in (
        (Cost(flops=2 * 10**9, bytes_read=None), "Computes 2.00 GFLOP"),
        (Cost(flops=2 * 10**9, bytes_read=10**9, bytes_written=0), "Computes 2.00 GFLOP at 2.0 FLOP per byte"),
        (Cost(flops=0, bytes_read=10**9, bytes_written=0), "Reads 1.00 GB and computes nothing"),
        (Cost(flops=0, bytes_read=1, bytes_written=10**9), "Writes 1.00 GB and computes nothing"),
        (Cost(flops=0, bytes_read=None), "Moves an unknown amount of data"),
        (Cost(flops=None), "Computes an unknown amount"),
    ):
        (told,) = decide(replace(question, table=replace(question.table, costs=(cost,)))).operators
        assert told.explanation.split(":")[0] == work


def test_the_copies_are_told_once(build: Callable[..., Any], op: type[Any]) -> None:
    for cpu, gpu in ((1e-4, 5e-5), (1e-2, 5e-5), (1e-3, 5e-2)):
        facts = decide(build(op(reads=("in",), cpu=cpu, gpu=gpu))).verdict.because
        assert sum("220 µs" in text for text in facts) == 1


def test_the_interval_of_a_ratio_is_that_of_independent_errors(
    build: Callable[..., Any], op: type[Any]
) -> None:
    """Both sides up to a factor f: the logarithms' half-widths add in squares."""
    ops = [op(reads=("in",), cpu=1e-1, gpu=1e-2, elements=0)]
    verdict = decide(build(*ops, spread=1.2, input_elements=0)).verdict
    assert verdict.high / verdict.speedup == pytest.approx(1.2 ** (2**0.5))
    assert verdict.speedup / verdict.low == pytest.approx(1.2 ** (2**0.5))


def test_an_error_that_both_plans_share_cancels(build: Callable[..., Any], op: type[Any]) -> None:
    """All of both plans is one fall-back on the CPU: the ratio is 1 for certain."""
    ops = [op(reads=("in",), cpu=1e-2, gpu=1e-2, able=False)]
    verdict = decide(build(*ops, spread=3.0)).verdict
    assert (verdict.low, verdict.speedup, verdict.high) == pytest.approx((1, 1, 1))


def test_a_split_that_pays_is_a_hybrid_with_its_margin(build: Callable[..., Any], op: type[Any]) -> None:
    ops = [op(reads=("in",), cpu=1e-2, gpu=1e-4), op(reads=(0,), cpu=1e-4, gpu=1e-2)]
    decision = decide(build(*ops))
    assert decision.verdict.device == "hybrid"
    assert decision.placement == ("gpu", "cpu")
    split = 2e-4 + 2 * COPY_S
    assert f"{1.01e-2 / split:.1f}x".removesuffix(".0x") in decision.verdict.sentence
    assert "1 operator on the L4 and 1 on this CPU" in decision.verdict.because[0]
    # Both sessions take 10.1 ms, the GPU's copies aside: 10.1 over 0.42 ms.
    assert "The best split is 24.0x as fast as the CPU alone." in decision.verdict.because


def test_a_split_that_gains_too_little_is_not_recommended(build: Callable[..., Any], op: type[Any]) -> None:
    ops = [op(reads=("in",), cpu=1e-1, gpu=1e-2), op(reads=(0,), cpu=1e-4, gpu=3e-4)]
    decision = decide(build(*ops))
    assert decision.placement == ("gpu", "cpu")
    assert decision.verdict.device == "gpu"
    assert "gains less than 5 % over the GPU alone." in " ".join(decision.verdict.because)


def test_a_split_inside_the_error_is_not_recommended(build: Callable[..., Any], op: type[Any]) -> None:
    ops = [op(reads=("in",), cpu=1e-1, gpu=1e-3), op(reads=(0,), cpu=1e-3, gpu=1.5e-3)]
    assert decide(build(*ops)).verdict.device == "hybrid"
    verdict = decide(build(*ops, spread=2.0)).verdict
    assert verdict.device == "gpu"
    gain = (2.5e-3 + 2 * COPY_S) / (2e-3 + 2 * COPY_S)
    assert f"The best split is {gain:.1f}x as fast as the GPU alone: too" in " ".join(verdict.because)


def test_a_split_that_may_lose_to_the_cpu_alone_is_not_recommended(
    build: Callable[..., Any], op: type[Any]
) -> None:
    """Moving the second operator gains 2 of the GPU's 12 ms for certain; of CPU and GPU either may win."""
    ops = [op(reads=("in",), cpu=1e-2, gpu=1e-2, elements=0), op(reads=(0,), cpu=1e-5, gpu=2e-3, elements=0)]
    exact = decide(build(*ops, input_elements=0))
    assert exact.verdict.device == "cpu"
    dear = [replace(ops[0], cpu=1.2e-2), ops[1]]
    assert decide(build(*dear, input_elements=0)).verdict.device == "hybrid"
    assert decide(build(*dear, input_elements=0, spread=2.0)).verdict.device == "either"


def test_the_cpu_is_measured_and_the_gpu_predicted_in_every_sentence(
    build: Callable[..., Any], op: type[Any]
) -> None:
    ops = [op(reads=("in",), cpu=5e-2, gpu=1e-3, cpu_bound="compute", gpu_bound="compute")]
    decision = decide(build(*ops, origins={"cpu": "measured"}))
    assert re.search(r"1\.22 ms \(predicted\) against 50\.0 ms \(measured\)", decision.verdict.sentence)
    assert "the L4 takes 1.00 ms (predicted), this CPU 50.0 ms (measured)" in decision.operators[0].explanation


def test_a_cpu_of_the_catalogue_has_its_name_and_not_this(
    build: Callable[..., Any], op: type[Any], devices: dict[str, Device]
) -> None:
    cpu = replace(devices["cpu"], name="AMD EPYC 9654", origin="catalogue")
    decision = decide(build(op(reads=("in",), cpu=5e-2), cpu=cpu))
    assert "the EPYC 9654" in decision.verdict.sentence
    assert "this CPU" not in decision.verdict.sentence


def test_a_gpu_that_no_release_wheel_runs_on_is_never_recommended(
    build: Callable[..., Any], op: type[Any], devices: dict[str, Device]
) -> None:
    gpu = replace(devices["gpu"], name="NVIDIA Tesla P100", runs_release_wheel=False)
    decision = decide(build(op(reads=("in",), cpu=1.0, gpu=1e-3), gpu=gpu))
    assert decision.verdict.device == "cpu"
    assert decision.placement == ("cpu",)
    assert decision.operators[0].device == "cpu"
    assert decision.verdict.speedup > 100
    assert "release wheel" in decision.verdict.sentence
    assert "release wheel" in decision.operators[0].explanation


@pytest.mark.parametrize("lacks", ["machine code", "room for the activations"])
def test_the_best_plan_of_a_gpu_that_cannot_run_is_the_cpus(
    build: Callable[..., Any], op: type[Any], devices: dict[str, Device], lacks: str
) -> None:
    # The GPU would be a thousand times as fast. It holds no 10 GB of activations, and the CPU does.
    gpu = replace(devices["gpu"], runs_release_wheel=lacks != "machine code", memory_bytes=8 * 10**9)
    peak = 10 * 10**9 if lacks != "machine code" else 10**6
    decision = decide(build(op(reads=("in",), cpu=1.0, gpu=1e-3), gpu=gpu, peak_memory_bytes=peak))
    plans = {plan.name: plan for plan in decision.plans}
    assert plans["hybrid"].fits
    assert (plans["hybrid"].latency_s, plans["hybrid"].operators_on_gpu) == (plans["cpu"].latency_s, 0)
    assert plans["gpu"].latency_s < plans["cpu"].latency_s
    assert decision.verdict.device == "cpu"


def test_only_what_keeps_the_limit_can_be_chosen(build: Callable[..., Any], op: type[Any]) -> None:
    """By energy the GPU wins, but it takes 20 ms where 15 ms are asked for."""
    ops = [op(reads=("in",), cpu=1e-2, gpu=2e-2, gpu_bound="overhead")]
    assert decide(build(*ops, objective="energy")).verdict.device == "gpu"
    assert decide(build(*ops, objective="energy", limit_s=15e-3)).verdict.device == "cpu"


def test_a_limit_that_nothing_keeps_gets_the_nearest(build: Callable[..., Any], op: type[Any]) -> None:
    verdict = decide(build(op(reads=("in",), cpu=5e-2, gpu=1e-2), limit_s=1e-3)).verdict
    assert verdict.device == "gpu"
    assert "misses the limit of 1.00 ms" in verdict.sentence
    assert verdict.would_change[0] == "The L4 can keep a limit of 10.2 ms or more."


def test_keeping_data_on_the_gpu_is_told_where_it_would_turn_the_verdict(
    build: Callable[..., Any], op: type[Any]
) -> None:
    told = decide(build(op(reads=("in",), cpu=1e-4, gpu=2e-5))).verdict.would_change
    assert told == ("Where inputs and outputs stay on the GPU, the L4 is 5.0x as fast as this CPU.",)


def test_an_operator_without_a_kernel_at_this_opset_says_so(build: Callable[..., Any], op: type[Any]) -> None:
    pool = op(
        reads=(0,),
        able=False,
        op_type="MaxPool",
        why="no-kernel-for-opset",
        detail="the CUDA kernel ends at opset 21",
        cpu=1e-3,
        gpu=1e-3,
    )
    decision = decide(build(op(reads=("in",), cpu=1e-4, gpu=1e-5), pool))
    assert decision.operators[1].reason == "no-kernel-for-opset"
    assert decision.operators[1].explanation.startswith("The CUDA kernel ends at opset 21.")


def test_sentences_end_with_one_stop(build: Callable[..., Any], op: type[Any]) -> None:
    cases = [
        build(op(reads=("in",), cpu=1e-2, gpu=1e-3)),
        build(op(reads=("in",), cpu=1e-4, gpu=1e-3, gpu_bound="overhead")),
        build(op(reads=("in",)), gpu=None),
        build(op(reads=("in",), able=False), op(reads=(0,), cpu=None, gpu=None)),
        build(op(reads=("in",), cpu=1e-2, gpu=9e-3), spread=2.0),
    ]
    for question in cases:
        decision = decide(question)
        told = [decision.verdict.sentence, *decision.verdict.because, *decision.verdict.would_change]
        told += [verdict.explanation for verdict in decision.operators]
        for text in told:
            assert re.fullmatch(r"[A-Z0-9].*[^.\s]\.", text), text
            assert "  " not in text


class TestOperators:
    def test_each_reason_is_of_the_fixed_list(self, build: Callable[..., Any], op: type[Any]) -> None:
        ops = [
            op(reads=("in",), cpu=1e-2),
            op(reads=(0,), able=False),
            op(reads=(1,), cpu=1e-5),
            op(reads=(2,), cpu=0.0, gpu=0.0),
            op(reads=(3,), cpu=None, gpu=None),
        ]
        assert {verdict.reason for verdict in decide(build(*ops)).operators} <= set(REASONS)

    def test_every_reason_why_onnx_runtime_keeps_an_operator_is_of_the_list(self) -> None:
        kinds = (
            "shape-arithmetic",
            "no-cuda-kernel",
            "no-kernel-for-opset",
            "no-kernel-for-type",
            "capability",
        )
        assert set(kinds) <= set(REASONS)
        assert NodePlacement(provider="cpu", supported=False, why="folded").why in REASONS

    @pytest.mark.parametrize("bound", ["compute", "memory"])
    def test_what_limits_the_gpu_is_the_reason(
        self, build: Callable[..., Any], op: type[Any], bound: str
    ) -> None:
        ops = [op(reads=("in",), cpu=1e-1, gpu=1e-3, gpu_bound=bound, cpu_bound="memory")]
        assert decide(build(*ops)).operators[0].reason == f"{bound}-bound"

    def test_a_memory_bound_operator_tells_both_memories(
        self, build: Callable[..., Any], op: type[Any]
    ) -> None:
        ops = [op(reads=("in",), cpu=3.4e-2, gpu=6e-4, gpu_bound="memory", cpu_bound="memory")]
        text = decide(build(*ops, origins={"cpu": "measured"})).operators[0].explanation
        assert text == (
            "Reads 1.00 MB and computes 0.25 FLOP per byte: the L4's memory takes 600 µs (predicted), "
            "this CPU's 34.0 ms (measured)."
        )

    def test_a_launch_that_takes_longer_than_the_work_is_the_reason(
        self, build: Callable[..., Any], op: type[Any]
    ) -> None:
        ops = [op(reads=("in",), cpu=1e-6, gpu=6e-6, gpu_bound="overhead", cpu_bound="memory")]
        verdict = decide(build(*ops)).operators[0]
        assert (verdict.device, verdict.reason) == ("cpu", "launch-bound")
        assert "starting it on the L4 takes 6.00 µs" in verdict.explanation

    def test_an_operator_slower_on_the_gpu_stays_where_its_data_is(
        self, build: Callable[..., Any], op: type[Any]
    ) -> None:
        ops = [
            op(reads=("in",), cpu=1e-1),
            op(reads=(0,), cpu=1e-5, gpu=5e-5, gpu_bound="overhead"),
            op(reads=(1,), cpu=1e-1),
        ]
        decision = decide(build(*ops))
        assert decision.placement == ("gpu", "gpu", "gpu")
        assert (decision.operators[1].device, decision.operators[1].reason) == ("gpu", "data-on-gpu")
        assert decision.operators[1].speedup == pytest.approx(0.2)

    def test_what_takes_no_time_on_either_is_free(self, build: Callable[..., Any], op: type[Any]) -> None:
        verdict = decide(build(op(reads=("in",), cpu=1e-2), op(reads=(0,), cpu=0.0, gpu=0.0))).operators[1]
        assert (verdict.device, verdict.reason, verdict.speedup) == ("either", "free", None)

    def test_a_part_of_a_fused_operator_that_must_stay_goes_along(
        self, build: Callable[..., Any], op: type[Any]
    ) -> None:
        """A CUDA-able operator that the CUDA session runs in one group with one on the CPU."""
        question = build(
            op(reads=("in",), able=False, gpu=1e-3), op(reads=(0,)), cuda_groups=[(0, 1)], cpu_groups=[(0, 1)]
        )
        decision = decide(question)
        assert [verdict.reason for verdict in decision.operators] == ["no-cuda-kernel", "fused"]


def test_a_limit_that_nothing_keeps_does_not_make_a_hair_s_breadth_a_split(
    build: Callable[..., Any], op: type[Any]
) -> None:
    ops = [op(reads=("in",), cpu=1e-1, gpu=1e-2), op(reads=(0,), cpu=1e-4, gpu=3e-4)]
    verdict = decide(build(*ops, limit_s=1e-3)).verdict
    assert verdict.device == "gpu"


def test_operators_are_counted_where_they_run(build: Callable[..., Any], op: type[Any]) -> None:
    ops = (op(reads=("in",), cpu=1e-2), op(reads=(0,)), op(reads=(1,), able=False, gpu=1e-3))
    plans = decide(build(*ops, cpu_groups=[(0,), (2,)], cuda_groups=[(0,), (2,)])).plans
    assert [(plan.operators_on_gpu, plan.operators_on_cpu) for plan in plans[:2]] == [(0, 2), (1, 1)]


def test_by_energy_an_operator_s_reason_is_energy(
    build: Callable[..., Any], op: type[Any], devices: dict[str, Device]
) -> None:
    gpu = replace(devices["gpu"], tdp_w=300.0)
    decision = decide(build(op(reads=("in",), cpu=1e-2, gpu=5e-3), gpu=gpu, objective="energy"))
    assert decision.placement == ("cpu",)
    assert (decision.operators[0].device, decision.operators[0].reason) == ("cpu", "energy")


def test_operators_without_a_kernel_are_named_by_what_they_take(
    build: Callable[..., Any], op: type[Any]
) -> None:
    """Three small Reshapes are more than one Tokenizer, and take less."""
    takes = {"Reshape": 1e-6, "Tokenizer": 9e-5, "Scaler": 5e-6, "Imputer": 2e-6, "OneHotEncoder": 8e-6}
    forced = ["Reshape", "Reshape", "Reshape", "Tokenizer", "Scaler", "Imputer", "OneHotEncoder"]
    ops = [
        op(reads=(at - 1,) if at else ("in",), op_type=kind, able=False, cpu=takes[kind], gpu=takes[kind])
        for at, kind in enumerate(forced)
    ]
    ops.append(op(reads=(len(forced) - 1,), op_type="Conv", cpu=1e-2, gpu=1e-4))
    told = decide(build(*ops)).verdict.because
    assert (
        "ONNX Runtime runs Tokenizer, OneHotEncoder, Scaler and 2 more on the CPU for want of a CUDA kernel, "
        "108 µs of the GPU plan."
    ) in told
