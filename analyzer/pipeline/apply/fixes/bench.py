"""The bench of a fix: a model on its way, its predicted time, and its outputs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from analyzer.conversion.graph_writer import keep_origins
from analyzer.decision.plans import plan_all
from analyzer.figures import Figure
from analyzer.graph import Graph
from analyzer.loading.load import load
from analyzer.loading.loaded import Loaded
from analyzer.loading.model_reference import parse_reference
from analyzer.measurement.applied_child import result_of
from analyzer.measurement.child_process import rewritten
from analyzer.measurement.request import to_message
from analyzer.measurement.session import SessionSide
from analyzer.options import PlanName
from analyzer.pipeline.batches import AnalysisBasis
from analyzer.pipeline.prepared import PreparedGraph, prepare
from analyzer.progress import Progress

# Inputs that are compared, the model's own among them.
_INPUT_SETS = 3
LARGEST_FLOAT16 = 65504.0  # (2 - 2^-10) * 2^15


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTerms:
    """The allowed difference between outputs and those of the original model.

    ``precision`` is the type whose tolerance holds, ``float16`` or ``int8``, None for the outputs' own;
    ``last_rows`` are axes by output of which the last row alone is left.
    """

    precision: str | None = None
    last_rows: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A model on its way through fixes.

    ``latency`` is that of its plan, as predicted, ``groups`` how many the session of that plan executes;
    weights lie beside ``path``.
    """

    path: Path
    loaded: Loaded
    prepared: PreparedGraph
    latency: Figure
    groups: int
    terms: OutputTerms = OutputTerms()


@dataclass(frozen=True, slots=True, kw_only=True)
class NotApplied:
    """A fix that was left out; ``why`` is a clause, ``disagrees`` whether it gave other numbers."""

    why: str
    disagrees: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The common input of every fix of one model.

    A fix counts by the fastest of ``plans``; with ``where_faster`` one that is predicted to bring nothing is
    left out. ``folder`` is removed at the end.
    """

    basis: AnalysisBasis
    original: Path
    feeds: Path
    plans: tuple[PlanName, ...]
    where_faster: bool
    folder: Path
    progress: Progress

    def stage(self, path: Path, terms: OutputTerms) -> Stage:
        """Return a model file, read and predicted."""
        before = self.basis.loaded
        assert before is not None
        limits = before.limits
        loaded = replace(
            load(parse_reference(str(path)), limits=limits), state=before.state, batch=before.batch
        )
        prepared = prepare(loaded.graph(), release=self.basis.predictor.options.onnxruntime or "")
        # Nothing measured: of the model before a fix and behind it the same is known.
        question = self.basis.predictor.decision_input(prepared, self.basis.gpu, before.batch, None)
        result = tuple(plan_all(question))
        counted = [plan for plan in result if plan.name in self.plans]
        plan = min(counted or result, key=lambda each: each.latency.value)
        groups = prepared.groups_on_cpu if plan.name == "cpu" else prepared.cuda_groups
        latency = plan.latency
        return Stage(
            path=path, loaded=loaded, prepared=prepared, latency=latency, groups=len(groups), terms=terms
        )

    def new_folder(self) -> Path:
        """Return an empty folder."""
        return Path(tempfile.mkdtemp(dir=self.folder))

    def made(self, tool: str, stage: Stage, **arguments: Any) -> tuple[Path, Mapping[str, Any]]:
        """Return the result of one of ONNX Runtime's or onnxscript's tools on a model, and its messages.

        Raises:
            MeasurementError: It makes nothing of it.
        """
        import onnx

        folder = self.new_folder()
        reply = rewritten(tool, stage.path, folder, self.progress, **arguments)
        path = folder / stage.path.name
        before, after = (onnx.load(str(each), load_external_data=False) for each in (stage.path, path))
        keep_origins(before, after)
        path.write_bytes(after.SerializeToString())
        return path, reply

    def numbers(self, path: Path, terms: OutputTerms) -> Mapping[str, Any]:
        """Return the outputs of a model against those of the original, both on the CPU.

        Raises:
            MeasurementError: They cannot be had.
        """
        task = numbers_task(SessionSide(model=self.original), SessionSide(model=path), self.feeds, terms)
        agrees, why, outputs = compared(result_of(task, self.progress))
        return {"agrees": agrees, "why": why, "outputs": outputs}

    def overflow(self, path: Path, graph: Graph) -> Mapping[str, float]:
        """By tensor in float16 of the main graph the magnitude that it reaches, where float16 ends before.

        Raises:
            MeasurementError: The model cannot be run.
        """
        tensors = [
            tensor.name
            for node in graph.nodes
            for tensor in node.present_outputs
            if tensor.dtype.name == "float16" and not tensor.constant and tensor.elements
        ]
        if not tensors:
            return {}
        task = {
            "kind": "overflow",
            "applied": to_message(SessionSide(model=path)),
            "feeds": str(self.feeds),
            "sets": _INPUT_SETS,
            "tensors": tensors,
            "limit": LARGEST_FLOAT16,
        }
        reached: Mapping[str, float] = result_of(task, self.progress)["reached"]
        return reached


def numbers_task(
    reference: SessionSide, applied: SessionSide, feeds: Path, terms: OutputTerms
) -> dict[str, Any]:
    """Return what is asked of two sessions whose outputs are compared."""
    task = {"kind": "numbers", "reference": to_message(reference), "applied": to_message(applied)}
    # Of the terms those that are not as the original's.
    own = {name: value for name, value in asdict(terms).items() if value}
    return {**task, "feeds": str(feeds), "sets": _INPUT_SETS, **own}


def compared(result: Mapping[str, Any]) -> tuple[bool, str, tuple[Mapping[str, Any], ...]]:
    """Return whether outputs agree, why they do not, and a row for each of them."""
    rows = tuple(
        {
            "output": row["name"],
            "max_abs_error": row["max_absolute"],
            "max_rel_error": row["max_relative"],
            "sqnr_db": row["sqnr_db"],
            "tolerance": row["tolerance"],
            "agrees": row["agrees"],
        }
        for row in result["outputs"]
    )
    wrong = [f"{row['name']}: {row['why']}" for row in result["outputs"] if not row["agrees"]]
    return not wrong, "; ".join(wrong), rows
