from dataclasses import replace
from typing import Any

from checks_factory import BYTES_AFTER, BYTES_BEFORE, analysis, copy, groups, operator, stem, tensor

from analyzer.checks import judge, run
from analyzer.checks.evaluation import fails
from analyzer.checks.settings import CheckSettings, Ignore
from analyzer.record.analysis import Alternative, BatchRange, Finding, Where


def codes(found: tuple[Any, ...]) -> list[Any]:
    return [finding.code for finding in found]


def test_a_pooling_without_cuda_kernel_is_an_error_with_the_opset_that_brings_it_back() -> None:
    finding = next(finding for finding in run(stem(23)) if finding.code == "A101")
    assert finding.severity == "error"
    assert finding.operator == 2
    assert "MaxPool of maxpool" in finding.message
    assert "opset 23" in finding.message
    assert "--opset 21" in finding.fix
    assert abs(finding.seconds - 1.2e-3) < 1e-12  # 800 us there, 300 and 100 us of copies
    assert finding.bytes == BYTES_BEFORE + BYTES_AFTER


def test_both_copies_around_it_are_part_of_that_error_with_their_bytes() -> None:
    (finding,) = run(stem(23))
    sizes = "relu to the CPU (3.21 MB) and pool to the GPU (803 kB)"
    assert finding.message.endswith(f"; 2 copies between CPU and GPU, 4.01 MB in 400 µs: {sizes}")


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
    finding = next(finding for finding in run(toy) if "1 copy between CPU and GPU" in finding.message)
    assert (finding.code, finding.operator) == ("A101", 1)


def test_a_copy_of_a_tensor_that_nobody_is_known_to_make_is_still_found() -> None:
    (finding,) = run(analysis(operator("Relu", ["x"], ["y"]), copies=[copy("hidden", "to_cpu", 8)]))
    assert (finding.code, finding.operator, finding.bytes) == ("A102", None, 8)


def test_copies_of_unknown_cause_that_together_take_next_to_nothing_of_the_plan_are_notes() -> None:
    """A fiftieth of 2 ms is 40 us."""

    def severities(*times_s: float) -> list[str]:
        moved = [copy(f"hidden{at}", "to_cpu", 8, time) for at, time in enumerate(times_s)]
        found = run(analysis(operator("Relu", ["x"], ["y"]), copies=moved, gpu_s=2e-3))
        return [finding.severity for finding in found if finding.code == "A102"]

    assert severities(1e-5, 2e-5) == ["note"]
    assert severities(5e-5) == ["error"]
    assert severities(*[1e-5] * 10) == ["error"]


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


def test_an_operator_without_a_kernel_anywhere_is_not_said_to_run_on_the_cpu() -> None:
    toy = analysis(
        operator("Mine", ["x"], ["y"], placed_on="cuda", why="no-kernel"),
        session_fails="no provider has a kernel for Mine (mine)",
    )
    findings = run(toy)
    assert [finding.code for finding in findings if finding.code.startswith("A10")] == ["A104"]
    (finding,) = (finding for finding in findings if finding.code == "A104")
    assert "on the CPU or on a GPU: no provider has a kernel for Mine" in finding.message
    assert finding.operator is not None


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
    assert "fuses it with an operator that has no CUDA kernel" in relu.message
    assert "cuda-kernel" not in relu.message
    assert "see to the operator that ONNX Runtime fuses it with" in relu.fix


def dequantised(*settings: Ignore, code: str = "", changed: int | None = None, **first: Any) -> list[Finding]:
    """The errors of five biases in int32, made floats on the CPU, each copied from there."""
    ends, lines = range(5), [Where(file="net.py", line=at, code=code if at == 3 else "") for at in range(5)]
    toy = analysis(
        *(
            operator(
                "DequantizeLinear",
                [tensor(f"w{at}", dtype="int32")],
                [f"b{at}"],
                module=f"layers.{at}",
                placed_on="cpu",
                why="no-kernel-for-type",
                source=lines[at],
                **(first if at == 0 else {}),
            )
            for at in ends
        ),
        operator("Concat", [f"b{at}" for at in ends], ["y"]),
        copies=[copy(f"b{at}", "to_gpu", 512, 1e-4) for at in ends],
    )
    hunks = () if changed is None else ((lines[changed],),)
    judgement = judge(toy, CheckSettings(ignore=settings), changed=hunks)
    return [one for one in judgement.findings if one.code == "A101"]


def test_operators_of_one_type_and_cause_are_one_error_that_counts_and_names_them() -> None:
    (error,) = dequantised()
    assert (error.severity, error.operator) == ("error", 0)
    assert error.message == (
        "5 DequantizeLinear operators (layers.0, layers.1, layers.2 and 2 more) run on the CPU "
        "(5.00 ms there): ONNX Runtime has no CUDA kernel for them with int32; 5 copies between CPU and GPU, "
        "2.56 kB in 500 µs: b0 to the GPU (512 B), b1 to the GPU (512 B), b2 to the GPU (512 B) and 2 more"
    )
    assert abs(error.seconds - 5 * (1e-3 + 1e-4)) < 1e-12


def test_another_cause_is_another_error() -> None:
    assert [one.operator for one in dequantised(kernel_opset=19)] == [0, 1]


def test_an_operator_on_a_changed_line_has_an_error_of_its_own() -> None:
    others, changed = dequantised(changed=2)
    assert (others.operator, others.message[:28]) == (0, "4 DequantizeLinear operators")
    assert (changed.operator, changed.message[:28]) == (2, "DequantizeLinear of layers.2")


def test_operators_that_settings_or_comments_ignore_are_not_counted_with_the_others() -> None:
    (error,) = dequantised(Ignore(code="A101", operator="layers.0"), code="b  # analyze: ignore[A101] small")
    assert error.operator == 1
    assert error.message.startswith("3 DequantizeLinear operators (layers.1, layers.2 and layers.4) run")


def encoded(**changes: Any) -> Any:
    """An encoder of ONNX-ML and an Identity that ends in it, beside an operator that is slower on the GPU."""
    return analysis(
        operator(
            "Imputer", ["x"], ["i"], domain="ai.onnx.ml", placed_on="cpu", why="no-cuda-kernel", cpu_s=1e-6
        ),
        operator("Identity", ["i"], ["d"], placed_on="cpu", why="cuda-kernel", cpu_s=3e-7),
        operator("Concat", ["d"], ["y"], cpu_s=1e-6, gpu_s=8e-6, bound="overhead"),
        copies=[copy("d", "to_gpu", 8, 1e-5)],
        **{"cpu_s": 1e-5, "gpu_s": 1.4e-4, **changes},
    )


def test_a_model_for_the_cpu_has_one_note_in_place_of_errors_and_passes() -> None:
    found = run(encoded())
    assert [(finding.code, finding.severity) for finding in found] == [("A101", "note"), ("A203", "warning")]
    assert (
        "1 operator (Imputer) without a CUDA kernel stays on the CPU, where the whole model is"
        in found[0].message
    )
    assert not fails(found, CheckSettings())
    # Who wants it to fail says so.
    strict = CheckSettings(raise_to_error=("A101",))
    assert fails(run(encoded(), strict), strict)


def test_an_identity_that_ends_in_its_neighbour_is_no_finding() -> None:
    found = [finding for finding in run(encoded(cpu_s=1e-2, gpu_s=2e-3)) if finding.code == "A101"]
    assert [(finding.severity, finding.operator) for finding in found] == [("error", 0)]


def test_a_model_that_is_the_cpus_only_for_want_of_a_kernel_still_fails() -> None:
    """2 ms on the CPU and 3 on the GPU, of which 2.5 are a pooling without a kernel and its copies."""

    def told(pooling_s: float, **placed: Any) -> Any:
        toy = stem(23, cpu_s=2e-3, gpu_s=3e-3)
        assert toy.verdict.device == "cpu"
        pool = toy.operators[2]
        pool = replace(pool, cpu=replace(pool.cpu, time_s=pooling_s), gpu=replace(pool.gpu, **placed))
        return replace(toy, operators=(*toy.operators[:2], pool, toy.operators[3]))

    def errors(found: Any) -> set[str]:
        return {finding.code for finding in run(found) if finding.severity == "error"}

    nowhere: dict[str, Any] = {"why": "no-cuda-kernel", "kernel_opset": None}
    assert errors(told(2.1e-3, **nowhere)) == {"A101"}
    # With a pooling of 0.1 ms the GPU would take 2.5 ms: nothing to gain.
    assert errors(told(1e-4, **nowhere)) == set()
    # What another opset has the kernel of is mended at once.
    assert errors(told(1e-4)) == {"A101"}


def test_a_model_for_another_gpu_still_fails() -> None:
    alone, fast = encoded(), encoded(cpu_s=1e-2, gpu_s=2e-3)
    assert alone.devices.gpu is not None
    further = Alternative(
        device=replace(alone.devices.gpu, slug="fast"), plans=fast.plans, verdict=fast.verdict, costs=()
    )
    told = replace(alone, alternatives=(further,))
    assert [finding.severity for finding in run(told) if finding.code == "A101"] == ["error"]


def test_launches_of_a_model_for_the_cpu_are_told_only_where_a_larger_batch_is_the_gpus() -> None:
    alone = encoded()
    ranges = (BatchRange(first=1, last=8, device="cpu"), BatchRange(first=16, last=4096, device="gpu"))
    at_others = replace(alone, verdict=replace(alone.verdict, ranges=ranges))
    assert "A202" not in codes(run(alone))
    assert [(one.code, one.severity) for one in run(at_others)] == [
        ("A101", "note"),
        ("A202", "note"),
        ("A203", "warning"),
    ]


def of_texts(**changes: Any) -> Any:
    """Texts to lower case and to numbers on the CPU, 80 of the GPU plan's 140 us, beside 100 us on the CPU."""
    texts, lower = tensor("x", dtype="string"), tensor("l", dtype="string")
    forced: dict[str, Any] = {"placed_on": "cpu", "why": "no-cuda-kernel"}
    return analysis(
        operator("StringNormalizer", [texts], [lower], cpu_s=3e-5, **forced),
        operator("TfIdfVectorizer", [lower], ["n"], cpu_s=5e-5, **forced),
        operator("Mul", ["n"], ["y"], cpu_s=2e-5, gpu_s=5e-6),
        **{"cpu_s": 1e-4, "gpu_s": 1.4e-4, **changes},
    )


def test_no_kernel_on_texts_is_missing() -> None:
    """Without its 80 us the GPU would be ahead, but its memory can hold no texts."""
    found = [finding for finding in run(of_texts()) if finding.code == "A101"]
    assert [(finding.severity, finding.fix) for finding in found] == [
        ("note", "none is needed: run the model on the CPU")
    ]
    # Numbers could have a kernel: the same model of them would be the GPU's with one.
    numbers = tuple(
        replace(op, inputs=tuple(replace(one, dtype="float32") for one in op.inputs), outputs=())
        for op in of_texts().operators
    )
    found = [one for one in run(replace(of_texts(), operators=numbers)) if one.code == "A101"]
    assert [finding.severity for finding in found] == ["error", "error"]


def test_a_model_that_runs_as_well_on_the_cpu_has_no_error_for_want_of_kernels() -> None:
    told = of_texts()
    tie = replace(told, verdict=replace(told.verdict, device="either", low=0.5, high=1.3))
    (found,) = (finding for finding in run(tie) if finding.code == "A101")
    assert found.severity == "note"
    assert "on the CPU, where the whole model runs as well" in found.message
