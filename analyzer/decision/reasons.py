"""Reasons for a plan, in sentences made of the plans' own numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator

from analyzer.decision.choice import Choice, device_used
from analyzer.decision.decision_input import DecisionInput
from analyzer.decision.error_components import BURDENS, busy_s, largest_burden
from analyzer.decision.plans import Plan, Plans
from analyzer.figures import Figure
from analyzer.loading.torch_export.failures import OPAQUE_DOMAIN
from analyzer.memory.fit import context_note
from analyzer.operators import RECURRENT
from analyzer.ort.execution import Group
from analyzer.prediction.estimate import Estimate
from analyzer.record.outcome import WORTHWHILE
from analyzer.text import first_few, listed, plural
from analyzer.units import byte_count, factor, seconds, share


def gpu_name(question: DecisionInput) -> str:
    """Return ``the L4``: the name without its vendor."""
    if question.gpu is None:
        return "the GPU"
    return f"the {short_name(question.gpu.name)}"


def short_name(name: str) -> str:
    """Return a device's name without its vendor."""
    return name.removeprefix("NVIDIA ").removeprefix("AMD ").removeprefix("Intel ")


def cpu_name(question: DecisionInput) -> str:
    """Return ``this CPU`` on this machine, else ``the EPYC 9654``."""
    is_this_machine = question.cpu_is_this_machine
    if is_this_machine is None:
        # A calibration is kept by the machine's fingerprint, and a CPU from the catalogue is never measured.
        measured = any(time is not None and time.origin == "measured" for time in question.cpu_times)
        is_this_machine = question.cpu.origin == "calibrated" or measured
    return "this CPU" if is_this_machine else f"the {short_name(question.cpu.name)}"


def capital(text: str) -> str:
    """Return the text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def timed(estimate: Figure) -> str:
    """``1.2 ms (predicted)``."""
    return f"{seconds(estimate.value)} ({estimate.origin})"


def interval(middle: float, low: float, high: float) -> str:
    """``3.4x (2.1x to 5.0x)``; ``3.4x`` where both are alike, ``(2.1x or more)`` without an upper end."""
    if high == math.inf:
        return f"{factor(middle)} ({factor(low)} or more)"
    exact = factor(low) == factor(middle) == factor(high)
    return factor(middle) if exact else f"{factor(middle)} ({factor(low)} to {factor(high)})"


_FEWER = {"cost": "fewer dollars", "energy": "fewer joules"}
# What is said of a limit on the CPU's time. ``instructions`` are those of operators that multiply no matrices.
_LIMITS = {
    "compute": "limited by arithmetic, of which {gpu} has more",
    "memory": "limited by memory bandwidth, of which {gpu} has more",
    "instructions": "limited by instructions, not by memory, and {gpu} runs more of them at once",
    "steps": "spent on steps that wait for each other",
}


def sentence(question: DecisionInput, plans: Plans, choice: Choice) -> str:
    """Return the answer in one sentence, behind another where ONNX Runtime cannot run the model."""
    if question.run_fails:
        return f"The run failed, and nothing was measured: {question.run_fails.rstrip('.')}."
    if question.graph.empty_inputs:
        return f"Nothing is decided. {' '.join(question.graph.empty_inputs)}"
    if question.lacks and not question.load_fails:
        if question.fails:
            return runs_nowhere(question)
        ran = f"{'it' if len(question.lacks) == 1 else 'they'} ran, at a time that is not known"
        answer = _answer(question, plans, choice)
        return f"{runs_nowhere(question)} What follows is predicted as if {ran}. {answer}"
    if question.fails:
        return f"ONNX Runtime cannot run this {_what(question)}: {question.fails}. {_remedy(question)}"
    return _answer(question, plans, choice)


def runs_nowhere(question: DecisionInput) -> str:
    """Return that ONNX Runtime runs the model on no device, and what does."""
    lacking, one = listed(question.lacks), len(question.lacks) == 1
    # What PyTorch exports without a translation is its own; anything else is of somebody's library.
    domains = {node.domain for node in question.graph.nodes if node.op_type in question.lacks}
    who = (
        "PyTorch can"
        if domains == {OPAQUE_DOMAIN}
        else f"a session with the library that has {'it' if one else 'them'} can"
    )
    return f"ONNX Runtime cannot run this {_what(question)}: no provider has a kernel for {lacking}; {who}."


def _what(question: DecisionInput) -> str:
    return "step" if question.graph.is_training_step else "model"


def _remedy(question: DecisionInput) -> str:
    """Return what to change in a model that no session runs."""
    if question.load_fails:
        return "Save it again in a form that ONNX Runtime loads: the findings say how."
    if any(tensor.dtype.name == "bfloat16" for tensor in question.graph.initializers):
        return "Export it in float16 or float32: both are in the table of precisions."
    return "Cast the inputs of that operator, change its attributes, or write it with other operators."


def _answer(question: DecisionInput, plans: Plans, choice: Choice) -> str:
    cpu, gpu = cpu_name(question), gpu_name(question)
    if plans.gpu is None:
        return _cpu_alone(question, plans)
    if not question.cpu_groups and not question.cuda_groups:
        return "Either: there is nothing to run."
    if all(not plan.fits for plan in plans):
        return (
            f"Neither has room: the model needs {byte_count(plans.gpu.memory_bytes)}, {cpu} has "
            f"{byte_count(question.cpu.memory_bytes)} and {gpu} {byte_count(_memory_of(question))}"
            f"{context_note(plans.gpu.memory_bytes, _memory_of(question))}."
        )
    if choice.device is None:
        why = _why_no_rival(question, choice)
        return f"Neither runs it: {question.cpu_refuses}, and {gpu} is ruled out, {why}."
    if choice.device == "either":
        return _tie(question, choice)
    place = f"on {cpu if choice.device == 'cpu' else gpu}"
    if choice.device == "hybrid":
        place = f"on both, {gpu} and {cpu}"
    return f"Run it {place}: {_gain_over_rival(question, choice)}."


def _tie(question: DecisionInput, choice: Choice) -> str:
    cpu, gpu = cpu_name(question), gpu_name(question)
    if choice.objective in _FEWER and choice.advantage is not None and choice.rival is not None:
        names = {"cpu": _compared_cpu(question, choice), "gpu": gpu}
        better, other = (names.get(plan.name, "the best split") for plan in (choice.plan, choice.rival))
        gain = f"{interval(*choice.advantage)} {_FEWER[choice.objective]}"
        return f"Either: {better} needs {gain} than {other}, which is within the error."
    if choice.speedup is None:
        return f"Either: neither {cpu} nor {gpu} takes any time."
    middle, low, high = choice.speedup
    if middle < 1:  # told as a factor over 1: the ends of the interval change places
        gain = interval(1 / middle, 1 / high, 1 / low)
        return f"Either: {cpu} is {gain} as fast as {gpu}, which is within the error."
    return f"Either: {gpu} is {interval(middle, low, high)} as fast as {cpu}, which is within the error."


def _compared_cpu(question: DecisionInput, choice: Choice) -> str:
    """Return the CPU whose dollars were compared: an instance's where the question's own is rented nowhere."""
    there = choice.cpu_price
    return cpu_name(question) if there is None else f"{there.provider} {there.instance}"


def _memory_of(question: DecisionInput) -> int | None:
    return question.gpu.memory_bytes if question.gpu is not None else None


def _cpu_alone(question: DecisionInput, plans: Plans) -> str:
    took = timed(plans.cpu.latency)
    if question.gpu is None:
        return f"Only the CPU was looked at: {cpu_name(question)} takes {took}."
    fails = question.placement.fails.rstrip(".") if question.placement else ""
    if fails:
        return f"Run it on {cpu_name(question)}: ONNX Runtime cannot run this model on a GPU, {fails}."
    return f"Run it on {cpu_name(question)}, which takes {took}: the time on {gpu_name(question)} is not known."


def _gain_over_rival(question: DecisionInput, choice: Choice) -> str:
    """By how much, and against what; or why nothing else could be chosen."""
    names = {"cpu": cpu_name(question), "gpu": gpu_name(question), "hybrid": "the best split"}
    took = timed(choice.plan.latency)
    if choice.misses_slo and question.limit_s is not None:
        # Of these two alone: other GPUs, batches and instances are the ranking's.
        return (
            f"{took} misses the limit of {seconds(question.limit_s)}, and of the plans for {names['cpu']} and "
            f"{names['gpu']} none comes nearer"
        )
    if choice.rival is None or choice.advantage is None:
        return f"it takes {took}, and {_why_no_rival(question, choice)}"
    other = names[choice.rival.name]
    against = timed(choice.rival.latency)
    gain = interval(*choice.advantage)
    if choice.objective in _FEWER:
        there = choice.cpu_price.latency if choice.cpu_price is not None else None
        if choice.rival.name == "cpu" and there is not None:
            other, against = _compared_cpu(question, choice), timed(there)
        return (
            f"it needs {gain} {_FEWER[choice.objective]} than {other} alone and takes {took} against {against}"
        )
    alone = " alone" if choice.device == "hybrid" else ""
    return f"{gain} faster than {other}{alone}, {took} against {against}"


def _why_no_rival(question: DecisionInput, choice: Choice) -> str:
    ineligible = {name: why for name, why in choice.ineligible.items() if name != choice.plan.name}
    if ineligible.get("gpu") == ineligible.get("cpu") == "memory":
        return "neither alone has room for the model"
    if "no-machine-code" in ineligible.values():
        return f"ONNX Runtime's release wheel has no machine code for {gpu_name(question)}"
    if ineligible.get("gpu") == "memory":
        return f"the model does not fit the memory of {gpu_name(question)}"
    if ineligible.get("cpu") == "memory":
        return f"the model does not fit the memory of {cpu_name(question)}"
    if ineligible.get("gpu") == "kernels":
        return f"ONNX Runtime would run every operator on the CPU next to {gpu_name(question)} as well"
    if ineligible.get("cpu") == "kernels" and question.cpu_refuses:
        return question.cpu_refuses
    if ineligible.get("cpu") == "kernels":
        return f"ONNX Runtime has no kernel for {listed(question.cpu_lacks)} on {cpu_name(question)}"
    if "pins" in ineligible.values():
        return "the pins leave no other choice"
    limit = seconds(question.limit_s)
    if device_used(choice.plan) == "hybrid":
        return f"neither alone keeps the limit of {limit}"
    other = gpu_name(question) if device_used(choice.plan) == "cpu" else cpu_name(question)
    return f"{other} misses the limit of {limit}"


def cause(question: DecisionInput, plans: Plans, choice: Choice) -> str:
    """Return the main reason for the device, in one sentence."""
    if question.fails:
        empty = question.graph.empty_inputs and "An input without elements takes no time on any device."
        return "The run failed." if question.run_fails else empty or "There is no session to compare."
    if plans.gpu is None:
        return "No GPU was requested." if question.gpu is None else "There is no plan for the GPU to compare."
    for name, why in choice.ineligible.items():
        if name == "gpu" and why == "kernels":
            types = {group.op_type for group in question.cuda_groups}
            return f"ONNX Runtime has no CUDA kernel for {listed(sorted(types))}."
        if name == "gpu" and why == "no-machine-code":
            return f"ONNX Runtime's release wheel has no machine code for {gpu_name(question)}."
        if name == "gpu" and why == "memory":
            room, need = byte_count(_memory_of(question)), byte_count(plans.gpu.memory_bytes)
            needed = f"weights and activations need {need}"
            needed += context_note(plans.gpu.memory_bytes, _memory_of(question))
            return f"{capital(gpu_name(question))} has {room} of memory, {needed}."
    if question.cpu_refuses:
        return f"Only {gpu_name(question)} has kernels for all operators."
    if choice.device == "hybrid":
        return _mixed_cause(question, plans.gpu, choice.plan)
    if device_used(choice.plan) == "cpu" or choice.device == "either":
        return _against_gpu(question, plans, plans.gpu)
    return _for_gpu(question)


def _mixed_cause(question: DecisionInput, gpu: Plan, mixed: Plan) -> str:
    text = (
        f"{plural(mixed.on_gpu, 'operator')} on {gpu_name(question)} and {mixed.on_cpu:,} on "
        f"{cpu_name(question)} take "
        f"{seconds(mixed.latency.value)}, {seconds(busy_s(mixed.components, 'link'))} of it copies"
    )
    return f"{text}; all on the GPU would take {seconds(gpu.latency.value)}." if gpu.fits else f"{text}."


def _against_gpu(question: DecisionInput, plans: Plans, gpu: Plan) -> str:
    """Return why the GPU plan is slow."""
    whole = gpu.latency.value
    if not whole:
        return "There is nothing to run."
    largest = largest_burden(gpu.components)
    spent = busy_s(gpu.components, BURDENS[largest]) if largest else 0.0
    took = f"{seconds(spent)} of the GPU plan's {seconds(whole)}"
    if not largest:
        kernels, alone = busy_s(gpu.components, "gpu"), plans.cpu.latency.value
        if kernels > alone:
            whose = f"{capital(gpu_name(question))}'s kernels take {seconds(kernels)}"
            return f"{whose}, more than {cpu_name(question)} for everything ({seconds(alone)})."
        return f"{capital(gpu_name(question))}'s kernels gain too little over {cpu_name(question)}."
    if largest == "copies":
        moved = sum(transfer.item.bytes for transfer in gpu.transfers)
        return f"Copying {byte_count(moved)} to and from {gpu_name(question)} takes {took}."
    if largest == "launches":
        return f"The operators are small: starting them on {gpu_name(question)} takes {took}."
    return f"Operators that ONNX Runtime keeps on the CPU take {took}."


def _for_gpu(question: DecisionInput) -> str:
    """Return why the GPU plan is fast: the limit of most of the CPU's time."""
    by_limit: dict[str, float] = {}
    by_type: dict[str, float] = {}
    fused = set()
    for group, time in zip(question.cpu_groups, question.cpu_times, strict=True):
        if time is not None:
            limit = _limit_on_cpu(question, group, time)
            by_limit[limit] = by_limit.get(limit, 0.0) + time.value
            kind = _main_type(question, group)
            by_type[kind] = by_type.get(kind, 0.0) + time.value
            if len(group.members) > 1:
                fused.add(kind)
    whole = sum(by_type.values())
    if not whole:
        return f"{capital(gpu_name(question))} is faster."
    op_type, spent = max(by_type.items(), key=lambda pair: pair[1])
    limit, limited = max(by_limit.items(), key=lambda pair: pair[1])
    more = ", with what ONNX Runtime fuses into it," if op_type in fused else ""
    text = f"{op_type}{more} takes {share(spent / whole)} of {cpu_name(question)}'s time"
    if limit in _LIMITS and limited > whole / 2:
        text += f"; {share(limited / whole)} of that time is "
        text += _LIMITS[limit].format(gpu=gpu_name(question))
        if limit == "steps" and (steps := _steps_on_gpu(question)):
            text += f", which take {gpu_name(question)} {seconds(steps)}"
    return f"{text}."


def _main_type(question: DecisionInput, group: Group) -> str:
    """Return a group's main operator, that of most FLOPs, as the model and the tables name it.

    ONNX Runtime makes a Gemm of a MatMul with its bias, and a FusedConv of a Conv with its Relu: the model's
    author knows neither.
    """
    members = [index for index in group.members if index < len(question.table.costs)]
    if not members:
        return group.op_type
    main = max(members, key=lambda index: question.table.costs[index].flops or 0)
    return question.graph.nodes[main].op_type


def _steps_on_gpu(question: DecisionInput) -> float | None:
    """Return seconds of recurrences on the GPU; None where one is unknown or stays on the CPU."""
    total_s = 0.0
    for group, time in zip(question.cuda_groups, question.cuda_times, strict=True):
        if not _is_recurrent(question, group):
            continue
        if time is None or group.provider != "cuda":
            return None
        total_s += time.value
    return total_s


def _is_recurrent(question: DecisionInput, group: Group) -> bool:
    return any(question.graph.nodes[index].op_type in RECURRENT for index in group.members)


def _limit_on_cpu(question: DecisionInput, group: Group, time: Estimate) -> str:
    """Return the limit of a group on the CPU; where its own instructions bind it, their kind."""
    if _is_recurrent(question, group):
        return "steps"
    if time.bound == "compute" and not any(question.table.costs[index].macs for index in group.members):
        return "instructions"
    return time.bound or "unknown"


def because(question: DecisionInput, plans: Plans, choice: Choice) -> Iterator[str]:
    """Further facts, the most important first."""
    yield from question.about_form
    if plans.gpu is None or plans.hybrid is None:
        return
    if choice.objective != question.objective:
        missing = {"cost": "price", "energy": "power"}[question.objective]
        yield f"Latency decided: the {missing} is not known for every plan."
    # `cause` spoke of the memory then, and left out what the split does.
    if choice.device == "hybrid" and not plans.gpu.fits:
        yield _mixed_cause(question, plans.gpu, choice.plan)
    copies_were_the_cause = (
        choice.device in ("cpu", "either") and largest_burden(plans.gpu.components) == "copies"
    )
    if not copies_were_the_cause:
        yield _copies(plans.gpu)
    if choice.ineligible.get("gpu") != "kernels":
        yield _fallback(question, plans.gpu)
    if choice.objective in ("latency", "throughput") and not choice.ineligible:
        yield _margin(plans, choice)


def _copies(gpu: Plan) -> str:
    spent, whole = busy_s(gpu.components, "link"), gpu.latency.value
    if not whole or not gpu.transfers:
        return ""
    copies = plural(len(gpu.transfers), "copy takes", "copies take")
    return f"{copies} {seconds(spent)}, {share(spent / whole)} of the GPU plan."


def _fallback(question: DecisionInput, gpu: Plan) -> str:
    """Return operators that a CUDA session runs on the CPU for want of a kernel, the longest first."""
    placed = question.placement.nodes if question.placement else ()
    by_type: dict[str, float] = {}
    for group, time in zip(question.cuda_groups, question.cuda_times, strict=True):
        lacking = [
            question.graph.nodes[index].op_type
            for index in group.members
            if index < len(placed) and placed[index].provider == "cpu" and not placed[index].supported
        ]
        if lacking:
            by_type[lacking[0]] = by_type.get(lacking[0], 0.0) + (time.value if time is not None else 0.0)
    if not by_type:
        return ""
    named = first_few(sorted(by_type, key=lambda name: -by_type[name]))
    spent = busy_s(gpu.components, "cpu")
    return f"ONNX Runtime runs {named} on the CPU for want of a CUDA kernel, {seconds(spent)} of the GPU plan."


def _margin(plans: Plans, choice: Choice) -> str:
    """Return how much the best plan gains over the better of the two sessions."""
    if plans.gpu is None or plans.hybrid is None:
        return ""
    better = min((plans.cpu, plans.gpu), key=lambda plan: plan.latency.value)
    best = plans.hybrid.latency.value
    name = {"cpu": "the CPU", "gpu": "the GPU"}[better.name]
    if not best or plans.hybrid.sides == better.sides:
        return f"Splitting the operators between both gains nothing over {name} alone."
    if 1 < better.latency.value / best < WORTHWHILE:
        return (
            f"Splitting the operators between both gains less than {share(WORTHWHILE - 1)} over {name} alone."
        )
    gain = factor(better.latency.value / best)
    if choice.device == "hybrid":
        return f"The best split is {gain} as fast as {name} alone."
    return f"The best split is {gain} as fast as {name} alone: too little, or too uncertain, to recommend."
