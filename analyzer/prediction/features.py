"""Operators to pieces of work: the shapes of products, the rows of norms, the bytes of everything."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from analyzer.costs.cost import Cost, dims
from analyzer.costs.families.control_flow import trips
from analyzer.costs.registry import count_graph, count_node
from analyzer.graph import DEFAULT_DOMAIN, DTYPES, Graph, Node, Tensor, broadcast
from analyzer.operators import NHWC_DOMAIN, ON_TEXTS, RECURRENT, TreeSums, does_no_work
from analyzer.prediction.attention_pieces import cached_pieces, experts_on_cpu
from analyzer.prediction.irregular_pieces import boxes, determinants, elements_of, indexed, transforms, value_of
from analyzer.prediction.loop_variants import (
    SAMPLED_RUNS,
    SIGNED_FIRST,
    named_axes,
    reduced_order,
    sampled_run,
    transposing,
    variant,
    width_of,
)
from analyzer.prediction.work_item import FLOAT_BYTES, MALFORMED, Kind, Piece
from analyzer.training_operators import definition, is_defined

MOVES = frozenset(
    {
        *("Transpose", "Concat", "Split", "Slice", "Pad", "Expand", "Tile", "Compress", "ReverseSequence"),
        *("Gather", "GatherElements", "GatherND", "Scatter", "ScatterElements", "ScatterND"),
        *("DepthToSpace", "SpaceToDepth", "OneHot", "Trilu", "Im2Col", "Col2Im", "Unique", "NonZero", "TopK"),
        *("EmbedLayerNormalization", "ConstantOfShape", "Range", "EyeLike", "CumSum"),
        *("SplitToSequence", "ConcatFromSequence"),
    }
)
# Of these, what takes or makes many tensors in one kernel.
MANY = frozenset({"Split", "Concat"})
NORMS = frozenset(
    {
        "LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization", "SkipLayerNormalization",
        "SkipSimplifiedLayerNormalization", "InstanceNormalization", "GroupNormalization", "GroupNorm",
        "LpNormalization", "MeanVarianceNormalization", "LRN", "SkipGroupNorm",
    }
)  # fmt: skip
SOFTMAXES = frozenset({"Softmax", "LogSoftmax", "Hardmax", "BiasSoftmax"})
POOLS = frozenset(
    {
        *("MaxPool", "AveragePool", "LpPool", "MaxUnpool", "Resize", "Upsample", "GridSample", "RoiAlign"),
        *("QLinearAveragePool", "NhwcMaxPool"),
    }
)
MATMULS = frozenset({"MatMul", "FusedMatMul", "TransposeMatMul", "MatMulInteger", "MatMulIntegerToFloat"})
_FLOAT_CONVS = frozenset({"Conv", "FusedConv"})
CONVS = frozenset({"Conv", "FusedConv", "ConvInteger", "NhwcConv", "NhwcFusedConv"})
_FLOAT32 = DTYPES["float32"]
_NARROW_FLOATS = frozenset(name for name in DTYPES if name.startswith("float8"))
# What takes images channels last as they are; whatever is of ONNX Runtime's internal domain is called so too.
CHANNELS_LAST = "NhwcConv"
# Position of the weight among the inputs of quantised products.
WEIGHT_INPUT = {"QLinearConv": 3, "QLinearMatMul": 3, "DynamicQuantizeMatMul": 1, "QGemm": 3}


def pieces_of(node: Node, cost: Cost) -> list[Piece]:
    """Return the pieces of one operator on its own; empty for what runs no kernel."""
    if does_no_work(node) or (cost.bytes_moved == 0 and not cost.flops and not runs_bodies(node)):
        return []
    if is_defined(node):  # it runs as its definition
        return list(_of_definition(node))
    base = base_piece(node, cost)
    rule = _RULES.get(node.op_type) or (_fallback_product if cost.macs else _vector)
    try:
        return rule(node, cost, base) or _vector(node, cost, base)
    except MALFORMED:  # what it moves is known still
        return [base]


ON_CPU_ALONE = frozenset({"PackSigned", "SignedResults", "EinsumBatch", "GridSamplePlan", "CausalMask"})
"""Parts of operators that the CPU provider's kernels have, and no others."""


def runs_bodies(node: Node) -> bool:
    """Return whether an operator runs bodies, which takes time even where they compute and move nothing."""
    return bool(node.graphs) and node.op_type in WITH_BODIES and node.domain == DEFAULT_DOMAIN


# Pieces of definitions by all that they follow from: a step has the same ones again and again, at each batch.
_KNOWN: dict[Hashable, tuple[Piece, ...]] = {}
_MOST_KNOWN = 2**14


def _of_definition(node: Node) -> tuple[Piece, ...]:
    key = form_of(node)
    if key not in _KNOWN:
        parts = definition(node)
        assert parts is not None
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = tuple(piece for part in parts.nodes for piece in pieces_of(part, count_node(part)))
    return _KNOWN[key]


def form_of(node: Node) -> Hashable:
    """Return all that an operator's pieces follow from beside its cost: two of one form differ in names alone.

    Not hashable where an attribute is none; a node with subgraphs has more to it.
    """
    return (
        node.identity,
        node.version,
        tuple(node.attributes.items()),
        node.steps,
        _forms(node.inputs),
        _forms(node.outputs),
    )


def _forms(tensors: tuple[Tensor | None, ...]) -> tuple[Hashable, ...]:
    """Return sizes, types and small values of tensors, and which of them are one."""
    return tuple(
        None
        if tensor is None
        else (
            tensor.shape,
            tensor.dtype,
            tensor.constant,
            tensors.index(tensor),
            _read_value(tensor),
        )
        for tensor in tensors
    )


# As many scales, bounds and pads as an operator takes; a longer row of floats is a bias, which no rule reads.
_MOST_READ_FLOATS = 16


def _read_value(tensor: Tensor) -> bytes | None:
    """Return a value that rules may read."""
    value = tensor.value
    is_bias = value is not None and value.dtype.kind == "f" and value.size > _MOST_READ_FLOATS
    return None if value is None or is_bias else value.tobytes()


def float_share(tensors: list[Tensor]) -> tuple[float, float]:
    """Share of the bytes that is floating point, and bytes at four bytes an element over bytes as they are."""
    for tensor in tensors:
        if tensor.dtype is not _FLOAT32:
            break
    else:  # nearly always, and what follows costs sums
        return 1.0, 1.0
    floating = [tensor for tensor in tensors if not tensor.dtype.is_packed]
    whole = sum(tensor.nbytes or 0 for tensor in tensors)
    part = sum(tensor.nbytes or 0 for tensor in floating)
    if not whole or not part:
        return (1.0 if floating or not tensors else 0.0), 1.0
    widened = sum((tensor.elements or 0) * FLOAT_BYTES for tensor in floating)
    return part / whole, widened / part


def base_piece(node: Node, cost: Cost) -> Piece:
    """Return an operator's piece by count alone: its operations and the bytes that it moves."""
    inputs = [tensor for tensor in node.inputs if tensor is not None]
    outputs = [tensor for tensor in node.outputs if tensor is not None]
    read = _or_sum(cost.bytes_read, inputs)
    written = _or_sum(cost.bytes_written, outputs)
    in_share, in_scale = float_share(inputs)
    out_share, out_scale = float_share(outputs)
    stored = [tensor for tensor in inputs if tensor.constant and not tensor.dtype.is_packed]
    weights = sum([(tensor.elements or 0) * FLOAT_BYTES for tensor in stored])
    integers = 0
    if in_share < 1:
        integers = sum([tensor.nbytes or 0 for tensor in inputs if tensor.constant and tensor.dtype.is_packed])
    floats = read * in_share * in_scale
    loop = variant(node)
    return Piece(
        kind=Kind.VECTOR,
        op=loop,
        width=width_of(node, loop),
        flops=float(cost.flops or 0),
        read=floats,
        written=written * out_share * out_scale,
        fixed=read * (1 - in_share) + written * (1 - out_share),
        weights=min(float(weights), floats),
        fixed_weights=min(float(integers), read * (1 - in_share)),
        elements=float(max([tensor.elements or 0 for tensor in outputs], default=0)),
    )


def _or_sum(known: int | None, tensors: list[Tensor]) -> float:
    return float(known if known is not None else sum(tensor.nbytes or 0 for tensor in tensors))


def _dims(tensor: Tensor | None) -> tuple[int, ...] | None:
    return None if tensor is None or tensor.elements is None else dims(tensor)


def _vector(node: Node, _cost: Cost, base: Piece) -> list[Piece]:
    if node.op_type in MOVES:
        return _moving(node, base)
    if node.op_type in _BROADCASTING:
        # Of many operands one after the other is joined to what there is.
        pairs = float(max(1, len(list(node.present_inputs)) - 1)) if node.op_type in _VARIADIC else 1.0
        return [replace(base, rows=_short_rows(node), elements=base.elements * pairs, batch=pairs)]
    if node.op_type.startswith("Reduce") or node.op_type in _ALSO_REDUCING:
        inner, rows = elements_of(node.input(0)), max(base.elements, 1.0)
        order = reduced_order(node) if node.op_type.startswith("Reduce") else ""
        added = []
        if order == "RK" and base.op.startswith(("ReduceSum", "ReduceMean", "ReduceMax")):
            # Row after row is added to the sums, however short it is.
            added = [Piece(kind=Kind.VECTOR, op="ReducedRow", elements=inner / rows)]
        summed = replace(base, kind=Kind.REDUCE, elements=inner, rows=rows, row=inner / rows)
        summed.batch, summed.stride = _slices(node), _apart(node)
        if order in ("KRK", "RKR"):
            summed.spread = max(base.spread, _SPREAD_OF_MIDDLES)
        return [*added, summed]
    return [base]


_ALSO_REDUCING = frozenset(
    {
        *("ArgMax", "ArgMin", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"),
        *("QLinearGlobalAveragePool", "QLinearReduceMean"),
    }
)
# The loop of an axis in the middle depends on the sizes of all three.
_SPREAD_OF_MIDDLES = 3.4


def _copied_run(node: Node, sizes: tuple[int, ...]) -> int:
    """Return elements copied at once: all from the last axis on that is repeated, padded or chosen from."""
    if node.op_type == "Compress":
        axis = node.attributes.get("axis")
        return 0 if axis is None else math.prod(sizes[int(axis) % len(sizes) + 1 :])
    given = node.input(1)
    if given is None or given.value is None:
        return 0
    amounts = given.value.reshape(-1).tolist()
    changed = [any(amounts[place :: len(sizes)]) for place in range(len(sizes))]
    if node.op_type == "Tile":
        changed = [amount != 1 for amount in amounts]
    return math.prod(sizes[max((place for place, yes in enumerate(changed) if yes), default=0) :])


def _of_many(node: Node, base: Piece) -> Piece:
    """Return a Concat or Split: runs behind the axis, one of each tensor for each place before it."""
    parts = list(node.present_outputs if node.op_type == "Split" else node.present_inputs)
    whole = float(sum(tensor.elements or 0 for tensor in node.present_outputs))
    moved = replace(base, kind=Kind.MOVE, batch=float(len(parts)), elements=whole)
    shape, axis = _dims(parts[0]) if parts else None, int(node.attributes.get("axis", 0))
    if shape and -len(shape) <= axis < len(shape):
        runs = len(parts) * math.prod(shape[: axis % len(shape)])
        moved.rows, moved.row = float(runs), whole / max(1, runs)
    return moved


def _moving(node: Node, base: Piece) -> list[Piece]:
    """Return operators that copy: elements, and runs of them that lie together."""
    if node.op_type in MANY:
        return [_of_many(node, base)]
    table, axis = _dims(node.input(0)), int(node.attributes.get("axis", 0))
    if node.op_type == "CumSum":
        # Elements along its axis; of one that is not known all.
        sizes = table or (1,)
        place = value_of(node.input(1), len(sizes))
        along = sizes[place] if -len(sizes) <= place < len(sizes) else math.prod(sizes)
        return [replace(base, kind=Kind.MOVE, row=float(along))]
    if node.op_type in _SEARCHES:  # all is looked at, however little is found
        run = _copied_run(node, table) if node.op_type == "Compress" and table else 0
        whole = elements_of(node.input(0))
        return [replace(base, kind=Kind.MOVE, elements=whole, rows=whole / run if run else 1.0)]
    # A gather copies runs of the table's elements behind the axis.
    run = math.prod(table[axis % len(table) + 1 :]) if node.op_type == "Gather" and table else 0
    if node.op_type == "Transpose" and table:
        run = sampled_run(node, table) if base.op in (SAMPLED_RUNS, "TransposeHeads") else 0
        if base.op == "TransposeHeads" and run > _SHORT_RUN:
            run = 0
        if base.width > 1:
            base = replace(base, spread=max(base.spread, _SPREAD_OF_WIDE))
    if node.op_type == "Slice" and base.op == "Slice":
        # All from the last axis on that is cut.
        run = 1
        for size, result in zip(reversed(table or ()), reversed(_dims(node.output(0)) or ()), strict=False):
            run *= result
            if size != result:
                break
    if node.op_type in ("Tile", "Pad") and table:
        run = _copied_run(node, table)
    return [replace(base, kind=Kind.MOVE, rows=max(1.0, base.elements / run) if run else 1.0)]


# A probe's runs are of 64 elements; elements of 64 bits fill a set of the first cache at other sizes.
_SHORT_RUN, _SPREAD_OF_WIDE = 32, 3.6


_SEARCHES = frozenset({"NonZero", "Unique", "Compress"})
_VARIADIC = frozenset({"Sum", "Mean", "Max", "Min"})
_BROADCASTING = _VARIADIC | {
    *("Add", "Sub", "Mul", "Div", "Pow", "Greater", "Less", "Equal", "Where", "GreaterOrEqual", "LessOrEqual"),
    *("And", "Or", "Xor", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Mod"),
}


def _short_rows(node: Node) -> float:
    """Return the runs of elements between two changes of a repeated operand; 1 where nothing repeats."""
    result = _dims(node.output(0))
    operands = [shape for tensor in node.present_inputs if (shape := _dims(tensor)) is not None]
    if not result or all(shape == result for shape in operands):
        return 1.0
    # BroadcastIterator (core/providers/cpu/math/element_wise_ops.h) joins axes from the last on while an
    # operand is whole along them all or repeated along them all: of [1000, 1] and [1] it makes 1000 runs of one
    # element.
    while len(result) > 1 and result[-1] == 1 and all(len(shape) == len(result) for shape in operands):
        result, operands = result[:-1], [shape[:-1] for shape in operands]
    run = math.prod(result)
    for shape in operands:
        padded = (1,) * (len(result) - len(shape)) + shape
        whole, length = padded[-1:] == result[-1:], 1
        for own, size in zip(reversed(padded), reversed(result), strict=True):
            if (own == size) != whole and size > 1:
                break
            length *= size
        run = min(run, length)
    return math.prod(result) / max(1, run)


def _reduced_axes(node: Node) -> tuple[int, int] | None:
    """Return the first and the last axis that is reduced; None where no axis is named, which is all of them."""
    rank, axes = len(_dims(node.input(0)) or ()), named_axes(node)
    if not rank or not axes:
        return None
    places = [int(axis) % rank for axis in axes]
    return min(places), max(places)


def _slices(node: Node) -> float:
    """Outer slices of a reduction over an axis in the middle; 1 where the last axis is reduced."""
    shape, axes = _dims(node.input(0)) or (), _reduced_axes(node)
    if axes is None or len(shape) < 3 or axes[1] == len(shape) - 1:
        return 1.0
    return float(math.prod(shape[: axes[0]]))


def _apart(node: Node) -> float:
    """From an element of a reduction to the next one; 1 where the last axis is reduced."""
    shape, axes = _dims(node.input(0)) or (), _reduced_axes(node)
    if node.op_type in ("ArgMax", "ArgMin") and shape:
        behind = shape[int(node.attributes.get("axis", 0)) % len(shape) + 1 :]
    else:
        behind = shape[axes[1] + 1 :] if axes is not None else ()
    return float(max(1, math.prod(behind)))


def _shaped(base: Piece, kind: Kind, **numbers: float) -> Piece:
    """Return the piece that a rule was given, now of this kind and shape.

    Changed in place: a rule that ends here has the only one, and ``dataclasses.replace`` takes eight times as
    long, for each node at each batch.
    """
    base.kind = kind
    for name, number in numbers.items():
        setattr(base, name, number)
    return base


def _matmul(node: Node, _cost: Cost, base: Piece) -> list[Piece]:
    position = WEIGHT_INPUT.get(node.op_type, 1)
    left, right = _dims(node.input(0)), _dims(node.input(position))
    if not left or not right:
        return []
    if node.attributes.get("transA") and len(left) > 1:
        left = (*left[:-2], left[-1], left[-2])
    if node.attributes.get("transB") and len(right) > 1:
        right = (*right[:-2], right[-1], right[-2])
    k = left[-1]
    m = left[-2] if len(left) > 1 else 1
    n = right[-1] if len(right) > 1 else 1
    lead, many = math.prod(left[:-2]), math.prod(right[:-2])
    # One product over all rows where the second operand has no batch of its own.
    batch, m = (1, m * lead) if many <= 1 else (_products(left[:-2], right[:-2]), m)
    if len(right) == 1 and len(left) > 1 and node.op_type == "MatMul" and base.op == node.op_type:
        # Each row is a product of its own (core/providers/cpu/math/matmul_helper.h, rows as a batch).
        rows = float(m * lead)
        each = rows * (k + _OF_A_PRODUCT)
        return [replace(base, kind=Kind.VECTOR, op="ProductWithVector", elements=each)]
    product = _shaped(base, kind=Kind.MATMUL, batch=float(batch), m=float(m), n=float(n), k=float(k))
    if product.op == "MatMulFloat64" and m == 1:
        product.op = "MatVecFloat64"
    if product.op != SIGNED_FIRST:
        return [product]
    return [product, Piece(kind=Kind.VECTOR, op="PackSigned", elements=float(batch * n * k))]


# What a call takes of MLAS, in multiplications of a row by a vector.
_OF_A_PRODUCT = 40.0


def _packed_product(node: Node, _cost: Cost, base: Piece) -> list[Piece]:
    """MatMulNBits: weights of N by K, whatever their packed shape."""
    left = _dims(node.input(0))
    if not left:
        return []
    n, k = float(node.attributes["N"]), float(node.attributes["K"])
    m = float(math.prod(left[:-1]))
    # The probes count the product alone: what unpacking takes is part of their rates.
    return [_shaped(base, kind=Kind.MATMUL, m=m, n=n, k=k, flops=2.0 * m * n * k, unpacked=1.0)]


def _narrow_product(node: Node, cost: Cost, base: Piece) -> list[Piece]:
    """GemmFloat8: at the rate of 8-bit floats where both operands are such."""
    narrow = all(tensor is not None and tensor.dtype.is_packed for tensor in (node.input(0), node.input(1)))
    return [replace(piece, narrow=float(narrow)) for piece in _matmul(node, cost, base)]


def _quantize(node: Node, _cost: Cost, base: Piece) -> list[Piece]:
    """QuantizeLinear: to 8-bit floats row by row; to integers an elementwise operator as others."""
    out = node.output(0)
    if out is None or out.dtype.name not in _NARROW_FLOATS:
        scale = node.input(1)
        many = scale is not None and elements_of(scale) > 1
        return [replace(base, spread=max(base.spread, _SPREAD_OF_SCALES))] if many else []
    shape = _dims(out) or (1,)
    return [replace(base, rows=float(math.prod(shape[:-1])), narrow=1.0)]


# Runs of one scale are short or long; a probe has one scale.
_SPREAD_OF_SCALES = 5.0


def _products(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """Return how many products two stacks of matrices make."""
    try:
        return math.prod(broadcast([left, right]))
    except ValueError:  # nothing can run it; its cost is unknown
        return max(math.prod(left), math.prod(right))


def _conv(node: Node, _cost: Cost, base: Piece) -> list[Piece]:
    source, weight, out = (
        _channels_first(node, _dims(node.input(0))),
        _dims(node.input(WEIGHT_INPUT.get(node.op_type, 1))),
        _channels_first(node, _dims(node.output(0))),
    )
    if not source or not weight or not out or len(weight) < 3 or not math.prod(weight[1:]):
        return []
    if node.op_type == "NhwcConv":  # (M, kH, kW, C), as onnxruntime/python/tools/transformers writes it
        weight = (weight[0], weight[-1], *weight[1:-1])
    group = int(node.attributes.get("group", 1))
    spatial, taps = math.prod(out[2:]), math.prod(weight[2:])
    thin = group > 1 and weight[1] == 1
    plain = {1: "Conv1d", 3: "Conv3d"}.get(len(weight) - 2, base.op)
    name = CHANNELS_LAST if node.domain == NHWC_DOMAIN else plain if base.op in _FLOAT_CONVS else base.op
    convolution = _shaped(
        replace(base, op=name),
        kind=Kind.DEPTHWISE if thin else Kind.CONV,
        batch=float(group),
        m=float(out[0] * spatial),
        n=float(out[1] // group),
        k=float(weight[1] * taps),
        taps=float(taps),
        stride=float(max(1, round(math.prod(source[2:]) / max(1, spatial)))),
        spatial=float(spatial),
    )
    if convolution.op == SIGNED_FIRST:
        convolution.kind = Kind.MATMUL
    if node.op_type != "ConvInteger":
        return [convolution]
    # The filters are the first operand there, the columns of the images the second, which each run packs.
    stored = node.input(1)
    if stored is not None and stored.dtype.name == "int8":
        columns = convolution.m * convolution.k * group
        convolution.kind, convolution.op = Kind.MATMUL, SIGNED_FIRST
        return [
            convolution,
            Piece(kind=Kind.VECTOR, op="PackSigned", elements=columns),
            Piece(kind=Kind.VECTOR, op="SignedResults", elements=base.elements),
        ]
    if group > 1 or spatial == 1:  # no probe has them
        convolution.spread = _GROUPS_OF_INTEGERS
    return [convolution]


_GROUPS_OF_INTEGERS = 3.0


def _channels_first(node: Node, sizes: tuple[int, ...] | None) -> tuple[int, ...] | None:
    last = node.op_type.startswith("Nhwc") or node.domain == NHWC_DOMAIN
    last = last or bool(node.attributes.get("channels_last", 0))
    return (sizes[0], sizes[-1], *sizes[1:-1]) if sizes and last else sizes


def _deformed(node: Node, cost: Cost, base: Piece) -> list[Piece]:
    """Each tap of each input channel is sampled at each position, and multiplied as one matrix."""
    source, weight, out = _dims(node.input(0)), _dims(node.input(1)), _dims(node.output(0))
    if not source or not weight or not out or len(weight) < 3:
        return []
    sampled = float(out[0] * source[1] * math.prod(weight[2:]) * math.prod(out[2:]))
    samples = Piece(kind=Kind.VECTOR, op=node.op_type, elements=sampled)
    return [samples, *_fallback_product(node, cost, replace(base, op="Conv"))]


def _einsum(node: Node, cost: Cost, base: Piece) -> list[Piece]:
    """Operands whose axes are put in order, one product a batch, and its axes put in the result's order.

    ``core/providers/cpu/math/einsum_utils``: batches first, then what one operand has, then what is summed.
    """
    names = str(node.attributes["equation"]).replace(" ", "").partition("->")
    operands, result = names[0].split(","), names[2]
    shapes = [_dims(tensor) for tensor in node.present_inputs]
    if len(operands) > 2 or not names[1] or "." in names[0] or any(shape is None for shape in shapes):
        return _fallback_product(node, cost, base)
    sizes = {name: size for one, shape in zip(operands, shapes, strict=True)
             for name, size in zip(one, shape or (), strict=True)}  # fmt: skip
    if len(operands) == 1:
        if len(set(operands[0])) < len(operands[0]):  # a diagonal
            return [replace(base, kind=Kind.MOVE, read=base.written)]
        remaining = [name for name in dict.fromkeys(operands[0]) if name in result]
        total = replace(base, kind=Kind.REDUCE, elements=elements_of(node.input(0)))
        if remaining == list(result):
            return [total]
        return [
            total,
            _moved(base, [remaining.index(name) for name in result], [sizes[name] for name in remaining]),
        ]
    left, right = operands
    batch = [name for name in result if name in left and name in right]
    mine = [[name for name in result if name in one and name not in batch] for one in operands]
    summed = [name for name in left if name in right and name not in result]
    sums = [math.prod(sizes[name] for name in part) for part in (batch, *mine, summed)]
    pieces = [
        replace(
            base, kind=Kind.MATMUL, batch=float(sums[0]), m=float(sums[1]), n=float(sums[2]), k=float(sums[3])
        ),
        Piece(kind=Kind.VECTOR, op="EinsumBatch", elements=float(sums[0])),
    ]
    orders = [(left, [*batch, *mine[0], *summed]), (right, [*batch, *mine[1], *summed])]
    orders = [*orders, ("".join([*batch, *mine[0], *mine[1]]), list(result))]
    for source, target in orders:
        there = [name for name in source if name in target]
        if there != target and not (source == right and there == [*batch, *summed, *mine[1]]):
            lengths = [sizes[name] for name in there]
            moved = _moved(base, [there.index(name) for name in target], lengths)
            # Operands have all letters' axes meanwhile: few orders are those that have a loop of their own.
            pieces.append(replace(moved, op="EinsumTranspose"))
    return pieces


TRANSPOSED_VOLUME, _OF_VOLUMES = "ConvTranspose3d", 5
"""A transposed convolution of volumes, and the axes of its filters."""


def _conv_transpose(node: Node, _cost: Cost, base: Piece) -> list[Piece]:
    source, weight = _dims(node.input(0)), _dims(node.input(1))
    if not source or not weight or len(weight) < 3 or not math.prod(weight):
        return []
    group = int(node.attributes.get("group", 1))
    spatial, taps = math.prod(source[2:]), math.prod(weight[2:])
    return [
        replace(
            base,
            op=TRANSPOSED_VOLUME if len(weight) == _OF_VOLUMES else base.op,
            kind=Kind.CONV,
            batch=float(group),
            m=float(source[0] * spatial),
            n=float(weight[1] * taps),
            k=float(weight[0] // group),
            taps=float(taps),
            spatial=float(spatial),
            spread=_OF_ONE_POSITION if spatial == 1 else base.spread,
        )
    ]


# A transposed convolution of one position reads all of its weights for one column: 4 times a product's time.
_OF_ONE_POSITION = 4.5


def _rows(kind: Kind, base: Piece, length: int) -> list[Piece]:
    if length <= 0:
        return []
    return [_shaped(base, kind=kind, row=float(length), rows=max(base.elements / length, 1.0))]


def _norm(node: Node, _cost: Cost, base: Piece) -> list[Piece]:
    shape = _dims(node.input(0))
    if not shape:
        return []
    if node.op_type == "InstanceNormalization":
        length = math.prod(shape[2:])
    elif node.op_type == "MeanVarianceNormalization":
        axes = {int(axis) % len(shape) for axis in node.attributes.get("axes", (0, 2, 3))}
        length = math.prod(size for axis, size in enumerate(shape) if axis in axes)
    elif "Group" in node.op_type:
        groups = int(node.attributes.get("num_groups", node.attributes.get("groups", 1)))
        length = math.prod(shape[1:]) // max(1, groups)
    else:
        axis = int(node.attributes.get("axis", -1))
        length = math.prod(shape[axis:]) if -len(shape) <= axis < len(shape) else shape[-1]
    return _rows(Kind.NORM, base, length)


def _softmax(node: Node, _cost: Cost, base: Piece) -> list[Piece]:
    shape = _dims(node.input(0))
    if not shape:
        return []
    modern = node.version >= 13 or node.domain != "ai.onnx"
    axis = int(node.attributes.get("axis", -1 if modern else 1))
    if not -len(shape) <= axis < len(shape):
        return []
    pieces = _rows(Kind.SOFTMAX, base, shape[axis] if modern else math.prod(shape[axis:]))
    last = len(shape) - 1
    if modern and pieces and axis % len(shape) != last and shape[axis] > 1 and node.op_type != "BiasSoftmax":
        # The axis changes places with the last, and back (core/providers/cpu/math/softmax.cc).
        order = list(range(len(shape)))
        order[axis % len(shape)], order[last] = last, axis % len(shape)
        pieces += [_moved(base, order, shape)] * 2
    return pieces


def _moved(base: Piece, order: Sequence[int], sizes: Sequence[int]) -> Piece:
    """Return a transpose that is part of an operator, of axes of these sizes."""
    elements = float(math.prod(sizes))
    return Piece(
        kind=Kind.MOVE,
        op=transposing(order, sizes),
        read=elements * FLOAT_BYTES,
        written=elements * FLOAT_BYTES,
        elements=elements,
        width=base.width,
    )


def _pool(node: Node, _cost: Cost, base: Piece) -> list[Piece]:
    taps = math.prod(node.attributes.get("kernel_shape", (1,)))
    source = node.input(0)
    if node.attributes.get("antialias") and source is not None:
        # A filter as wide as the reduction reads every input.
        return [replace(base, kind=Kind.POOL, elements=max(base.elements, float(source.elements or 0)))]
    if node.op_type == "MaxUnpool":  # what is read is placed among zeros
        return [replace(base, kind=Kind.POOL, elements=elements_of(source))]
    if node.op_type == "RoiAlign":
        # Each value is sampled at several places; without a ratio the boxes decide at how many.
        ratio = int(node.attributes.get("sampling_ratio", 0))
        samples = float(max(1, ratio or _UNKNOWN_RATIO) ** 2)
        spread = base.spread if ratio else _SPREAD_OF_BOXES
        return [replace(base, kind=Kind.POOL, taps=samples, spread=spread)]
    pool = replace(base, kind=Kind.POOL, taps=float(taps))
    if base.op != "GridSample" or source is None or not source.shape or not source.shape[1]:
        return [pool]
    # Where each position is sampled is worked out before the channels are.
    return [pool, Piece(kind=Kind.VECTOR, op="GridSamplePlan", elements=base.elements / source.shape[1])]


_UNKNOWN_RATIO, _SPREAD_OF_BOXES = 3, 9.0


def _recurrent(node: Node, _cost: Cost, base: Piece) -> list[Piece]:
    """Return the input product of all steps at once, then one small product a step."""
    source, weight, recurrence = _dims(node.input(0)), _dims(node.input(1)), _dims(node.input(2))
    if not source or not weight or not recurrence or len(source) != 3 or len(recurrence) != 3:
        return []
    if node.op_type == "RNN":  # a calibration has one size of state
        base = replace(base, spread=_SPREAD_OF_STATES)
    steps, batch = source[0], source[1]
    if node.attributes.get("layout") == 1:
        steps, batch = batch, steps
    directions, gates, hidden = recurrence
    fewest, most = node.steps or (steps, steps)
    # Counts are of whole sequences; a kernel ends with the longest.
    taken = most / steps if steps else 1.0
    base = replace(base, flops=base.flops * taken, read=base.read * taken, written=base.written * taken)
    base = replace(base, least=fewest / most if most else 1.0)
    steps = most
    across = 2.0 * directions * steps * batch * gates * weight[2]
    inputs, recurrent = (float(directions * gates * width) * FLOAT_BYTES for width in (weight[2], hidden))
    # The steps read the recurrent weights, the product all else.
    rest = max(0.0, base.read - recurrent)
    first = replace(
        base,
        kind=Kind.MATMUL,
        flops=across,
        batch=float(directions),
        m=float(steps * batch),
        n=float(gates),
        k=float(weight[2]),
        read=rest,
        weights=min(inputs, rest),
        written=float(directions * steps * batch * gates) * FLOAT_BYTES,
    )
    second = replace(
        base,
        kind=Kind.RECURRENT,
        flops=max(0.0, base.flops - across),
        batch=float(directions),
        m=float(batch),
        n=float(gates),
        k=float(hidden),
        steps=float(steps * directions),
        read=first.written + recurrent,
        weights=recurrent,
    )
    return [first, second]


_SPREAD_OF_STATES = 3.0


def _attention(node: Node, cost: Cost, base: Piece) -> list[Piece]:
    """Scores, softmax and weighted sum in one fused kernel: two batched products over the same bytes."""
    cached = cached_pieces(node, base)
    if cached is not None:
        return cached
    shape = _attention_shape(node)
    if shape is None:
        return _fallback_product(node, cost, base)
    heads, queries, keys, width = shape
    each = 2.0 * heads * queries * keys * width
    rest = max(0.0, float(2 * (cost.macs or 0)) - 2 * each)
    each_time = replace(base, kind=Kind.MATMUL, flops=each, read=base.read / 2, weights=0.0, fixed_weights=0.0,
                        batch=heads, m=queries)  # fmt: skip
    parts = [replace(each_time, written=0.0, fixed=0.0, n=keys, k=width), replace(each_time, n=width, k=keys)]
    if rest > each * 1e-6:
        parts += _fallback_product(node, Cost(flops=int(rest), macs=int(rest / 2)), replace(base, flops=rest))
    if node.attributes.get("is_causal") and node.domain == DEFAULT_DOMAIN:
        # A mask is made and added to each score (core/providers/cpu/llm/attention.cc).
        parts.append(Piece(kind=Kind.VECTOR, op="CausalMask", elements=heads * queries * keys))
    return parts


def _experts(node: Node, cost: Cost, base: Piece) -> list[Piece]:
    return experts_on_cpu(node, base, float(cost.macs or 0)) or _fallback_product(node, cost, base)


def _attention_shape(node: Node) -> tuple[float, float, float, float] | None:
    query, key = _dims(node.input(0)), _dims(node.input(1))
    if not query or len(query) not in (3, 4):
        return None
    if len(query) == 4:
        keys = key[2] if key and len(key) == 4 else query[2]
        return float(query[0] * query[1]), float(query[2]), float(keys), float(query[3])
    heads = int(node.attributes.get("q_num_heads", node.attributes.get("num_heads", 1)))
    keys = key[1] if key and len(key) == 3 else query[1]
    return float(query[0] * heads), float(query[1]), float(keys), float(query[2]) / max(1, heads)


def _tree(node: Node, _cost: Cost, base: Piece) -> list[Piece]:
    source = _dims(node.input(0))
    rows, sums = float(source[0] if source else 1), TreeSums.of(node.attributes)
    if sums is not None:
        nodes, trees = sums.nodes, sums.trees
    else:
        nodes = len(node.attributes.get("nodes_featureids", ()))
        trees = len(node.attributes.get("tree_roots", ())) or len(set(node.attributes.get("nodes_treeids", ())))
    return [replace(base, kind=Kind.TREE, rows=rows, m=rows, n=nodes / max(trees, 1))]


def _top(node: Node, _cost: Cost, base: Piece) -> list[Piece]:
    """Return the largest of each row, in elements of the probe, of which 8 of 1,024 are kept."""
    # How many a TopK keeps of each row; 0 where the data decide.
    shape, k = _dims(node.input(0)), value_of(node.input(1), int(node.attributes.get("k", 0)))
    axis = int(node.attributes.get("axis", -1))
    if not shape or not -len(shape) <= axis < len(shape) or not shape[axis]:
        return [replace(base, kind=Kind.MOVE, elements=elements_of(node.input(0)))]
    length = shape[axis]
    probed = _PROBED_ROW / _row_of_top(_PROBED_ROW, _PROBED_KEPT)
    elements = math.prod(shape) / length * probed * _row_of_top(length, min(k or 1, length))
    return [replace(base, kind=Kind.MOVE, elements=elements)]


_PROBED_ROW, _PROBED_KEPT = 1024, 8


def _row_of_top(length: int, k: int) -> float:
    """Return elements that are compared, and what the heap of those kept takes, in comparisons of an element.

    Of random values kept * (1 + ln(length / kept)) enter the heap, each down its levels; a level takes as
    long as 16 comparisons (8 and 0.5 ns; 40 shapes of 64 to 100,000 elements, 1 to 4,000 kept, within 2x).
    """
    return length + 16.0 * k * (1.0 + math.log(length / k)) * math.log2(max(k, 1))


VOTES = "SVMVotes"
"""What a classifier by support vectors does besides its kernel."""
# Features of the probes of support vectors and linear classifiers: the time grows with them.
_PROBED_FEATURES = 32.0


def _support_vectors(node: Node, _cost: Cost, base: Piece) -> list[Piece]:
    """Kernel values, each over all features; without vectors a linear model."""
    source, attributes = _dims(node.input(0)), node.attributes
    vectors = attributes.get("n_supports", 0) or sum(attributes.get("vectors_per_class", ()))
    if not source or not vectors:
        return []
    rows, features = (source[0], math.prod(source[1:])) if len(source) > 1 else (1, source[0])
    values = rows * vectors * features / _PROBED_FEATURES
    kernel = replace(base, kind=Kind.VECTOR, elements=values)
    if node.op_type == "SVMRegressor":
        return [kernel]
    # Each pair of classes sums the values of its own vectors.
    weights = float(rows * len(attributes.get("coefficients", ())))
    return [kernel, Piece(kind=Kind.VECTOR, op=VOTES, elements=weights)]


def _read_elements(node: Node, _cost: Cost, base: Piece) -> list[Piece]:
    """Return pieces of encoders, which look up each element that they read, however many they write."""
    return [replace(base, kind=Kind.VECTOR, elements=elements_of(node.input(0)))]


def _text_bytes(node: Node, _cost: Cost, base: Piece) -> list[Piece]:
    """Go through the bytes of texts, or of the tokens that a vectoriser looks up, beside what is written."""
    source = node.input(0)
    if source is None or not source.shape:
        return [base]
    tokens = node.op_type == "TfIdfVectorizer" and source.elements is not None
    texts = float(source.elements or source.shape[0] or 0)
    count = texts * (_TOKEN_BYTES if tokens else _TEXT_BYTES)
    looped = Piece(kind=Kind.VECTOR, op="TextByte", elements=count, spread=_SPREAD_OF_TEXTS)
    return [replace(base, kind=Kind.VECTOR), looped] if node.op_type == "TfIdfVectorizer" else [looped]


# Of a text, whose length no shape gives: between a word (6, with the blank) and a message of 25. Of nine
# operators on 1,024 texts of 32 bytes each took within a factor of 5 of the figure of one byte.
_TEXT_BYTES, _TOKEN_BYTES, _SPREAD_OF_TEXTS = 32.0, 6.0, 5.0


def _scores(node: Node, _cost: Cost, base: Piece) -> list[Piece]:
    """Linear models: of few features what is done for each score outweighs the product, of many it does not."""
    source, result = _dims(node.input(0)), list(node.present_outputs)
    scores = elements_of(result[-1]) if result else 0.0
    each = replace(base, kind=Kind.VECTOR, elements=scores)
    if not source or not scores:
        return [each]
    rows, known = float(source[0]), 0.0
    if node.op_type == "LinearClassifier":
        each.elements, known = _PROBED_SCORES * (_ROW_SHARE * rows + _SCORE_SHARE * scores), _PROBED_FEATURES
    more = math.prod(source[1:]) - known
    if more <= 0:
        return [each]
    product = Piece(kind=Kind.MATMUL, op=node.op_type, flops=2.0 * scores * more,
                    m=rows, n=scores / max(rows, 1.0), k=more)  # fmt: skip
    return [each, product]


# Of the probe of a linear classifier, three scores a row: what a row takes whatever its scores, and each score
# (1,000 rows of 32 features: 28 us with 3 classes, 48 us with 10).
_PROBED_SCORES, _ROW_SHARE, _SCORE_SHARE = 3.0, 0.7, 0.1


WITH_BODIES = ("Loop", "Scan", "If")
LOOP, SCAN, BRANCH = "LoopTrip", "ScanTrip", "BranchCall"
"""What each does besides the operators of its body: it hands tensors to the body and calls it."""
CALLS = frozenset({LOOP, SCAN, BRANCH})
# In operators of a body, each of which takes 0.25 us (an EPYC; 2,000 trips over 1 to 20 scalar operators take
# 0.85 to 5.5 us each, an If in them 1.5 to 2 us more). A Scan cuts slices out and puts them together again: two
# small operators on 1,000 rows take as long as 24.
_CALL_OF_LOOP, _CALL_OF_BRANCH, _CALL_OF_SCAN = 3, 6, 20
LOOP_WIDTH = 4.0
"""Half-width of a loop's interval: between one call of large kernels and thousands of small ones."""
UNKNOWN_TRIPS, UNKNOWN_TRIPS_SPREAD = 100.0, 100.0
"""Of a loop whose end the data decide, and the factor to either side: any number of trips from 1 to 10,000."""


def _normalizer(node: Node, _cost: Cost, base: Piece) -> list[Piece]:
    # Rows of zeros, as texts without a known word give, are copied: 64 rows of 930 take 55 us instead of 186.
    return [replace(base, least=0.3)] if node.attributes.get("norm") == "L2" else [base]


def body_pieces(node: Node, base: Piece, of: Callable[[Node, Cost], list[Piece]]) -> list[Piece]:
    """Return the call's and the body's pieces, as often as it runs; ``of`` makes those of one operator."""
    body = chosen_body(node)
    if body is None:
        return [base]
    count, spread = passes(node)
    inner = [piece for child in body.nodes for piece in of(child, count_node(child))]
    running = len(body.nodes)
    if node.op_type == "Loop":
        name, operators = LOOP, running + _CALL_OF_LOOP
    elif node.op_type == "If":
        name, operators = BRANCH, running + _CALL_OF_BRANCH
    else:
        name, operators = SCAN, 2 * running + _CALL_OF_SCAN
    called = Piece(kind=Kind.VECTOR, op=name, elements=float(operators), spread=LOOP_WIDTH)
    return [
        replace(piece, repeats=piece.repeats * count, spread=max(piece.spread, spread))
        for piece in (called, *inner)
    ]


def passes(node: Node) -> tuple[float, float]:
    """Return how often an operator runs its body, and the factor by which that may be more or less."""
    if node.op_type == "If":
        return 1.0, 1.0
    count = trips(node)
    return (UNKNOWN_TRIPS, UNKNOWN_TRIPS_SPREAD) if count is None else (float(count), 1.0)


def chosen_body(node: Node) -> Graph | None:
    """Return the body run: of an If the branch that a constant condition takes, else the costlier one."""
    if node.op_type != "If":
        return node.graphs.get("body")
    condition = node.input(0)
    if condition is not None and condition.value is not None:
        return node.graphs.get("then_branch" if condition.value.reshape(-1)[0] else "else_branch")
    return max(node.graphs.values(), key=_size, default=None)


def _size(body: Graph) -> tuple[int, int, int]:
    cost = count_graph(body)
    return cost.flops or 0, cost.bytes_moved or 0, len(body.nodes)


def _fallback_product(node: Node, cost: Cost, base: Piece) -> list[Piece]:
    """Return a product of which only the count is known: as square as its output allows."""
    macs = float(cost.macs or 0)
    if macs <= 0 or base.elements <= 0:
        return []
    out = _dims(node.output(0)) or (1,)
    n = float(out[-1] or 1)
    m = max(1.0, base.elements / n)
    return [replace(base, kind=Kind.MATMUL, m=m, n=n, k=max(1.0, macs / (m * n)))]


_Rule = Callable[[Node, Cost, Piece], list[Piece]]
_RULES: dict[str, _Rule] = {
    **dict.fromkeys(MATMULS, _matmul),
    "QLinearMatMul": _matmul,
    "MatMulNBits": _packed_product,
    "DynamicQuantizeMatMul": _matmul,
    "Gemm": _matmul,
    "GemmFloat8": _narrow_product,
    "QuantizeLinear": _quantize,
    "FusedGemm": _matmul,
    "QGemm": _matmul,
    **dict.fromkeys(CONVS, _conv),
    "QLinearConv": _conv,
    "ConvTranspose": _conv_transpose,
    **dict.fromkeys(NORMS, _norm),
    **dict.fromkeys(SOFTMAXES, _softmax),
    **dict.fromkeys(POOLS, _pool),
    **dict.fromkeys(RECURRENT, _recurrent),
    **dict.fromkeys(("GatherND", "ScatterND", "Scatter", "ScatterElements"), indexed),
    **dict.fromkeys(("DFT", "STFT"), transforms),
    "Einsum": _einsum,
    "DeformConv": _deformed,
    "AffineGrid": lambda _node, _cost, base: [base],
    **dict.fromkeys(("Multinomial", "Col2Im", "SoftmaxCrossEntropyLoss"), _read_elements),
    "Det": determinants,
    "NonMaxSuppression": boxes,
    **dict.fromkeys(("Attention", "MultiHeadAttention", "GroupQueryAttention"), _attention),
    **dict.fromkeys(("MoE", "QMoE"), _experts),
    "TopK": _top,
    **dict.fromkeys(WITH_BODIES, lambda node, _cost, base: body_pieces(node, base, pieces_of)),
    "Normalizer": _normalizer,
    **dict.fromkeys((*ON_TEXTS, "TfIdfVectorizer"), _text_bytes),
    **dict.fromkeys(("SVMRegressor", "SVMClassifier"), _support_vectors),
    **dict.fromkeys(("LinearRegressor", "LinearClassifier"), _scores),
    **dict.fromkeys(("OneHotEncoder", "LabelEncoder", "CategoryMapper", "ZipMap"), _read_elements),
    **dict.fromkeys(("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor"), _tree),
}
