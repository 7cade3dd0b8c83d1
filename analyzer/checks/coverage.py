"""A3xx: what is not counted."""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.checks.phrases import operators
from analyzer.checks.registry import Diagnostic, Subject, rule
from analyzer.record.analysis import OperatorResult
from analyzer.record.notes import without_trips
from analyzer.text import first_few


@rule("A301", "unknown-cost", "warning")
def unknown_cost(subject: Subject) -> Iterator[Diagnostic]:
    """An operator's cost is not known, so totals and verdict leave it out.

    What:
        No cost rule covers the operator, or the shape of one of its tensors is open. Its FLOPs and bytes
        are unknown, not zero; every total that it belongs to reads "at least".

    Why:
        A verdict that leaves out an operator may be wrong by exactly that operator.

    Fix:
        Bind open dimensions (`--batch`, `--input`), replace the custom operator, or ask for a rule:
        `analyze ops` lists what is covered.

    Example:
        An operator of a domain of one's own (`com.example::Warp`).
    """
    # One finding a type: a custom operator in forty layers is one rule to write.
    groups: dict[tuple[str, str], list[OperatorResult]] = {}
    for operator in subject.analysis.operators:
        if operator.basis == "unknown":
            groups.setdefault((operator.domain, operator.op_type), []).append(operator)
    for (domain, op_type), group in groups.items():
        kind = op_type if domain in ("", "ai.onnx") else f"{domain}::{op_type}"
        note = f": {group[0].note.rstrip('.')}" if group[0].note else ""
        names = first_few(list(dict.fromkeys(op.module or op.name for op in group)))
        yield Diagnostic(
            operator=group[0],
            message=f"the cost of {operators(len(group), kind)} is unknown ({names}){note}; "
            "totals read at least",
            fix="bind open dimensions with --batch or --input, or use an operator that `analyze ops` lists",
        )


@rule("A302", "unknown-trips", "warning")
def unknown_trips(subject: Subject) -> Iterator[Diagnostic]:
    """How often a loop runs its body is decided by the data, so its time is not known before the run.

    What:
        Neither the loop's limit nor its condition follows from shapes and constants. Its FLOPs are those of one
        trip, at least; its time is given for any number of trips from 1 to 10,000.

    Why:
        A loop may take nearly all of the time, and a verdict or a budget that is met may be wrong by all of it.

    Fix:
        Give the loop a limit that shapes or constants decide, or make the input that decides it a constant.
        Where the model is run, the CPU's time is measured with the trips of that run.

    Example:
        A decoder that is exported as a Loop until an end token comes.
    """
    for operator in subject.analysis.operators:
        if without_trips(operator.note):
            yield Diagnostic(
                operator=operator,
                message="the data decide how often it runs its body: its time, and the model's, are not known "
                "before the run; FLOPs read at least",
                fix="give the loop a limit that shapes or constants decide",
            )
