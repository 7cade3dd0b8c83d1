"""A5xx: fusions that ONNX Runtime misses because of how the model is written, and float64 on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from analyzer.checks.phrases import by_place, called, moved, runs, tensor_bytes, total, whole
from analyzer.checks.registry import Found, Subject, rule
from analyzer.record.analysis import Analysis, GroupResult, OperatorResult, TensorInfo
from analyzer.text import first_few, plural
from analyzer.units import factor, seconds

_CHAIN = frozenset({"Mul", "Div", "Add", "Pow", "Cast"})
_DEPTH = 8  # Operators between x and its Tanh: six in the longest form met.


@dataclass(frozen=True, kw_only=True)
class Dataflow:
    """Who makes and who reads each tensor of an analysis, and what each operator is executed as."""

    analysis: Analysis

    @cached_property
    def makers(self) -> dict[str, OperatorResult]:
        """The operator that writes each tensor."""
        return {tensor.name: op for op in self.analysis.operators for tensor in op.outputs}

    @cached_property
    def readers(self) -> dict[str, tuple[OperatorResult, ...]]:
        """The operators that read each tensor, each once."""
        found: dict[str, dict[int, OperatorResult]] = {}
        for op in self.analysis.operators:
            for tensor in op.inputs:
                found.setdefault(tensor.name, {})[op.index] = op
        return {name: tuple(ops.values()) for name, ops in found.items()}

    @cached_property
    def groups(self) -> dict[int, GroupResult]:
        """What executes each operator: in the CUDA session where there is one, else in the CPU's."""
        sessions = {group.session for group in self.analysis.groups}
        session = "cuda" if "cuda" in sessions else "cpu"
        return {
            index: group
            for group in self.analysis.groups
            if group.session == session
            for index in group.members
        }

    def maker(self, tensor: TensorInfo) -> OperatorResult | None:
        """The operator that writes a tensor."""
        return self.makers.get(tensor.name)

    def only_reader(self, operator: OperatorResult) -> OperatorResult | None:
        """The one operator that reads an operator's one output, None where there are several."""
        found = [op for tensor in operator.outputs for op in self.readers.get(tensor.name, ())]
        return found[0] if len(found) == 1 else None

    def fused_as(self, operator: OperatorResult, *words: str) -> bool:
        """Whether it is executed as part of something whose type holds one of these words, or not at all."""
        group = self.groups.get(operator.index)
        return group is None or any(word in group.op_type for word in words)


Pattern = tuple[OperatorResult, ...]


@rule("A501", "gelu-not-fused", "warning")
def gelu_not_fused(subject: Subject) -> Iterator[Found]:
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
    wiring = Dataflow(analysis=subject.analysis)
    found = [
        _gelu(op, wiring)
        for op in subject.analysis.operators
        if op.op_type in ("Erf", "Tanh") and runs_here(op)
    ]
    opset = subject.analysis.model.opset
    older = "export at opset 20 or newer (--opset 20), where GELU is one operator"
    newer = "write it as torch.nn.functional.gelu, which is one operator at this opset"
    yield from _missed(
        "GELU", [pattern for pattern in found if pattern], wiring, older if opset < 20 else newer
    )


@rule("A502", "norm-not-fused", "warning")
def norm_not_fused(subject: Subject) -> Iterator[Found]:
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
    wiring = Dataflow(analysis=subject.analysis)
    norms = [
        _norm(op, wiring) for op in subject.analysis.operators if op.op_type == "ReduceMean" and runs_here(op)
    ]
    layer = [pattern for kind, pattern in norms if kind == "LayerNorm"]
    rms = [pattern for kind, pattern in norms if kind == "RMSNorm"]
    older = "use torch.nn.RMSNorm and export at opset 23 (--opset 23), where it is one operator"
    newer = "use torch.nn.RMSNorm, which is one operator at this opset"
    yield from _missed("RMSNorm", rms, wiring, newer if subject.analysis.model.opset >= 23 else older)
    yield from _missed("LayerNorm", layer, wiring, "use torch.nn.LayerNorm, which is one operator")


@rule("A503", "float64-on-gpu", "warning")
def float64_on_gpu(subject: Subject) -> Iterator[Found]:
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
    found = [
        op for op in subject.analysis.operators if _is_float64(op) and op.gpu and op.gpu.placed_on == "cuda"
    ]
    if gpu is None or not found:
        return
    slow, fast = gpu.peak_flops_per_s.get("fp64"), gpu.peak_flops_per_s.get("fp32")
    rate = f"; {gpu.name} computes float64 {factor(fast / slow)} slower than float32" if slow and fast else ""
    time = total(op.gpu.time_s for op in found if op.gpu is not None)
    yield Found(
        operator=found[0],
        message=f"{plural(len(found), 'operator')} computing in float64 on the GPU, {seconds(time)}: "
        f"{first_few([called(op) for op in found])}{rate}",
        fix="make it float32 at the first of them (x.float(), dtype=torch.float32)",
        seconds=time,
        bytes=moved(found),
    )


def runs_here(operator: OperatorResult) -> bool:
    """Whether an operator is executed by the session in question."""
    return operator.gpu is None or runs(operator)


def _is_float64(operator: OperatorResult) -> bool:
    return runs(operator) and any(tensor.dtype == "float64" for tensor in operator.outputs)


def _missed(name: str, patterns: list[Pattern], wiring: Dataflow, fix: str) -> Iterator[Found]:
    """One finding for all patterns whose anchor comes from one source line."""
    by_anchor = {pattern[0].index: pattern for pattern in patterns}
    for anchors in by_place(pattern[0] for pattern in patterns):
        members = [op for anchor in anchors for op in by_anchor[anchor.index]]
        kernels = len({wiring.groups[op.index].name for op in members if op.index in wiring.groups})
        inner = {
            tensor.name: tensor for op in members for tensor in op.outputs if _stays(tensor, members, wiring)
        }
        avoidable = total(2 * size for size in map(tensor_bytes, inner.values()) if size is not None)
        time = total(op.gpu.time_s if op.gpu is not None else op.cpu.time_s for op in members)
        count = (
            f"{len(anchors)} {name}s" if len(anchors) > 1 else f"a {name}" if name == "GELU" else f"one {name}"
        )
        yield Found(
            operator=anchors[0],
            message=f"{count} executed as {plural(kernels, 'separate operator')} in {seconds(time)} "
            f"({first_few(list(dict.fromkeys(op.module or op.name for op in anchors)))})",
            fix=fix,
            seconds=time,
            bytes=whole(avoidable),
        )


def _stays(tensor: TensorInfo, members: list[OperatorResult], wiring: Dataflow) -> bool:
    """Whether a tensor is made and read by the pattern alone, so that a fused kernel would not store it."""
    inside = {op.index for op in members}
    readers = wiring.readers.get(tensor.name, ())
    return bool(readers) and all(reader.index in inside for reader in readers)


def _gelu(anchor: OperatorResult, wiring: Dataflow) -> Pattern:
    """The operators of a GELU around its Erf or Tanh; empty where it is none or is fused.

    x -> scale -> Erf -> Add(1) -> Mul with x and 0.5, in any order of the products; the tanh form has
    x + c x^3 in front.
    """
    if wiring.fused_as(anchor, "Gelu"):
        return ()
    before, seen = _to_origin(anchor, wiring)
    plus = wiring.only_reader(anchor)
    if not seen or plus is None or plus.op_type != "Add" or not any(t.constant for t in plus.inputs):
        return ()
    products, closed = _products(plus, seen, wiring)
    return (anchor, *before, plus, *products) if closed else ()


def _to_origin(anchor: OperatorResult, wiring: Dataflow) -> tuple[list[OperatorResult], set[str]]:
    """The operators between x and the anchor, and all tensors on the way, x included.

    Walks back, always over the latest tensor, until one tensor is left: for Erf after its scale, for Tanh after
    the way has forked (x + c x^3). Without such an x the set is empty.
    """
    edge = {tensor.name for tensor in anchor.inputs if not tensor.constant}
    seen, found = set(edge), []
    forked = anchor.op_type == "Erf"
    for _ in range(_DEPTH):
        makers = [maker for name in edge if (maker := wiring.makers.get(name)) is not None]
        latest = max(makers, key=lambda op: op.index, default=None)
        if latest is None or latest.op_type not in _CHAIN:
            break
        edge -= {tensor.name for tensor in latest.outputs}
        edge |= {tensor.name for tensor in latest.inputs if not tensor.constant}
        seen |= edge
        found.append(latest)
        forked = forked or len(edge) > 1
        if forked and len(edge) == 1:
            return found[::-1], seen
    return [], set()


def _products(plus: OperatorResult, seen: set[str], wiring: Dataflow) -> tuple[list[OperatorResult], bool]:
    """The products after 1 + erf, and whether x is one of their factors."""
    found: dict[int, OperatorResult] = {}
    closed = False
    current = wiring.only_reader(plus)
    for _ in range(3):
        if current is None or current.op_type not in ("Mul", "Cast"):
            break
        found[current.index] = current
        for tensor in current.inputs:
            side = wiring.maker(tensor)
            if tensor.name in seen:
                closed = True
            elif side is not None and side.op_type in ("Mul", "Div") and _scales(side, seen):
                found[side.index] = side
                closed = True
        current = wiring.only_reader(current)
        if closed and (current is None or not any(tensor.constant for tensor in current.inputs)):
            break
    return list(found.values()), closed


def _scales(operator: OperatorResult, seen: set[str]) -> bool:
    """Whether an operator is a tensor of the way times a constant."""
    return any(tensor.constant for tensor in operator.inputs) and any(t.name in seen for t in operator.inputs)


def _norm(mean: OperatorResult, wiring: Dataflow) -> tuple[str, Pattern]:
    """The operators of a norm around its mean of squares, and which norm it is."""
    nothing: tuple[str, Pattern] = ("", ())
    if wiring.fused_as(mean, "LayerNorm", "RMSNorm"):
        return nothing
    square = wiring.maker(mean.inputs[0]) if mean.inputs else None
    if square is None or not _is_square(square):
        return nothing
    tail = _tail(mean, square.inputs[0].name, wiring)
    if not tail:
        return nothing
    centre = wiring.maker(square.inputs[0])
    is_layer = centre is not None and centre.op_type == "Sub"
    return ("LayerNorm" if is_layer else "RMSNorm"), (mean, square, *tail)


def _is_square(operator: OperatorResult) -> bool:
    names = [tensor.name for tensor in operator.inputs]
    if operator.op_type == "Pow" and len(names) == 2:
        return operator.inputs[1].constant
    return operator.op_type == "Mul" and len(names) == 2 and names[0] == names[1]


def _tail(mean: OperatorResult, name: str, wiring: Dataflow) -> Pattern:
    """Add(eps), Sqrt, a quotient of x (or a reciprocal and a product), then the weight where there is one."""
    found: list[OperatorResult] = []
    current: OperatorResult | None = mean
    for expected in (("Add",), ("Sqrt",)):
        current = wiring.only_reader(current) if current is not None else None
        if current is None or current.op_type not in expected:
            return ()
        found.append(current)
    while (current := wiring.only_reader(current) if current is not None else None) is not None:
        if current.op_type not in ("Reciprocal", "Mul", "Div", "Cast"):
            break
        found.append(current)
        if len(found) >= 4 and any(tensor.constant for tensor in current.inputs):
            break
    closes = any(op.op_type in ("Mul", "Div") and name in {tensor.name for tensor in op.inputs} for op in found)
    return tuple(found) if closes else ()
