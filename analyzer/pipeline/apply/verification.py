"""Whether an applied plan does what it says: numbers, placement, time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analyzer.conversion import integer_form
from analyzer.decision.decision_input import DecisionInput
from analyzer.measurement.applied_session import verify
from analyzer.measurement.output_agreement import allowed
from analyzer.measurement.request import to_message
from analyzer.measurement.session import SessionSide
from analyzer.operators import draws_random_numbers
from analyzer.pipeline.apply.fixes.bench import OutputTerms
from analyzer.pipeline.apply.result import Applied, Verified
from analyzer.pipeline.measure import installed_release, minor
from analyzer.pipeline.target_devices import gpu_of_this_machine, model_precision
from analyzer.progress import Progress
from analyzer.text import first_few, plural
from analyzer.units import seconds

# Inputs that are compared, the model's own among them.
_INPUT_SETS = 3
# Types that NumPy has, and computes with.
_COMPARED = frozenset({"bool", "float16", "float32", "float64"}) | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
_TIMED_S = 5.0
_THERE = "`python run.py --verify` compares it on a machine with a GPU."


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What is verified.

    Attributes:
        result: What is said of the plan so far.
        side: Its session.
        feeds: The file of the model's inputs.
        asked: What it was planned from.
        run: Whether it may be timed.
        reference: The model before its fixes; None where it had none.
        terms: How its outputs are compared with that one's.
    """

    result: Applied
    side: SessionSide
    feeds: Path
    asked: DecisionInput
    run: bool
    reference: Path | None = None
    terms: OutputTerms | None = None


def verified(attempt: Attempt, progress: Progress) -> Applied:
    """The result with what was found."""
    side, plain = attempt.side, SessionSide(model=attempt.reference or attempt.side.model)
    here = gpu_of_this_machine()
    on_gpu = side.provider == "cuda"
    # Without a GPU the annotated model runs on the CPU, too: its numbers must be the same.
    runs = side if here is not None or not on_gpu else replace(side, provider="cpu", cuda={})
    tasks: list[dict[str, Any]] = [
        {
            "kind": "numbers",
            "reference": to_message(plain),
            "applied": to_message(runs),
            "feeds": str(attempt.feeds),
            "sets": _INPUT_SETS,
            "precision": _arithmetic(attempt) if runs.provider == "cuda" else None,
            **(attempt.terms.as_json() if attempt.terms is not None else {}),
        },
    ]
    # Another release may place it otherwise: what is installed proves nothing of it.
    other = on_gpu and minor(installed_release()) != minor(attempt.result.onnxruntime)
    if not other:
        tasks.append({"kind": "placement", "applied": to_message(side)})
    timed = attempt.run and on_gpu and here is not None and attempt.asked.gpu is not None
    if timed:
        tasks.append(
            {
                "kind": "time",
                "applied": to_message(side),
                "feeds": str(attempt.feeds),
                # A cache that grows lies there, too, though no two runs share its memory.
                "in_place": dict(attempt.result.state) if attempt.asked.graph.carried else None,
                "budget_s": _TIMED_S,
            }
        )
    progress("verifying numbers and placement", None)
    found = verify(tasks)
    reasons: dict[str, str] = {}
    numbers, differences = _numbers(found["numbers"], reasons)
    if numbers is False and any(map(draws_random_numbers, attempt.asked.graph.nodes)):
        # Each device draws its own: a difference says nothing of the plan.
        numbers, reasons["numbers"] = None, f"The model draws random numbers: {reasons['numbers']}."
    placement = None
    if other:
        reasons["placement"] = (
            f"The plan is for ONNX Runtime {attempt.result.onnxruntime}; {installed_release()} is installed."
        )
    else:
        placement = _placement(attempt.result, found["placement"], reasons)
    measured, in_time = _time(attempt, found.get("time"), reasons, here_is_gpu=here is not None)
    tolerances = _tolerances(attempt)
    return replace(
        attempt.result,
        verified=Verified(placement=placement, numbers=numbers, time=in_time, reasons=reasons),
        differences=differences,
        measured_s=measured,
        tolerances=tolerances,
        notes=(*attempt.result.notes, *_not_compared(attempt, tolerances)),
    )


def _arithmetic(attempt: Attempt) -> str | None:
    """What a GPU rounds to where it is coarser than the types of the outputs say: a key of ``TOLERANCES``."""
    if attempt.side.provider != "cuda":
        return None
    if integer_form(attempt.asked.graph) is not None:
        return "int8"
    half = {"fp16": "float16", "bf16": "bfloat16"}.get(model_precision(attempt.asked.graph))
    return half or (None if "use_tf32" in attempt.side.cuda else "tf32")


def _tolerances(attempt: Attempt) -> dict[str, tuple[float, float]]:
    """What each output may be off by between the plan's session and one of the same model on the CPU."""
    graph = attempt.asked.graph
    if any(map(draws_random_numbers, graph.nodes)):
        return {}
    return {
        output.name: allowed(output.dtype.name, _arithmetic(attempt))
        for output in graph.outputs
        if output.dtype.name in _COMPARED
    }


def _not_compared(attempt: Attempt, tolerances: Mapping[str, object]) -> Iterator[str]:
    """What ``run.py --verify`` cannot judge."""
    left = [output for output in attempt.asked.graph.outputs if output.name not in tolerances]
    if left and not tolerances and any(map(draws_random_numbers, attempt.asked.graph.nodes)):
        yield "run.py --verify compares no numbers: the model draws random ones."
    elif left:
        names = first_few(f"{output.name} ({output.dtype.name})" for output in left)
        yield f"run.py --verify does not compare {names}: NumPy has no such type to compute with."


def _numbers(
    found: Mapping[str, Any], reasons: dict[str, str]
) -> tuple[bool | None, tuple[Mapping[str, Any], ...]]:
    if "trouble" in found:
        reasons["numbers"] = f"They were not compared: {found['trouble']}."
        return None, ()
    rows = tuple(
        {
            "output": row["name"],
            "max_abs_error": row["max_absolute"],
            "max_rel_error": row["max_relative"],
            "tolerance": row["tolerance"],
            "agrees": row["agrees"],
            **({"sqnr_db": row["sqnr_db"]} if row["sqnr_db"] is not None else {}),
        }
        for row in found["outputs"]
    )
    wrong = [f"{row['name']}: {row['why']}" for row in found["outputs"] if not row["agrees"]]
    if wrong:
        reasons["numbers"] = "; ".join(wrong)
    return not wrong, rows


def _placement(result: Applied, found: Mapping[str, Any], reasons: dict[str, str]) -> bool | None:
    if "trouble" in found:
        reasons["placement"] = f"CUDA's provider does not load here: {found['trouble']}. {_THERE}"
        return None
    nodes = {name: provider.removesuffix("ExecutionProvider") for name, provider in found["nodes"].items()}
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
    if found["copies"] != result.copies:
        problems.append(f"{plural(found['copies'], 'copy', 'copies')} where {result.copies} were planned")
    if problems:
        reasons["placement"] = "; ".join(problems)
    return not problems


def _time(
    attempt: Attempt, found: Mapping[str, Any] | None, reasons: dict[str, str], *, here_is_gpu: bool
) -> tuple[float | None, bool | None]:
    result = attempt.result
    if found is None:
        why = (
            "the plan needs no GPU, and `analyze` times the CPU"
            if attempt.side.provider == "cpu"
            else "there is no GPU here"
            if not here_is_gpu
            else "--no-run"
        )
        reasons["time"] = f"It was not timed: {why}."
        return None, None
    if "trouble" in found:
        reasons["time"] = f"It was not timed: {found['trouble']}."
        return None, None
    median = float(found["median_s"])
    low, high = result.latency.low, result.latency.high
    inside = low <= median <= high
    if not inside:
        reasons["time"] = f"{seconds(median)} where {seconds(low)} to {seconds(high)} were predicted"
    return median, inside
