"""A3xx: what is not counted."""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.checks.phrases import operators
from analyzer.checks.registry import Diagnostic, Subject, rule
from analyzer.record.analysis import OperatorResult
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
