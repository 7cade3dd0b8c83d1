"""Prepared graphs -> the replay data of a record, from which the model is predicted again without the model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from analyzer.figures import NOT_TIMED, Figure, seen_as
from analyzer.graph import Graph, Tensor
from analyzer.ort.execution import Session
from analyzer.pipeline.batches import BatchModels
from analyzer.pipeline.measure import Measured
from analyzer.pipeline.predictor import Predictor
from analyzer.pipeline.prepared import PreparedGraph
from analyzer.pipeline.replay.scaling import growth_of
from analyzer.record.replay_data import GroupResult, ReplayData, ReplayRun

# Options by which a record is predicted again: fields of `Options` and of `ReplayData`.
REPLAYED = ("precision", "cpu", "threads", "slo_s", "pins", "utilisation", "fixed", "pricing", "regions")
# In elements. Larger constants decide neither where an operator runs nor what it is fused with.
_SMALL_VALUE = 16


def write_replay_data(
    predictor: Predictor,
    prepared: PreparedGraph,
    model: BatchModels,
    batch: int | None,
    measured: Mapping[int, Measured],
) -> ReplayData:
    """Return what the record holds for a replay besides its operators."""
    graph, by_batch = prepared.graph, model.prepared_graphs
    return ReplayData(
        **replay_of_question(predictor, measured),
        opsets=dict(graph.opsets),
        values=_small_values(graph),
        absent_inputs=_holes((node.index, node.inputs) for node in graph.nodes),
        absent_outputs=_holes((node.index, node.outputs) for node in graph.nodes),
        batches=growth_of(by_batch, batch, between=model.between is not None),
        steps={node.index: node.steps for node in graph.nodes if node.steps is not None},
    )


def replay_of_question(predictor: Predictor, measured: Mapping[int, Measured]) -> dict[str, Any]:
    """Return the fields of ``ReplayData`` that depend on the question and not on the model."""
    return {
        **{name: getattr(predictor.options, name) for name in REPLAYED},
        "instances": tuple(predictor.offers.own),
        "runs": tuple(run for batch, here in sorted(measured.items()) for run in _runs(batch, here)),
    }


def _runs(batch: int, here: Measured) -> Iterator[ReplayRun]:
    """Yield what was measured at a batch."""
    sides: tuple[tuple[Session, Figure | None], ...] = (("cpu", here.cpu_latency), ("cuda", here.cuda_latency))
    for session, latency in sides:
        if latency is None:
            continue
        groups, times = getattr(here, f"{session}_groups"), getattr(here, f"{session}_times")
        yield ReplayRun(
            batch=batch,
            session=session,
            latency_s=latency.value,
            low_s=latency.low,
            high_s=latency.high,
            groups=tuple(
                seen_as(
                    GroupResult,
                    group,
                    **({**NOT_TIMED, "origin": "measured"} if time is None else time.keys("time_s")),
                )
                for group, time in zip(groups, times, strict=True)
            ),
            busy=session == "cpu" and here.busy,
        )


def _small_values(graph: Graph) -> tuple[tuple[tuple[Any, ...], tuple[str, ...]], ...]:
    # A large model has hundreds of equal constants (axes, a scale): one row for all. The key is the text, since
    # 1, 1.0 and True are equal and must stay apart, and -0.0 and 0.0 likewise.
    named: dict[str, tuple[tuple[Any, ...], list[str]]] = {}
    tensors = {tensor.name: tensor for tensor in graph.inputs}
    for node in graph.nodes:  # constants where they are first read
        for one in (*node.inputs, *node.outputs):
            if one is not None:
                tensors.setdefault(one.name, one)
    for tensor in tensors.values():
        value = tensor.value
        if value is not None and value.size <= _SMALL_VALUE and value.dtype.kind in "fiubV":
            # ml_dtypes' bfloat16 and float8 are of NumPy's kind V: their own tolist() gives no plain numbers.
            plain = value.astype("float32") if value.dtype.kind == "V" else value
            elements = tuple(
                # JSON has no number for these.
                str(number) if isinstance(number, float) and not math.isfinite(number) else number
                for number in plain.reshape(-1).tolist()
            )
            named.setdefault(repr(elements), (elements, []))[1].append(tensor.name)
    return tuple((elements, tuple(names)) for elements, names in named.values())


def _holes(rows: Iterable[tuple[int, Sequence[Tensor | None]]]) -> dict[int, tuple[int, ...]]:
    """Return the positions of tensors that operators leave out, by operator."""
    holes = {index: tuple(at for at, tensor in enumerate(tensors) if tensor is None) for index, tensors in rows}
    return {index: positions for index, positions in holes.items() if positions}
