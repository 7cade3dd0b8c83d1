"""``analyze ops``: the cost rules, or one operator explained."""

from __future__ import annotations

import click


@click.command("ops")
@click.argument("operators", nargs=-1, metavar="[OPERATOR]...")
@click.option("--domain", help="List one domain only, e.g. com.microsoft.")
def command(operators: tuple[str, ...], domain: str | None) -> None:
    """List the cost rules with formula and basis, or explain each OPERATOR.

    \b
    analyze ops                      all rules, by family
    analyze ops Conv                 the rules for Conv in every domain
    analyze ops com.microsoft::MoE   one rule
    """  # noqa: D301 - Click wants the escape, not a backslash
    from analyzer.costs import explain

    if operators:
        click.echo("\n\n".join(explain(operator) for operator in operators))
    else:
        click.echo("\n".join(_listed(domain)))


def _listed(domain: str | None) -> list[str]:
    from analyzer.costs import by_family
    from analyzer.errors import UsageError
    from analyzer.graph import DEFAULT_DOMAIN

    lines: list[str] = []
    count = 0
    for family, rules in by_family().items():
        chosen = [rule for rule in rules if domain in (None, rule.domain)]
        if not chosen:
            continue
        count += len(chosen)
        lines.append(f"\n{family.replace('_', ' ')}")
        for rule in chosen:
            name = rule.op_type if rule.domain == DEFAULT_DOMAIN else f"{rule.domain}::{rule.op_type}"
            lines.append(f"  {name:<44} {rule.basis:<9} {rule.formula}")
    if not count:
        raise UsageError(f"no rule is of the domain '{domain}'", hint="`analyze ops` lists all domains")
    head = f"{count} rules. FLOPs: 1 for an addition or a multiplication, 2 for a multiply-accumulate; dense."
    return [head, "`analyze ops OPERATOR` explains one.", *lines]
