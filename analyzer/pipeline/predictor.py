"""A prepared graph and two devices -> what the decision is asked: every group's and operator's time."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from analyzer import prediction
from analyzer.conversion import HALF
from analyzer.decision import DecisionInput
from analyzer.decision.decision_input import all_fits_gpu
from analyzer.decision.pins import parse as parse_pin
from analyzer.decision.placement_problem import Problems
from analyzer.decision.plans import session_plans
from analyzer.devices import catalogue
from analyzer.devices.device import Device, Instance
from analyzer.figures import Figure, total
from analyzer.graph import Graph
from analyzer.options import Options
from analyzer.ort.execution import Group
from analyzer.pipeline import forms
from analyzer.pipeline.machine import Host, HostedRuns
from analyzer.pipeline.measure import Measured
from analyzer.pipeline.prepared import PreparedGraph
from analyzer.pipeline.target_devices import Offers, decision_precision, model_precision, offers_of
from analyzer.precision import full_on_cuda, is_full
from analyzer.prediction.estimate import Estimate, limited
from analyzer.prediction.gpu.launch import UNKNOWN_HOST_WIDTH

# Operators. Of larger graphs the CPU's session is taken to hold what the CUDA session does.
_PLANNED_TWICE = 20_000
GroupEstimates = tuple[Estimate | None, ...]
# Of every group that the CPU session and the [CUDA, CPU] session execute.
SessionTimes = tuple[GroupEstimates, GroupEstimates]


class Predictor:
    """Predicts one model on chosen devices and asks the decision's question about it.

    ``correction`` is the measured over the predicted latency of the CPU, by which other batches are scaled, 1
    where nothing was measured; ``elsewhere`` the same for CPUs of other machines, less where others disturbed
    the run, None for alike. Of what can be rented None reads the catalogue and the options' price list.
    """

    def __init__(
        self,
        options: Options,
        cpu: Device,
        correction: float = 1.0,
        offers: Offers | None = None,
        *,
        elsewhere: float | None = None,
        like: Predictor | None = None,
    ) -> None:
        self.options = options
        self.cpu = cpu
        self.correction = correction
        self.elsewhere = correction if elsewhere is None else elsewhere
        self.offers = offers_of(options) if offers is None else offers
        self.instances = self.offers.instances
        self.pins = tuple(parse_pin(text) for text in options.pins)
        # A GPU that is not here stands in another machine: whose CPU launches is known where one was named. Of
        # a GPU in this machine the calibration tells.
        self.host = cpu if options.cpu is not None or options.fixed else None
        # What is the same beside every GPU, by the numbers that it follows from. Each value holds these too, as
        # an id is another's once its object is gone.
        self.known: dict[tuple[object, ...], tuple[tuple[object, ...], Any]] = like.known if like else {}
        self.problems: Problems = like.problems if like else Problems()
        self.sessions: prediction.Sessions = like.sessions if like else prediction.Sessions()
        self._beside: dict[tuple[Hashable, bool], Predictor] = {}
        self._predict_cuda: Callable[..., prediction.GroupTimes] = self.sessions.predict

    def _once(self, make: Callable[[], _Made], *held: object, key: tuple[object, ...]) -> _Made:
        """Return what is made of some objects and this CPU, made once."""
        held = self.cpu, *held
        full = (*key, self.correction, self.elsewhere, self.options.threads, *map(id, held))
        if full not in self.known:
            self.known[full] = (held, make())
        made: _Made = self.known[full][1]
        return made

    def decision_input(
        self,
        prepared: PreparedGraph,
        gpu: Device | None,
        batch: int | None,
        measured: Measured | None,
    ) -> DecisionInput:
        """Everything known about one prepared graph on one GPU but its operators' times, which no plan needs.

        ``measured`` is None for predictions alone.
        """
        precision = decision_precision(self.options, prepared.graph, gpu)
        if measured is not None:
            prepared = self._as_measured(prepared, measured, with_gpu=gpu is not None)
        cpu_times = self._cpu_times(prepared, measured)
        cuda_times = self._cuda_times(prepared, gpu, precision, measured, cpu_times) if gpu else ()
        return self._question(prepared, gpu, batch, precision, (cpu_times, cuda_times), measured)

    def with_operators(
        self, question: DecisionInput, prepared: PreparedGraph, measured: Measured | None
    ) -> DecisionInput:
        """Return the question with each operator's share of its group's time."""
        gpu, precision = question.gpu, question.precision
        if measured is not None:
            prepared = self._as_measured(prepared, measured, with_gpu=gpu is not None)
        return replace(
            question,
            cpu_shares=self._cpu_shares(prepared, question.cpu_times),
            gpu_shares=prepared.shares("cuda", question.cuda_times, gpu, precision) if gpu else (),
        )

    def gpu_has_room(self, prepared: PreparedGraph, gpu: Device, batch: int) -> bool:
        """Return whether a GPU holds the whole model at a batch, for which nothing need be timed."""
        precision = decision_precision(self.options, prepared.graph, gpu)
        return all_fits_gpu(self._question(prepared, gpu, batch, precision, ((), ()), None))

    def _as_measured(self, prepared: PreparedGraph, measured: Measured, *, with_gpu: bool) -> PreparedGraph:
        """Return the graph with the groups that were measured in place of the predicted ones."""
        if not measured.cpu_groups and not (measured.cuda_groups and with_gpu):
            return prepared
        groups = {
            "cpu_groups": measured.cpu_groups or prepared.cpu_groups,
            "cuda_groups": (with_gpu and measured.cuda_groups) or prepared.cuda_groups,
        }
        make = partial(replace, prepared, **groups)
        return self._once(make, prepared, measured, key=("measured", with_gpu))

    def _question(
        self,
        prepared: PreparedGraph,
        gpu: Device | None,
        batch: int | None,
        precision: str,
        times: SessionTimes,
        measured: Measured | None,
    ) -> DecisionInput:
        options, session, (cpu_times, cuda_times) = self.options, prepared.on_cpu, times
        cpu_groups, cuda_groups, seen = prepared.groups_on_cpu, prepared.cuda_groups, measured or Measured()
        about = partial(forms.sentences, prepared, gpu=gpu is not None)
        return DecisionInput(
            graph=prepared.graph,
            table=prepared.table,
            cpu=self.cpu,
            cpu_groups=cpu_groups,
            cpu_times=cpu_times,
            gpu=gpu,
            cuda_groups=cuda_groups if gpu else (),
            cuda_times=cuda_times,
            placement=prepared.placement if gpu else None,
            batch=batch,
            precision=precision,
            objective=options.objective,
            limit_s=options.slo_s,
            pins=self.pins,
            instances=self.instances,
            utilisation=options.utilisation,
            cpu_latency=_at_any_length(seen.cpu_latency, session.graph, cpu_groups, cpu_times),
            cuda_latency=_at_any_length(seen.cuda_latency, prepared.graph, cuda_groups, cuda_times),
            peak_memory_bytes=prepared.cuda_peak if gpu else prepared.cpu_peak,
            # The two sessions differ where integers run on the CPU alone. To plan a second one's buffers takes
            # 4 s for 100,000 operators.
            cpu_peak_memory_bytes=session.cpu_peak if len(session.graph.nodes) <= _PLANNED_TWICE else None,
            cpu_weight_bytes=prepared.cpu_form.weight_bytes if prepared.cpu_form else None,
            cpu_lacks=prepared.cpu_form.lacks if prepared.cpu_form else (),
            run_fails=seen.fails,
            load_fails=prepared.load_fails,
            cpu_fails="" if prepared.cpu_form else prepared.placement.cpu_fails,
            lacks=prepared.placement.lacks,
            # What no provider has a kernel for is predicted as if either ran it.
            gpu_only=frozenset()
            if prepared.cpu_form or prepared.placement.lacks
            else prepared.placement.gpu_only,
            about_form=self._once(lambda: tuple(about()), prepared, key=("form", gpu is None)),
            cpu_is_this_machine=options.cpu is None and not options.fixed,
            cpu_on=self._latency_on_instance(prepared, model_precision(session.graph), measured),
            gpu_on=None
            if gpu is None
            else HostedRuns(
                partial(self._question_on_host, prepared, gpu, batch, times, measured),
                self.problems,
                falls_back=any(group.provider == "cpu" for group in cuda_groups),
            ),
        )

    def _cpu_times(self, prepared: PreparedGraph, measured: Measured | None) -> GroupEstimates:
        """Time in a CPU session, which add up to its latency where that was measured."""
        on_cpu = model_precision(prepared.on_cpu.graph)
        _, predicted = self._on_own_cpu(prepared.on_cpu.cpu_work, on_cpu)
        times: GroupEstimates = predicted
        if measured is None:
            return times
        if measured.cpu_times:
            times = _bound_as(measured.cpu_times, predicted)
        # Scaled to what the whole run took where that is known.
        run, spent = measured.cpu_latency, _sum_of(times)
        if run is None or not spent:
            return times
        return tuple(time and time.scaled(run.value / spent) for time in times)

    def _cuda_times(
        self,
        prepared: PreparedGraph,
        gpu: Device,
        precision: str,
        measured: Measured | None,
        cpu: GroupEstimates,
    ) -> GroupEstimates:
        """Time in a [CUDA, CPU] session: groups that fall back take the CPU's time."""
        times = self._on_gpu(prepared, gpu, precision)
        fallen = np.array([group.provider == "cpu" for group in prepared.cuda_groups], dtype=np.bool_)
        if fallen.any():
            fallback, _ = self._on_own_cpu(prepared.cuda_work, model_precision(prepared.graph))
            fallen_back: Iterable[Estimate | None] = fallback.only(fallen).estimates()
            if measured is not None and measured.cpu_latency is not None:
                groups = [group for group in prepared.cuda_groups if group.provider == "cpu"]
                fallen_back = self._as_in_the_cpu_session(prepared, cpu, groups, tuple(fallen_back))
            left = iter(fallen_back)
            times = tuple(next(left) if falls else time for falls, time in zip(fallen, times, strict=True))
        return _bound_as(measured.cuda_times, times) if measured is not None and measured.cuda_times else times

    def _as_in_the_cpu_session(
        self,
        prepared: PreparedGraph,
        cpu: GroupEstimates,
        groups: Sequence[Group],
        predicted: GroupEstimates,
    ) -> Iterator[Estimate | None]:
        """Yield times of the same operators in the CPU's session, where that ran on the same processor.

        ``groups`` are those of the CUDA session that fall back; ``predicted`` holds for what the CPU's session
        does not run.
        """
        shares = self._cpu_shares(prepared, cpu)
        for group, estimate in zip(groups, predicted, strict=True):
            parts = [shares[member] for member in group.members]
            known = [part for part in parts if part is not None]
            if estimate is None or not known or len(known) < len(parts):
                yield estimate
                continue
            # Mixed: it was timed in another session than this one.
            yield limited(replace(total(known), origin="mixed"), estimate.bound)

    def _on_gpu(self, prepared: PreparedGraph, gpu: Device, precision: str) -> GroupEstimates:
        """Time of the CUDA session's groups, as if all ran there; in 16 bits, of those that can."""

        def session(precision: str) -> GroupEstimates:
            work, host = prepared.cuda_work, self.host
            return self._predict_cuda(work, gpu, precision=precision, host=host).estimates()

        times = session(precision)
        if precision not in HALF or not is_full(model_precision(prepared.graph)):
            return times
        wide = prepared.wide(precision)
        left = wide.among(prepared.cuda_groups)
        if not left.any():
            return times
        in_full = session(full_on_cuda(gpu.peak_flops_per_s))
        narrow_to_wide = [group for group, is_wide in zip(prepared.cuda_groups, left, strict=True) if is_wide]
        casts = iter(wide.casts(narrow_to_wide, gpu, precision))

        def with_casts(time: Estimate | None, casts: Figure | None) -> Estimate | None:
            if time is None or casts is None:
                return time
            ends = {name: getattr(time, name) + getattr(casts, name) for name in ("value", "low", "high")}
            return replace(time, **ends)

        return tuple(
            with_casts(full_time, next(casts)) if is_wide else time
            for time, full_time, is_wide in zip(times, in_full, left.tolist(), strict=True)
        )

    def _on_own_cpu(
        self, work: prediction.Workload, precision: str
    ) -> tuple[prediction.GroupTimes, GroupEstimates]:
        """Time on the decision's CPU; the correction is of this very CPU, fallbacks of a GPU included."""

        def make() -> tuple[prediction.GroupTimes, GroupEstimates]:
            predicted = self._uncorrected(work, precision).scaled(self.correction)
            return predicted, predicted.estimates()

        return self._once(make, work, key=("own", precision))

    def _uncorrected(self, work: prediction.Workload, precision: str) -> prediction.GroupTimes:
        return self.sessions.predict(work, self.cpu, precision=precision, threads=self.options.threads)

    def _cpu_shares(self, prepared: PreparedGraph, times: GroupEstimates) -> GroupEstimates:
        """Time of a CPU session's groups, split over the graph's operators."""
        session, threads = prepared.on_cpu, self.options.threads
        return prepared.from_cpu(
            session.shares("cpu", times, self.cpu, model_precision(session.graph), threads)
        )

    def _latency_on_instance(
        self, prepared: PreparedGraph, precision: str, measured: Measured | None
    ) -> Callable[[Instance], Figure | None]:
        """Return the latency on a CPU for rent."""
        # Instances of a family differ in memory and price: what their CPU takes is predicted once.
        known: dict[object, Figure | None] = {}

        def latency(instance: Instance) -> Figure | None:
            key = (instance.cpu, instance.vcpus, instance.threads_per_core, instance.cpu_nearest)
            if key not in known:
                cpu = catalogue.instance_cpu(instance)
                known[key] = None if cpu is None else self.on_another_cpu(prepared, cpu, precision, measured)
            return known[key]

        return self._once(lambda: latency, prepared.on_cpu, measured, key=("rented",))

    def on_another_cpu(
        self, prepared: PreparedGraph, cpu: Device, precision: str, measured: Measured | None
    ) -> Figure:
        """Return a session's times on a CPU that is not the decision's.

        ``--threads`` belongs to the decision's.
        """
        if measured is not None:
            prepared = self._as_measured(prepared, measured, with_gpu=False)
        work = prepared.on_cpu.cpu_work
        there = self.sessions.predict(work, cpu, precision=precision)
        if measured is None or not (measured.cpu_latency or measured.cpu_times):
            # Of another batch than that which ran: what it showed of the model is true of this one too.
            return there.scaled(self.elsewhere).total()
        own = self._uncorrected(work, precision).estimates()
        times, run = _undisturbed(own, self._cpu_times(prepared, measured), measured)
        # Of each group its prediction there, times measured over predicted here: the kernels are the same, and
        # so is most of what their prediction has wrong. Both are independent factors of the interval.
        moved = total(time for time, _ in _moved(there.estimates(), own, times) if time is not None)
        return _widened(moved, *_ends(times, run))

    def _question_on_host(
        self,
        prepared: PreparedGraph,
        gpu: Device,
        batch: int | None,
        times: SessionTimes,
        measured: Measured | None,
        host: Host,
    ) -> DecisionInput:
        """Return the question with a rented machine's processor: only factors of this machine remain.

        Measured over predicted here holds for the kernels there, as for CPUs that can be rented. It says
        nothing of launches: how fast a core hands over kernels is read from the core that does it.
        """
        ran = measured is not None and bool(measured.cpu_latency or measured.cpu_times)
        if (host.key, ran) not in self._beside:
            # ``--threads`` belongs to the decision's CPU; a graph that ran here has factors of its own.
            options = self.options.replace(cpu=host.cpu.slug, threads=None)
            own = Predictor(options, host.cpu, 1.0 if ran else self.elsewhere, self.offers, like=self)
            self._beside[host.key, ran] = own
        there = self._beside[host.key, ran]
        # The time of a launch that calibration measured is of the host that the GPU stands in.
        launches = {key: value for key, value in gpu.calibration.items() if key != _LAUNCH}
        question = there.decision_input(prepared, replace(gpu, calibration=launches), batch, None)
        question = replace(question, gpu=gpu, gpu_on=None)
        if host.basis == "assumed":
            question = _of_an_assumed_cpu(question)
        if measured is None:
            return question
        on_cpu = model_precision(prepared.on_cpu.graph)
        if ran:
            here = self._uncorrected(prepared.on_cpu.cpu_work, on_cpu).estimates()
            seen, run = _undisturbed(here, times[0], measured)
            corrected = _corrected(question.cpu_times, here, seen, run)
            before, after = _sum_of(question.cpu_times), _sum_of(corrected)
            ratio = after / before if before else 1.0
            fallen = [group.provider == "cpu" for group in question.cuda_groups]
            question = replace(
                question,
                cpu_times=corrected,
                cuda_times=tuple(
                    time.scaled(ratio) if falls and time is not None else time
                    for falls, time in zip(fallen, question.cuda_times, strict=True)
                ),
            )
        return self._with_measured_gpu(question, prepared, gpu, times[1], measured)

    def _with_measured_gpu(
        self,
        question: DecisionInput,
        prepared: PreparedGraph,
        gpu: Device,
        seen: GroupEstimates,
        measured: Measured,
    ) -> DecisionInput:
        """With what the GPU in this machine showed of its kernels: launches included, which ran beside them."""
        if not (measured.cuda_times or measured.cuda_latency):
            return question
        here = self._on_gpu(prepared, gpu, question.precision)
        on_gpu = [group.provider != "cpu" for group in question.cuda_groups]
        own = tuple(time if ours else None for time, ours in zip(here, on_gpu, strict=True))
        if measured.cuda_latency is not None:
            # Of the whole run, host to host, with its copies.
            session = session_plans(replace(question, cuda_times=seen)).gpu
            spent = session.latency.value if session is not None else 0.0
            scale = measured.cuda_latency.value / spent if spent else 1.0
            seen = tuple(None if time is None else time.scaled(scale) for time in seen)
        corrected = _corrected(question.cuda_times, own, seen, measured.cuda_latency)
        return replace(question, cuda_times=corrected)

    def alike(self, options: Options) -> Predictor:
        """Return a predictor of other options; the correction is the machine's, and holds for any form."""
        here, elsewhere = self.correction, self.elsewhere
        return Predictor(options, self.cpu, here, self.offers, elsewhere=elsewhere, like=self)

    def replaying(self) -> Predictor:
        """Return the same where kernels are launched as one CUDA graph, whose own launch is not in it."""
        one: Predictor = self.alike(self.options)
        one._predict_cuda = partial(prediction.predict_arrays, replayed=True)
        return one


def _at_any_length(
    latency: Figure | None, graph: Graph, groups: Sequence[Group], times: GroupEstimates
) -> Figure | None:
    """Return a measured run whose interval reaches down to the fewest steps that its recurrences may take.

    What was run had the longest sequences alone; what is predicted beside it is told for all lengths, and only
    times of the same lengths may be compared.
    """
    if latency is None:
        return None
    known = [(group, time.value) for group, time in zip(groups, times, strict=False) if time is not None]
    spent = sum(time_s for _, time_s in known)
    if not spent:
        return latency
    spared = 0.0
    for group, time_s in known:
        steps = [graph.nodes[index].steps for index in group.members if index < len(graph.nodes)]
        # A recurrence's time is that of its steps, one after the other.
        spared += time_s * max((1 - one[0] / one[1] for one in steps if one is not None), default=0.0)
    return replace(latency, low=latency.low * (1 - spared / spent)) if spared else latency


def _bound_as(times: GroupEstimates, predicted: GroupEstimates) -> GroupEstimates:
    """Return measured times with what bounds each group, which cannot be timed."""
    return tuple(
        time and replace(time, bound=estimate.bound if estimate else None)
        for time, estimate in zip(times, predicted, strict=True)
    )


def _undisturbed(
    here: GroupEstimates, times: GroupEstimates, measured: Measured
) -> tuple[GroupEstimates, Figure | None]:
    """Return a run's evidence about other machines: of a disturbed one, only what others cannot explain.

    How long it was held up is nothing of the model's, and nobody holds it up elsewhere: between the quietest
    that it may have been and what was timed, the prediction decides. It is as sure as before.
    """
    run, spent = measured.cpu_latency, _sum_of(here)
    timed = run or total(time for time in times if time is not None)
    if not measured.busy or not spent:
        return times, run
    quiet = undisturbed_s(spent, timed)
    as_predicted = tuple(None if time is None else time.scaled(quiet / spent) for time in here)
    return as_predicted, replace(timed, value=quiet, low=quiet, high=quiet)


def undisturbed_s(predicted_s: float, timed: Figure) -> float:
    """Return a disturbed run's time alone: as predicted, within the quietest and the timed one."""
    return min(max(predicted_s, timed.low), timed.value)


def _corrected(
    there: GroupEstimates, here: GroupEstimates, measured: GroupEstimates, run: Figure | None
) -> GroupEstimates:
    """Each group's prediction there, times measured over predicted here; as it is where none was measured."""
    ends = _ends(measured, run)
    return tuple(
        _widened(time, *ends) if time and is_moved else time for time, is_moved in _moved(there, here, measured)
    )


def _moved(
    there: GroupEstimates, here: GroupEstimates, measured: GroupEstimates
) -> Iterator[tuple[Estimate | None, bool]]:
    """Predictions there, times measured over predicted here where both are known, and whether they are."""
    for other, own, time in zip(there, here, measured, strict=True):
        if other and own and time and own.value > 0:
            yield other.scaled(time.value / own.value), True
        else:
            yield other, False


def _ends(measured: GroupEstimates, run: Figure | None) -> tuple[float, float]:
    """Return how sure a measurement is: logarithms of the ends of its interval."""
    timed = run or total(time for time in measured if time is not None)
    return _log(timed.low, timed.value), _log(timed.high, timed.value)


def _widened(time: _Figure, down: float, up: float) -> _Figure:
    """With a further independent factor, of which these are the logarithms of its ends."""
    return replace(
        time,
        low=time.value / math.exp(math.hypot(_log(time.low, time.value), down)),
        high=time.value * math.exp(math.hypot(_log(time.high, time.value), up)),
    )


def _of_an_assumed_cpu(question: DecisionInput) -> DecisionInput:
    """Return fallback times on an unnamed CPU, as uncertain as its speed besides their prediction."""
    further = math.log(UNKNOWN_HOST_WIDTH)

    def wide(time: Estimate | None) -> Estimate | None:
        return None if time is None else _widened(time, further, further)

    return replace(
        question,
        cpu_times=tuple(map(wide, question.cpu_times)),
        cuda_times=tuple(
            wide(time) if group.provider == "cpu" else time
            for group, time in zip(question.cuda_groups, question.cuda_times, strict=True)
        ),
    )


def _sum_of(times: GroupEstimates) -> float:
    return sum(time.value for time in times if time is not None)


def _log(end: float, middle: float) -> float:
    """Return how far an end of an interval is from its middle, as a logarithm."""
    return abs(math.log(max(end / middle, _LEAST))) if middle > 0 else 0.0


# Of a time: an interval that reaches 0 has no logarithm.
_LEAST = 1e-3
_Figure = TypeVar("_Figure", bound=Figure)
_Made = TypeVar("_Made")
_LAUNCH = "cuda.node"
