"""Verify an applied plan: numbers, placement, time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from analyzer.conversion import integer_form
from analyzer.decision.decision_input import DecisionInput
from analyzer.graph import Graph
from analyzer.measurement.applied_child import verify
from analyzer.measurement.output_agreement import allowed
from analyzer.measurement.request import to_message
from analyzer.measurement.session import SessionSide
from analyzer.operators import draws_random_numbers
from analyzer.pipeline.apply.fixes.bench import OutputTerms, compared, numbers_task
from analyzer.pipeline.apply.fixes.chain import FixedModel
from analyzer.pipeline.apply.result import Applied, Verified
from analyzer.pipeline.measure import installed_release, minor
from analyzer.pipeline.target_devices import gpu_of_this_machine, model_precision
from analyzer.progress import Progress
from analyzer.text import first_few, plural
from analyzer.units import seconds

# Types that NumPy has, and computes with.
_COMPARED = frozenset({"bool", "float16", "float32", "float64"}) | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
_TIMED_S = 5.0
_THERE = "`python run.py --verify` compares it on a machine with a GPU."


def verified(
    result: Applied,
    side: SessionSide,
    feeds: Path,
    question: DecisionInput,
    fixed: FixedModel | None,
    progress: Progress,
    *,
    run: bool,
) -> Applied:
    """Return the result with what was found; ``run`` says whether it may be timed."""
    plain = SessionSide(model=side.model if fixed is None else fixed.original.model_path)
    here = gpu_of_this_machine()
    on_gpu = side.provider == "cuda"
    # Without a GPU the annotated model runs on the CPU, too: its numbers must be the same.
    runs = side if here is not None or not on_gpu else replace(side, provider="cpu", cuda={})
    tasks = [
        {
            "precision": _arithmetic(side, question.graph) if runs.provider == "cuda" else None,
            **numbers_task(plain, runs, feeds, OutputTerms() if fixed is None else fixed.terms),
        }
    ]
    # Another release may place it otherwise: what is installed proves nothing of it.
    other = on_gpu and minor(installed_release()) != minor(result.onnxruntime)
    if not other:
        tasks.append({"kind": "placement", "applied": to_message(side)})
    timed = run and on_gpu and here is not None and question.gpu is not None
    if timed:
        tasks.append(
            {
                "kind": "time",
                "applied": to_message(side),
                "feeds": str(feeds),
                # A cache that grows lies there, too, though no two runs share its memory.
                "in_place": dict(result.state) if question.graph.carried else None,
                "budget_s": _TIMED_S,
            }
        )
    progress("verifying numbers and placement", None)
    matches = verify(tasks)
    reasons: dict[str, str] = {}
    numbers: bool | None = None
    differences: tuple[Mapping[str, Any], ...] = ()
    if "trouble" in matches["numbers"]:
        reasons["numbers"] = f"They were not compared: {matches['numbers']['trouble']}."
    else:
        numbers, wrong, rows = compared(matches["numbers"])
        # The noise is of converted models alone.
        differences = tuple(
            {name: value for name, value in row.items() if name != "sqnr_db" or value is not None}
            for row in rows
        )
        if wrong:
            reasons["numbers"] = wrong
    draws = any(map(draws_random_numbers, question.graph.nodes))
    if numbers is False and draws:
        # Each device draws its own: a difference says nothing of the plan.
        numbers, reasons["numbers"] = None, f"The model draws random numbers: {reasons['numbers']}."
    placement = None
    if other:
        reasons["placement"] = (
            f"The plan is for ONNX Runtime {result.onnxruntime}; {installed_release()} is installed."
        )
    else:
        placement = _placement(result, matches["placement"], reasons)
    measured, in_time = _time(result, side, matches.get("time"), reasons, here_is_gpu=here is not None)
    # What each output may be off by between the plan's session and one of the same model on the CPU.
    outputs = question.graph.outputs
    tolerances = {
        output.name: allowed(output.dtype.name, _arithmetic(side, question.graph))
        for output in outputs
        if output.dtype.name in _COMPARED and not draws
    }
    notes, left = list(result.notes), [output for output in outputs if output.name not in tolerances]
    if left and not tolerances and draws:
        notes.append("run.py --verify compares no numbers: the model draws random ones.")
    elif left:
        names = first_few(f"{output.name} ({output.dtype.name})" for output in left)
        notes.append(f"run.py --verify does not compare {names}: NumPy has no such type to compute with.")
    return replace(
        result,
        verified=Verified(placement=placement, numbers=numbers, time=in_time, reasons=reasons),
        differences=differences,
        measured_s=measured,
        tolerances=tolerances,
        notes=tuple(notes),
    )


def _arithmetic(side: SessionSide, graph: Graph) -> str | None:
    """Return a GPU's rounding where it is coarser than the outputs' types: a key of ``TOLERANCES``."""
    if side.provider != "cuda":
        return None
    if integer_form(graph) is not None:
        return "int8"
    half = {"fp16": "float16", "bf16": "bfloat16"}.get(model_precision(graph))
    return half or (None if "use_tf32" in side.cuda else "tf32")


def _placement(result: Applied, observed: Mapping[str, Any], reasons: dict[str, str]) -> bool | None:
    if "trouble" in observed:
        reasons["placement"] = f"CUDA's provider does not load here: {observed['trouble']}. {_THERE}"
        return None
    nodes = {name: provider.removesuffix("ExecutionProvider") for name, provider in observed["nodes"].items()}
    wrong = sorted(
        name for name in nodes.keys() | result.nodes.keys() if nodes.get(name) != result.nodes.get(name)
    )
    problems = []
    if wrong:
        first = wrong[0]
        problems.append(
            f"{plural(len(wrong), 'node')} elsewhere than planned, such as {first}: "
            f"{nodes.get(first, 'not recorded')} where {result.nodes.get(first, 'nothing')} was planned"
        )
    if observed["copies"] != result.copies:
        problems.append(f"{plural(observed['copies'], 'copy', 'copies')} where {result.copies} were planned")
    if problems:
        reasons["placement"] = "; ".join(problems)
    return not problems


def _time(
    result: Applied,
    side: SessionSide,
    observed: Mapping[str, Any] | None,
    reasons: dict[str, str],
    *,
    here_is_gpu: bool,
) -> tuple[float | None, bool | None]:
    if observed is None:
        why = (
            "the plan needs no GPU, and `analyze` times the CPU"
            if side.provider == "cpu"
            else "there is no GPU here"
            if not here_is_gpu
            else "--no-run"
        )
        reasons["time"] = f"It was not timed: {why}."
        return None, None
    if "trouble" in observed:
        reasons["time"] = f"It was not timed: {observed['trouble']}."
        return None, None
    median = float(observed["median_s"])
    low, high = result.latency.low, result.latency.high
    inside = low <= median <= high
    if not inside:
        reasons["time"] = f"{seconds(median)} where {seconds(low)} to {seconds(high)} were predicted"
    return median, inside
