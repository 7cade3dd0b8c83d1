"""``analyze rules``: the CI rules, what each finds, why it matters and how to fix it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from analyzer.checks import CheckRule


@click.command(name="rules", short_help="The CI rules: what, why, how to fix.")
@click.argument("code", required=False)
def command(code: str | None) -> None:
    """List the rules of `analyze check`, or explain one: what it finds, why it matters, how to fix it.

    CODE is a rule's code or name: A101, no-cuda-kernel.
    """
    from analyzer.checks import find

    click.echo(_page(find(code)) if code else _list())


def _list() -> str:
    from analyzer.checks import FAMILIES, rules

    lines = []
    width = max(len(rule.name) for rule in rules())
    for prefix, family in FAMILIES.items():
        lines.append(f"{prefix}xx {family}")
        lines += [
            f"  {rule.code}  {rule.severity:7}  {rule.name:{width}}  {rule.title}"
            for rule in rules()
            if rule.code.startswith(prefix)
        ]
        lines.append("")
    return "\n".join([*lines, "analyze rules CODE explains one."])


def _page(rule: CheckRule) -> str:
    parts = [f"{rule.code} {rule.name} ({rule.severity})", rule.title]
    for heading, text in (
        ("What it finds", rule.what),
        ("Why it matters", rule.why),
        ("How to fix it", rule.fix),
        ("Example", rule.example),
    ):
        parts.append(heading + "\n" + "\n".join(f"  {line}".rstrip() for line in text.splitlines()))
    return "\n\n".join(parts)
