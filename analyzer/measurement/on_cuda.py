"""Measure a session with [CUDA, CPU] inside the child process, with what CUPTI records of the GPU.

End to end three ways: with copies of inputs and outputs (``copies``, the latency), with both in the GPU's
memory (``resident``), and that as one CUDA graph (``graph``). Of a step that generates the last two: its cache
never leaves the GPU, ids of tokens go there and come back. Operators from the GPU's own records, see
``gpu_trace``; where nobody can record, the parent starts a second child whose launches block, see
``launch_blocking``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from analyzer.errors import AnalyzerError
from analyzer.measurement import gpu_trace, machine_load, profile, tensor_files
from analyzer.measurement.child_messages import Reporter
from analyzer.measurement.cuda_libraries import used_bytes
from analyzer.measurement.on_cpu import Job, caller
from analyzer.measurement.request import Latency, MeasureRequest
from analyzer.measurement.session import NOTHING, BoundSession, bind_session, create, explained
from analyzer.measurement.timing_loops import Budget, summarize, timed_runs, warm_up


def record(
    call: Callable[[], object], count: int, folder: Path, device_id: int = 0
) -> tuple[Mapping[str, Any] | None, str]:
    """Run ``count`` times, each ending with the GPU idle, under CUPTI.

    Returns:
        The Kineto trace as parsed JSON, its file in ``folder`` removed, or None and why there is none.
    """
    why = _trouble()
    if why:
        return None, why
    import torch
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    torch.cuda.synchronize(device_id)
    with profile(activities=activities):  # the first one starts CUPTI and loses records
        call()
        torch.cuda.synchronize(device_id)
    with profile(activities=activities) as recording:
        for _ in range(count):
            call()
        torch.cuda.synchronize(device_id)  # records of what still runs would be out of range
    path = folder / "kineto.json"
    recording.export_chrome_trace(str(path))
    text = path.read_text(encoding="utf-8", errors="replace")
    path.unlink(missing_ok=True)
    try:
        return json.loads(text, strict=False), ""  # names of kernels may hold any character
    except ValueError as error:
        return None, f"the trace that torch.profiler wrote is damaged ({error})"


def _trouble() -> str:
    """Return why nothing can be recorded; empty where it can."""
    try:
        import torch
        from torch.profiler import ProfilerActivity, supported_activities
    except ImportError:
        return "torch, which carries CUPTI, is not installed"
    if not torch.cuda.is_available():
        return "this build of torch has no CUDA, or finds no GPU"
    if ProfilerActivity.CUDA not in supported_activities():  # type: ignore[no-untyped-call]
        return "this build of torch has no CUPTI"
    return ""


# Shares of the time budget.
_WARM_UP, _COPIES, _RESIDENT, _GRAPH, _TRACED = 0.1, 0.3, 0.25, 0.15, 0.2
_METHODS = {
    "copies": "unprofiled runs of the CUDA provider, inputs and outputs copied",
    "resident": "unprofiled runs of the CUDA provider, inputs and outputs on the GPU",
    "graph": "unprofiled runs of one CUDA graph, inputs and outputs on the GPU",
}
_STEP_METHODS = {
    "resident": "unprofiled runs of the CUDA provider, the cache kept on the GPU, ids copied there and back",
    "graph": "unprofiled runs of one CUDA graph, the cache kept on the GPU, ids copied there and back",
}
# Of the GPU's records, how many must fall into a node's window; of its time, how much may be nobody's.
_LEAST_MATCHED, _MOST_LOST = 0.9, 0.02
_MOST_TRACED_NODES = 20_000


def measure_cuda(request: MeasureRequest, folder: Path, reporter: Reporter) -> None:
    """Latency with copies first (but of a step), then without, then operators, then the CUDA graph."""
    used = used_bytes(request.device_id)
    job, session = Job.loaded(request, folder, reporter)
    # As the provider read them, defaults included (TF32, cudnn_conv_algo_search); the allocator's is an
    # address.
    options = session.get_provider_options().get("CUDAExecutionProvider", {})
    reporter.environment(
        tf32=request.tf32,
        cuda_options={key: str(value) for key, value in options.items() if key != "gpu_external_alloc"},
        providers=list(session.get_providers()),
    )
    resident: Latency | None = None
    if request.in_place is None:
        _timed(job, caller(session, job.feeds), "copies", _COPIES, first=True)
        # Before inputs and outputs get memory of their own on the GPU.
        _report_memory(job, used)
        job.keep_outputs(session)
        try:
            resident = _timed(job, bound_call(session, job.feeds, request), "resident", _RESIDENT)
        except AnalyzerError as error:
            reporter.message(f"device-resident latency: none, {error.message}")
    else:
        # Its cache would never be copied: there is no latency without a binding.
        call = bound_call(session, job.feeds, request)
        resident = _timed(job, call, "resident", _COPIES + _RESIDENT)
        _report_memory(job, used)
        del call
    # Its memory on the GPU goes with it; the sessions below bring their own.
    del session
    if request.profile:
        _optional("operator times", reporter, lambda: _traced(job, resident))
    if request.cuda_graph and resident is not None:
        _optional("CUDA graph", reporter, lambda: _graph(job))


def _report_memory(job: Job, before: int | None) -> None:
    """Report the peaks so far: the CUDA provider's arena only grows, so what is in use now is its own."""
    now = used_bytes(job.request.device_id)
    # Another process may have ended meanwhile.
    growth = None if now is None or before is None else max(0, now - before)
    job.reporter.update(device_peak_bytes=growth, rss_peak_bytes=machine_load.peak_resident_bytes())


def _optional(what: str, reporter: Reporter, step: Callable[[], object]) -> None:
    """Run a step whose failure costs itself alone."""
    try:
        step()
    except AnalyzerError as error:
        reporter.message(f"{what}: none, {error.message}")
    except Exception as error:
        reporter.message(f"{what}: none, {explained(error).message}")


def _timed(job: Job, call: Callable[[], object], way: str, share: float, *, first: bool = False) -> Latency:
    """One way end to end; only the first pays for the cold start."""
    request, reporter, before = job.request, job.reporter, machine_load.snapshot()
    reporter.progress(f"measuring ({way})", _PROGRESS[way])
    try:
        warmup = warm_up(call, Budget(seconds=_WARM_UP * request.time_budget_s))
        if first:
            reporter.update(first_run_s=warmup[0])
        seconds = share * request.time_budget_s
        samples = timed_runs(
            call, Budget(seconds=seconds, runs=request.runs, least_seconds=min(0.3, seconds / 2))
        )
    except Exception as error:
        raise explained(error) from None
    load = machine_load.load_between(before, machine_load.snapshot())
    # The host only launches: one core must be free, not as many as the CPU provider has threads.
    method = (_METHODS if request.in_place is None else _STEP_METHODS)[way]
    latency = summarize(samples, warmup_runs=len(warmup), method=method, contention=load.contention(1))
    reporter.latency(latency, load, job.settings.threads, way)
    return latency


_PROGRESS = {"copies": 0.1, "resident": 0.4, "graph": 0.85}


def bound_call(session: Any, feeds: Mapping[str, Any], request: MeasureRequest) -> Callable[[], object]:
    """One run with everything on the GPU, but for the ids of a step, which go there and come back."""
    import numpy as np

    bound = _binding(session, feeds, request)
    if not request.ids and not request.ids_back:
        return bound.call
    sent = [(bound.inputs[name], feeds[name]) for name in request.ids if name in bound.inputs]
    # Which token follows is decided on the GPU: its id is all that the host reads.
    back = tensor_files.to_ortvalue(np.zeros(request.ids_back, np.int64), "cuda", request.device_id)

    def call() -> None:
        for value, ids in sent:
            value.update_inplace(ids)
        bound.call()
        back.numpy()

    return call


def _binding(session: Any, feeds: Mapping[str, Any], request: MeasureRequest) -> BoundSession:
    return bind_session(session, feeds, "cuda", request.device_id, in_place=request.in_place or NOTHING)


def _graph(job: Job) -> None:
    # An option of the provider, not of a run: a session of its own.
    options = {**job.settings.cuda, "enable_cuda_graph": "1"}
    session = create(job.request.model_path, replace(job.settings, cuda=options))
    _timed(job, bound_call(session, job.feeds, job.request), "graph", _GRAPH)


def _traced(job: Job, resident: Latency | None) -> None:
    """Operator times from the GPU's records; without them a message, and the parent tries another way."""
    request, reporter = job.request, job.reporter
    reporter.progress("recording the GPU", 0.65)
    session, nodes = job.profiling_session()
    if resident is None:
        return
    bound = _binding(session, job.feeds, request)
    # Recording costs some 15 microseconds a node on the host.
    by_time = int(_TRACED * request.time_budget_s / (resident.value + nodes * 15e-6))
    count = max(3, min(by_time, _MOST_TRACED_NODES // nodes, 200))
    recorded, why = record(bound.call, count, job.folder, request.device_id)
    events = profile.ended(session)
    job.report_arena(events)
    if recorded is None:
        reporter.message(f"the GPU's activity could not be recorded: {why}")
        return
    start_ns = session.get_profiling_start_time_ns()
    _report(gpu_trace.join(recorded, events, start_ns=start_ns), resident, reporter)


def _report(traced: gpu_trace.Traced | None, resident: Latency, reporter: Reporter) -> None:
    if traced is None:
        reporter.message("the GPU's activity could not be recorded: CUPTI gave no record of it")
        return
    if traced.matched < _LEAST_MATCHED:
        share = f"{traced.matched:.0%} of them belong to an operator"
        reporter.message(f"the GPU's records do not fit the profile: {share}")
        return
    if traced.lost > _MOST_LOST:
        reporter.message(f"CUPTI did not record the host calls of {traced.lost:.0%} of the GPU's work")
        return
    nodes, factor = gpu_trace.node_times(traced, resident)
    reporter.update(factor=factor, residual_s=resident.value * (1 - 1 / factor))
    reporter.environment(
        traced_runs=traced.runs,
        gpu_busy_s=traced.busy_s,
        gpu_idle_s=max(0.0, resident.value - traced.busy_s),
        records_matched=round(traced.matched, 4),
        records_lost=round(traced.lost, 4),
        clock_shift_us=traced.shift_us,
        kernels={node.name: list(node.kernel_names) for node in traced.nodes if node.kernel_names},
    )
    reporter.nodes(nodes)
