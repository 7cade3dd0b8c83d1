from dataclasses import replace
from typing import Any

from checks_factory import analysis, operator, plan, stem, tensor

from analyzer.checks import run
from analyzer.record.analysis import Analysis, BatchRange, OperatorResult, Where


def found(code: str, toy: Analysis) -> list[Any]:
    return [finding for finding in run(toy) if finding.code == code]


def with_plans(toy: Any, **changes: Any) -> Any:
    """The analysis with other plans or another verdict."""
    return replace(toy, **changes)


def test_an_operator_that_the_best_plan_moves_to_the_cpu_is_a_warning_with_what_it_loses() -> None:
    toy = analysis(
        operator("Conv", ["x", "w"], ["c"]),
        operator("ArgMax", ["c"], ["y"], cpu_s=1e-5, gpu_s=9e-5, placement="cpu"),
        gpu_s=2e-3,
    )
    (finding,) = found("A201", toy)
    assert finding.severity == "warning"
    assert finding.operator == 1
    assert abs(finding.seconds - 8e-5) < 1e-12


def test_an_operator_that_loses_under_a_hundredth_of_the_latency_is_not_listed() -> None:
    toy = analysis(
        operator("Conv", ["x", "w"], ["c"]),
        operator("ArgMax", ["c"], ["y"], cpu_s=1e-6, gpu_s=20e-6, placement="cpu"),
        gpu_s=2e-3,
    )
    assert found("A201", toy) == []


def test_where_the_two_intervals_overlap_it_is_only_a_note() -> None:
    # CPU 60 us (30 to 120), GPU 90 us (45 to 180): they overlap.
    toy = analysis(
        operator("Conv", ["x", "w"], ["c"]),
        operator("ArgMax", ["c"], ["y"], cpu_s=6e-5, gpu_s=9e-5, placement="cpu"),
    )
    (finding,) = found("A201", toy)
    assert (finding.severity, finding.certain) == ("note", False)


def test_a_plan_that_is_all_cpu_is_not_repeated_for_every_operator() -> None:
    toy = analysis(
        operator("Relu", ["x"], ["y"], cpu_s=1e-6, gpu_s=9e-6, placement="cpu"), cpu_s=1e-6, gpu_s=1e-4
    )
    assert [finding.code for finding in run(toy) if finding.code.startswith("A2")] == ["A203"]


def test_launch_bound_operators_of_one_line_are_one_note_with_their_share() -> None:
    line = Where(file="m.py", line=3, code="x = torch.relu(x)")
    toy = analysis(
        *(
            operator("Relu", [f"a{i}"], [f"a{i + 1}"], gpu_s=1e-4, bound="overhead", source=line)
            for i in range(4)
        ),
        gpu_s=2e-3,
    )
    (finding,) = found("A202", toy)
    assert finding.severity == "note"
    assert "4 Relu operators" in finding.message
    assert "20 %" in finding.message  # 4 x 0.1 ms of 2 ms.
    assert abs(finding.seconds - 4e-4) < 1e-12


def test_launch_bound_operators_of_several_lines_are_one_note_at_the_line_that_takes_most() -> None:
    def on_line(number: int, gpu_s: float) -> OperatorResult:
        line = Where(file="m.py", line=number, code="x = f(x)")
        return operator("Relu", [f"a{number}"], [f"a{number + 1}"], gpu_s=gpu_s, bound="overhead", source=line)

    toy = analysis(*map(on_line, range(5), (1e-4, 2e-4, 5e-4, 3e-4, 5e-5)), gpu_s=2e-3)
    (finding,) = found("A202", toy)
    assert finding.operator == 2
    # The fifth takes 2.5 % of 2 ms, which is not worth a word: 1.1 ms are left, 55 %.
    assert "4 operators of 4 lines are launch-bound: 1.10 ms, 55 %" in finding.message
    assert finding.message.index("500 µs") < finding.message.index("300 µs") < finding.message.index("200 µs")
    assert abs(finding.seconds - 1.1e-3) < 1e-12


def test_launch_bound_operators_that_hardly_matter_are_not_listed() -> None:
    toy = analysis(operator("Relu", ["x"], ["y"], gpu_s=9e-5, bound="overhead"), gpu_s=2e-3)
    assert found("A202", toy) == []


def test_a_model_faster_on_the_cpu_is_a_warning_that_names_the_batch_from_which_the_gpu_wins() -> None:
    toy = analysis(operator("Relu", ["x"], ["y"]), cpu_s=1e-4, gpu_s=1e-3)
    toy = replace(toy, verdict=replace(toy.verdict, crossover_batch=64))
    (finding,) = found("A203", toy)
    assert (finding.severity, finding.certain) == ("warning", True)
    assert "from 64 on, where the GPU wins" in finding.fix
    assert abs(finding.seconds - 9e-4) < 1e-12


def test_a_batch_is_promised_only_where_the_gpu_is_certain_to_win() -> None:
    toy = analysis(operator("Relu", ["x"], ["y"]), cpu_s=1e-4, gpu_s=1e-3)
    known = (
        BatchRange(first=1, last=9, device="cpu"),
        BatchRange(first=10, last=99, device="either"),
        BatchRange(first=100, last=4096, device="gpu"),
    )
    fixes = [
        found("A203", replace(toy, verdict=replace(toy.verdict, crossover_batch=64, ranges=ranges)))[0].fix
        for ranges in (known, known[:2])
    ]
    assert "from 100 on, where the GPU wins" in fixes[0]
    assert "from 64 on, where the GPU may win" in fixes[1]


def test_a_speed_up_whose_interval_holds_one_is_a_note_that_says_so() -> None:
    """0.9 between 0.72 and 1.125: either may be faster."""
    toy = analysis(operator("Relu", ["x"], ["y"]), cpu_s=9e-4, gpu_s=1e-3)
    (finding,) = found("A203", toy)
    assert (finding.severity, finding.certain) == ("note", False)
    assert finding.message.startswith("the model may be faster on the CPU")
    assert finding.message.endswith("the GPU between 0.72x and 1.1x as fast")
    assert finding.fix.startswith("take the device that costs less")


def test_a_model_faster_on_the_gpu_is_no_finding() -> None:
    assert found("A203", stem(21)) == []


def test_unknown_costs_are_one_warning_for_each_type_with_the_reason() -> None:
    toy = analysis(
        *(
            operator(
                "Warp",
                [f"a{i}"],
                [f"a{i + 1}"],
                domain="com.example",
                basis="unknown",
                note="no rule",
                flops=None,
            )
            for i in range(3)
        ),
        operator("NonZero", ["a3"], ["y"], basis="unknown", note="a shape is open", flops=None),
    )
    first, second = found("A301", toy)
    assert "3 com.example::Warp operators" in first.message
    assert "no rule" in first.message
    assert "1 NonZero operator " in second.message
    assert {first.severity, second.severity} == {"warning"}
    assert (first.operator, second.operator) == (0, 3)


def test_a_model_that_does_not_fit_is_an_error_with_both_sizes() -> None:
    toy = stem(21)
    plans = (toy.plans[0], replace(toy.plans[1], fits=False, memory_bytes=28_000_000_000), toy.plans[2])
    (finding,) = found("A401", replace(toy, plans=plans, verdict=replace(toy.verdict, largest_batch=8)))
    assert finding.severity == "error"
    assert "28.0 GB" in finding.message
    assert "24.0 GB" in finding.message
    assert "at most 8" in finding.fix


def test_a_model_that_barely_fits_is_a_warning_from_nine_tenths_on() -> None:
    toy = stem(21)
    for memory, expected in ((21_600_000_000, 0), (21_600_000_001, 1)):
        plans = (toy.plans[0], plan("gpu", 1e-3, memory_bytes=memory), toy.plans[2])
        assert len(found("A402", replace(toy, plans=plans))) == expected


def test_float64_on_the_gpu_names_the_first_operator_and_the_ratio_of_the_peaks() -> None:
    wide = tensor("d", dtype="float64")
    toy = analysis(
        operator("Relu", ["x"], ["r"]),
        operator("Cast", ["r"], [wide]),
        operator("Mul", [wide, "w"], [tensor("y", dtype="float64")]),
    )
    (finding,) = found("A503", toy)
    assert finding.operator == 1
    assert "2 operators" in finding.message
    assert "32.0x slower" in finding.message  # 32e12 / 1e12
    assert finding.severity == "warning"


def test_float64_on_the_cpu_is_no_finding() -> None:
    toy = analysis(
        operator("Mul", ["x", "w"], [tensor("y", dtype="float64")], placed_on="cpu", why="shape-arithmetic")
    )
    assert found("A503", toy) == []
