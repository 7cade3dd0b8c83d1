"""The boxes of the page's graph: one for each call of a module, in the module that calls it, few at a time."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import handmade
import report_factory as factory

from analyzer.record.analysis import OperatorResult, TensorInfo, Where
from analyzer.report.graph_boxes import CROWDED, GraphBox, boxes
from analyzer.report.html import build
from analyzer.report.module_tree import tree

# Operator type, module, names of the tensors read, name of the tensor written. A constant's name holds a dot.
Line = tuple[str, str, str, str]


def tensor(name: str) -> TensorInfo:
    return TensorInfo(name=name, shape=(2, 4), dtype="float32", constant="." in name)


def operators(lines: Sequence[Line]) -> list[OperatorResult]:
    made = []
    for index, (kind, module, read, written) in enumerate(lines):
        tensors = [tensor(name) for name in read.split()]
        made.append(
            handmade.operator(
                kind,
                tensors,
                [tensor(written)],
                index=index,
                module=module,
                source=Where(file="net.py", line=7, code="x = self.run(x)"),
            )
        )
    return made


def found(items: Sequence[OperatorResult]) -> tuple[list[str], tuple[GraphBox, ...]]:
    """For each operator the way to it: names of the boxes around it, from the model's on; and the boxes."""
    record = handmade.analysis(items)
    modules, of_operator = tree(record)
    made, inner = boxes(record.operators, modules, of_operator)
    names: list[str] = []
    for each in made:
        own = " ".join(filter(None, (modules[each.module].name, each.name, each.call)))
        assert each.parent is None or each.parent < len(names)
        names.append(own if not each.parent else f"{names[each.parent]} > {own}")
    return [names[number] for number in inner], made


def test_a_module_that_is_called_three_times_is_three_boxes() -> None:
    ways, made = found(
        operators(
            [
                ("Conv", "block.conv1", "x block.conv1.weight", "a"),
                ("Relu", "block.relu", "a", "b"),
                ("Conv", "block.conv2", "b block.conv2.weight", "c"),
                ("Relu", "block.relu", "c", "d"),
                ("Add", "block", "d x", "e"),
                ("Relu", "block.relu", "e", "f"),
            ]
        )
    )
    assert ways == [
        "block > conv1",
        "block > relu call 1 of 3",
        "block > conv2",
        "block > relu call 2 of 3",
        "block",
        "block > relu call 3 of 3",
    ]
    # The model, the block, two convolutions, three calls.
    assert len(made) == 7


def test_a_module_of_two_inputs_side_by_side_is_two_boxes_with_all_that_is_in_it() -> None:
    lines = [
        (kind, module, f"{name}{side} {module}.weight", f"{after}{side}")
        for side in "lr"
        for kind, module, name, after in (
            ("Conv", "tower.conv", "x", "a"),
            ("Gemm", "tower.head", "a", "b"),
        )
    ]
    ways, _ = found(operators([*lines, ("Sub", "", "bl br", "c"), ("Gemm", "last", "c last.weight", "d")]))
    assert ways[:4] == [f"tower call {call} of 2 > {name}" for call in (1, 2) for name in ("conv", "head")]


def test_what_the_layers_share_lies_in_the_layer_that_calls_it() -> None:
    lines = []
    for layer in ("layers.0", "layers.1"):
        came = "x" if layer == "layers.0" else "layers_0"
        own = layer.replace(".", "_")
        lines += [
            ("MatMul", f"{layer}.query", f"{came} {layer}.query.weight", f"q{own}"),
            ("Mul", "rotary", f"q{own} rotary.cos", f"r{own}"),
            ("MatMul", f"{layer}.out", f"r{own} {layer}.out.weight", own),
        ]
    ways, made = found(operators(lines))
    assert ways[1] == "layers > 0 > rotary"
    assert ways[4] == "layers > 1 > rotary"
    # Neither the layers nor their list are torn apart by it.
    assert [each.call for each in made] == [""] * len(made)


def test_what_another_module_interrupts_stays_one_box() -> None:
    ways, _ = found(
        operators(
            [
                ("MatMul", "outer", "x", "a"),
                ("Tanh", "other", "a", "b"),
                ("Add", "outer", "b x", "c"),
            ]
        )
    )
    assert ways == ["outer", "other", "outer"]


def test_members_of_a_list_that_are_called_far_apart_are_boxes_of_their_own() -> None:
    """A pooling without a module stands between two of them, as exporters leave it, a call before the third."""
    ways, made = found(
        operators(
            [
                ("Conv", "down.0", "x down.0.weight", "a"),
                ("MaxPool", "", "a", "b"),
                ("Conv", "down.1", "b down.1.weight", "c"),
                ("Gemm", "attention", "c attention.weight", "d"),
                ("Conv", "down.2.conv", "d down.2.conv.weight", "e"),
                ("Relu", "down.2.act", "e", "f"),
            ]
        )
    )
    # The pooling is the model's own: no box has it.
    assert ways == ["0", "Toy", "1", "attention", "2 > conv", "2 > act"]
    assert len(made) == 7


def test_an_operator_that_runs_ahead_of_its_call_does_not_hold_a_list_together() -> None:
    """The second member's product with the edges waits for nothing, and stands among the first's operators."""
    lines = [
        ("Gemm", "convs.0", "x convs.0.weight", "a"),
        ("Gemm", "convs.1", "edges convs.1.edges", "e"),
        ("Tanh", "other", "a", "b"),
        ("Gemm", "convs.1", "b convs.1.weight", "c"),
        ("Add", "convs.1", "c e", "d"),
    ]
    ways, _ = found(operators(lines))
    assert ways == ["0", "1", "other", "1", "1"]


def test_a_list_whose_members_run_one_after_the_other_stays_a_box() -> None:
    lines = [("Gemm", f"layers.{at}", f"h{at} layers.{at}.weight", f"h{at + 1}") for at in range(3)]
    ways, _ = found(operators(lines))
    assert ways == ["layers > 0", "layers > 1", "layers > 2"]


def test_one_operator_after_the_other_is_no_second_call() -> None:
    ways, _ = found(operators([("Add", "bias", "x", "a"), ("Add", "bias", "a", "b")]))
    assert ways == ["bias", "bias"]


def test_the_backward_pass_goes_through_a_box_of_its_own() -> None:
    first, loss, last = operators(
        [("Relu", "act", "x", "a"), ("ReduceMean", "", "a", "b"), ("Mul", "act", "b a", "c")]
    )
    steps = (("forward", first), ("loss", loss), ("backward", last))
    ways, _ = found([replace(each, phase=phase) for phase, each in steps])
    assert [ways[0], ways[2]] == ["act", "act backward"]


def test_no_box_holds_more_than_can_be_drawn_and_every_operator_is_in_one() -> None:
    # A chain without modules, long enough for parts of parts.
    flat = [replace(each, module="") for each in factory.operators(8000)]
    ways, made = found(flat)
    directly: Counter[Any] = Counter(ways)
    inside = Counter(each.parent for each in made)
    assert max(directly.values()) <= CROWDED
    assert max(inside.values()) <= CROWDED
    assert directly.total() == 8000
    # In the operators' order, and each part told from the others.
    assert len({(each.parent, each.name) for each in made}) == len(made)
    assert ways[0].endswith("part 1 of 160")
    assert ways[-1].endswith("part 160 of 160")


def test_the_page_is_given_a_box_for_each_call_of_a_module() -> None:
    lines = [("Relu", "act", "x", "a"), ("Tanh", "mid", "a", "b"), ("Relu", "act", "b", "c")]
    base = factory.analysis(3)
    items = tuple(
        replace(each, op_type="Relu", module=line.module, inputs=line.inputs, outputs=line.outputs)
        for each, line in zip(base.operators, operators(lines), strict=True)
    )
    given = build(replace(base, operators=items))["data"]["boxes"]
    # The model; the first call; the module between; the second call: each a step from the one before.
    assert given["of"] == {"steps": [1, 1, 1]}
    assert given["rows"]["parent"] == {"steps": [0, 0, 0, 0]}
    assert given["rows"]["module"] == {"steps": [0, 1, 1, -1]}
