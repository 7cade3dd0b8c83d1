"""A rewritten model's nodes: names of their own, and the source lines of what they came from."""

from __future__ import annotations

import onnx
from onnx import helper

from analyzer.conversion.graph_writer import keep_origins


def model(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    return helper.make_model(helper.make_graph(list(nodes), "g", [], []))


def node(kind: str, reads: str, writes: str, name: str = "", line: str = "") -> onnx.NodeProto:
    made = helper.make_node(kind, [reads], [writes], name=name)
    if line:
        made.metadata_props.add(key="analyzer.line", value=line)
    return made


def lines(of: onnx.ModelProto) -> list[str]:
    return ["".join(entry.value for entry in each.metadata_props) for each in of.graph.node]


def test_the_node_that_writes_the_same_tensor_stands_for_the_pattern() -> None:
    before = model(node("Mul", "x", "a", "mul", "1"), node("Erf", "a", "b", "erf", "2"))
    after = model(node("Gelu", "x", "b"))
    keep_origins(before, after)
    assert lines(after) == ["2"]


def test_a_cast_before_a_cast_has_the_line_of_what_reads_it() -> None:
    before = model(node("Relu", "x", "y", "relu", "5"))
    after = model(
        node("Cast", "x", "a", "c1"),
        node("Cast", "a", "b", "c2"),
        node("Relu", "b", "c", "relu"),
        node("Cast", "c", "y", "c3"),
    )
    keep_origins(before, after)
    # The last writes what Relu wrote.
    assert lines(after) == ["5", "5", "5", "5"]


def test_no_name_is_given_twice() -> None:
    after = model(
        *(node("Cast", "x", f"y{number}", name) for number, name in enumerate(["", "c", "c", "Cast_0", "c_2"]))
    )
    keep_origins(model(), after)
    names = [each.name for each in after.graph.node]
    assert len(set(names)) == 5
    assert (names[1], names[3], names[4]) == ("c", "Cast_0", "c_2")  # who had one alone keeps it
