"""Which operators and modules of two records are the same: added, removed, renamed, rewritten, moved."""

from typing import Any

from checks_factory import analysis, operator, tensor

from analyzer.record.analysis import Analysis, Where
from analyzer.report.compare.alignment import Alignment, align


def chain(*places: tuple[str, str], names: str = "n", **changes: Any) -> Analysis:
    """Operators one after another, each given as (type, module)."""
    return analysis(
        *(
            operator(kind, [f"t{at}"], [f"t{at + 1}"], module=module, name=f"{names}{at}", **changes)
            for at, (kind, module) in enumerate(places)
        )
    )


def pairs(aligned: Alignment) -> list[tuple[int, int]]:
    return [(old.index, now.index) for old, now in aligned.match.pairs]


def left(aligned: Alignment) -> tuple[list[int], list[int]]:
    return [one.index for one in aligned.match.gone], [one.index for one in aligned.match.new]


def test_a_record_is_itself_whole_and_nothing_in_it_is_renamed_or_moved() -> None:
    toy = chain(("Conv", "stem"), ("Relu", ""), ("Gemm", "head"))
    aligned = align(toy, toy)
    assert pairs(aligned) == [(0, 0), (1, 1), (2, 2)]
    assert (aligned.renamed, aligned.moved) == ({}, {})


def test_an_added_and_a_removed_operator_are_on_one_side_alone() -> None:
    before = chain(("Conv", "stem"), ("Dropout", "drop"), ("Gemm", "head"))
    after = chain(("Conv", "stem"), ("Gemm", "head"), ("Softmax", "last"), names="m")
    aligned = align(before, after)
    assert pairs(aligned) == [(0, 0), (2, 1)]
    assert left(aligned) == ([1], [2])


def test_a_module_with_another_name_and_the_same_inside_is_the_same() -> None:
    before = chain(("Conv", "stem"), ("MatMul", "attn.query"), ("Softmax", "attn"), ("Gemm", "head"))
    after = chain(
        ("Conv", "stem"), ("MatMul", "attention.query"), ("Softmax", "attention"), ("Gemm", "head"), names="m"
    )
    aligned = align(before, after)
    assert pairs(aligned) == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert aligned.renamed == {"attention": "attn", "attention.query": "attn.query"}
    assert aligned.base_paths[1] == "attention.query"


def test_a_renamed_module_whose_inside_changed_a_little_keeps_its_operators() -> None:
    before = chain(*(("MatMul", "a"), ("Add", "a"), ("Relu", "a"), ("MatMul", "a"), ("Add", "a")))
    after = chain(*(("MatMul", "b"), ("Add", "b"), ("Gelu", "b"), ("MatMul", "b"), ("Add", "b")), names="m")
    aligned = align(before, after)
    assert pairs(aligned) == [(0, 0), (1, 1), (3, 3), (4, 4)]
    assert left(aligned) == ([2], [2])


def test_modules_with_nothing_in_common_are_two() -> None:
    aligned = align(chain(("Conv", "a"), ("Relu", "a")), chain(("Gather", "b"), ("MatMul", "b"), names="m"))
    assert pairs(aligned) == []
    assert aligned.renamed == {}


def test_a_layer_put_into_a_sequential_shifts_the_numbers_and_not_the_layers() -> None:
    before = chain(("Gemm", "mlp.0"), ("Relu", "mlp.1"), ("Gemm", "mlp.2"))
    after = chain(
        ("Gemm", "mlp.0"), ("LayerNormalization", "mlp.1"), ("Relu", "mlp.2"), ("Gemm", "mlp.3"), names="m"
    )
    aligned = align(before, after)
    assert pairs(aligned) == [(0, 0), (1, 2), (2, 3)]
    assert left(aligned) == ([], [1])
    assert aligned.renamed == {"mlp.2": "mlp.1", "mlp.3": "mlp.2"}


def test_a_rewritten_module_keeps_its_name_and_its_operators_are_new_and_gone() -> None:
    # Opset 20 has Gelu as one operator; below it is written out.
    before = chain(
        ("MatMul", "fc"), *((kind, "act") for kind in ("Div", "Erf", "Add", "Mul")), ("MatMul", "out")
    )
    after = chain(("MatMul", "fc"), ("Gelu", "act"), ("MatMul", "out"), names="m")
    aligned = align(before, after)
    assert pairs(aligned) == [(0, 0), (5, 2)]
    assert left(aligned) == ([1, 2, 3, 4], [1])


def test_without_module_paths_what_stands_between_the_same_neighbours_is_the_same() -> None:
    def graph(width: int, first: str) -> Analysis:
        return analysis(
            operator("Conv", ["x"], [tensor("a", (1, 8))], name="conv"),
            operator("Relu", ["a"], [tensor("b", (1, width))], name=first),
            operator("Gemm", ["b"], [tensor("c", (1, 4))], name="gemm"),
        )

    # Its name and its shape changed: the operators before and after it did not.
    assert pairs(align(graph(8, "relu_1"), graph(16, "relu_7"))) == [(0, 0), (1, 1), (2, 2)]


def test_an_operator_that_the_module_around_holds_now_has_moved() -> None:
    before = chain(("Conv", "block.conv"), ("Transpose", "block.conv"), ("Gemm", "head"))
    after = chain(("Conv", "block.conv"), ("Transpose", "block"), ("Gemm", "head"), names="m")
    aligned = align(before, after)
    assert pairs(aligned) == [(0, 0), (1, 1), (2, 2)]
    assert aligned.moved == {1: "block.conv"}


def test_an_operator_of_the_same_source_line_in_another_module_has_moved() -> None:
    line = Where(file="m.py", line=7, code="x = shuffle(x)")
    before = analysis(
        operator("Conv", ["x"], ["a"], module="a.conv", name="n0"),
        operator("Reshape", ["a"], ["b"], module="a", name="n1", source=line),
        operator("Conv", ["b"], ["c"], module="b.conv", name="n2"),
    )
    after = analysis(
        operator("Conv", ["x"], ["a"], module="a.conv", name="m0"),
        operator("Reshape", ["a"], ["b"], module="b", name="m1", source=line),
        operator("Conv", ["b"], ["c"], module="b.conv", name="m2"),
    )
    assert align(before, after).moved == {1: "a"}


def test_operators_of_one_kind_in_unrelated_modules_are_not_the_same() -> None:
    before = chain(("Conv", "a"), ("Conv", "b"), ("Relu", "a"))
    after = chain(("Conv", "a"), ("Conv", "b"), ("Relu", "b"), names="m")
    aligned = align(before, after)
    assert left(aligned) == ([2], [2])
    assert aligned.moved == {}


def test_phases_of_a_training_step_are_kept_apart() -> None:
    before = analysis(operator("MatMul", ["x"], ["a"], module="fc", phase="forward"))
    after = analysis(operator("MatMul", ["x"], ["a"], module="fc", phase="backward"))
    assert pairs(align(before, after)) == []


def test_thousands_of_operators_of_one_type_that_have_nothing_in_common_are_left_alone() -> None:
    # Compared each with each they would take a minute.
    before = chain(*(("Add", "") for _ in range(2000)), names="a")
    shapes = [tensor(f"u{at}", (2, at + 1)) for at in range(2000)]
    after = analysis(*(operator("Add", ["x"], [shape], name=f"b{at}") for at, shape in enumerate(shapes)))
    assert pairs(align(before, after)) == []


def test_paths_that_no_exporter_writes_are_matched_as_they_are() -> None:
    # Of nothing but dots, empty at an end, deeper than what is shown as a tree.
    odd = [("Add", path) for path in ("..", ".", "a..b", "", "a.", ".a", ".".join("x" * 40))]
    aligned = align(chain(*odd), chain(*odd, names="m"))
    assert pairs(aligned) == [(at, at) for at in range(len(odd))]
    assert (aligned.renamed, aligned.moved) == ({}, {})
