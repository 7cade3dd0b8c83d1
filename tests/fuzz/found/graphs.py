"""Models that a mutation found, each made as small as it still failed. Append what is found to ``FOUND``.

A docstring says what happened. Whole files stand where Python's protobuf would not write them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper


def model(
    *nodes: NodeProto, inputs: Sequence[Any] = (), weights: Sequence[Any] = (), **fields: Any
) -> ModelProto:
    """A model of these nodes at opset 20 with all domains."""
    graph = helper.make_graph(nodes, "g", list(inputs), [], list(weights))
    domains = {"": 20, "com.microsoft": 1, "ai.onnx.ml": 5}
    opsets = [helper.make_opsetid(name, version) for name, version in domains.items()]
    return helper.make_model(graph, **{"opset_imports": opsets, "ir_version": 10, **fields})


def constant_without_a_value() -> ModelProto:
    """IndexError: the first attribute was read."""
    return model(helper.make_node("Constant", [], ["y"]))


def constant_with_another_attribute() -> ModelProto:
    """KeyError: of an attribute's name the letter after "value_" was looked up."""
    node = helper.make_node("Constant", [], ["y"])
    node.attribute.add(name="a\nb", type=AttributeProto.FLOAT)
    return model(node)


def shape_with_a_text_for_its_end() -> ModelProto:
    """TypeError: an attribute of another type was compared with a number."""
    node = helper.make_node("Shape", ["x"], ["y"], end="")
    return model(node, inputs=[helper.make_tensor_value_info("x", 1, [2])])


def cast_like_of_nothing() -> ModelProto:
    """IndexError: the first input was read."""
    return model(helper.make_node("CastLike", [], ["y"]))


def loop_with_an_empty_body() -> ModelProto:
    """IndexError: the body's first output was read."""
    trips = helper.make_tensor("trips", TensorProto.INT64, [], [5])
    return model(helper.make_node("Loop", ["trips"], ["y"], body=GraphProto()), weights=[trips])


def norm_with_a_text_for_its_axis() -> ModelProto:
    """ValueError in a rule of prediction."""
    node = helper.make_node("LayerNormalization", ["x"], ["y"], axis="")
    return model(node, inputs=[helper.make_tensor_value_info("x", 1, [2])])


def norm_with_a_list_for_no_name() -> ModelProto:
    """ValueError: the operator's own function was made with an attribute that has no name."""
    node = helper.make_node("RMSNormalization", ["w"], ["y"])
    node.attribute.add(type=AttributeProto.FLOATS)
    weight = TensorProto(name="w", data_type=TensorProto.STRING, dims=[0])
    return model(node, weights=[weight], opset_imports=[helper.make_opsetid("", 23)])


def reduction_over_an_axis_that_is_a_text() -> ModelProto:
    """ValueError in a rule of prediction."""
    axes = TensorProto(name="axes", data_type=TensorProto.STRING, dims=[1], string_data=[b"${HOME}"])
    data = helper.make_tensor_value_info("x", 1, [2, 3, 4])
    return model(helper.make_node("ReduceSum", ["x", "axes"], ["y"]), inputs=[data], weights=[axes])


def experts_of_two_inputs() -> ModelProto:
    """ValueError in a rule of costs."""
    node = helper.make_node("MoE", ["q", "k"], ["y"], domain="com.microsoft")
    return model(node, inputs=[helper.make_tensor_value_info(name, 1, [1, 2, 3]) for name in "qk"])


def fewer_heads_than_none() -> ModelProto:
    """FLOPs, intensities and latencies below 0."""
    node = helper.make_node("MultiHeadAttention", ["q"], ["y"], domain="com.microsoft", num_heads=-8)
    return model(node, inputs=[helper.make_tensor_value_info("q", 1, [2, 4, 8])])


def opset_below_none() -> ModelProto:
    """The record's opset was below 0."""
    return model(helper.make_node("Unknown", [], ["y"]), opset_imports=[helper.make_opsetid("", -8)])


def label_encoder_without_words() -> ModelProto:
    """SIGSEGV in ONNX's inference: it reads the attributes that give the type."""
    return model(
        helper.make_node("Unknown", [], ["c"]),
        helper.make_node("LabelEncoder", ["c"], ["y"], domain="ai.onnx.ml"),
        opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 1)],
    )


def functions_that_call_the_next_twice() -> ModelProto:
    """No end in ONNX's inliner, inference and version converter: 2**30 calls in 2 kB."""
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("f", 1)]
    functions = []
    for index in range(30):
        call, domain = ("Neg", "") if index == 29 else (f"F{index + 1}", "f")
        inside = [helper.make_node(call, [a], [b], domain=domain) for a, b in ("ab", "bc")]
        functions.append(helper.make_function("f", f"F{index}", ["a"], ["c"], inside, opsets))
    of_all = helper.make_node("F0", ["x"], ["y"], domain="f")
    inputs = [helper.make_tensor_value_info("x", 1, [2])]
    return model(of_all, inputs=inputs, functions=functions, opset_imports=opsets)


def no_operator_at_all() -> ModelProto:
    """ZeroDivisionError: two records whose plans take no time were compared."""
    made = model()
    made.graph.output.append(helper.make_tensor_value_info("x", 1, [2]))
    made.graph.input.append(helper.make_tensor_value_info("x", 1, [2]))
    return made


def names_that_drive_a_terminal() -> ModelProto:
    """A raw escape in an error message."""
    made = model()
    made.graph.output.append(helper.make_tensor_value_info("\x1b[31m\x9b31m\0\x7f\r", 1, [2]))
    return made


def names_that_are_commands() -> ModelProto:
    """A workflow command in an error message."""
    return model(helper.make_node("Relu", ["\n::error::canary"], ["##[error]canary"]))


def names_in_a_table() -> ModelProto:
    """Control characters and commands that come as far as every report."""
    name = "\n::error::canary ##[error]canary \x1b[31m\x85\x7f"
    inputs = [helper.make_tensor_value_info("x", 1, ["batch", 3])]
    return model(helper.make_node(name, ["x"], [name], name=name, domain="com.example"), inputs=inputs)


def operator_that_is_no_text() -> bytes:
    """TypeError: Python's protobuf gives bytes where a name is no UTF-8."""
    return b'\x08\n:\x16\n\x14\x12\x04loss"\x0cname\xff\xfe\xed\xa0\x80\xc0\x80\xf5B\x00'


def domain_that_is_no_text() -> bytes:
    """TypeError where the types of a node's outputs were looked up."""
    return b"\x08\x0b:\x0f\n\x0d\x12\x01y:\x08\xff\xfe\xed\xa0\x80\xc0\x80\xf5B\x00"


def imported_set_that_is_no_text() -> bytes:
    """TypeError where the model's digest was made."""
    return b"\x08\x0e:\x02\n\x00B\x00B\x0e\n\x0cname\xff\xfe\xed\xa0\x80\xc0\x80\xf5"


def metadata_that_is_no_text() -> bytes:
    """TypeError where module paths were read from a node's properties."""
    node = helper.make_node("Relu", ["x"], ["y"])
    node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['@@@@']")
    made = model(node, inputs=[helper.make_tensor_value_info("x", 1, [2])])
    whole: bytes = made.SerializeToString()
    return whole.replace(b"@@@@", b"\xff\xfe\xc0\x80")


def tensor_of_no_type() -> bytes:
    """KeyError: a tensor whose type, 99, is none of ONNX's."""
    return b"\x08\x0e:\x0b\n\t*\x07*\x02\x10c\xa0\x01\x04B\x00"


def strings_that_are_added() -> onnx.ModelProto:
    """ValueError: whether a constant that is added is 0 was asked of a text."""
    text = TensorProto(name="t", data_type=TensorProto.STRING, dims=[1], string_data=[b"]]>"])
    inputs = [helper.make_tensor_value_info("x", TensorProto.STRING, [1])]
    return model(helper.make_node("Add", ["x", "t"], ["y"]), inputs=inputs, weights=[text])


def part_of_a_head_below_none() -> onnx.ModelProto:
    """FLOPs below 0: fewer elements than none were rotated."""
    shapes = {"x": [2, 4, 3, 8], "cos": [2, 3, 4], "sin": [2, 3, 4]}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    sizes = {"interleaved": 1, "num_heads": 4096, "rotary_embedding_dim": -1}
    node = helper.make_node("RotaryEmbedding", [*shapes], ["y"])
    node.attribute.extend([helper.make_attribute(name, size) for name, size in sizes.items()])
    return model(node, inputs=inputs)


FOUND: tuple[Callable[[], onnx.ModelProto | bytes], ...] = (
    constant_without_a_value,
    constant_with_another_attribute,
    shape_with_a_text_for_its_end,
    cast_like_of_nothing,
    loop_with_an_empty_body,
    norm_with_a_text_for_its_axis,
    norm_with_a_list_for_no_name,
    reduction_over_an_axis_that_is_a_text,
    experts_of_two_inputs,
    fewer_heads_than_none,
    opset_below_none,
    label_encoder_without_words,
    functions_that_call_the_next_twice,
    no_operator_at_all,
    names_that_drive_a_terminal,
    names_that_are_commands,
    names_in_a_table,
    operator_that_is_no_text,
    domain_that_is_no_text,
    imported_set_that_is_no_text,
    metadata_that_is_no_text,
    tensor_of_no_type,
    strings_that_are_added,
    part_of_a_head_below_none,
)
