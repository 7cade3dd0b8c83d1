"""MODEL or a record, and options of ``analyze apply`` -> a folder that runs the plan."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.decision.choice import Ratio
from analyzer.decision.decision_input import DecisionInput
from analyzer.decision.error_components import ErrorComponents
from analyzer.decision.plans import by_operator_type, plan_all, session_plans
from analyzer.errors import InputError, MeasurementError, MemoryForeseenError, ModelError, UsageError
from analyzer.graph import DTYPES, Graph
from analyzer.loading.loaded import Loaded
from analyzer.loading.weights import Runnable, materialise
from analyzer.measurement.applied_child import level_one, recorded_nodes
from analyzer.measurement.session import SessionSide
from analyzer.measurement.tensor_files import save_tensors
from analyzer.options import CUDA_GRAPH, NHWC, PlanName, keywords_of
from analyzer.ort.execution import SETTINGS, Placement, Provider, annotate
from analyzer.ort.kernels import registry
from analyzer.ort.placement import ReleasePlacement, placements_by_release
from analyzer.ort.session_nodes import LevelOne
from analyzer.pipeline.apply.from_record import analysed_record, is_record
from analyzer.pipeline.apply.request import (
    FIRST,
    LAST,
    ORIGINAL_RECORD,
    PROGRAM,
    RECORD,
    RESULT,
    SESSION,
    ApplyRequest,
    OpsetCost,
    ToldSession,
    cost_at,
    fastest,
    hybrid_session,
    make_request,
    release_of,
)
from analyzer.pipeline.apply.result import Applied, folder_to_be, write_json
from analyzer.pipeline.apply.verification import FixedModel, fixed_model, verified, with_form_of_record
from analyzer.pipeline.batches import Analyse, AnalysisBasis
from analyzer.pipeline.predictor import Predictor
from analyzer.pipeline.provider_options import CHANNELS_LAST, faster, layout_gain, not_captured, replay_gain
from analyzer.precision import PRECISIONS
from analyzer.progress import Progress
from analyzer.record import to_json
from analyzer.record.analysis import Analysis
from analyzer.record.batch_ranges import batch_of
from analyzer.report.html import templates_dir
from analyzer.run_folder import run_folder
from analyzer.units import byte_count, seconds

if TYPE_CHECKING:
    import onnx

FEEDS = "inputs.npz"
_NAMES: Mapping[Provider, str] = {"cuda": "CUDA", "cpu": "CPU"}
# A plan that is so much slower than the best of all is worth a word.
_WORTH_TELLING = 1e-3


def apply_plan(
    model: Any,
    inputs: Any,
    given: Mapping[str, Any],
    output: str | os.PathLike[str],
    analyse: Analyse,
    progress: Progress,
    *,
    force: bool,
) -> Applied:
    """Write a folder that runs the plan; see ``analyzer.api.apply_plan``."""
    request = make_request(given, Path(output), force=force)
    # None is left out: of a record that is what was asked then, of a model the default.
    of_model = {
        name: value for name, value in given.items() if name in keywords_of("run") and value is not None
    }
    opsets: tuple[OpsetCost, ...] = ()
    by_release: tuple[ReleasePlacement, ...] = ()
    if is_record(model) and inputs is not None:
        raise UsageError("A record is applied with the inputs of its model.", hint="Leave out inputs.")
    if request.auto_opset and not is_record(model):
        del of_model["opset"]
        opsets, by_release = _opsets(model, inputs, of_model, request, analyse, progress)
        of_model["opset"] = opsets[0].opset
    if request.form is not None:
        # What is analysed first is the model as it is: a form is a fix of it.
        of_model.pop("precision")
    if is_record(model):
        analysis, basis = analysed_record(model, of_model, progress)
        request, analysis, basis = with_form_of_record(request, analysis, basis)
    else:
        analysis, basis = analyse(model, inputs, of_model, progress)
    if not request.changes_model:
        return applied(analysis, basis, request, progress, opsets=opsets, by_release=by_release)
    assert basis.loaded is not None
    _foresee(basis.loaded, basis.prepared.graph)
    with run_folder() as folder:
        fixed, notes = fixed_model(analysis, basis, request, folder, progress)
        if fixed is not None:
            analysis, basis = analyse(fixed.path, None, fixed.options(of_model), progress)
            analysis = fixed.named_as_written(analysis, request.folder)
        return applied(
            analysis, basis, request, progress, opsets=opsets, by_release=by_release, fixed=fixed, notes=notes
        )


def _opsets(
    model: Any,
    inputs: Any,
    given: Mapping[str, Any],
    request: ApplyRequest,
    analyse: Analyse,
    progress: Progress,
) -> tuple[tuple[OpsetCost, ...], tuple[ReleasePlacement, ...]]:
    """Return the model's cost at each opset, the fastest first, and its placement by each release.

    Raises:
        ModelError: It cannot be had in any of them.
    """

    def at(opset: int) -> Analysis:
        def report_stage(stage: str, share: float | None) -> None:
            progress(f"opset {opset}: {stage}", share)

        given_options = {**given, "opset": opset, "run": False}
        analysis, basis = analyse(model, inputs, given_options, report_stage)
        graphs[opset] = basis.prepared.graph
        return analysis

    graphs: dict[int, Graph] = {}
    newest = min(LAST, registry().newest_opset)
    costs = [
        cost_at(opset, at, lambda analysis: _plan_of(request, analysis, pinned=bool(given.get("pin"))))
        for opset in range(FIRST, newest + 1)
    ]
    best = fastest(costs)
    if best is None:
        raise ModelError(
            f"The model cannot be had in any opset: {costs[-1].why}", hint="Name one with --opset."
        )
    return (best, *(cost for cost in costs if cost is not best)), placements_by_release(graphs)


def applied(
    analysis: Analysis,
    basis: AnalysisBasis,
    request: ApplyRequest,
    progress: Progress,
    *,
    opsets: tuple[OpsetCost, ...] = (),
    by_release: tuple[ReleasePlacement, ...] = (),
    fixed: FixedModel | None = None,
    notes: tuple[str, ...] = (),
) -> Applied:
    """Write the folder of an analysis's plan.

    ``opsets`` and ``by_release`` are costs and placements at other opsets, where one was chosen.
    """
    loaded = basis.loaded
    assert loaded is not None
    options, batch = basis.predictor.options, analysis.model.batch
    if options.precision is not None and options.precision != analysis.model.precision:
        raise UsageError(f"--precision {options.precision}: one of {', '.join(PRECISIONS)}.")
    question = basis.predictor.decision_input(basis.prepared, basis.gpu, batch, basis.measured.get(batch or 0))
    plan = _plan_of(request, analysis, pinned=bool(question.pins))
    gains = _provider_gains(request, plan, analysis, basis)
    _foresee(loaded, question.graph)
    with folder_to_be(request.folder) as aside:
        progress("writing the model", None)
        # Without the user's own model, whose weights would stay in memory beside those of the sessions.
        runnable = replace(materialise(loaded, loaded.batch, aside), eager=None)
        feeds = aside / FEEDS
        given = runnable if fixed is None else fixed.original
        save_tensors(feeds, given.feeds, types=given.feed_types)
        session = _session(question, plan, runnable, request, progress)
        threads, tensors = options.threads or 0, question.graph.tensors
        # What the next run reads where this one wrote it; both must have one shape.
        state = {
            past: present
            for past, present in question.graph.carried.items()
            if past in tensors and present in tensors and tensors[past].shape == tensors[present].shape
        }
        annotated = frozenset(question.graph.nodes[index].name for index in session.annotated)
        import onnx

        proto = onnx.load(str(runnable.model_path), load_external_data=False)
        # One that is not in the file came out of a function of the model's own.
        if annotate(proto, annotated, dict(_shown(analysis, session))) < len(annotated):
            raise ModelError(
                "The model has functions of its own, whose operators carry no annotation.",
                hint="Inline them first: onnx.inliner.inline_local_functions(model).",
            )
        _declare_output_shapes(proto, question.graph)
        runnable.model_path.write_bytes(proto.SerializeToString())
        side = SessionSide(
            model=runnable.model_path,
            provider="cuda" if session.uses_gpu else "cpu",
            entries=SETTINGS if annotated else {},
            cuda=({"use_tf32": "0"} if options.precision == "fp32" and session.uses_gpu else {})
            | dict.fromkeys(request.provider_options, "1"),
            # Those of another CPU would only get in each other's way here.
            threads=threads if question.cpu_is_this_machine else 0,
        )
        cpu = "this CPU" if question.cpu_is_this_machine else question.cpu.name
        gpu = question.gpu if session.uses_gpu else None
        result = Applied(
            folder=request.folder,
            plan=plan,
            model=analysis.model.source,
            batch=batch_of(analysis),
            opset=analysis.model.opset,
            precision=analysis.model.precision,
            where=cpu if gpu is None else f"{gpu.name} beside {cpu}",
            cpu=question.cpu.slug,
            gpu=None if gpu is None else gpu.slug,
            nodes=session.nodes,
            copies=len(session.placement.copies) if session.uses_gpu else 0,
            annotated=len(annotated),
            **faster(session.plan.latency, filter(None, gains.values())).keys("latency_s"),
            onnxruntime=registry(release_of(question)).version,
            releases=by_release,
            state=state,
            bits={name: DTYPES[kind].onnx for name, kind in given.feed_types.items()},
            notes=(
                *notes,
                *_notes(plan, session),
                *_growing(question.graph, state),
                *(f"No gain of {name} is predicted." for name, gain in gains.items() if gain is None),
            ),
            fixes=() if fixed is None else fixed.fixes,
            opsets=opsets,
        )
        result = verified(result, side, feeds, question, fixed, progress, run=options.run)
        if fixed is not None:
            (aside / ORIGINAL_RECORD).write_text(to_json(fixed.before), encoding="utf-8")
            fixed.release()
        _write(aside, result, side, analysis, threads=threads)
    return result


def _shown(analysis: Analysis, session: ToldSession) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield what a viewer shows with each node: the device of the plan, the time there, and the reason."""
    places = session.placement.nodes or (None,) * len(analysis.operators)
    for operator, place in zip(analysis.operators, places, strict=True):
        provider = "cpu" if place is None else place.provider
        timed = operator.gpu if provider == "cuda" and operator.gpu is not None else operator.cpu
        time = "not known" if timed.time_s is None else f"{seconds(timed.time_s)}, {timed.origin}"
        # Without a kernel for CUDA that is the reason, else which device is faster.
        reason = place.detail if place is not None and not place.supported else ""
        yield (
            operator.name,
            {
                "device": _NAMES[provider],
                "time": time,
                "reason": reason or operator.verdict.explanation,
            },
        )


def _declare_output_shapes(proto: onnx.ModelProto, graph: Graph) -> None:
    """Give outputs the shapes of this batch: onnx's checker demands one, and an open export has none."""
    shapes = {output.name: output.shape for output in graph.outputs}
    for value in proto.graph.output:
        kind, shape = value.type.tensor_type, shapes.get(value.name)
        if value.type.HasField("tensor_type") and not kind.HasField("shape") and shape is not None:
            kind.shape.SetInParent()  # a scalar's has no dimension
            for size in shape:
                kind.shape.dim.add(dim_value=size)


def _foresee(loaded: Loaded, graph: Graph) -> None:
    """Refuse a model that nothing could be run of, or whose weights would not fit, before any of them is made.

    Raises:
        InputError: An input of a type that ONNX Runtime takes no values of.
        MemoryForeseenError: With both figures.
    """
    import psutil

    for tensor in graph.inputs:
        if tensor.dtype.bits is not None and tensor.dtype.bits < 8:
            raise InputError(
                f"The input {tensor.name} is {tensor.dtype.name}: ONNX Runtime's Python interface takes no "
                "values of less than 8 bits, so that a session could be neither run nor verified.",
                hint="Let the model take 8 bits and cast inside.",
            )
        if tensor.dtype.name == "string":
            raise InputError(
                f"The input {tensor.name} is text: ONNX Runtime's Python interface binds no texts, "
                "so that the written program could not run.",
                hint="`analyze` measures the model; a session takes texts by session.run alone.",
            )
    needed, available = graph.parameter_bytes, psutil.virtual_memory().available
    # The weights of a file are never read as a whole.
    if loaded.exporter != "onnx" and loaded.live is None and needed > available:
        raise MemoryForeseenError(
            f"The model's weights take {byte_count(needed)} of memory; {byte_count(available)} are free.",
            hint="Apply it on a machine with more, or save it as an .onnx file with its weights beside it.",
        )


def _write(folder: Path, result: Applied, side: SessionSide, analysis: Analysis, *, threads: int) -> None:
    """Write the files next to the model; ``threads`` are those of the plan, 0 for the default."""
    on_gpu = side.provider == "cuda"
    write_json(
        folder / SESSION,
        {
            "providers": [*(["CUDAExecutionProvider"] if on_gpu else []), "CPUExecutionProvider"],
            "provider_options": [*([dict(side.cuda)] if on_gpu else []), {}],
            "session_config": dict(side.entries),
            "intra_op_num_threads": threads,
        },
    )
    (folder / RECORD).write_text(to_json(analysis), encoding="utf-8")
    shutil.copyfile(templates_dir() / "apply" / PROGRAM, folder / PROGRAM)
    # So that the next plan in this folder takes away what it does not have.
    files = sorted({RESULT, *(path.name for path in folder.iterdir())})
    write_json(folder / RESULT, {**result.as_json(), "files": files})


def _plan_of(request: ApplyRequest, analysis: Analysis, *, pinned: bool) -> PlanName:
    """Return the plan that is applied: the one that was named, a pinned one, else the verdict's.

    Raises:
        UsageError: There is no such plan.
    """
    verdict = analysis.verdict
    plan: PlanName | None = request.plan or ("hybrid" if pinned else None)
    if plan is None:
        if verdict.device is None:
            raise UsageError(
                f"There is no plan to apply. {verdict.sentence}", hint="`analyze check` says what stops it."
            )
        if verdict.device == "either":
            sessions = [each for each in analysis.plans if each.name != "hybrid"]
            plan = min(sessions, key=lambda each: each.latency_s).name
        else:
            plan = verdict.device
    if pinned and plan != "hybrid":
        raise UsageError(
            f"--plan {plan} and --pin: a session on one device keeps no pin.",
            hint="Leave out --plan, or name hybrid.",
        )
    # Where no provider has a kernel there are plans, as if something else ran them; there is no session.
    refused = plan != "cpu" and bool(analysis.session_fails)
    if refused or plan not in {each.name for each in analysis.plans}:
        why = f" ({analysis.session_fails})" if analysis.session_fails else ""
        raise UsageError(
            f"There is no plan {plan} for this model and these devices{why}.",
            hint="Name a GPU with --gpu, or apply --plan cpu.",
        )
    return plan


def _provider_gains(
    request: ApplyRequest, plan: PlanName, analysis: Analysis, basis: AnalysisBasis
) -> dict[str, Ratio | None]:
    """Return what each option of the CUDA provider gains; None where no gain is predicted.

    Raises:
        UsageError: The plan's session cannot run under one.
    """
    options, prepared, gains = request.provider_options, basis.prepared, dict[str, Ratio | None]()
    if not options:
        return gains
    if plan != "gpu" or all(group.provider == "cpu" for group in prepared.cuda_groups):
        gpu = plan == "gpu"
        why = "the session runs every operator on the CPU" if gpu else f"the plan is {plan}, not gpu"
        raise UsageError(
            f"--provider-option {','.join(options)}: {why}.",
            hint="Leave it out." if gpu else "Ask for --plan gpu, without pins.",
        )
    if CUDA_GRAPH in options and (why := not_captured(prepared)):
        raise UsageError(f"--provider-option {CUDA_GRAPH}: {why}.", hint="Leave it out.")

    def parts(predictor: Predictor) -> ErrorComponents | None:
        question = predictor.decision_input(prepared, basis.gpu, analysis.model.batch, None)
        session = session_plans(question).gpu
        return None if session is None else by_operator_type(question, session)

    before = parts(basis.predictor)
    for name in options:
        graph = name == CUDA_GRAPH
        gain = (
            replay_gain(before, parts(basis.predictor.replaying()))
            if graph
            else layout_gain(analysis, before)[0]
        )
        gains[name] = gain if gain is not None and gain[0] > 1 else None
    return gains


def _session(
    question: DecisionInput, plan: PlanName, runnable: Runnable, request: ApplyRequest, progress: Progress
) -> ToldSession:
    """Return the session that the plan becomes.

    Raises:
        MeasurementError: There is no splitting a graph of which the CPU's provider makes no session.
        UsageError: A pin cannot be kept.
    """
    progress("asking ONNX Runtime what it makes of the graph", None)
    if plan == "cpu":
        return _on_cpu(question, runnable)
    try:
        made = LevelOne.of(question.graph, level_one(runnable.model_path))
    except MeasurementError as error:
        if plan == "hybrid":
            raise MeasurementError(
                f"ONNX Runtime's CPU provider makes no session of this model: {error.message}",
                hint="--plan gpu applies the session of the GPU.",
            ) from error
        made = None
    if plan == "hybrid" and made is not None:
        session = hybrid_session(question, made)
    else:
        gpu = plan_all(replace(question, pins=())).gpu
        assert gpu is not None
        assert question.placement is not None
        session = ToldSession(plan=gpu, placement=question.placement)
    if not any(node.provider == "cuda" for node in session.placement.nodes):
        return _on_cpu(question, runnable)
    if made is not None:
        nodes = made.nodes(session.placement)
    else:  # under the names of the model, where ONNX Runtime does not say what it makes of them
        pairs = zip(question.graph.nodes, session.placement.nodes, strict=True)
        nodes = {node.name: placed.provider for node, placed in pairs if placed.why != "folded"}
    if NHWC in request.provider_options:
        before = question.graph.nodes if made is None else made.proto.graph.node
        # Transposes beside them may cancel against those of the layout.
        changed = {node.name for node in before if node.op_type in {*CHANNELS_LAST, "Transpose"}}
        nodes = {name: at for name, at in nodes.items() if at == "cpu" or name not in changed}
    return replace(session, nodes={name: _NAMES[provider] for name, provider in nodes.items()})


def _on_cpu(question: DecisionInput, runnable: Runnable) -> ToldSession:
    """Return the session of the CPU alone, which can be asked here."""
    plan = plan_all(replace(question, gpu=None, pins=())).cpu
    nodes = recorded_nodes(SessionSide(model=runnable.model_path))
    return ToldSession(plan=plan, placement=Placement(nodes=()), nodes=nodes)


def _growing(graph: Graph, state: Mapping[str, str]) -> Iterator[str]:
    """Yield a word on what is carried from run to run in another shape each time."""
    tensors = graph.tensors
    left = [
        (tensors[past], tensors[present])
        for past, present in graph.carried.items()
        if past not in state and past in tensors and present in tensors
    ]
    if not left:
        return
    past, present = (
        f"{one.name} [{', '.join('?' if size is None else str(size) for size in one.shape or ())}]"
        for one in left[0]
    )
    more = f" and {len(left) - 1:,} more" if len(left) > 1 else ""
    size = sum(one.nbytes or 0 for one, _ in left)
    yield (
        f"Not in `state`, since a run makes it longer: {past}, next {present}{more}. "
        f"The model is written for one length, and run.py reads the same {byte_count(size)} in every run. "
        "The latency counts none of it as copied; a program that takes it to the host and back copies all of "
        "it each run, which --no-state counts."
    )


def _notes(plan: PlanName, session: ToldSession) -> tuple[str, ...]:
    notes = []
    if plan != "cpu" and not session.uses_gpu:
        notes.append("The CPU runs all of it: no annotation is needed, and no GPU.")
    elif plan == "hybrid" and not session.annotated:
        notes.append("The best split is what CUDA's session does by itself: no annotation is needed.")
    best = session.plan if session.best is None else session.best
    missed = session.plan.latency.value - best.latency.value
    if missed > _WORTH_TELLING * best.latency.value:
        notes.append(
            f"The best split of all would take {seconds(best.latency.value)}, {seconds(missed)} less: "
            "no annotation expresses it, since ONNX Runtime merges operators before it places them and keeps "
            "operators on the GPU that the CPU has no kernel for in their own types."
        )
    if session.plan.why:
        notes.append(session.plan.why)
    return tuple(notes)
