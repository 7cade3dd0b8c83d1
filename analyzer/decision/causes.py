"""Why a plan wins, in sentences made of the plans' own numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from analyzer.decision.choice import Choice, used
from analyzer.decision.parts import Resource
from analyzer.decision.plans import Plan, Plans
from analyzer.decision.question import Question
from analyzer.decision.wording import capital, cpu_name, gpu_name, interval, listed, plural
from analyzer.units import byte_count, factor, seconds, share

_LARGE = 0.25  # of a plan's time, from where a part is named as the cause


def sentence(question: Question, plans: Plans, choice: Choice) -> str:
    """The answer in one sentence."""
    cpu, gpu = cpu_name(question), gpu_name(question)
    if plans.gpu is None:
        return _cpu_alone(question, plans)
    speedup = choice.speedup
    how = _how(question, choice)
    match choice.device:
        case "either":
            tie = interval(*speedup) if speedup else "unknown"
            return f"Either: {gpu} is {tie} as fast as {cpu}, and the interval holds 1{_by(choice)}."
        case "gpu":
            return f"Run it on {gpu}: {how}."
        case "cpu":
            return f"Run it on {cpu}: {how}."
        case _:
            return f"Run it on both: {how}."


def _cpu_alone(question: Question, plans: Plans) -> str:
    took = f"{seconds(plans.cpu.latency.time_s)} ({plans.cpu.latency.origin})"
    cpu = capital(cpu_name(question))
    if question.gpu is None:
        return f"Only the CPU was looked at: {cpu_name(question)} takes {took}."
    fails = question.placement.fails if question.placement else ""
    if fails:
        return f"Run it on {cpu_name(question)}: ONNX Runtime cannot run this model on a GPU. {capital(fails)}"
    return f"{cpu} takes {took}; the time on {gpu_name(question)} is not known."


def _by(choice: Choice) -> str:
    words = {"cost": ", by dollars", "energy": ", by joules"}
    return words.get(choice.objective, "")


def _how(question: Question, choice: Choice) -> str:
    """By how much, and against what; or why nothing else could be chosen."""
    names = {"cpu": cpu_name(question), "gpu": gpu_name(question), "hybrid": "the best mix of both"}
    if choice.late and question.slo_s is not None:
        return (
            f"{seconds(choice.plan.latency.time_s)} is the nearest to {seconds(question.slo_s)} that there is"
        )
    if choice.over is None or choice.advantage is None:
        barred = {name: why for name, why in choice.barred.items() if name != choice.plan.name}
        if "wheel" in barred.values():
            return (
                f"{names['gpu']} does not run ONNX Runtime's release wheel, so it is only shown for reference"
            )
        if barred.get("gpu") == "memory":
            return f"the model does not fit {names['gpu']}'s memory"
        if barred.get("cpu") == "memory":
            return f"the model does not fit the memory beside {names['cpu']}"
        if "pins" in barred.values():
            return f"that is what the pins leave, {seconds(choice.plan.latency.time_s)}"
        return f"nothing else takes at most {seconds(question.slo_s)}"
    other = "the better of the two alone" if choice.device == "hybrid" else names[choice.over.name]
    verb = {"cost": "cheaper", "energy": "less energy"}.get(choice.objective, "faster")
    return f"{interval(*choice.advantage)} {verb} than {other}"


def cause(question: Question, plans: Plans, choice: Choice) -> str:
    """The main reason for the device, in one sentence."""
    if plans.gpu is None:
        return "No GPU was asked about." if question.gpu is None else "There is no plan for the GPU to compare."
    for name, why in choice.barred.items():
        if name == "gpu" and why in ("memory", "wheel"):
            return _barred_cause(question, plans.gpu, why)
    if choice.device == "hybrid":
        return _mixed_cause(question, plans.gpu, choice.plan)
    if used(choice.plan) == "cpu" or choice.device == "either":
        return _against_gpu(question, plans.gpu)
    return _for_gpu(question)


def _barred_cause(question: Question, gpu: Plan, why: str) -> str:
    name = capital(gpu_name(question))
    if why == "wheel":
        return f"ONNX Runtime's release wheel has no machine code for {gpu_name(question)}."
    limit = question.gpu.memory_bytes if question.gpu else None
    return f"{name} has {byte_count(limit)} of memory, the model needs {byte_count(gpu.memory_bytes)}."


def _mixed_cause(question: Question, gpu: Plan, mixed: Plan) -> str:
    there, here = mixed.sides.count("gpu"), mixed.sides.count("cpu")
    copies = _busy(mixed, "link")
    return (
        f"{plural(there, 'operator')} on {gpu_name(question)} and {here:,} on {cpu_name(question)} take "
        f"{seconds(mixed.latency.time_s)}, {seconds(copies)} of it copies; all on the GPU would take "
        f"{seconds(gpu.latency.time_s)}."
    )


def _busy(plan: Plan, *resources: Resource) -> float:
    return sum(item.time.time_s for item in plan.parts if item.resource in resources)


def _against_gpu(question: Question, gpu: Plan) -> str:
    """What makes the GPU plan slow."""
    whole = gpu.latency.time_s
    if not whole:
        return "There is nothing to run."
    parts = {
        "copies": _busy(gpu, "link"),
        "launch": _busy(gpu, "launch"),
        "fallback": _busy(gpu, "cpu"),
    }
    largest = max(parts, key=lambda name: parts[name])
    took = f"{seconds(parts[largest])} of the GPU plan's {seconds(whole)}"
    if parts[largest] < _LARGE * whole:
        return f"{capital(gpu_name(question))}'s kernels gain too little over {cpu_name(question)}."
    if largest == "copies":
        moved = sum(transfer.item.bytes for transfer in gpu.transfers)
        return f"Copying {byte_count(moved)} to and from {gpu_name(question)} takes {took}."
    if largest == "launch":
        return f"The operators are small: starting them on {gpu_name(question)} takes {took}."
    return f"Operators that ONNX Runtime keeps on the CPU take {took}."


def _for_gpu(question: Question) -> str:
    """What makes the GPU plan fast: what limits most of the CPU's time."""
    by_bound: dict[str, float] = {}
    by_type: dict[str, float] = {}
    for group, time in zip(question.cpu_groups, question.cpu_times, strict=True):
        if time is not None:
            limit = time.bound or "unknown"
            by_bound[limit] = by_bound.get(limit, 0.0) + time.time_s
            by_type[group.op_type] = by_type.get(group.op_type, 0.0) + time.time_s
    whole = sum(by_type.values())
    if not whole:
        return f"{capital(gpu_name(question))} is faster."
    op_type, spent = max(by_type.items(), key=lambda item: item[1])
    bound, bounded = max(by_bound.items(), key=lambda item: item[1])
    ceiling = {"compute": "arithmetic", "memory": "memory bandwidth"}.get(bound)
    text = f"{op_type} takes {share(spent / whole)} of {cpu_name(question)}'s time"
    if ceiling and bounded > whole / 2:
        text += f", and {ceiling} limits {share(bounded / whole)} of it: {gpu_name(question)} has more"
    return f"{text}."


def because(question: Question, plans: Plans, choice: Choice) -> Iterator[str]:
    """Further facts, the most important first."""
    if plans.gpu is None or plans.hybrid is None:
        return
    if choice.objective != question.objective:
        yield (
            f"The {question.objective} of every plan is not known, so latency decided: no instance in the "
            "catalogue has this CPU."
        )
    link, whole = _busy(plans.gpu, "link"), plans.gpu.latency.time_s
    if whole:
        copies = plural(len(plans.gpu.transfers), "copy takes", "copies take")
        yield f"{copies} {seconds(link)}, {share(link / whole)} of the GPU plan."
    stuck = _stuck(question, plans.gpu)
    if stuck:
        yield stuck
    yield _margin(plans, choice)


def _stuck(question: Question, gpu: Plan) -> str:
    placed = question.placement.nodes if question.placement else ()
    types = Counter(
        node.op_type
        for node, place in zip(question.graph.nodes, placed, strict=False)
        if place.provider == "cpu" and not place.supported
    )
    if not types:
        return ""
    named = listed(name for name, _ in types.most_common(3))
    spent = _busy(gpu, "cpu")
    return f"ONNX Runtime runs {named} on the CPU for want of a CUDA kernel, {seconds(spent)} of the GPU plan."


def _margin(plans: Plans, choice: Choice) -> str:
    """How much the best plan gains over the better of the two sessions."""
    if plans.gpu is None or plans.hybrid is None:
        return ""
    better = min((plans.cpu, plans.gpu), key=lambda plan: plan.latency.time_s)
    best = plans.hybrid.latency.time_s
    name = {"cpu": "the CPU", "gpu": "the GPU"}[better.name]
    if not best or better.latency.time_s / best < 1.005 or plans.hybrid.sides == better.sides:
        return f"Splitting the operators between both gains nothing over {name} alone."
    gain = factor(better.latency.time_s / best)
    if choice.device == "hybrid":
        return f"The best split is {gain} as fast as {name} alone."
    return f"The best split is {gain} as fast as {name} alone: too little, or too uncertain, to recommend."


def first(sentences: Iterable[str], number: int) -> tuple[str, ...]:
    """The first few that say something."""
    return tuple(text for text in sentences if text)[:number]
