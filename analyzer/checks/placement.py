"""A1xx: what ONNX Runtime's CUDA session runs on the CPU, and the copies this costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from analyzer.checks.device_answers import (
    bytes_moved,
    device_answers,
    forced_operators,
    forced_to_cpu,
    group_label,
    is_for_cpu,
    operator_label,
    runs_nowhere,
    source_location,
    total,
)
from analyzer.checks.fusion import Dataflow
from analyzer.checks.registry import Diagnostic, Subject, rule
from analyzer.ort.kernels import registry
from analyzer.record.analysis import Analysis, BodyOperator, BodyResult, OperatorResult, TransferItem
from analyzer.record.batch_ranges import at_batch
from analyzer.text import first_few, plural
from analyzer.units import byte_count, seconds

# By the reasons of ort.execution.NodePlacement. A kernel is registered for a range of schema versions and for
# types (onnxruntime/core/framework/kernel_registry.cc): each gives another way out.
_WHY = {
    "no-cuda-kernel": "ONNX Runtime has no CUDA kernel for {it} at any opset",
    "no-kernel-for-opset": "ONNX Runtime has no CUDA kernel for {it} at opset {opset}",
    "no-kernel-for-type": "ONNX Runtime has no CUDA kernel for {it} with {types}",
    "capability": "ONNX Runtime's CUDA kernel refuses these attributes",
    # It has one itself, and the kernel that it became part of has none.
    "cuda-kernel": "ONNX Runtime fuses {it} with an operator that has no CUDA kernel",
}
_FIX = {
    "no-cuda-kernel": "use operators that have a CUDA kernel, or compute this at the model's start or end",
    "no-kernel-for-opset": "export at an opset at which it has a CUDA kernel (--opset)",
    "no-kernel-for-type": "cast the inputs to a type that has a CUDA kernel, mostly float32",
    "capability": "change the attributes that the kernel refuses, or use other operators",
    "cuda-kernel": "see to the operator that ONNX Runtime fuses it with",
}
# Of the CUDA session's latency: what copies inside the graph may take together and fail no check. A judgement:
# a plan's own error is ten times wider.
SLIGHT_COPIES = 0.02
# GetCpuPreferredNodes (onnxruntime/core/framework/fallback_cpu_capability.cc): its own decision, no fault.
_ON_PURPOSE = "shape-arithmetic"
COPIES = {"to_cpu": "to the CPU", "to_gpu": "to the GPU"}


@rule("A101", "no-cuda-kernel", "error")
def no_cuda_kernel(subject: Subject) -> Iterator[Diagnostic]:
    """An operator has no CUDA kernel and runs on the CPU.

    What:
        In a session with the CUDA and CPU providers ONNX Runtime silently runs this operator on the CPU:
        its registry holds no CUDA kernel for the operator at this opset version and element type. Of a model
        that is for the CPU as a whole at this batch, or runs as well there, and would if these operators cost
        nothing on the GPU, one note says so in place of the errors (`--fail-on A101` makes it fail all the
        same), unless another opset has the kernel. No kernel on texts is missing, nor one of a classical
        operator: these are of the CPU.

    Why:
        A kernel that is registered up to an older schema does not cover a newer one, so a newer opset can
        lose a kernel that an older one had. The GPU waits while the CPU computes, and the data crosses the
        link both ways: these copies are part of the finding. Operators of one type and cause
        are one finding; each changed line has its own.

    Fix:
        Export at the opset that the finding names (`--opset`), cast to a type that has a kernel, or replace
        the operator. Where the CPU is where it belongs, set the finding aside with a reason.

    Example:
        MaxPool has CUDA kernels up to opset 21. `torch.onnx.export(..., opset_version=23)` puts it on the
        CPU; `analyze check model.py --opset 21` passes.

        [tool.analyzer.check]
        ignore = [{ code = "A101", operator = "head.topk", reason = "runs once a batch" }]
    """
    forced = forced_operators(subject.analysis)
    if forced and is_for_cpu(subject.analysis):
        at = at_batch(subject.analysis)
        types = first_few(list(dict.fromkeys(operator.op_type for operator in forced)))
        ties = any(answer.verdict.device == "either" for answer in device_answers(subject.analysis))
        yield Diagnostic(
            message=f"{plural(len(forced), 'operator')} ({types}) without a CUDA kernel "
            f"{'stays' if len(forced) == 1 else 'stay'} on the CPU, "
            f"where the whole model {'runs as well' if ties else 'is best run'}{at}",
            fix="none is needed: run the model on the CPU",
            severity="note",
        )
        return
    if runs_nowhere(subject.analysis):
        return  # A104 says so, or A701 and A704
    copies = _by_cause(subject.analysis, shapes=False)
    for operators in _alike(subject, forced):
        items = [copy for operator in operators for copy in copies.get(operator.index, ())]
        around = f"; {_copies_text(items)}" if items else ""
        yield Diagnostic(
            operator=operators[0],
            message=f"{_fallback_message(operators, subject.analysis)}{around}",
            fix=_fallback_fix(operators[0]),
            seconds=total((*(op.cpu.time_s for op in operators), *(copy.time_s for copy in items))),
            bytes=bytes_moved(operators),
        )


def _alike(subject: Subject, forced: Iterable[OperatorResult]) -> Iterator[list[OperatorResult]]:
    """Yield operators of one type and cause together; those of a changed line, and those set aside, apart."""
    changed = {f"{where.file}:{where.line}" for hunk in subject.changed for where in hunk}
    groups = defaultdict(list)
    for op in forced:
        line, alone = source_location(op), op.index if subject.ignores("A101", op) else None
        own = (alone, line if line in changed else "")
        cause = (op.gpu and op.gpu.why, _fallback_fix(op), frozenset(tensor.dtype for tensor in op.inputs))
        groups[op.domain, op.op_type, own, cause].append(op)
    yield from groups.values()


def _copies_text(items: Sequence[TransferItem], around: str = "") -> str:
    """Return what copies take together, and what each of them moves."""
    each_copy = first_few(f"{one.tensor} {COPIES[one.direction]} ({byte_count(one.bytes)})" for one in items)
    size, time = sum(one.bytes for one in items), total(one.time_s for one in items)
    copies = f"{plural(len(items), 'copy')} between CPU and GPU{around}"
    return f"{copies}, {byte_count(size)} in {seconds(time)}: {each_copy}"


def _fallback_message(operators: Sequence[OperatorResult], analysis: Analysis) -> str:
    first, time_s = operators[0], total(op.cpu.time_s for op in operators)
    run, it = ("runs", "it") if len(operators) == 1 else ("run", "them")
    why = first.gpu.why if first.gpu is not None else ""
    types = first_few(list(dict.fromkeys(tensor.dtype for tensor in first.inputs)))
    template = _WHY.get(why, why or "ONNX Runtime has no CUDA kernel for {it}")
    took = f" ({seconds(time_s)} there)" if time_s is not None else ""
    reason = template.format(opset=analysis.model.opset, types=types, it=it)
    return f"{group_label(operators)} {run} on the CPU{took}: {reason}"


def _fallback_fix(operator: OperatorResult) -> str:
    gpu = operator.gpu
    if gpu is None:
        return ""
    # The nearest opset that has a kernel is the surest way: it changes no code.
    if gpu.kernel_opset is not None:
        return f"export at opset {gpu.kernel_opset} (--opset {gpu.kernel_opset}), where it has a CUDA kernel"
    general = _FIX.get(gpu.why, _FIX["no-cuda-kernel"])
    return f"{general}; {gpu.detail.rstrip('.')}" if gpu.detail else general


@rule("A102", "copies-inside-graph", "error")
def copies_inside_graph(subject: Subject) -> Iterator[Diagnostic]:
    """Tensors are copied between the CPU and the GPU inside the graph.

    What:
        ONNX Runtime inserts a MemcpyToHost or MemcpyFromHost wherever a tensor made on one device is read
        on the other. Those around an operator without a CUDA kernel are part of its finding (A101). Copies of
        the model's own inputs and outputs are not among these, nor is a model that is for the CPU as a whole.
        Copies that together take under 2 % of the CUDA session's latency are notes and no errors.

    Why:
        A copy waits for all work before it, crosses the link, and delays all work behind it. It often costs
        more than the operator that it is for.

    Fix:
        Keep what makes and what reads the tensor on one device. Gather what must run on the CPU at the model's
        start or end, so that one copy serves all.

    Example:
        An operator with a CUDA kernel reads what shape arithmetic and another operator made on the CPU.
    """
    analysis = subject.analysis
    if is_for_cpu(analysis):
        return
    forced = {operator.index for operator in forced_operators(analysis)}
    by_cause = {
        cause: items for cause, items in _by_cause(analysis, shapes=False).items() if cause not in forced
    }
    plan = analysis.plan("gpu")
    # Together: a hundred copies of a hundredth each are the whole time.
    taken = sum(transfer.time_s for items in by_cause.values() for transfer in items)
    is_slight = plan is not None and taken < SLIGHT_COPIES * plan.latency_s
    for cause, items in by_cause.items():
        operator = None if cause is None else analysis.operators[cause]
        around = f" around {operator_label(operator)}" if operator is not None else ""
        yield Diagnostic(
            operator=operator,
            message=_copies_text(items, around),
            fix="keep what makes and what reads this tensor on one device",
            seconds=total(transfer.time_s for transfer in items),
            bytes=sum(transfer.bytes for transfer in items),
            severity="note" if is_slight else None,
        )


@rule("A103", "copies-of-shapes", "note")
def copies_of_shapes(subject: Subject) -> Iterator[Diagnostic]:
    """Shape arithmetic that stays on the CPU on purpose still costs a copy.

    What:
        ONNX Runtime keeps small integer arithmetic (shapes, axes, indices) on the CPU on purpose. That is
        right and no finding by itself; here its result is also read as data on the GPU and is copied there.

    Why:
        The tensors are small, so each copy costs its fixed time, some ten microseconds, and no more.

    Fix:
        Export with fixed dimensions, so that the shapes are constants; otherwise leave it.

    Example:
        `torch.arange(x.shape[1])` with a symbolic length: the length is computed on the CPU and copied to
        the GPU.
    """
    analysis = subject.analysis
    if is_for_cpu(analysis):
        return
    causes = _by_cause(analysis, shapes=True)
    items = [transfer for group in causes.values() for transfer in group]
    if not items:
        return
    time = total(transfer.time_s for transfer in items)
    nbytes = sum(transfer.bytes for transfer in items)
    yield Diagnostic(
        operator=analysis.operators[next(iter(causes)) or 0],
        message=f"{plural(len(items), 'copy')} of shape values between CPU and GPU, {byte_count(nbytes)} in "
        f"{seconds(time)}: {first_few([transfer.tensor for transfer in items])}",
        fix="export with fixed dimensions, so that shapes are constants",
        seconds=time,
        bytes=nbytes,
    )


@rule("A104", "no-cuda-session", "error")
def no_cuda_session(subject: Subject) -> Iterator[Diagnostic]:
    """ONNX Runtime cannot make a CUDA session of this model at all.

    What:
        Creating the session with the CUDA and CPU providers throws, so nothing runs on the GPU. Where no
        provider has a kernel for an operator at all, nothing runs on the CPU either: no verdict is given unless
        a rule of your own says what it costs.

    Why:
        An operator that falls to the CPU needs a CPU kernel. For float16 ONNX Runtime inserts casts; for
        bfloat16 it does not, and where neither provider has a kernel the session is refused.

    Fix:
        Use float16 or float32 for the operators that the message names, or an opset at which they have a
        CUDA kernel. An operator of your own needs its library registered with the session
        (`session_options.register_custom_ops_library`).

    Example:
        A bfloat16 model with a `Clip`, which has no bfloat16 kernel in the CUDA provider.
    """
    analysis = subject.analysis
    nowhere = [op for op in analysis.operators if op.gpu is not None and op.gpu.why == "no-kernel"]
    library = "; for an operator of your own register its library with the session"
    if runs_nowhere(analysis):
        if not _is_loaded(analysis):
            return
        fails = analysis.session_fails or analysis.verdict.sentence
        causes = [op for op in analysis.operators if op.name and f"({op.name})" in fails]
        fix = "cast its inputs to float32, change its attributes, or write it with other operators"
        yield Diagnostic(
            operator=next(iter(causes or forced_operators(analysis)), None),
            message=f"ONNX Runtime cannot create a session on any of the devices: {fails}",
            fix=f"write it with other operators{library}" if nowhere else fix,
        )
    elif analysis.session_fails and analysis.devices.gpu is not None:
        # transformer_memcpy.cc throws where a node has a kernel on neither provider.
        session = "a session, on the CPU or on a GPU" if nowhere else "the CUDA session"
        fix = "use float16 or float32 there, or an opset with a CUDA kernel"
        yield Diagnostic(
            operator=next(iter(nowhere or forced_operators(analysis)), None),
            message=f"ONNX Runtime cannot create {session}: {analysis.session_fails}",
            fix=("write it with other operators" if nowhere else fix) + library,
        )


@rule("A105", "body-on-the-cpu", "error")
def body_on_the_cpu(subject: Subject) -> Iterator[Diagnostic]:
    """An operator inside a loop or a branch has no CUDA kernel.

    What:
        ONNX Runtime places the body of an If, Loop or Scan as a graph of its own. The control-flow operator is
        the CUDA provider's, and an operator in its body without a CUDA kernel runs on the CPU.

    Why:
        The body runs again and again: each pass waits for the CPU and copies what the operator reads and
        writes. Copies inside the body are counted; what crosses from one pass to the next comes on top.

    Fix:
        Write the operator with others that have a CUDA kernel, take it out of the loop, or unroll the loop.

    Example:
        A decoder that is scripted as a Loop of 100 steps, with a Tan in its body: 100 times a copy to the CPU
        and one back.
    """
    analysis = subject.analysis
    if analysis.devices.gpu is None or runs_nowhere(analysis):
        return
    for body in analysis.bodies:
        forced = [operator for operator in body.on_cpu if operator.why != _ON_PURPOSE]
        sizes = [copy.bytes for copy in body.copies]
        # The operator that holds the body may well have a CUDA kernel: it is the body that waits.
        if forced:
            yield Diagnostic(
                operator=analysis.operators[body.operator],
                message=_body_message(analysis, body, forced),
                fix="use operators with a CUDA kernel there, or take "
                f"{'it' if len(forced) == 1 else 'them'} out of the body",
                # Of one inference; not known where a size or the passes are not.
                bytes=None if body.passes is None or None in sizes else body.passes * sum(filter(None, sizes)),
            )


def _body_message(analysis: Analysis, body: BodyResult, forced: list[BodyOperator]) -> str:
    names = []
    for operator in forced:
        where = f" ({operator.source.file}:{operator.source.line})" if operator.source else ""
        names.append(f"{operator.op_type} {operator.name!r}{where}")
    passes = "on each pass"  # the trip count is computed, or the loop ends by a condition
    if body.passes is not None:
        passes = "once" if body.passes == 1 else f"on each of up to {body.passes} passes"
    copies, sizes = "", [copy.bytes for copy in body.copies if copy.bytes is not None]
    if body.copies:
        copies = f"; each pass makes {plural(len(body.copies), 'copy')} between CPU and GPU inside it"
        # A sum of some would read as the sum of all.
        copies += f", {byte_count(sum(sizes))}" if len(sizes) == len(body.copies) else ""
    holder = operator_label(analysis.operators[body.operator])
    return (
        f"{plural(len(forced), 'operator')} of {body.operators} in {body.name} of {holder} "
        f"{'runs' if len(forced) == 1 else 'run'} on the CPU, {passes}: {first_few(names)}{copies}"
    )


def _is_loaded(analysis: Analysis) -> bool:
    model = analysis.model
    return not registry(analysis.onnxruntime).refuses_model(
        ir_version=model.ir_version,
        opset=model.opset,
        problems=model.problems,
        operators=((operator.domain, operator.op_type) for operator in analysis.operators),
    )


def copies_inside(analysis: Analysis) -> tuple[TransferItem, ...]:
    """Return the copies inside the graph of ONNX Runtime's CUDA session."""
    plan = analysis.plan("gpu")
    if plan is None:
        return ()
    return tuple(transfer for transfer in plan.transfers.items if transfer.where == "inside")


def _by_cause(analysis: Analysis, *, shapes: bool) -> Mapping[int | None, list[TransferItem]]:
    """Return the copies by the operator on the CPU's side that they are for, in execution order.

    Either those of shape arithmetic, which is no fault, or all others.
    """
    # MemcpyTransformer copies a tensor once a direction (onnxruntime/core/optimizer/transformer_memcpy.cc):
    # several readers share it, and the first of them that is forced to the CPU is named.
    dataflow = Dataflow(analysis=analysis)
    by_cause: dict[int | None, list[TransferItem]] = {}
    for transfer in copies_inside(analysis):
        operator = _cause(transfer, dataflow)
        if shapes == (operator is not None and operator.gpu is not None and operator.gpu.why == _ON_PURPOSE):
            by_cause.setdefault(None if operator is None else operator.index, []).append(transfer)
    return dict(sorted(by_cause.items(), key=lambda pair: -1 if pair[0] is None else pair[0]))


def _cause(transfer: TransferItem, dataflow: Dataflow) -> OperatorResult | None:
    """Return the CPU's operator behind a copy: its maker, its reader, else what makes or reads the tensor."""
    maker = dataflow.makers.get(transfer.tensor)
    if transfer.direction == "to_gpu" and maker is not None:
        return maker
    readers = dataflow.readers.get(transfer.tensor, ())
    on_cpu = [op for op in readers if op.gpu is not None and op.gpu.placed_on == "cpu"]
    # Where a tensor is read by shape arithmetic and by a fallback, the fallback is what can be mended.
    return next(iter([op for op in on_cpu if forced_to_cpu(op)] or on_cpu or readers), maker)
