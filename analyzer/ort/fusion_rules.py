"""The operators that ONNX Runtime fuses (where a Relu joins a Conv): one rule per fusion.

A rule looks at one operator and answers which operators become one node with it, and that node's type. Rules
run in the order of this file, as ONNX Runtime's transformers do (``GenerateTransformers`` in
``onnxruntime/core/optimizer/graph_transformer_utils.cc``); an operator is fused once, except that what a rule
has fused may take up more (``MatMul`` + ``Add`` becomes a ``Gemm``, which takes up a ``Relu``). Only fusions
that fire on graphs as PyTorch exports them are here. The file that a rule mirrors stands above it; unless it
says otherwise, the path is below ``onnxruntime/core/optimizer/``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analyzer.graph import Node, Tensor
from analyzer.operators import in_training
from analyzer.ort.blocked_layout import (
    BLOCKED_CONVOLUTION_ACTIVATIONS,
    CONVOLUTION_ACTIVATIONS,
    CONVOLUTIONS,
    POOLS,
    SUMS,
    inputs_in_blocks,
)
from analyzer.ort.fusion_view import (
    Fused,
    View,
    has_static_shape,
    in_execution_order,
    inputs_have_one_shape,
    is_half_on_cpu,
    scalar_value,
    scaled_input,
)
from analyzer.ort.quantized_groups import quantized_groups

FusionRule = Callable[[View], None]
RULES: list[FusionRule] = []


def rule(function: FusionRule) -> FusionRule:
    """Add a rule to the table."""
    RULES.append(function)
    return function


def takes_the_place_of(reshape: Node, before: Node) -> bool:
    """Return whether of two Reshapes in a row the second is enough (``FuseContiguousReshapes``)."""
    # With allowzero, as PyTorch exports them, ONNX Runtime 1.31 leaves both.
    zeros = any(node.attributes.get("allowzero", 0) for node in (reshape, before))
    return not zeros and has_static_shape(before.output(0))


# reshape_fusion.cc
@rule
def reshape_reshape(view: View) -> None:
    """Level 1, ReshapeFusion: of two Reshapes in a row the second is enough."""
    for node in list(view.nodes("Reshape")):
        before = view.producer(node.input(0), "Reshape")
        if before is not None and view.is_only_read_by(before, node) and takes_the_place_of(node, before):
            view.fuse("Reshape", node, before)


# relu_clip_fusion.cc. A lower limit below 0, or none, is replaced by 0; one that is computed stops the rule.
@rule
def relu_clip(view: View) -> None:
    """Level 1, FuseReluClip: a Clip to no less than 0 does what a Relu before it does."""
    for clip in list(view.nodes("Clip")):
        relu, low = view.producer(clip.input(0), "Relu"), clip.input(1)
        if relu is not None and view.is_only_read_by(relu, clip) and (low is None or view.is_constant(low)):
            view.fuse("Clip", clip, relu)


# pad_fusion.cc
@rule
def padding(view: View) -> None:
    """Level 1, PadFusion: a Conv or a pooling adds the zeros around an image itself."""
    for pad in list(view.nodes("Pad")):
        reader = view.only_reader(pad, "Conv", "AveragePool", "MaxPool")
        sizes, value = pad.input(1), pad.input(2)
        if reader is None or sizes is None or sizes.value is None or not view.same_provider(pad, reader):
            continue
        counts = [int(count) for count in sizes.value.ravel()]
        middle = len(counts) // 2
        outside = [*counts[:2], *counts[middle : middle + 2]]
        zeros = value is None or scalar_value(value) == 0
        plain = pad.attributes.get("mode", "constant") == "constant" and pad.input(3) is None
        plain = plain and reader.attributes.get("auto_pad", "NOTSET") in ("", "NOTSET")
        plain = plain and reader.input(0) is pad.output(0) and reader.output(1) is None  # the places of maxima
        if plain and zeros and not any(outside) and min(counts) >= 0:
            view.fuse(reader.op_type, reader, pad)


_DIVIDED = frozenset({"float16", "float32", "float64", "int32", "int64"})


# div_mul_fusion.cc
@rule
def division(view: View) -> None:
    """Level 1, DivMulFusion: a product with 1 / x is a division by x."""
    for div in list(view.nodes("Div")):
        mul, result = view.only_reader(div, "Mul"), div.output(0)
        known = result is not None and result.dtype.name in _DIVIDED
        if known and mul is not None and scalar_value(div.input(0)) == 1 and view.same_provider(div, mul):
            view.fuse("Div", div, mul)


# not_where_fusion.cc
@rule
def negated_condition(view: View) -> None:
    """Level 1, NotWhereFusion: a Where swaps its branches in place of a Not."""
    for negation in list(view.nodes("Not")):
        where = view.only_reader(negation, "Where")
        condition = where is not None and where.input(0) is negation.output(0)
        if where is not None and condition and view.same_provider(negation, where):
            view.fuse("Where", where, negation)


# conv_add_fusion.cc, conv_mul_fusion.cc, conv_bn_fusion.cc: the numbers are worked into the weights and the
# bias, which must be constants for that.
@rule
def convolution_and_affine(view: View) -> None:
    """Level 1: a Conv takes up a Mul, an Add or a BatchNormalization with constants, one after the other.

    A ConvTranspose takes up a BatchNormalization alone.
    """
    for conv in list(view.nodes("Conv", "ConvTranspose")):
        bias = conv.input(2)
        if not view.is_constant(conv.input(1)) or not (bias is None or view.is_constant(bias)):
            continue
        last, kinds = conv, ("BatchNormalization", *(("Mul", "Add") if conv.op_type == "Conv" else ()))
        while (follower := _affine_follower(view, last, kinds)) and view.same_provider(conv, follower):
            view.fuse(conv.op_type, conv, follower)
            last = follower


def _affine_follower(view: View, last: Node, kinds: Sequence[str]) -> Node | None:
    """Return the only reader, where it multiplies or adds a constant to each channel."""
    follower = view.only_reader(last, *kinds)
    if follower is None:
        return None
    if follower.op_type == "BatchNormalization":
        constant = all(map(view.is_constant, follower.inputs[1:])) and not in_training(follower)
        return follower if constant else None
    result, other = last.output(0), follower.input(1)
    if other is None or result is None or not result.shape or not view.is_constant(other):
        return None
    if not view.is_same_tensor(follower.input(0), result):
        return None
    # A number for each channel stands on the axis of channels; on the last one it is for each column.
    sizes, axis = other.shape or (), 1 - len(result.shape)
    of_channels = len(sizes) >= -axis and sizes[axis] == other.elements == result.shape[1]
    return follower if of_channels or (follower.op_type == "Mul" and other.rank == 0) else None


# matmul_add_fusion.cc refuses every other type, though there are kernels for doubles.
_GEMM_TYPES = frozenset({"float32", "float16", "bfloat16"})


@rule
def matmul_add(view: View) -> None:
    """Level 1, MatMulAddFusion: MatMul + Add is a Gemm; a rank above 2 needs static sizes."""
    for matmul in list(view.nodes("MatMul")):
        add = view.only_reader(matmul, "Add")
        a, b, product = matmul.input(0), matmul.input(1), matmul.output(0)
        if add is None or a is None or b is None or not view.same_provider(matmul, add):
            continue
        # The Add of two products becomes the Gemm of the first: it is taken when the second comes.
        if not view.is_unfused(matmul) or not view.is_unfused(add):
            continue
        bias = view.other_input(add, product)
        if bias is None or not _is_gemm(a, b, bias) or (a.rank != 2 and not has_static_shape(a)):
            continue
        fused = view.fuse("Gemm", matmul, add)
        # A Gemm multiplies matrices alone: what has more axes is flattened before it and put back after it.
        fused.extra = () if a.rank == 2 else ("Reshape", "Reshape")


def _is_gemm(a: Tensor, b: Tensor, bias: Tensor) -> bool:
    """Return whether a Gemm takes these as A, B and C, constant or not.

    ``C`` is of shape (N), or beside an ``A`` of rank 2 also (1, N), (M, 1) or (M, N).
    """
    if a.dtype.name not in _GEMM_TYPES or b.rank != 2 or not a.shape or len(a.shape) < 2:
        return False
    if b.shape is None or bias.shape is None:
        return False
    rows, columns = a.shape[0], b.shape[1]
    if bias.rank == 1:
        return bias.shape[0] == columns
    matrices = a.rank == 2 and bias.rank == 2
    return matrices and bias.shape in ((1, columns), (rows, 1), (rows, columns))


# transpose_optimization/onnx_transpose_optimization.cc. What works on each element, or along axes that it
# names, works on swapped axes as well; of several inputs the others must be constants or swapped alike.
_SWAPPABLE = (
    *("Abs", "Add", "Cast", "Ceil", "Clip", "Cos", "Div", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid"),
    *("LeakyRelu", "Log", "LogSoftmax", "Max", "Min", "Mul", "Neg", "Not", "Pad", "Pow", "Reciprocal"),
    *("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin"),
    *("Slice", "Softmax", "Softplus", "Softsign", "Sqrt", "Sub", "Tanh", "Where"),
)


@rule
def transposes(view: View) -> None:
    """Level 1, TransposeOptimizer: a Transpose moves on to the next one; both go where they undo each other."""
    for node in list(view.nodes("Add", "Sub", "Mul", "Div")):
        before = [view.producer(tensor, "Transpose") for tensor in node.present_inputs]
        alone = [one for one in before if one and view.is_unfused(one) and view.is_only_read_by(one, node)]
        if len(alone) == 2 and _perm(alone[0]) == _perm(alone[1]) != ():
            view.fuse(node.op_type, node, alone[1])
    for transpose in [node for node in view.nodes("Transpose") if _perm(node)]:
        path = [transpose]
        while (reader := _swapped_next(view, path[-1])) is not None:
            path.append(reader)
            if reader.op_type == "Transpose":
                break
        last = path[-1]
        ends = {view.group[node.index].op_type for node in (transpose, last)}
        if last is transpose or last.op_type != "Transpose" or ends != {"Transpose"} or not _perm(last):
            continue
        if len(path) == 2:  # simplify.py has taken out those that undo each other at once
            view.fuse("Transpose", last, transpose)
            continue
        view.fuse(view.group[path[1].index].op_type, path[1], transpose)
        order = _perm(transpose)
        if [order[axis] for axis in _perm(last)] == sorted(order):
            view.fuse(view.group[path[-2].index].op_type, path[-2], last)


def _swapped_next(view: View, node: Node) -> Node | None:
    """Return the only reader, where it works as well on swapped axes and has no other tensor to swap."""
    reader = view.only_reader(node, "Transpose", *_SWAPPABLE)
    if reader is None or reader.output(0) is None or node.output(0) is None:
        return None
    others = [view.producer(tensor) for tensor in reader.present_inputs if not view.is_constant(tensor)]
    merged = view.group[reader.index].members
    alike = all(one is node or (one is not None and one.index in merged) for one in others)
    return reader if alike and reader.outputs[0].rank == node.outputs[0].rank else None  # type: ignore[union-attr]


# transpose_optimization/onnx_transpose_optimization.cc
@rule
def gather_after_transpose(view: View) -> None:
    """Level 1, TransposeOptimizer: a Transpose goes through a Gather of one constant index.

    What it still swaps of the axes that are left it swaps behind the Gather.
    """
    for gather in list(view.nodes("Gather")):
        transpose, index = view.producer(gather.input(0), "Transpose"), gather.input(1)
        if transpose is None or view.only_reader(transpose, "Gather") is not gather:
            continue
        if index is None or not view.is_constant(index) or index.rank != 0:
            continue
        if _perm(transpose) and view.is_unfused(gather) and view.is_unfused(transpose):
            fused, axes = view.fuse("Gather", gather, transpose), [*_perm(transpose)]
            del axes[gather.attributes.get("axis", 0)]
            fused.extra = () if axes == sorted(axes) else ("Transpose",)


def _perm(transpose: Node) -> tuple[int, ...]:
    """Return the order that the node states; TransposeOptimizer leaves alone what states none."""
    return tuple(transpose.attributes.get("perm", ()))


def _axes(transpose: Node) -> list[int]:
    """Return the order of the axes, which a Transpose without one turns round."""
    data = transpose.input(0)
    return [*(_perm(transpose) or range((data.rank or 0) if data else 0)[::-1])]


# gemm_transpose_fusion.cc
@rule
def gemm_transpose(view: View) -> None:
    """Level 1, GemmTransposeFusion: a Gemm reads and writes matrices the other way round."""
    for transpose in list(view.nodes("Transpose")):
        source, swapped = transpose.input(0), transpose.output(0)
        if swapped is None or source is None or _axes(transpose) != [1, 0] or not view.is_unfused(transpose):
            continue
        readers = [view.graph.nodes[index] for index in view.readers.get(swapped.name, ())]
        product = view.producer(source)
        bare = product is not None and product.op_type == "Gemm" and product.input(2) is None
        if product is not None and bare and view.is_only_read_by(product, transpose):
            view.fuse("Gemm", product, transpose)
        elif readers and swapped.name not in view.output_names:
            first = view.group[readers[0].index]
            if all(
                view.group[node.index].op_type == "Gemm"
                and swapped in node.inputs[:2]
                and swapped not in node.inputs[2:]
                for node in readers
            ):
                view.fuse(first.op_type, readers[0], transpose)


# qdq_transformer/, levels 1 and 2
rule(quantized_groups)


# ``IsFusableActivation`` of gemm_activation_fusion.cc. Elu and the like fuse at opset 22 too, where their
# schema changed: tried on 1.31.1.
_GEMM_ACTIVATIONS = (
    *("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "Selu", "HardSigmoid", "ThresholdedRelu", "Softplus"),
    "Softsign",
)


# gemm_activation_fusion.cc, registered for the CPU provider: CUDA has no FusedGemm.
@rule
def gemm_activation(view: View) -> None:
    """Level 2, GemmActivationFusion: on the CPU alone."""
    for node in list(view.nodes("Gemm", "MatMul")):
        fused = view.group[node.index]
        if fused.op_type != "Gemm" or fused.extra:  # a Reshape stands behind what has more axes
            continue
        last = view.graph.nodes[max(fused.members)]
        follower = view.only_reader(last, *_GEMM_ACTIVATIONS)
        if follower is None or not view.runs_on(node, "cpu") or not view.same_provider(node, follower):
            continue
        if view.is_unfused(follower):
            view.fuse("FusedGemm", node, follower)


# conv_activation_fusion.cc, which 1.31.1 runs on the CPU and others, not on CUDA: a ResNet's Conv and Relu stay
# apart there.
@rule
def convolution_activation(view: View) -> None:
    """Level 2, ConvActivationFusion: Conv + activation, on the CPU alone."""
    for conv in list(view.nodes("Conv")):
        last = view.graph.nodes[max(view.group[conv.index].members)]
        follower = view.only_reader(last, *CONVOLUTION_ACTIVATIONS)
        if follower is None or not view.runs_on(conv, "cpu") or not view.same_provider(conv, follower):
            continue
        # A Relu that a Clip has taken up is gone since level 1: the convolution then takes up the Clip.
        if view.is_unfused(follower) or view.group[follower.index].op_type == "Clip":
            view.fuse("FusedConv", conv, follower)


def _sum_taken(view: View, add: Node) -> bool:
    return any(view.is_constant(tensor) for tensor in add.present_inputs)


# quick_gelu_fusion.cc
@rule
def quick_gelu(view: View) -> None:
    """Level 2, QuickGeluFusion: x * sigmoid(a * x)."""
    for sigmoid in list(view.nodes("Sigmoid")):
        mul = view.only_reader(sigmoid, "Mul")
        if mul is None or not view.is_unfused(mul) or not view.is_unfused(sigmoid):
            continue
        if not view.rewired.isdisjoint((mul.index, sigmoid.index)):
            continue
        source = sigmoid.input(0)
        scale = view.producer(source, "Mul")
        scaled = scaled_input(view, scale) if scale else None
        chain = [sigmoid, mul]
        if scale and scaled and view.only_reader(scale, "Sigmoid") is sigmoid:
            source = scaled
            chain.insert(0, scale)
        other = view.other_input(mul, sigmoid.output(0))
        if view.is_same_tensor(other, source):
            view.fuse("QuickGelu", *chain)


# gelu_fusion.cc. PyTorch's x * (0.5 * (1 + erf)) below opset 20 is a third order of the same factors that it
# does not look for: five nodes stay.
@rule
def gelu(view: View) -> None:
    """Levels 1 and 2, GeluFusion: (x * 0.5) * (1 + erf(x / sqrt 2)) and x * (1 + erf(...)) * 0.5."""
    for erf in list(view.nodes("Erf")):
        scale = view.producer(erf.input(0), "Div", "Mul")
        add = view.only_reader(erf, "Add")
        if scale is None or add is None or scaled_input(view, scale) is None:
            continue
        source = scaled_input(view, scale)
        mul = view.only_reader(add, "Mul")
        if mul is None or source is None:
            continue
        other = view.other_input(mul, add.output(0))
        half = view.producer(other, "Mul")
        if view.is_same_tensor(other, source):
            last = view.only_reader(mul, "Mul")
            if last is not None and scaled_input(view, last) is not None:
                view.fuse("Gelu", scale, erf, add, mul, last)
        elif half is not None and view.is_same_tensor(scaled_input(view, half), source):
            view.fuse("Gelu", scale, erf, add, half, mul)


# skip_layer_norm_fusion.cc
@rule
def skip_layer_norm(view: View) -> None:
    """Level 2, SkipLayerNormFusion: Add + LayerNormalization over the last axis."""
    for norm in list(view.nodes("LayerNormalization")):
        add = view.producer(norm.input(0), "Add")
        if add is None or not view.is_only_read_by(add, norm) or not view.same_provider(add, norm):
            continue
        if not view.is_unfused(add) or not view.is_unfused(norm):
            continue
        if (
            not _last_axis(norm)
            or not inputs_have_one_shape(add)
            or _sum_taken(view, add)
            or is_half_on_cpu(view, norm)
        ):
            continue
        view.fuse("SkipLayerNormalization", add, norm)
        for tensor in add.present_inputs:
            # bias_skip_layer_norm_fusion.cc: the bias of the product before goes in as well, of one side alone:
            # the kernel has one input for it.
            bias = view.producer(tensor, "Add")
            if (
                bias is not None
                and view.is_unfused(bias)
                and _biased(view, bias, "MatMul", "MatMulNBits")
                and view.is_only_read_by(bias, add)
            ):
                view.fuse("SkipLayerNormalization", add, bias)
                break


def _last_axis(norm: Node) -> bool:
    """Return whether a LayerNormalization of known sizes is over the last of two or three axes."""
    result, axis = norm.output(0), norm.attributes.get("axis", -1)
    if result is None or result.rank not in (2, 3) or not has_static_shape(result):
        return False
    return axis in (-1, result.rank - 1)


def _biased(view: View, add: Node, *op_types: str) -> bool:
    """Return whether an Add adds a constant row to what an operator of these types gives."""
    rows = [t for t in add.present_inputs if t.rank == 1 and view.is_constant(t)]
    return bool(rows) and view.producer(view.other_input(add, rows[0]), *op_types) is not None


# bias_gelu_fusion.cc
@rule
def bias_gelu(view: View) -> None:
    """Level 2, BiasGeluFusion: Add of a constant row + Gelu."""
    for node in list(view.nodes("Gelu", "Erf")):
        fused, before = view.group[node.index], node.input(0)
        if node.op_type == "Erf" and (scale := view.producer(before, "Div", "Mul")) is not None:
            before = scaled_input(view, scale)
        add = view.producer(before, "Add")
        if fused.op_type != "Gelu" or add is None or before is None or not view.is_unfused(add):
            continue
        name = view.simplified.name(before)
        alone = {*view.readers.get(name, ())} <= {*fused.members} and name not in view.output_names
        rows = [t for t in add.present_inputs if t.rank == 1 and view.is_constant(t)]
        if alone and rows and view.same_provider(add, node) and not is_half_on_cpu(view, node):
            view.fuse("BiasGelu", add, node)


def _swaps_last(node: Node) -> bool:
    order = _axes(node)
    rank = len(order)
    return rank >= 2 and order == [*range(rank - 2), rank - 1, rank - 2]


# matmul_scale_fusion.cc
@rule
def matmul_scale(view: View) -> None:
    """Level 2, MatMulScaleFusion: constant scalars before or after a MatMul go into a FusedMatMul."""
    for matmul in list(view.nodes("MatMul")):
        if view.group[matmul.index].op_type == "Gemm" or is_half_on_cpu(view, matmul):
            continue
        for tensor in matmul.present_inputs:
            scale = view.producer(tensor, "Mul", "Div")
            if scale is None or view.only_reader(scale, "MatMul") is not matmul:
                continue
            if view.is_unfused(scale) and scaled_input(view, scale) is not None:
                view.fuse("FusedMatMul", matmul, scale)
        after = view.only_reader(matmul, "Mul", "Div")
        if after is not None and view.is_unfused(after) and scaled_input(view, after) is not None:
            view.fuse("FusedMatMul", matmul, after)
        _reshaped_transpose(view, matmul)


def _reshaped_transpose(view: View, matmul: Node) -> None:
    """TransposeOptimizer: a swap of axes between two Reshapes, as PyTorch exports keys, is one Transpose.

    A FusedMatMul takes it up where no other Transpose comes before.
    """
    # transpose_optimization/onnx_transpose_optimization.cc: [Transpose,] Reshape, Transpose, Reshape of the
    # keys.
    second = matmul.input(1)
    scale = view.producer(second, "Mul", "Div")
    if scale is not None and scale.index in view.group[matmul.index].members:
        second = scaled_input(view, scale)
    after = view.producer(second, "Reshape")
    transpose = view.producer(after.input(0), "Transpose") if after is not None else None
    before = view.producer(transpose.input(0), "Reshape") if transpose is not None else None
    if after is None or transpose is None or before is None or not _swaps_last(transpose):
        return
    chain = (before, transpose, after)
    if (
        not all(map(view.is_unfused, chain))
        or not view.same_provider(matmul, *chain)
        or not has_static_shape(second)
    ):
        return
    if not view.is_only_read_by(before, transpose) or not view.is_only_read_by(transpose, after):
        return
    first = view.producer(before.input(0), "Transpose")
    alone = first is not None and view.is_unfused(first) and view.is_only_read_by(first, before)
    if alone and first is not None and view.runs_on(matmul, "cpu"):
        view.fuse("Transpose", first, *chain)
    elif len(view.group[matmul.index].members) > 1:
        view.fuse("FusedMatMul", matmul, *chain)


# matmul_transpose_fusion.cc
@rule
def matmul_transpose(view: View) -> None:
    """Level 2, MatmulTransposeFusion: MatMuls take up a swap of the last two axes; others still read it."""
    for transpose in list(view.nodes("Transpose")):
        swapped = transpose.output(0)
        if swapped is None or not view.is_unfused(transpose) or not _swaps_last(transpose):
            continue
        if not swapped.dtype.is_float or swapped.name in view.output_names:
            continue
        readers = [view.graph.nodes[index] for index in view.readers.get(swapped.name, ())]
        # One that reads it on both sides takes up neither.
        products = [
            node
            for node in readers
            if view.group[node.index].op_type in ("MatMul", "FusedMatMul")
            and readers.count(node) == 1
            and not is_half_on_cpu(view, node)
        ]
        for matmul in products:
            view.group[matmul.index].op_type = "FusedMatMul"
        if products and len(products) == len(readers):
            view.fuse("FusedMatMul", products[0], transpose)


# matmul_integer_to_float.cc
@rule
def matmul_integer_to_float(view: View) -> None:
    """Level 2, MatMulIntegerToFloatFusion, on the CPU: MatMulInteger, Cast, Mul by both scales, a bias."""
    for matmul in list(view.nodes("MatMulInteger")):
        cast = view.only_reader(matmul, "Cast")
        mul = None if cast is None else view.only_reader(cast, "Mul")
        if cast is None or mul is None or not view.runs_on(matmul, "cpu"):
            continue
        scale = view.producer(view.other_input(mul, cast.output(0)), "Mul")
        chain = [node for node in (scale, matmul, cast, mul) if node is not None]
        if scale is None or not view.is_only_read_by(scale, mul) or not view.same_provider(*chain):
            continue
        bias = view.only_reader(mul, "Add")
        other = None if bias is None else view.other_input(bias, mul.output(0))
        if bias is not None and other is not None and other.rank == 1 and view.is_unfused(bias):
            chain.append(bias)
        view.fuse("MatMulIntegerToFloat", *chain).final = True
        _dynamic(view, matmul)


# dynamic_quantize_matmul_fusion.cc
def _dynamic(view: View, matmul: Node) -> None:
    """Level 2, DynamicQuantizeMatMulFusion: what quantises the data for this product alone joins it."""
    quantize = view.producer(matmul.input(0), "DynamicQuantizeLinear")
    if quantize is None or not view.same_provider(quantize, matmul):
        return
    names = {tensor.name for tensor in quantize.present_outputs}
    readers = {id(view.group[index]) for name in names for index in view.readers.get(name, ())}
    if readers == {id(view.group[matmul.index])} and names.isdisjoint(view.output_names):
        view.fuse("DynamicQuantizeMatMul", quantize, matmul).final = True


# bias_softmax_fusion.cc returns at once where CUDA is not among its providers.
@rule
def bias_softmax(view: View) -> None:
    """Level 2, BiasSoftmaxFusion, on CUDA alone: Add + Softmax."""
    for softmax in list(view.nodes("Softmax")):
        add = view.producer(softmax.input(0), "Add")
        if add is None or not view.runs_on(softmax, "cuda") or not view.is_unfused(add):
            continue
        known = all(has_static_shape(tensor) for tensor in add.present_inputs)
        if known and view.only_reader(add, "Softmax") is softmax and view.same_provider(add, softmax):
            view.fuse("BiasSoftmax", add, softmax)


# gather_fusion.cc. ``GatherSliceToSplitFusion`` in full also takes Slices and Gathers of one tensor together.
@rule
def slices_to_split(view: View) -> None:
    """Level 2, GatherSliceToSplitFusion: neighbouring Slices of one tensor along one axis are a Split."""
    by_source: dict[tuple[str, object], list[Node]] = {}
    for node in view.nodes("Slice"):
        parts = _slice(node)
        source = node.input(0)
        if source is not None and parts is not None and view.group[node.index].op_type == "Slice":
            name = view.data_read.get(node.index, view.simplified.name(source))
            by_source.setdefault((name, parts[0]), []).append(node)
    for (name, _), slices in by_source.items():
        ordered = sorted(slices, key=lambda node: (_slice(node) or (0, 0, 0))[1])
        if len(ordered) < 2 or not _covers(ordered):
            continue
        fused = view.fuse("Split", *ordered)
        before = view.producer(ordered[0].input(0), "Transpose")
        if before is not None and len(view.readers.get(name, ())) == len(ordered) and view.is_unfused(before):
            # transpose_optimization/onnx_transpose_optimization.cc moves the Transpose behind the Split, once
            # for each part.
            view.fuse("Split", ordered[0], before)
            fused.extra = ("Transpose",) * len(ordered)


def _slice(node: Node) -> tuple[int, int, int] | None:
    """Axis, start and end of a Slice along one axis with step 1 and known numbers."""
    starts, ends, axes, steps = (node.input(position) for position in (1, 2, 3, 4))
    if starts is None or ends is None or axes is None or starts.value is None or ends.value is None:
        return None
    if axes.value is None or starts.elements != 1 or (steps is not None and scalar_value(steps) != 1):
        return None
    return int(axes.value.reshape(-1)[0]), int(starts.value.reshape(-1)[0]), int(ends.value.reshape(-1)[0])


def _covers(ordered: Sequence[Node]) -> bool:
    source = ordered[0].input(0)
    parts = [part for part in map(_slice, ordered) if part is not None]
    if (
        source is None
        or source.shape is None
        or not has_static_shape(source)
        or parts[0][0] >= len(source.shape)
    ):
        return False
    expected = 0
    for _, start, end in parts:
        if start != expected:
            return False
        expected = end
    return expected >= (source.shape[parts[0][0]] or 0)


# gather_fusion.cc; a Squeeze takes away the axis that a Gather of one index would not have left.
@rule
def gathers_to_split(view: View) -> None:
    """Level 2, GatherSliceToSplitFusion: Gathers of every single index along one axis are a Split."""
    by_source: dict[tuple[str, int], dict[int, Node]] = {}
    for node in view.nodes("Gather"):
        source, index = node.input(0), node.input(1)
        value = scalar_value(index)
        if source is None or index is None or index.rank != 0 or value is None or not view.is_unfused(node):
            continue
        axis = int(node.attributes.get("axis", 0))
        by_source.setdefault((view.simplified.name(source), axis), {})[int(value)] = node
    for (_, axis), gathers in by_source.items():
        source = next(iter(gathers.values())).input(0)
        size = source.shape[axis] if source is not None and source.shape and axis < len(source.shape) else None
        if size is not None and len(gathers) > 1 and set(gathers) == set(range(size)):
            view.fuse("Split", *gathers.values()).extra = ("Squeeze",) * size


# matmul_nbits_fusion.cc
@rule
def matmul_nbits_bias(view: View) -> None:
    """Level 2, MatMulNBitsFusion: a product with packed weights takes up the Add of a constant row."""
    for node in view.graph.nodes:
        fused = view.group.get(node.index)
        if fused is None or fused.op_type != "MatMulNBits" or node.op_type not in ("MatMulNBits", "MatMul"):
            continue
        add = view.only_reader(node, "Add")
        if node.input(5) is not None or add is None or not view.is_unfused(add):
            continue
        if view.same_provider(node, add) and _biased(view, add, node.op_type):
            view.fuse("MatMulNBits", node, add)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kernel:
    """An executed node as the rules of layouts see it."""

    op_type: str
    node: Node
    reads: tuple[str, ...]


# nchwc_transformer.cc, on the CPU alone; which kernel works in blocks is in ``ort/blocked_layout.py``.
@rule
def blocked_convolution(view: View) -> None:
    """Level 3, NchwcTransformer: in blocks a Conv takes up an Add of what lies in blocks, and an activation."""
    # Blocks begin at a convolution or a pooling: no other graph is walked for them.
    if next(view.nodes(*CONVOLUTIONS, *POOLS), None) is None:
        return
    inside: set[str] = set()  # tensors that lie in blocks so far
    alias = view.simplified.alias
    shapes = {
        alias.get(tensor.name, tensor.name): tensor.shape
        for node in view.graph.nodes
        for tensor in node.inputs
        if tensor is not None
    }
    for fused in in_execution_order(view.group):
        kernel = _kernel(view, fused)
        if kernel is None or inputs_in_blocks(kernel, shapes, inside) is None:
            continue
        last = view.graph.nodes[max(fused.members)]
        inside.update(tensor.name for tensor in last.present_outputs)
        if kernel.op_type in SUMS and inputs_have_one_shape(kernel.node):
            _add_in_convolution(view, kernel.node)
        elif kernel.op_type in BLOCKED_CONVOLUTION_ACTIVATIONS:
            source = view.producer(kernel.node.input(0))
            first = None if source is None else _convolution(view, source)
            if source is not None and first is not None and view.is_only_read_by(source, kernel.node):
                view.fuse("FusedConv", first, kernel.node)


def _kernel(view: View, fused: Fused) -> _Kernel | None:
    """Return a CPU node as the rules of layouts see it; None where it gives no image of floats."""
    members = [view.graph.nodes[index] for index in sorted(fused.members)]
    result = members[-1].output(0)
    if fused.provider != "cpu" or result is None or result.rank != 4 or result.dtype.name != "float32":
        return None
    main = next((node for node in members if node.op_type in CONVOLUTIONS), members[0])
    # What the members hand to each other is not read from outside; the main one's own inputs come first.
    inner = {tensor.name for node in members[:-1] for tensor in node.present_outputs}
    reads = dict.fromkeys(
        name
        for node in ((main, *members) if len(members) > 1 else members)
        for name in view.variable_inputs(node)
        if name not in inner
    )
    return _Kernel(op_type=fused.op_type, node=main, reads=tuple(reads))


_ANY_ACTIVATION = frozenset(CONVOLUTION_ACTIVATIONS) | frozenset(BLOCKED_CONVOLUTION_ACTIVATIONS)


def _convolution(view: View, node: Node) -> Node | None:
    """Return the convolution whose result, or sum, this operator gives, if it has no activation yet."""
    members = view.group[node.index].members
    conv = next(
        (view.graph.nodes[index] for index in members if view.graph.nodes[index].op_type == "Conv"), None
    )
    taken = any(view.graph.nodes[index].op_type in _ANY_ACTIVATION for index in members)
    return None if taken or node.index != max(members) else conv


def _add_in_convolution(view: View, add: Node) -> None:
    """Fuse the Add into the first convolution without another reader, sum or activation."""
    # ``TransformBinary`` of nchwc_transformer.cc: the sum is the fourth input of the kernel, which has one of
    # it.
    for tensor in add.present_inputs:
        source = view.producer(tensor)
        conv = None if source is None else _convolution(view, source)
        if source is None or conv is None or not view.is_only_read_by(source, add) or not view.is_unfused(add):
            continue
        summed = [view.graph.nodes[index] for index in view.group[conv.index].members]
        if not any(node.op_type in SUMS and not _sum_taken(view, node) for node in summed):
            view.fuse("FusedConv", conv, add)
            return
