"""The same weights in every precision on both devices: what each would take, and why."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any

from analyzer.conversion import HALF, NoForm, convert, integer_form
from analyzer.decision import DecisionInput
from analyzer.decision.decision_input import Side
from analyzer.decision.error_components import over, ratio
from analyzer.decision.money import cheapest, offers, on_its_device
from analyzer.decision.plans import Plan, Plans, by_operator_type, session_plans
from analyzer.devices.device import Device
from analyzer.figures import Figure
from analyzer.pipeline import forms
from analyzer.pipeline.forms import in_full
from analyzer.pipeline.measure import Measured
from analyzer.pipeline.predictor import Predictor
from analyzer.pipeline.prepared import PreparedGraph, prepare
from analyzer.pipeline.target_devices import decision_precision, model_precision
from analyzer.precision import INTEGER_FORMS, PRECISIONS, bytes_at, on_device
from analyzer.record.outcome import CostRow, PrecisionResult
from analyzer.text import listed, plural
from analyzer.units import byte_count, factor

# Operators. Beyond, a table would cost more than the whole report: each integer form is prepared anew.
_MOST_OPERATORS = 3000
# GPUs. A prediction for each precision on each: with all of the catalogue it would take longer than the rest.
_MOST_TABLES = 8
# Ends of the time of a model in fp16 on a CPU, over those in fp32: what is lost behind the Casts, above all
# fusions, is not predicted. Of six networks on one processor the times were 0.9 to 1.3 of those in fp32.
_FP16_ON_CPU = (0.9, 1.5)
# Times and dollars that differ by less are told as the same.
_NOTICED = 1.01
# What to say of a form that takes longer than the model as it is.
_LOSSES: Mapping[tuple[str, Side], str] = MappingProxyType(
    {
        ("int8", "cpu"): "; quantising, and what stays in floats, cost more than they save",
        ("int4", "cpu"): "; to unpack them costs more than to read fewer bytes saves",
        ("int4", "gpu"): "; to unpack them costs more than to read fewer bytes saves",
    }
)


def precision_tables(
    predictor: Predictor,
    prepared: PreparedGraph,
    gpus: Sequence[Device],
    batch: int | None,
    measured: Measured | None,
    on_cpu: Measured | None,
) -> tuple[tuple[PrecisionResult, ...], ...]:
    """Return a row for each precision on the CPU and the first GPU, then tables of further GPUs alone.

    Of very many GPUs only the first have a table. ``on_cpu`` is the CPU's part of what was ``measured``, which
    holds beside any GPU.

    None for a model that is quantised already or of other floats.
    """
    graph = prepared.graph
    own = model_precision(graph)
    if len(graph.nodes) > _MOST_OPERATORS or graph.is_training_step or integer_form(graph):
        return ()
    if own not in ("fp32", *HALF):
        return ()
    # Its kernels on CUDA are of 16 bits alone: made whole first, as other forms of a graph of halves are, it
    # would leave the GPU, and they would be told as nobody would make them.
    if own in HALF and any(node.op_type == "GroupQueryAttention" for node in graph.nodes):
        return ()
    whole = prepared if own == "fp32" else prepare(in_full(graph), release=prepared.placement.release)

    @cache  # prepared once for all devices
    def form(precision: str) -> PreparedGraph | NoForm:
        made = convert(whole.graph, precision)
        return made if isinstance(made, NoForm) else prepare(made, release=whole.placement.release)

    of_first: tuple[Any, ...] = (gpus[0], measured, ("cpu", "gpu")) if gpus else (None, measured, ("cpu",))
    further = ((gpu, on_cpu, ("gpu",)) for gpu in gpus[1:_MOST_TABLES])
    return tuple(
        tuple(_Table(predictor, prepared, whole, form, gpu, batch, ran, sides).rows())
        for gpu, ran, sides in (of_first, *further)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """A plan for one precision on one device, and what is said of it."""

    prepared: PreparedGraph
    question: DecisionInput
    plan: Plan
    latency: Figure
    reason: str
    loss: tuple[float, float] = (1.0, 1.0)  # ends of what is lost beside what is predicted, as factors of time


@dataclass(eq=False)
class _Table:
    _predictor: Predictor
    _prepared: PreparedGraph
    _whole: PreparedGraph
    _integer_form: Callable[[str], PreparedGraph | NoForm]
    _gpu: Device | None
    _batch: int | None
    _measured: Measured | None
    _sides: tuple[Side, ...]

    def __post_init__(self) -> None:
        options, graph = self._predictor.options, self._prepared.graph
        self._own = model_precision(graph)
        as_it_is = decision_precision(options.replace(precision=None), graph, self._gpu)
        self._own_on: Mapping[Side, str] = {"cpu": self._own, "gpu": as_it_is}
        self._decided = decision_precision(options, graph, self._gpu)
        self._planned: dict[tuple[PreparedGraph, str, bool], tuple[DecisionInput, Plans]] = {}

    def rows(self) -> Iterator[PrecisionResult]:
        """Yield all rows, those of the CPU and of the GPU side by side."""
        result = [(precision, side, form) for precision in PRECISIONS for side, form in self._forms(precision)]
        as_it_is = {
            side: form
            for precision, side, form in result
            if precision == self._own_on[side] and isinstance(form, _Form)
        }
        for precision, side, form in result:
            chosen = precision == (self._own if side == "cpu" else self._decided)
            yield self._row(precision, side, form, as_it_is.get(side), decided=chosen)

    def _forms(self, precision: str) -> Iterator[tuple[Side, _Form | str]]:
        if precision in INTEGER_FORMS:
            form = self._integer_form(precision)
            for side in self._sides:
                if isinstance(form, NoForm):
                    yield side, form.why
                else:
                    reason = self._reason_of_integers(precision, side, form)
                    yield side, self._form(form, precision, side, reason)
            return
        if precision != "tf32" and "cpu" in self._sides:  # a mode of NVIDIA's tensor cores
            yield "cpu", self._floats_on_cpu(precision)
        if self._gpu is not None and not (precision == "tf32" and on_device(self._gpu, precision).substitute):
            prepared = self._prepared if precision == self._own else self._whole
            yield "gpu", self._form(prepared, precision, "gpu", self._reason_on_gpu(precision, self._gpu))

    def _floats_on_cpu(self, precision: str) -> _Form | str:
        if precision == "bf16":
            return forms.no_bf16_on_cpu(self._whole.graph, self._whole.placement.release)
        if precision == self._own:
            return self._form(self._prepared, precision, "cpu", "the model as it is")
        if precision == "fp32":
            return self._form(self._whole, precision, "cpu", "every float in 32 bits")
        form = self._form(self._whole, "fp32", "cpu", "")
        if isinstance(form, str):
            return form
        reason = "ONNX Runtime's CPU provider has no fp16 kernels: it computes in fp32 between Casts"
        low, high = _FP16_ON_CPU
        own = form.latency
        time = replace(own, low=own.low * low, high=own.high * high, origin="predicted")
        return replace(form, latency=time, reason=reason, loss=_FP16_ON_CPU)

    def _reason_on_gpu(self, precision: str, gpu: Device) -> str:
        known, whole = on_device(gpu, precision), self._whole
        multiplies = forms.multiplies_on_cuda(whole)
        if precision == "fp32":
            own = "multiplied in full fp32 (use_tf32=0)"
            return own if "tf32" in gpu.peak_flops_per_s and multiplies else "the model in fp32"
        if precision == "tf32":
            if not multiplies:
                return "no matrix multiplication of floats runs on the GPU: the same as in fp32"
            return "factors rounded to TF32, ONNX Runtime's own choice (use_tf32=1)"
        if not forms.floats_on_cuda(whole):
            return "nothing of floats runs on the GPU: the same as in fp32"
        narrowed = "half the bytes"
        if wide := sorted(whole.wide(precision).indices):
            types = dict.fromkeys(whole.graph.nodes[index].op_type for index in wide)
            verb = "stays" if len(wide) == 1 else "stay"
            narrowed = (
                f"ONNX Runtime's CUDA provider has no {precision} kernel for {listed(types)}: "
                f"{plural(len(wide), 'operator')} {verb} in fp32 between Casts"
            )
        elif multiplies and known.substitute:
            narrowed += f", but {gpu.name} multiplies {precision} at its {known.peak} rate"
        elif multiplies and known.tensor:
            narrowed += ", matrix multiplications on tensor cores"
        return "; ".join(filter(None, (narrowed, forms.left_on_cpu(whole))))

    def _reason_of_integers(self, precision: str, side: Side, prepared: PreparedGraph) -> str:
        if precision == "int4":
            before, stored = self._prepared.graph.parameter_bytes, prepared.graph.initializers
            after = sum(bytes_at(tensor, "fp32" if side == "cpu" else "fp16") or 0 for tensor in stored)
            sizes = byte_count(before), byte_count(after)
            same = f"of the weights' {sizes[0]} next to nothing"  # what is shown of both is the same
            read = f"{forms.packed(prepared)}, "
            read += same if sizes[0] == sizes[1] else f"{sizes[0]} become {sizes[1]}"
            return read if side == "cpu" else f"{read}; floats in fp16"
        if side == "cpu":
            peaks = self._predictor.cpu.peak_flops_per_s
            whole, narrow = peaks.get("fp32"), peaks.get("int8")
            known = (
                f", which this CPU multiplies {factor(narrow / whole)} as fast as fp32"
                if whole and narrow
                else ""
            )
            return f"{forms.on_cpu(prepared)}{known}"
        return forms.on_cuda(prepared)

    def _form(self, prepared: PreparedGraph, precision: str, side: Side, reason: str) -> _Form | str:
        ran = prepared is self._prepared and (side == "cpu" or precision == self._decided)
        question, plans = self._plans(prepared, precision, ran=ran)
        plan = plans.cpu if side == "cpu" else plans.gpu
        fails = prepared.placement.fails if plan is None else question.fails
        fails = (side == "cpu" and question.cpu_refuses) or fails
        if plan is None or fails:
            return f"ONNX Runtime makes no such session: {fails}" if fails else "no session is known"
        return _Form(prepared=prepared, question=question, plan=plan, latency=plan.latency, reason=reason)

    def _gain_on_cpu(self, own: _Form, form: _Form) -> tuple[float, float, float] | None:
        """Return how much less time one takes than the other on the same CPU, prediction over prediction.

        What a run erred by is in neither, and operators that both have err together.
        """
        before, after = (
            by_operator_type(question, plans.cpu)
            for one in (own, form)
            for question, plans in (self._plans(one.prepared, one.question.precision, ran=False),)
        )
        result = ratio(before, after)
        if result is None:
            return None
        middle, low, high = result
        down, up = (
            math.hypot(math.log(end / middle), math.log(lost))
            for end, lost in zip((low, high), reversed(form.loss), strict=True)
        )
        return middle, middle * math.exp(-down), middle * math.exp(up)

    def _plans(self, prepared: PreparedGraph, precision: str, *, ran: bool) -> tuple[DecisionInput, Plans]:
        """Return question about one graph in one precision and the sessions' plans: both devices share them."""
        key = (prepared, precision, ran and self._measured is not None)
        if key not in self._planned:
            base = self._predictor
            alike = base.alike(base.options.replace(precision=precision))
            measured = self._measured if ran else None
            question = alike.decision_input(prepared, self._gpu, self._batch, measured)
            self._planned[key] = (question, session_plans(question, base.problems))
        return self._planned[key]

    def _row(
        self, precision: str, side: Side, form: _Form | str, own: _Form | None, *, decided: bool
    ) -> PrecisionResult:
        if isinstance(form, str):
            return PrecisionResult(precision=precision, device=side, reason=form)
        price = _price(form)
        speedup, time = None, form.latency
        if own is not None and own is not form:
            speedup = self._gain_on_cpu(own, form) if side == "cpu" else over(own.latency, time)
            if side == "cpu" and speedup is not None and own.latency.origin == "measured":
                # A measured time over a predicted gain, whose errors have nothing in common.
                result = over(own.latency, Figure(value=speedup[0], low=speedup[1], high=speedup[2]))
                if result is not None:
                    value, low, high = result
                    time = replace(own.latency, value=value, low=low, high=high, origin="predicted")
        loss = _LOSSES.get((precision, side), "") if speedup is not None and speedup[0] < 1 else ""
        if own is not None and speedup is not None and price is not None:
            loss += _other_direction(speedup[0], _price(own), price)
        row = PrecisionResult(
            precision=precision,
            device=side,
            reason=form.reason + loss,
            decided=decided,
            **time.keys("latency_s"),
            throughput_per_s=form.question.inferences / time.value if time.value > 0 else 0.0,
            memory_bytes=form.plan.memory_bytes,
            fits=form.plan.fits,
            speedup=speedup[0] if speedup else None,
            speedup_low=speedup[1] if speedup else None,
            speedup_high=speedup[2] if speedup else None,
        )
        return row.priced_as(price)


def _price(form: _Form) -> CostRow | None:
    """Return the instance that runs a form for the least as the question's devices do; None where none does."""
    return cheapest(on_its_device(form.question, form.plan, offers(form.question, form.plan)))


def _other_direction(speedup: float, before: CostRow | None, after: CostRow) -> str:
    """Return why dollars go the other way than times; empty where they do not."""
    if before is None or before.usd_per_million is None or after.usd_per_million is None:
        return ""
    change = after.usd_per_million / before.usd_per_million if before.usd_per_million else 1.0
    # Each is of the instance that costs least: if the least rises, it rises on the one that was the cheapest.
    if speedup > _NOTICED and change > _NOTICED:
        return f"; dearer all the same, as {before.provider} {before.instance} takes longer for it"
    if speedup < 1 / _NOTICED and change < 1 / _NOTICED:
        return f"; cheaper all the same, as {after.provider} {after.instance} takes less time for it"
    return ""
