"""Loading: what tensors hold before the run, as far as that follows from constants, shapes and known inputs.

One evaluator for all who need it: the folding of constants while a graph is built, the conditions of loops, the
lengths of sequences and the sizes that data decide.

Folding knows a list and nothing else: operators of shape arithmetic are a table of NumPy functions, and some
more are evaluated by ``onnx.reference``. With it alone a graph of 1,800 operators, of which 1,200 are folded,
takes 2.6 times as long to make. Each is cheap by construction, whatever a file asks for: it reads few numbers,
takes time in proportion to what it reads and gives, and gives little. Each function takes NumPy, attributes and
inputs and gives the first output, or a tuple of all of them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analyzer.graph import (
    DEFAULT_DOMAIN,
    DTYPES_BY_NUMBER,
    NO_ATTRIBUTES,
    UNDEFINED,
    DType,
    Graph,
    Node,
    Shape,
    Tensor,
)
from analyzer.loading.shape_inference.onnx_inference import GRAPH_KINDS, LONGEST, SMALL, Type
from analyzer.operators import CLASSICAL_DOMAIN, CONTRIB_DOMAIN, NEVER_FOLDED

if TYPE_CHECKING:
    import numpy as np
    import onnx

    Array = np.ndarray[Any, Any]
    Attributes = Mapping[str, Any]
    # One that is absent is None; operators that need it fail, and so give nothing.
    Arrays = Sequence[Any]
    # The first argument is NumPy, which is imported where it is used.
    Fold = Callable[[Any, Attributes, Arrays], Any]


def fold(
    op_type: str,
    attributes: Attributes,
    inputs: Arrays,
    proto: onnx.NodeProto | None = None,
    opset: int = 0,
    *,
    most: int = SMALL,
) -> tuple[Array, ...] | None:
    """Return the outputs of an operator of the default domain all of whose inputs are known.

    None if they stay unknown: the operator is not on the list, it reads texts, or its result is large.
    Without ``proto`` NumPy's functions alone compute.
    """
    import numpy as np

    function = _FUNCTIONS.get(op_type)
    if function is None and (op_type not in BY_REFERENCE or proto is None):
        return None
    # A literal of the file may be longer than what is folded; a text has no size that its array tells, and
    # decides no shape.
    if any(array is not None and (array.size > most or array.dtype.kind in "OSU") for array in inputs):
        return None
    try:
        with np.errstate(all="ignore"):
            if function is not None:
                result = function(np, attributes, inputs)
            else:
                assert proto is not None
                result = _reference(proto, inputs, opset)
    except Exception:  # a value that cannot be had stays unknown; what cannot be at all, inference tells
        return None
    arrays = result if isinstance(result, tuple) else (result,)
    is_small = all(getattr(array, "size", most + 1) <= most for array in arrays)
    return tuple(map(np.asarray, arrays)) if is_small else None


def dtype_of(array: Array) -> DType:
    """Return the element type of a folded value."""
    import onnx

    try:
        return DTYPES_BY_NUMBER[onnx.helper.np_dtype_to_tensor_dtype(array.dtype)]
    except (KeyError, ValueError):
        return UNDEFINED


def _reference(proto: onnx.NodeProto, inputs: Arrays, opset: int) -> tuple[Array, ...]:
    import onnx
    from onnx.reference import ReferenceEvaluator

    # A model of this one node: the evaluator knows every operator that onnx defines, functions too.
    graph = onnx.helper.make_graph(
        [proto],
        "fold",
        [onnx.helper.make_empty_tensor_value_info(name) for name in proto.input if name],
        [onnx.helper.make_empty_tensor_value_info(name) for name in proto.output if name],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    feeds = {name: value for name, value in zip(proto.input, inputs, strict=False) if name}
    return tuple(ReferenceEvaluator(model).run(None, feeds))


def _cast(_: Any, attributes: Attributes, inputs: Arrays) -> Any:
    import onnx

    return inputs[0].astype(onnx.helper.tensor_dtype_to_np_dtype(attributes["to"]))


def _axes(attributes: Attributes, inputs: Arrays) -> tuple[int, ...] | None:
    """Return axes as attribute (older opsets) or as input (newer ones)."""
    if "axes" in attributes:
        return tuple(attributes["axes"])
    if len(inputs) > 1 and inputs[1] is not None:
        return tuple(int(axis) for axis in inputs[1].ravel())
    return None


def _slice(_: Any, attributes: Attributes, inputs: Arrays) -> Any:
    data, *given = inputs
    parts: list[Any] = [None if array is None else array.tolist() for array in given]
    if not given:
        parts = [attributes["starts"], attributes["ends"], attributes.get("axes")]
    starts, ends, axes, steps, *_ = (*parts, None, None)
    key = [slice(None)] * data.ndim
    for position, axis in enumerate(axes or range(len(starts))):
        step = steps[position] if steps else 1
        end: int | None = ends[position]
        # Backwards to the very first element: Python's slices need None for it, ONNX a number below -size.
        if step < 0 and end is not None and end < -data.shape[axis]:
            end = None
        key[axis] = slice(starts[position], end, step)
    return data[tuple(key)]


def _reshape(_: Any, attributes: Attributes, inputs: Arrays) -> Any:
    data = inputs[0]
    shape = attributes["shape"] if "shape" in attributes else inputs[1].tolist()
    if not attributes.get("allowzero"):
        shape = [data.shape[axis] if size == 0 else size for axis, size in enumerate(shape)]
    return data.reshape(shape)


def _small(shape: Sequence[int]) -> Sequence[int]:
    if math.prod(shape) > LONGEST:
        raise ValueError("too large to be worth folding")
    return shape


def _constant_of_shape(np: Any, attributes: Attributes, inputs: Arrays) -> Any:
    shape = _small(inputs[0].tolist())
    value = attributes.get("value")  # a tensor of one element; float32 zeros without it
    return np.zeros(shape, np.float32) if value is None else np.full(shape, value.reshape(()), value.dtype)


def _range(np: Any, _: Attributes, inputs: Arrays) -> Any:
    start, limit, delta = (array.reshape(-1)[0].item() for array in inputs[:3])
    _small((max(0, math.ceil((limit - start) / delta)),))
    return np.asarray(np.arange(start, limit, delta), inputs[0].dtype)


def _tile(np: Any, _: Attributes, inputs: Arrays) -> Any:
    data, repeats = inputs[0], inputs[1].tolist()
    _small([size * times for size, times in zip(data.shape, repeats, strict=True)])
    return np.tile(data, repeats)


def _divide(np: Any, _: Attributes, inputs: Arrays) -> Any:
    left, right = inputs
    if left.dtype.kind not in "iu":
        return left / right
    # ONNX rounds whole quotients towards zero, as C does; NumPy's // rounds down.
    return np.asarray(np.abs(left) // np.abs(right) * np.sign(left) * np.sign(right), left.dtype)


def _ufunc(name: str) -> Fold:
    def function(np: Any, _: Attributes, inputs: Arrays) -> Any:
        ufunc = getattr(np, name)
        return ufunc(*inputs[: ufunc.nin])

    return function


def _variadic(name: str) -> Fold:
    return lambda np, _, inputs: functools.reduce(getattr(np, name), inputs)


def _reduction(name: str) -> Fold:
    def function(np: Any, attributes: Attributes, inputs: Arrays) -> Any:
        data, axes = inputs[0], _axes(attributes, inputs)
        if not axes and attributes.get("noop_with_empty_axes"):
            return data
        result = getattr(np, name)(data, axis=axes or None, keepdims=bool(attributes.get("keepdims", 1)))
        return np.asarray(result, data.dtype)  # NumPy sums int32 as int64; ONNX keeps the type

    return function


_UFUNCS = {
    **{name: name.lower() for name in ("Abs", "Add", "Ceil", "Equal", "Floor", "Greater", "Less", "Sqrt")},
    "And": "logical_and",
    "Not": "logical_not",
    "Or": "logical_or",
    "Mul": "multiply",
    "Sub": "subtract",
    "GreaterOrEqual": "greater_equal",
    "LessOrEqual": "less_equal",
    "Neg": "negative",
}
_FUNCTIONS: Mapping[str, Fold] = {
    **{name: _ufunc(function) for name, function in _UFUNCS.items()},
    **{f"Reduce{name}": _reduction(name.lower()) for name in ("Max", "Min", "Prod", "Sum")},
    "Max": _variadic("maximum"),
    "Min": _variadic("minimum"),
    "Sum": _variadic("add"),
    "Cast": _cast,
    # Opsets 1 to 3 may leave the axis out: it is 1 there.
    "Concat": lambda np, attributes, inputs: np.concatenate(inputs, attributes.get("axis", 1)),
    "ConstantOfShape": _constant_of_shape,
    "Div": _divide,
    "Expand": lambda np, _, inputs: np.broadcast_to(
        inputs[0], _small(np.broadcast_shapes(inputs[0].shape, tuple(inputs[1].tolist())))
    ),
    "Gather": lambda _, attributes, inputs: inputs[0].take(inputs[1], attributes.get("axis", 0)),
    "Identity": lambda *given: given[-1][0],
    # fmod has the dividend's sign, as in C; without it ONNX takes the divisor's, as Python does.
    "Mod": lambda np, attributes, inputs: (np.fmod if attributes.get("fmod") else np.mod)(*inputs[:2]),
    "Range": _range,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": lambda _, attributes, inputs: inputs[0].squeeze(_axes(attributes, inputs)),
    "Tile": _tile,
    "Transpose": lambda _, attributes, inputs: inputs[0].transpose(attributes.get("perm")),
    "Unsqueeze": lambda np, attributes, inputs: np.expand_dims(inputs[0], _axes(attributes, inputs) or ()),
    "Where": lambda np, _, inputs: np.where(*inputs),
}
# By onnx.reference: seldom met in shape arithmetic. They give at most as many numbers as they read, or as many
# for each index (NonZero, GatherND). Not here, on purpose: what makes a size from a number (Pad, OneHot,
# windows), what repeats or joins texts, what searches (RegexFullMatch), all that computes more than it reads.
BY_REFERENCE = frozenset(
    (
        *("ArgMax", "ArgMin", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Clip"),
        *("Compress", "Cos", "CumSum", "Exp", "EyeLike", "Flatten", "GatherElements", "GatherND", "IsInf"),
        *("IsNaN", "Log", "Mean", "NonZero", "Pow", "Reciprocal", "ReduceMean", "Round", "Scatter"),
        *("ScatterElements", "ScatterND", "Sign", "Sin", "Split", "TopK", "Trilu", "Unique", "Xor"),
    )
)


SHAPE_OPERATORS = ("Shape", "Size")
"""Operators that need the shape of what they read alone."""

# Of any other domain nobody says that equal inputs give equal outputs.
_FOLDABLE = frozenset({DEFAULT_DOMAIN, CLASSICAL_DOMAIN, CONTRIB_DOMAIN})
# Floats decide sizes only as the few that Resize (scales) or Range reads.
_FEW_FLOATS = 8
# Nothing goes in, yet nothing is random: an empty sequence or optional is known before the run.
_WITHOUT_INPUTS = frozenset({"SequenceEmpty", "Optional"})


def all_constant(inputs: Sequence[Tensor | None]) -> bool:
    """Return whether all that is read is known before the run."""
    for tensor in inputs:  # noqa: SIM110  # a generator takes three times as long, for every node
        if tensor is not None and not tensor.constant:
            return False
    return True


def has_graphs(attributes: Sequence[onnx.AttributeProto]) -> bool:
    """Return whether any of a node's attributes is a subgraph."""
    return any(entry.type in GRAPH_KINDS for entry in attributes)


def is_constant(call: Node) -> bool:
    """Return whether a node's outputs follow from initializers and shapes alone."""
    inputs, op_type = call.inputs, call.op_type
    if op_type in SHAPE_OPERATORS and call.domain == DEFAULT_DOMAIN:
        return inputs[0] is not None and inputs[0].elements is not None
    if op_type == "CastLike":  # of its second input it needs the type alone
        return inputs[0] is not None and inputs[0].constant
    if not all_constant(inputs):
        return False
    if call.domain not in _FOLDABLE or op_type in NEVER_FOLDED:
        return False
    if call.graphs:
        branch = taken_branch(call, stored_value) if op_type == "If" else None
        return branch is not None and all(tensor.constant for tensor in branch.outputs)
    return bool(inputs) or op_type in _WITHOUT_INPUTS


def is_large(kind: Type | None) -> bool:
    """Return whether a result is not worth folding: shapes, axes and the floats that make them are few."""
    if kind is None or kind[1] is None or None in kind[1]:
        return False
    size = 1
    for length in kind[1]:
        size *= length or 0
    return size > (_FEW_FLOATS if kind[0].is_float else SMALL)


def stored_value(tensor: Tensor) -> Array | None:
    """Return the elements that a graph keeps of a tensor."""
    return tensor.value


def taken_branch(node: Node, value: Callable[[Tensor], Array | None]) -> Graph | None:
    """Return the branch that an If takes; None where its condition is not known."""
    condition = value(node.inputs[0]) if node.inputs and node.inputs[0] is not None else None
    if condition is None:
        return None
    return node.graphs.get("then_branch" if condition.reshape(-1)[0] else "else_branch")


def results(
    node: Node,
    value: Callable[[Tensor], Array | None],
    proto: onnx.NodeProto | None,
    *,
    shape: Shape = None,
    most: int = SMALL,
) -> Sequence[Array | None] | None:
    """Return what an operator without bodies gives; None where that does not follow, or is large."""
    if node.domain != DEFAULT_DOMAIN:
        return None
    if node.op_type in SHAPE_OPERATORS:
        import numpy as np

        if shape is None or None in shape:
            return [None]
        start, end = node.attributes.get("start", 0), node.attributes.get("end")
        size = node.op_type == "Size"
        return [np.asarray(math.prod(part or 0 for part in shape) if size else shape[start:end], np.int64)]
    if node.op_type == "CastLike":
        import onnx

        source, like = node.inputs[0], node.inputs[1]
        array = None if source is None else value(source)
        if array is None or like is None or not like.dtype.onnx:
            return None
        # In the element type of another tensor, whose own value need not be known.
        return [array.astype(onnx.helper.tensor_dtype_to_np_dtype(like.dtype.onnx))]
    arrays = []
    for tensor in node.inputs:
        array = None if tensor is None else value(tensor)
        if array is None and tensor is not None:
            return None
        arrays.append(array)
    return fold(node.op_type, node.attributes, arrays, proto, node.version, most=most)


# Branches that are computed within one another: each takes some of Python's stack, and a file may have many.
_DEEPEST = 32


class Evaluation:
    """Values of a graph's tensors, computed on demand.

    Args:
        producer: Gives the node that writes a tensor; None where nothing follows for it.
        known: Elements by tensor, None for what is not known; of an input that is not there nothing follows.
        around: The evaluation of the graph that this one is a body of, with which it shares what it may spend.
        shape_of: The shape of a tensor, where more of it is known than the graph says.
        most: Elements of any tensor that is computed.
        left: How many operators may be computed.
        by_reference: Whether ``onnx.reference`` computes what NumPy's functions do not, some 100 times slower.
    """

    def __init__(
        self,
        producer: Callable[[Tensor], Node | None],
        known: Mapping[str, Array | None] = NO_ATTRIBUTES,
        *,
        around: Evaluation | None = None,
        shape_of: Callable[[Tensor], Shape] = lambda tensor: tensor.shape,
        most: int = LONGEST,
        left: int = 0,
        by_reference: bool = False,
    ) -> None:
        self.known = dict(known)
        self.left = left
        self.depth = 0
        self.root: Evaluation = self if around is None else around.root
        self._producer = producer
        self._around = around
        self._shape_of = shape_of
        self._most = most
        self._by_reference = by_reference

    @classmethod
    def of(cls, graph: Graph, known: Mapping[str, Array | None], **options: Any) -> Evaluation:
        """Return the evaluation of a whole graph."""
        nodes, producer = graph.nodes, graph.producer
        return cls(
            lambda tensor: nodes[producer[tensor.name]] if tensor.name in producer else None, known, **options
        )

    def inside(self, body: Graph, known: Mapping[str, Array | None] = NO_ATTRIBUTES) -> Evaluation:
        """Return the evaluation of a body of one of the graph's nodes, once it is fed these values."""
        return self.of(body, dict.fromkeys(tensor.name for tensor in body.inputs) | dict(known), around=self)

    def spend(self, operators: int) -> bool:
        """Note work that was done; return whether more may follow."""
        self.root.left -= operators
        return self.root.left >= 0

    def value(self, wanted: Tensor) -> Array | None:
        """Return a tensor's elements; None where they do not follow, or are many."""
        known, waiting = self.known, [wanted]
        while waiting:
            tensor = waiting[-1]
            name = tensor.name
            if name in known:
                waiting.pop()
                continue
            node = None if tensor.value is not None else self._producer(tensor)
            if node is None:
                outside = tensor.value is None and self._around is not None
                known[name] = self._around.value(tensor) if outside and self._around else tensor.value
                continue
            unknown, missing = False, []
            for operand in _operands(node):
                if operand is None:
                    continue
                if operand.name not in known:
                    missing.append(operand)
                elif known[operand.name] is None:
                    unknown = True
                    break
            # A cycle cannot be, yet no walk may be endless.
            if missing and not unknown and len(waiting) <= self.root.left:
                waiting += missing
                continue
            if not self.spend(1):
                return None
            result = () if missing or unknown else self._outputs(node)
            for position, output in enumerate(node.outputs):
                if output is not None:
                    known[output.name] = result[position] if position < len(result) else None
        return known[wanted.name]

    def _outputs(self, node: Node) -> Sequence[Array | None]:
        if node.op_type == "If":
            branch = taken_branch(node, self.value)
            if branch is None or self.root.depth >= _DEEPEST:
                return ()
            self.root.depth += 1
            try:
                inner = self.inside(branch)
                return [inner.value(tensor) for tensor in branch.outputs]
            finally:
                self.root.depth -= 1
        if node.graphs:
            return ()
        source = node.input(0)
        shape = None if source is None else self._shape_of(source)
        proto = node_proto(node) if self._by_reference and node.op_type in BY_REFERENCE else None
        return (
            results(node, lambda tensor: self.known.get(tensor.name), proto, shape=shape, most=self._most) or ()
        )


def _operands(node: Node) -> Sequence[Tensor | None]:
    """Return the tensors whose values decide what a node gives."""
    if node.domain != DEFAULT_DOMAIN or (node.graphs and node.op_type != "If"):
        return ()
    return node.inputs[: _DECIDING.get(node.op_type, len(node.inputs))]


# Of these operators the first operands alone decide, or none but its shape.
_DECIDING = {"CastLike": 1, **dict.fromkeys(SHAPE_OPERATORS, 0)}


def node_proto(node: Node) -> onnx.NodeProto | None:
    """Return a node in ONNX's form, without its bodies; None where an attribute is no plain value."""
    import numpy as np
    from onnx import helper, numpy_helper

    read, written = ([tensor.name if tensor else "" for tensor in side] for side in (node.inputs, node.outputs))
    domain = "" if node.domain == DEFAULT_DOMAIN else node.domain
    proto = helper.make_node(node.op_type, read, written, name=node.name, domain=domain)
    try:
        for name, value in node.attributes.items():
            plain = numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
            # An empty list has no type of its own; an operator takes it for left out.
            if not isinstance(plain, (tuple, list)) or plain:
                proto.attribute.append(helper.make_attribute(name, plain))
    except (TypeError, ValueError):
        return None
    return proto
