"""Rewritings that move operators to CUDA, each tried on the model.

``--fix fusions`` makes known patterns the one operator that ONNX Runtime has for each, ``--fix last-logits``
leaves a decoder's logits of its last token alone, ``--precision fp16`` and ``int8`` take narrower types.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from analyzer.conversion import NoForm, convert, integer_form, without_half_kernel
from analyzer.conversion.graph_writer import keep_origins
from analyzer.conversion.last_logits import TOKENS, NoLogits, cut, last_logits
from analyzer.decision.plans import plan_all
from analyzer.errors import AnalyzerError
from analyzer.figures import Figure
from analyzer.graph import DEFAULT_DOMAIN, Graph
from analyzer.loading.load import load
from analyzer.loading.loaded import Loaded
from analyzer.loading.model_reference import parse_reference
from analyzer.loading.runnable_files import link_external_data
from analyzer.measurement.applied_child import result_of, verify
from analyzer.measurement.child_process import rewritten
from analyzer.measurement.request import to_message
from analyzer.measurement.session import SessionSide
from analyzer.options import PlanName
from analyzer.ort.execution import Placement
from analyzer.ort.kernels import registry
from analyzer.ort.simplify import simplify
from analyzer.pipeline.batches import AnalysisBasis
from analyzer.pipeline.prepared import PreparedGraph, prepare
from analyzer.pipeline.target_devices import model_precision
from analyzer.progress import Progress
from analyzer.text import listed, plural

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


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedStage:
    """A model behind a fix that keeps its numbers.

    ``blocked`` are operators that were left as they were, each ``name`` with ``why``.
    """

    stage: Stage
    what: str = ""
    numbers: Mapping[str, Any]
    blocked: tuple[Mapping[str, str], ...] = ()


# By whose rules, in words. Sessions fuse by rules of their own; these find what those do not.
_TOOLS = {"rules": "onnxscript's rules", "transformers": "ONNX Runtime's transformers optimizer"}


# How often a tool holds the weights at its peak: 4.0 GB of 0.8 GB. onnxscript's rules map them.
_COPIES = {"transformers": 5.5}
# What a pattern becomes, where ONNX's own domain has an operator for it.
_FUSED = frozenset(
    {"Attention", "Gelu", "GroupNormalization", "LayerNormalization", "RMSNormalization"}
    | {"RotaryEmbedding", "SimplifiedLayerNormalization"}
)


def restore_fusions(stage: Stage, bench: Bench) -> FixedStage | NotApplied:
    """Each rewriting that is predicted to take less time than what was there before it, the best one first."""
    import psutil

    weights, free = stage.prepared.graph.parameter_bytes, psutil.virtual_memory().available
    tools = {tool: words for tool, words in _TOOLS.items() if _COPIES.get(tool, 0) * weights < free}
    used: list[str] = []
    last: FixedStage | None = None
    disagreed = ""
    while tools:
        tried = {tool: _attempt(tool, stage if last is None else last.stage, bench) for tool in tools}
        result = {tool: made for tool, made in tried.items() if isinstance(made, FixedStage)}
        wrong = (
            f"{_TOOLS[tool]} change what it computes ({why})"
            for tool, why in tried.items()
            if isinstance(why, str)
        )
        disagreed = next(wrong, disagreed)
        if not result:
            break
        best = min(result, key=lambda tool: result[tool].stage.latency.value)
        last = result[best]
        used.append(tools.pop(best))
    if last is not None:
        # The fused operators that are there now, with how many there are more.
        counts = Counter(_fused(last.stage))
        counts.subtract(_fused(stage))
        names = listed(f"{count} {name}" for name, count in sorted(counts.items()) if count > 0)
        what = (
            f"{names or 'Operators'} restored by {listed(used)}: "
            f"{plural(last.stage.groups, 'kernel group')} where there were {stage.groups:,}."
        )
        return replace(last, what=what)
    if disagreed:
        return NotApplied(why=disagreed, disagrees=True)
    return NotApplied(why="no rewriting that is known makes a session of this model faster")


def _attempt(tool: str, stage: Stage, bench: Bench) -> FixedStage | str | None:
    """Return a tool's model; a text where its outputs differ, None where it does not help."""
    try:
        path, reply = bench.made(tool, stage)
        fixed = bench.stage(path, stage.terms) if reply["applied"] else stage
        if (fixed.latency.value, fixed.groups) >= (stage.latency.value, stage.groups):
            return None
        # Where no session on the CPU can show that it is right, it is not taken.
        numbers = bench.numbers(path, stage.terms)
    except AnalyzerError:
        return None  # the tool, or a session, makes nothing of this graph: the other one may
    return FixedStage(stage=fixed, numbers=numbers) if numbers["agrees"] else str(numbers["why"])


def _fused(stage: Stage) -> Iterator[str]:
    for node in stage.prepared.graph.nodes:
        if node.domain != DEFAULT_DOMAIN or node.op_type in _FUSED:
            yield node.op_type


def cut_logits(stage: Stage, bench: Bench) -> FixedStage | NotApplied:
    """Return the last row of what the last product reads, where earlier rows do not read later tokens."""
    import onnx

    result = last_logits(stage.prepared.graph)
    if isinstance(result, NoLogits):
        return NotApplied(why=result.why)
    side = to_message(SessionSide(model=stage.path))
    task = {
        "kind": "later_tokens",
        "applied": side,
        "feeds": str(bench.feeds),
        "output": result.output,
        "tokens": result.tokens,
    }
    read = verify([task], bench.progress)["later_tokens"]
    if "trouble" in read:
        return NotApplied(why=f"whether it is a decoder was not found out: {read['trouble']}")
    if not read["causal"]:
        return NotApplied(why="it is no decoder: earlier rows of its logits read later tokens")
    proto = onnx.load(str(stage.path), load_external_data=False)
    cut(proto, result)
    folder = bench.new_folder()
    link_external_data(proto, stage.path, folder)
    path = folder / stage.path.name
    path.write_bytes(proto.SerializeToString())
    terms = replace(stage.terms, last_rows={**stage.terms.last_rows, result.output: TOKENS})
    fixed = bench.stage(path, terms)
    if bench.where_faster and fixed.latency.value >= stage.latency.value:
        return NotApplied(why="the last row alone is predicted to take no less time")
    numbers = bench.numbers(path, terms)
    if not numbers["agrees"]:
        return NotApplied(why=numbers["why"], disagrees=True)
    return FixedStage(
        stage=fixed,
        what=f"The logits {result.output} hold the last of {result.tokens:,} tokens alone, "
        f"[batch, 1, {result.vocabulary:,}].",
        numbers=numbers,
    )


_NO_KERNEL = "CUDA's provider has no float16 kernel for it"
_ON_CPU = "it runs on the CPU, which computes float16 in float32 between casts"
_CALIBRATION_SETS = 8


def in_half(stage: Stage, bench: Bench) -> FixedStage | NotApplied:
    """Return weights and arithmetic in float16 where there are kernels; inputs and outputs keep their types."""
    graph = stage.prepared.graph
    integers = integer_form(graph)
    if integers is not None:
        return NotApplied(why=f"the model is quantised already, to {integers}")
    own = model_precision(graph)
    if own != "fp32":
        return NotApplied(why=f"its weights are {own}, and only those of fp32 are converted")
    blocked = tuple(_left_wide(graph, stage.prepared.placement))
    # What a session computes once stays as it is, too: to fold it takes a kernel of the CPU.
    folded = (
        graph.nodes[index].name
        for index in sorted(simplify(graph, registry(stage.prepared.placement.release)).folded)
    )
    path, _ = bench.made("float16", stage, blocked=[*(each["name"] for each in blocked), *folded])
    terms = replace(stage.terms, precision="float16")
    fixed = bench.stage(path, terms)
    numbers = bench.numbers(path, terms)
    if not numbers["agrees"]:
        return NotApplied(why=f"float16 changes what it computes ({numbers['why']})", disagrees=True)
    # The CPU rounds to float16 at few places, and would not show what is infinite on a GPU.
    reached = bench.overflow(path, fixed.prepared.graph)
    if reached:
        tensor = max(reached, key=reached.__getitem__)
        name = fixed.prepared.graph.nodes[fixed.prepared.graph.producer[tensor]].name
        why = f"{name} gives {reached[tensor]:.3g}, where float16 ends at {LARGEST_FLOAT16:,.0f}"
        return NotApplied(why=why, disagrees=True)
    partly = f" but {plural(len(blocked), 'operator')} in float32" if blocked else ""
    what = f"Weights and arithmetic in float16{partly}; inputs and outputs keep their types."
    return FixedStage(stage=fixed, what=what, numbers=numbers, blocked=blocked)


def _left_wide(graph: Graph, placement: Placement) -> Iterator[Mapping[str, str]]:
    """Yield operators that would only be cast back: without a kernel in float16 on the GPU, or on the CPU."""
    wide = frozenset(without_half_kernel(graph, "float16"))
    for node, placed in zip(graph.nodes, placement.nodes, strict=True):
        floats = any(tensor.dtype.name == "float32" for tensor in (*node.present_inputs, *node.present_outputs))
        if placed.why == "folded" or not floats:
            continue
        if node.index in wide:
            yield {"name": node.name, "op_type": node.op_type, "why": _NO_KERNEL}
        elif placed.provider == "cpu":
            yield {"name": node.name, "op_type": node.op_type, "why": _ON_CPU}


def in_integers(stage: Stage, bench: Bench) -> FixedStage | NotApplied:
    """Activations and weights of products in int8, ranges from the model's own inputs and varied ones."""
    graph = stage.prepared.graph
    form, own = convert(graph, "int8"), model_precision(graph)
    if own != "fp32" and integer_form(graph) is None:
        return NotApplied(why=f"its weights are {own}, and only those of fp32 are quantised")
    if isinstance(form, NoForm):
        return NotApplied(why=form.why)
    path, reply = bench.made("int8", stage, feeds=str(bench.feeds), sets=_CALIBRATION_SETS)
    terms = replace(stage.terms, precision="int8")
    fixed = bench.stage(path, terms)
    numbers = bench.numbers(path, terms)
    if not numbers["agrees"]:
        return NotApplied(why=f"8 bits change too much of what it computes ({numbers['why']})", disagrees=True)
    what = (
        f"Activations and weights in int8 (QDQ, one scale a tensor), ranges from {reply['sets']} sets of "
        "inputs: the model's own and varied ones. Real data give better ranges."
    )
    return FixedStage(stage=fixed, what=what, numbers=numbers)
