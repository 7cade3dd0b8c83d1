from dataclasses import replace
from typing import Any

from checks_factory import analysis, operator, stem, tensor

from analyzer.checks.fusion import Match, match
from analyzer.record.analysis import Where


def indices(matched: Match) -> list[tuple[int, ...]]:
    return [(old.index, now.index) for old, now in matched.pairs]


def test_an_analysis_matches_itself_whole() -> None:
    toy = stem(23)
    assert indices(match(toy, toy)) == [(index, index) for index in range(len(toy.operators))]


def test_operators_that_were_renamed_and_renumbered_are_the_same_by_module_and_type() -> None:
    before = analysis(
        operator("Conv", ["x", "w1"], ["a"], module="layer1", name="node_conv_0"),
        operator("Conv", ["a", "w2"], ["b"], module="layer2", name="node_conv_1"),
    )
    after = analysis(
        operator("Conv", ["x", "w0"], ["z"], module="stem", name="node_conv_0"),
        operator("Conv", ["z", "w1"], ["a"], module="layer1", name="node_conv_1"),
        operator("Conv", ["a", "w2"], ["b"], module="layer2", name="node_conv_2"),
    )
    matched = match(before, after)
    assert indices(matched) == [(0, 1), (1, 2)]
    assert [op.module for op in matched.new] == ["stem"]
    assert matched.gone == ()


def test_within_a_module_the_source_lines_text_decides_before_the_order() -> None:
    def line(code: Any) -> Any:
        return Where(file="m.py", line=1, code=code)

    before = analysis(
        operator("Add", ["x", "y"], ["a"], module="block", name="n1", source=line("a = x + y")),
        operator("Add", ["a", "z"], ["b"], module="block", name="n2", source=line("b = a + z")),
    )
    after = analysis(
        operator("Add", ["x", "z"], ["b"], module="block", name="m1", source=line("b = a + z")),
        operator("Add", ["b", "y"], ["a"], module="block", name="m2", source=line("a = x + y")),
    )
    assert indices(match(before, after)) == [(1, 0), (0, 1)]


def test_a_layer_that_changed_its_width_is_still_the_same_layer() -> None:
    before = analysis(operator("Gemm", ["x", "w"], [tensor("y", (1, 100))], module="head", name="a"))
    after = analysis(operator("Gemm", ["x", "w"], [tensor("y", (1, 200))], module="head", name="b"))
    assert indices(match(before, after)) == [(0, 0)]


def test_without_modules_the_name_decides_and_else_type_and_shapes() -> None:
    before = analysis(
        operator("Relu", ["x"], [tensor("a", (1, 4))], name="first"),
        operator("Relu", ["a"], [tensor("b", (1, 8))], name="second"),
        operator("Tanh", ["b"], [tensor("c", (1, 8))], name="third"),
    )
    after = analysis(
        operator("Relu", ["x"], [tensor("b", (1, 8))], name="other"),
        operator("Relu", ["b"], [tensor("a", (1, 5))], name="first"),
        operator("Exp", ["a"], [tensor("c", (1, 8))], name="third"),
    )
    matched = match(before, after)
    assert indices(matched) == [(1, 0), (0, 1)]
    assert [op.op_type for op in matched.gone] == ["Tanh"]
    assert [op.op_type for op in matched.new] == ["Exp"]


def test_forward_and_backward_are_never_taken_for_each_other() -> None:
    before = analysis(operator("Mul", ["x", "w"], ["y"], module="m", phase="forward"))
    after = analysis(operator("Mul", ["x", "w"], ["y"], module="m", phase="backward"))
    assert match(before, after).pairs == ()


def test_every_operator_is_in_exactly_one_list() -> None:
    before = stem(23)
    after = replace(before, operators=tuple(replace(op, index=i) for i, op in enumerate(before.operators[1:])))
    matched = match(before, after)
    assert sorted([old.index for old, _ in matched.pairs] + [op.index for op in matched.gone]) == [0, 1, 2, 3]
    assert sorted([now.index for _, now in matched.pairs] + [op.index for op in matched.new]) == [0, 1, 2]
