"""A3xx and A4xx: what is not counted, and whether the model fits."""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.checks.device_answers import DeviceAnswer, device_answers, less_work
from analyzer.checks.registry import Diagnostic, Subject, rule
from analyzer.devices.device import Device
from analyzer.memory.fit import context_note
from analyzer.record.analysis import OperatorResult, PlanResult
from analyzer.record.batch_ranges import without_trips
from analyzer.record.generation import GenerationResult
from analyzer.text import first_few, plural
from analyzer.units import byte_count, share

# Above this share of the GPU's memory the CUDA context and the libraries' workspaces may tip the balance. A
# judgement: on a card of 24 GB a tenth is 2.4 GB, and cuDNN alone may take any size that is free (ONNX
# Runtime's default, cudnn_conv_use_max_workspace=1).
TIGHT = 0.9


@rule("A301", "unknown-cost", "warning")
def unknown_cost(subject: Subject) -> Iterator[Diagnostic]:
    """An operator's cost is not known, so totals and verdict leave it out.

    What:
        No cost rule covers the operator, or the shape of one of its tensors is open. Its FLOPs and bytes
        are unknown, not zero; every total that it belongs to reads "at least".

    Why:
        A verdict that leaves out an operator may be wrong by exactly that operator.

    Fix:
        Bind open dimensions (`--batch`, `--input`), replace the custom operator, or ask for a rule:
        `analyze ops` lists what is covered.

    Example:
        An operator of a domain of one's own (`com.example::Warp`).
    """
    # One finding a type: a custom operator in forty layers is one rule to write.
    groups: dict[tuple[str, str], list[OperatorResult]] = {}
    for operator in subject.analysis.operators:
        if operator.basis == "unknown":
            groups.setdefault((operator.domain, operator.op_type), []).append(operator)
    for (domain, op_type), group in groups.items():
        kind = op_type if domain in ("", "ai.onnx") else f"{domain}::{op_type}"
        note = f": {group[0].note.rstrip('.')}" if group[0].note else ""
        names = first_few(list(dict.fromkeys(op.module or op.name for op in group)))
        yield Diagnostic(
            operator=group[0],
            message=f"the cost of {plural(len(group), f'{kind} operator')} is unknown ({names}){note}; "
            "totals read at least",
            fix="bind open dimensions with --batch or --input, or use an operator that `analyze ops` lists",
        )


@rule("A302", "unknown-trips", "warning")
def unknown_trips(subject: Subject) -> Iterator[Diagnostic]:
    """How often a loop runs its body is decided by the data, so its time is not known before the run.

    What:
        Neither the loop's limit nor its condition follows from shapes and constants. Its FLOPs are those of one
        trip, at least; its time is given for any number of trips from 1 to 10,000.

    Why:
        A loop may take nearly all of the time, and a verdict or a budget that is met may be wrong by all of it.

    Fix:
        Give the loop a limit that shapes or constants decide, or make the input that decides it a constant.
        Where the model is run, the CPU's time is measured with the trips of that run.

    Example:
        A decoder that is exported as a Loop until an end token comes.
    """
    for operator in subject.analysis.operators:
        if without_trips(operator.note):
            yield Diagnostic(
                operator=operator,
                message="the data decide how often it runs its body: its time, and the model's, are not known "
                "before the run; FLOPs read at least",
                fix="give the loop a limit that shapes or constants decide",
            )


@rule("A401", "does-not-fit", "error")
def does_not_fit(subject: Subject) -> Iterator[Diagnostic]:
    """The model does not fit the GPU's memory.

    What:
        Weights and the largest set of live activations together exceed what CUDA's context (300 MB) leaves of
        the memory of a GPU that was named. In a record of `analyze generate`: weights, cache and activations
        of the longest sequence, on as many GPUs as share the model.

    Why:
        The session ends with an out-of-memory error, or never starts.

    Fix:
        A smaller batch, a narrower type (`--precision fp16`), a GPU with more memory, or several GPUs.

    Example:
        A model of 7 billion float32 parameters holds 28 GB of weights alone; an L4 has 24 GB.
    """
    gpu = subject.analysis.devices.gpu
    if subject.analysis.generation is not None and gpu is not None:
        # Its plans are of the whole model on one device, whatever number shares it.
        yield from _request_does_not_fit(subject.analysis.generation, gpu)
        return
    for answer in device_answers(subject.analysis):
        plan = answer.plan("gpu")
        if plan is not None and answer.gpu is not None and not plan.fits:
            yield _no_room(answer, plan, answer.gpu, less_work(subject.analysis))


def _no_room(answer: DeviceAnswer, plan: PlanResult, gpu: Device, less: str) -> Diagnostic:
    largest = answer.verdict.largest_batch
    # 0 is no batch to propose: then not even one inference fits.
    smaller = f"use a batch of at most {largest}, " if largest else less
    context = context_note(plan.memory_bytes, gpu.memory_bytes)
    return Diagnostic(
        message=f"the model needs {byte_count(plan.memory_bytes)}{context}, "
        f"and {gpu.name} has {byte_count(gpu.memory_bytes)}",
        fix=f"{smaller}a narrower type, or a GPU with more memory",
        bytes=plan.memory_bytes,
        device=answer.slug,
    )


def _request_does_not_fit(result: GenerationResult, gpu: Device) -> Iterator[Diagnostic]:
    memory = result.memory
    if memory.fits:
        return
    each = f" on each of {result.gpus}" if result.gpus > 1 else ""
    yield Diagnostic(
        message=f"weights, cache and activations need {byte_count(memory.device_bytes)}{each}, and {gpu.name} "
        f"leaves {byte_count(memory.available_bytes)}",
        fix="use a smaller batch, a shorter sequence, narrower types (--weights, --kv), more GPUs (--gpus), or "
        "a GPU with more memory",
        bytes=memory.total_bytes,
    )


@rule("A402", "barely-fits", "warning")
def barely_fits(subject: Subject) -> Iterator[Diagnostic]:
    """The model takes nearly all of the GPU's memory.

    What:
        Weights and live activations take over 90 % of the memory of a GPU that was named.

    Why:
        The CUDA context and the workspaces of cuDNN and cuBLAS come on top and are not in the figure; the
        workspaces are counted nowhere.

    Fix:
        A smaller batch, a narrower type, or a GPU with more memory.

    Example:
        23 GB of weights and activations on a GPU with 24 GB.
    """
    for answer in device_answers(subject.analysis):
        plan, gpu = answer.plan("gpu"), answer.gpu
        if plan is None or gpu is None or not plan.fits or not plan.memory_bytes or not gpu.memory_bytes:
            continue
        if plan.memory_bytes > TIGHT * gpu.memory_bytes:
            used = share(plan.memory_bytes / gpu.memory_bytes)
            yield Diagnostic(
                message=f"the model needs {byte_count(plan.memory_bytes)}, {used} of what {gpu.name} has "
                f"({byte_count(gpu.memory_bytes)}), before CUDA's own memory",
                fix=f"{less_work(subject.analysis)}a narrower type, or a GPU with more memory",
                bytes=plan.memory_bytes,
                device=answer.slug,
            )
