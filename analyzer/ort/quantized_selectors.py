"""Operators that become integer kernels together with the Q and DQ nodes around them.

Mirrors ``onnxruntime/core/optimizer/qdq_transformer/selectors_actions/``: ``qdq_selectors.cc``, and which
operators it is asked about in ``qdq_selector_action_transformer.cc``. ``is_int8_allowed`` is false on x86
(``QDQIsInt8Allowed`` of core/mlas/lib), which is assumed: int8 activations have been made uint8 first.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from analyzer.ort.rewriting import (
    DEQUANTIZE,
    QUANTIZE,
    SMALL,
    WIDE,
    ExecutedNode,
    Rewriting,
    has_scalars,
    input_of,
    quantize_alike,
    scalar,
)

_PACKED = frozenset({"int4", "uint4"})
_N_BITS = frozenset({"int2", "uint2", *_PACKED, *SMALL})
_Selector = Callable[[Rewriting, ExecutedNode], bool]


def select(graph: Rewriting, executed: ExecutedNode) -> None:
    """Make an integer kernel of a node and the Q and DQ around it, where there is one."""
    for rule in _SELECTORS.get(executed.op_type, ()):
        if executed.alive and (executed.provider == "cpu" or rule is _packed_product) and rule(graph, executed):
            return


class _Around:
    """The DQ nodes before a node, the Q nodes behind it, and a Relu or Clip between that changes nothing."""

    def __init__(self, graph: Rewriting, executed: ExecutedNode) -> None:
        self.graph, self.executed = graph, executed
        self.before: list[ExecutedNode] = []
        for name in executed.reads:
            producer = graph.producer(name, DEQUANTIZE)
            if producer is not None and producer not in self.before:
                self.before.append(producer)
        self.edges = [
            edge for position in range(len(executed.writes)) for edge in graph.edges(executed, position)
        ]
        self.clip: ExecutedNode | None = None
        if len(self.edges) == 1 and self.edges[0][0].op_type in ("Relu", "Clip"):
            limiter = self.edges[0][0]
            alone = len(graph.edges(limiter)) == 1 and not graph.gives_output(limiter)
            self.clip = limiter if alone else None
        edges = graph.edges(self.clip) if self.clip else self.edges
        self.behind = [reader for reader, position in edges if reader.op_type == QUANTIZE and position == 0]
        self.possible = self.clip is None or (
            len(self.behind) == 1 and is_redundant(graph, self.clip, self.behind[0])
        )

    @property
    def read(self) -> list[str]:
        """Types of what the DQ nodes read."""
        return [self.graph.types.get(executed.reads[0] or "", "") for executed in self.before]

    @property
    def written(self) -> list[str]:
        """Types of what the Q nodes write."""
        return [self.graph.types.get(executed.writes[0] or "", "") for executed in self.behind]

    def forms_group(self, inputs: int | None = None, *, floats_out: bool = False) -> bool:
        """``CheckQDQNodes``: so many DQ nodes that nobody else reads, and a Q at each output."""
        graph, executed = self.graph, self.executed
        wanted = sum(name is not None for name in executed.reads) if inputs is None else inputs
        if not self.possible or len(self.before) != wanted or not self.alone():
            return False
        if not self.behind:
            return floats_out
        outputs = sum(name is not None for name in executed.writes)
        if outputs != len(self.behind) or graph.gives_output(executed):
            return False
        return len(self.edges) == len(self.behind)

    def alone(self) -> bool:
        """``NodeGroup::CanCreateNodeGroup``: each DQ is read by this node alone, once."""
        return all(self.graph.only_edge(each) is not None for each in self.before)

    def becomes(self, op_type: str) -> bool:
        """Make one node of all of them."""
        graph, executed = self.graph, self.executed
        executed.op_type = op_type
        for each in self.before:
            slot = next(position for position, name in enumerate(executed.reads) if name == each.writes[0])
            source = each.reads[0]
            executed.members += each.members
            each.taken_by = executed
            graph.remove(each)
            graph.read_instead(executed, slot, source)
        if self.clip is not None:
            executed.members += self.clip.members
            graph.remove(self.clip)
        for each in self.behind:
            last = executed if self.clip else graph.producer(each.reads[0])
            slot = 0 if last is not executed or self.clip else executed.writes.index(each.reads[0])
            result = each.writes[0] or ""
            executed.members += each.members
            graph.remove(each)
            graph.write_instead(executed, slot, result)
        return True


# ``IsClipMadeRedundantByQ`` of qdq_util.cc
def is_redundant(graph: Rewriting, clip: ExecutedNode, quantize: ExecutedNode) -> bool:
    """Return whether the range of a Q lies inside the limits of a Relu or Clip."""
    scale = scalar(graph, input_of(quantize, 1))
    zero_point = scalar(graph, input_of(quantize, 2))
    kind = graph.types.get(quantize.writes[0] or "", "")
    if scale is None or scale.value is None or kind not in SMALL | WIDE:
        return False
    if input_of(quantize, 2) is not None and (zero_point is None or zero_point.value is None):
        return False
    limits = np.iinfo(kind)
    zero = 0
    if zero_point is not None and zero_point.value is not None:
        # What int8 data became uint8 with has moved with it.
        moved = 128 if zero_point.dtype.name == "int8" and kind == "uint8" else 0
        zero = int(zero_point.value.reshape(-1)[0]) + moved
    if clip.op_type == "Relu":
        return bool(zero == limits.min)
    low, high = _clip_limits(graph, clip)
    each = float(scale.value.reshape(-1)[0])
    if low is None or high is None or each <= 0:
        return False
    return bool(_steps(low, each) + zero <= limits.min and _steps(high, each) + zero >= limits.max)


def _steps(value: float, scale: float) -> int:
    return round(max(-1e9, min(1e9, value / scale)))


def _clip_limits(graph: Rewriting, clip: ExecutedNode) -> tuple[float | None, float | None]:
    attributes = clip.operator.attributes if clip.operator is not None else {}
    limits: list[float | None] = []
    for position, name, default in ((1, "min", -math.inf), (2, "max", math.inf)):
        given = input_of(clip, position)
        tensor = scalar(graph, given)
        if given is None:
            limits.append(float(attributes.get(name, default)))
        else:
            limits.append(
                None if tensor is None or tensor.value is None else float(tensor.value.reshape(-1)[0])
            )
    return limits[0], limits[1]


def _split(graph: Rewriting, executed: ExecutedNode) -> bool:
    """SplitNodeGroupSelector: Split of integers, where all quantise alike."""
    around = _Around(graph, executed)
    if around.clip is not None or not around.forms_group(1):
        return False
    (source,) = around.before
    alike = all(quantize_alike(graph, quantize, source) for quantize in around.behind)
    known = set(around.written) == set(around.read) and not set(around.read) & _PACKED
    return alike and known and around.becomes("Split")


def _without_both(*, wide: bool, positive: bool = False) -> _Selector:
    """DropQDQNodeGroupSelector: the operator on integers, where both quantise alike."""

    def rule(graph: Rewriting, executed: ExecutedNode) -> bool:
        node = executed.operator
        if executed.op_type == "MaxPool" and node is not None and node.version < _MAX_POOL_OF_INTEGERS:
            return False
        # microsoft/onnxruntime#28414: what lies between two integers is not what lies between what they stand
        # for.
        if executed.op_type == "Resize" and node and node.attributes.get("mode", "nearest") != "nearest":
            return False
        around = _Around(graph, executed)
        if around.clip is not None or not around.forms_group(1) or not around.behind:
            return False
        if around.read[0] != around.written[0] or around.read[0] in _PACKED:
            return False
        if not wide and around.read[0] in WIDE:
            return False
        scale = scalar(graph, input_of(around.behind[0], 1))
        if positive and (scale is None or scale.value is None or float(scale.value.reshape(-1)[0]) <= 0):
            return False
        return quantize_alike(graph, around.behind[0], around.before[0]) and around.becomes(executed.op_type)

    return rule


_MAX_POOL_OF_INTEGERS = 12


def _without_dequantize(graph: Rewriting, executed: ExecutedNode) -> bool:
    """DropDQNodeGroupSelector: the operator reads integers."""
    around = _Around(graph, executed)
    if len(around.before) != 1 or not around.alone() or around.read[0] in WIDE | _PACKED:
        return False
    if not has_scalars(graph, around.before[0]) or input_of(around.before[0], 2) is None:
        return False
    around.behind = []
    around.clip = None
    return around.becomes(executed.op_type)


def _q_linear(op_type: str, inputs: Callable[[Rewriting, _Around], int | None] = lambda *_: None) -> _Selector:
    """UnaryNodeGroupSelector, WhereNodeGroupSelector and their kind: all of one integer type of 8 bits."""

    def rule(graph: Rewriting, executed: ExecutedNode) -> bool:
        around = _Around(graph, executed)
        kinds = {*around.read, *around.written}
        alike = len(kinds) == 1 and kinds <= SMALL
        wanted = inputs(graph, around)
        return around.forms_group(wanted) and bool(around.behind) and alike and around.becomes(op_type)

    return rule


def _convolution(graph: Rewriting, executed: ExecutedNode) -> bool:
    """ConvNodeGroupSelector: data and result of one type, weights of 8 bits, a bias of int32."""
    around = _Around(graph, executed)
    if not around.forms_group() or not around.behind or len(around.before) < 2:
        return False
    data, weight, *bias = around.read
    if data != around.written[0] or data != "uint8" or weight not in SMALL or (bias and bias[0] != "int32"):
        return False
    return around.becomes("QLinearConv")


def _matmul(graph: Rewriting, executed: ExecutedNode) -> bool:
    """MatMulNodeGroupSelector: QLinearMatMul with a Q behind it, MatMulIntegerToFloat without."""
    around = _Around(graph, executed)
    if len(around.before) != 2 or not around.possible:
        return False
    data, weight = around.read
    if data != "uint8" or weight not in SMALL:
        return False
    if not around.behind:
        return around.clip is None and around.alone() and around.becomes("MatMulIntegerToFloat")
    return around.forms_group() and around.written[0] == data and around.becomes("QLinearMatMul")


def _gemm(graph: Rewriting, executed: ExecutedNode) -> bool:
    """GemmNodeGroupSelector: QGemm, whose result may stay float."""
    around = _Around(graph, executed)
    if not around.forms_group(floats_out=True) or len(around.before) < 2:
        return False
    data, weight, *bias = around.read
    if (data == "int8" and weight != data) or {data, weight} - SMALL:
        return False
    if around.behind and around.written[0] != data:
        return False
    beta = executed.operator.attributes.get("beta", 1.0) if executed.operator is not None else 1.0
    if bias and (bias[0] != "int32" or beta != 1.0):
        return False
    return around.becomes("QGemm")


def _packed_product(graph: Rewriting, executed: ExecutedNode) -> bool:
    """DQMatMulNodeGroupSelector: a product with weights of few bits, packed in blocks along K."""
    around = _Around(graph, executed)
    if around.clip is not None or around.behind or len(around.before) != 1:
        return False
    (weight,) = around.before
    if input_of(executed, 1) != weight.writes[0] or graph.only_edge(weight) is None:
        return False
    if executed.op_type == "Gemm" and not _is_plain(graph, executed, weight):
        return False
    return _is_packed(graph, weight) and around.becomes("MatMulNBits")


# ``ValidateGemmForDQMatMulNBits``
def _is_plain(graph: Rewriting, gemm: ExecutedNode, weight: ExecutedNode) -> bool:
    """Return whether a Gemm is a MatMul and a row that is added."""
    attributes = gemm.operator.attributes if gemm.operator is not None else {}
    if attributes.get("transA", 0) or attributes.get("transB", 0) or attributes.get("alpha", 1.0) != 1.0:
        return False
    bias = input_of(gemm, 2)
    if bias is None:
        return True
    row, stored = graph.tensors.get(bias), graph.tensors.get(weight.reads[0] or "")
    if row is None or stored is None or attributes.get("beta", 1.0) != 1.0:
        return False
    return bool(stored.shape) and row.shape == stored.shape[-1:]  # type: ignore[index]  # bool says so


# ``ValidateDQForMatMulNBits``
def _is_packed(graph: Rewriting, dequantize: ExecutedNode) -> bool:
    """Return whether weights are constants of few bits, with scales for blocks along K, for columns, or one."""
    node = dequantize.operator
    names = [name for name in dequantize.reads if name is not None]
    if node is None or not all(map(graph.is_constant, names)):
        return False
    weight, scale, *zero_point = (graph.tensors[name] for name in names)
    block, axis = node.attributes.get("block_size", 0), dequantize.axis
    if weight.dtype.name not in _N_BITS or scale.dtype.name not in ("float32", "float16") or weight.rank != 2:
        return False
    # The action takes the stored weights away: nobody else may read them.
    if len(graph.readers.get(weight.name, ())) != 1 or any(each.rank != scale.rank for each in zero_point):
        return False
    if block:
        return axis == 0 and block >= _SMALLEST_BLOCK and not block & (block - 1) and scale.rank == 2
    return scale.rank == 0 or (scale.rank == 1 and axis == 1 and scale.elements == (weight.shape or (0, 0))[1])


_SMALLEST_BLOCK = 16


def _inputs_of_where(graph: Rewriting, around: _Around) -> int:
    """After where_dummy_dq.cc gave a constant scalar a DQ of its own."""
    reads = around.executed.reads[1:3]
    return 1 if len(around.before) == 1 and any(scalar(graph, name) is not None for name in reads) else 2


_MOVED = _without_both(wide=True)
_SELECTORS: dict[str, tuple[_Selector, ...]] = {
    "Split": (_split,),
    "Resize": (_without_both(wide=False),),
    **dict.fromkeys(("MaxPool", "ReduceMax", "ReduceMin"), (_without_both(wide=False, positive=True),)),
    **dict.fromkeys(
        (
            *("Expand", "Flatten", "Gather", "GatherElements", "Reshape", "Slice", "Squeeze", "Tile"),
            *("Transpose", "Unsqueeze"),
        ),
        (_MOVED,),
    ),
    "ArgMax": (_without_dequantize,),
    **{
        op_type: (_q_linear(f"QLinear{op_type}", lambda *_: 1),)
        for op_type in ("AveragePool", "LeakyRelu", "GlobalAveragePool", "Sigmoid", "Softmax")
    },
    "Add": (_q_linear("QLinearAdd"),),
    "Mul": (_q_linear("QLinearMul"),),
    "Concat": (_q_linear("QLinearConcat"),),
    "Conv": (_convolution,),
    "MatMul": (_matmul, _packed_product),
    "Gemm": (_gemm, _packed_product),
    "Where": (_q_linear("QLinearWhere", _inputs_of_where),),
}
