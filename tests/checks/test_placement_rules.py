from dataclasses import replace
from typing import Any

from checks_factory import BYTES_AFTER, BYTES_BEFORE, analysis, copy, groups, operator, stem, tensor

from analyzer.checks import run
from analyzer.checks.settings import CheckSettings


def codes(found: tuple[Any, ...]) -> list[Any]:
    return [finding.code for finding in found]


def test_a_pooling_without_cuda_kernel_is_an_error_with_the_opset_that_brings_it_back() -> None:
    finding = next(finding for finding in run(stem(23)) if finding.code == "A101")
    assert finding.severity == "error"
    assert finding.operator == 2
    assert "MaxPool of maxpool" in finding.message
    assert "opset 23" in finding.message
    assert "--opset 21" in finding.fix
    assert finding.seconds == 8e-4
    assert finding.bytes == BYTES_BEFORE + BYTES_AFTER


def test_both_copies_around_it_are_one_error_that_names_both_with_their_bytes() -> None:
    finding = next(finding for finding in run(stem(23)) if finding.code == "A102")
    assert finding.severity == "error"
    assert finding.operator == 2
    assert finding.bytes == 3_211_264 + 802_816
    assert finding.seconds == 3e-4 + 1e-4
    assert "relu to the CPU (3.21 MB)" in finding.message
    assert "pool to the GPU (803 kB)" in finding.message


def test_copies_of_inputs_and_outputs_are_no_finding() -> None:
    assert codes(run(stem(21))) == []


def test_shape_arithmetic_on_the_cpu_is_no_finding() -> None:
    shapes = analysis(
        operator("Shape", ["x"], ["s"]),
        operator("Gather", ["s", "w"], ["g"], placed_on="cpu", why="shape-arithmetic"),
        operator("Reshape", ["x", "g"], ["y"]),
    )
    assert run(shapes, CheckSettings(max_cpu_operators=0)) == ()


def test_a_copy_that_shape_arithmetic_causes_is_a_note() -> None:
    shapes = analysis(
        operator("Shape", ["x"], ["s"]),
        operator("Range", ["s"], ["r"], placed_on="cpu", why="shape-arithmetic"),
        operator("Add", ["x", "r"], ["y"]),
        copies=[copy("r", "to_gpu", 64, 1e-5)],
    )
    (finding,) = run(shapes)
    assert (finding.code, finding.severity, finding.bytes) == ("A103", "note", 64)


def test_folded_and_removed_operators_never_run_and_are_no_finding() -> None:
    toy = analysis(
        operator("Tan", ["w1"], ["c"], placed_on="cpu", why="folded"),
        operator("Tan", ["x"], ["t"], placed_on="cpu", why="no-cuda-kernel"),
        operator("Dropout", ["t"], ["d"], placed_on="cpu", why="no-kernel-for-opset"),
        operator("Relu", ["d"], ["y"]),
    )
    executed = tuple(group for group in groups(toy.operators) if group.members != (2,))
    found = [finding for finding in run(replace(toy, groups=executed)) if finding.code == "A101"]
    assert [finding.operator for finding in found] == [1]


def test_a_copy_for_a_graph_input_belongs_to_the_operator_on_the_cpu_that_reads_it() -> None:
    toy = analysis(
        operator("Relu", ["x"], ["r"]),
        operator("Unique", ["x"], ["u"], placed_on="cpu", why="no-cuda-kernel"),
        copies=[copy("x", "to_gpu", 512)],
    )
    finding = next(finding for finding in run(toy) if finding.code == "A102")
    assert finding.operator == 1


def test_a_copy_of_a_tensor_that_nobody_is_known_to_make_is_still_found() -> None:
    (finding,) = run(analysis(operator("Relu", ["x"], ["y"]), copies=[copy("hidden", "to_cpu", 8)]))
    assert (finding.code, finding.operator, finding.bytes) == ("A102", None, 8)


def copied(*times_s: float) -> list[tuple[str, float | None]]:
    """Severity and seconds of the findings on copies in a plan of 2 ms, one for an operator on the CPU."""
    uniques = [
        operator("Unique", [f"h{at}"], [f"u{at}"], placed_on="cpu", why="no-cuda-kernel")
        for at in range(len(times_s))
    ]
    moved = [copy(f"h{at}", "to_cpu", 8, time) for at, time in enumerate(times_s)]
    found = run(analysis(*uniques, copies=moved, gpu_s=2e-3))
    return [(finding.severity, finding.seconds) for finding in found if finding.code == "A102"]


def test_copies_that_take_next_to_nothing_of_the_plan_are_notes() -> None:
    """A fiftieth of 2 ms is 40 us."""
    assert copied(1e-5, 1e-5) == [("note", 1e-5), ("note", 1e-5)]
    assert copied(5e-5) == [("error", 5e-5)]
    # A small one beside a large one stays small.
    assert copied(3e-4, 1e-5) == [("error", 3e-4), ("note", 1e-5)]


def test_many_copies_that_are_each_next_to_nothing_are_errors_from_where_they_add_up() -> None:
    assert [severity for severity, _ in copied(*[1.1e-5] * 10)] == ["note"] * 3 + ["error"] * 7


def test_a_type_without_kernel_names_the_types() -> None:
    toy = analysis(
        operator(
            "GridSample",
            [tensor("x", dtype="float16"), tensor("g", dtype="float16")],
            ["y"],
            placed_on="cpu",
            why="no-kernel-for-type",
            detail="no CUDA kernel for GridSample with float16 at opset 20",
        )
    )
    finding = next(finding for finding in run(toy) if finding.code == "A101")
    assert "float16" in finding.message
    assert "cast" in finding.fix
    assert "GridSample with float16 at opset 20" in finding.fix


def test_a_session_that_cannot_be_created_is_an_error_with_its_reason() -> None:
    toy = analysis(
        operator("Clip", ["x"], ["y"], placed_on="cpu", why="no-kernel-for-type"),
        session_fails="no provider has a kernel for Clip with bfloat16",
    )
    finding = next(finding for finding in run(toy) if finding.code == "A104")
    assert finding.severity == "error"
    assert "Clip with bfloat16" in finding.message


def test_nothing_is_said_about_placement_without_a_gpu() -> None:
    toy = stem(23)
    plans = tuple(plan for plan in toy.plans if plan.name == "cpu")
    cpu_only = replace(
        toy,
        devices=replace(toy.devices, gpu=None),
        plans=plans,
        operators=tuple(replace(op, gpu=None) for op in toy.operators),
    )
    assert run(cpu_only) == ()


def test_what_runs_as_one_with_an_operator_on_the_cpu_is_told_so_in_words() -> None:
    toy = analysis(
        operator("Sum", ["x"], ["s"], placed_on="cpu", why="no-cuda-kernel"),
        operator(
            "Relu", ["s"], ["y"], placed_on="cpu", why="cuda-kernel", detail="part of a kernel on the CPU"
        ),
        fused={(0, 1): "FusedSum"},
    )
    (relu,) = (finding for finding in run(toy) if finding.code == "A101" and finding.operator == 1)
    assert "runs as one with an operator that has no CUDA kernel" in relu.message
    assert "cuda-kernel" not in relu.message
    assert "see to the operator that it runs as one with" in relu.fix
