"""Changes that make the answer faster: each is predicted anew, and offered where it is sure to gain.

A rule compares two runs of the answer's plan, as it is and with one change. Errors that both share cancel, so
that a gain is known better than either time; one whose interval holds zero is not offered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from analyzer.decision import DecisionInput
from analyzer.decision.choice import Ratio
from analyzer.decision.decision_input import Side
from analyzer.decision.error_components import (
    EVEN,
    ErrorComponents,
    in_other_kernels,
    over,
    ratio,
)
from analyzer.decision.plans import by_operator_type, plan_all, session_plans
from analyzer.devices.device import Device
from analyzer.options import CUDA_GRAPH, NHWC
from analyzer.pipeline.batches import BatchModels
from analyzer.pipeline.forms import CONVERTED
from analyzer.pipeline.predictor import Predictor
from analyzer.pipeline.prepared import PreparedGraph, opset_with_kernels, prepare, with_opset
from analyzer.pipeline.provider_options import layout_gain, not_captured, replay_gain
from analyzer.pipeline.rewrites import rewrites
from analyzer.pipeline.training_summary import mixed_times
from analyzer.precision import INTEGER_FORMS
from analyzer.record.analysis import Analysis, Opportunity
from analyzer.record.generation import GenerationResult
from analyzer.record.invocation import amended, command_line
from analyzer.record.outcome import WORTHWHILE, Answer
from analyzer.report.method import apply_command
from analyzer.text import first_few, plural
from analyzer.units import dollars, factor, seconds

if TYPE_CHECKING:
    from analyzer.generation.options import Candidate, Market
    from analyzer.generation.request import Setting
    from analyzer.generation.times import RequestPhases

# Of the highest rate that a larger batch reaches: beyond, it is latency for little.
_SATURATED = 0.9
_LEAST = 1e-3  # of a time whose interval reaches 0, for which there is no logarithm


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change with how many times as long the answer takes without it, and the ends of that.

    ``of_dollars``: it is how many times as many dollars instead.
    """

    code: str
    title: str
    gain: Ratio | None
    operators: tuple[int, ...] = ()
    options: Mapping[str, tuple[str, ...]] | None = None
    findings: tuple[str, ...] = ()
    same_device: bool = True
    of_dollars: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class _Subject:
    """The answer, the graph that it runs, and its plan as predicted."""

    analysis: Analysis
    predictor: Predictor
    prepared: PreparedGraph
    models: BatchModels
    gpu: Device | None
    answer: Answer

    def question(
        self, prepared: PreparedGraph, *, batch: int | None = None, replayed: bool = False
    ) -> DecisionInput:
        predictor = self.predictor.replaying() if replayed else self.predictor
        batch = batch or self.answer.batch
        return predictor.decision_input(prepared, self.gpu, batch, None)

    def parts(self, question: DecisionInput, plan: str = "") -> ErrorComponents | None:
        """Return the parts of a plan's time; None where there is no such plan."""
        name = plan or self.answer.plan
        plans = plan_all(question) if name == "hybrid" else session_plans(question)
        result = next((one for one in plans if one.name == name and one.fits), None)
        return None if result is None else by_operator_type(question, result)

    @cached_property
    def before(self) -> ErrorComponents | None:
        """The parts of the answer's time."""
        return self.parts(self.question(self.prepared))

    def elsewhere(self, kind: Side) -> dict[str, tuple[str, ...]]:
        """Return the options that choose a device; none where it is the answer's."""
        slug = self.gpu.slug if kind == "gpu" and self.gpu is not None else "none"
        return {} if kind == self.answer.kind else {"gpu": (slug,), "plan": (kind,)}

    def gain(self, after: ErrorComponents | None) -> Ratio | None:
        return None if after is None or self.before is None else ratio(self.before, after)


def opportunities(
    analysis: Analysis, predictor: Predictor, prepared: PreparedGraph, models: BatchModels
) -> tuple[Opportunity, ...]:
    """Return what would gain most first; ``analysis`` is the whole record but for this and its findings.

    None for a check, nor for a rented CPU that nobody named; of a training step in precision and batch alone.
    """
    answer, first = analysis.answer, analysis.devices.gpu
    if answer is None or answer.latency is None or predictor.options.fixed:
        return ()
    others = (other.device for other in analysis.alternatives)
    gpu = next((one for one in others if one.slug == answer.device), first)
    if not answer.named or (answer.kind == "gpu" and (gpu is None or gpu.slug != answer.device)):
        return ()
    if answer.batch is not None:
        prepared = models.prepared_graphs.get(answer.batch, prepared)
    if len(prepared.graph.nodes) != len(analysis.operators):  # a batch at which fewer operators are left
        return ()
    subject = _Subject(
        analysis=analysis, predictor=predictor, prepared=prepared, models=models, gpu=gpu, answer=answer
    )
    # Precisions, other batches and operators of a record are of its own GPU and batch.
    own = answer.batch == analysis.model.batch and gpu is first
    rules = _OF_TRAINING if analysis.model.training else (*_RULES, *(_OF_OWN if own else ()))
    return offered(analysis, (change for rule in rules for change in rule(subject)))


def offered(analysis: Analysis, changes: Iterable[Change]) -> tuple[Opportunity, ...]:
    """Return the changes of a record's answer that are sure to gain, what gains most first."""
    sure = [(one.gain, one) for one in changes if one.gain and one.gain[0] >= WORTHWHILE and one.gain[1] > 1]
    sure.sort(key=lambda pair: (-pair[0][0], pair[1].code))
    return tuple(filter(None, (_opportunity(analysis, one, gain) for gain, one in sure)))


def surest(changes: Iterable[Change]) -> Iterator[Change]:
    """Yield of the changes of each code the one whose least gain is the largest."""
    by_least_gain = sorted(changes, key=lambda one: one.gain[1] if one.gain else 0.0)
    yield from {one.code: one for one in by_least_gain}.values()


def _opportunity(analysis: Analysis, change: Change, gain: Ratio) -> Opportunity | None:
    answer, operators = analysis.answer, analysis.operators
    time = None if answer is None else answer.dollars if change.of_dollars else answer.latency
    if answer is None or time is None:
        return None
    # Shares of the answer's time, of which the time itself errs apart.
    share, low, high = (1 - 1 / end for end in gain)
    saved = time.value * share
    down = math.hypot(math.log(share / low), math.log(time.value / max(time.low, _LEAST * time.value)))
    up = math.hypot(math.log(high / share), math.log(time.high / time.value))
    low_end, high_end = saved * math.exp(-down), min(saved * math.exp(up), max(saved, time.high))
    usd = answer.usd_per_million if change.same_device else None
    gains = {"gain_usd_per_million": None if usd is None else usd * share}
    if change.of_dollars:
        gains |= {"gain_usd_low_per_million": low_end, "gain_usd_high_per_million": high_end}
    else:
        gains |= {"gain_s": saved, "gain_low_s": low_end, "gain_high_s": high_end}
    slowest_first = sorted(change.operators, key=lambda at: -(operators[at].cpu.time_s or 0.0))
    return Opportunity(
        code=change.code,
        title=change.title,
        operators=tuple(slowest_first),
        source=next((operators[at].source for at in slowest_first if operators[at].source), None),
        command=_command(analysis, change),
        findings=change.findings,
        **gains,
    )


def _command(analysis: Analysis, change: Change) -> str:
    """Return the line that applies the change, else the one that analyses it; empty where code must change."""
    if change.options is None:
        return ""
    form = change.options.get("precision", ("",))[0]
    line = apply_command(analysis, change.options) if not form or form in CONVERTED else ""
    invocation = analysis.invocation
    if line or invocation is None:
        return line
    options = {name: texts for name, texts in change.options.items() if name != "plan" and texts}
    return command_line(amended(invocation, options, without=change.options))


def _other_operators(subject: _Subject) -> Iterator[Change]:
    graph, base = subject.prepared.graph, subject.prepared
    # A pin may name what a rewrite removes. Of a split the errors are known by device alone, not by operator.
    if base.cpu_form is not None or subject.predictor.pins or subject.answer.plan == "hybrid":
        return
    for one, changed, gone in rewrites(graph, subject.analysis):
        after = subject.parts(subject.question(prepare(changed, release=base.placement.release)))
        yield Change(
            code=one.code,
            title=one.title,
            gain=subject.gain(after),
            operators=gone,
            options={"fix": (one.fix,)} if one.fix else None,
            findings=one.findings,
        )


def _precisions(subject: _Subject) -> Iterator[Change]:
    answer, rows = subject.answer, subject.analysis.precisions
    if subject.predictor.options.precision is not None or subject.predictor.pins:
        return
    names = {"cpu": subject.analysis.devices.cpu.name, "gpu": subject.gpu.name if subject.gpu else ""}
    best: dict[bool, tuple[float, Change]] = {}
    for row in rows:
        time, fits = row.latency, row.fits and row.keeps(subject.predictor.options.slo_s) is not False
        if row.decided or time is None or answer.latency is None or not fits or row.precision == "fp32":
            continue
        same, gain = row.device == answer.kind, over(answer.latency, time)
        if answer.plan == row.device and row.speedup and row.speedup_low and row.speedup_high:
            gain = row.speedup, row.speedup_low, row.speedup_high
        there = "" if same else f" on the {names[row.device]}"
        change = Change(
            code="precision",
            title=f"Run it in {row.precision}{there}: another model, whose accuracy must be checked",
            gain=gain,
            options={"precision": (row.precision,), **subject.elsewhere(row.device)},
            same_device=same,
        )
        integers = row.precision in INTEGER_FORMS
        if gain is not None and (integers not in best or gain[1] > best[integers][0]):
            best[integers] = gain[1], change
    for integers, (sure, change) in best.items():
        # Fewer bits lose more of the accuracy: they must bring something that the halves do not.
        if not integers or False not in best or sure > WORTHWHILE * best[False][0]:
            yield change


def _batch(subject: _Subject) -> Iterator[Change]:
    """Yield the smallest batch that does nearly the most, where one batch was looked at."""
    answer, batch, limit = subject.answer, subject.answer.batch, subject.predictor.options.slo_s
    rows = [(row.batch, row.plans[answer.plan]) for row in subject.analysis.sweep if answer.plan in row.plans]
    known = [(at, plan) for at, plan in rows if plan.fits and plan.latency.keeps(limit) is not False]
    if batch is None or len(subject.predictor.options.batches) > 1 or not known:
        return
    most = max(plan.throughput_per_s for _, plan in known)
    at, plan = next((at, plan) for at, plan in known if plan.throughput_per_s >= _SATURATED * most)
    after = (
        subject.parts(subject.question(subject.models.prepared_graphs[at], batch=at)) if at > batch else None
    )
    if after is not None and subject.before is not None:
        # Of as many inferences as now.
        gain = ratio(subject.before, after, under_weights=dict.fromkeys(EVEN, batch / at))
        rate = factor(gain[0]) if gain is not None else ""
        verb = "Train with" if subject.analysis.model.training else "Gather requests to"
        title = f"{verb} batch {at:,}: a run takes {seconds(plan.latency_s)}, at {rate} the rate"
        yield Change(code="batch", title=title, gain=gain, options={"batch": (str(at),)})


def _mixed(subject: _Subject) -> Iterator[Change]:
    """Yield autocast, which computes forward and backward in 16 bits and leaves the optimizer its own."""
    half, times = mixed_times(subject.prepared, subject.gpu) if subject.gpu else ("", ())
    if not half or subject.predictor.options.precision is not None or subject.answer.plan != "gpu":
        return
    own = subject.question(subject.prepared)
    after = subject.parts(replace(own, cuda_times=times))
    yield Change(
        code="precision",
        title=f"Train in mixed precision (torch.autocast to {half}): whether it converges must be checked",
        gain=subject.gain(in_other_kernels(subject.before or (), after or (), half)),
    )


def of_request(analysis: Analysis, one: Candidate, market: Market) -> tuple[Opportunity, ...]:
    """Return what would gain most in generating, where the answer is the way that the record is about."""
    answer, result = analysis.answer, analysis.generation
    if answer is None or result is None or (answer.device, answer.gpus) != (one.device.slug, result.gpus):
        return ()
    # What was run is one request in one setting; changes are predicted beside a prediction.
    return offered(analysis, _of_request(one, result, replace(market, measured={})))


def _of_request(one: Candidate, result: GenerationResult, market: Market) -> Iterator[Change]:
    """Yield other settings; where no batch is searched, larger ones and other numbers of GPUs too."""
    # Slow to import, and of no use to a model that does not generate.
    from analyzer.generation.answer import BATCHES
    from analyzer.generation.options import other_settings
    from analyzer.generation.times import timed

    def phases(setting: Setting, *batches: int) -> list[RequestPhases]:
        requests = [replace(one.request, batch=batch) for batch in batches]
        matches = timed(one.model, one.device, setting, requests, market.runner) if requests else ()
        return [each for each in matches if market.keeps(each)]

    own, others = one.request.batch, list[Change]()
    (now,) = timed(one.model, one.device, one.setting, [one.request], market.runner)
    before = now.components
    for option, value, title, setting in other_settings(one.setting, one.device.kind):
        for after in phases(setting, own):
            parts = after.components
            gain = ratio(before, parts if option == "launch" else in_other_kernels(before, parts, value))
            others.append(Change(code=option, title=title, gain=gain, options={option: (value,)}))
    yield from surest(others)
    if market.searches:
        return
    larger = phases(one.setting, *(batch for batch in BATCHES if own < batch <= (result.largest_batch or 0)))
    enough = _SATURATED * max((each.tokens_per_s for each in larger), default=0.0)
    for each in [each for each in larger if each.tokens_per_s >= enough][:1]:
        at = each.request.batch
        gain = ratio(before, each.components, EVEN, dict.fromkeys(EVEN, own / at))
        title = f"Begin {at:,} sequences together: the request takes {seconds(each.whole.value)}"
        yield Change(code="batch", title=title, gain=gain, options={"batch": (str(at),)})
    able = [row for row in result.widths if row.fits and row.meets_limits is not False]
    more = [row for row in able if row.gpus > result.gpus][:1]
    for row in (*more, *[row for row in able if row.gpus < result.gpus][-1:]):
        # More GPUs save time, fewer save dollars, which tokens cost by the time that they take.
        fewer, million = row not in more, [each.usd_per_million_tokens for each in (row, result)]
        usd = [
            dict.fromkeys(EVEN, (each.usd_per_million_tokens or 0.0) / each.request_s) for each in (result, row)
        ]
        title = f"Share it among {plural(row.gpus, 'GPU')}: a request takes {seconds(row.request_s)}"
        if None not in million:
            title += f", {' per million tokens instead of '.join(map(dollars, million))}"
        for each in phases(replace(one.setting, width=row.gpus), own):
            yield Change(
                code="fewer-gpus" if fewer else "more-gpus",
                title=title,
                gain=ratio(before, each.components, *(usd if fewer else ())),
                options={"gpus": (str(row.gpus),)},
                same_device=fewer,
                of_dollars=fewer,
            )


def _cuda_graph(subject: _Subject) -> Iterator[Change]:
    """Yield the replay of all kernels as one launch."""
    if subject.answer.plan == "gpu" and not not_captured(subject.prepared):
        yield Change(
            code="cuda-graph",
            title=f"Replay the launches as one CUDA graph (provider option {CUDA_GRAPH})",
            gain=replay_gain(subject.before, subject.parts(subject.question(subject.prepared, replayed=True))),
            options={"provider-option": (CUDA_GRAPH,), "plan": ("gpu",)},
            findings=("A202",),
        )


def _layout(subject: _Subject) -> Iterator[Change]:
    gain, turned = layout_gain(subject.analysis, subject.before)
    if subject.answer.plan == "gpu" and turned:
        yield Change(
            code="channels-last",
            title=f"Keep the images of {plural(len(turned), 'convolution')} channels last "
            f"(provider option {NHWC})",
            gain=gain,
            operators=turned,
            options={"provider-option": (NHWC,), "plan": ("gpu",)},
        )


def _opset(subject: _Subject) -> Iterator[Change]:
    opset, prepared = opset_with_kernels(subject.prepared), subject.prepared
    if opset is None or subject.gpu is None:
        return
    older = prepare(with_opset(prepared.graph, opset), release=prepared.placement.release)
    after = subject.parts(subject.question(replace(older, cpu_form=prepared.cpu_form)), "gpu")
    fallen = [at for at, one in enumerate(prepared.placement.nodes) if one.why == "no-kernel-for-opset"]
    verb = "has" if len(fallen) == 1 else "have"
    types = dict.fromkeys(prepared.graph.nodes[at].op_type for at in fallen)
    there = "" if subject.answer.kind == "gpu" else f", on the {subject.gpu.name}"
    yield Change(
        code="opset",
        title=f"Export at opset {opset}, where {first_few(types)} {verb} CUDA kernels{there}",
        gain=subject.gain(after),
        operators=tuple(fallen),
        options={"opset": (str(opset),), **subject.elsewhere("gpu")},
        same_device=subject.answer.kind == "gpu",
    )


_Rule = Callable[[_Subject], Iterator[Change]]
_RULES: tuple[_Rule, ...] = (_other_operators, _cuda_graph, _opset)
_OF_OWN: tuple[_Rule, ...] = (_precisions, _batch, _layout)
_OF_TRAINING: tuple[_Rule, ...] = (_mixed, _batch)
