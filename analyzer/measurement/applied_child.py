"""The child process for an applied plan: ``python -m analyzer.measurement.applied_child``.

Its tasks are done one after the other; each result is sent as soon as it is there. ``level_one`` saves what
ONNX Runtime's level 1 makes of a model, ``numbers`` compares the outputs of two models, ``overflow`` looks for
tensors that a type cannot hold, ``later_tokens`` asks whether earlier rows of an output read the last token,
``placement`` asks a session what it recorded, ``time`` times it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.errors import AnalyzerError, MeasurementError
from analyzer.measurement import tensor_files
from analyzer.measurement.child_messages import Reporter, work_as_child
from analyzer.measurement.child_process import run_task
from analyzer.measurement.on_cpu import caller, outputs_of
from analyzer.measurement.output_agreement import agreement
from analyzer.measurement.request import from_message, to_message
from analyzer.measurement.session import (
    WEIGHTS_APART,
    SessionSettings,
    SessionSide,
    bind_session,
    create,
    explained,
)
from analyzer.measurement.tensor_files import later_changed, varied
from analyzer.measurement.timing_loops import Budget, median, timed_runs, warm_up
from analyzer.process import run_as_child
from analyzer.progress import Progress
from analyzer.run_folder import run_folder

if TYPE_CHECKING:
    import onnx

_CHILD = "analyzer.measurement.applied_child"
# Making a session of a large model takes minutes on a slow disk; more is a hang.
_TIMEOUT_S = 1800.0


def level_one(model: Path) -> onnx.ModelProto:
    """Return the graph that ONNX Runtime places, without weights: what its level 1 leaves of a model.

    Raises:
        MeasurementError: The CPU's provider cannot make a session of it.
    """
    import onnx

    with run_folder() as folder:
        saved = folder / "level-one.onnx"
        tasks = [{"kind": "level_one", "model": str(model), "optimized": str(saved)}]
        result = _done(tasks, folder, None)["level_one"]
        if result.get("trouble") or not saved.exists():
            raise MeasurementError(result.get("trouble") or "ONNX Runtime saved no optimised graph")
        return onnx.load(str(saved), load_external_data=False)


def recorded_nodes(side: SessionSide) -> dict[str, str]:
    """Return the nodes that a session records, by name and the provider of each, without ``ExecutionProvider``.

    Raises:
        MeasurementError: There is no such session.
    """
    nodes = result_of({"kind": "placement", "applied": to_message(side)})["nodes"]
    return {name: provider.removesuffix("ExecutionProvider") for name, provider in nodes.items()}


def result_of(task: Mapping[str, Any], progress: Progress | None = None) -> Mapping[str, Any]:
    """Return the results of one task.

    Raises:
        MeasurementError: It could not be done.
    """
    result: Mapping[str, Any] = verify([task], progress)[task["kind"]]
    if "trouble" in result:
        raise MeasurementError(result["trouble"])
    return result


def verify(tasks: Sequence[Mapping[str, Any]], progress: Progress | None = None) -> dict[str, Any]:
    """Results by kind of task, each with ``trouble`` where it could not be done; see ``applied_child``."""
    with run_folder() as folder:
        return _done(
            [{**task, "optimized": str(folder / "optimized.onnx")} for task in tasks], folder, progress
        )


def _done(
    tasks: Sequence[Mapping[str, Any]], folder: Path, progress: Progress | None
) -> dict[str, dict[str, Any]]:
    place = folder / "child"
    place.mkdir()
    values = run_task(_CHILD, {"tasks": list(tasks)}, place, timeout_s=_TIMEOUT_S, progress=progress)
    ended = values.get("trouble")
    trouble = ended.message if ended is not None else "it was not reached"
    return {task["kind"]: values.get(task["kind"]) or {"trouble": trouble} for task in tasks}


RECORD = "session.record_ep_graph_assignment_info"
_SEED = 20


def _work(tasks: Mapping[str, Any], _folder: Path, reporter: Reporter) -> None:
    for task in tasks["tasks"]:
        reporter.progress(task["kind"], 0.0)
        try:
            results = TASKS[task["kind"]](task)
        except AnalyzerError as error:  # the next one may work
            results = {"trouble": error.message, "hint": error.hint or ""}
        reporter.update(**{task["kind"]: results})


def _level_one(task: Mapping[str, Any]) -> dict[str, Any]:
    # Packed weights would be kept twice, and nothing is run.
    settings = SessionSettings(
        optimize="basic",
        threads=1,
        optimized_path=Path(task["optimized"]),
        entries={"session.disable_prepacking": "1"},
    )
    with _without_weights(Path(task["optimized"])):
        create(Path(task["model"]), settings)
    return {"saved": True}


@contextmanager
def _without_weights(optimized: Path) -> Iterator[None]:
    """Have ONNX Runtime save a graph alone: its weights, gigabytes perhaps, go nowhere."""
    weights = optimized.with_name(optimized.name + WEIGHTS_APART)
    with suppress(OSError):  # a system without the device, or without links
        weights.symlink_to(os.devnull)
    try:
        yield
    finally:
        weights.unlink(missing_ok=True)


def _session(task: Mapping[str, Any], of: str = "applied") -> Any:
    side = from_message(task[of], SessionSide)
    return create(side.model, side)


def _numbers(task: Mapping[str, Any]) -> dict[str, Any]:
    """Compare outputs of a model with a reference's, on several inputs, one session at a time."""
    given = tensor_files.load_tensors(Path(task["feeds"]))
    several = [given, *(varied(given, _SEED + number) for number in range(1, task["sets"]))]
    outputs = []
    for side in ("reference", "applied"):
        session = _session(task, side)
        outputs.append([_run(session, feeds) for feeds in several])
        del session
    rows: dict[str, dict[str, Any]] = {}
    for expected, got in zip(*outputs, strict=True):
        # Of outputs that were cut to their last row that alone.
        axes, precision = task.get("last_rows") or {}, task.get("precision")
        right = {
            name: one.take([-1], axis=axes[name]) if name in axes else one for name, one in expected.items()
        }
        for output in agreement(right, got, precision=precision, in_noise=precision == "int8"):
            before = rows.get(output.name)
            if before is None or _distance(asdict(output)) > _distance(before):
                rows[output.name] = asdict(output)
    return {"outputs": list(rows.values()), "sets": len(several)}


def _later_tokens(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return whether earlier rows of an output stay with another last token, as a decoder's do."""
    given = tensor_files.load_tensors(Path(task["feeds"]))
    changed = later_changed(given, task["tokens"])
    if not changed:
        return {"trouble": "no input has an axis of tokens"}
    session = _session(task)
    name = task["output"]
    before, after = (_run(session, feeds)[name][:, :-1] for feeds in (given, changed))
    return {"causal": agreement({name: before}, {name: after})[0].agrees}


def _overflow(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return tensors that reach beyond what their type holds, on several inputs."""
    import onnx

    given = tensor_files.load_tensors(Path(task["feeds"]))
    path = Path(task["applied"]["model"])
    # Beside the model, where its weights are.
    measured = path.with_name(f"ranges-of-{path.name}")
    try:
        onnx.save(with_ranges(onnx.load(str(path), load_external_data=False), task["tensors"]), str(measured))
        session = create(measured, from_message(task["applied"], SessionSide))
    finally:
        measured.unlink(missing_ok=True)
    reached: dict[str, float] = {}
    for feeds in (given, *(varied(given, _SEED + number) for number in range(1, task["sets"]))):
        for name, size in beyond(_run(session, feeds), task["limit"]).items():
            reached[name] = max(size, reached.get(name, 0.0))
    return {"reached": reached}


def _distance(row: Mapping[str, Any]) -> float:
    return (0.0 if row["agrees"] else 1e30) + (row["max_absolute"] or 0.0)


def _run(session: Any, feeds: Mapping[str, Any]) -> dict[str, Any]:
    taken = {item.name for item in session.get_inputs()}
    try:
        return outputs_of(session, {name: value for name, value in feeds.items() if name in taken})
    except AnalyzerError:
        raise
    except Exception as error:
        raise explained(error) from None


def _placement(task: Mapping[str, Any]) -> dict[str, Any]:
    import onnx

    optimized = Path(task["optimized"])
    side = from_message(task["applied"], SessionSide)
    side = replace(side, optimized_path=optimized, entries={**side.entries, RECORD: "1"})
    with _without_weights(optimized):
        session = create(side.model, side)
    nodes = {
        node.name: part.ep_name
        for part in session.get_provider_graph_assignment_info()
        for node in part.get_nodes()
        if node.name
    }
    graph = onnx.load(str(optimized), load_external_data=False).graph
    copies = sum(node.op_type in ("MemcpyFromHost", "MemcpyToHost") for node in graph.node)
    return {"nodes": nodes, "copies": copies}


def _time(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return the median of a run: host to host as a plan counts it, or with state on the session's device."""
    feeds = tensor_files.load_tensors(Path(task["feeds"]))
    session, in_place = _session(task), task.get("in_place")
    call = (
        bind_session(session, feeds, task["applied"]["provider"], in_place=in_place).call
        if in_place is not None
        else caller(session, feeds)
    )
    budget = Budget(seconds=float(task["budget_s"]))
    warm_up(call, budget)
    return {"median_s": median(timed_runs(call, budget))}


TASKS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "level_one": _level_one,
    "numbers": _numbers,
    "later_tokens": _later_tokens,
    "overflow": _overflow,
    "placement": _placement,
    "time": _time,
}


# A model that also tells how far its tensors reach, for types that end early.
_MARK = ".reaches."


def with_ranges(proto: onnx.ModelProto, tensors: Iterable[str]) -> onnx.ModelProto:
    """Return model with the largest and least element of some of its tensors as its only outputs, in float32.

    ONNX Runtime's CPU provider computes float16 in float32 and drops the rounding between two such operators:
    what would be infinite on a GPU is finite there, and shows how far it is above what float16 holds.

    ``proto`` is changed, weights may lie beside it; ``tensors`` are not empty floats of the main graph.
    """
    from onnx import TensorProto, helper

    del proto.graph.output[:]
    for tensor in tensors:
        for reduction in ("ReduceMax", "ReduceMin"):
            narrow, wide = (f"{tensor}{_MARK}{reduction}{end}" for end in (".narrow", ""))
            proto.graph.node.append(
                helper.make_node(reduction, [tensor], [narrow], name=f"{wide}.of", keepdims=0)
            )
            proto.graph.node.append(
                helper.make_node("Cast", [narrow], [wide], name=f"{wide}.wide", to=TensorProto.FLOAT)
            )
            proto.graph.output.append(helper.make_tensor_value_info(wide, TensorProto.FLOAT, []))
    return proto


def beyond(outputs: Mapping[str, Any], limit: float) -> dict[str, float]:
    """By tensor of a model ``with_ranges`` the magnitude that it reaches, where finite and above the limit.

    What is infinite is so on purpose, as a mask of an attention is: the model itself says it.
    """
    reached: dict[str, float] = {}
    for name, value in outputs.items():
        size = abs(float(value))
        if limit < size < float("inf"):
            tensor = name.rpartition(_MARK)[0]
            reached[tensor] = max(size, reached.get(tensor, 0.0))
    return reached


if __name__ == "__main__":
    run_as_child(lambda channel: work_as_child(channel, _work, "use a machine with more memory"))
