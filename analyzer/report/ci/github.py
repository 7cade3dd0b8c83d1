"""GitHub Actions: findings as workflow commands, which annotate the lines of a pull request."""

from __future__ import annotations

from analyzer.record.analysis import Analysis
from analyzer.report.findings_text import (
    Check,
    PlacedFinding,
    by_severity,
    check_of,
    cost_of,
    rule_label,
    tally,
)
from analyzer.text import without_controls

# GitHub's own word for a note.
_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}
# GitHub shows ten annotations of each kind for a step and drops the rest without a word.
SHOWN = 10


def render(subject: Analysis | Check) -> str:
    """Return one workflow command for each finding, the gravest first, and a last line in plain text."""
    check = check_of(subject)
    messages = {id(one): check.message(model, one.finding) for model in check.models for one in model.findings}
    findings = by_severity(check.findings)
    lines = [_command(one, messages[id(one)]) for one in findings]
    for severity in _COMMANDS:
        hidden = sum(one.severity == severity for one in findings) - SHOWN
        if hidden > 0:
            lines.append(
                f"{hidden} more of severity {severity} are in the log; GitHub annotates {SHOWN} of a kind"
            )
    lines.append(f"{tally(findings)} ({_data(check.subject)})")
    return "\n".join(lines) + "\n"


def _command(one: PlacedFinding, message: str) -> str:
    finding, properties = one.finding, {"file": one.file}
    if one.line is not None:
        properties["line"] = str(one.line)
    properties["title"] = rule_label(finding.code)
    written = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    # An annotation is plain text, shown with its line breaks: what, what it costs, what to do.
    cost = f"\nCost: {cost_of(finding)} per inference." if cost_of(finding) else ""
    text = f"{message}.{cost}\nFix: {finding.fix}."
    return f"::{_COMMANDS[finding.severity]} {written}::{_data(text)}"


def _data(text: str) -> str:
    """Escape as the runner's toolkit escapes a command's message."""
    # escapeData in actions/toolkit, packages/core/src/command.ts; % first, as the others write one.
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    # Wherever it stands, "##[" begins a command of the older form, which the toolkit knows nothing of.
    return without_controls(escaped).replace("##[", "# #[")


def _property(text: str) -> str:
    """Escape as the runner's toolkit escapes a command's property."""
    # escapeProperty in the same file: a colon ends the properties, a comma ends one of them.
    return _data(text).replace(":", "%3A").replace(",", "%2C")
