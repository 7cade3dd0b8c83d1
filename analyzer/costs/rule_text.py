"""Counting, explained: what ``analyze ops`` prints about the rules."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from analyzer.costs.registry import CostRule, rules
from analyzer.errors import UsageError
from analyzer.graph import DEFAULT_DOMAIN

_BASIS = {
    "exact": "exact: follows from shapes and attributes alone",
    "modelled": "modelled",
    "depends": "exact or modelled, as the node decides",
}


def explain(operator: str) -> str:
    """The rules of an operator in words; ``domain::Operator`` names one, ``Operator`` all of that name.

    Raises:
        UsageError: No rule has that name; the hint gives the nearest.
    """
    domain, _, name = operator.rpartition("::")
    matching = [one for one in rules() if one.op_type.lower() == name.lower() and domain in ("", one.domain)]
    if not matching:
        near = difflib.get_close_matches(name, {one.op_type for one in rules()}, n=3)
        hint = f"Did you mean {', '.join(near)}?" if near else "`analyze ops` lists all"
        raise UsageError(f"no rule counts '{operator}'", hint=hint)
    ordered = sorted(matching, key=lambda one: (one.domain != DEFAULT_DOMAIN, one.domain))
    return "\n\n".join(_described(one) for one in ordered)


def by_family() -> Mapping[str, tuple[CostRule, ...]]:
    """All rules by family, both in order of their names."""
    families: dict[str, list[CostRule]] = {}
    for one in rules():
        families.setdefault(one.family, []).append(one)
    return {family: tuple(families[family]) for family in sorted(families)}


def _described(one: CostRule) -> str:
    lines = [f"{one.domain}::{one.op_type}", f"  FLOPs   {one.formula}"]
    lines += [f"          {line.strip()}" for line in one.description.splitlines() if line.strip()]
    basis = f"modelled: {one.assumes}" if one.basis == "modelled" else _BASIS[one.basis]
    return "\n".join([*lines, f"  basis   {basis}", f"  family  {one.family}"])
