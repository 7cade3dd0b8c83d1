"""Graphs that nobody should write: a seed to the bytes of an ``.onnx`` file, the same everywhere.

Changes of three kinds, several to a case: of any field of the message, whatever it is; of what the field means
to ONNX (operators, attributes, subgraphs, functions, constants that were inputs); of the bytes of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import seed_models
from google.protobuf.message import DecodeError
from mutation import LONE, TEXTS, Draw, scrambled, without_lone_bytes
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper
from onnx import numpy_helper as arrays

LOCATIONS = (
    "weights.bin", "model.onnx", "pyproject.toml", "feeds.npz", "outputs-cpu.npz", "result.json", "", ".", "..",
    "../weights.bin",
    "/etc/passwd", "/dev/zero", "/proc/self/mem", "folder", "folder/weights.bin", "link/weights.bin",
    "link.bin", "a\0b",
    "missing.bin", "weights.bin\0", "./weights.bin", "x" * 5000, "\n::error::canary", "CON", "*", "~", LONE,
)  # fmt: skip

# Types of ONNX's own enumeration and some that are none.
KINDS = (*range(27), -1, 99, 2**31 - 1)
ATTRIBUTE_KINDS = (*range(15), 99)
OTHER_OPERATORS = (
    ("com.microsoft", "Attention"), ("com.microsoft", "MultiHeadAttention"), ("com.microsoft", "FusedConv"),
    ("com.microsoft", "MatMulNBits"), ("com.microsoft", "QLinearAdd"), ("com.microsoft", "QAttention"),
    ("com.microsoft", "EmbedLayerNormalization"), ("com.microsoft", "SkipLayerNormalization"),
    ("com.microsoft", "GroupQueryAttention"), ("com.microsoft", "FusedGemm"), ("com.microsoft", "BeamSearch"),
    ("com.microsoft", "MoE"), ("com.microsoft", "NhwcMaxPool"), ("com.microsoft", "Rfft"), ("com.microsoft",
    "Sampling"),
    ("com.microsoft", "Trilu"), ("com.microsoft", "CropAndResize"), ("com.microsoft", "DynamicQuantizeLSTM"),
    ("com.microsoft", "PackedAttention"), ("com.microsoft", "BiasSplitGelu"), ("com.microsoft", "GatherND"),
    ("com.ms.internal.nhwc", "Conv"), ("com.microsoft.nchwc", "Conv"), ("", "MemcpyToHost"), ("", "Nothing"),
    ("local", "Outer"), ("local", "Inner"), ("org.pytorch.aten", "ATen"), ("ai.onnx.training", "Gradient"),
    ("ai.onnx.preview.training", "Adam"), ("pkg.onnxscript.torch_lib", "aten_add"),
)  # fmt: skip


@cache
def schemas() -> tuple[Any, ...]:
    """The newest schema of every operator of ONNX, in the order of their names."""
    found = {(schema.domain, schema.name): schema for schema in onnx.defs.get_all_schemas()}
    return tuple(found[name] for name in sorted(found))


# What a change raises where a place cannot take it: nothing to draw from, a number too large, nested too deep.
IMPOSSIBLE = (ValueError, TypeError, OverflowError, IndexError, KeyError, DecodeError)


def graph_case(seed: int) -> bytes:
    """The bytes of a mutated model."""
    draw = Draw(seed)
    return mutated(seed_model(draw), draw)


def decoder_case(seed: int) -> bytes:
    """The bytes of a mutated decoder, or of any other mutated model."""
    draw = Draw(seed, 10)
    model = seed_model(draw) if draw.chance(0.1) else draw.among(seed_models.DECODERS)()
    return mutated(model, draw)


def mutated(model: ModelProto, draw: Draw) -> bytes:
    """The bytes of a model after a few changes."""
    for _ in range(draw.few()):
        change = draw.among(CHANGES)
        try:
            change(model, draw)
        except IMPOSSIBLE:
            continue
    content = without_lone_bytes(model.SerializeToString(deterministic=True))
    return scrambled(content, draw) if draw.chance(0.07) else content


def seed_model(draw: Draw) -> ModelProto:
    """One of the suite's cases, or a small model by hand."""
    if draw.chance(0.35):
        made: ModelProto = draw.among(seed_models.HAND_MADE)()
        return made
    model = ModelProto()
    model.ParseFromString(draw.among(seed_models.backend_models()))
    return model


# Any field of the message.

# Of lists of plain values alone the first places are looked at: data of tensors would crowd out all others.
_LOOKED_AT = 4


def places(
    message: Any, path: tuple[str, ...] = (), depth: int = 0
) -> Iterator[tuple[tuple[str, ...], Any, Any, int | None]]:
    """Every field that is set, with its path, its message and, in a list, its position."""
    for field, content in message.ListFields():
        here = (*path, field.name)
        if is_list(message, field):
            for index, item in enumerate(content):
                if field.message_type is None and index >= _LOOKED_AT:
                    break
                yield here, message, field, index
                if field.message_type is not None and depth < 40:
                    yield from places(item, here, depth + 1)
        else:
            yield here, message, field, None
            if field.message_type is not None and depth < 40:
                yield from places(content, here, depth + 1)


def is_list(message: Any, field: Any) -> bool:
    """Whether a field holds several; how protobuf says so has changed between its versions."""
    return hasattr(getattr(message, field.name), "append") or hasattr(getattr(message, field.name), "add")


def any_field(model: ModelProto, draw: Draw) -> None:
    """Changes one field: each kind of place is as likely as the others, however often it stands there."""
    kinds: dict[tuple[str, ...], list[Any]] = {}
    for path, message, field, index in places(model):
        kinds.setdefault(path[-3:], []).append((message, field, index))
    message, field, index = draw.among(kinds[draw.among(list(kinds))])
    if field.message_type is not None:
        of_message(message, field, index, draw)
    elif index is not None:
        of_list(getattr(message, field.name), field, index, draw)
    elif draw.chance(0.2):
        message.ClearField(field.name)
    else:
        setattr(message, field.name, plain(field, draw))


def of_message(message: Any, field: Any, index: int | None, draw: Draw) -> None:
    """Empties a part, takes it out, doubles it, or puts it elsewhere in its list."""
    content = getattr(message, field.name)
    if index is None:
        message.ClearField(field.name)
        if draw.chance(0.5):
            getattr(message, field.name).SetInParent()
        return
    way = draw.below(5)
    if way == 0:
        del content[index]
    elif way == 1:
        content[index].Clear()
    elif way == 2:
        content.add().CopyFrom(content[index])
    elif way == 3:
        content.add().CopyFrom(content[0])
        del content[0]
    else:
        content[index].CopyFrom(content[draw.below(len(content))])


def of_list(content: Any, field: Any, index: int, draw: Draw) -> None:
    """Changes, takes out, adds or repeats a plain value."""
    way = draw.below(5)
    if way <= 1:
        content[index] = plain(field, draw)
    elif way == 2:
        del content[index]
    elif way == 3:
        content.insert(index, plain(field, draw))
    else:
        content.extend([content[index]] * draw.among((1, 2, 5, 300)))


def plain(field: Any, draw: Draw) -> Any:
    """A value of a field's type."""
    kind = field.cpp_type
    if kind in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32, field.CPPTYPE_ENUM):
        return draw.among((*KINDS, -(2**31))) if draw.chance(0.7) else draw.integer() % 2**31
    if kind == field.CPPTYPE_INT64:
        return draw.integer()
    if kind == field.CPPTYPE_UINT64:
        return draw.integer() % 2**64
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return draw.number()
    text = draw.text()
    return text.encode() if field.type == field.TYPE_BYTES else text


# What a field means to ONNX.


def graphs(model: ModelProto) -> list[GraphProto]:
    """The graph and all its subgraphs."""
    found: list[GraphProto] = []
    waiting = [model.graph]
    while waiting and len(found) < 100:
        graph = waiting.pop(0)
        found.append(graph)
        for node in graph.node:
            for attribute in node.attribute:
                waiting += [attribute.g] * attribute.HasField("g") + list(attribute.graphs)
    return found


def nodes(model: ModelProto) -> list[NodeProto]:
    """All nodes, those of subgraphs and functions too."""
    inside = [node for graph in graphs(model) for node in graph.node]
    return inside + [node for function in model.functions for node in function.node]


def names(model: ModelProto) -> list[str]:
    """Names of tensors."""
    found = [name for node in nodes(model) for name in (*node.input, *node.output)]
    return sorted({*found, *(item.name for item in model.graph.input), ""})


def some_node(model: ModelProto, draw: Draw) -> NodeProto:
    """Any node of the model, of its subgraphs and functions."""
    return draw.among(nodes(model))


def other_operator(model: ModelProto, draw: Draw) -> None:
    """Another operator with the same inputs; with the attributes of its own or those that were there."""
    node = some_node(model, draw)
    if draw.chance(0.25):
        node.domain, node.op_type = draw.among(OTHER_OPERATORS)
    else:
        schema = draw.among(schemas())
        node.domain, node.op_type = schema.domain, schema.name
    if draw.chance(0.5):
        del node.attribute[:]
    if node.domain and draw.chance(0.8):
        model.opset_import.add(domain=node.domain, version=draw.among((1, 2, 5)))


def other_inputs(model: ModelProto, draw: Draw) -> None:
    """An input or output more, less, twice, empty, in another place, or another tensor."""
    node = some_node(model, draw)
    ends = node.input if draw.chance(0.7) else node.output
    way = draw.below(7)
    if way == 0:
        ends.extend([draw.among(names(model))] * draw.among((1, 1, 2, 20)))
    elif way == 1:
        del ends[draw.below(len(ends)) :]
    elif way == 2:
        ends[draw.below(len(ends))] = ""
    elif way == 3:
        ends[draw.below(len(ends))] = draw.among(names(model))
    elif way == 4:
        items = list(ends)
        del ends[:]
        ends.extend(items[::-1])
    elif way == 5:
        del ends[:]
    else:
        ends[draw.below(len(ends))] = draw.text()


def other_attribute(model: ModelProto, draw: Draw) -> None:
    """Gives an attribute that the operator knows a strange value, of its own type or of another."""
    node = some_node(model, draw)
    known = schema_of(node)
    written = [attribute.name for attribute in node.attribute]
    name = draw.among([*(known.attributes if known is not None else ()), *written] or ["axis"])
    wanted = known.attributes[name].type.value if known is not None and name in known.attributes else 2
    set_attribute(node, name, wanted if draw.chance(0.75) else draw.among(ATTRIBUTE_KINDS), draw)


def no_attribute(model: ModelProto, draw: Draw) -> None:
    """Takes attributes away, required ones too."""
    holding = [node for node in nodes(model) if node.attribute]
    node = draw.among(holding)
    if draw.chance(0.3):
        del node.attribute[:]
    else:
        del node.attribute[draw.below(len(node.attribute))]


def schema_of(node: NodeProto) -> Any:
    """The newest schema of a node's operator, None where ONNX has none."""
    try:
        return onnx.defs.get_schema(node.op_type, node.domain)
    except onnx.defs.SchemaError:
        return None


def set_attribute(node: NodeProto, name: str, kind: int, draw: Draw) -> None:
    """A strange value of a kind; kinds that a number does not name leave the value out."""
    for index, attribute in enumerate(node.attribute):
        if attribute.name == name:
            del node.attribute[index]
            break
    attribute = node.attribute.add(name=name, type=kind if kind < 15 else AttributeProto.UNDEFINED)
    writers: dict[int, Callable[[], Any]] = {
        AttributeProto.FLOAT: lambda: setattr(attribute, "f", draw.number()),
        AttributeProto.INT: lambda: setattr(attribute, "i", draw.integer()),
        AttributeProto.STRING: lambda: setattr(attribute, "s", strange_bytes(draw)),
        AttributeProto.TENSOR: lambda: attribute.t.CopyFrom(strange_tensor(draw)),
        AttributeProto.GRAPH: lambda: attribute.g.CopyFrom(strange_graph(draw)),
        AttributeProto.FLOATS: lambda: attribute.floats.extend(
            [draw.number()] * draw.among((0, 1, 2, 4, 1000))
        ),
        AttributeProto.INTS: lambda: attribute.ints.extend(draw.integers()),
        AttributeProto.STRINGS: lambda: attribute.strings.extend([strange_bytes(draw)] * draw.below(4)),
        AttributeProto.TENSORS: lambda: attribute.tensors.extend([strange_tensor(draw)] * draw.below(3)),
        AttributeProto.GRAPHS: lambda: attribute.graphs.extend([strange_graph(draw)] * draw.below(3)),
        AttributeProto.SPARSE_TENSOR: lambda: attribute.sparse_tensor.values.CopyFrom(strange_tensor(draw)),
        AttributeProto.TYPE_PROTO: lambda: attribute.tp.CopyFrom(strange_type(draw)),
    }
    if kind in writers:
        writers[kind]()
    if draw.chance(0.05):
        attribute.ref_attr_name = draw.text().replace("\0", "")


# Words that operators look for, so that a changed one is not refused at the first comparison.
WORDS = (
    "linear", "nearest", "cubic", "SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET", "constant", "edge", "wrap",
    "tanh",
    "none", "mean", "forward", "reverse", "bidirectional", "DCR", "CRD", "LOWER", "i,j->ij", "...i,ij->...j",
    "->",
    "ii->i", "a" * 60 + "->a", "(a|a)*b", "tf_crop_and_resize", "BRANCH_LEQ", "SOFTMAX", "int64", "default",
)  # fmt: skip


def strange_bytes(draw: Draw) -> bytes:
    """A word that means something, a hostile text, or bytes that are no text."""
    if draw.chance(0.4):
        return draw.among(WORDS).encode()
    return draw.text().encode() if draw.chance(0.9) else b"\xff\xfe\x00"


def strange_type(draw: Draw) -> Any:
    """A type of a tensor, a sequence, an optional or a map, nested now and then."""
    shape: Any = (
        None
        if draw.chance(0.3)
        else [draw.among((1, 2, 0, -1, 2**31, 2**62, "n", "", "2*n")) for _ in range(draw.below(5))]
    )
    kind: Any = helper.make_tensor_type_proto(draw.among(KINDS[:17]), shape)
    for _ in range(draw.among((0, 0, 0, 1, 1, 2, 30))):
        kind = draw.among((helper.make_sequence_type_proto, helper.make_optional_type_proto))(kind)
    if draw.chance(0.05):
        kind = helper.make_map_type_proto(draw.among((7, 8, 1)), kind)
    return kind


def strange_tensor(draw: Draw) -> TensorProto:
    """A tensor that is right but for its values, or whose parts do not agree."""
    if draw.chance(0.6):
        shape = draw.among(((), (0,), (1,), (2,), (4,), (2, 2), (1, 1, 1)))
        count = int(np.prod(shape, dtype=np.int64))
        way = draw.below(4)
        if way <= 1:
            data = [np.array(draw.integer(), np.int64) for _ in range(count)]
            return arrays.from_array(np.array(data, np.int64).reshape(shape), "t")
        if way == 2:
            with np.errstate(all="ignore"):
                numbers = np.array([draw.number() for _ in range(count)]).astype(np.float32)
            return arrays.from_array(numbers.reshape(shape), "t")
        tensor = TensorProto(name="t", data_type=TensorProto.STRING, dims=shape)
        tensor.string_data.extend([strange_bytes(draw) for _ in range(count)])
        return tensor
    tensor = TensorProto(name="t", data_type=draw.among(KINDS[:27]))
    tensor.dims.extend(draw.integers()[:9] if draw.chance(0.7) else [1] * draw.among((100, 10_000)))
    way = draw.below(5)
    if way == 0:
        tensor.raw_data = b"\1" * draw.among((0, 1, 4, 8, 4096))
    elif way == 1:
        tensor.int64_data.extend(draw.integers())
    elif way == 2:
        tensor.float_data.extend([draw.number()] * draw.below(9))
    elif way == 3:
        tensor.data_location = TensorProto.EXTERNAL
        for key in ("location", "offset", "length", "checksum")[: draw.below(5)]:
            texts = LOCATIONS if key == "location" else ("0", "-1", "4", str(2**63), "", "x", "1e3", "٣")
            tensor.external_data.add(key=key, value=draw.among(texts))
    return tensor


def strange_graph(draw: Draw) -> GraphProto:
    """A body of the kind that control flow holds, or an empty one."""
    if draw.chance(0.2):
        return GraphProto()
    inner: ModelProto = draw.among(seed_models.HAND_MADE)()
    return inner.graph


def constant_input(model: ModelProto, draw: Draw) -> None:
    """An input becomes a constant: sizes that were not known until the run are now, and are folded."""
    inputs = [item for item in model.graph.input if item.type.HasField("tensor_type")]
    item = draw.among(inputs)
    shape = [dim.dim_value if dim.HasField("dim_value") else 2 for dim in item.type.tensor_type.shape.dim]
    kind = item.type.tensor_type.elem_type
    if draw.chance(0.15):
        tensor = strange_tensor(draw)
    elif kind == TensorProto.STRING:
        tensor = TensorProto(data_type=kind, dims=shape)
        tensor.string_data.extend([strange_bytes(draw)] * min(int(np.prod(shape)), 4096))
    else:
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        drawn = draw.number if dtype.kind == "f" else lambda: draw.among((1, 1, 2, 3, 0, 9, draw.integer()))
        with np.errstate(all="ignore"):
            data = np.array([drawn() for _ in range(min(int(np.prod(shape)), 4096))]).astype(dtype)
        tensor = arrays.from_array(data.reshape(shape))
    tensor.name = item.name
    if draw.chance(0.5):
        model.graph.initializer.add().CopyFrom(tensor)
        if draw.chance(0.2):  # a default of an input that stays
            return
    else:
        made = helper.make_node("Constant", [], [item.name])
        attribute = made.attribute.add(name="value", type=AttributeProto.TENSOR)
        attribute.t.CopyFrom(tensor)
        rest = list(model.graph.node)
        del model.graph.node[:]
        model.graph.node.extend([made, *rest])
    model.graph.input.remove(item)


def all_constant_inputs(model: ModelProto, draw: Draw) -> None:
    """The whole graph can be folded."""
    for _ in range(len(model.graph.input)):
        constant_input(model, draw)


def strange_initializer(model: ModelProto, draw: Draw) -> None:
    """An initializer in place of another, or one more."""
    found = draw.among(graphs(model)).initializer
    tensor = strange_tensor(draw)
    tensor.name = draw.among([item.name for item in found] or names(model))
    if found and draw.chance(0.8):
        found[draw.below(len(found))].CopyFrom(tensor)
    else:
        found.add().CopyFrom(tensor)


def strange_shape(model: ModelProto, draw: Draw) -> None:
    """Another size of an input, output or inner tensor."""
    of = draw.among(graphs(model))
    item = draw.among([*of.input, *of.output, *of.value_info])
    if draw.chance(0.15):
        item.type.CopyFrom(strange_type(draw))
        return
    tensor = item.type.tensor_type
    way = draw.below(6)
    if way == 0:
        del tensor.shape.dim[:]
        for _ in range(draw.among((0, 1, 2, 10, 10_000))):
            tensor.shape.dim.add(dim_value=draw.among((1, 1, 2)))
    elif way == 1:
        tensor.ClearField("shape")
    elif way == 2:
        tensor.elem_type = draw.among(KINDS)
    elif way == 3:
        tensor.shape.dim.add(dim_value=draw.integer())
    elif way == 4:
        draw.among(tensor.shape.dim).dim_value = draw.integer()
    else:
        draw.among(tensor.shape.dim).dim_param = draw.among(
            ("n", "batch", "2*n", "n/0", "n-n", "-n", "n**n", *TEXTS)
        )


def hostile_name(model: ModelProto, draw: Draw) -> None:
    """A hostile name: of a tensor in every place, of a node, of the graph, of the model's own facts."""
    new = draw.text()
    way = draw.below(5)
    if way <= 1:
        rename(model, draw.among(names(model)), new)
    elif way == 2:
        some_node(model, draw).name = new
    elif way == 3:
        node = some_node(model, draw)
        # What PyTorch's exporter writes and the loader reads as module paths and lines of code.
        key = draw.among(
            (
                "namespace",
                "pkg.torch.onnx.stack_trace",
                "pkg.torch.onnx.name_scopes",
                "pkg.torch.onnx.class_hierarchy",
                new,
            )
        )
        node.metadata_props.add(
            key=key, value=draw.among((new, "['" + new + "']", f'File "{new}", line 3, in f\n  {new}'))
        )
    else:
        field = draw.among(("producer_name", "doc_string", "domain", "name"))
        setattr(model.graph if field == "name" else model, field, new)


def rename(model: ModelProto, old: str, new: str) -> None:
    """The same graph with another name of a tensor."""
    for graph in graphs(model):
        named: list[Any] = [*graph.input, *graph.output, *graph.value_info, *graph.initializer]
        for item in named:
            if item.name == old:
                item.name = new
    for node in nodes(model):
        for ends in (node.input, node.output):
            for index, name in enumerate(ends):
                if name == old:
                    ends[index] = new


def other_versions(model: ModelProto, draw: Draw) -> None:
    """Another version of the operator set or of the format, or a set more or less."""
    way = draw.below(5)
    if way <= 1:
        draw.among(model.opset_import).version = draw.among((*range(28), -1, 2**31, 2**63 - 1))
    elif way == 2:
        model.ir_version = draw.among((*range(15), -1, 2**31, 2**63 - 1))
    elif way == 3:
        model.opset_import.add(
            domain=draw.among(("", "ai.onnx", "ai.onnx.ml", "local", draw.text())), version=draw.integer()
        )
    else:
        del model.opset_import[draw.below(len(model.opset_import))]


def into_subgraphs(model: ModelProto, draw: Draw) -> None:
    """The graph's nodes move into a branch or a body, of a branch or a body, and so on."""
    graph = model.graph
    for level in range(draw.among((1, 1, 2, 3, 8, 25))):
        inner = GraphProto(name=f"level{level}")
        inner.node.extend(graph.node)
        inner.output.extend(graph.output)
        del graph.node[:]
        way = draw.below(3)
        outputs = [item.name for item in graph.output]
        if way == 0:
            # The same branch twice while that is small: each level doubles it.
            other = inner if inner.ByteSize() < 50_000 else GraphProto(output=inner.output)
            node = helper.make_node("If", [f"if{level}"], outputs, then_branch=inner, else_branch=other)
            graph.initializer.append(arrays.from_array(np.array(draw.chance(0.5)), f"if{level}"))
        elif way == 1:
            inner.input.extend([seed_models.value(f"i{level}", [], 7), seed_models.value(f"c{level}", [], 9)])
            inner.output.insert(0, seed_models.value(f"c{level}", [], 9))
            node = helper.make_node("Loop", [f"trip{level}", ""], outputs, body=inner)
            graph.initializer.append(arrays.from_array(np.array(draw.integer()), f"trip{level}"))
        else:
            node = helper.make_node(
                "SequenceMap", [name for name in names(model) if name][:1], outputs, body=inner
            )
        graph.node.append(node)


def into_functions(model: ModelProto, draw: Draw) -> None:
    """Functions that each call the next, once, twice, or in a circle."""
    length, calls = draw.among(((2, 1), (3, 2), (6, 3), (12, 2), (30, 2), (40, 1), (300, 1)))
    circle = draw.chance(0.2)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("chain", 1)]
    for index in range(length):
        last = index == length - 1 and not circle
        op_type, domain = ("Neg", "") if last else (f"F{(index + 1) % length}", "chain")
        chain = [f"v{step}" for step in range(calls + 1)]
        inside = [helper.make_node(op_type, [a], [b], domain=domain) for a, b in pairwise(chain)]
        model.functions.append(helper.make_function("chain", f"F{index}", ["v0"], [chain[-1]], inside, opsets))
    model.opset_import.add(domain="chain", version=1)
    source = draw.among([item.name for item in model.graph.input] or names(model))
    model.graph.node.append(helper.make_node("F0", [source], ["of_chain"], domain="chain"))
    model.graph.output.append(seed_models.value("of_chain", None))


def spliced(model: ModelProto, draw: Draw) -> None:
    """Another model's nodes beside these, joined by names that both have."""
    other = seed_model(draw)
    for of in ("node", "initializer", "input", "output"):
        getattr(model.graph, of).extend(getattr(other.graph, of))
    model.functions.extend(other.functions)
    if draw.chance(0.5):
        model.opset_import.extend(other.opset_import)
    if draw.chance(0.5) and model.graph.output:
        rename(model, draw.among(names(model)), draw.among([item.name for item in model.graph.output]))


def repeated(model: ModelProto, draw: Draw) -> None:
    """A node again and again, each reading what the last wrote."""
    node = some_node(model, draw)
    if not node.input or not node.output:
        return
    last = node.output[0]
    for index in range(draw.among((2, 8, 40, 200))):
        copy = model.graph.node.add()
        copy.CopyFrom(node)
        for at, name in enumerate(copy.input):
            copy.input[at] = last if name == node.input[0] else name
        del copy.output[:]
        last = f"again{index}"
        copy.output.append(last)
    model.graph.output.append(seed_models.value(last, None))


def in_circles(model: ModelProto, draw: Draw) -> None:
    """A node reads what a later one writes, or nodes stand in another order."""
    if draw.chance(0.5):
        first, last = draw.among(model.graph.node), draw.among(model.graph.node)
        first.input[draw.below(len(first.input))] = last.output[0]
        return
    order = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(order[::-1])


def on_top(model: ModelProto, draw: Draw) -> None:
    """Parts that few models have: sparse weights, quantisation notes, training, device plans."""
    way = draw.below(4)
    if way == 0:
        sparse = model.graph.sparse_initializer.add()
        sparse.values.CopyFrom(strange_tensor(draw))
        sparse.indices.CopyFrom(strange_tensor(draw))
        sparse.dims.extend(draw.integers()[:5])
        sparse.values.name = draw.among(names(model))
    elif way == 1:
        note = model.graph.quantization_annotation.add(tensor_name=draw.among(names(model)))
        note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value=draw.text())
    elif way == 2:
        model.training_info.add().initialization.CopyFrom(strange_graph(draw))
    else:
        model.metadata_props.add(key=draw.text(), value=draw.text())


# The more often a change stands here, the likelier it is.
CHANGES: tuple[Callable[[ModelProto, Draw], None], ...] = (
    any_field, any_field, any_field, any_field, other_operator, other_inputs, other_inputs, other_attribute,
    other_attribute, other_attribute, no_attribute, constant_input, constant_input, all_constant_inputs,
    strange_initializer, strange_shape, strange_shape, hostile_name, other_versions, into_subgraphs,
    into_functions,
    spliced, repeated, in_circles, on_top,
)  # fmt: skip
