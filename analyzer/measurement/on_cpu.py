"""Measuring on the CPU provider, inside the child process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from analyzer.measurement import machine_load, profile, tensor_files
from analyzer.measurement.child_messages import OPTIMIZED_FULL, Reporter
from analyzer.measurement.machine_load import peak_resident_bytes, resident_bytes
from analyzer.measurement.node_replay import BELOW_CLOCK_S, replay
from analyzer.measurement.noise import (
    APART_RATIO,
    LEAST_TURNS,
    Bias,
    CoreDistance,
    Reading,
    TurnResult,
    alternate,
    calibrate_bias,
    close_turns,
    core_distance,
    quieter_half,
    turns_for,
)
from analyzer.measurement.request import Latency, MeasureRequest, NodeTime
from analyzer.measurement.session import SessionSettings, bind_session, create, explained, settings_for
from analyzer.measurement.timing_loops import Budget, median, settle, summarize, timed_runs, warm_up

# Shares of the time budget: what comes before the operators, and what takes turns with them.
_WARM_UP, _TIMED, _PROFILED, _AGAIN, _REPLAYED = 0.1, 0.2, 0.2, 0.35, 0.15
# And how long it may wait, on top, for cores that were moved apart to come together.
_PATIENCE = 0.5
# A profile takes some 650 to 920 bytes a node and run: 18 MB at most.
_MOST_EVENTS = 20_000
# Beginning a turn takes some 0.15 s on top.
_MOST_TURNS, _TURNS_PER_S = 12, 2
NOTHING: Mapping[str, float] = MappingProxyType({})
# The first allocates, the second takes its buffers as one block (ONNX Runtime's memory pattern).
_SKIPPED_RUNS = 3
# Making a session takes more for a while than it holds.
_SESSION_PEAK = 1.3
_UNPROFILED = "unprofiled runs of ONNX Runtime's CPU provider"
_ALONE_TEXT = "timed alone (its time is below the profiler's clock), scaled with the others"
_PROFILED_TEXT = "ONNX Runtime's profile, bias taken off, scaled to the unprofiled latency"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A measurement in this process: what is asked, the inputs and settings, where results go."""

    request: MeasureRequest
    folder: Path
    reporter: Reporter
    settings: SessionSettings
    feeds: Mapping[str, Any]

    @classmethod
    def loaded(cls, request: MeasureRequest, folder: Path, reporter: Reporter) -> tuple[Job, Any]:
        """Make the session, and return it with all that is needed to run it."""
        settings = settings_for(request, threads=request.threads or machine_load.default_threads())
        reporter.progress("loading", 0.0)
        start = time.perf_counter()
        session = create(request.model_path, settings)
        reporter.update(load_s=time.perf_counter() - start)
        feeds = feeds_for(request, session, reporter)
        return cls(request=request, folder=folder, reporter=reporter, settings=settings, feeds=feeds), session

    def profiling_session(self) -> tuple[Any, int]:
        """Make a session that profiles, report its optimized graph, and return it with its number of nodes."""
        import onnx

        optimized = self.folder / OPTIMIZED_FULL
        # A session profiles all its life or not at all: profiled runs need one of their own.
        settings = replace(self.settings, profile_prefix=self.folder / "profile", optimized_path=optimized)
        session = create(self.request.model_path, settings)
        self.reporter.optimized(optimized)
        return session, len(onnx.load(optimized, load_external_data=False).graph.node) or 1

    def report_arena(self, events: Sequence[profile.ProfileEvent]) -> None:
        """Report the largest use of the provider's arena, where the profile has it."""
        self.reporter.update(arena_peak_bytes=profile.arena_peak_bytes(events, self.settings.provider))

    def keep_outputs(self, session: Any) -> None:
        """Save what the model returns, for a comparison."""
        if self.request.outputs is not None:
            tensor_files.save_tensors(self.request.outputs, outputs_of(session, self.feeds))
            self.reporter.update(outputs=str(self.request.outputs))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timed:
    """Unprofiled runs and what they needed; the call is None once its session was closed."""

    call: Callable[[], object] | None
    first: TurnResult
    warmup: list[float]
    distance: CoreDistance
    before: machine_load.Snapshot


def measure_cpu(request: MeasureRequest, folder: Path, reporter: Reporter) -> None:
    """Latency first, then operators; every result is handed on as soon as it is there."""
    empty = resident_bytes()
    job, session = Job.loaded(request, folder, reporter)
    timed = _unprofiled(job, session)
    _report_latency(job, [timed.first], timed)
    job.keep_outputs(session)
    if request.profile:
        if _is_tight(resident_bytes() - empty):
            del session
            timed = replace(timed, call=None)
        _operators(job, timed)


def _is_tight(held: int) -> bool:
    """Return whether a second session beside the first, which holds so many bytes, might not fit."""
    import psutil

    return bool(_SESSION_PEAK * held > psutil.virtual_memory().available)


def feeds_for(request: MeasureRequest, session: Any, reporter: Reporter) -> dict[str, Any]:
    """Return the inputs asked for, checked against the session's."""
    from analyzer.errors import InputError

    if request.feeds is None:
        feeds, assumed = tensor_files.make_feeds(session.get_inputs())
        for text in assumed:
            reporter.message(text)
        return dict(feeds)
    stored = tensor_files.load_tensors(request.feeds)
    wanted = [item.name for item in session.get_inputs()]
    # What is stored beyond that (an input that the exporter dropped) does no harm.
    missing = [name for name in wanted if name not in stored]
    if missing:
        message = f"no value for input {', '.join(missing)}"
        raise InputError(message, hint="give it with --input or example_inputs(batch)")
    return {name: stored[name] for name in wanted}


def caller(session: Any, feeds: Mapping[str, Any]) -> Callable[[], Any]:
    """One call of the model from the host's memory to the host's memory."""
    if not _numpy_can_all(session, feeds) or (
        not all(item.type.startswith("tensor(") for item in session.get_outputs()) and _can_be_bound(feeds)
    ):
        # Of a map Python would make a dictionary, 40 ns an entry: no operator of the model's.
        values = {name: tensor_files.to_ortvalue(value) for name, value in feeds.items()}
        return lambda: session.run_with_ort_values(None, values)
    return lambda: session.run(None, feeds)


def _numpy_can_all(session: Any, feeds: Mapping[str, Any]) -> bool:
    """Return whether ``session.run``, which takes and gives NumPy's own types alone, does for this model."""
    return all(isinstance(value, list) or tensor_files.is_plain(value) for value in feeds.values()) and all(
        not any(word in item.type for word in ("bfloat16", "float8", "int4", "float4", "int2"))
        for item in session.get_outputs()
    )


def _can_be_bound(feeds: Mapping[str, Any]) -> bool:
    """Return whether every input can be an ``OrtValue``: neither a sequence nor text."""
    return not any(
        isinstance(value, list) or tensor_files.onnx_type(value) == "string" for value in feeds.values()
    )


def _unprofiled(job: Job, session: Any) -> _Timed:
    request, reporter, feeds = job.request, job.reporter, job.feeds
    # From here on: loading the model is work of our own, and no part of the latency.
    before = machine_load.snapshot()
    distance = core_distance(
        job.settings,
        known=None if request.sharing_s is None else Reading(*request.sharing_s),
        patience_s=_PATIENCE * request.time_budget_s,
    )
    reporter.progress("warming up", 0.05)
    try:
        call = (
            caller(session, feeds)
            if request.in_place is None
            else bind_session(session, feeds, "cpu", in_place=request.in_place).call
        )
        warmup = warm_up(call, Budget(seconds=_WARM_UP * request.time_budget_s))
        reporter.update(first_run_s=warmup[0])
        reporter.progress("measuring", 0.15)
        reading = distance.awaited()
        settle(call, median(warmup))
        samples = timed_runs(
            call, _budget(request), tick=lambda used: reporter.progress("measuring", 0.15 + 0.2 * used)
        )
    except Exception as error:
        raise explained(error) from None
    first = TurnResult(samples=tuple(samples), readings=(reading, distance.read()))
    return _Timed(call=call, first=first, warmup=warmup, distance=distance, before=before)


def _budget(request: MeasureRequest) -> Budget:
    """For the runs before the operators' turn."""
    share = _TIMED if request.profile else _TIMED + _AGAIN
    seconds = share * request.time_budget_s
    runs = None if request.runs is None else request.runs - _runs_again(request)
    return Budget(seconds=seconds, runs=runs, least_seconds=min(0.3, seconds / 2))


def _runs_again(request: MeasureRequest) -> int:
    """Of an exact number of runs, those that take turns with profiled ones."""
    return request.runs // 2 if request.runs is not None and request.profile else 0


def _report_latency(job: Job, turns: Sequence[TurnResult], timed: _Timed) -> Latency:
    """Hand on the latency: the quieter half of the turns, in an interval of all that knows how busy it was."""
    threads, load = job.settings.threads, machine_load.load_between(timed.before, machine_load.snapshot())
    quiet = quiet_turns(turns, [turn.samples for turn in turns], timed.distance)
    # What a busy machine does to the readings is in its contention.
    least = min(ratios_of(turns, timed.distance))
    latency = summarize(
        [sample for turn in turns for sample in turn.samples],
        undisturbed=[sample for number in quiet for sample in turns[number].samples],
        warmup_runs=len(timed.warmup),
        method=f"{_UNPROFILED}, the quieter half of {len(turns)} turns" if len(turns) > 1 else _UNPROFILED,
        contention=load.contention(threads),
        threads=threads,
        sharing=least if least > APART_RATIO and not load.is_busy() else 1.0,
    )
    job.reporter.latency(latency, load, threads)
    return latency


def ratios_of(turns: Sequence[TurnResult], distance: CoreDistance) -> list[float]:
    """Return how many times worse than at best the threads shared work, by turn."""
    return [distance.ratio(*turn.readings) for turn in turns]


def quiet_turns(
    turns: Sequence[TurnResult], lengths: Sequence[Sequence[float]], distance: CoreDistance
) -> frozenset[int]:
    """Numbers of the turns that count: of those with the cores close, the half with the shorter lengths."""
    return quieter_half(lengths, close_turns(ratios_of(turns, distance))) or quieter_half(lengths)


def outputs_of(session: Any, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Return one run's outputs as arrays by name, maps by keys and values; an empty optional has none."""
    results = session.run(None, feeds) if _numpy_can_all(session, feeds) else caller(session, feeds)()
    arrays: dict[str, Any] = {}
    for output, value in zip(session.get_outputs(), results, strict=True):
        arrays |= tensor_files.as_arrays(output.name, output.type, value)
    return arrays


def _operators(job: Job, timed: _Timed) -> None:
    reporter = job.reporter
    reporter.update(rss_peak_bytes=peak_resident_bytes())
    reporter.progress("profiling", 0.4)
    bias = calibrate_bias(job.settings, job.folder)
    events, taken = _profiled_events(job, timed)
    turns = [timed.first, *(turn for turn in taken if turn.samples)]
    latency = _report_latency(job, turns, timed)
    reporter.turns([median(turn.samples) for turn in turns])
    reporter.cores_apart(ratios_of(turns, timed.distance))
    job.report_arena(events)
    runs = profile.runs(events)
    by_turn = [[runs[number] for number in turn.profiled if number < len(runs)] for turn in taken]
    quiet = quiet_turns(taken, [[profile.length_us(run) for run in part] for part in by_turn], timed.distance)
    raw = profile.by_node([run for number in sorted(quiet) for run in by_turn[number]])
    unprofiled = [sample for number in sorted(quiet) for sample in taken[number].samples]
    alone: Mapping[str, float] = {}
    below = [node for node in raw if node.time.value < (bias.profiler_s + BELOW_CLOCK_S) * node.calls]
    if job.request.replay and below:
        alone = replay(
            job.folder / OPTIMIZED_FULL,
            below,
            job.settings,
            seconds=_REPLAYED * job.request.time_budget_s,
            tick=lambda used: reporter.progress("timing small operators", 0.85 + 0.15 * used),
        )
    nodes, factor, residual = scaled(
        raw, bias, latency, alone, unprofiled_s=median(unprofiled) if unprofiled else None
    )
    reporter.update(factor=factor, residual_s=residual, bias_s=bias.profiler_s)
    reporter.environment(dispatch_s=bias.dispatch_s, call_s=bias.call_s)
    reporter.nodes(nodes)
    reporter.update(output_shapes=profile.output_shapes(runs))


def _profiled_events(job: Job, timed: _Timed) -> tuple[list[profile.ProfileEvent], tuple[TurnResult, ...]]:
    """Profiled runs, in turns with unprofiled ones where their session is still there: events and turns."""
    request = job.request
    session, nodes = job.profiling_session()
    call = caller(session, job.feeds)
    run_s = median(timed.first.samples)
    start = time.perf_counter()
    call()
    first_s = max(run_s, time.perf_counter() - start)
    # Profiling costs about 5 microseconds a node; the first run is slower still.
    each = max(run_s + nodes * 5e-6, min(first_s, run_s * 2))
    by_time = int(_PROFILED * request.time_budget_s / each)
    # Runs longer than the whole budget differ by less than they cost.
    least = 5 if each < request.time_budget_s else 2
    count = max(least, min(by_time, _MOST_EVENTS // nodes, 4000))
    for _ in range(_SKIPPED_RUNS - 1):
        call()
    taken = alternate(
        timed.call,
        call,
        turns_for(
            run_s,
            count,
            _AGAIN * request.time_budget_s,
            runs=None if request.runs is None else _runs_again(request),
            most=min(_MOST_TURNS, max(LEAST_TURNS, round(_TURNS_PER_S * request.time_budget_s))),
        ),
        run_s=run_s,
        already=_SKIPPED_RUNS,
        distance=timed.distance,
        tick=lambda done: job.reporter.progress("profiling", 0.4 + 0.45 * done),
    )
    return profile.ended(session), taken


def scaled(
    raw: Sequence[profile.RawTime],
    bias: Bias,
    latency: Latency,
    alone: Mapping[str, float] = NOTHING,
    *,
    unprofiled_s: float | None = None,
) -> tuple[tuple[NodeTime, ...], float | None, float | None]:
    """Node times that add up to the latency.

    The profiler's bias is taken off each node, which costs at least a dispatch; then all are scaled by one
    factor to the unprofiled median. A node that was timed alone has that time instead. The interval of a node
    is its own spread, and the latency's. A run without the profiler took ``unprofiled_s`` in the very turns of
    the profiled runs, which is the latency where the machine's speed did not change; None takes the latency.

    Returns:
        The nodes; what a run took beside the profiled ones over, and minus, what nodes and the call itself
        explain before scaling; None where there are no nodes.
    """
    # No node takes less than a dispatch, whatever the profiler's whole microseconds say.
    true = [
        alone.get(node.name, max(node.time.value - bias.profiler_s * node.calls, bias.dispatch_s * node.calls))
        for node in raw
    ]
    if not true:
        return (), None, None
    explained_s = sum(true) + bias.call_s
    factor = latency.value / sum(true)
    spread = latency.low / latency.value, latency.high / latency.value
    nodes = tuple(
        _alone(node, time_s * factor, spread)
        if node.name in alone
        else _profiled(node, time_s * factor, factor, bias, spread)
        for node, time_s in zip(raw, true, strict=True)
    )
    run_s = latency.value if unprofiled_s is None else unprofiled_s
    return nodes, run_s / explained_s, run_s - explained_s


def _profiled(
    node: profile.RawTime, time_s: float, factor: float, bias: Bias, spread: tuple[float, float]
) -> NodeTime:
    """One node; half a tick of the profiler's clock is always in doubt."""
    # Whole microseconds, rounded down: a duration is off by less than one, on average by half of that.
    doubt = 0.5e-6
    low = (node.time.low - bias.profiler_s * node.calls) * factor - doubt
    high = (node.time.high - bias.profiler_s * node.calls) * factor + doubt
    return node.timed(
        time_s,
        max(0.0, min(low, time_s * spread[0])),
        max(high, time_s * spread[1]),
        raw_s=node.time.value,
        method=_PROFILED_TEXT,
    )


def _alone(node: profile.RawTime, time_s: float, spread: tuple[float, float]) -> NodeTime:
    """One node timed alone; caches and neighbours may differ from the graph's by this much."""
    low, high = min(0.7, spread[0]), max(1.4, spread[1])
    return node.timed(time_s, time_s * low, time_s * high, raw_s=node.time.value, method=_ALONE_TEXT)
