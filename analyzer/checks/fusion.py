"""Findings about fusion, and the matching of operators."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from analyzer.checks.device_answers import (
    by_source_line,
    bytes_moved,
    is_executed,
    operator_label,
    tensor_bytes,
    total,
)
from analyzer.checks.registry import Diagnostic, Subject, rule
from analyzer.record.analysis import Analysis, GroupResult, OperatorResult, TensorInfo
from analyzer.text import first_few, plural
from analyzer.units import factor, seconds

Key = Callable[[OperatorResult], Hashable]


@dataclass(frozen=True, kw_only=True)
class Dataflow:
    """The writer and the readers of each tensor of an analysis, and the executed node of each operator."""

    analysis: Analysis

    @cached_property
    def makers(self) -> dict[str, OperatorResult]:
        """The operator that writes each tensor."""
        return {tensor.name: op for op in self.analysis.operators for tensor in op.outputs}

    @cached_property
    def readers(self) -> dict[str, tuple[OperatorResult, ...]]:
        """The operators that read each tensor, each once."""
        readers_by_tensor: dict[str, dict[int, OperatorResult]] = {}
        for op in self.analysis.operators:
            for tensor in op.inputs:
                readers_by_tensor.setdefault(tensor.name, {})[op.index] = op
        return {name: tuple(ops.values()) for name, ops in readers_by_tensor.items()}

    @cached_property
    def groups(self) -> dict[int, GroupResult]:
        """The executed group of each operator: in the CUDA session where there is one, else in the CPU's."""
        sessions = {group.session for group in self.analysis.groups}
        session = "cuda" if "cuda" in sessions else "cpu"
        return {
            index: group
            for group in self.analysis.groups
            if group.session == session
            for index in group.members
        }

    def maker(self, tensor: TensorInfo) -> OperatorResult | None:
        """Return the operator that writes a tensor."""
        return self.makers.get(tensor.name)

    def only_reader(self, operator: OperatorResult) -> OperatorResult | None:
        """Return the one operator that reads an operator's one output, None where there are several."""
        readers = [op for tensor in operator.outputs for op in self.readers.get(tensor.name, ())]
        return readers[0] if len(readers) == 1 else None

    def fused_as(self, operator: OperatorResult, *words: str) -> bool:
        """Return whether it is executed within a type that holds one of these words, or not at all."""
        group = self.groups.get(operator.index)
        # In no group: folded away, so that nothing is executed apart. Types vary (Gelu, BiasGelu, FastGelu):
        # a word of them is looked for.
        return group is None or any(word in group.op_type for word in words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Operators of a base and a new analysis: pairs in the new one's order, the others each in its own."""

    pairs: tuple[tuple[OperatorResult, OperatorResult], ...]
    gone: tuple[OperatorResult, ...]
    new: tuple[OperatorResult, ...]


def match(base: Analysis, new: Analysis) -> Match:
    """Pair operators by ever weaker keys; what is left pairs with nothing.

    Module path and type always agree. Within them first the name and shapes decide, then the source line's
    text, then shapes, then the order. Where a model has no module paths (an ``.onnx`` file), the name has to
    agree, or else type and output shapes, in order.
    """
    left, right = list(base.operators), list(new.operators)
    pairs: list[tuple[OperatorResult, OperatorResult]] = []
    for key in _KEYS:
        pairs_by_key = _pair(left, right, key)
        taken_left = {old.index for old, _ in pairs_by_key}
        taken_right = {now.index for _, now in pairs_by_key}
        left = [op for op in left if op.index not in taken_left]
        right = [op for op in right if op.index not in taken_right]
        pairs.extend(pairs_by_key)
    pairs.sort(key=lambda pair: pair[1].index)
    return Match(pairs=tuple(pairs), gone=tuple(left), new=tuple(right))


def _pair(
    left: Iterable[OperatorResult], right: Iterable[OperatorResult], key: Key
) -> list[tuple[OperatorResult, OperatorResult]]:
    """Pair the k-th of each key on one side with the k-th on the other."""
    waiting: dict[Hashable, list[OperatorResult]] = {}
    for operator in left:
        if key(operator) is not None:
            waiting.setdefault(key(operator), []).append(operator)
    for queue in waiting.values():
        queue.reverse()  # popped from the end: first in, first out
    pairs = []
    for operator in right:
        queue = waiting.get(key(operator), [])
        if queue:
            pairs.append((queue.pop(), operator))
    return pairs


def _place(operator: OperatorResult) -> tuple[str, ...]:
    return (operator.phase or "", operator.module, operator.domain, operator.op_type)


def _shapes(operator: OperatorResult) -> tuple[Hashable, ...]:
    return tuple(tensor.shape for tensor in operator.outputs)


# Strongest first: a rename must not take the partner of an operator that kept its name.
_KEYS: tuple[Key, ...] = (
    lambda op: (*_place(op), op.name, _shapes(op)),
    # An exporter numbers names anew at each change (add_17, add_18): alongside a module path a name is no key.
    lambda op: None if op.module else (*_place(op), op.name),
    # The line's text, not its number: a comment above it moves every line below.
    lambda op: (
        (*_place(op), op.source.code, _shapes(op)) if op.module and op.source and op.source.code else None
    ),
    lambda op: (*_place(op), _shapes(op)),
    lambda op: _place(op) if op.module else None,
)


_CHAIN = frozenset({"Mul", "Div", "Add", "Pow", "Cast"})
_DEPTH = 8  # operators between x and its Tanh: six in the longest form met


Pattern = tuple[OperatorResult, ...]


@rule("A501", "gelu-not-fused", "warning")
def gelu_not_fused(subject: Subject) -> Iterator[Diagnostic]:
    """A GELU is executed as separate operators.

    What:
        The model holds a GELU spelt out with Erf or Tanh, in a form that ONNX Runtime's GeluFusion does not
        match, so each of its operators is a kernel of its own.

    Why:
        One kernel reads and writes the tensor once; five read and write it five times. GELU is
        memory-bound, so this is nearly all of its time.

    Fix:
        `torch.nn.GELU()` or `torch.nn.functional.gelu`, exported at opset 20 or newer, is one operator.
        Below that opset the exporter writes x * (0.5 * (1 + erf)), which is not matched.

    Example:
        `0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))` in a hand-written MLP
        block: write `F.gelu(x, approximate="tanh")`.
    """
    dataflow = Dataflow(analysis=subject.analysis)
    opset = subject.analysis.model.opset
    # ai.onnx Gelu exists from opset 20 on (onnx/defs/math/defs.cc). Below it ONNX Runtime matches x / sqrt(2)
    # -> Erf -> + 1, and then times x * 0.5 or times x times 0.5 (onnxruntime/core/optimizer/gelu_fusion.cc).
    older = "export at opset 20 or newer (--opset 20), where GELU is one operator"
    newer = "write it as torch.nn.functional.gelu, which is one operator at this opset"
    yield from _missed("GELU", list(gelus(dataflow)), dataflow, older if opset < 20 else newer)


@rule("A502", "norm-not-fused", "warning")
def norm_not_fused(subject: Subject) -> Iterator[Diagnostic]:
    """An RMSNorm or LayerNorm is executed as separate operators.

    What:
        The model normalises by the root of a mean of squares in a form that ONNX Runtime does not fuse into
        one kernel.

    Why:
        Six or seven kernels instead of one, each of them reading and writing the whole tensor or waiting
        for a tiny one.

    Fix:
        RMSNorm: `torch.nn.RMSNorm` exported at opset 23 is one operator; the exporter's form below that
        opset (Reciprocal and Mul) is not matched. LayerNorm: use `torch.nn.LayerNorm`.

    Example:
        `x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * self.weight` in a Llama block.
    """
    dataflow = Dataflow(analysis=subject.analysis)
    result = list(norms(dataflow))
    layer = [pattern for kind, pattern in result if kind == "LayerNorm"]
    rms = [pattern for kind, pattern in result if kind == "RMSNorm"]
    # ai.onnx RMSNormalization exists from opset 23 on (onnx/defs/nn/defs.cc); SimplifiedLayerNormFusion wants
    # Div by the Sqrt (onnxruntime/core/optimizer/layer_norm_fusion.cc), where PyTorch's exporter writes
    # Reciprocal and Mul.
    older = "use torch.nn.RMSNorm and export at opset 23 (--opset 23), where it is one operator"
    newer = "use torch.nn.RMSNorm, which is one operator at this opset"
    yield from _missed("RMSNorm", rms, dataflow, newer if subject.analysis.model.opset >= 23 else older)
    yield from _missed("LayerNorm", layer, dataflow, "use torch.nn.LayerNorm, which is one operator")


@rule("A503", "float64-on-gpu", "warning")
def float64_on_gpu(subject: Subject) -> Iterator[Diagnostic]:
    """Operators compute in float64 on the GPU.

    What:
        These operators write float64 tensors and run on the GPU.

    Why:
        Most GPUs compute float64 at a thirty-second or a sixty-fourth of their float32 rate, and it doubles
        the bytes. Often one Python float or NumPy array made the whole chain float64.

    Fix:
        `model.float()`, `torch.tensor(..., dtype=torch.float32)`, `x.float()` at the first operator that is
        named.

    Example:
        `x * torch.from_numpy(scale)`: NumPy's default is float64, and so is everything after it.
    """
    gpu = subject.analysis.devices.gpu
    in_float64 = [
        op
        for op in subject.analysis.operators
        if is_executed(op) and op.gpu and op.gpu.placed_on == "cuda"
        if any(tensor.dtype == "float64" for tensor in op.outputs)
    ]
    if gpu is None or not in_float64:
        return
    fp64_peak, fp32_peak = gpu.peak_flops_per_s.get("fp64"), gpu.peak_flops_per_s.get("fp32")
    rate = ""
    if fp64_peak and fp32_peak:  # the catalogue need not know the fp64 peak
        rate = f"; {gpu.name} computes float64 {factor(fp32_peak / fp64_peak)} slower than float32"
    time = total(op.gpu.time_s for op in in_float64 if op.gpu is not None)
    yield Diagnostic(
        operator=in_float64[0],
        message=f"{plural(len(in_float64), 'operator')} computing in float64 on the GPU, {seconds(time)}: "
        f"{first_few([operator_label(op) for op in in_float64])}{rate}",
        fix="make it float32 at the first of them (x.float(), dtype=torch.float32)",
        seconds=time,
        bytes=bytes_moved(in_float64),
    )


def gelus(dataflow: Dataflow) -> Iterator[Pattern]:
    """Yield the operators of each GELU that is executed apart."""
    for op in dataflow.analysis.operators:
        if op.op_type in ("Erf", "Tanh") and _is_executed_here(op) and (pattern := _gelu(op, dataflow)):
            yield pattern


def norms(dataflow: Dataflow) -> Iterator[tuple[str, Pattern]]:
    """Yield which norm it is and the operators of each that is executed apart."""
    for op in dataflow.analysis.operators:
        if op.op_type == "ReduceMean" and _is_executed_here(op) and (result := _norm(op, dataflow))[0]:
            yield result


def _is_executed_here(operator: OperatorResult) -> bool:
    """Return whether an operator is executed by the session in question."""
    return operator.gpu is None or is_executed(operator)


def _missed(name: str, patterns: list[Pattern], dataflow: Dataflow, fix: str) -> Iterator[Diagnostic]:
    """Yield one finding for all patterns whose anchor comes from one source line."""
    by_anchor = {pattern[0].index: pattern for pattern in patterns}
    for anchors in by_source_line(pattern[0] for pattern in patterns):
        members = [op for anchor in anchors for op in by_anchor[anchor.index]]
        # Executed nodes, not operators: ONNX Runtime may have fused a part of the pattern.
        kernels = len({dataflow.groups[op.index].name for op in members if op.index in dataflow.groups})
        inside = {op.index for op in members}
        # What these operators alone read stays inside a fused kernel: it is neither written nor read again.
        inner = {
            tensor.name: tensor
            for op in members
            for tensor in op.outputs
            if (readers := dataflow.readers.get(tensor.name))
            and inside.issuperset(one.index for one in readers)
        }
        avoidable = [2 * size for size in map(tensor_bytes, inner.values()) if size is not None]
        time = total(op.gpu.time_s if op.gpu is not None else op.cpu.time_s for op in members)
        count = (
            f"{len(anchors)} {name}s" if len(anchors) > 1 else f"a {name}" if name == "GELU" else f"one {name}"
        )
        yield Diagnostic(
            operator=anchors[0],
            message=f"{count} executed as {plural(kernels, 'separate operator')} in {seconds(time)} "
            f"({first_few(list(dict.fromkeys(op.module or op.name for op in anchors)))})",
            fix=fix,
            seconds=time,
            bytes=sum(avoidable) if avoidable else None,
        )


def _gelu(anchor: OperatorResult, dataflow: Dataflow) -> Pattern:
    """Return the operators of a GELU around its Erf or Tanh; empty where it is none or is fused.

    x -> scale -> Erf -> Add(1) -> Mul with x and 0.5, in any order of the products; the tanh form has
    x + c x^3 in front.
    """
    if dataflow.fused_as(anchor, "Gelu"):
        return ()
    before, seen = _to_origin(anchor, dataflow)
    plus = dataflow.only_reader(anchor)
    if not seen or plus is None or plus.op_type != "Add" or not any(t.constant for t in plus.inputs):
        return ()
    products, closed = _products(plus, seen, dataflow)
    return (anchor, *before, plus, *products) if closed else ()


def _to_origin(anchor: OperatorResult, dataflow: Dataflow) -> tuple[list[OperatorResult], set[str]]:
    """Return the operators between x and the anchor, and all tensors on the way, x included.

    Walks back, always over the latest tensor, until one tensor is left: for Erf after its scale, for Tanh after
    the way has forked (x + c x^3). Without such an x the set is empty.
    """
    frontier = {tensor.name for tensor in anchor.inputs if not tensor.constant}
    seen, passed = set(frontier), []
    forked = anchor.op_type == "Erf"
    for _ in range(_DEPTH):
        makers = [maker for name in frontier if (maker := dataflow.makers.get(name)) is not None]
        # Execution order is topological: the latest maker cannot lie behind any other tensor of the frontier.
        latest = max(makers, key=lambda op: op.index, default=None)
        if latest is None or latest.op_type not in _CHAIN:
            break
        frontier -= {tensor.name for tensor in latest.outputs}
        frontier |= {tensor.name for tensor in latest.inputs if not tensor.constant}
        seen |= frontier
        passed.append(latest)
        forked = forked or len(frontier) > 1
        # x itself: all ways of the polynomial have come together again.
        if forked and len(frontier) == 1:
            return passed[::-1], seen
    return [], set()


def _products(plus: OperatorResult, seen: set[str], dataflow: Dataflow) -> tuple[list[OperatorResult], bool]:
    """Return the products after 1 + erf, and whether x is one of their factors."""
    products: dict[int, OperatorResult] = {}
    closed = False
    current = dataflow.only_reader(plus)
    for _ in range(3):  # times x, times 0.5, and a Cast between them
        if current is None or current.op_type not in ("Mul", "Cast"):
            break
        products[current.index] = current
        for tensor in current.inputs:
            side = dataflow.maker(tensor)
            if tensor.name in seen:
                closed = True
            elif side is not None and side.op_type in ("Mul", "Div") and _scales(side, seen):
                products[side.index] = side
                closed = True
        current = dataflow.only_reader(current)
        if closed and (current is None or not any(tensor.constant for tensor in current.inputs)):
            break
    return list(products.values()), closed


def _scales(operator: OperatorResult, seen: set[str]) -> bool:
    """Return whether an operator is a tensor of the way times a constant."""
    return any(tensor.constant for tensor in operator.inputs) and any(t.name in seen for t in operator.inputs)


def _norm(mean: OperatorResult, dataflow: Dataflow) -> tuple[str, Pattern]:
    """Return the operators of a norm around its mean of squares, and which norm it is."""
    nothing: tuple[str, Pattern] = ("", ())
    if dataflow.fused_as(mean, "LayerNorm", "RMSNorm"):
        return nothing
    # The mean of squares is what tells a norm from any other mean.
    square = dataflow.maker(mean.inputs[0]) if mean.inputs else None
    if square is None or not _is_square(square):
        return nothing
    tail = _tail(mean, square.inputs[0].name, dataflow)
    if not tail:
        return nothing
    centre = dataflow.maker(square.inputs[0])
    is_layer = centre is not None and centre.op_type == "Sub"
    return ("LayerNorm" if is_layer else "RMSNorm"), (mean, square, *tail)


def _is_square(operator: OperatorResult) -> bool:
    names = [tensor.name for tensor in operator.inputs]
    if operator.op_type == "Pow" and len(names) == 2:
        return operator.inputs[1].constant
    return operator.op_type == "Mul" and len(names) == 2 and names[0] == names[1]


def _tail(mean: OperatorResult, name: str, dataflow: Dataflow) -> Pattern:
    """Return Add(eps), Sqrt, a quotient of x (or a reciprocal and a product), and the weight."""
    tail: list[OperatorResult] = []
    current: OperatorResult | None = mean
    for expected in (("Add",), ("Sqrt",)):
        current = dataflow.only_reader(current) if current is not None else None
        if current is None or current.op_type not in expected:
            return ()
        tail.append(current)
    while (current := dataflow.only_reader(current) if current is not None else None) is not None:
        if current.op_type not in ("Reciprocal", "Mul", "Div", "Cast"):
            break
        tail.append(current)
        # Add, Sqrt, the quotient, then the product with the weight: a constant there closes the norm.
        if len(tail) >= 4 and any(tensor.constant for tensor in current.inputs):
            break
    closes = any(op.op_type in ("Mul", "Div") and name in {tensor.name for tensor in op.inputs} for op in tail)
    return tuple(tail) if closes else ()
